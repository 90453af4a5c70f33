//! The list of `status -A`: one line a cluster. Colour never carries meaning. Decides nothing.

use super::{
    Page,
    status::age,
    table::{Cell, Tone, plain},
};
use crate::api::observed::{ObservedCluster, ObservedCounts, ObservedHealth, ObservedPlan};

/// From this width on there is room for every column.
const WIDE: usize = 120;
/// Omitted on a narrow terminal.
const SPARE: [&str; 3] = ["SEEN", "NODES", "VERSION"];

/// The table.
pub fn render(clusters: &[ObservedCluster], page: Page) -> String {
    let wide = page.columns.is_none_or(|columns| columns >= WIDE);
    let heading: &[&'static str] = if wide {
        &[
            "NAME", "VERSION", "NODES", "AVAIL", "READY", "SEEN", "WAITS", "WHY",
        ]
    } else {
        &["NAME", "VERSION", "NODES", "AVAIL", "READY", "SEEN", "WHY"]
    };
    let rows: Vec<Vec<Cell>> = clusters.iter().map(|one| row(one, wide)).collect();
    plain(heading, &SPARE, &rows, page)
}

/// `500 clusters: 498 healthy, 1 degraded, 1 unavailable`
pub fn sum(clusters: &[ObservedCluster]) -> String {
    let names = [
        (ObservedHealth::Healthy, "healthy"),
        (ObservedHealth::Degraded, "degraded"),
        (ObservedHealth::Unavailable, "unavailable"),
        (ObservedHealth::Absent, "not built yet"),
        (ObservedHealth::Deleting, "being deleted"),
    ];
    let counts = names.into_iter().filter_map(|(health, name)| {
        let count = clusters.iter().filter(|one| one.health == health).count();
        (count > 0).then(|| format!("{count} {name}"))
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    format!(
        "{}: {counts}",
        super::lines::count(clusters.len(), "cluster")
    )
}

fn row(cluster: &ObservedCluster, wide: bool) -> Vec<Cell> {
    let mut row = vec![
        Cell::calm(&cluster.name),
        Cell::calm(version(cluster, wide)),
        nodes(cluster.nodes),
        status(&cluster.available),
        status(&cluster.ready),
        seen(cluster),
    ];
    if wide {
        let waits = cluster.pending_plan.as_ref();
        row.push(waits.map_or_else(
            || Cell::or_dash(None),
            |plan| Cell::toned(waits_for(plan), Tone::Warn),
        ));
    }
    row.push(Cell::calm(why(cluster)));
    row
}

fn version(cluster: &ObservedCluster, wide: bool) -> String {
    match (&cluster.version, &cluster.desired_version) {
        (Some(has), Some(wanted)) if wide && has != wanted => format!("{has}→{wanted}"),
        (Some(has), _) => has.clone(),
        (None, Some(wanted)) if wide => format!("-→{wanted}"),
        (None, _) => "-".to_owned(),
    }
}

fn nodes(counts: Option<ObservedCounts>) -> Cell {
    let Some(ObservedCounts { total, ready, .. }) = counts else {
        return Cell::or_dash(None);
    };
    let tone = if ready.is_some_and(|ready| ready < total) {
        Tone::Warn
    } else {
        Tone::Calm
    };
    let ready = ready.map_or_else(|| "-".to_owned(), |ready| ready.to_string());
    Cell::toned(format!("{ready}/{total}"), tone)
}

fn status(word: &str) -> Cell {
    match word {
        "True" => Cell::calm("True"),
        "False" => Cell::toned("False", Tone::Bad),
        _ => Cell::toned("-", Tone::Warn),
    }
}

fn seen(cluster: &ObservedCluster) -> Cell {
    let tone = if cluster.is_stale() {
        Tone::Bad
    } else {
        Tone::Calm
    };
    Cell::toned(
        cluster
            .last_survey_age_seconds
            .map_or_else(|| "-".to_owned(), age),
        tone,
    )
}

/// What a person has to give.
pub(super) fn waits_for(plan: &ObservedPlan) -> &str {
    match plan.reason.as_str() {
        "Approval" => "approval",
        "Consent" => "consent",
        "Update" => "update",
        other => other,
    }
}

/// `NodesNotReady: n3: no route to host`
fn why(cluster: &ObservedCluster) -> String {
    let message = cluster.message.as_deref().unwrap_or_default();
    let first = message.lines().next().unwrap_or_default();
    match &cluster.reason {
        Some(reason) if first.is_empty() => reason.clone(),
        Some(reason) => format!("{reason}: {first}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
