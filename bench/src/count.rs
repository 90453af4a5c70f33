//! What a run asks of a node, counted there: in sshd's log, dockerd's and the API server's audit log.

use std::{collections::BTreeMap, fmt::Write as _};

use lab::Node;

use crate::Fallible;

/// Counts what a run asks.
pub(crate) fn around(
    node: &Node,
    what: &str,
    run: impl FnOnce() -> Fallible<()>,
) -> Fallible<String> {
    // dockerd logs its requests at level debug, and sshd the commands that it starts at VERBOSE.
    node.sh(
        "test -s /etc/docker/daemon.json || echo '{}' > /etc/docker/daemon.json
         jq '.debug = true' /etc/docker/daemon.json > /tmp/daemon.json
         cat /tmp/daemon.json > /etc/docker/daemon.json
         echo 'LogLevel VERBOSE' > /etc/ssh/sshd_config.d/bench.conf
         systemctl reload docker ssh; sleep 1",
    )?;
    let since = node.sh("date '+%Y-%m-%d %H:%M:%S'")?;
    let since = since.trim();
    // A whole second, so that what came before is not counted.
    node.sh("sleep 1.1")?;
    let audit = "/var/log/kube-audit/audit-log.json";
    let audited = node.sh(&format!("cat {audit} 2>/dev/null | wc -l"))?;
    run()?;
    let log = |unit: &str| {
        node.sh(&format!(
            "journalctl --unit {unit} --since '{since}' --output cat"
        ))
    };
    let (ssh, docker) = (log("ssh")?, log("docker")?);
    // The program has a certificate of its own.
    let api = node.sh(&format!(
        "tail -n +$(({} + 1)) {audit} | jq -r 'select(.user.username == \"rke-operator\") \
         | select(.stage == \"ResponseComplete\") \
         | .verb + \" \" + (.objectRef.resource // (.requestURI | split(\"?\")[0]))'",
        audited.trim()
    ))?;
    let requests = docker.lines().filter_map(request);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{what}: {} SSH connections with {} commands in them",
        matching(&ssh, "Accepted publickey"),
        matching(&ssh, "Starting session: command")
    );
    for (name, counts) in [
        ("Docker", counted(requests)),
        ("Kubernetes", counted(api.lines().map(str::to_owned))),
    ] {
        let all: usize = counts.values().sum();
        let each: Vec<String> = counts
            .iter()
            .map(|(what, count)| format!("{count} × {what}"))
            .collect();
        let _ = writeln!(out, "  {all} requests to {name}: {}", each.join(", "));
    }
    Ok(out)
}

fn matching(log: &str, pattern: &str) -> usize {
    log.lines().filter(|line| line.contains(pattern)).count()
}

fn counted(lines: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line).or_default() += 1;
    }
    counts
}

/// The request that a line of dockerd's log tells of, without names: `POST /containers/*/start`.
fn request(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("Calling ")?;
    let mut words = rest.trim_end_matches('"').split_whitespace();
    let (verb, path) = (words.next()?, words.next()?);
    let path = path.trim_matches('"').split('?').next()?;
    let segments: Vec<&str> = path
        .split('/')
        .skip_while(|part| part.is_empty() || part.starts_with("v1."))
        .collect();
    let path = match segments.as_slice() {
        [
            kind @ ("images" | "distribution"),
            ..,
            last @ ("json" | "get" | "tag" | "push"),
        ] if segments.len() > 2 => {
            format!("{kind}/*/{last}")
        }
        [_, "json" | "create" | "prune" | "get" | "load"] | [_] => segments.join("/"),
        [kind, _, last] => format!("{kind}/*/{last}"),
        [kind, ..] => format!("{kind}/*"),
        [] => return None,
    };
    Some(format!("{verb} /{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_without_names() {
        let told = |path: &str| {
            request(&format!("time=\"…\" level=debug msg=\"Calling {path}\"")).unwrap()
        };
        assert_eq!(
            told("GET /v1.41/containers/json?all=1"),
            "GET /containers/json"
        );
        assert_eq!(
            told("POST /v1.41/containers/etcd/start"),
            "POST /containers/*/start"
        );
        assert_eq!(
            told("GET /v1.41/images/rancher/pause:3.6/json"),
            "GET /images/*/json"
        );
        assert_eq!(told("DELETE /v1.41/containers/a"), "DELETE /containers/*");
        assert_eq!(told("GET /info"), "GET /info");
        assert_eq!(request("something else"), None);
    }
}
