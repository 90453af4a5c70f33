//! Flags whose value is a list of names: feature gates, admission plugins, groups of the API, controllers.

use super::{Arg, Runs, instead};
use crate::{
    catalog::accepts::{self, Minor, Program, Span, go_bool},
    config::{cursor::Cursor, problem::Problem, resolve::Found, validate::nearest},
};

/// The flags of `kube-apiserver` that name admission plugins.
const PLUGINS: [&str; 3] = [
    "enable-admission-plugins",
    "disable-admission-plugins",
    "admission-control",
];

pub(super) fn read(program: Program, runs: Runs, arg: &Arg<'_>, found: &mut Found) {
    let check: fn(&Cursor<'_>, &str, Runs) -> Option<Problem> = match (program, arg.name.as_str()) {
        (Program::Etcd, _) => return,
        (_, "feature-gates") => gate,
        (Program::ApiServer, name) if PLUGINS.contains(&name) => plugin,
        (Program::ApiServer, "runtime-config") => group_version,
        (Program::ControllerManager, "controllers") => controller,
        _ => return,
    };
    for (at, text) in &arg.values {
        for item in text.split(',').filter(|item| !item.trim().is_empty()) {
            if let Some(problem) = check(at, item, runs) {
                runs.say(problem, found);
            }
        }
    }
}

/// `admission_configuration.plugins[].name`.
pub(super) fn configured_plugins(api: &Cursor<'_>, runs: Runs, found: &mut Found) {
    for item in api.get("admission_configuration").get("plugins").items() {
        let at = item.get("name");
        if let Some(problem) = at.scalar().and_then(|name| plugin(&at, name, runs)) {
            runs.say(problem, found);
        }
    }
}

/// Whether a gate is switched on in these flags; the last that says so counts.
pub(super) fn is_on(args: &[Arg<'_>], gate: &str) -> bool {
    let flags = args.iter().filter(|arg| arg.name == "feature-gates");
    let values = flags.flat_map(|arg| arg.values.iter());
    values
        .flat_map(|(_, text)| text.split(','))
        .filter_map(|item| item.trim().split_once('='))
        .rfind(|(name, _)| *name == gate)
        .is_some_and(|(_, value)| go_bool(value) == Some(true))
}

/// `Name=true`. Since 1.31 a component may stand before it: `kube:Name=true`.
fn gate(at: &Cursor<'_>, item: &str, runs: Runs) -> Option<Problem> {
    let release = runs.release;
    let problem = |message: String| at.problem(message).detail(item.to_owned());
    let item = item.trim();
    let parsed = item.split_once('=').and_then(|(name, value)| {
        let name = name.trim().rsplit(':').next().unwrap_or(name);
        Some((name, go_bool(value.trim())?))
    });
    let Some((name, value)) = parsed else {
        let form = "write `Name=true` or `Name=false`, with commas between";
        return Some(problem("is not a feature gate with its value".to_owned()).hint(form));
    };
    let Some(known) = accepts::gate(name) else {
        let near = nearest(name, accepts::gates(release).map(|(name, _)| name));
        let hint = near.map_or_else(
            || "remove it: the program would not start with it".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        return Some(problem("Kubernetes has no such feature gate".to_owned()).hint(hint));
    };
    if !known.span.has(release) {
        return Some(
            not_here(at, "feature gate", name, known.span, release).hint(runs.or_other(
                if release < known.span.first {
                    "remove it, or ask for a newer release"
                } else {
                    "remove it: what it was for is always on now, or gone"
                },
            )),
        );
    }
    let locked = known
        .locked
        .filter(|(from, to)| release >= *from && *to != value);
    locked.map(|(from, to)| {
        problem(format!(
            "the feature gate `{name}` is locked to `{to}` since {from}"
        ))
        .hint("remove it: the program would not start with it")
    })
}

/// Known names are public: they may stand in a message.
fn not_here(at: &Cursor<'_>, what: &str, name: &str, span: Span, release: Minor) -> Problem {
    at.problem(if release < span.first {
        format!(
            "the {what} `{name}` is there since {}; this is {release}",
            span.first
        )
    } else {
        format!(
            "{release} has no {what} `{name}`; {} was the last with it",
            span.last
        )
    })
}

fn plugin(at: &Cursor<'_>, name: &str, runs: Runs) -> Option<Problem> {
    let release = runs.release;
    let Some(span) = accepts::plugin(name) else {
        let near = nearest(name, accepts::plugins(release));
        let hint = near.map_or_else(
            || "remove it: the API server would not start with it".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        let problem = at.problem("kube-apiserver has no such admission plugin");
        return Some(problem.detail(name).hint(hint));
    };
    if span.has(release) {
        return None;
    }
    let hint = runs.or_other(instead::of_plugin(name).unwrap_or("remove it"));
    Some(not_here(at, "admission plugin", name, span, release).hint(hint))
}

/// An item of `runtime-config`: `api/all=true`, `GROUP/VERSION=true`, `GROUP/VERSION/RESOURCE=true`.
fn group_version(at: &Cursor<'_>, item: &str, runs: Runs) -> Option<Problem> {
    const ALL: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];
    let release = runs.release;
    let (name, value) = item.trim().split_once('=').unwrap_or((item.trim(), "true"));
    let problem = |message: String| at.problem(message).detail(item.to_owned());
    if !value.is_empty() && go_bool(value).is_none() {
        return Some(problem("must end with `=true` or `=false`".to_owned()));
    }
    if ALL.contains(&name) {
        return None;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let (group, version) = match parts.as_slice() {
        [version] | ["", version, ..] => ("", *version),
        [group, version, ..] => (*group, *version),
        [] => return None,
    };
    if !accepts::is_own_group(group) {
        let problem = problem("kube-apiserver has no such group".to_owned());
        return Some(problem.hint("remove it: the API server would not start with it"));
    }
    let Some(known) = accepts::version(group, version) else {
        let problem = problem("kube-apiserver has no such version of this group".to_owned());
        return Some(problem.hint("remove it: the API server would not start with it"));
    };
    (!known.span.has(release)).then(|| {
        let name = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        not_here(at, "version", &name, known.span, release)
            .hint(runs.or_other("remove it: the API server would not start with it"))
    })
}

/// `*`, a name, or a name after a `-`.
fn controller(at: &Cursor<'_>, item: &str, runs: Runs) -> Option<Problem> {
    let release = runs.release;
    let name = item.strip_prefix('-').unwrap_or(item);
    let known = accepts::controller(name);
    if name == "*" || known.is_some_and(|span| span.has(release)) {
        return None;
    }
    let near = nearest(name, accepts::controllers(release));
    let hint = near.map_or_else(
        || "remove it: kube-controller-manager would not start with it".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    let problem = at.problem("kube-controller-manager has no such controller");
    Some(problem.detail(name).hint(hint))
}
