//! Whatever differs has a step in the plan, or the plan says why it is left as it is for now. Pure. Looks for what a
//! plan is silent about, without knowing how it was made.

use super::{
    Action, Cause, ClusterAction, HostAction, Left, Plan, Step, Target, Waits,
    diff::{self, Diff, HostDiff, Need},
    roles::GivenUp,
};
use crate::{
    desired::Desired,
    facts::{self, Actual, ApiView, HostView},
    model::{Component, NodeName, path},
    state::Membership,
};

/// What differs and has neither a step in this plan of [`super::up`] nor a [`super::Held`]; empty for each that it makes.
pub fn unexplained(plan: &Plan, want: &Desired, have: &Actual) -> Vec<String> {
    let plan = Said(plan);
    if plan.says(None, Waits::All) {
        return Vec::new();
    }
    let diff = diff::diff(want, have);
    let mut all = cluster(&plan, &diff);
    for (name, host) in &diff.hosts {
        let on_host = on_host(&plan, name, host).into_iter().chain(
            Component::ALL
                .into_iter()
                .filter(|component| !component_is_explained(&plan, *component, name, host))
                .map(|component| format!("{component}: {:?}", host.need(component))),
        );
        all.extend(on_host.map(|what| format!("{name}: {what}")));
    }
    all.extend(nodes(&plan, &diff));
    all
}

/// What a plan says.
struct Said<'a>(&'a Plan);

impl Said<'_> {
    fn has(&self, is_one: impl Fn(&Step) -> bool) -> bool {
        self.0.steps().any(is_one)
    }

    fn does(&self, name: &NodeName, is_one: impl Fn(&HostAction) -> bool) -> bool {
        self.has(|step| match step.action.on_host() {
            Some((host, action)) => host == name && is_one(action),
            None => false,
        })
    }

    /// It does something about a node for that cause.
    fn goes_on(&self, name: &NodeName) -> bool {
        let causes = [Cause::Leave, Cause::Replace];
        self.has(|step| {
            let claims = matches!(step.action.on_host(), Some((_, HostAction::Claim { .. })));
            step.node() == Some(name) && (claims || causes.contains(&step.cause))
        })
    }

    /// That this is left as it is for now.
    fn says(&self, name: Option<&NodeName>, what: Waits) -> bool {
        self.0.notes.iter().any(|note| {
            let target = match &note.target {
                Some(Target::Host(name)) => Some(name),
                Some(Target::Cluster | Target::Local) | None => None,
            };
            let held = note.held.as_ref();
            held.is_some_and(|Left { what: is, why: _ }| *is == what) && target == name
        })
    }
}

/// Add-ons and charts.
fn cluster(plan: &Said<'_>, diff: &Diff<'_>) -> Vec<String> {
    let addons = diff.addons.iter().filter(|differs| {
        let name = &differs.addon.name;
        let applies = |step: &Step| {
            matches!(&step.action, Action::Cluster(ClusterAction::ApplyAddon { addon, .. }) if addon == name)
        };
        !differs.objects.is_empty() && !plan.has(applies)
    });
    let charts = diff.charts.iter().filter(|differs| {
        let name = &differs.want.chart.name;
        let applies = |step: &Step| {
            matches!(&step.action, Action::Cluster(ClusterAction::ApplyChart { chart, .. }) if chart == name)
        };
        !plan.has(applies)
    });
    let addons = addons.map(|differs| format!("add-on {}", differs.addon.name));
    let charts = charts.map(|differs| format!("chart {}", differs.want.chart.name));
    addons.chain(charts).collect()
}

/// What is none of a node's components.
fn on_host(plan: &Said<'_>, name: &NodeName, host: &HostDiff<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let images = host.images.iter().map(|missing| missing.image);
    all.extend(
        images
            .filter(|wanted| {
                !plan.does(name, |action| {
                    matches!(action, HostAction::PullImage { image }
                            | HostAction::LoadImage { image, .. } if image == *wanted)
                })
            })
            .map(|image| format!("image {image}")),
    );
    if !host.kernel.is_empty()
        && !plan.does(name, |action| {
            matches!(action, HostAction::PrepareKernel { .. })
        })
    {
        all.push("kernel".to_owned());
    }
    let written = |path: &String| {
        plan.does(name, |action| {
            matches!(action, HostAction::WriteFiles { dirs, files }
                if dirs.contains_key(path) || files.contains_key(path))
        })
    };
    let files = host.files.iter();
    let paths = files.flat_map(|differs| differs.dirs.keys().chain(differs.files.keys()));
    let unwritten = paths.filter(|path| !written(path));
    all.extend(unwritten.map(|path| format!("file {path}")));
    if host.reload.is_some()
        && !plan.does(name, |action| {
            matches!(action, HostAction::ReloadProxy { .. })
        })
    {
        all.push(path::PROXY_READ.to_owned());
    }
    if host.containerd().is_some()
        && !plan.says(Some(name), Waits::Containerd)
        && !plan.does(name, |action| {
            matches!(action, HostAction::ConfigureContainerd { .. })
        })
    {
        all.push("containerd".to_owned());
    }
    all
}

/// True where a container of the component runs after it.
fn starts(action: &HostAction, component: Component) -> bool {
    let joins = component == Component::Etcd && matches!(action, HostAction::JoinEtcd { .. });
    joins
        || matches!(action, HostAction::RunContainer { component: is, .. }
            | HostAction::StartContainer { component: is } if *is == component)
}

/// Its step, that it waits itself, or that what it waits for does.
fn component_is_explained(
    plan: &Said<'_>,
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
) -> bool {
    let held = plan.says(Some(name), Waits::Component(component));
    let joins = plan.says(Some(name), Waits::Member)
        && matches!(
            component,
            Component::Etcd | Component::ApiServer | Component::Kubelet
        );
    // The node's API server has its port until it gives that role up.
    let has_port = component == Component::NginxProxy && plan.says(Some(name), Waits::Roles);
    match host.need(component) {
        Need::Nothing => true,
        Need::Run | Need::Start(_) => {
            held || joins
                || has_port
                || plan.does(name, |action| starts(action, component))
        }
        Need::Replace(..) => {
            held || plan.does(name, |action| {
                matches!(action, HostAction::ReplaceContainer { component: is, .. } if *is == component)
            })
        }
    }
}

/// Nodes that do not answer, those that leave, were given up or have other roles, and Node objects.
fn nodes(plan: &Said<'_>, diff: &Diff<'_>) -> Vec<String> {
    let (want, have) = (diff.want, diff.have);
    let mut all = Vec::new();
    for name in want.hosts.keys() {
        let silent = matches!(have.hosts.get(name), Some(HostView::Unreachable(_)));
        if silent && !plan.says(Some(name), Waits::Node) {
            all.push(format!("{name} does not answer"));
        }
        let gives_up = diff.hosts.contains_key(name) && GivenUp::of(name, want, have).any();
        if gives_up && !plan.goes_on(name) && !plan.says(Some(name), Waits::Roles) {
            all.push(format!("{name} has other roles"));
        }
    }
    for (name, view) in &have.hosts {
        let HostView::Reachable(facts) = view else {
            continue;
        };
        let leaves = !want.hosts.contains_key(name) || want.saved.is_lost(name);
        if leaves
            && facts.is_of(&want.cluster_id)
            && !plan.goes_on(name)
            && !plan.says(Some(name), Waits::Leaver)
        {
            all.push(format!("{name} leaves"));
        }
    }
    for (name, entry) in &want.saved.inventory {
        let lost = entry.membership == Membership::Lost;
        let is_there =
            super::lost::node(name, have).is_some() || super::lost::member(name, have).is_some();
        if lost
            && is_there
            && !plan.goes_on(name)
            && !plan.says(Some(name), Waits::Lost)
            && !plan.says(Some(name), Waits::Leaver)
        {
            all.push(format!("{name} was given up"));
        }
    }
    all.extend(node_objects(plan, diff));
    all
}

fn node_objects(plan: &Said<'_>, diff: &Diff<'_>) -> Vec<String> {
    let ApiView::Up(api) = diff.have.api() else {
        return Vec::new();
    };
    let differing = diff.hosts.iter().filter(|(name, host)| {
        let Some(node) = api
            .nodes
            .get(**name)
            .filter(|_| host.has(Component::Kubelet))
        else {
            return false;
        };
        let sets = |step: &Step| {
            let sets = matches!(
                step.action,
                Action::Cluster(ClusterAction::SetNodeMeta { .. })
            );
            sets && step.node() == Some(**name)
        };
        let waits = plan.says(Some(*name), Waits::Component(Component::Kubelet));
        !facts::node_changes(node, &host.want.node).is_empty() && !waits && !plan.has(sets)
    });
    differing.map(|(name, _)| format!("{name}: Node")).collect()
}
