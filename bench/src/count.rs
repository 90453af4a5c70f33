//! What a run asks of nodes, counted there: in sshd's log, dockerd's and the API servers' audit logs.

use std::{collections::BTreeMap, fmt::Write as _};

use lab::Node;

use crate::{Fallible, site::Site};

const AUDIT: &str = "/var/log/kube-audit/audit-log.json";

/// Where a node's logs were before the run.
struct Before {
    since: String,
    audited: String,
}

/// What was asked of one node.
struct Counts {
    node: String,
    connections: usize,
    commands: usize,
    docker: BTreeMap<String, usize>,
    kubernetes: BTreeMap<String, usize>,
}

/// Counts what a run asks.
pub(crate) fn around(
    site: &Site,
    what: &str,
    run: impl FnOnce() -> Fallible<()>,
) -> Fallible<String> {
    let before = site.each(before)?;
    run()?;
    let counts: Vec<Counts> = site
        .lab
        .nodes()
        .iter()
        .zip(&before)
        .map(|(node, before)| after(node, before))
        .collect::<Fallible<_>>()?;
    Ok(told(what, &counts))
}

fn before(node: &Node) -> Fallible<Before> {
    // dockerd logs its requests at level debug, and sshd the commands that it starts at VERBOSE.
    node.sh(
        "test -s /etc/docker/daemon.json || echo '{}' > /etc/docker/daemon.json
         jq '.debug = true' /etc/docker/daemon.json > /tmp/daemon.json
         cat /tmp/daemon.json > /etc/docker/daemon.json
         echo 'LogLevel VERBOSE' > /etc/ssh/sshd_config.d/bench.conf
         systemctl reload docker ssh; sleep 1",
    )?;
    let since = node.sh("date '+%Y-%m-%d %H:%M:%S'")?.trim().to_owned();
    // A whole second, so that what came before is not counted.
    node.sh("sleep 1.1")?;
    let audited = node.sh(&format!("cat {AUDIT} 2>/dev/null | wc -l"))?;
    Ok(Before {
        since,
        audited: audited.trim().to_owned(),
    })
}

fn after(node: &Node, Before { since, audited }: &Before) -> Fallible<Counts> {
    let log = |unit: &str| {
        node.sh(&format!(
            "journalctl --unit {unit} --since '{since}' --output cat"
        ))
    };
    let (ssh, docker) = (log("ssh")?, log("docker")?);
    // The program has a certificate of its own.
    let api = node.sh(&format!(
        "tail -n +$(({audited} + 1)) {AUDIT} 2>/dev/null | jq -r 'select(.user.username == \"rke-operator\") \
         | select(.stage == \"ResponseComplete\") \
         | .verb + \" \" + (.objectRef.resource // (.requestURI | split(\"?\")[0]))'",
    ))?;
    Ok(Counts {
        node: node.name().to_owned(),
        connections: matching(&ssh, "Accepted publickey"),
        commands: matching(&ssh, "Starting session: command"),
        docker: counted(docker.lines().filter_map(request)),
        kubernetes: counted(api.lines().map(str::to_owned)),
    })
}

/// A line for each node, and which requests they were, of all nodes together.
fn told(what: &str, counts: &[Counts]) -> String {
    let mut out = format!("{what}:\n");
    for Counts {
        node,
        connections,
        commands,
        docker,
        kubernetes,
    } in counts
    {
        let of = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
        let _ = writeln!(
            out,
            "  {node}: {connections} SSH connections with {commands} commands in them, \
             {} requests to Docker, {} to Kubernetes",
            of(docker),
            of(kubernetes)
        );
    }
    let kinds = [
        ("Docker", summed(counts.iter().map(|node| &node.docker))),
        (
            "Kubernetes",
            summed(counts.iter().map(|node| &node.kubernetes)),
        ),
    ];
    for (name, counts) in kinds {
        let each = counts
            .iter()
            .map(|(what, count)| format!("{count} × {what}"));
        let _ = writeln!(out, "  {name}: {}", each.collect::<Vec<_>>().join(", "));
    }
    out
}

fn summed<'a>(
    nodes: impl Iterator<Item = &'a BTreeMap<String, usize>>,
) -> BTreeMap<&'a str, usize> {
    let mut sum = BTreeMap::new();
    for (what, count) in nodes.flatten() {
        *sum.entry(what.as_str()).or_default() += count;
    }
    sum
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
    fn each_node_is_told_and_requests_are_summed() {
        let of = |node: &str, requests: &[&str]| Counts {
            node: node.to_owned(),
            connections: 1,
            commands: 2,
            docker: counted(requests.iter().map(|one| (*one).to_owned())),
            kubernetes: BTreeMap::new(),
        };
        let told = told(
            "a run",
            &[
                of("n1", &["GET /info", "GET /info"]),
                of("n2", &["GET /info"]),
            ],
        );
        let line = "  n1: 1 SSH connections with 2 commands in them, 2 requests to Docker, 0 to Kubernetes\n";
        assert!(told.contains(line), "{told}");
        assert!(told.contains("  Docker: 3 × GET /info\n"), "{told}");
    }

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
