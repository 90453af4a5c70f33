//! The node's containerd: our configuration file next to the package's, and the drop-in that points to
//! it. Pure.

use std::collections::BTreeSet;

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};

use crate::{
    desired::{self, DesiredHost},
    facts::{ContainerdCommand, FileFact, HostFacts},
    model::{ContainerdWants, Digest, Field, NodeName, path},
    plan::{Cause, FieldChange, PreflightError},
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

/// What would be written, and what differs.
#[derive(Clone)]
pub(in crate::plan) struct ContainerdDiff {
    pub(in crate::plan) content: String,
    pub(in crate::plan) cause: Cause,
    pub(in crate::plan) changes: Vec<FieldChange>,
}

/// `Ok(None)`: as it must be. The error says why the file cannot be worked out.
pub(super) fn difference(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Result<Option<ContainerdDiff>, Box<PreflightError>> {
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
            field: Field::File(path::CONTAINERD_CONFIG.to_owned()),
            from: file.map(|_| "another content".to_owned()),
            to: Some("known after the digest".to_owned()),
        });
    }
    let field = Field::File(path::CONTAINERD_DROP_IN.to_owned());
    match drop_in {
        None => changes.push(FieldChange {
            field,
            from: former.then(|| "a name that is read before `override.conf`".to_owned()),
            to: Some("points containerd at it".to_owned()),
        }),
        Some(fact) if !has_proxies(fact, &host.containerd) => changes.push(FieldChange {
            field,
            from: Some("other proxies".to_owned()),
            to: Some("the proxies that Docker uses".to_owned()),
        }),
        Some(_) => {}
    }
    let cause = match (file, drop_in) {
        (None, None) => Cause::New,
        (Some(_), Some(_)) => Cause::Change,
        (Some(_), None) if former => Cause::Change,
        (None, Some(_)) | (Some(_), None) => Cause::Drift,
    };
    Ok((!changes.is_empty()).then_some(ContainerdDiff {
        content,
        cause,
        changes,
    }))
}

/// True when the drop-in sets the variables that it must set, and no others. Its command line is
/// the unit's own with our file, and is not compared.
fn has_proxies(drop_in: &FileFact, wants: &ContainerdWants) -> bool {
    let set = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().map(str::trim);
        let variables = lines.filter(|line| line.starts_with("Environment="));
        variables.map(str::to_owned).collect()
    };
    let wanted = desired::containerd::drop_in(&ContainerdCommand::default(), &wants.environment);
    let there = String::from_utf8_lossy(drop_in.content.expose());
    set(&there) == set(&wanted)
}
