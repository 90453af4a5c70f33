//! From a snapshot to a cluster that serves what was in it. Everything of the former life is stopped first; the first
//! member has the data, and the others join it afterwards, as every member does. Kubelets begin when nothing in the API
//! would make them start what has a successor, and controllers when every kubelet has reported. Pure.
//!
//! A restore that was cut off goes on with the same plan, without what is done: which containers are of this life, and
//! the folders of etcd's data, say how far it came.

use std::collections::BTreeSet;

use super::{claim, containerd, former, hosts, part::Part, plan, prepare, start, state};
use crate::{
    etcd::{Since, member_name},
    facts::{Actual, HostFacts},
    model::{Component, ContainerSpec, NodeName},
    plan::{
        Action, Cause, ClusterAction, EtcdRestore, Held, HostAction, Note, OnFailure, Plan, Stage,
        Step, Waits,
        diff::{Diff, HostDiff, Need, present},
    },
    state::EtcdEpoch,
};

/// The port of the API server that only this program reaches.
const PORT: u16 = 6444;

/// What that API server does not ask: webhooks are pods of the cluster, and none of them runs yet.
const WEBHOOKS: [&str; 2] = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/// `have`: with what is left of the former life; the difference is without.
pub(in crate::plan) fn restore(diff: &Diff<'_>, have: &Actual, epoch: &EtcdEpoch) -> Plan {
    let want = diff.want;
    let stop = Part {
        stages: former::stop(
            want,
            have,
            Cause::Change,
            "it acts by data that are replaced",
        ),
        notes: Vec::new(),
    };
    let controllers = [Component::ControllerManager, Component::Scheduler];
    let mut plan = plan([
        state::save(want, have), // what is begun is known before anything stops
        hosts::silent(diff),
        later(diff),
        claim::claim(diff), // of machines that take the place of others
        tools(diff, epoch).into(),
        prepare::images(diff),
        prepare::kernel(diff),
        prepare::files(diff),
        stop,
        data(diff, epoch).into(),
        components("etcd", diff, &[Component::Etcd], |name| {
            *name == epoch.first
        })
        .into(),
        clean(diff, epoch).into(),
        components("api", diff, &[Component::ApiServer], |_| true).into(),
        containerd::fresh(diff),
        containerd::without_kubelet(diff),
        components("proxies", diff, &[Component::NginxProxy], |_| true).into(),
        components("kubelets", diff, &[Component::Kubelet], |_| true).into(),
        answering(diff).into(),
        reports(diff).into(),
        components("controllers", diff, &controllers, |_| true).into(),
    ]);
    for stage in &mut plan.stages {
        // Where one node cannot be stopped, nothing of another life begins.
        stage.on_failure = OnFailure::EndRun;
    }
    if let Some(first) = first_that_disturbs(&mut plan) {
        let what = if epoch.from.is_some() {
            "was made since the snapshot"
        } else {
            "only other members had"
        };
        let counted = have.since.as_ref().and_then(Since::line);
        let counted = counted.map(|line| format!(" ({line})"));
        first.disturbs = Some(format!(
            "replaces all that the cluster's API holds by {}: the API is away meanwhile, and what {what} is gone{}",
            epoch.made_of(),
            counted.unwrap_or_default(),
        ));
    }
    plan
}

/// All else that the config has joins afterwards, as with every run.
fn later(diff: &Diff<'_>) -> Part {
    let names = diff.want.hosts.keys();
    let later = names.filter(|name| diff.have.up(name).is_some() && !diff.hosts.contains_key(name));
    later
        .map(|name| {
            let text = "joins when the restored cluster serves".to_owned();
            Note::left(name, text, Waits::Node, Held::RestoreFirst)
        })
        .collect()
}

/// What a restore needs and is no part of the cluster yet, because the machines of before are gone: the node with the
/// snapshot, and control planes where no other one answers. All else joins when the restored cluster serves.
pub(in crate::plan) fn begins_with(diff: &Diff<'_>, epoch: &EtcdEpoch) -> BTreeSet<NodeName> {
    let is_there = |name: &NodeName, host: &HostDiff<'_>| {
        *name == epoch.first || host.facts.is_of(&diff.want.cluster_id)
    };
    let hosts = diff.hosts.iter();
    let planes = hosts.filter(|(_, host)| host.has(Component::ApiServer));
    let has_one = planes.clone().any(|(name, host)| is_there(name, host));
    let planes = planes.filter(|_| !has_one).map(|(name, _)| *name);
    planes.chain([&epoch.first]).cloned().collect()
}

fn first_that_disturbs(plan: &mut Plan) -> Option<&mut Step> {
    let queues = plan.stages.iter_mut().flat_map(|stage| &mut stage.queues);
    let mut steps = queues.flat_map(|queue| &mut queue.steps);
    steps.find(|step| {
        matches!(
            step.action,
            Action::Host(
                _,
                HostAction::RemoveContainer { .. } | HostAction::RestoreEtcd { .. }
            ) | Action::Cluster(ClusterAction::CleanRestored { .. })
        )
    })
}

/// True until the first member of this life runs, or was made to.
fn wants_data(diff: &Diff<'_>, epoch: &EtcdEpoch) -> bool {
    let first = diff.hosts.get(&epoch.first);
    first.is_some_and(|host| *host.need(Component::Etcd) == Need::Run) && !serves(diff)
}

/// True once an API server of this life was made: from then on etcd holds what is new.
fn serves(diff: &Diff<'_>) -> bool {
    let mut hosts = diff.hosts.values();
    hosts.any(serves_there)
}

/// What restores, where the snapshot is.
fn tools(diff: &Diff<'_>, epoch: &EtcdEpoch) -> Stage {
    let image = &diff.want.etcd_tools;
    let lacks = |facts: &HostFacts| !present(image, facts);
    let lacks = diff
        .hosts
        .get(&epoch.first)
        .is_some_and(|host| lacks(host.facts));
    let step = (wants_data(diff, epoch) && lacks).then(|| {
        let action = prepare::fetch(image, diff.want);
        Step::on(
            &epoch.first,
            Cause::New,
            "it has what reads a snapshot",
            action,
        )
    });
    Stage::of("images", 1, step)
}

/// The first member's data from the snapshot; what the others have is set aside.
fn data(diff: &Diff<'_>, epoch: &EtcdEpoch) -> Stage {
    let want = diff.want;
    let members = diff
        .hosts
        .iter()
        .filter(|(_, host)| host.has(Component::Etcd) && *host.need(Component::Etcd) == Need::Run);
    let steps = members.filter_map(|(name, host)| {
        let spec = host.want.containers.get(&Component::Etcd)?;
        let (action, why) = if **name != epoch.first {
            let epoch = epoch.number;
            let why = "it joins the restored etcd as a new member, and its data are kept";
            (HostAction::SetEtcdAside { epoch }, why)
        } else if wants_data(diff, epoch) {
            let restore = Box::new(EtcdRestore {
                epoch: epoch.number,
                image: want.etcd_tools.clone(),
                snapshot: epoch.from.clone(),
                member: member_name(name),
                peer_url: spec.flag("initial-advertise-peer-urls").next()?.to_owned(),
                token: want.saved.etcd_token(),
                bump: epoch.begins.saturating_sub(revision(epoch)),
            });
            let why = if epoch.from.is_some() {
                "the snapshot is on this node, and the data of before are kept"
            } else {
                "it goes on without the other members, and the data of before are kept"
            };
            (HostAction::RestoreEtcd { restore }, why)
        } else {
            return None;
        };
        Some(Step::on(name, Cause::Change, why, action).guarded(&want.cluster_id))
    });
    Stage::of("data", want.hosts.len(), steps)
}

/// At least so high is the revision of what it is made of.
fn revision(epoch: &EtcdEpoch) -> u64 {
    epoch.from.as_ref().map_or(0, |snapshot| snapshot.revision)
}

/// Each started and awaited.
fn components(
    stage: &'static str,
    diff: &Diff<'_>,
    of: &[Component],
    on: impl Fn(&NodeName) -> bool,
) -> Stage {
    let hosts = diff.hosts.iter().filter(|(name, _)| on(name));
    let steps = hosts.flat_map(|(name, host)| {
        let wanted = host.want.containers.iter();
        let wanted = wanted.filter(|(component, _)| of.contains(component));
        let steps = wanted.flat_map(|(component, spec)| {
            let run: Vec<Step> = start::with_pause(name, *component, spec, host).collect();
            let cause = run.last().map(|step| step.cause);
            let wait = cause.map(|cause| {
                let action = HostAction::AwaitHealthy {
                    component: *component,
                };
                Step::on(name, cause, "it was just started", action)
            });
            run.into_iter().chain(wait)
        });
        steps.collect::<Vec<_>>()
    });
    Stage::of(stage, diff.want.hosts.len(), steps)
}

/// Before the first API server of this life.
fn clean(diff: &Diff<'_>, epoch: &EtcdEpoch) -> Stage {
    let planes = || {
        let hosts = diff.hosts.iter();
        hosts.filter(|(_, host)| host.has(Component::ApiServer))
    };
    let first = planes().find(|(name, _)| ***name == epoch.first);
    let step = first.or_else(|| planes().next()).and_then(|(name, host)| {
        let spec = host.want.containers.get(&Component::ApiServer)?;
        let action = ClusterAction::CleanRestored {
            node: (*name).clone(),
            spec: Box::new(apart(spec)),
        };
        let why = "kubelets would start pods again whose successors run";
        Some(Step::cluster(Cause::Change, why, action).guarded(&diff.want.cluster_id))
    });
    Stage::of("clean", 1, step.filter(|_| !serves(diff)))
}

/// An API server that no pod and no kubelet finds, and that calls no webhook.
fn apart(spec: &ContainerSpec) -> ContainerSpec {
    let mut spec = spec.clone();
    let value = |spec: &ContainerSpec, name: &str| {
        spec.flag(name)
            .next()
            .map(str::to_owned)
            .unwrap_or_default()
    };
    let list = |text: &str| -> Vec<String> {
        let words = text.split(',').filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let mut enabled = list(&value(&spec, "enable-admission-plugins"));
    enabled.retain(|name| !WEBHOOKS.contains(&name.as_str()));
    let mut disabled = list(&value(&spec, "disable-admission-plugins"));
    disabled.extend(WEBHOOKS.map(str::to_owned));
    disabled.sort();
    disabled.dedup();
    for (name, value) in [
        ("bind-address", "127.0.0.1".to_owned()),
        ("secure-port", PORT.to_string()),
        ("endpoint-reconciler-type", "none".to_owned()),
        ("enable-admission-plugins", enabled.join(",")),
        ("disable-admission-plugins", disabled.join(",")),
    ] {
        let flag = format!("--{name}=");
        spec.command.retain(|word| !word.starts_with(&flag));
        if !value.is_empty() {
            spec.command.push(format!("{flag}{value}"));
        }
    }
    spec
}

/// Until the last controller runs this is where a run that was cut off goes on.
fn lacks_a_controller(diff: &Diff<'_>) -> bool {
    let controllers = [Component::ControllerManager, Component::Scheduler];
    let mut hosts = diff.hosts.values();
    hosts.any(|host| {
        let mut needs = controllers.iter().map(|component| host.need(*component));
        needs.any(|need| *need == Need::Run)
    })
}

/// API servers that a run has started which was cut off.
fn answering(diff: &Diff<'_>) -> Stage {
    let started = diff.hosts.iter().filter(|(_, host)| {
        lacks_a_controller(diff)
            && serves_there(host)
            && *host.need(Component::ApiServer) == Need::Nothing
    });
    let steps = started.map(|(name, _)| {
        let action = HostAction::AwaitHealthy {
            component: Component::ApiServer,
        };
        Step::on(name, Cause::New, "what reported is read from it", action)
    });
    Stage::of("api", diff.want.hosts.len(), steps)
}

fn serves_there(host: &HostDiff<'_>) -> bool {
    host.facts.container(Component::ApiServer).is_some()
}

/// Who declares a pod lost begins when every kubelet has reported, and has ended what the API does not have.
fn reports(diff: &Diff<'_>) -> Stage {
    let kubelets = diff
        .hosts
        .iter()
        .filter(|(_, host)| lacks_a_controller(diff) && host.has(Component::Kubelet));
    let steps = kubelets.map(|(name, _)| {
        let action = ClusterAction::AwaitKnownPods {
            node: (*name).clone(),
        };
        let why = "a controller that began before would replace what this node still runs";
        Step::cluster(Cause::Change, why, action)
    });
    Stage::of("reports", diff.want.hosts.len(), steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Owner;

    #[test]
    fn the_api_server_that_cleans_is_found_by_none_and_asks_no_webhook() {
        let command = [
            "--bind-address=0.0.0.0",
            "--secure-port=6443",
            "--etcd-servers=https://127.0.0.1:2379",
            "--enable-admission-plugins=NodeRestriction,ValidatingAdmissionWebhook",
            "--disable-admission-plugins=PodSecurity",
        ]
        .map(str::to_owned);
        let spec = ContainerSpec {
            image: "kubernetes:1".to_owned(),
            entrypoint: Vec::new(),
            command: command.to_vec(),
            bootstrap_args: Vec::new(),
            env: Vec::new(),
            binds: Vec::new(),
            mounts: Vec::new(),
            user: Owner::ROOT,
            privileged: false,
            host_pid: false,
            host_cgroupns: false,
            security_opts: Vec::new(),
            tmpfs: Vec::new(),
            cap_drop: Vec::new(),
            log_limit: None,
            files: [].into(),
            certificates: [].into(),
        };
        insta::assert_snapshot!(apart(&spec).command.join("\n"), @"
        --etcd-servers=https://127.0.0.1:2379
        --bind-address=127.0.0.1
        --secure-port=6444
        --endpoint-reconciler-type=none
        --enable-admission-plugins=NodeRestriction
        --disable-admission-plugins=MutatingAdmissionWebhook,PodSecurity,ValidatingAdmissionWebhook
        ");
    }
}
