//! What a fake node answers to the script that reads its system: the same questions, answered from
//! the fake's own files and containers. Pure but for reading the fake.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use rke_operator::{facts::Baseline, model::path};

use crate::{
    fake::{FakeHost, NodeFile},
    node::Machine,
};

/// The arguments of a script that was run with some, in order.
pub(crate) fn arguments(script: &str) -> Vec<String> {
    let list = script
        .split_once("\nset --")
        .and_then(|(_, rest)| rest.split_once('\n'));
    let quoted = list.map_or("", |(list, _)| list).split('\'');
    // Every second piece is between quotes.
    quoted.skip(1).step_by(2).map(str::to_owned).collect()
}

/// The answer.
pub(crate) fn system(host: &FakeHost, machine: &Machine, script: &str) -> String {
    let arguments = arguments(script);
    let asked = |kind: &'static str| {
        let words = arguments.iter();
        words.filter_map(move |word| word.strip_prefix(kind)?.strip_prefix('='))
    };
    let listening: Vec<String> = [22]
        .into_iter()
        .chain(host.listening())
        .map(|port| format!("{port:04X}"))
        .collect();
    let docker = host.docker();
    let there = |path: &&str| docker.files.contains_key(*path);
    let is_empty = |path: &&str| {
        let below = format!("{path}/");
        let mut after = docker.files.range(below.clone()..);
        there(path)
            && after
                .next()
                .is_none_or(|(path, _)| !path.starts_with(&below))
    };
    let lines = |words: &mut dyn Iterator<Item = &str>| words.collect::<Vec<_>>().join("\n");
    let cluster_id = docker.files.get(path::CLUSTER_ID);
    let cluster_id = cluster_id.map(|file| String::from_utf8_lossy(&file.content).into_owned());
    let (modules, sysctls) = kernel(&docker.files, &machine.booted);
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let Machine {
        name,
        address,
        id,
        booted: _,
    } = machine;
    let sections = [
        ("clock", since.as_secs().to_string()),
        ("hostname", name.clone()),
        ("kernel", "6.12.0".to_owned()),
        ("os", "Debian GNU/Linux 13".to_owned()),
        ("machine-id", id.clone()),
        ("init", "systemd".to_owned()),
        ("addresses", address.to_string()),
        ("route-address", address.to_string()),
        ("containerd-socket", "yes".to_owned()),
        ("ctr", "/usr/bin/ctr".to_owned()),
        (
            "containerd-unit",
            "LoadState=loaded\nExecMainStartTimestampMonotonic=1".to_owned(),
        ),
        ("containerd-command", "/usr/bin/containerd".to_owned()),
        (
            "containerd-version",
            "containerd github.com/containerd/containerd 1.7.24 abc".to_owned(),
        ),
        ("containerd-dump", "version = 2".to_owned()),
        ("docker-unit", "Requires=docker.socket".to_owned()),
        ("resolv-conf", "/etc/resolv.conf".to_owned()),
        ("listening", listening.join("\n")),
        ("paths", lines(&mut asked("path").filter(there))),
        ("empty", lines(&mut asked("path").filter(is_empty))),
        ("cluster-id", cluster_id.unwrap_or_default()),
        ("ours", lines(&mut asked("ours").filter(there))),
        ("pods", "0".to_owned()),
        ("modules", modules),
        ("sysctls", sysctls),
        (
            "free",
            asked("free")
                .map(|path| format!("{path} 50000000\n"))
                .collect::<Vec<_>>()
                .concat(),
        ),
        ("end", String::new()),
    ];
    sections
        .map(|(name, text)| format!("@@{name}\n{text}\n"))
        .concat()
}

/// What the kernel has: what it booted with, and what the files for the next boot say, which are
/// put into force when they are written.
fn kernel(
    files: &BTreeMap<String, NodeFile>,
    booted: &BTreeMap<String, NodeFile>,
) -> (String, String) {
    let text = |path: &str| {
        let file = files.get(path).or_else(|| booted.get(path));
        file.map(|file| String::from_utf8_lossy(&file.content).into_owned())
            .unwrap_or_default()
    };
    let plain = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let modules = text(path::MODULES_LOAD);
    let modules: Vec<&str> = modules.lines().filter(plain).chain(["overlay"]).collect();
    let mut values: BTreeMap<String, String> = Baseline::SYSCTLS
        .iter()
        .map(|name| ((*name).to_owned(), "0".to_owned()))
        .collect();
    for line in text(path::SYSCTL).lines().filter(plain) {
        if let Some((name, value)) = line.split_once('=') {
            values.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    let values: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    (modules.join("\n"), values.join("\n"))
}
