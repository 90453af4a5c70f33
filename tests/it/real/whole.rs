//! A cluster that is whole again after something went wrong: `up` gets through, everybody is there, and
//! nothing is left to do.

use std::{collections::BTreeSet, time::Duration};

use lab::Node;

use super::{Site, tell};
use crate::lab_many::names;

/// Long enough for a machine to boot and for everything on it to be there again.
const WHOLE: Duration = Duration::from_secs(300);

impl Site {
    /// Runs `up` until it ends well; gives how many runs that took.
    pub(crate) fn gets_through(&self, what: &str) -> usize {
        let mut runs = 0;
        Self::eventually(&format!("after `{what}`: `up` gets through"), WHOLE, || {
            let run = self.run(&["up", "--yes"]);
            runs += 1;
            if run.status != 0 {
                tell(&format!("exit {}\n{}", run.status, run.stderr));
            }
            run.status == 0
        });
        runs
    }

    /// These nodes are Ready and take pods, those that have a member of etcd are its members, and there is
    /// nothing left to do.
    pub(crate) fn is_whole(&self, what: &str, nodes: &[&str], members: &[&str]) {
        let etcd: BTreeSet<String> = members.iter().map(|name| format!("etcd-{name}")).collect();
        assert_eq!(self.members(members[0]), etcd, "{what}");
        let ready = format!("after `{what}`: every node is Ready");
        Self::eventually(&ready, WHOLE, || self.ready() == names(nodes));
        assert!(self.nobody_is_cordoned(), "{what}");
        // Pods of a node that has just booted are waited for until they run.
        let nothing = format!("after `{what}`: nothing to do");
        Self::eventually(&nothing, WHOLE, || {
            let plan = self.run(&["plan"]).well();
            plan.stdout.contains("nothing to do")
        });
    }

    /// Nothing of a cluster is on a node that left it.
    pub(crate) fn nothing_is_left(node: &Node) {
        let left = "docker ps -aq --filter label=clusterprovisioner.rke.io/cluster-id
                    ls /etc/kubernetes /var/lib/etcd 2> /dev/null || true";
        let left = node.sh(left).expect("it answers");
        assert_eq!(left.trim(), "", "left on {}", node.name());
    }
}
