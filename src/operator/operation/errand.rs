//! What a `ClusterOperation` asks of a run: its goal, and what of the run's environment is a person's request.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::{
    api::{ClusterOperationSpec, OperationService, OperationStage, OperationType, StageSpec},
    config::Intent,
    converge::Goal,
    desired::{
        self, Rotated,
        pki::{RestoreRequest, Rotation, RotationStage},
    },
    environment::Environment,
    etcd::snapshot::SnapshotName,
    model::{Component, DrainRules, NodeName, known_names},
    operator::context::explained,
    plan::Reboot,
    state::ClusterState,
};

/// What a run has to do.
pub(in crate::operator) enum Errand {
    /// What takes no run.
    AtOnce(AtOnce),
    /// Certificates that the present authorities issue again.
    Certificates(Rotation),
    /// A key, or the authorities, in place of former ones.
    Keys(Rotated, RotationStage),
    /// Nodes that are rebooted.
    Reboot(Reboot),
    /// A node that leaves, is cleaned, and joins again.
    Reset(Box<Reset>),
    /// A snapshot in place of etcd's data.
    Restore(Replacement),
}

/// A node that is to be as one that was never in the cluster, and then in it.
pub(in crate::operator) struct Reset {
    /// The config without it.
    rest: Intent,
    /// It has left.
    has_left: bool,
}

/// What takes no run: nothing that the config asks for is changed by it.
pub(in crate::operator) enum AtOnce {
    /// A snapshot of that name is taken.
    Snapshot(SnapshotName),
    /// The snapshot of that name is looked into once more.
    Verification(SnapshotName),
    /// Unused space of etcd's databases goes back to the disks.
    Defragmentation,
    /// Pods of these nodes are evicted.
    Drain(Vec<NodeName>, DrainRules),
}

impl AtOnce {
    /// True for what is done to etcd on the cluster's nodes.
    pub(in crate::operator) const fn is_of_etcd(&self) -> bool {
        match self {
            Self::Snapshot(_) | Self::Verification(_) | Self::Defragmentation => true,
            Self::Drain(..) => false,
        }
    }
}

/// A snapshot to restore, as the spec names it.
pub(in crate::operator) struct Replacement {
    pub(in crate::operator) name: SnapshotName,
    lose: BTreeSet<NodeName>,
    /// The request for the run, once the snapshot was found.
    pub(in crate::operator) request: Option<RestoreRequest>,
}

impl Replacement {
    /// Which restore of the cluster it is.
    pub(in crate::operator) const fn number(&self) -> Option<u32> {
        match &self.request {
            Some(RestoreRequest::Begin(restore)) => Some(restore.number),
            Some(RestoreRequest::TakeBack) | None => None,
        }
    }
}

impl Errand {
    /// What the object of that uid asks for, begun at `at`; `Err`: why it cannot be done.
    pub(in crate::operator) fn of(
        spec: &ClusterOperationSpec,
        uid: &str,
        at: Timestamp,
        intent: &Intent,
        saved: &ClusterState,
    ) -> Result<Self, String> {
        let staged = |stage: Option<StageSpec>| match stage.map(|it| it.stage) {
            Some(OperationStage::Start) => Ok(RotationStage::Start),
            Some(OperationStage::Complete) => Ok(RotationStage::Complete),
            Some(OperationStage::Now) => Ok(RotationStage::Now),
            None => Err("it names no stage".to_owned()),
        };
        Ok(match spec.kind {
            OperationType::Snapshot => {
                let named = spec.snapshot.as_ref().and_then(|it| it.name.as_ref());
                Self::AtOnce(AtOnce::Snapshot(match named {
                    Some(name) => name.parse().map_err(|error| format!("{error}"))?,
                    None => SnapshotName::of_time(at),
                }))
            }
            OperationType::RotateCertificates => {
                refuse_given(saved)?;
                let services = spec.rotate_certificates.iter();
                let of = services.flat_map(|one| &one.services);
                Self::Certificates(Rotation {
                    asked: at,
                    of: of.copied().map(component).collect(),
                })
            }
            OperationType::RotateCA => {
                refuse_given(saved)?;
                Self::Keys(Rotated::Authorities, staged(spec.rotate_ca)?)
            }
            OperationType::RotateServiceAccountKey => {
                refuse_given(saved)?;
                let stage = staged(spec.rotate_service_account_key)?;
                Self::Keys(Rotated::ServiceAccountKey, stage)
            }
            OperationType::RotateEncryptionKey => {
                desired::has_own_key(intent).map_err(|error| explained(&error))?;
                Self::Keys(Rotated::EncryptionKey, RotationStage::Start)
            }
            OperationType::Reboot => {
                let Some(reboot) = &spec.reboot else {
                    return Err("it names no nodes".to_owned());
                };
                let nodes = reboot.nodes.iter().cloned().map(NodeName).collect();
                Self::Reboot(Reboot::of(uid.to_owned(), nodes, reboot.drain))
            }
            OperationType::Verify => {
                let Some(verify) = &spec.verify else {
                    return Err("it names no snapshot".to_owned());
                };
                let name = verify.snapshot.parse();
                let name = name.map_err(|error| format!("{error}"))?;
                Self::AtOnce(AtOnce::Verification(name))
            }
            OperationType::Defragment => Self::AtOnce(AtOnce::Defragmentation),
            OperationType::Drain => Self::AtOnce(drain(spec, intent, saved)?),
            OperationType::Reset => Self::Reset(Box::new(reset(spec, uid, intent, saved)?)),
            OperationType::Restore => {
                let Some(restore) = &spec.restore else {
                    return Err("it names no snapshot".to_owned());
                };
                Self::Restore(Replacement {
                    name: restore
                        .snapshot
                        .parse()
                        .map_err(|error| format!("{error}"))?,
                    lose: restore.lose.iter().cloned().map(NodeName).collect(),
                    request: None,
                })
            }
        })
    }

    /// What the run brings about; the error is what takes none.
    pub(in crate::operator) fn goal<'a>(
        &'a self,
        intent: &'a Intent,
    ) -> Result<Goal<'a>, &'a AtOnce> {
        Ok(match self {
            Self::AtOnce(doing) => return Err(doing),
            Self::Certificates(_) => Goal::Renew(intent),
            Self::Keys(rotated, _) => Goal::RotateKeys(*rotated, intent),
            Self::Reboot(reboot) => Goal::Reboot(reboot, intent),
            Self::Reset(reset) if reset.has_left => Goal::Up(intent),
            Self::Reset(reset) => Goal::Up(&reset.rest),
            Self::Restore(_) => Goal::Restore(intent),
        })
    }

    /// The environment of the run: no other request is carried out by it.
    pub(in crate::operator) fn environment(&self, environment: &Environment) -> Environment {
        let mut environment = environment.without_requests();
        match self {
            Self::Certificates(rotation) => environment.rotate = Some(rotation.clone()),
            Self::Keys(Rotated::EncryptionKey, _) => environment.rotate_key = true,
            Self::Keys(Rotated::ServiceAccountKey, stage) => {
                environment.service_account_key = Some(*stage);
            }
            Self::Keys(Rotated::Authorities, stage) => environment.authorities = Some(*stage),
            Self::Reboot(_) | Self::Reset(_) | Self::AtOnce(_) => {}
            Self::Restore(restore) => {
                environment.lose.clone_from(&restore.lose);
                environment.restore.clone_from(&restore.request);
            }
        }
        environment
    }

    /// True for what cannot be undone.
    pub(in crate::operator) const fn wants_approval(&self) -> bool {
        match self {
            Self::Keys(Rotated::Authorities, RotationStage::Complete | RotationStage::Now)
            | Self::Reset(_)
            | Self::Restore(_) => true,
            Self::Keys(..) | Self::Certificates(_) | Self::Reboot(_) | Self::AtOnce(_) => false,
        }
    }

    /// What an approval covers next to the steps of the plan.
    pub(in crate::operator) fn fingerprint(&self) -> &str {
        match self.replacement().and_then(|it| it.request.as_ref()) {
            Some(RestoreRequest::Begin(restore)) => {
                let from = restore.from.as_ref();
                from.map_or("", |from| from.sha256.as_str())
            }
            Some(RestoreRequest::TakeBack) | None => "",
        }
    }

    /// The snapshot that it restores.
    pub(in crate::operator) const fn replacement(&self) -> Option<&Replacement> {
        match self {
            Self::Restore(replacement) => Some(replacement),
            Self::Certificates(_)
            | Self::Keys(..)
            | Self::Reboot(_)
            | Self::Reset(_)
            | Self::AtOnce(_) => None,
        }
    }

    /// True for a node that is on its way out of the cluster. A run by the config alone would join it again.
    pub(in crate::operator) fn is_leaving(&self) -> bool {
        matches!(self, Self::Reset(reset) if !reset.has_left)
    }

    /// What is reported at the end, and what is left to do.
    pub(in crate::operator) const fn done(&self) -> &'static str {
        match self {
            Self::AtOnce(AtOnce::Snapshot(_)) => "the snapshot was taken",
            Self::AtOnce(AtOnce::Verification(_)) => "the snapshot is proven",
            Self::AtOnce(AtOnce::Defragmentation) => "every member of etcd was defragmented",
            Self::AtOnce(AtOnce::Drain(..)) => {
                "the nodes were drained; `kubectl uncordon` has them take pods again"
            }
            Self::Certificates(_) => "the certificates were issued again",
            Self::Keys(Rotated::EncryptionKey, _) => {
                "everything that is encrypted is encrypted with the new key"
            }
            Self::Keys(Rotated::ServiceAccountKey, RotationStage::Start | RotationStage::Now) => {
                "tokens are signed with the new key; the former one is still accepted. In an hour: another \
                 ClusterOperation with the stage Complete"
            }
            Self::Keys(Rotated::ServiceAccountKey, RotationStage::Complete) => {
                "the former key is accepted no longer"
            }
            Self::Keys(Rotated::Authorities, RotationStage::Start) => {
                "everything is signed by the new authorities; the former ones are still trusted. When your own pods were restarted \
                 and copied kubeconfigs were fetched again: another ClusterOperation with the stage Complete"
            }
            Self::Keys(Rotated::Authorities, RotationStage::Complete) => {
                "the former authorities are trusted no longer"
            }
            Self::Keys(Rotated::Authorities, RotationStage::Now) => {
                "new authorities are in the place of those that had ended. Your own pods that started before may trust no API server \
                 until they are restarted; copied kubeconfigs are fetched again"
            }
            Self::Reboot(_) => "the nodes were rebooted",
            Self::Reset(_) => "the node was cleaned, and has joined again",
            Self::Restore(_) => "etcd has the data of the snapshot",
        }
    }
}

/// A message about a name that is not known, with those that are.
fn with_names<'a>(
    message: String,
    name: &str,
    names: impl Iterator<Item = &'a NodeName> + Clone,
) -> String {
    let names = names.map(|name| name.0.as_str());
    let hints = known_names(name, "its nodes are", names);
    let hints = hints.into_iter().map(|hint| format!("; {hint}"));
    hints.fold(message, |text, hint| text + &hint)
}

fn drain(
    spec: &ClusterOperationSpec,
    intent: &Intent,
    saved: &ClusterState,
) -> Result<AtOnce, String> {
    let Some(drain) = &spec.drain else {
        return Err("it names no nodes".to_owned());
    };
    let nodes: Vec<_> = drain.nodes.iter().cloned().map(NodeName).collect();
    let mut named = nodes.iter();
    if let Some(node) = named.find(|node| !saved.inventory.contains_key(*node)) {
        let message = format!("the cluster has no node `{node}`");
        return Err(with_names(message, &node.0, saved.inventory.keys()));
    }
    let rules = intent.upgrade.drain.unwrap_or_default();
    let delete_local_data = drain.delete_empty_dir_data;
    let rules = DrainRules {
        force: drain.force.unwrap_or(rules.force),
        delete_local_data: delete_local_data.unwrap_or(rules.delete_local_data),
        ..rules
    };
    Ok(AtOnce::Drain(nodes, rules))
}

fn reset(
    spec: &ClusterOperationSpec,
    uid: &str,
    intent: &Intent,
    saved: &ClusterState,
) -> Result<Reset, String> {
    let Some(reset) = &spec.reset else {
        return Err("it names no node".to_owned());
    };
    let node = NodeName(reset.node.clone());
    if !intent.nodes.contains_key(&node) {
        let message = format!("the config has no node `{node}`");
        return Err(with_names(message, &node.0, intent.nodes.keys()));
    }
    let rest = intent.without(&node);
    let rest = rest.map_err(|role| format!("no other node has the role `{}`", role.name()))?;
    let mut known = saved.memory.operations.values();
    let has_left = known.any(|known| known.uid == uid && known.has_left);
    Ok(Reset { rest, has_left })
}

/// Keys and certificates that a person keeps are not replaced.
fn refuse_given(saved: &ClusterState) -> Result<(), String> {
    if saved.is_signed_elsewhere() {
        return Err(
            "the certificates of this cluster were given to it, and are not issued here; hint: have new ones signed, and \
             hand them over with the command line"
                .to_owned(),
        );
    }
    Ok(())
}

const fn component(service: OperationService) -> Component {
    match service {
        OperationService::Etcd => Component::Etcd,
        OperationService::KubeApiserver => Component::ApiServer,
        OperationService::KubeControllerManager => Component::ControllerManager,
        OperationService::KubeScheduler => Component::Scheduler,
        OperationService::Kubelet => Component::Kubelet,
        OperationService::KubeProxy => Component::KubeProxy,
    }
}
