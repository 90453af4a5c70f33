//! Labels of Docker containers and of API objects. Pure.

/// The cluster's id: on every container that rke-operator creates.
pub const CLUSTER_ID: &str = "clusterprovisioner.rke.io/cluster-id";
/// The cluster's name, for people.
pub const CLUSTER_NAME: &str = "clusterprovisioner.rke.io/cluster-name";
/// On the claim: the name that the node has in its cluster.
pub const NODE: &str = "clusterprovisioner.rke.io/node";
/// On a `Cluster`, an annotation whose value is names of nodes, separated by commas: those that it
/// gives up for good, as `--lose` of the command line does.
pub const LOSE: &str = "clusterprovisioner.rke.io/lose";
/// On a `Cluster`, an annotation whose value is names of nodes, separated by commas: those that are cleaned when
/// they leave or the cluster is deleted, although another Kubernetes is on them, as `--clean` of the command line
/// does.
pub const CLEAN: &str = "clusterprovisioner.rke.io/clean";
/// On a `Cluster`, an annotation whose value is the cluster id of an external etcd: the data of this cluster are there
/// now, as `--accept-etcd` of the command line says.
pub const ACCEPT_ETCD: &str = "clusterprovisioner.rke.io/accept-etcd";
/// On a `Cluster`, an annotation of any value: a change that failed on a node and was put back there is tried again, as
/// `--retry` of the command line does.
pub const RETRY: &str = "clusterprovisioner.rke.io/retry";
/// On a component's container: which life of etcd's data it was made for, counted in restores. Without it: the first.
pub const ETCD_EPOCH: &str = "clusterprovisioner.rke.io/etcd-epoch";
/// On the container by which `doctor` measures a disk: it belongs to no cluster, and another measurement may remove it.
pub const MEASUREMENT: &str = "clusterprovisioner.rke.io/measurement";
/// The applied [`super::ContainerSpec`] as JSON.
pub const SPEC: &str = "clusterprovisioner.rke.io/spec";
/// On the claim: what was there before us ([`crate::facts::Baseline`] as JSON).
pub const BEFORE: &str = "clusterprovisioner.rke.io/before";
/// On API objects: the add-on they belong to.
pub const ADDON: &str = "clusterprovisioner.rke.io/addon";
/// The add-on that is the user's own manifests.
pub const USER_ADDONS: &str = "user-addons";
/// On the `ClusterRoleBinding` of a `Kubeconfig`'s user: the name of that `Kubeconfig`.
pub const KUBECONFIG: &str = "clusterprovisioner.rke.io/kubeconfig";
/// On an object of the user's manifests, an annotation: it was there before, and is not deleted when it is taken
/// out of the config.
pub const FOUND: &str = "clusterprovisioner.rke.io/found";
/// On a Node, an annotation: a run of rke-operator cordoned the node, and will uncordon it and remove the annotation.
/// A cordoned node without it was cordoned by another owner.
pub const CORDONED: &str = "clusterprovisioner.rke.io/cordoned";
/// On a Node, an annotation: it is to be rebooted. The request, and the boot of the machine that is to end.
pub const REBOOT: &str = "clusterprovisioner.rke.io/reboot";
/// On a Node, an annotation: the last request that has rebooted it.
pub const REBOOTED: &str = "clusterprovisioner.rke.io/rebooted";
/// On API objects: the chart they were rendered from. Not [`ADDON`]: which of these are wanted is in the
/// chart's record.
pub const CHART: &str = "clusterprovisioner.rke.io/chart";
/// On API objects, an annotation: the digest of what was applied. Tells whether an object is as it
/// was applied last where the server refuses to try an apply.
pub const APPLIED: &str = "clusterprovisioner.rke.io/applied";
/// On the pod template of an add-on's workload, an annotation: for which authority of the cluster its pods were restarted last.
pub const AUTHORITY: &str = "clusterprovisioner.rke.io/authority";
