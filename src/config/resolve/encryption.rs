//! `services.kube-api.secrets_encryption_config`: our own key, or an `EncryptionConfiguration` of the user's. Nothing
//! of such a configuration goes into a problem: it holds keys.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Found, fits, values};
use crate::{
    config::{SecretsEncryption, cursor::Cursor},
    model::Secret,
};

const FLAG: &str = "encryption-provider-config";
const API: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

/// Of `services.kube-api`.
pub(super) fn read(api: &Cursor<'_>, found: &mut Found) -> SecretsEncryption {
    let at = api.get("secrets_encryption_config");
    let enabled = values::flag_or_default(&at.get("enabled"), found);
    let custom = at.get("custom_config");
    let written = own(&custom, found);
    if !enabled {
        if written.is_some() {
            let problem = custom.problem("has no effect while `enabled` is not `true`");
            found.warning(problem.hint("write `enabled: true` next to it"));
        }
        return SecretsEncryption::Off;
    }
    let flags = ["extra_args", "extra_args_array"]
        .into_iter()
        .flat_map(|key| api.get(key).entries());
    let mut flags = flags.filter(|(name, at)| fits::flag_name(name) == FLAG && at.is_written());
    if let Some((_, flag)) = flags.next() {
        found.problem(
            flag.problem("names another file than `secrets_encryption_config` makes")
                .hint("keep one of the two; what the file says may stand under `custom_config`"),
        );
    }
    written.map_or(SecretsEncryption::Managed, SecretsEncryption::Custom)
}

/// The user's configuration. An API server does not start with one that it does not understand.
fn own(at: &Cursor<'_>, found: &mut Found) -> Option<Secret<String>> {
    let before = found.problems.len();
    let object = values::object(at, &[API], KIND, found);
    if object.is_some() {
        for entry in values::mappings(&at.get("resources"), found) {
            if values::texts(&entry.get("resources"), found).is_empty() {
                let at = entry.get("resources");
                found.problem(at.problem("must name at least one resource, e.g. `secrets`"));
            }
            for provider in values::mappings(&entry.get("providers"), found) {
                check(&provider, found);
            }
        }
    }
    for problem in found.problems.iter_mut().skip(before) {
        problem.detail = None;
    }
    object.map(|object| Secret::new(serde_json::Value::from(object).to_string()))
}

/// One provider, and how long its keys may be.
fn check(provider: &Cursor<'_>, found: &mut Found) {
    let entries = provider.entries();
    let [(name, at)] = entries.as_slice() else {
        found.problem(provider.problem("must have exactly one provider"));
        return;
    };
    let lengths: &[usize] =
        match *name {
            "aescbc" | "aesgcm" => &[16, 24, 32],
            "secretbox" => &[32],
            "identity" | "kms" => return,
            _ => {
                let problem = provider.problem("is not a provider of Kubernetes");
                found.problem(problem.hint(
                    "the providers are `aescbc`, `aesgcm`, `secretbox`, `kms` and `identity`",
                ));
                return;
            }
        };
    for key in values::mappings(&at.get("keys"), found) {
        if values::text(&key.get("name"), found).is_none() {
            found.problem(key.get("name").problem("a key needs a name"));
        }
        let secret = key.get("secret");
        let bytes = values::text(&secret, found).and_then(|text| STANDARD.decode(text).ok());
        if !bytes.is_some_and(|bytes| lengths.contains(&bytes.len())) {
            let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
            let problem = secret.problem("is not a key of this provider in base64");
            found.problem(problem.hint(format!(
                "its keys have {} bytes: `head -c 32 /dev/urandom | base64`",
                lengths.join(" or ")
            )));
        }
    }
}
