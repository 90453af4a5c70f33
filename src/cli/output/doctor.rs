//! A [`Diagnosis`] for people: a row for each node, then what was found, the worst first. Colour never carries meaning.
//! Decides nothing.

use std::collections::BTreeMap;

use super::{
    Page,
    lines::count,
    table::{Cell, Tone, paragraph, plain},
};
use crate::{
    facts::{ReachedBy, by_cause},
    model::printable,
    status::doctor::{Diagnosis, Finding, Machine, NodeDiagnosis, Severity},
};

const HEADING: [&str; 8] = [
    "NODE",
    "SSH",
    "CPU",
    "MEMORY",
    "DISK",
    "DOCKER",
    "CONTAINERD",
    "SYSTEM",
];

/// Omitted on a narrow terminal.
const SPARE: [&str; 5] = ["CONTAINERD", "DOCKER", "MEMORY", "DISK", "CPU"];

/// The whole diagnosis.
pub fn render(diagnosis: &Diagnosis, config: &str, version: &str, page: Page) -> String {
    let rows: Vec<Vec<Cell>> = diagnosis.nodes.iter().map(row).collect();
    let nodes = count(diagnosis.nodes.len(), "node");
    let mut sections = vec![
        paragraph(
            "",
            &format!("`{config}` is valid: {nodes}, Kubernetes {version}"),
            page,
        ),
        plain(&HEADING, &SPARE, &rows, page),
    ];
    sections.extend(of_hops(diagnosis, page));
    sections.extend(of_ssh_config(diagnosis, page));
    for (severity, heading) in [
        (Severity::Error, "prevents `up`"),
        (Severity::Unreachable, "cannot be used"),
        (Severity::Warning, "warnings"),
    ] {
        let found = diagnosis.findings.iter();
        let found = found.filter(|finding| finding.severity == severity);
        let (down, others): (Vec<_>, Vec<_>) = found.partition(|finding| finding.down.is_some());
        let down = down
            .into_iter()
            .filter_map(|finding| finding.node.as_ref().zip(finding.down.as_ref()));
        let down = by_cause(down).into_iter().flat_map(|group| {
            let text = group.named();
            item("  - ", &text, &group.hints, page)
        });
        let others = others.into_iter().flat_map(|finding| lines(finding, page));
        let lines: Vec<String> = down.chain(others).collect();
        if !lines.is_empty() {
            sections.push(format!("{heading}\n{}", lines.join("\n")));
        }
    }
    sections.push(summary(diagnosis, page));
    sections.join("\n\n")
}

/// How far away each hop is on the way to a node behind a bastion host.
fn of_hops(diagnosis: &Diagnosis, page: Page) -> Option<String> {
    let lines: Vec<String> = diagnosis
        .nodes
        .iter()
        .filter_map(|node| {
            let hops = &node.machine.as_ref()?.hops;
            let hops = hops.iter().map(|hop| {
                let time = milliseconds(hop.round_trip_microseconds);
                format!("{} {time}", hop.address)
            });
            let hops: Vec<String> = hops.collect();
            let head = format!("  - {}: ", node.name);
            (!hops.is_empty()).then(|| paragraph(&head, &hops.join(" → "), page))
        })
        .collect();
    let heading = "round trips through bastion hosts, each measured from here";
    (!lines.is_empty()).then(|| format!("{heading}\n{}", lines.join("\n")))
}

/// What no config says and ssh's does, a line for each node and each bastion host.
fn of_ssh_config(diagnosis: &Diagnosis, page: Page) -> Option<String> {
    let values = |from: &BTreeMap<&str, String>| {
        let values = from.iter();
        let values = values.map(|(keyword, value)| format!("{keyword} {}", printable(value)));
        values.collect::<Vec<_>>().join(", ")
    };
    let nodes = diagnosis.nodes.iter();
    let nodes = nodes.filter(|node| !node.ssh_config.is_empty());
    let nodes = nodes.map(|node| (node.name.0.clone(), values(&node.ssh_config)));
    // Most nodes have the same ones.
    let bastions: BTreeMap<_, _> = diagnosis
        .nodes
        .iter()
        .flat_map(|node| &node.bastion_ssh_config)
        .collect();
    let bastions = bastions
        .into_iter()
        .map(|(address, from)| (format!("bastion host {address}"), values(from)));
    let lines: Vec<String> = nodes
        .chain(bastions)
        .map(|(name, values)| paragraph(&format!("  - {name}: "), &values, page))
        .collect();
    (!lines.is_empty()).then(|| {
        format!(
            "from the SSH config (`~/.ssh/config`)\n{}",
            lines.join("\n")
        )
    })
}

fn row(node: &NodeDiagnosis) -> Vec<Cell> {
    let name = Cell::calm(&node.name.0);
    let Some(machine) = &node.machine else {
        let dashes = (1..HEADING.len() - 1).map(|_| Cell::or_dash(None));
        let last = Cell::toned("cannot be used", Tone::Bad);
        return std::iter::once(name).chain(dashes).chain([last]).collect();
    };
    let Machine {
        os,
        kernel: _,
        architecture: _,
        processors,
        memory_bytes,
        docker_version,
        docker_reached_by,
        containerd_version,
        round_trip_microseconds,
        hops: _,
        clock_ahead_seconds: _,
        fsync_p99_microseconds,
        free_bytes: _,
    } = machine;
    let told = |text: &str| Cell::or_dash((!text.is_empty()).then(|| text.to_owned()));
    vec![
        name,
        Cell::or_dash(round_trip_microseconds.map(milliseconds)),
        Cell::or_dash(processors.map(|it| it.to_string())),
        Cell::or_dash(memory_bytes.map(gibibytes)),
        Cell::or_dash(fsync_p99_microseconds.map(milliseconds)),
        docker(docker_version, *docker_reached_by),
        told(containerd_version),
        told(os),
    ]
}

/// `26.1.5`, and where that is worth a word the way to it.
fn docker(version: &str, reached: ReachedBy) -> Cell {
    Cell::calm(match reached {
        ReachedBy::Socket => version.to_owned(),
        ReachedBy::Program => format!("{version}, by its CLI"),
        ReachedBy::Sudo => format!("{version}, by sudo"),
    })
}

/// `1.3 ms`, `24 ms`.
fn milliseconds(micros: u64) -> String {
    if micros < 10_000 {
        format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
    } else {
        format!("{} ms", micros / 1000)
    }
}

/// To a tenth.
fn gibibytes(bytes: u64) -> String {
    let tenths = bytes / ((1 << 30) / 10);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

fn lines(finding: &Finding, page: Page) -> Vec<String> {
    // Most name their node themselves.
    let named = |node: &str| finding.message.contains(&format!("`{node}`"));
    let node = finding.node.as_ref().filter(|node| !named(&node.0));
    let head = node.map_or_else(|| "  - ".to_owned(), |node| format!("  - {node}: "));
    item(&head, &finding.message, &finding.hints, page)
}

/// A message behind a head, and its hints.
fn item(head: &str, message: &str, hints: &[String], page: Page) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, line) in message.lines().enumerate() {
        let head = if at == 0 { head } else { "    " };
        lines.push(paragraph(head, line.trim(), page));
    }
    lines.extend(hints.iter().map(|hint| {
        let line = paragraph("    hint: ", hint, page);
        line.replacen("hint:", &page.paint.hint("hint:"), 1)
    }));
    lines
}

fn summary(diagnosis: &Diagnosis, page: Page) -> String {
    let of = |severity| diagnosis.count(severity);
    let (errors, silent) = (of(Severity::Error), of(Severity::Unreachable));
    let mut parts = Vec::new();
    match errors {
        0 if silent == 0 => parts.push("every node answers, and nothing prevents `up`".to_owned()),
        0 => parts.push("nothing prevents `up` on the nodes that answer".to_owned()),
        1 => parts.push(page.paint.bad("1 problem prevents `up`")),
        many => parts.push(page.paint.bad(&format!("{many} problems prevent `up`"))),
    }
    if silent > 0 {
        parts.push(format!("{} cannot be used", count(silent, "node")));
    }
    let warnings = of(Severity::Warning);
    if warnings > 0 {
        parts.push(count(warnings, "warning"));
    }
    paragraph("", &parts.join("; "), page)
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
