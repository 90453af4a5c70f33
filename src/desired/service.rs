//! From a component's flags, files and mounts to its container's definition, with what the user
//! adds (`services.*.extra_*`). Pure.

use std::collections::BTreeMap;

use super::{
    Bind, ContainerSpec, DrawError,
    site::{Files, Site},
};
use crate::config::ServiceExtras;

/// A component before the user's extras.
pub(super) struct Service<'a> {
    /// The key in `services`, for messages.
    pub(super) key: &'static str,
    pub(super) image: &'a str,
    pub(super) extras: &'a ServiceExtras,
    /// The program and what comes before its flags.
    pub(super) entrypoint: Vec<String>,
    pub(super) flags: Flags,
    /// What it reads when it starts.
    pub(super) files: Files,
    /// How it gets at them.
    pub(super) view: View,
    pub(super) binds: Vec<Bind>,
    pub(super) env: Vec<String>,
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

/// Flags by name, without dashes.
#[derive(Default)]
pub(super) struct Flags(BTreeMap<String, String>);

impl Flags {
    /// Sets one.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl<const N: usize> From<[(&str, String); N]> for Flags {
    fn from(flags: [(&str, String); N]) -> Self {
        Self(
            flags
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}

impl Service<'_> {
    /// The definition. The user's flags, binds (by target) and variables (by name) win.
    pub(super) fn finish(self, site: &Site<'_>) -> Result<(ContainerSpec, Files), DrawError> {
        let mut flags = self.flags.0;
        flags.extend(self.extras.extra_args.clone());
        let own = match self.view {
            View::OwnFiles => self.files.keys().map(|path| read_only(path)).collect(),
            View::Host => Vec::new(),
        };
        let mut binds: BTreeMap<String, Bind> = own
            .into_iter()
            .chain(self.binds)
            .map(|bind| (bind.target.clone(), bind))
            .collect();
        for text in &self.extras.extra_binds {
            let bind = extra_bind(text, self.key, site)?;
            match self.view {
                View::OwnFiles => {
                    binds.insert(bind.target.clone(), bind);
                }
                // It sees the whole node: what lies where it lies needs no bind.
                View::Host if bind.source == bind.target => {}
                View::Host => {
                    return Err(DrawError::HostView {
                        node: site.name.clone(),
                        service: self.key,
                        bind: text.clone(),
                    });
                }
            }
        }
        let env: BTreeMap<String, String> = self
            .env
            .iter()
            .chain(&self.extras.extra_env)
            .map(|text| {
                let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
                (name.to_owned(), text.clone())
            })
            .collect();
        let spec = ContainerSpec {
            image: self
                .extras
                .image
                .clone()
                .unwrap_or_else(|| self.image.to_owned()),
            entrypoint: self.entrypoint,
            command: flags
                .into_iter()
                .map(|(name, value)| format!("--{name}={value}"))
                .collect(),
            env: env.into_values().collect(),
            binds: binds.into_values().collect(),
            privileged: self.privileged,
            host_pid: self.host_pid,
            host_cgroupns: self.host_cgroupns,
            security_opts: site.security_opts(),
            log_limit: site.log_limit(),
            files: self
                .files
                .iter()
                .map(|(path, file)| (path.clone(), file.digest.clone()))
                .collect(),
        };
        Ok((spec, self.files))
    }
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
fn extra_bind(text: &str, service: &'static str, site: &Site<'_>) -> Result<Bind, DrawError> {
    let bind = Bind::try_from(text.to_owned()).map_err(|why| DrawError::Bind {
        node: site.name.clone(),
        service,
        why,
    })?;
    let options: Vec<&str> = bind
        .options
        .split(',')
        .filter(|option| !option.is_empty() && !option.eq_ignore_ascii_case("z"))
        .collect();
    Ok(Bind {
        options: options.join(","),
        ..bind
    })
}
