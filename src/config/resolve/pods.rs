//! How the pods of an add-on run: on which nodes, and how they are replaced.

use serde_json::{Map, Value as Json, json};

use super::{Found, values};
use crate::config::cursor::Cursor;

/// The kind of object that runs the pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    DaemonSet,
    Deployment,
}

/// As Kubernetes has them. RKE reads their keys in small letters.
pub(super) fn tolerations(at: &Cursor<'_>, found: &mut Found) -> Vec<Json> {
    let items = at.items();
    items.iter().map(|item| toleration(item, found)).collect()
}

fn toleration(at: &Cursor<'_>, found: &mut Found) -> Json {
    let mut toleration = Map::new();
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
            found.problem(
                at.get("value")
                    .problem("is not allowed with `operator: Exists`"),
            );
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

/// `update_strategy`, as the API has it: RKE calls the type `strategy`. Like RKE, which reads it as JSON,
/// it takes capital and small letters.
pub(super) fn update_strategy(at: &Cursor<'_>, runs: Runs, found: &mut Found) -> Option<Json> {
    let entries = values::entries(at, found);
    if entries.is_empty() {
        return None;
    }
    let mut kind = None;
    let mut rolling = None;
    for (name, at) in entries {
        match name.to_ascii_lowercase().as_str() {
            "strategy" | "type" => kind = kind_of(&at, runs, found).or(kind),
            "rollingupdate" => rolling = Some(at),
            _ => {
                let problem = at.problem("unknown key");
                found.problem(problem.hint("the keys are `strategy` and `rollingUpdate`"));
            }
        }
    }
    let numbers = rolling
        .as_ref()
        .map(|at| rolling_update(at, found))
        .filter(|numbers| !numbers.is_empty());
    let kind = kind.unwrap_or("RollingUpdate");
    match (numbers, rolling) {
        (Some(numbers), Some(at)) => {
            let zero = |name| numbers.get(name).is_some_and(|value| value == &json!(0));
            if kind != "RollingUpdate" {
                found.problem(at.problem("has a meaning with `strategy: RollingUpdate` only"));
            } else if zero("maxUnavailable") && (zero("maxSurge") || numbers.len() == 1) {
                let of_set = runs == Runs::DaemonSet || zero("maxSurge");
                if of_set {
                    found.problem(
                        at.problem("`maxUnavailable` and `maxSurge` cannot both be nothing"),
                    );
                }
            }
            Some(json!({"type": kind, "rollingUpdate": numbers}))
        }
        (Some(_) | None, _) => Some(json!({"type": kind})),
    }
}

fn kind_of(at: &Cursor<'_>, runs: Runs, found: &mut Found) -> Option<&'static str> {
    let known: [&'static str; 2] = match runs {
        Runs::DaemonSet => ["RollingUpdate", "OnDelete"],
        Runs::Deployment => ["RollingUpdate", "Recreate"],
    };
    let text = values::text(at, found)?;
    let kind = known.into_iter().find(|known| *known == text);
    if kind.is_none() {
        let problem = at.problem("unknown strategy").detail(text);
        found.problem(problem.hint(format!("write `{}` or `{}`", known[0], known[1])));
    }
    kind
}

fn rolling_update(at: &Cursor<'_>, found: &mut Found) -> Map<String, Json> {
    let mut numbers = Map::new();
    for (name, at) in values::entries(at, found) {
        let name = match name.to_ascii_lowercase().as_str() {
            "maxunavailable" => "maxUnavailable",
            "maxsurge" => "maxSurge",
            _ => {
                let problem = at.problem("unknown key");
                found.problem(problem.hint("the keys are `maxUnavailable` and `maxSurge`"));
                continue;
            }
        };
        let Some(text) = values::text(&at, found) else {
            continue;
        };
        let number = text.strip_suffix('%').unwrap_or(text);
        match number.parse::<u16>() {
            Ok(0) => drop(numbers.insert(name.to_owned(), 0.into())),
            Ok(number) if number.to_string() == text => {
                numbers.insert(name.to_owned(), number.into());
            }
            Ok(number) if number <= 100 => {
                numbers.insert(name.to_owned(), text.into());
            }
            Ok(_) | Err(_) => found.problem(
                at.problem("must be a number of pods, or a percentage, `0%` to `100%`")
                    .detail(text),
            ),
        }
    }
    numbers
}

/// The name of a `PriorityClass`.
pub(super) fn priority_class(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let text = values::text(at, found)?;
    if !values::is_dns_name(text) {
        let problem = at.problem("is not the name of a PriorityClass");
        found.problem(problem.detail(text));
    }
    Some(text.to_owned())
}
