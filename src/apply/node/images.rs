//! Images: into Docker, from there into containerd, and out again.

use std::{collections::BTreeSet, time::Duration};

use super::{files::put_unread, helper::helper};
use crate::{
    apply::{
        executor::failed,
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    host::Host,
    model::{ClusterId, RegistryLogin, path},
};

const PAUSE: &str = include_str!("pause.sh");
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
            let detail = Some(format!("{} MB", bytes.div_ceil(1_000_000)));
            Ok(Done { detail, ..Done::default() })
        }
        _ = stop.stopped() => Err(StepError::Stopped),
    }
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

    /// Whoever sees the image does not import it again, and so would never delete the archive.
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
