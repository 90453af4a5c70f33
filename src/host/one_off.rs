//! Copies files out of an image, and runs a program of an image once on given files, in a container that has neither
//! the node's files nor a network. Input and output pass through Docker's archive API, so neither is in an argument, a
//! variable or a log.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bollard::models::{ContainerCreateBody, HostConfig};

use super::{
    create_body,
    error::HostError,
    files::NewFile,
    helper::{HelperOutput, readable_log},
    machine::Host,
};
use crate::model::{ClusterId, FILES_IMAGE, HELPER, NO_CLUSTER, Owner, Secret, label};

/// The folder in the container that has what goes in and out.
const FOLDER: &str = "/rke-operator";

/// A program of an image, and the files that it is run on.
pub struct OneOff<'a> {
    /// Reference; it must be there.
    pub image: &'a str,
    /// For the image's `/bin/sh -c`, in a dedicated folder: `in` has the files, and what the script writes into `out`
    /// is the output.
    pub script: &'a str,
    /// The script's arguments (`$1` …): no secrets.
    pub arguments: &'a [&'a str],
    /// By name, below `in`.
    pub files: BTreeMap<String, Secret<Vec<u8>>>,
    /// It is killed after this.
    pub limit: Duration,
}

/// This program itself, run once in a container of an image that need not have anything, on the node's network.
pub struct OwnProgram<'a> {
    /// Reference; it must be there.
    pub image: &'a str,
    /// The program, linked statically.
    pub program: Vec<u8>,
    /// Where it is put.
    pub place: &'a str,
    /// Its arguments: no secrets.
    pub arguments: Vec<String>,
    /// Files that it reads, by their paths in the container.
    pub files: BTreeMap<String, Secret<Vec<u8>>>,
    /// `source:target[:options]`.
    pub binds: Vec<String>,
    /// A folder in memory.
    pub tmpfs: Option<&'a str>,
    /// A file that it writes into its container, to be read when it has ended.
    pub answer: Option<&'a str>,
    /// It is killed after this.
    pub limit: Duration,
}

impl Host {
    /// Runs this program once and removes its container. Returns its output, and the file named by `answer` if the program
    /// wrote it. A status other than 0 is not an error. As for a helper, one that an interrupted run of the same cluster
    /// left is removed first.
    pub async fn run_own_program(
        &self,
        own: OwnProgram<'_>,
        cluster_id: &ClusterId,
    ) -> Result<(HelperOutput, Option<Secret<Vec<u8>>>), HostError> {
        self.create_helper(&of_own(&own, cluster_id), cluster_id)
            .await?;
        let limit = own.limit;
        let ran = async {
            let files: BTreeMap<&str, NewFile<'_>> = own
                .files
                .iter()
                .map(|(path, content)| {
                    let (mode, owner) = (0o600, Owner::ROOT);
                    let file = NewFile {
                        mode,
                        owner,
                        content,
                    };
                    (path.as_str(), file)
                })
                .collect();
            self.put(HELPER, "", &BTreeMap::new(), &files).await?;
            self.put_program(HELPER, own.place, own.program).await?;
            let output = self.carry_out(limit).await?;
            let Some(answer) = own.answer else {
                return Ok((output, None));
            };
            let written = self.read_below(HELPER, "", answer).await?;
            let file = written.into_values().find(|fact| !fact.is_dir);
            Ok((output, file.map(|fact| Arc::unwrap_or_clone(fact.content))))
        };
        let ran = ran.await;
        let removed = self.remove(HELPER, None).await;
        let ran = ran?;
        removed?;
        Ok(ran)
    }

    /// Files of an image, by the paths that were asked for; one that it does not have is left out. The
    /// container that they are read through is never started. As for a helper, one that an interrupted
    /// run of the same cluster left is removed first.
    pub async fn files_of_image(
        &self,
        image: &str,
        paths: &[&str],
        cluster_id: &ClusterId,
    ) -> Result<BTreeMap<String, Secret<Vec<u8>>>, HostError> {
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            // Nothing runs, and Docker makes no container without a command.
            entrypoint: Some(vec!["/never-run".to_owned()]),
            labels: Some(create_body::labels(cluster_id, "")),
            host_config: Some(alone()),
            ..ContainerCreateBody::default()
        };
        self.create_helper(&body, cluster_id).await?;
        let mut files = BTreeMap::new();
        let mut failure = None;
        for path in paths {
            match self.read_below(HELPER, "", path).await {
                Ok(found) => files.extend(found),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let removed = self.remove(HELPER, None).await;
        failure.map_or(Ok(()), Err)?;
        removed?;
        Ok(files
            .into_iter()
            .filter(|(_, fact)| !fact.is_dir)
            .map(|(path, fact)| (path, Arc::unwrap_or_clone(fact.content)))
            .collect())
    }

    /// Runs a program of an image on files, and gives how it ended and the files that it wrote. A status
    /// other than 0 is not an error.
    pub async fn run_one_off(
        &self,
        one_off: &OneOff<'_>,
        cluster_id: &ClusterId,
    ) -> Result<(HelperOutput, BTreeMap<String, Secret<Vec<u8>>>), HostError> {
        self.create_helper(&body(one_off, cluster_id), cluster_id)
            .await?;
        let ran = self.run_created(one_off).await;
        let removed = self.remove(HELPER, None).await;
        let ran = ran?;
        removed?;
        Ok(ran)
    }

    async fn run_created(
        &self,
        one_off: &OneOff<'_>,
    ) -> Result<(HelperOutput, BTreeMap<String, Secret<Vec<u8>>>), HostError> {
        let dirs = ["", "/in", "/out"].map(|dir| (format!("{FOLDER}{dir}"), 0o700));
        let files: BTreeMap<String, NewFile<'_>> = one_off
            .files
            .iter()
            .map(|(name, content)| {
                let mode = 0o600;
                (
                    format!("{FOLDER}/in/{name}"),
                    NewFile {
                        mode,
                        owner: Owner::ROOT,
                        content,
                    },
                )
            })
            .collect();
        let files = files
            .iter()
            .map(|(path, file)| (path.as_str(), *file))
            .collect();
        self.put(HELPER, "", &dirs.into(), &files).await?;
        let output = self.carry_out(one_off.limit).await?;
        let out = format!("{FOLDER}/out");
        let written = self.read_below(HELPER, "", &out).await?;
        let written = written.into_iter().filter_map(|(path, fact)| {
            let name = path.strip_prefix(&out)?.strip_prefix('/')?.to_owned();
            (!fact.is_dir).then(|| (name, Arc::unwrap_or_clone(fact.content)))
        });
        Ok((output, written.collect()))
    }

    /// Creates the helper's container in place of one that an interrupted run left.
    pub(super) async fn create_helper(
        &self,
        body: &ContainerCreateBody,
        cluster_id: &ClusterId,
    ) -> Result<(), HostError> {
        match self.create(HELPER, body.clone()).await {
            // One that loaded images before there was a cluster has no owner.
            Err(HostError::NameTaken { by, .. })
                if by
                    .get(label::CLUSTER_ID)
                    .is_some_and(|by| *by == cluster_id.0 || by == NO_CLUSTER) =>
            {
                self.remove(HELPER, None).await?;
                self.create(HELPER, body.clone()).await
            }
            created => created,
        }
    }
}

fn body(one_off: &OneOff<'_>, cluster_id: &ClusterId) -> ContainerCreateBody {
    let words = [one_off.script, "rke-operator"].into_iter();
    let words = words.chain(one_off.arguments.iter().copied());
    ContainerCreateBody {
        image: Some(one_off.image.to_owned()),
        entrypoint: Some(["/bin/sh", "-c"].map(str::to_owned).to_vec()),
        cmd: Some(words.map(str::to_owned).collect()),
        working_dir: Some(FOLDER.to_owned()),
        // Nothing but what the image has, whatever its own user's home holds.
        env: Some(vec!["HOME=/tmp".to_owned()]),
        user: Some("0:0".to_owned()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(alone()),
        ..ContainerCreateBody::default()
    }
}

fn of_own(own: &OwnProgram<'_>, cluster_id: &ClusterId) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(own.image.to_owned()),
        entrypoint: Some(vec![own.place.to_owned()]),
        cmd: Some(own.arguments.clone()),
        user: Some("0:0".to_owned()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            binds: Some(own.binds.clone()),
            tmpfs: own
                .tmpfs
                .map(|folder| create_body::in_memory(&[folder.to_owned()])),
            network_mode: Some("host".to_owned()),
            security_opt: Some(vec![
                // SELinux would keep it from files that are not a container's.
                "label=disable".to_owned(),
                "no-new-privileges".to_owned(),
            ]),
            ..alone()
        }),
        ..ContainerCreateBody::default()
    }
}

/// Where a [`carrier`] has the node's folder.
pub(super) const CARRIED: &str = "/rke-operator";

/// What files of any size are put into a folder of the node through. It is never started.
pub(super) fn carrier(folder: &str, cluster_id: &ClusterId) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(FILES_IMAGE.to_owned()),
        // Nothing runs, and Docker makes no container without a command.
        entrypoint: Some(vec!["/never-run".to_owned()]),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            binds: Some(vec![format!("{folder}:{CARRIED}")]),
            ..alone()
        }),
        ..ContainerCreateBody::default()
    }
}

/// Nothing of the node, and no network.
fn alone() -> HostConfig {
    HostConfig {
        network_mode: Some("none".to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        log_config: Some(readable_log()),
        ..HostConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_off_sees_nothing_of_the_node_and_shows_none_of_its_files() {
        let secret = Secret::new(b"hunter2hunter2".to_vec());
        let one_off = OneOff {
            image: "helm:1",
            script: "helm template",
            arguments: &["canal"],
            files: [("values.json".to_owned(), secret)].into(),
            limit: Duration::from_secs(1),
        };
        let body = body(&one_off, &ClusterId("1".repeat(32)));
        let shown = serde_json::to_string(&body).unwrap();
        assert!(!shown.contains("hunter2"), "{shown}");
        let host = body.host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(
            (host.binds, host.mounts, host.privileged, host.pid_mode),
            (None, None, None, None)
        );
        let words = ["helm template", "rke-operator", "canal"];
        assert_eq!(body.cmd.unwrap(), words);
    }
}
