//! What the config of the soak's cluster says, and what an operation makes of it. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Operation;
use crate::lab_many::{ALL, CENTRAL, WORKER};

/// The releases of Kubernetes that the cluster goes through.
pub(crate) const RELEASES: [&str; 2] = ["v1.33.13", "v1.34.4"];

/// The worker that the API is written through: no fault strikes it.
pub(crate) const THROUGH: &str = "n4";

/// Three nodes with everything and a worker, and what comes and goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// One worker more.
    worker: bool,
    /// One control plane with etcd more.
    member: bool,
    /// How often these were changed.
    flags: usize,
    etcd_flag: usize,
    release: usize,
}

impl Wanted {
    /// Its nodes and their roles.
    pub(crate) fn nodes(&self) -> Vec<(&'static str, &'static [&'static str])> {
        let mut nodes = vec![("n1", ALL), ("n2", ALL), ("n3", ALL), (THROUGH, WORKER)];
        nodes.extend(self.worker.then_some(("n5", WORKER)));
        nodes.extend(self.member.then_some(("n6", CENTRAL)));
        nodes
    }

    /// The nodes with this role.
    pub(crate) fn with_role(&self, role: &str) -> Vec<&'static str> {
        let nodes = self.nodes().into_iter();
        let with = nodes.filter(|(_, roles)| roles.contains(&role));
        with.map(|(name, _)| name).collect()
    }

    /// What the config says beside its nodes.
    pub(crate) fn settings(&self, config: &mut Value) {
        let services = &mut config["services"];
        let mut flag = |service: &str, name: &str, value: usize| {
            services[service]["extra_args"][name] = json!(value.to_string());
        };
        flag("kube-api", "max-requests-inflight", 500 + self.flags);
        flag("kubelet", "max-pods", 100 + self.flags);
        flag("etcd", "max-txn-ops", 200 + self.etcd_flag);
        config["kubernetes_version"] = json!(RELEASES[self.release]);
    }
}

impl Operation {
    /// What is to be there before.
    pub(crate) fn before(self, mut wanted: Wanted) -> Wanted {
        match self {
            Self::AddWorker => wanted.worker = false,
            Self::RemoveWorker => wanted.worker = true,
            Self::AddMember => wanted.member = false,
            Self::RemoveMember => wanted.member = true,
            Self::Flags | Self::EtcdFlag | Self::Certificates | Self::Upgrade => {}
        }
        wanted
    }

    /// What is to be there afterwards. The config says nothing of certificates.
    pub(crate) fn after(self, mut wanted: Wanted) -> Wanted {
        match self {
            Self::AddWorker => wanted.worker = true,
            Self::RemoveWorker => wanted.worker = false,
            Self::AddMember => wanted.member = true,
            Self::RemoveMember => wanted.member = false,
            Self::Flags => wanted.flags += 1,
            Self::EtcdFlag => wanted.etcd_flag += 1,
            Self::Certificates => {}
            Self::Upgrade => wanted.release += 1,
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pairs, *};

    #[test]
    fn each_operation_begins_with_what_the_one_before_left() {
        let mut wanted = Wanted::default();
        for pair in pairs() {
            assert_eq!(pair.operation.before(wanted.clone()), wanted, "{pair}");
            wanted = pair.operation.after(wanted);
        }
        assert_eq!(wanted.release + 1, RELEASES.len());
        assert_eq!(wanted.with_role("etcd"), ["n1", "n2", "n3"]);
    }

    #[test]
    fn an_operation_by_itself_is_an_edit_of_the_config() {
        for operation in super::super::OPERATIONS {
            let before = operation.before(Wanted::default());
            let after = operation.after(before.clone());
            let told = |wanted: &Wanted| {
                let mut config = json!({});
                wanted.settings(&mut config);
                (wanted.nodes(), config)
            };
            let same = told(&before) == told(&after);
            assert_eq!(same, operation == Operation::Certificates, "{operation:?}");
        }
    }
}
