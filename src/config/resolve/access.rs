//! `authentication` and `authorization`: who asks the API server, and what they may do.

use super::{Found, values};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Authorization, TokenWebhook},
        tree::{Node, Value},
    },
    model::{Secret, go_duration},
};

/// RKE's, which expects a server on the node itself.
const DEFAULT_WEBHOOK: &str = r#"{"apiVersion":"v1","kind":"Config","clusters":[{"name":"Default","cluster":{"insecure-skip-tls-verify":true,"server":"http://127.0.0.1:6440/v1/authenticate"}}],"users":[{"name":"Default","user":{"insecure-skip-tls-verify":true}}],"current-context":"webhook","contexts":[{"name":"webhook","context":{"user":"Default","cluster":"Default"}}]}"#;

const STRATEGIES: &str = "write `x509` or `x509|webhook`";

/// Of `authentication`: the server that is asked about tokens.
pub(super) fn webhook(at: &Cursor<'_>, found: &mut Found) -> Option<TokenWebhook> {
    let strategy = at.get("strategy");
    let text = values::or_default(&strategy, found);
    let words: Vec<String> = text
        .split('|')
        .map(|word| word.trim().to_ascii_lowercase())
        .collect();
    if words
        .iter()
        .any(|word| !["x509", "webhook"].contains(&word.as_str()))
    {
        let problem = strategy.problem("is not a supported strategy");
        found.problem(problem.detail(text).hint(STRATEGIES));
    } else if !words.iter().any(|word| word == "x509") {
        let problem =
            strategy.problem("lacks `x509`, by which the cluster's own components are known");
        found.problem(problem.hint(STRATEGIES));
    }
    let section = at.get("webhook");
    let (file, timeout) = (section.get("config_file"), section.get("cache_timeout"));
    let config = kubeconfig(&file, found);
    let cache = values::text(&timeout, found);
    if let Some(text) = cache
        && go_duration(text).is_none()
    {
        let problem = timeout.problem("is not a duration").detail(text);
        found.problem(problem.hint("write one like `5s`"));
    }
    if words.iter().any(|word| word == "webhook") {
        return Some(TokenWebhook {
            config: config.unwrap_or_else(|| Secret::new(DEFAULT_WEBHOOK.to_owned())),
            cache_timeout: cache.unwrap_or_else(|| timeout.default()).to_owned(),
        });
    }
    for key in [file, timeout] {
        if !key.is_empty() {
            let problem = key.problem("has no effect while `strategy` has no `webhook`");
            found.warning(problem.hint("write `strategy: x509|webhook`"));
        }
    }
    None
}

/// The content of the file, as a text or as YAML. Problems quote none of it, because it may contain a private key.
fn kubeconfig(at: &Cursor<'_>, found: &mut Found) -> Option<Secret<String>> {
    let config = match at.value()? {
        Value::Scalar(text) if text.expose().is_empty() => return None,
        Value::Scalar(text) => Node::from_yaml(text.expose())
            .ok()
            .map(|node| node.to_json()),
        Value::Null | Value::List(_) | Value::Map(_) => Some(at.json()),
    };
    let is_one = |config: &serde_json::Value| {
        let clusters = config["clusters"].as_array();
        clusters.is_some_and(|clusters| {
            let server = |cluster: &serde_json::Value| cluster["cluster"]["server"].is_string();
            !clusters.is_empty() && clusters.iter().all(server)
        })
    };
    let config = config.filter(is_one);
    if config.is_none() {
        let problem = at.problem("is not a kubeconfig with the server to ask");
        found.problem(
            problem.hint("write the content of the file here, not its path: `config_file: |`"),
        );
    }
    config.map(|config| Secret::new(config.to_string()))
}

/// Of `authorization`.
pub(super) fn authorization(root: &Cursor<'_>, found: &mut Found) -> Authorization {
    let at = root.get("authorization").get("mode");
    match values::text(&at, found)
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        None | Some("rbac") => Authorization::Rbac,
        Some("none") => {
            let level = root
                .get("services")
                .get("kube-api")
                .get("pod_security_configuration");
            if !level.is_empty() {
                let problem = level.problem("needs `authorization.mode: rbac`, as in RKE");
                found.problem(problem.hint("remove one of the two"));
            }
            found.warning(
                at.problem("every user and every pod of this cluster has full access to its API")
                    .hint("write `mode: rbac`"),
            );
            Authorization::None
        }
        Some(_) => {
            found.problem(
                at.problem("is not a supported mode")
                    .hint("write `rbac` or `none`"),
            );
            Authorization::Rbac
        }
    }
}
