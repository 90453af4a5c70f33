//! Which charts are to be rendered and applied, and where. Pure. This depends on a chart's inputs, compared with the
//! record in the cluster, and on the present state of the objects that the record lists; never on the rendered
//! output.

use super::{
    Cause, FieldChange,
    images::{MissingImage, present},
};
use crate::{
    desired::{Desired, WantedChart},
    facts::{Actual, ApiView, ChartFact, HostFacts},
    model::{Component, NodeName, ObjectRef},
};

/// How many differing objects of one chart are listed.
const SHOWN: usize = 8;

/// A chart that is to be applied.
pub(in crate::plan) struct ChartDiff<'a> {
    pub(in crate::plan) want: &'a WantedChart,
    /// Where it is rendered.
    pub(in crate::plan) node: &'a NodeName,
    pub(in crate::plan) cause: Cause,
    pub(in crate::plan) why: &'static str,
    pub(in crate::plan) changes: Vec<FieldChange>,
}

/// Those that differ; all of them are rendered on one node.
pub(super) fn differences<'a>(want: &'a Desired, have: &Actual) -> Vec<ChartDiff<'a>> {
    let Some(node) = node(want, have) else {
        return Vec::new();
    };
    let charts = want.charts.iter().filter_map(|want| {
        let (cause, why, changes) = difference(want, have)?;
        Some(ChartDiff {
            want,
            node,
            cause,
            why,
            changes,
        })
    });
    charts.collect()
}

fn difference(
    want: &WantedChart,
    have: &Actual,
) -> Option<(Cause, &'static str, Vec<FieldChange>)> {
    let ApiView::Up(api) = have.api() else {
        let why = "objects are compared once the cluster's API answers";
        return Some((Cause::New, why, Vec::new()));
    };
    let Some(fact) = api.charts.get(&want.chart.name) else {
        return Some((Cause::New, "the cluster does not have it", Vec::new()));
    };
    match &fact.record.digest {
        None => Some((Cause::New, "it was not applied to its end", Vec::new())),
        Some(was) if *was != want.digest => {
            let change = FieldChange {
                field: "rendered from".into(),
                from: Some(was.0.clone()),
                to: Some(want.digest.0.clone()),
            };
            let why = "the chart, its values or the release of Kubernetes differ";
            Some((Cause::Change, why, vec![change]))
        }
        Some(_) => drift(fact).map(|changes| {
            let why = "objects were deleted or changed by others";
            (Cause::Drift, why, changes)
        }),
    }
}

fn drift(fact: &ChartFact) -> Option<Vec<FieldChange>> {
    let change = |object: &ObjectRef, from: Option<&str>| FieldChange {
        field: object.to_string().into(),
        from: from.map(str::to_owned),
        to: Some("applied".to_owned()),
    };
    let gone = fact.gone.iter().map(|object| change(object, None));
    let changed = fact.changed.iter();
    let changed = changed.map(|object| change(object, Some("changed by others")));
    let changes: Vec<FieldChange> = gone.chain(changed).take(SHOWN).collect();
    (!changes.is_empty()).then_some(changes)
}

/// A control plane that answers: one that has the images already, else the first.
fn node<'a>(want: &'a Desired, have: &Actual) -> Option<&'a NodeName> {
    let mut control_planes: Vec<&NodeName> = want
        .with(Component::ApiServer)
        .filter(|name| have.up(name).is_some() && !want.saved.is_lost(name))
        .collect();
    let lacks = |name: &NodeName| {
        let facts = have.up(name);
        let mut images = want.charts.iter().flat_map(needs);
        facts.is_none_or(|facts| images.any(|image| !present(image, facts)))
    };
    control_planes.sort_by_key(|name| lacks(name));
    control_planes.first().copied()
}

fn needs(want: &WantedChart) -> [&String; 2] {
    [&want.runtime, &want.helm]
}

/// The images that a node lacks to render these charts.
pub(super) fn images<'a>(
    name: &NodeName,
    facts: &HostFacts,
    charts: &[ChartDiff<'a>],
) -> Vec<MissingImage<'a>> {
    let mut missing: Vec<MissingImage<'a>> = Vec::new();
    for chart in charts.iter().filter(|chart| chart.node == name) {
        for image in needs(chart.want) {
            if present(image, facts) || missing.iter().any(|other| other.image == image) {
                continue;
            }
            let cause = chart.cause;
            missing.push(MissingImage { image, cause });
        }
    }
    missing
}
