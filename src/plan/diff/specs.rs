//! Two container definitions, field by field and flag by flag. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Bind, ContainerSpec, EnvVar, Field, FieldChange, LogLimit};

/// What differs from `from` to `to`; empty exactly when they are equal.
pub(super) fn differences(from: &ContainerSpec, to: &ContainerSpec) -> Vec<FieldChange> {
    let ContainerSpec {
        image,
        entrypoint,
        command,
        // Applied when a container is created, and never compared.
        bootstrap_args: _,
        env,
        binds,
        mounts,
        tmpfs,
        user,
        privileged,
        host_pid,
        host_cgroupns,
        security_opts,
        cap_drop,
        log_limit,
        files,
        // On record only.
        certificates: _,
    } = from;
    let mut changes = Vec::new();
    let mut field = |field: Field, from: String, to: String| {
        if from != to {
            changes.push(FieldChange {
                field,
                from: Some(from),
                to: Some(to),
            });
        }
    };
    field(Field::Image, image.clone(), to.image.clone());
    field(
        Field::Entrypoint,
        entrypoint.join(" "),
        to.entrypoint.join(" "),
    );
    field("user".into(), user.to_string(), to.user.to_string());
    field("privileged".into(), yes(*privileged), yes(to.privileged));
    field("host pid".into(), yes(*host_pid), yes(to.host_pid));
    field(
        "host cgroupns".into(),
        yes(*host_cgroupns),
        yes(to.host_cgroupns),
    );
    let options = |options: &[String]| options.join(" ");
    for (name, from, to) in [
        ("security options", security_opts, &to.security_opts),
        ("dropped capabilities", cap_drop, &to.cap_drop),
        ("folders in memory", tmpfs, &to.tmpfs),
    ] {
        field(name.into(), options(from), options(to));
    }
    field(
        "log limit".into(),
        limit(log_limit.as_ref()),
        limit(to.log_limit.as_ref()),
    );
    changes.extend(maps(Field::Flag, &flags(command), &flags(&to.command)));
    changes.extend(variables(env, &to.env));
    changes.extend(maps(Field::Bind, &by_target(binds), &by_target(&to.binds)));
    changes.extend(maps(
        Field::Mount,
        &by_target(mounts),
        &by_target(&to.mounts),
    ));
    let digests = |files: &BTreeMap<String, crate::model::Digest>| {
        files
            .iter()
            .map(|(path, digest)| (path.clone(), digest.0.clone()))
            .collect()
    };
    changes.extend(maps(Field::File, &digests(files), &digests(&to.files)));
    if changes.is_empty() && compared(from) != compared(to) {
        // The same words in another order.
        changes.push(FieldChange {
            field: "order".into(),
            from: Some("another order of flags, mounts or variables".to_owned()),
            to: Some("as defined".to_owned()),
        });
    }
    changes
}

/// A definition without what is never compared.
fn compared(spec: &ContainerSpec) -> ContainerSpec {
    let mut compared = spec.clone();
    compared.bootstrap_args.clear();
    compared.certificates.clear();
    compared
        .command
        .retain(|word| !ContainerSpec::is_bootstrap_flag(word));
    compared
}

/// The names of what differs, for a sentence.
pub(super) fn names(changes: &[FieldChange]) -> String {
    let names: BTreeSet<String> = changes.iter().map(|it| it.field.to_string()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn limit(limit: Option<&LogLimit>) -> String {
    limit.map_or_else(
        || "the daemon's own".to_owned(),
        |limit| format!("{} × {}", limit.max_file, limit.max_size),
    )
}

/// `--v=2` by `--v`; a flag that is given twice by both its values; a bare word by its place.
fn flags(command: &[String]) -> BTreeMap<String, String> {
    let mut flags: BTreeMap<String, String> = BTreeMap::new();
    let compared = command
        .iter()
        .filter(|word| !ContainerSpec::is_bootstrap_flag(word));
    for (place, word) in compared.enumerate() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if word.starts_with('-') => (name.to_owned(), value.to_owned()),
            Some(_) | None if word.starts_with('-') => (word.clone(), "(set)".to_owned()),
            Some(_) | None => (format!("word {place}"), word.clone()),
        };
        flags
            .entry(name)
            .and_modify(|all| {
                all.push(' ');
                all.push_str(&value);
            })
            .or_insert(value);
    }
    flags
}

fn by_target(binds: &[Bind]) -> BTreeMap<String, String> {
    binds
        .iter()
        .map(|bind| (bind.target.clone(), String::from(bind.clone())))
        .collect()
}

/// By name only: a value may be a password that someone put there.
fn variables(from: &[EnvVar], to: &[EnvVar]) -> Vec<FieldChange> {
    let by_name = |env: &[EnvVar]| -> BTreeMap<String, EnvVar> {
        env.iter()
            .map(|var| (var.name.clone(), var.clone()))
            .collect()
    };
    let (from, to) = (by_name(from), by_name(to));
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    names
        .into_iter()
        .filter(|name| from.get(*name) != to.get(*name))
        .map(|name| {
            let in_label = from.get(name).is_some_and(|var| var.digest.is_none());
            let was = if in_label {
                "(a value that stands in the container's label)"
            } else {
                "(a value)"
            };
            let now = if in_label {
                "(a value of which the label has a digest)"
            } else {
                "(another value)"
            };
            FieldChange {
                field: Field::Env(name.clone()),
                from: from.get(name).map(|_| was.to_owned()),
                to: to.get(name).map(|_| now.to_owned()),
            }
        })
        .collect()
}

fn maps(
    what: fn(String) -> Field,
    from: &BTreeMap<String, String>,
    to: &BTreeMap<String, String>,
) -> Vec<FieldChange> {
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    names
        .into_iter()
        .filter(|name| from.get(*name) != to.get(*name))
        .map(|name| FieldChange {
            field: what(name.clone()),
            from: from.get(name).cloned(),
            to: to.get(name).cloned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Owner;

    fn spec() -> ContainerSpec {
        ContainerSpec {
            image: "a/b:1".to_owned(),
            entrypoint: vec!["kubelet".to_owned()],
            command: vec!["--v=2".to_owned(), "--feature=x".to_owned()],
            bootstrap_args: Vec::new(),
            env: vec!["TOKEN=hunter2".to_owned().into()],
            binds: Vec::new(),
            mounts: Vec::new(),
            user: Owner::ROOT,
            privileged: false,
            host_pid: false,
            host_cgroupns: false,
            security_opts: Vec::new(),
            tmpfs: Vec::new(),
            cap_drop: Vec::new(),
            log_limit: None,
            files: BTreeMap::new(),
            certificates: BTreeMap::new(),
        }
    }

    #[test]
    fn flags_are_compared_one_by_one() {
        let mut to = spec();
        to.command = vec!["--v=4".to_owned(), "--bare".to_owned()];
        let changes = differences(&spec(), &to);
        assert_eq!(
            names(&changes),
            "command --bare, command --feature, command --v"
        );
    }

    #[test]
    fn the_order_alone_is_a_difference_too() {
        let mut to = spec();
        to.command.reverse();
        assert_eq!(names(&differences(&spec(), &to)), "order");
        assert!(differences(&to, &to).is_empty());
    }

    #[test]
    fn the_bound_of_a_log_is_shown() {
        let to = ContainerSpec {
            log_limit: Some(LogLimit {
                max_size: "20m".to_owned(),
                max_file: 3,
            }),
            ..spec()
        };
        let changes = differences(&spec(), &to);
        let [change] = changes.as_slice() else {
            panic!("{changes:?}");
        };
        assert_eq!(change.from.as_deref(), Some("the daemon's own"));
        assert_eq!(change.to.as_deref(), Some("3 × 20m"));
    }

    /// An earlier release did not separate them, so running containers have them among the other flags.
    #[test]
    fn flags_of_the_first_start_are_not_compared() {
        let now = ContainerSpec {
            bootstrap_args: vec!["--initial-cluster=a=1,b=2".to_owned()],
            ..spec()
        };
        let mut runs = spec();
        runs.command.insert(1, "--initial-cluster=a=1".to_owned());
        runs.command.push("--initial-cluster-state=new".to_owned());
        assert!(differences(&runs, &now).is_empty());
        assert!(differences(&now, &runs).is_empty());
        assert!(differences(&spec(), &now).is_empty());
        runs.command
            .push("--initial-election-tick-advance=false".to_owned());
        assert_eq!(
            names(&differences(&runs, &now)),
            "command --initial-election-tick-advance"
        );
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let mut to = spec();
        to.env = vec!["TOKEN=swordfish".to_owned().into()];
        let shown = serde_json::to_string(&differences(&spec(), &to)).unwrap();
        assert!(shown.contains("env TOKEN"));
        assert!(
            !shown.contains("hunter2") && !shown.contains("swordfish"),
            "{shown}"
        );
    }
}
