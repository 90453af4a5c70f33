//! Images: into Docker, from there into containerd, and out again.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{
    files::put_unread,
    helper::{helper, node_error, run_helper, succeeded},
};
use crate::{
    apply::{
        executor::{bug, failed},
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    bundle::{Archive, Bundle, BundleError, Image},
    catalog::{canonical, familiar, is_listed},
    facts::HostFacts,
    host::Host,
    model::{CLAIM, ClusterId, FILES_IMAGE, NO_CLUSTER, RegistryLogin, megabytes, path},
};

const PAUSE: &str = include_str!("pause.sh");
const EXPORT: &str = include_str!("export.sh");
const REMOVE: &str = "rm -f \"$1\"";
/// What the script exits with where containerd has no such image.
const ABSENT: i64 = 44;
const POD_IMAGES: &str = include_str!("pod-images.sh");
const IMPORT: &str = include_str!("import.sh");
/// The script bounds each of its commands.
const IMPORT_LIMIT: Duration = Duration::from_secs(1800);
/// The pause image on its way from Docker to containerd.
pub(super) const PAUSE_TAR: &str = "/etc/containerd/rke-operator-pause.tar";

pub(in crate::apply) async fn pull(
    host: &Host,
    image: &str,
    login: Option<&RegistryLogin>,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let progress = |done: u64, total: u64| reporter.progress(done, total, "bytes");
    tokio::select! {
        pulled = host.pull(image, login, &progress) => {
            let bytes = pulled.map_err(failed)?;
            let detail = Some(megabytes(bytes));
            Ok(Done { detail, ..Done::default() })
        }
        _ = stop.stopped() => Err(StepError::Stopped),
    }
}

/// Streams an image of the bundle into the node's Docker.
pub(in crate::apply) async fn load(
    host: &Host,
    bundle: &Bundle,
    image: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let archive = archive(bundle, image)?;
    let (bytes, detail) = sized(&archive);
    let archive = archive.stream(shown(reporter, bytes));
    tokio::select! {
        loaded = host.load_image(image, archive) => loaded.map_err(failed)?,
        // One that breaks off leaves no tag.
        _ = stop.stopped() => return Err(StepError::Stopped),
    }
    if !is_listed(image, &host.images().await.map_err(failed)?) {
        let what = format!("Docker has loaded the archive of `{image}`, and does not list it");
        return Err(node_error(host, &what, &[]));
    }
    Ok(detail)
}

/// Streams an image of the bundle into the node's containerd, for pods.
pub(in crate::apply) async fn import(
    host: &Host,
    id: Option<&ClusterId>,
    facts: &HostFacts,
    bundle: &Bundle,
    image: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let none = ClusterId(NO_CLUSTER.to_owned());
    // The run may have claimed the node itself, after the survey.
    let claim = host.container(CLAIM).await.map_err(failed)?;
    let claimed = claim.zip(id).is_some_and(|(claim, id)| claim.is_of(id));
    let id = id.unwrap_or(&none);
    let archive = archive(bundle, image)?;
    let (bytes, detail) = sized(&archive);
    let platform = archived(bundle, image)?.platform.to_string();
    let archive = archive
        .within(path::IMAGE_ARCHIVE)
        .map_err(|_| bug("a short name fits"))?;
    let archive = archive.stream(shown(reporter, bytes));
    let (root, _) = facts.system.containerd.folders();
    let place = format!("{root}/{}", path::IMAGE_ARCHIVE);
    let put = tokio::select! {
        put = host.put_large(&root, archive, id) => put.map_err(failed),
        _ = stop.stopped() => Err(StepError::Stopped),
    };
    if let Err(error) = put {
        // Part of it may be there, and is large. Where the node is away the next import writes over it.
        drop(helper(host, id, REMOVE, &[&place], Duration::from_secs(20)).await);
        return Err(error);
    }
    let (record, list) = if claimed {
        (path::K8S_IMAGES, path::POD_IMAGES)
    } else {
        ("", "")
    };
    let name = canonical(image);
    let arguments = [
        place.as_str(),
        name.as_str(),
        platform.as_str(),
        record,
        list,
    ];
    helper(host, id, IMPORT, &arguments, IMPORT_LIMIT).await?;
    tidy(host).await?;
    Ok(detail)
}

/// Removes the image of helpers from a node that no cluster has claimed.
async fn tidy(host: &Host) -> Result<(), StepError> {
    if host.container(CLAIM).await.map_err(failed)?.is_none() {
        host.remove_image(FILES_IMAGE).await.map_err(failed)?;
    }
    Ok(())
}

/// The images that containerd has for pods, as it names them. Reads as root, through a helper container: not for surveys.
pub(in crate::apply) async fn pod_images(
    host: &Host,
    id: Option<&ClusterId>,
) -> Result<BTreeSet<String>, StepError> {
    let none = ClusterId(NO_CLUSTER.to_owned());
    let id = id.unwrap_or(&none);
    let limit = Duration::from_secs(60);
    let output = run_helper::<&str>(host, id, POD_IMAGES, &[], limit).await?;
    tidy(host).await?;
    succeeded(host, &output, "containerd does not list its images", &[])?;
    Ok(output.log.lines().map(str::to_owned).collect())
}

/// Hands an image of the node to `take`, as `docker save` writes it: of Docker, or where that does not have it, of containerd,
/// in a separate archive.
pub(in crate::apply) async fn export(
    host: &Host,
    id: Option<&ClusterId>,
    image: &str,
    take: &mpsc::Sender<Bytes>,
) -> Result<(), StepError> {
    let exported = host.exported(image, take).await;
    let error = match exported {
        Ok(()) => return Ok(()),
        Err(error) if error.docker_status() == Some(404) => error,
        Err(error) => return Err(failed(error)),
    };
    let none = ClusterId(NO_CLUSTER.to_owned());
    let id = id.unwrap_or(&none);
    let name = canonical(image);
    let root = "/var/lib/containerd";
    let place = format!("{root}/{}", path::IMAGE_ARCHIVE);
    let output = run_helper(host, id, EXPORT, &[&place, &name], IMPORT_LIMIT).await?;
    if output.status != 0 {
        tidy(host).await?;
        if output.status == ABSENT {
            return Err(failed(error));
        }
        let what = format!("containerd does not export `{image}`");
        return succeeded(host, &output, &what, &[]);
    }
    let taken = host.take_large(root, path::IMAGE_ARCHIVE, id, take).await;
    let removed = helper(host, id, REMOVE, &[&place], Duration::from_secs(20)).await;
    taken.map_err(failed)?;
    removed?;
    tidy(host).await
}

fn archived<'b>(bundle: &'b Bundle, image: &str) -> Result<&'b Image, StepError> {
    bundle
        .image(image)
        .ok_or_else(|| bug("an image that is loaded is in the bundle"))
}

fn archive(bundle: &Bundle, image: &str) -> Result<Archive, StepError> {
    let of = archived(bundle, image)?;
    Archive::of(bundle, of, &familiar(image)).map_err(|source| {
        failed(BundleError::Read {
            path: bundle.path().to_owned(),
            source,
        })
    })
}

fn sized(archive: &Archive) -> (u64, Done) {
    let bytes = archive.bytes();
    let detail = Some(megabytes(bytes));
    let done = Done {
        detail,
        ..Done::default()
    };
    (bytes, done)
}

fn shown(reporter: &Reporter, total: u64) -> impl Fn(u64) + Send + 'static {
    let reporter = reporter.clone();
    move |done| reporter.progress(done.min(total), total, "bytes")
}

pub(in crate::apply) async fn import_pause(
    host: &Host,
    id: &ClusterId,
    image: &str,
    architecture: &str,
) -> Result<Done, StepError> {
    let left = host.end_left_helper(id);
    let (archive, ended) = tokio::join!(host.export_image(image), left);
    ended.map_err(failed)?;
    let archive = archive.map_err(failed)?;
    // Its digests are checked by who reads it.
    put_unread(host, &[(PAUSE_TAR, archive)]).await?;
    let arguments = [PAUSE_TAR, image, path::K8S_IMAGES, platform(architecture)];
    helper(host, id, PAUSE, &arguments, Duration::from_secs(60)).await?;
    Ok(Done::default())
}

/// As containerd names the platform of a node that Docker calls by its kernel's word. Docker with
/// containerd's image store saves an index of all platforms, of which it has one.
fn platform(architecture: &str) -> &'static str {
    match architecture {
        "x86_64" | "amd64" => "linux/amd64",
        "aarch64" | "arm64" => "linux/arm64",
        _ => "",
    }
}

pub(in crate::apply) async fn remove_images(
    host: &Host,
    images: &BTreeSet<String>,
) -> Result<Done, StepError> {
    for image in images {
        host.remove_image(image).await.map_err(failed)?;
    }
    Ok(Done::default())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

    use super::*;

    /// A run that sees the image does not import it again, and so would never delete the archive.
    #[test]
    fn the_archive_is_gone_before_its_image_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let ctr = "#!/bin/sh\ncase \"$*\" in *import*) ls >seen; cat >imported; echo \"$*\" >words ;; esac";
        fs::write(at("ctr"), ctr).unwrap();
        fs::set_permissions(at("ctr"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at("archive"), "layers").unwrap();
        let script = format!("PATH=$PWD:$PATH\n{PAUSE}");
        let status = Command::new("sh")
            .current_dir(folder.path())
            .args(["-c", &script, "rke-operator"])
            .args(["archive", "pause:3.6", "record", "linux/amd64"])
            .status()
            .unwrap();
        assert!(status.success());
        let read = |name: &str| String::from_utf8(fs::read(at(name)).unwrap()).unwrap();
        assert_eq!(read("imported"), "layers");
        assert_eq!(
            read("words"),
            "--namespace k8s.io images import --platform linux/amd64 -\n"
        );
        assert!(!read("seen").lines().any(|name| name == "archive"));
    }

    /// R22: Docker with containerd's image store saves an index of all platforms, of which it has
    /// one; without its name the import asks for all.
    #[test]
    fn a_platform_is_named_as_containerd_names_it() {
        let names = ["x86_64", "amd64", "aarch64", "arm64", "riscv64"].map(platform);
        let [amd, arm] = ["linux/amd64", "linux/arm64"];
        assert_eq!(names, [amd, amd, arm, arm, ""]);
    }
}
