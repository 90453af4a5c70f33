//! The node's containerd: our file beside the package's own, and the drop-in that points to
//! it. Pure.

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};

use super::{Cause, FieldChange, HostAction, PreflightError, Stage, Step, containers, hosts};
use crate::{
    actual::{Actual, HostFacts},
    desired,
    desired::{Desired, DesiredHost},
    model::{Digest, NodeName, path},
    state::ClusterState,
};

/// The digest of a containerd configuration in a plan, keyed with what only the state holds: a
/// registry's password in it cannot be guessed from it.
pub fn config_digest(saved: &ClusterState, content: &[u8]) -> Digest {
    let key = Sha256::digest(saved.service_accounts.signing.expose().as_bytes());
    let mut block = [0_u8; 64];
    block[..32].copy_from_slice(&key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(b"containerd configuration\0");
    mac.update(content);
    Digest(hex::encode(&mac.finalize().into_bytes()[..8]))
}

/// One transaction on each node whose containerd is not told what kubelet needs.
pub(super) fn configure(want: &Desired, have: &Actual) -> Stage {
    hosts::preparing("containerd", want, have, |name, host, facts| {
        let Ok(Some(difference)) = difference(name, host, facts) else {
            // A error was already reported with all others.
            return Vec::new();
        };
        let digest = config_digest(&want.saved, difference.content.as_bytes());
        let mut changes = difference.changes;
        for change in &mut changes {
            if change.field.ends_with(path::CONTAINERD_CONFIG) {
                change.to = Some(digest.0.clone());
            }
        }
        let mut disturbs = "restarts containerd; running containers keep running".to_owned();
        if facts.system.containerd.docker_bound {
            "restarts containerd, and Docker stops and starts with it on this node; containers keep \
             running only where Docker's live-restore is on"
                .clone_into(&mut disturbs);
        }
        let action = HostAction::ConfigureContainerd {
            wants: host.containerd.clone(),
            digest,
        };
        let why = "kubelet runs pods on this node's containerd";
        let step = Step::on(name, difference.cause, why, action)
            .changing(changes)
            .guarded(&want.cluster_id)
            .disturbing(disturbs);
        if containers::pause_comes_with_kubelet(host, facts) {
            vec![step]
        } else {
            vec![containers::import_pause(name, host, difference.cause), step]
        }
    })
}

/// What would be written, and what differs.
pub(super) struct Difference {
    content: String,
    pub(super) cause: Cause,
    changes: Vec<FieldChange>,
}

/// `Ok(None)`: as it must be. The error says why the file cannot be worked out.
pub(super) fn difference(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Result<Option<Difference>, Box<PreflightError>> {
    let seen = |path: &str| facts.files.as_ref().and_then(|files| files.get(path));
    let (file, drop_in) = (
        seen(path::CONTAINERD_CONFIG),
        seen(path::CONTAINERD_DROP_IN),
    );
    let former = seen(path::FORMER_DROP_IN).is_some();
    if facts.system.containerd.dump.is_empty() && file.is_some() && (drop_in.is_some() || former) {
        // What cannot be compared is left alone.
        return Ok(None);
    }
    if facts.system.containerd.dump.is_empty() {
        // containerd's defaults in its place would drop what someone set.
        return Err(Box::new(PreflightError::host(
            name,
            format!(
                "cannot read containerd's configuration on node `{name}`: `containerd config dump` \
                 prints nothing for the user that logs in"
            ),
            [
                "`containerd config dump` as that user on the node says why".to_owned(),
                "`/etc/containerd/config.toml` must be readable for it: `sudo chmod a+r \
                 /etc/containerd/config.toml`, passwords kept elsewhere"
                    .to_owned(),
            ],
        )));
    }
    let content =
        desired::containerd::containerd_config(&facts.system.containerd.dump, &host.containerd)
            .map_err(|why| {
                Box::new(PreflightError::host(
                    name,
                    format!("cannot work out containerd's configuration on node `{name}`: {why}"),
                    [
                        "`containerd config dump` on the node must print a valid configuration"
                            .to_owned(),
                    ],
                ))
            })?;
    let same = file.is_some_and(|fact| fact.content.expose() == content.as_bytes());
    let mut changes = Vec::new();
    if !same {
        changes.push(FieldChange {
            field: format!("file {}", path::CONTAINERD_CONFIG),
            from: file.map(|_| "another content".to_owned()),
            to: Some("known after the digest".to_owned()),
        });
    }
    if drop_in.is_none() {
        changes.push(FieldChange {
            field: format!("file {}", path::CONTAINERD_DROP_IN),
            from: former.then(|| "a name that is read before `override.conf`".to_owned()),
            to: Some("points containerd at it".to_owned()),
        });
    }
    let cause = match (file, drop_in) {
        (None, None) => Cause::New,
        (Some(_), Some(_)) => Cause::Change,
        (Some(_), None) if former => Cause::Change,
        (None, Some(_)) | (Some(_), None) => Cause::Drift,
    };
    Ok((!changes.is_empty()).then_some(Difference {
        content,
        cause,
        changes,
    }))
}
