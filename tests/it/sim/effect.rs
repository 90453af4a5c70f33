//! What an action does to the facts: one arm each.

use std::collections::{BTreeMap, BTreeSet};

use rke_operator::{
    actual::{
        Actual, ApiFacts, ApiView, Before, ContainerFact, ContainerState, FileFact, HostFacts,
        HostView, NodeFact,
    },
    config::NodeName,
    desired::{
        self, Addon, CLAIM, ContainerSpec, Desired, FILES_IMAGE, JOB, NodeMeta, ObjectRef, label,
        path,
    },
    plan::{Action, Component, FileRef, Step, Target},
    secret::Secret,
    state::ClusterId,
    workload::NODE_META,
};
use serde_json::{Value, json};

/// Carries a step out. The error says which precondition does not hold; then nothing changed.
/// Guards are the caller's ([`super::World::step`]): here is only the effect.
#[expect(clippy::too_many_lines, reason = "one arm for each action")]
pub(crate) fn apply(step: &Step, want: Option<&Desired>, world: &mut Actual) -> Result<(), String> {
    let want = || want.ok_or("this step needs a desired world");
    match &step.action {
        Action::SaveState => save_state(want()?, world),
        Action::Claim {
            cluster_id,
            cluster_name,
            before,
        } => claim(host(step, world)?, cluster_id, cluster_name, before),
        Action::PullImage { image } => {
            host(step, world)?.images.insert(image.clone());
            Ok(())
        }
        Action::WriteFiles { dirs, files } => {
            let name = node(step)?.clone();
            write(&name, dirs, files, want()?, host(step, world)?)
        }
        Action::RemoveFiles { paths } => {
            let files = files(host(step, world)?)?;
            files.retain(|path, _| !paths.contains(path));
            Ok(())
        }
        Action::PrepareKernel { wants } => {
            let system = &mut host(step, world)?.system;
            system.modules.extend(wants.modules.iter().cloned());
            system.sysctls.extend(wants.sysctls.clone());
            Ok(())
        }
        Action::ConfigureContainerd { wants, digest: _ } => {
            let facts = host(step, world)?;
            let dump = &facts.system.containerd.dump;
            let config = desired::containerd::containerd_config(dump, wants)
                .map_err(|why| why.to_string())?;
            let files = files(facts)?;
            files.insert(
                path::CONTAINERD_CONFIG.to_owned(),
                file(config.as_bytes(), 0o600),
            );
            files.insert(path::CONTAINERD_DROP_IN.to_owned(), file(b"drop-in", 0o644));
            facts.system.containerd.started += 1;
            Ok(())
        }
        Action::ImportPause { image } => has_image(host(step, world)?, image),
        Action::RunContainer { name, spec } => {
            let name_of_node = node(step)?.clone();
            run(&name_of_node, name, spec, want()?, host(step, world)?)
        }
        Action::StartContainer { name } => {
            let facts = host(step, world)?;
            let container = facts.containers.get_mut(name).ok_or("no such container")?;
            container.state = ContainerState::Running;
            Ok(())
        }
        Action::ReplaceContainer { name, spec } => {
            let name_of_node = node(step)?.clone();
            let facts = host(step, world)?;
            facts.containers.remove(name);
            run(&name_of_node, name, spec, want()?, facts)
        }
        Action::RemoveContainer { name } => {
            host(step, world)?.containers.remove(name);
            Ok(())
        }
        Action::AwaitHealthy { component } => await_healthy(*component, node(step)?, world),
        Action::ApplyAddon { addon, objects } => {
            let addon = find(want()?, addon)?;
            apply_objects(addon, objects, api(world)?)
        }
        Action::PruneObjects { objects } => {
            let api = api(world)?;
            api.objects.retain(|object, _| !objects.contains(object));
            Ok(())
        }
        Action::SetNodeMeta { meta } => {
            set_meta(joined(node(step)?, world)?, meta);
            Ok(())
        }
        Action::AwaitNodeReady { node } => {
            network_is_there(world)?;
            joined(node, world)?.ready = true;
            Ok(())
        }
        Action::AwaitAddon { addon } => {
            let addon = find(want()?, addon)?;
            become_available(addon, api(world)?)
        }
        Action::SaveStateCopy => {
            api(world)?.state_copy = true;
            Ok(())
        }
        Action::WriteKubeconfig => {
            world.kubeconfig = Some(want()?.kubeconfig.clone());
            Ok(())
        }
        Action::CleanHost { before } => clean(host(step, world)?, before),
        Action::RestoreContainerd => {
            let facts = host(step, world)?;
            let files = files(facts)?;
            files.remove(path::CONTAINERD_CONFIG);
            files.remove(path::CONTAINERD_DROP_IN);
            facts.system.containerd.started += 1;
            Ok(())
        }
        Action::RemoveImages { images } => {
            let facts = host(step, world)?;
            facts.images.retain(|image| !images.contains(image));
            Ok(())
        }
        Action::ReleaseClaim => {
            let facts = host(step, world)?;
            facts.containers.remove(JOB);
            facts.containers.remove(CLAIM);
            facts.images.remove(FILES_IMAGE);
            facts.files = None;
            Ok(())
        }
        Action::RemoveKubeconfig => {
            world.kubeconfig = None;
            Ok(())
        }
        Action::DeleteState => {
            world.saved = None;
            Ok(())
        }
    }
}

/// The node of a step that acts on one.
pub(crate) fn node(step: &Step) -> Result<&NodeName, String> {
    match &step.target {
        Target::Host(name) => Ok(name),
        Target::Cluster | Target::Local => Err("this step needs a host".to_owned()),
    }
}

pub(crate) fn host<'a>(step: &Step, world: &'a mut Actual) -> Result<&'a mut HostFacts, String> {
    let name = node(step)?;
    match world.hosts.get_mut(name) {
        Some(HostView::Up(facts)) => Ok(facts),
        Some(HostView::Down(down)) => Err(down.why.clone()),
        None => Err(format!("node `{name}` is not part of this world")),
    }
}

pub(crate) fn api(world: &mut Actual) -> Result<&mut ApiFacts, String> {
    match &mut world.api {
        ApiView::Up(facts) => Ok(facts),
        ApiView::Unknown | ApiView::Down(_) => Err("the API does not answer".to_owned()),
    }
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
        content: Secret::new(content.to_vec()),
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
    if world.saved.as_deref() != Some(&want.saved)
        && let ApiView::Up(api) = &mut world.api
    {
        api.state_copy = false;
    }
    world.saved = Some(Box::new(want.saved.clone()));
    Ok(())
}

fn claim(facts: &mut HostFacts, id: &ClusterId, name: &str, before: &Before) -> Result<(), String> {
    facts.images.insert(FILES_IMAGE.to_owned());
    if let Some(held) = facts.containers.get(CLAIM) {
        return match held.labels.get(label::CLUSTER_ID) {
            Some(holder) if *holder == id.0 => Ok(()),
            _ => Err("the claim's name is taken".to_owned()),
        };
    }
    let before = serde_json::to_string(before).unwrap();
    let labels = BTreeMap::from([
        (label::CLUSTER_ID.to_owned(), id.0.clone()),
        (label::CLUSTER_NAME.to_owned(), name.to_owned()),
        (label::BEFORE.to_owned(), before),
    ]);
    let claim = ContainerFact {
        id: format!("{CLAIM}-{id}"),
        labels,
        state: ContainerState::Created,
        runs: None,
        image: FILES_IMAGE.to_owned(),
    };
    facts.containers.insert(CLAIM.to_owned(), claim);
    facts.files.get_or_insert_default();
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
        .filter(|path| Before::PATHS.contains(&path.as_str()))
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
    ContainerFact {
        id: format!("{name}-{}", want.cluster_id),
        labels: BTreeMap::from([
            (label::CLUSTER_ID.to_owned(), want.cluster_id.0.clone()),
            (
                label::CLUSTER_NAME.to_owned(),
                want.saved.cluster_name.clone(),
            ),
            (label::SPEC.to_owned(), spec_label),
        ]),
        state: ContainerState::Created,
        runs: Some(spec.clone()),
        image: spec.image.clone(),
    }
}

fn run(
    node: &NodeName,
    name: &str,
    spec: &ContainerSpec,
    want: &Desired,
    facts: &mut HostFacts,
) -> Result<(), String> {
    has_image(facts, &spec.image)?;
    if facts.containers.contains_key(name) {
        return Err(format!("the name `{name}` is taken"));
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
            .is_some_and(|fact| fact.content == file.content);
        if !right || file.digest != *digest {
            return Err(format!("`{name}` starts before {path} is as it must be"));
        }
    }
    if name == "kubelet" && !there.contains_key(path::CONTAINERD_DROP_IN) {
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

fn await_healthy(component: Component, node: &NodeName, world: &mut Actual) -> Result<(), String> {
    let facts = world.up(node).ok_or("the host is down")?;
    if !running(facts, component) {
        return Err(format!("{} does not run", component.container()));
    }
    if component == Component::ApiServer {
        if !running(facts, Component::Etcd) {
            return Err("the API server has no etcd".to_owned());
        }
        if !matches!(world.api, ApiView::Up(_)) {
            world.api = ApiView::Up(Box::default());
        }
    }
    Ok(())
}

fn find<'a>(want: &'a Desired, name: &str) -> Result<&'a Addon, String> {
    let found = want.addons.iter().find(|addon| addon.name == name);
    found.ok_or_else(|| format!("no add-on `{name}`"))
}

fn apply_objects(addon: &Addon, objects: &[ObjectRef], api: &mut ApiFacts) -> Result<(), String> {
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
    if api.objects.values().any(flannel) {
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
    Ok(api(world)?.nodes.entry(node.clone()).or_default())
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

fn become_available(addon: &Addon, api: &mut ApiFacts) -> Result<(), String> {
    for workload in &addon.workloads {
        let live = api
            .objects
            .get_mut(workload)
            .ok_or("a workload that is not there")?;
        live["status"] = match workload.kind.as_str() {
            "DaemonSet" => json!({"desiredNumberScheduled": 1, "numberAvailable": 1}),
            _ => json!({"availableReplicas": 1}),
        };
    }
    Ok(())
}

/// What only Kubernetes makes goes; so does what was not there before.
pub(crate) fn clean(facts: &mut HostFacts, before: &Before) -> Result<(), String> {
    let files = files(facts)?;
    files.retain(|path, _| !read_through_claim(path));
    let made: BTreeSet<String> = Before::PATHS
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
    system.sysctls.extend(before.sysctls.clone());
    Ok(())
}
