//! What a rotation of keys replaces, and nothing else with it. Pure.

use super::Desired;
use crate::{
    facts::{Actual, ContainerFact},
    model::{Component, EnvVar, path},
};

/// What a rotation replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotated {
    /// The key that the API servers encrypt with what they store.
    EncryptionKey,
    /// The key that signs the tokens of service accounts.
    ServiceAccountKey,
    /// The certificate authorities, with everything that they have signed.
    Authorities,
}

impl Rotated {
    /// True for the files that it is in.
    pub fn is_in(self, file: &str) -> bool {
        match self {
            Self::EncryptionKey => file == path::ENCRYPTION,
            Self::ServiceAccountKey => {
                [path::SERVICE_ACCOUNT_KEY, path::SERVICE_ACCOUNT_PUBLIC].contains(&file)
            }
            // A kubeconfig names files, and stays.
            Self::Authorities => {
                let of_tokens = Self::ServiceAccountKey.is_in(file);
                path::is_certificate(file) && file.strip_suffix(".pem").is_some() && !of_tokens
            }
        }
    }

    /// True for the components that read one of these files.
    pub const fn is_read_by(self, component: Component) -> bool {
        match component {
            Component::ApiServer => true,
            Component::ControllerManager => !matches!(self, Self::EncryptionKey),
            Component::Etcd
            | Component::Scheduler
            | Component::Kubelet
            | Component::KubeProxy
            | Component::Snapshots => matches!(self, Self::Authorities),
            Component::NginxProxy => false,
        }
    }
}

impl Desired {
    /// The same where only this changes: everything else of the containers that are there and read it stays as it was
    /// applied. See [`Goal::RotateKeys`](crate::converge::Goal::RotateKeys).
    #[must_use]
    pub fn only(mut self, rotated: Rotated, have: &Actual) -> Self {
        for (name, host) in &mut self.hosts {
            let containers = host.containers.iter_mut();
            for (component, spec) in containers.filter(|(it, _)| rotated.is_read_by(**it)) {
                let fact = have.up(name).and_then(|facts| facts.container(*component));
                let Some(mut applied) = fact.and_then(ContainerFact::applied) else {
                    continue;
                };
                let mut reads = applied.files.iter_mut().filter(|(it, _)| rotated.is_in(it));
                let brings = reads.all(|(file, digest)| match spec.files.get(file) {
                    Some(wanted) => {
                        digest.clone_from(wanted);
                        true
                    }
                    None => false,
                });
                let lacks = spec
                    .files
                    .keys()
                    .any(|file| rotated.is_in(file) && !applied.files.contains_key(file));
                let env = fact.and_then(|fact| known(&applied.env, &spec.env, fact));
                if let Some(env) = env.filter(|_| brings && !lacks) {
                    let records = spec.certificates.iter();
                    let records = records.filter(|(file, _)| rotated.is_in(file));
                    let records = records.map(|(file, record)| (file.clone(), record.clone()));
                    applied.certificates.extend(records);
                    applied.env = env;
                    *spec = applied;
                }
            }
        }
        self
    }
}

/// These variables with their values, which a label does not have: as they are wanted, or as the container has them.
fn known(applied: &[EnvVar], wanted: &[EnvVar], fact: &ContainerFact) -> Option<Vec<EnvVar>> {
    let runs = || fact.runs.iter().flat_map(|runs| &runs.env);
    let value = |var: &EnvVar| {
        let same = wanted.iter().find(|wanted| *wanted == var).cloned();
        let has = || {
            let mut all = runs().filter(|has| has.name == var.name);
            let assignment = all.find_map(EnvVar::assignment)?;
            Some(var.clone().with_value_of(&assignment))
        };
        same.or_else(has)
    };
    applied.iter().map(value).collect()
}
