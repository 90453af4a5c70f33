//! Files, through the claim.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::helper::helper;
use crate::{
    apply::{
        executor::{bug, failed},
        step::{Done, StepError},
    },
    desired::Desired,
    host::{Host, NewFile},
    model::{ClusterId, Component, Owner, Secret, path},
    plan::FileRef,
};

pub(in crate::apply) async fn write_files(
    host: &Host,
    desired: &Desired,
    dirs: &BTreeMap<String, u32>,
    refs: &BTreeMap<String, FileRef>,
) -> Result<Done, StepError> {
    let wanted = desired
        .hosts
        .get(&host.name)
        .ok_or_else(|| bug("files for a host that is not desired"))?;
    let mut files = BTreeMap::new();
    for (file, FileRef { digest, mode }) in refs {
        let found = wanted
            .files
            .get(file)
            .filter(|found| found.digest == *digest)
            .ok_or_else(|| bug("a file of the plan is not in the desired environment"))?;
        files.insert(
            file.as_str(),
            NewFile {
                mode: *mode,
                owner: found.owner,
                content: &found.content,
            },
        );
    }
    host.write_files(dirs, &files).await.map_err(failed)?;
    Ok(Done::default())
}

/// Signals nginx first and writes the digest afterwards: a run that is cut off between the two signals it again.
pub(in crate::apply) async fn reload_proxy(
    host: &Host,
    desired: &Desired,
    read: &FileRef,
) -> Result<Done, StepError> {
    let proxy = Component::NginxProxy.container();
    host.signal(proxy, "SIGHUP").await.map_err(failed)?;
    let files = BTreeMap::from([(path::PROXY_READ.to_owned(), read.clone())]);
    write_files(host, desired, &BTreeMap::new(), &files).await
}

pub(in crate::apply) async fn remove_files(
    host: &Host,
    id: &ClusterId,
    paths: &BTreeSet<String>,
) -> Result<Done, StepError> {
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let limit = Duration::from_secs(60);
    helper(host, id, "rm -f -- \"$@\"", &paths, limit).await?;
    Ok(Done::default())
}

/// Puts files for a helper next to containerd's own, readable by root only.
pub(super) async fn put(host: &Host, files: &[(&str, Vec<u8>)]) -> Result<(), StepError> {
    let contents = secrets(files);
    let written = Box::pin(host.write_files(&folder(), &new(&contents))).await;
    written.map_err(failed)
}

/// The same, without reading the files back: the helper checks whether its file is complete.
pub(super) async fn put_unread(host: &Host, files: &[(&str, Vec<u8>)]) -> Result<(), StepError> {
    let contents = secrets(files);
    let written = Box::pin(host.put_files(&folder(), &new(&contents))).await;
    written.map_err(failed)
}

fn secrets<'a>(files: &[(&'a str, Vec<u8>)]) -> Vec<(&'a str, Secret<Vec<u8>>)> {
    let files = files.iter();
    files
        .map(|(path, bytes)| (*path, bytes.clone().into()))
        .collect()
}

fn folder() -> BTreeMap<String, u32> {
    BTreeMap::from([("/etc/containerd".to_owned(), 0o755)])
}

fn new<'a>(contents: &'a [(&'a str, Secret<Vec<u8>>)]) -> BTreeMap<&'a str, NewFile<'a>> {
    let files = contents.iter().map(|(path, content)| {
        let file = NewFile {
            mode: 0o600,
            owner: Owner::ROOT,
            content,
        };
        (*path, file)
    });
    files.collect()
}
