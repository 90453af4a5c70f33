//! From a component's flags, files and mounts to its container's definition, with what the user
//! adds (`services.*.extra_*`). Pure.

use std::collections::BTreeMap;

use super::{
    DesiredError,
    host_context::{Files, HostContext, PRIVATE},
    pki,
};
use crate::{
    config::ServiceExtras,
    model::{Bind, ContainerSpec, EnvVar, Owner, Secret, path},
};

/// A component before the user's extras.
pub(super) struct Service<'a> {
    /// The key in `services`, for messages.
    pub(super) key: &'static str,
    pub(super) image: &'a str,
    pub(super) extras: &'a ServiceExtras,
    /// The program and what comes before its flags.
    pub(super) entrypoint: Vec<String>,
    pub(super) flags: Flags,
    /// Flags that only the first start of a new member needs.
    pub(super) bootstrap: Flags,
    /// What it reads when it starts.
    pub(super) files: Files,
    /// How it gets at them.
    pub(super) view: View,
    pub(super) binds: Vec<Bind>,
    /// Those whose source must be there.
    pub(super) mounts: Vec<Bind>,
    pub(super) env: BTreeMap<String, String>,
    /// Whom it runs as; its files are theirs.
    pub(super) user: Owner,
    pub(super) privileged: bool,
    pub(super) host_pid: bool,
    pub(super) host_cgroupns: bool,
}

/// How a component's container sees the node's files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Each of its files is bound, read-only, at its own path: it sees no other component's keys.
    /// A bind of a file shows the old one after a rewrite, which is what is wanted: a changed
    /// file is a changed definition, and the container is replaced.
    OwnFiles,
    /// It works in the node's own file system.
    Host,
}

/// Flags by name, without dashes; a flag may be given several times.
#[derive(Default)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    /// Sets one.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.set_all(name, [value.into()]);
    }

    /// Gives one once for each value, in their order.
    pub(super) fn set_all(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        self.0.insert(name.to_owned(), values.into_iter().collect());
    }
}

impl<const N: usize> From<[(&str, String); N]> for Flags {
    fn from(flags: [(&str, String); N]) -> Self {
        Self(
            flags
                .into_iter()
                .map(|(name, value)| (name.to_owned(), vec![value]))
                .collect(),
        )
    }
}

impl Service<'_> {
    /// The definition. The user's flags, binds (by target) and variables (by name) win.
    pub(super) fn finish(
        self,
        context: &HostContext<'_>,
    ) -> Result<(ContainerSpec, Files), DesiredError> {
        let mut files = self.files;
        // Keys are for their readers alone, and what everybody reads may be another component's too.
        for file in files.values_mut().filter(|file| file.mode == PRIVATE) {
            file.owner = self.user;
        }
        let (command, bootstrap_args) = words(self.flags.0, self.bootstrap.0, self.extras);
        let own = match self.view {
            View::OwnFiles => files.keys().map(|path| read_only(path)).collect(),
            View::Host => Vec::new(),
        };
        let mut binds: BTreeMap<String, Bind> = own
            .into_iter()
            .chain(self.binds)
            .map(|bind| (bind.target.clone(), bind))
            .collect();
        for bind in self.extras.extra_binds.iter().map(without_relabelling) {
            match self.view {
                View::OwnFiles => {
                    binds.insert(bind.target.clone(), bind);
                }
                // It sees the whole node: a path that is the same inside and outside needs no bind.
                View::Host if bind.source == bind.target => {}
                View::Host => {
                    return Err(DesiredError::HostView {
                        node: context.name.clone(),
                        service: self.key,
                        bind: bind.into(),
                    });
                }
            }
        }
        let env: BTreeMap<String, String> = self
            .env
            .into_iter()
            .chain(
                self.extras
                    .extra_env
                    .iter()
                    .map(|(name, value)| (name.clone(), value.expose().clone())),
            )
            .collect();
        let spec = ContainerSpec {
            image: self.image.to_owned(),
            entrypoint: self.entrypoint,
            command,
            bootstrap_args,
            env: env
                .into_iter()
                .map(|(name, value)| {
                    // Keyed, and with its name: equal values of two variables do not look equal.
                    let digest = context.keys.digest(format!("{name}={value}").as_bytes());
                    EnvVar::new(name, Secret::new(value), digest)
                })
                .collect(),
            binds: binds.into_values().collect(),
            mounts: self.mounts,
            user: self.user,
            privileged: self.privileged,
            host_pid: self.host_pid,
            host_cgroupns: self.host_cgroupns,
            security_opts: context.security_opts(),
            tmpfs: Vec::new(),
            cap_drop: Vec::new(),
            log_limit: context.log_limit(),
            files: files
                .iter()
                .map(|(path, file)| (path.clone(), file.digest.clone()))
                .collect(),
            certificates: files
                .iter()
                .filter(|(path, _)| path::is_certificate(path))
                .filter_map(|(path, file)| {
                    let record = pki::record(file.content.expose())?;
                    Some((path.clone(), record))
                })
                .collect(),
        };
        Ok((spec, files))
    }
}

type Values = BTreeMap<String, Vec<String>>;

/// The words of the command, and those of the first start. The user's flags win; those of a list come after
/// what is there.
fn words(
    mut flags: Values,
    mut bootstrap: Values,
    extras: &ServiceExtras,
) -> (Vec<String>, Vec<String>) {
    let one = extras.extra_args.iter();
    let one = one.map(|(name, value)| (name, vec![value.clone()], true));
    let many = extras.extra_args_array.iter();
    let many = many.map(|(name, values)| (name, values.clone(), false));
    for (name, values, instead) in one.chain(many) {
        let flags = if bootstrap.contains_key(name) {
            &mut bootstrap
        } else {
            &mut flags
        };
        let there = flags.entry(name.clone()).or_default();
        if instead {
            there.clear();
        }
        there.extend(values);
    }
    let words = |flags: Values| {
        let given = flags.into_iter().flat_map(|(name, values)| {
            let word = move |value| format!("--{name}={value}");
            values.into_iter().map(word)
        });
        given.collect()
    };
    (words(flags), words(bootstrap))
}

/// A bind of a path onto itself, read-only.
pub(super) fn read_only(path: &str) -> Bind {
    Bind {
        source: path.to_owned(),
        target: path.to_owned(),
        options: "ro".to_owned(),
    }
}

/// A bind that can be written.
pub(super) fn read_write(source: &str, target: &str) -> Bind {
    Bind {
        source: source.to_owned(),
        target: target.to_owned(),
        options: String::new(),
    }
}

/// The user's bind, without `z` and `Z`: relabelling would take the files from the node's other
/// programs, and our containers run without labels (RKE drops them too, since 1.22).
fn without_relabelling(bind: &Bind) -> Bind {
    let options: Vec<&str> = bind
        .options
        .split(',')
        .filter(|option| !option.is_empty() && !option.eq_ignore_ascii_case("z"))
        .collect();
    Bind {
        options: options.join(","),
        ..bind.clone()
    }
}
