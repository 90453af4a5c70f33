//! What a run meets outside of itself: nodes, trust, stores, time and chance. The two shells make
//! one; tests make their own.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::{
    api::LastSnapshot,
    apply::remote::Remote,
    bundle::Bundle,
    config::Credential,
    desired::pki::{GivenFiles, RestoreRequest, Rotation, RotationStage},
    host::HostKeys,
    model::{ClusterId, NodeName},
    state::{Store, kubeconfig::KubeconfigStore},
};

/// Tells the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// That function's time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// Everything outside, and the settings of a run.
#[derive(Clone)]
pub struct Environment {
    /// Where the nodes are met.
    pub remote: Arc<dyn Remote>,
    /// Whose host keys are trusted.
    pub host_keys: Arc<dyn HostKeys>,
    /// The state.
    pub store: Arc<dyn Store>,
    /// The kubeconfig.
    pub kubeconfig: Arc<dyn KubeconfigStore>,
    /// Keys for a removal without a config.
    pub key_ring: Arc<dyn KeyRing>,
    /// Read the lost keys of this cluster back from the nodes (invariant 2).
    pub recover: Option<ClusterId>,
    /// The cluster id of the external etcd that has the data of this cluster from now on: a person says so.
    pub accept_etcd: Option<String>,
    /// Good certificates that a person wants re-created.
    pub rotate: Option<Rotation>,
    /// A person wants a new key for what the API servers store.
    pub rotate_key: bool,
    /// How far a person wants the rotation of the service-account key to go.
    pub service_account_key: Option<RotationStage>,
    /// A person wants what has failed on a node and went back to be tried again.
    pub retry: bool,
    /// How far a person wants the rotation of the certificate authorities to go.
    pub authorities: Option<RotationStage>,
    /// What a person asks for about etcd's data.
    pub restore: Option<RestoreRequest>,
    /// Cluster ids that other `Cluster` objects hold (operator only).
    pub held_elsewhere: BTreeSet<ClusterId>,
    /// The nodes that a person gives up by name. Used once: the state records the outcome.
    pub lose: BTreeSet<NodeName>,
    /// Whether a removal saves a snapshot of etcd before.
    pub last_snapshot: LastSnapshot,
    /// The nodes that a person has cleaned by name when they leave, although another Kubernetes is on them.
    pub clean: BTreeSet<NodeName>,
    /// The cluster that this process runs on, which it refuses to remove (operator only).
    pub home: Option<HomeCluster>,
    /// Certificates that a person made (command line only).
    pub given: Option<Arc<GivenFiles>>,
    /// The images that nodes are given, in place of those that they would pull (command line only).
    pub bundle: Option<Arc<Bundle>>,
    /// Who this is to another run that waits for this one. Of two runs with the same name the
    /// second is taken for the first, started again.
    pub identity: String,
    /// The time, for certificates.
    pub clock: Clock,
    /// Fresh randomness.
    pub entropy: fn() -> [u8; 32],
}

impl Environment {
    /// The same without what a person requested of one run: nodes to give up or to clean, certificates and keys.
    #[must_use]
    pub fn without_requests(&self) -> Self {
        Self {
            lose: BTreeSet::new(),
            clean: BTreeSet::new(),
            rotate: None,
            rotate_key: false,
            service_account_key: None,
            retry: false,
            authorities: None,
            restore: None,
            given: None,
            ..self.clone()
        }
    }
}

/// The identity of the cluster that this process runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeCluster {
    /// The uid of its namespace `kube-system`.
    pub uid: String,
    /// The CA certificates of its API servers; `None` where they are not known.
    pub ca: Option<String>,
}

impl HomeCluster {
    /// True for the same cluster: by the uid where its API answers, else by the CA.
    pub fn is(&self, uid: Option<&str>, ca: Option<&str>) -> bool {
        match (uid, &self.ca, ca) {
            (Some(uid), _, _) => self.uid == uid,
            (None, Some(own), Some(ca)) => own.contains(ca.trim()),
            (None, _, _) => false,
        }
    }
}

/// Finds what a login proves itself with when only the inventory names it, and no intent does.
pub trait KeyRing: Send + Sync {
    /// The key that was read from `source`, with its certificate. The error says what is missing.
    fn credential<'a>(
        &'a self,
        source: &'a str,
        certificate: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>>;
}
