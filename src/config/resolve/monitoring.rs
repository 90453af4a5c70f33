//! `monitoring`: the metrics server, and how it runs.

use serde_json::Value as Json;

use super::{Found, values};
use crate::config::{cursor::Cursor, intent::MetricsServer};

/// `None` where the user brings one, or a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<MetricsServer> {
    let provider = at.get("provider");
    let wanted = match values::text(&provider, found) {
        None | Some("metrics-server") => true,
        Some("none") => false,
        Some(other) => {
            let problem = provider.problem("unknown provider").detail(other);
            found.problem(problem.hint("write `metrics-server`, or `none` to bring your own"));
            false
        }
    };
    let options = values::map(&at.get("options"), found).into_iter();
    let options = options.filter_map(|(name, (value, text))| {
        values::is_flag(name, &value, found).then(|| (name.to_owned(), text.to_owned()))
    });
    let server = MetricsServer {
        options: options.collect(),
        node_selector: values::labels(&at.get("node_selector"), found),
        replicas: values::number(&at.get("replicas"), found).unwrap_or(1),
        tolerations: tolerations(&at.get("tolerations"), found),
        priority_class: values::text(&at.get("metrics_server_priority_class_name"), found)
            .map(str::to_owned),
    };
    wanted.then_some(server)
}

/// As Kubernetes has them.
fn tolerations(at: &Cursor<'_>, found: &mut Found) -> Vec<Json> {
    let items = at.items();
    items.iter().map(|item| toleration(item, found)).collect()
}

fn toleration(at: &Cursor<'_>, found: &mut Found) -> Json {
    let mut toleration = serde_json::Map::new();
    for name in ["key", "operator", "value", "effect"] {
        if let Some(text) = values::text(&at.get(name), found) {
            toleration.insert(name.to_owned(), text.into());
        }
    }
    if let Some(key) = toleration.get("key").and_then(Json::as_str)
        && !values::is_label_key(key)
    {
        let problem = at.get("key").problem("is not the key of a taint");
        found.problem(problem.detail(key).hint(values::LABEL_KEY));
    }
    if let Some(effect) = toleration.get("effect").and_then(Json::as_str) {
        values::effect(&at.get("effect"), effect, found);
    }
    let operator = toleration.get("operator").and_then(Json::as_str);
    match operator.unwrap_or("Equal") {
        "Equal" if toleration.contains_key("key") => {}
        "Equal" => {
            let problem = at.problem("a toleration of every taint has `operator: Exists`");
            found.problem(problem);
        }
        "Exists" if toleration.contains_key("value") => {
            found.problem(at.get("value").problem("has no place beside `Exists`"));
        }
        "Exists" => {}
        other => {
            let problem = at.get("operator").problem("unknown operator").detail(other);
            found.problem(problem.hint("write `Exists` or `Equal`"));
        }
    }
    for name in ["tolerationSeconds", "tolerationseconds"] {
        let at = at.get(name);
        if let Some(seconds) = values::number(&at, found) {
            if toleration.get("effect").and_then(Json::as_str) != Some("NoExecute") {
                found.problem(at.problem("has no meaning without `effect: NoExecute`"));
            }
            toleration.insert("tolerationSeconds".to_owned(), seconds.into());
        }
    }
    toleration.into()
}
