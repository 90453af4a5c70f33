//! What an action does to the facts: one arm each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rke_operator::{
    catalog::canonical,
    desired,
    desired::{Addon, Desired},
    facts::{
        Actual, Baseline, ChartFact, ClusterFacts, ContainerFact, ContainerState, FileFact,
        HostFacts, HostView, NODE_META, NodeFact, NodeRecord, PublishedAuthorities, StateCopy,
    },
    model::{
        AppliedObject, CLAIM, ChartRecord, ClusterId, Component, ContainerSpec, FILES_IMAGE,
        HELPER, NodeMeta, NodeName, ObjectRef, Taint, label, path, secret::Secret,
    },
    plan::{Action, ClusterAction, FileRef, HostAction, LocalAction, Step},
};
use serde_json::{Value, json};
use sha2::Digest as _;

/// Carries a step out. The error says which precondition does not hold; then nothing changed.
/// Guards are the caller's ([`super::World::step`]): here is only the effect.
pub(crate) fn apply(step: &Step, want: Option<&Desired>, world: &mut Actual) -> Result<(), String> {
    match &step.action {
        Action::Host(node, action) => on_host(node, action, want, world),
        Action::Cluster(action) => in_cluster(action, want, world),
        Action::Local(action) => locally(*action, want, world),
    }
}

fn on_host(
    node: &NodeName,
    action: &HostAction,
    want: Option<&Desired>,
    world: &mut Actual,
) -> Result<(), String> {
    let want = || want.ok_or("this step needs a desired world");
    if let HostAction::AwaitHealthy { component } = action {
        return await_healthy(*component, node, world);
    }
    let facts = host(node, world)?;
    match action {
        HostAction::Claim {
            cluster_id,
            cluster_name,
            before,
        } => claim(node, facts, cluster_id, cluster_name, before),
        HostAction::PullImage { image } | HostAction::LoadImage { image, .. } => {
            facts.images.insert(image.clone());
            Ok(())
        }
        HostAction::TryFlags { specs } => {
            let mut images = specs.values().map(|spec| &spec.image);
            let missing = images.find(|image| !facts.images.contains(*image));
            missing.map_or(Ok(()), |image| Err(format!("no image {image}")))
        }
        HostAction::WriteFiles { dirs, files } => write(node, dirs, files, want()?, facts),
        HostAction::RemoveFiles { paths } => {
            files(facts)?.retain(|path, _| !paths.contains(path));
            Ok(())
        }
        HostAction::PrepareKernel { wants } => {
            facts.system.modules.extend(wants.modules.iter().cloned());
            facts.system.sysctls.extend(wants.sysctls.clone());
            Ok(())
        }
        HostAction::ConfigureContainerd { wants, digest: _ } => {
            let dump = &facts.system.containerd.dump;
            let config = desired::containerd::containerd_config(dump, wants)
                .map_err(|why| why.to_string())?;
            let command = &facts.system.containerd.command;
            let drop_in = desired::containerd::drop_in(command, &wants.environment);
            let files = files(facts)?;
            files.insert(
                path::CONTAINERD_CONFIG.to_owned(),
                file(config.as_bytes(), 0o600),
            );
            files.insert(
                path::CONTAINERD_DROP_IN.to_owned(),
                file(drop_in.as_bytes(), 0o644),
            );
            files.remove(path::FORMER_DROP_IN);
            facts.system.containerd.started += 1;
            Ok(())
        }
        HostAction::ImportPause { image } => has_image(facts, image),
        HostAction::ImportImage { image, .. } => {
            let mut all = facts.pod_images();
            all.insert(canonical(image));
            let text = all
                .iter()
                .fold(String::new(), |text, name| text + name + "\n");
            files(facts)?.insert(path::POD_IMAGES.to_owned(), file(text.as_bytes(), 0o644));
            Ok(())
        }
        HostAction::RunContainer { component, spec } => run(node, *component, spec, want()?, facts),
        HostAction::JoinEtcd { spec } => {
            facts.containers.remove("etcd");
            run(node, Component::Etcd, spec, want()?, facts)
        }
        HostAction::SaveSnapshot { .. } => {
            let etcd = facts.containers.get("etcd");
            if etcd.is_none_or(|etcd| etcd.state != ContainerState::Running) {
                return Err("etcd does not run".to_owned());
            }
            Ok(())
        }
        // Which data it has is the world's to know.
        HostAction::SetEtcdAside { .. }
        | HostAction::PutEtcdBack { .. }
        | HostAction::RestoreEtcd { .. } => {
            if facts.containers.contains_key("etcd") {
                return Err("etcd has its data open".to_owned());
            }
            if let HostAction::RestoreEtcd { restore } = action {
                has_image(facts, &restore.image)?;
            }
            Ok(())
        }
        HostAction::StartContainer { component } => {
            let container = facts.containers.get_mut(component.container());
            let container = container.ok_or("no such container")?;
            start(container);
            Ok(())
        }
        HostAction::ReplaceContainer {
            component,
            spec,
            keep,
        } => {
            if *keep {
                set_aside(*component, facts);
                rename(component.container(), component.kept(), facts)?;
            } else {
                facts.containers.remove(component.container());
            }
            run(node, *component, spec, want()?, facts)
        }
        HostAction::PutBack { component } => {
            put_back(*component, facts)?;
            let container = facts.containers.get_mut(component.container());
            let container = container.ok_or("no such container")?;
            start(container);
            Ok(())
        }
        HostAction::RemoveKept { components } => {
            for component in components {
                facts.containers.remove(component.kept());
            }
            Ok(())
        }
        HostAction::ReloadProxy { read } => {
            let runs = facts.containers.get("nginx-proxy");
            if runs.is_none_or(|proxy| proxy.state != ContainerState::Running) {
                return Err("nginx-proxy does not run".to_owned());
            }
            let read = BTreeMap::from([(path::PROXY_READ.to_owned(), read.clone())]);
            write(node, &BTreeMap::new(), &read, want()?, facts)
        }
        HostAction::RemoveContainer { name } => {
            facts.containers.remove(name);
            Ok(())
        }
        HostAction::AwaitHealthy { .. } | HostAction::AwaitAge { .. } => Ok(()),
        HostAction::CleanHost { before } => clean(facts, before),
        HostAction::RestoreContainerd => {
            let files = files(facts)?;
            files.remove(path::CONTAINERD_CONFIG);
            files.remove(path::CONTAINERD_DROP_IN);
            files.remove(path::FORMER_DROP_IN);
            facts.system.containerd.started += 1;
            Ok(())
        }
        HostAction::RemoveImages { images } => {
            facts.images.retain(|image| !images.contains(image));
            Ok(())
        }
        HostAction::Reboot { from } => {
            let boot = &mut facts.system.boot;
            if boot.as_ref() == Some(from) {
                *boot = Some(format!("{from}+"));
            }
            Ok(())
        }
        HostAction::ReleaseClaim => {
            facts.containers.remove(HELPER);
            facts.containers.remove(CLAIM);
            facts.images.remove(FILES_IMAGE);
            facts.files = None;
            Ok(())
        }
    }
}

/// Docker starts it again from now on.
fn start(container: &mut ContainerFact) {
    if container.runs.is_none() {
        container.runs = container.applied().map(|spec| as_run(&spec));
    }
    container.state = ContainerState::Running;
}

/// It is stopped, and Docker does not start it again.
pub(crate) fn set_aside(component: Component, facts: &mut HostFacts) {
    if let Some(fact) = facts.containers.get_mut(component.container()) {
        (fact.state, fact.runs) = (ContainerState::Exited(0), None);
    }
}

/// The name must be free.
pub(crate) fn rename(from: &str, to: &str, facts: &mut HostFacts) -> Result<(), String> {
    if facts.containers.contains_key(to) {
        return Err(format!("the name {to} is taken"));
    }
    let fact = facts.containers.remove(from);
    let fact = fact.ok_or_else(|| format!("no container {from}"))?;
    facts.containers.insert(to.to_owned(), fact);
    Ok(())
}

/// Up to where it starts.
pub(crate) fn put_back(component: Component, facts: &mut HostFacts) -> Result<(), String> {
    facts.containers.remove(component.container());
    rename(component.kept(), component.container(), facts)
}

fn in_cluster(
    action: &ClusterAction,
    want: Option<&Desired>,
    world: &mut Actual,
) -> Result<(), String> {
    let want = || want.ok_or("this step needs a desired world");
    match action {
        ClusterAction::ApplyAddon { addon, objects } => {
            let addon = find(want()?, addon)?;
            apply_objects(addon, objects, api(world)?)
        }
        ClusterAction::PruneObjects { objects } => {
            let api = api(world)?;
            api.objects.retain(|object, _| !objects.contains(object));
            Ok(())
        }
        ClusterAction::SetNodeMeta { node, meta } => {
            set_meta(joined(node, world)?, meta);
            Ok(())
        }
        ClusterAction::AwaitNodeReady { node } => {
            if !joined(node, world)?.ready {
                network_is_there(world)?;
            }
            joined(node, world)?.ready = true;
            Ok(())
        }
        ClusterAction::AwaitAddon { addon } => {
            let addon = find(want()?, addon)?;
            become_available(addon, api(world)?)
        }
        ClusterAction::ApplyChart { chart, node, .. } => apply_chart(chart, node, want()?, world),
        ClusterAction::AwaitChart { chart } => {
            let fact = api(world)?.charts.get(chart);
            let done = fact.is_some_and(|fact| fact.record.digest.is_some());
            if done {
                Ok(())
            } else {
                Err(format!("{chart} was not applied"))
            }
        }
        ClusterAction::PruneChart { chart, .. } => {
            let api = api(world)?;
            api.charts.remove(chart);
            api.objects.remove(&ChartRecord::object(chart));
            Ok(())
        }
        // Pods are not simulated.
        ClusterAction::Cordon { node } | ClusterAction::Drain { node, .. } => {
            if let Some(fact) = api(world)?.nodes.get_mut(node)
                && !fact.unschedulable
            {
                fact.unschedulable = true;
                let ours = (label::CORDONED.to_owned(), "true".to_owned());
                fact.annotations.extend([ours]);
            }
            Ok(())
        }
        ClusterAction::Uncordon { node } => {
            if let Some(fact) = api(world)?.nodes.get_mut(node) {
                taken_back(fact);
            }
            Ok(())
        }
        ClusterAction::BeginReboot {
            node,
            request,
            from,
        } => {
            let fact = joined(node, world)?;
            let mark = (label::REBOOT.to_owned(), format!("{request} {from}"));
            fact.annotations.extend([mark]);
            Ok(())
        }
        ClusterAction::FinishReboot { node, request } => {
            let fact = joined(node, world)?;
            taken_back(fact);
            let done = (label::REBOOTED.to_owned(), request.clone());
            fact.annotations.extend([done]);
            Ok(())
        }
        // The world keeps the list of members; etcd itself removes one, without an API server.
        ClusterAction::RemoveMember { .. } => Ok(()),
        ClusterAction::OutOfService { node, uid } => {
            let nodes = &mut api(world)?.nodes;
            if let Some(there) = nodes.get_mut(node).filter(|there| there.uid == *uid) {
                there.taints.push(Taint {
                    key: "node.kubernetes.io/out-of-service".to_owned(),
                    value: "nodeshutdown".to_owned(),
                    effect: "NoExecute".to_owned(),
                });
            }
            Ok(())
        }
        ClusterAction::DeleteNode { node, uid } => {
            let nodes = &mut api(world)?.nodes;
            if nodes.get(node).is_some_and(|there| there.uid == *uid) {
                nodes.remove(node);
            }
            Ok(())
        }
        ClusterAction::Evict { workload, uid, .. } => {
            let api = api(world)?;
            let mut pods = api.replicas.get_mut(workload).into_iter().flatten();
            if let Some(pod) = pods.find(|pod| pod.uid == *uid) {
                let mut others = api
                    .nodes
                    .iter()
                    .filter(|(name, _)| pod.node.as_ref() != Some(name));
                let takes = others.find(|(_, node)| node.takes_pods());
                pod.node = takes.map(|(name, _)| name.clone());
                pod.uid.push('+');
            }
            Ok(())
        }
        ClusterAction::ForgetWritten => {
            api(world)?.written_with = None;
            Ok(())
        }
        ClusterAction::RewriteStored { with, .. } => {
            api(world)?.written_with = Some(with.clone());
            Ok(())
        }
        ClusterAction::RenewTokens { secrets, key } => {
            let tokens = api(world)?.tokens.get_or_insert_default();
            for (secret, id) in tokens {
                if secrets.contains(secret) {
                    *id = Some(key.clone());
                }
            }
            Ok(())
        }
        ClusterAction::AwaitAuthorities { bundle } => hand_out(bundle, want()?, world),
        ClusterAction::RestartPods {
            workloads,
            authority,
            ..
        } => {
            let api = api(world)?;
            let charts = api.charts.values_mut();
            let charts = charts.flat_map(|chart| &mut chart.workloads);
            let all = api.objects.iter_mut().chain(charts);
            for (_, value) in all.filter(|(object, _)| workloads.contains(object)) {
                let template = &mut value["spec"]["template"]["metadata"];
                template["annotations"][label::AUTHORITY] = authority.clone().into();
            }
            Ok(())
        }
        ClusterAction::ForgetAuthorities { version } => {
            let authorities = api(world)?.authorities.get_or_insert_default();
            let extension = authorities.extension.take();
            authorities.extension = extension.filter(|there| there.version != *version);
            Ok(())
        }
        // Pods are not simulated. No other API server serves yet.
        ClusterAction::CleanRestored { node, .. } => {
            let mut hosts = world.hosts.keys().filter_map(|name| world.up(name));
            if world.up(node).is_none() {
                Err(format!("node `{node}` does not answer"))
            } else if hosts.any(|facts| running(facts, Component::Etcd)) {
                Ok(())
            } else {
                Err("no etcd runs".to_owned())
            }
        }
        ClusterAction::AwaitKnownPods { node } => joined(node, world).map(drop),
        ClusterAction::SaveStateCopy => {
            let copy = StateCopy::Is(Box::new(want()?.saved.copy()));
            let api = api(world)?;
            (api.state_copy, api.marked) = (copy, true);
            Ok(())
        }
    }
}

/// Removes rke-operator's cordon and a request to reboot the node.
fn taken_back(fact: &mut NodeFact) {
    if fact.annotations.remove(label::CORDONED).is_some() {
        fact.unschedulable = false;
    }
    fact.annotations.remove(label::REBOOT);
}

/// Whichever controller manager leads writes what it was started with.
fn hand_out(bundle: &str, want: &Desired, world: &mut Actual) -> Result<(), String> {
    let text = want.saved.cluster_ca.bundle();
    let digest = want.saved.digest_key.digest(text.as_bytes());
    let mut hosts = world.hosts.keys().filter_map(|name| world.up(name));
    let has_another = hosts.any(|facts| {
        let spec = facts.container(Component::ControllerManager);
        let spec = spec.and_then(ContainerFact::applied);
        spec.is_some_and(|spec| spec.files.get(path::CLUSTER_CA) != Some(&digest))
    });
    if has_another || PublishedAuthorities::fingerprint(text.as_bytes()) != bundle {
        return Err("a controller manager hands out other authorities".to_owned());
    }
    let authorities = api(world)?.authorities.get_or_insert_default();
    for root in authorities.roots.values_mut() {
        bundle.clone_into(root);
    }
    Ok(())
}

fn locally(action: LocalAction, want: Option<&Desired>, world: &mut Actual) -> Result<(), String> {
    let want = || want.ok_or("this step needs a desired world");
    match action {
        LocalAction::SaveState => save_state(want()?, world),
        LocalAction::WriteKubeconfig => {
            world.kubeconfig = Some(want()?.kubeconfig.clone());
            Ok(())
        }
        LocalAction::RemoveKubeconfig => {
            world.kubeconfig = None;
            Ok(())
        }
        LocalAction::DeleteState => {
            world.saved = None;
            Ok(())
        }
    }
}

pub(crate) fn host<'a>(
    name: &NodeName,
    world: &'a mut Actual,
) -> Result<&'a mut HostFacts, String> {
    match world.hosts.get_mut(name) {
        Some(HostView::Reachable(facts)) => Ok(facts),
        Some(HostView::Unreachable(down)) => Err(down.why.clone()),
        None => Err(format!("node `{name}` is not part of this world")),
    }
}

pub(crate) fn api(world: &mut Actual) -> Result<&mut ClusterFacts, String> {
    let facts = world.cluster.as_deref_mut();
    facts.ok_or_else(|| "the API does not answer".to_owned())
}

/// Files are written and read through the claim.
pub(crate) fn files(facts: &mut HostFacts) -> Result<&mut BTreeMap<String, FileFact>, String> {
    if !facts.containers.contains_key(CLAIM) {
        return Err("files need the claim".to_owned());
    }
    facts
        .files
        .as_mut()
        .ok_or_else(|| "files are unknown".to_owned())
}

pub(crate) fn file(content: &[u8], mode: u32) -> FileFact {
    FileFact {
        content: Arc::new(Secret::new(content.to_vec())),
        mode,
        uid: 0,
        gid: 0,
        is_dir: false,
    }
}

fn directory(mode: u32) -> FileFact {
    FileFact {
        is_dir: true,
        ..file(b"", mode)
    }
}

/// Create-only, or compare-and-swap: never over another cluster's state.
pub(crate) fn save_state(want: &Desired, world: &mut Actual) -> Result<(), String> {
    if let Some(saved) = &world.saved
        && saved.cluster_id != want.cluster_id
    {
        return Err("the state is another cluster's".to_owned());
    }
    world.saved = Some(Box::new(want.saved.clone()));
    Ok(())
}

fn claim(
    node: &NodeName,
    facts: &mut HostFacts,
    id: &ClusterId,
    name: &str,
    before: &Baseline,
) -> Result<(), String> {
    facts.images.insert(FILES_IMAGE.to_owned());
    if let Some(held) = facts.containers.get(CLAIM) {
        return match held.labels.get(label::CLUSTER_ID) {
            Some(holder) if *holder == id.0 => Ok(()),
            _ => Err("the claim's name is taken".to_owned()),
        };
    }
    let record = NodeRecord {
        cluster_id: id.clone(),
        cluster_name: name.to_owned(),
        node: Some(node.clone()),
        before: before.clone(),
    };
    let labels = record.labels().unwrap();
    let claim = ContainerFact {
        id: format!("{CLAIM}-{id}"),
        labels,
        state: ContainerState::Created,
        runs: None,
        image: FILES_IMAGE.to_owned(),
        started: None,
    };
    facts.containers.insert(CLAIM.to_owned(), claim);
    facts.system.paths.insert(path::KUBERNETES.to_owned());
    facts.system.cluster_id = Some(id.clone());
    let line = file(format!("{id}\n").as_bytes(), 0o644);
    let record = file(&serde_json::to_vec(&record).unwrap(), 0o600);
    let files = facts.files.get_or_insert_default();
    files.insert(path::KUBERNETES.to_owned(), directory(0o755));
    files.insert(path::CLUSTER_ID.to_owned(), line);
    files.insert(path::NODE_RECORD.to_owned(), record);
    Ok(())
}

fn write(
    name: &NodeName,
    dirs: &BTreeMap<String, u32>,
    refs: &BTreeMap<String, FileRef>,
    want: &Desired,
    facts: &mut HostFacts,
) -> Result<(), String> {
    let wanted = want
        .hosts
        .get(name)
        .ok_or("files for a host that is not desired")?;
    let watched: Vec<String> = dirs
        .keys()
        .filter(|path| Baseline::PATHS.contains(&path.as_str()))
        .cloned()
        .collect();
    let seen = files(facts)?;
    for (path, mode) in dirs {
        if read_through_claim(path) {
            seen.insert(path.clone(), directory(*mode));
        }
    }
    for (path, FileRef { digest, mode }) in refs {
        let file = wanted.files.get(path).ok_or("a file that is not desired")?;
        if file.digest != *digest {
            return Err("a file whose digest is not the desired one".to_owned());
        }
        if read_through_claim(path) {
            seen.insert(path.clone(), self::file(file.content.expose(), *mode));
        }
    }
    facts.system.paths.extend(watched);
    for path in facts.system.paths.clone() {
        facts.system.empty.remove(&path);
    }
    Ok(())
}

/// The paths that a survey reads.
pub(crate) fn read_through_claim(path: &str) -> bool {
    path == path::KUBERNETES
        || path.starts_with("/etc/kubernetes/")
        || [path::MODULES_LOAD, path::SYSCTL].contains(&path)
}

fn has_image(facts: &HostFacts, image: &str) -> Result<(), String> {
    if facts.images.contains(image) {
        Ok(())
    } else {
        Err(format!("no such image: {image}"))
    }
}

/// A container of ours as it is after creation.
pub(crate) fn created(spec: &ContainerSpec, name: &str, want: &Desired) -> ContainerFact {
    let spec_label = serde_json::to_string(spec).unwrap();
    let epoch = want.saved.epoch();
    let epoch = (epoch > 0).then(|| (label::ETCD_EPOCH.to_owned(), epoch.to_string()));
    let definition = sha2::Sha256::digest(&spec_label);
    let id = definition.iter().take(8).map(|byte| format!("{byte:02x}"));
    ContainerFact {
        id: format!("{name}-{}-{}", want.cluster_id, id.collect::<String>()),
        labels: BTreeMap::from([
            (label::CLUSTER_ID.to_owned(), want.cluster_id.0.clone()),
            (
                label::CLUSTER_NAME.to_owned(),
                want.saved.cluster_name.clone(),
            ),
            (label::SPEC.to_owned(), spec_label),
        ])
        .into_iter()
        .chain(epoch)
        .collect(),
        state: ContainerState::Created,
        runs: Some(as_run(spec)),
        image: spec.image.clone(),
        started: None,
    }
}

/// What inspect says of a container of that definition.
fn as_run(spec: &ContainerSpec) -> ContainerSpec {
    ContainerSpec {
        command: spec.words(),
        bootstrap_args: Vec::new(),
        ..spec.clone()
    }
}

fn run(
    node: &NodeName,
    component: Component,
    spec: &ContainerSpec,
    want: &Desired,
    facts: &mut HostFacts,
) -> Result<(), String> {
    let name = component.container();
    // The image of what takes snapshots comes with it.
    if component == Component::Snapshots {
        facts.images.insert(spec.image.clone());
    }
    has_image(facts, &spec.image)?;
    // A label has none.
    if let Some(var) = spec.env.iter().find(|var| var.assignment().is_none()) {
        return Err(format!("the value of `{}` is not known", var.name));
    }
    if facts.containers.contains_key(name) {
        return Err(format!("the name `{name}` is taken"));
    }
    let kept = facts.containers.get(component.kept());
    if kept.is_some_and(|fact| fact.state == ContainerState::Running) {
        return Err(format!("two containers of `{name}` run"));
    }
    let takes_its_port = match component {
        Component::ApiServer => Some(Component::NginxProxy),
        Component::NginxProxy => Some(Component::ApiServer),
        Component::Etcd
        | Component::ControllerManager
        | Component::Scheduler
        | Component::Kubelet
        | Component::KubeProxy
        | Component::Snapshots => None,
    };
    if let Some(other) = takes_its_port.filter(|other| facts.container(*other).is_some()) {
        return Err(format!("`{other}` has the port of `{name}`"));
    }
    let wanted = want
        .hosts
        .get(node)
        .ok_or("a container for a host that is not desired")?;
    let there = files(facts)?;
    for (path, digest) in &spec.files {
        let file = wanted
            .files
            .get(path)
            .ok_or_else(|| format!("{path} is not desired"))?;
        let right = there
            .get(path)
            .is_some_and(|fact| *fact.content == file.content);
        if !right || file.digest != *digest {
            return Err(format!("`{name}` starts before {path} is as it must be"));
        }
    }
    if component == Component::Kubelet && !there.contains_key(path::CONTAINERD_DROP_IN) {
        return Err("kubelet starts before containerd speaks CRI".to_owned());
    }
    let fact = ContainerFact {
        state: ContainerState::Running,
        ..created(spec, name, want)
    };
    facts.containers.insert(name.to_owned(), fact);
    Ok(())
}

fn running(facts: &HostFacts, component: Component) -> bool {
    facts
        .containers
        .get(component.container())
        .is_some_and(|fact| fact.state == ContainerState::Running)
}

/// etcd's quorum is the world's to know: [`super::World::step`] looks at it first.
fn await_healthy(component: Component, node: &NodeName, world: &mut Actual) -> Result<(), String> {
    let facts = world.up(node).ok_or("the host is down")?;
    if !running(facts, component) {
        return Err(format!("{} does not run", component.container()));
    }
    if component == Component::ApiServer {
        world.cluster.get_or_insert_default();
    }
    Ok(())
}

fn find<'a>(want: &'a Desired, name: &str) -> Result<&'a Addon, String> {
    let found = want.addons.iter().find(|addon| addon.name == name);
    found.ok_or_else(|| format!("no add-on `{name}`"))
}

fn apply_objects(
    addon: &Addon,
    objects: &[ObjectRef],
    api: &mut ClusterFacts,
) -> Result<(), String> {
    for object in objects {
        let wanted = addon
            .objects
            .get(object)
            .ok_or("an object that is not desired")?;
        let live = api
            .objects
            .entry(object.clone())
            .or_insert_with(|| json!({}));
        merge(live, wanted);
        live["metadata"]["uid"] = json!(object.to_string());
        live["metadata"]["labels"][label::ADDON] = json!(addon.name);
        if addon.workloads.contains(object) && live.get("status").is_none() {
            live["status"] = json!({});
        }
    }
    Ok(())
}

/// One object stands for all that a chart renders.
fn apply_chart(
    chart: &str,
    node: &NodeName,
    want: &Desired,
    world: &mut Actual,
) -> Result<(), String> {
    let mut charts = want.charts.iter();
    let want = charts
        .find(|want| want.chart.name == chart)
        .ok_or("a chart that is not desired")?;
    let facts = host(node, world)?;
    has_image(facts, &want.runtime)?;
    has_image(facts, &want.helm)?;
    let object = AppliedObject {
        object: ObjectRef {
            name: want.chart.chart.clone(),
            ..ChartRecord::object(chart)
        },
        uid: "1".to_owned(),
        fields: String::new(),
    };
    let record = ChartRecord {
        digest: Some(want.digest.clone()),
        objects: vec![object],
    };
    keep_record(chart, record, api(world)?);
    Ok(())
}

/// A chart's record, and the chart as a survey sees it then.
pub(crate) fn keep_record(chart: &str, record: ChartRecord, api: &mut ClusterFacts) {
    let own = ChartRecord::object(chart);
    let uid = own.to_string();
    let mut value = record.to_value(chart);
    value["metadata"]["uid"] = json!(uid);
    api.objects.insert(own, value);
    let fact = ChartFact {
        uid,
        record,
        ..ChartFact::default()
    };
    api.charts.insert(chart.to_owned(), fact);
}

/// The object as an apply would make it.
pub(super) fn applied(live: &Value, wanted: &Value) -> Value {
    let mut would = live.clone();
    merge(&mut would, wanted);
    would
}

/// Server-side apply as far as it matters here: fields that we own are set, others stay.
fn merge(live: &mut Value, wanted: &Value) {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            for (key, value) in wanted {
                merge(live.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (live, wanted) => *live = wanted.clone(),
    }
}

fn network_is_there(world: &mut Actual) -> Result<(), String> {
    let api = api(world)?;
    let flannel = |value: &Value| value["metadata"]["labels"][label::ADDON] == "flannel";
    if api.objects.values().any(flannel) || api.charts.contains_key("canal") {
        Ok(())
    } else {
        Err("no node becomes Ready without a network".to_owned())
    }
}

/// The Node object, which kubelet makes when it reaches the API.
fn joined<'a>(node: &NodeName, world: &'a mut Actual) -> Result<&'a mut NodeFact, String> {
    let kubelet = world
        .up(node)
        .is_some_and(|facts| running(facts, Component::Kubelet));
    if !kubelet {
        return Err("no kubelet runs there".to_owned());
    }
    let new = || NodeFact {
        uid: format!("uid of {node}"),
        ..NodeFact::default()
    };
    Ok(api(world)?.nodes.entry(node.clone()).or_insert_with(new))
}

/// What was ours goes, what is ours comes, and which that is stands in an annotation.
fn set_meta(node: &mut NodeFact, meta: &NodeMeta) {
    let record = node.annotations.get(NODE_META).cloned().unwrap_or_default();
    let owned: Value = serde_json::from_str(&record).unwrap_or_default();
    let listed = |what: &str, key: &str| {
        let keys = owned[what].as_array().into_iter().flatten();
        keys.into_iter().any(|owned| owned == key)
    };
    node.labels.retain(|key, _| !listed("labels", key));
    node.annotations
        .retain(|key, _| !listed("annotations", key));
    node.taints.retain(|taint| {
        let slot = json!([taint.key, taint.effect]);
        let taints = owned["taints"].as_array();
        !taints.is_some_and(|owned| owned.contains(&slot))
    });
    node.labels.extend(meta.labels.clone());
    node.annotations.extend(meta.annotations.clone());
    for taint in &meta.taints {
        if !node.taints.contains(taint) {
            node.taints.push(taint.clone());
        }
    }
    let slots: Vec<_> = meta
        .taints
        .iter()
        .map(|t| json!([t.key, t.effect]))
        .collect();
    let labels: Vec<_> = meta.labels.keys().collect();
    let annotations: Vec<_> = meta.annotations.keys().collect();
    let record = json!({"labels": labels, "annotations": annotations, "taints": slots});
    node.annotations
        .insert(NODE_META.to_owned(), record.to_string());
}

fn become_available(addon: &Addon, api: &mut ClusterFacts) -> Result<(), String> {
    for workload in &addon.workloads {
        let live = api
            .objects
            .get_mut(workload)
            .ok_or("a workload that is not there")?;
        let replicas = live["spec"]["replicas"].as_i64().unwrap_or(1);
        live["status"] = if workload.kind == "DaemonSet" {
            json!({"desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1})
        } else {
            json!({"updatedReplicas": replicas, "availableReplicas": replicas})
        };
    }
    Ok(())
}

/// What only Kubernetes makes goes; so does what was not there before.
pub(crate) fn clean(facts: &mut HostFacts, before: &Baseline) -> Result<(), String> {
    let files = files(facts)?;
    files.retain(|path, _| !read_through_claim(path));
    let made: BTreeSet<String> = Baseline::PATHS
        .iter()
        .map(|path| (*path).to_owned())
        .collect();
    let system = &mut facts.system;
    system
        .paths
        .retain(|path| before.paths.contains(path) || !made.contains(path));
    let emptied = [
        path::KUBERNETES,
        "/etc/cni/net.d",
        path::ETCD,
        path::KUBELET,
    ];
    for path in emptied {
        if system.paths.contains(path) {
            system.empty.insert(path.to_owned());
        }
    }
    system.cluster_id = None;
    system
        .foreign
        .retain(|path| !path.starts_with(path::KUBERNETES));
    system.sysctls.extend(before.sysctls.clone());
    Ok(())
}
