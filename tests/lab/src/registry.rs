//! The lab's registry: Debian's `docker-registry` with TLS and a certificate authority of its own.
//!
//! The lab's images are not pushed to it: their layers are linked into its store as they lie in the
//! cache, which takes no time. Pulls from it are pulls as from any registry, and its access log
//! tells of them. Whoever has an image of their own pushes it.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    Image, LabError,
    cache::{self, make_dir},
    certificates,
    command::Run,
    fault::SLOW,
    image::Archive,
    recipe,
};

/// The name under which the nodes know the registry.
pub(crate) const NAME: &str = "registry.lab";

/// Its port.
pub(crate) const PORT: u16 = 5000;

/// The lab's registry.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) container: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) dir: PathBuf,
}

impl Registry {
    /// Host and port by the address, as this machine reaches it.
    pub fn address(&self) -> String {
        format!("{}:{PORT}", self.address)
    }

    /// Host and port by the name that is in every node's `/etc/hosts`.
    pub fn name(&self) -> String {
        format!("{NAME}:{PORT}")
    }

    /// Host and port for `docker push` from this machine, whose Docker trusts its own loopback. What
    /// is pushed to it as `HOST:PORT/name` is [`name`](Self::name)`/name` for the nodes.
    pub fn push_address(&self) -> Result<String, LabError> {
        let port = format!("{PORT}/tcp");
        let ports = Run::docker("cannot ask for the registry's port")
            .args(["port", &self.container, &port])
            .text()?;
        Ok(ports.lines().next().unwrap_or_default().trim().to_owned())
    }

    /// The certificate of the authority that signed the registry's.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// One line for each request since the lab was made.
    pub fn log(&self) -> Result<String, LabError> {
        let output = Run::docker("cannot read the registry's log")
            .args(["logs", &self.container])
            .output()?;
        Ok(output.stdout + &output.stderr)
    }

    /// Ends it: whoever asks is refused until [`Self::start`].
    pub fn stop(&self) -> Result<(), LabError> {
        Run::docker("cannot stop the registry")
            .args(["stop", "--time", "1", &self.container])
            .done()
    }

    /// Starts it again, at the same address.
    pub fn start(&self) -> Result<(), LabError> {
        Run::docker("cannot start the registry")
            .args(["start", &self.container])
            .done()
    }

    /// It sends 1 MB/s from now on, to all nodes together, until it is stopped.
    pub fn slow(&self) -> Result<(), LabError> {
        let process = Run::docker("cannot ask for the registry's process")
            .args(["inspect", "--format", "{{.State.Pid}}", &self.container])
            .text()?;
        Run::new("cannot slow the registry", "nsenter")
            .args(["--target", process.trim(), "--net"])
            .args(["tc", "qdisc", "replace", "dev", "eth0"])
            .args(SLOW.split(' '))
            .done()
    }

    /// Makes the certificates: an authority, and the registry's own signed by it.
    pub(crate) fn make_certificates(&self) -> Result<(), LabError> {
        let names = format!("DNS:{NAME},DNS:localhost,IP:127.0.0.1,IP:{}", self.address);
        certificates::make(&self.dir, NAME, &names)
    }

    /// Puts images into the registry's store, under their published names.
    pub(crate) fn stock<'a>(
        &self,
        images: impl Iterator<Item = &'a Image>,
    ) -> Result<(), LabError> {
        let root = self.dir.join("store/docker/registry/v2");
        for image in images {
            for archive in image.named()? {
                stock_one(&root, &image.dir, &archive)?;
            }
        }
        Ok(())
    }

    /// The registry's own files on the machine, bound into its container.
    pub(crate) fn binds(&self) -> [String; 3] {
        let bind = |from: &str, to: &str| format!("{}:{to}", self.dir.join(from).display());
        [
            bind("store", "/var/lib/registry"),
            bind("tls.crt", "/etc/docker/registry/tls.crt:ro"),
            bind("tls.key", "/etc/docker/registry/tls.key:ro"),
        ]
    }
}

/// Writes one image as the registry's file system driver would have after a push. Its files are in
/// that folder of the cache.
fn stock_one(root: &Path, dir: &Path, archive: &Archive) -> Result<(), LabError> {
    let (config_digest, config_size) = blob_of_file(root, &dir.join(&archive.config))?;
    let mut digests = vec![config_digest.clone()];
    let mut layers = Vec::new();
    for layer in &archive.layers {
        let (digest, size) = blob_of_file(root, &dir.join(layer))?;
        layers.push(serde_json::json!({
            "mediaType": "application/vnd.docker.image.rootfs.diff.tar",
            "size": size,
            "digest": format!("sha256:{digest}"),
        }));
        digests.push(digest);
    }
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": config_size,
            "digest": format!("sha256:{config_digest}"),
        },
        "layers": layers,
    })
    .to_string();
    let manifest_digest = hex::encode(Sha256::digest(&manifest));
    let data = blob_path(root, &manifest_digest);
    make_dir(data.parent().unwrap_or(root))?;
    cache::write(&data, manifest)?;

    for name in &archive.repo_tags {
        let (repository, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
        let repository = root.join("repositories").join(repository);
        for digest in &digests {
            link(&repository.join("_layers/sha256").join(digest), digest)?;
        }
        let tags = repository.join("_manifests/tags").join(tag);
        link(
            &repository
                .join("_manifests/revisions/sha256")
                .join(&manifest_digest),
            &manifest_digest,
        )?;
        link(
            &tags.join("index/sha256").join(&manifest_digest),
            &manifest_digest,
        )?;
        link(&tags.join("current"), &manifest_digest)?;
    }
    Ok(())
}

fn link(dir: &Path, digest: &str) -> Result<(), LabError> {
    make_dir(dir)?;
    cache::write(&dir.join("link"), format!("sha256:{digest}"))
}

fn blob_path(root: &Path, digest: &str) -> PathBuf {
    root.join("blobs/sha256")
        .join(&digest[..2])
        .join(digest)
        .join("data")
}

/// Puts a file of the cache into the store: as a second name of it where that is possible.
fn blob_of_file(root: &Path, file: &Path) -> Result<(String, u64), LabError> {
    let size = fs::metadata(file)
        .map_err(LabError::file("cannot read", file))?
        .len();
    // The digest of a large layer takes a second, so it is kept beside it.
    let kept = file.with_extension("sha256");
    let digest = if let Ok(digest) = cache::read(&kept) {
        digest
    } else {
        let digest = recipe::digest(file)?;
        cache::write(&kept, &digest)?;
        digest
    };
    let data = blob_path(root, &digest);
    make_dir(data.parent().unwrap_or(root))?;
    if !data.exists() && fs::hard_link(file, &data).is_err() {
        fs::copy(file, &data).map_err(LabError::file("cannot copy to", &data))?;
    }
    Ok((digest, size))
}
