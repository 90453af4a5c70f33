use std::{io, sync::Arc};

use super::*;
use crate::{
    cli::output::Paint,
    facts::Unreachable,
    host::{Hop, HostError, Place},
    model::{Endpoint, NodeName},
    status::doctor::HopTime,
};

fn machine() -> Machine {
    Machine {
        os: "Debian GNU/Linux 12 (bookworm)".into(),
        kernel: "6.1.0-28-amd64".into(),
        architecture: "x86_64".into(),
        processors: Some(4),
        memory_bytes: Some(16 << 30),
        docker_version: "26.1.5".into(),
        docker_reached_by: ReachedBy::Socket,
        containerd_version: "1.7.24".into(),
        round_trip_microseconds: Some(700),
        hops: Vec::new(),
        clock_ahead_seconds: Some(0),
        fsync_p99_microseconds: Some(14_000),
        free_bytes: [].into(),
    }
}

/// Nodes by address; every fifth has no route to it.
fn diagnosis(nodes: usize) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        nodes: Vec::new(),
        findings: Vec::new(),
    };
    for number in 1..=nodes {
        let address = format!("192.168.77.{}", 100 + number);
        let (name, reachable) = (NodeName(address.clone()), number % 5 != 0);
        diagnosis.nodes.push(NodeDiagnosis {
            name: name.clone(),
            address: format!("{address}:22"),
            bastions: Vec::new(),
            ssh_config: [].into(),
            bastion_ssh_config: [].into(),
            roles: Vec::new(),
            reachable,
            machine: reachable.then(machine),
        });
        if !reachable {
            diagnosis.findings.push(unreachable(name, address));
        }
    }
    diagnosis
}

fn unreachable(node: NodeName, address: String) -> Finding {
    let at = Arc::new(Place {
        node: node.clone(),
        endpoint: Endpoint { address, port: 22 },
        user: "rke".into(),
        hop: Hop::Direct,
    });
    let source = io::Error::from_raw_os_error(113);
    let down = Unreachable::of(&HostError::Unreachable { at, source });
    Finding {
        node: Some(node),
        severity: Severity::Unreachable,
        class: down.class,
        message: down.why.clone(),
        hints: down.hints.clone(),
        down: Some(down),
    }
}

fn shown(nodes: usize, columns: usize) -> String {
    let page = Page {
        paint: Paint::OFF,
        columns: Some(columns),
    };
    render(&diagnosis(nodes), "cluster.yml", "v1.34.4", page)
}

/// Rows of a long table repeat each other: the first three.
fn without_most_rows(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &&str| line.starts_with("192.168.") || line.starts_with('…');
    let rows = lines.iter().filter(|line| is_row(line)).count();
    let mut seen = 0;
    let kept = lines.iter().filter_map(|line| {
        seen += usize::from(is_row(line));
        match seen {
            4.. if is_row(line) => (seen == 4).then(|| format!("({} more rows)", rows - 3)),
            _ => Some((*line).to_owned()),
        }
    });
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_diagnosis_is_read_at_any_width() {
    for columns in [40, 80, 200] {
        let screens = [1, 5, 100].map(|nodes| {
            let shown = shown(nodes, columns);
            let too_wide = shown.lines().find(|line| line.chars().count() > columns);
            assert_eq!(too_wide, None);
            let shown = without_most_rows(&shown);
            format!("== {nodes} nodes\n{shown}")
        });
        insta::assert_snapshot!(format!("doctor_at_{columns}"), screens.join("\n\n"));
    }
}

/// C14: at 40 columns rows of one network were the same.
#[test]
fn rows_differ_on_a_narrow_terminal() {
    let text = shown(100, 40);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("192.168.") || line.starts_with('…'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let different: std::collections::BTreeSet<_> = rows.iter().collect();
    assert_eq!((rows.len(), different.len()), (100, 100), "{text}");
}

#[test]
fn each_hop_to_a_node_behind_a_bastion_host_has_its_time() {
    let mut diagnosis = diagnosis(2);
    let hop = |address: &str, round_trip_microseconds| HopTime {
        address: address.to_owned(),
        round_trip_microseconds,
    };
    let machine = diagnosis.nodes[1].machine.as_mut().unwrap();
    machine.hops = vec![
        hop("bastion.example:22", 12_400),
        hop("192.168.77.102:22", 15_700),
    ];
    let page = Page {
        paint: Paint::OFF,
        columns: Some(120),
    };
    let text = render(&diagnosis, "cluster.yml", "v1.34.4", page);
    let section = text.split("\n\n").nth(2);
    insta::assert_snapshot!(section.unwrap_or_default(), @r"
    round trips through bastion hosts, each measured from here
      - 192.168.77.102: bastion.example:22 12 ms → 192.168.77.102:22 15 ms
    ");
}
