//! The claim: created before anything else on a node, and removed last.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    containerd::{DROP_IN, NEW_CONFIG, RESULT, SWITCH},
    helper::helper_then,
    images::PAUSE_TAR,
};
use crate::{
    apply::{
        executor::{bug, failed},
        step::{Done, StepError},
    },
    facts::{Baseline, HostFacts, NodeRecord},
    host::{ClaimOutcome, Host, NewFile},
    model::{self, CLAIM_DIRS, ClusterId, FILES_IMAGE, Owner, Secret, label, path},
};

const RELEASE: &str = include_str!("release.sh");
/// What a killed run may have left among the node's own files, and what a node keeps until it is
/// released.
const LEFT: [&str; 9] = [
    RESULT,
    "/run/rke-operator-containerd.result.new",
    "/run/rke-operator-clean",
    path::K8S_IMAGES,
    "/etc/containerd/rke-operator-k8s-images.new",
    PAUSE_TAR,
    SWITCH,
    NEW_CONFIG,
    DROP_IN,
];

/// Creates the claim, and writes its record to a file as well: Docker may lose its containers. A record
/// of this cluster that exists already is kept: it is from before the node was changed.
pub(in crate::apply) async fn claim(
    host: &Host,
    id: &ClusterId,
    name: &str,
    before: &Baseline,
    facts: &HostFacts,
) -> Result<Done, StepError> {
    if !facts.images.contains(FILES_IMAGE) {
        // Once only: an import takes the name away from the one before, which then stays behind.
        host.import_empty_image().await.map_err(failed)?;
    }
    let claimed = NodeRecord {
        cluster_id: id.clone(),
        cluster_name: name.to_owned(),
        node: Some(host.name.clone()),
        before: before.clone(),
    };
    let labels = claimed.labels().map_err(|_| bug("a baseline is JSON"))?;
    match host.create_claim(labels).await.map_err(failed)? {
        ClaimOutcome::Created => {}
        ClaimOutcome::Held { by } if by.get(label::CLUSTER_ID) == Some(&id.0) => {}
        ClaimOutcome::Held { .. } => {
            return Err(StepError::Guard(format!(
                "node `{}` was claimed by another cluster",
                host.name
            )));
        }
    }
    record(host, &claimed, &folders(&facts.system.paths)).await?;
    Ok(Done::default())
}

/// The folders that a claim creates. An existing one keeps its owner and mode: etcd may run as a
/// dedicated user.
fn folders(there: &BTreeSet<String>) -> BTreeMap<String, u32> {
    let mut folders: BTreeMap<String, u32> = CLAIM_DIRS
        .iter()
        .filter(|(dir, _)| !there.contains(*dir))
        .map(|(dir, mode)| ((*dir).to_owned(), *mode))
        .collect();
    folders.insert(path::KUBERNETES.to_owned(), 0o755);
    folders
}

async fn record(
    host: &Host,
    claimed: &NodeRecord,
    dirs: &BTreeMap<String, u32>,
) -> Result<(), StepError> {
    let found = host.read_file(path::NODE_RECORD).await.map_err(failed)?;
    let kept = found
        .and_then(|fact| NodeRecord::read(&fact.content))
        .is_some_and(|record| record.cluster_id == claimed.cluster_id);
    let record = serde_json::to_vec(claimed).map_err(|_| bug("a record is JSON"))?;
    let record = Secret::new(record);
    let line = Secret::new(format!("{}\n", claimed.cluster_id).into_bytes());
    let mut files = BTreeMap::from([(
        path::CLUSTER_ID,
        NewFile {
            mode: 0o644,
            owner: Owner::ROOT,
            content: &line,
        },
    )]);
    if !kept {
        let file = NewFile {
            mode: 0o600,
            owner: Owner::ROOT,
            content: &record,
        };
        files.insert(path::NODE_RECORD, file);
    }
    host.write_files(dirs, &files).await.map_err(failed)
}

/// What reading through the claim and restarting containerd left goes first: Docker makes the
/// folders that the claim binds whenever files are read through it.
pub(in crate::apply) async fn release_claim(
    host: &Host,
    id: &ClusterId,
    facts: &HostFacts,
) -> Result<Done, StepError> {
    // The guard has just seen it, and what a claim remembers is never changed.
    if let Some(claim) = facts.claim() {
        let before = claim.before().unwrap_or_default();
        let made = CLAIM_DIRS
            .iter()
            .map(|(dir, _)| *dir)
            .chain(["/etc/containerd"])
            .filter(|dir| !before.paths.contains(*dir));
        let arguments = release_arguments(made);
        let limit = Duration::from_secs(60);
        let claim = host.remove(model::CLAIM, None);
        let removed = helper_then(host, id, RELEASE, &arguments, limit, claim).await?;
        removed.map_err(failed)?;
    } else {
        host.remove(model::HELPER, None).await.map_err(failed)?;
        host.remove(model::CLAIM, None).await.map_err(failed)?;
    }
    host.remove_image(model::FILES_IMAGE)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

/// The files that go, and the folders that go when they are empty.
fn release_arguments<'a>(folders: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    LEFT.into_iter().chain(["--"]).chain(folders).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    /// Killed between putting a file for a helper and the helper's end, a run leaves that file.
    #[test]
    fn what_a_killed_run_left_goes_and_what_is_not_ours_stays() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        let theirs = "/etc/containerd/config.toml";
        for file in LEFT.into_iter().chain([theirs, "/srv/file"]) {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "x").unwrap();
        }
        fs::create_dir_all(at("/var/lib/etcd")).unwrap();
        let folders = ["/etc/containerd", "/var/lib/etcd", "/srv"];
        let arguments = release_arguments(folders.into_iter());
        let arguments = arguments.iter().map(|word| match *word {
            "--" => "--".into(),
            path => at(path).into_os_string(),
        });
        let status = Command::new("sh")
            .args(["-c", RELEASE, "rke-operator"])
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success());
        for file in LEFT {
            assert!(!at(file).exists(), "{file}");
        }
        assert!(at(theirs).exists() && at("/srv/file").exists());
        assert!(!at("/var/lib/etcd").exists());
    }

    /// R36: a node that is claimed again has etcd's data, which may belong to a dedicated user.
    #[test]
    fn a_folder_that_is_there_keeps_its_owner_and_mode() {
        let new = folders(&BTreeSet::new());
        assert_eq!(new.get(path::ETCD), Some(&0o700));
        let again = folders(&[path::ETCD.to_owned()].into());
        assert_eq!(again.get(path::ETCD), None);
        assert_eq!(again.len(), new.len() - 1);
    }
}
