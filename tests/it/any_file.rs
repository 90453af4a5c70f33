//! Files that are always there: what tests give a config instead of the disk.

use std::path::PathBuf;

use rke_operator::config::{Certificate, DefaultKey, Refusal, Sources, SshKey};

/// Every path leads to one key, made for this run.
pub(crate) struct AnyFile(String);

impl AnyFile {
    pub(crate) fn new() -> Self {
        Self(
            rcgen::KeyPair::generate()
                .expect("a key pair")
                .serialize_pem(),
        )
    }

    /// The key.
    pub(crate) fn pem(&self) -> String {
        self.0.clone()
    }
}

impl Sources for AnyFile {
    /// One object, with the name of the file.
    fn manifest_at(&self, place: &str) -> Result<String, Refusal> {
        let file = place.rsplit('/').next().unwrap_or(place);
        let name = file.split('.').next().unwrap_or(file);
        Ok(format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}"
        ))
    }

    fn authority_at(&self, path: &str) -> Result<String, Refusal> {
        Ok(format!("-----BEGIN CERTIFICATE-----\n{path}\n"))
    }

    fn key_at(&self, path: &str) -> Result<SshKey, Refusal> {
        Ok(SshKey {
            pem: self.0.clone().into(),
            source: path.to_owned(),
        })
    }

    fn default_key_path(&self) -> &'static str {
        "ssh_key_path"
    }

    fn default_key(&self) -> Result<DefaultKey, Refusal> {
        self.key_at("~/.ssh/id_rsa").map(DefaultKey::Key)
    }

    fn certificate_at(&self, path: &str) -> Result<Certificate, Refusal> {
        Err(Refusal {
            message: format!("there is no certificate {path}"),
            detail: None,
            hint: None,
        })
    }

    fn agent(&self) -> Result<Option<PathBuf>, Refusal> {
        Ok(Some(PathBuf::from("/run/agent")))
    }

    fn default_user(&self) -> Result<String, Refusal> {
        Ok("me".to_owned())
    }

    fn allows_inline_key(&self) -> Result<(), Refusal> {
        Ok(())
    }
}
