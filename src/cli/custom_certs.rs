//! `--custom-certs`: the files of a folder; nothing is written there but by `cert generate-csr`. What is in them is for
//! [`GivenFiles`].
#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where files come in"
)]

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{
    args::{Certs, GenerateCsr},
    intent, print,
    report::{CliError, Failure},
    session::Session,
    sources::read_at_most,
};
use crate::{
    desired::pki::{GivenFiles, Request, Seed, requests},
    model::Secret,
};

/// The longest file that is read.
const MAX_BYTES: usize = 1024 * 1024;

/// The folder's certificates and keys; `None` without the flag.
pub(super) fn read(args: &Certs, config: &Path) -> Result<Option<GivenFiles>, CliError> {
    if !args.custom_certs {
        return Ok(None);
    }
    let folder = args
        .cert_dir
        .clone()
        .unwrap_or_else(|| default_folder(config));
    Ok(Some(folder_of(&folder)?))
}

fn folder_of(folder: &Path) -> Result<GivenFiles, CliError> {
    let failed = |place: &Path, source: io::Error| Failure::Certificates {
        place: place.display().to_string(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        let is_pem = path.extension().is_some_and(|ending| ending == "pem");
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| is_pem) else {
            continue;
        };
        let text = read_at_most(MAX_BYTES, &path).map_err(|error| failed(&path, error))?;
        files.push((name.to_owned(), Secret::new(text)));
    }
    let place = folder.display().to_string();
    Ok(GivenFiles::new(place, files))
}

/// `cert generate-csr`.
pub(super) async fn generate(args: &GenerateCsr, session: &Session) -> Result<u8, CliError> {
    let config = &args.config.config;
    let intent = intent::load(config, session).await?;
    let folder = args
        .cert_dir
        .clone()
        .unwrap_or_else(|| default_folder(config));
    let failed = |path: &Path| {
        let what = format!("`{}`", path.display());
        move |source: io::Error| Failure::Write { what, source }
    };
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&folder);
    made.map_err(failed(&folder))?;
    let files = folder_of(&folder)?;
    let seed = Seed::new(rand::random());
    let mut said = String::new();
    for Request { stem, csr, key } in requests(&intent, &files, &seed)? {
        if let Some(key) = key {
            let path = folder.join(format!("{stem}-key.pem"));
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(&path);
            let written = file.and_then(|mut file| file.write_all(key.expose().as_bytes()));
            written.map_err(failed(&path))?;
        }
        let path = folder.join(format!("{stem}-csr.pem"));
        if fs::read_to_string(&path).ok().as_ref() != Some(&csr) {
            fs::write(&path, csr).map_err(failed(&path))?;
        }
        let _ = writeln!(said, "{}", path.display());
    }
    print::data(&said)?;
    session.screen.print_unless_quiet(&format!(
        "\nhave them signed, put each certificate next to its key, without `-csr`, and the CA's as \
         `kube-ca.pem`; then\n\n  rke-operator up --custom-certs --cert-dir {}",
        folder.display()
    ));
    Ok(0)
}

/// As in RKE: `cluster_certs` for `cluster.yml`.
pub(super) fn default_folder(config: &Path) -> PathBuf {
    let stem = config.file_stem().unwrap_or_default().to_string_lossy();
    config.with_file_name(format!("{stem}_certs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_next_to_the_config_as_in_rke() {
        let of = |config: &str| default_folder(Path::new(config)).display().to_string();
        assert_eq!(of("cluster.yml"), "cluster_certs");
        assert_eq!(of("/etc/a/prod.yaml"), "/etc/a/prod_certs");
    }
}
