//! Facts from the cluster's API: whether it is ready, and then three rounds of concurrent requests:
//! which kinds exist, the objects of those kinds, and what an apply would change in
//! rke-operator's objects.

use std::{collections::BTreeMap, time::Duration};

use futures::{
    StreamExt,
    future::{join, try_join, try_join_all, try_join4},
    stream,
};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret as KubeSecret};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    authorities, bound_to, charts::charts, connect::each_within, copy, kinds::Kinds, pages,
    replicas::replicas, rewrite, tokens,
};
use crate::{
    error::with_causes,
    facts::{ClusterFacts, DryRun, NodeFact, OldClients, PublishedAuthorities},
    model::{
        ImageVersion, KINDS_RECORD, NodeName, ObjectKind, ObjectRef, Taint, WantedObjects, label,
        recorded_kinds, version,
    },
};

/// How long a survey waits for each answer of the API.
const DEADLINE: Duration = Duration::from_secs(20);

/// How many applies the server tries at once.
const WIDTH: usize = 32;

/// How long a dry run that was not answered for a reason that may pass is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether an API server answers `/readyz`: this alone says whether it serves. The error says why it does
/// not.
pub async fn serves(client: &Client) -> Result<(), String> {
    within(ready(client)).await
}

/// The release that an API server has, if it says so.
pub async fn release(client: &Client) -> Option<ImageVersion> {
    let told = within(client.apiserver_version()).await.ok()?;
    version(&told.git_version)
}

/// What the cluster holds, of a server that was found to serve; and has it try an apply of what is wanted.
/// Every answer has its own time, however many there are. One that does not come, or half of one, is an
/// error, so that nothing is pruned because a list was cut short. The error says why.
pub async fn held(client: &Client, wanted: &WantedObjects) -> Result<ClusterFacts, String> {
    let client = each_within(client, DEADLINE);
    let facts = Box::pin(facts(&client, wanted)).await;
    facts.map_err(|error| with_causes(&error))
}

/// The Node objects alone.
pub async fn nodes(client: &Client) -> Result<BTreeMap<NodeName, NodeFact>, String> {
    within(all_nodes(client)).await
}

/// Bounded.
pub(crate) async fn within<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Ok(answer) => answer.map_err(|error| with_causes(&error)),
        Err(_elapsed) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
    }
}

async fn facts(client: &Client, wanted: &WantedObjects) -> kube::Result<ClusterFacts> {
    let kinds = Kinds::default();
    let ((version, recorded), (nodes, replicas), (copy, bound, uid, (tokens, authorities)), ()) =
        try_join4(
            try_join(client.apiserver_version(), recorded(client)),
            try_join(all_nodes(client), replicas(client, wanted)),
            try_join4(
                state_copy(client),
                Box::pin(bound_to(client, &wanted.bound_to)),
                identity(client, wanted.identity),
                try_join(
                    signers(client, wanted.tokens),
                    published(client, wanted.authorities),
                ),
            ),
            kinds.learn(client, &wanted.kinds),
        )
        .await?;
    let mut wanted = wanted.clone();
    wanted.scale(
        &nodes
            .iter()
            .map(|(name, node)| (name.clone(), node.cores))
            .collect(),
    );
    kinds.learn(client, &recorded).await?;
    wanted.kinds.extend(recorded);
    let wanted = &wanted;
    let lists = wanted
        .kinds
        .iter()
        .map(|kind| objects(client, &kinds, kind, wanted));
    let lists = try_join_all(lists).await?;
    let objects: BTreeMap<ObjectRef, Value> = lists.into_iter().flatten().collect();
    let (dry_runs, charts) = join(
        dry_runs(client, &kinds, wanted, &objects),
        Box::pin(charts(client, &kinds, &objects)),
    )
    .await;
    let charts = charts?;
    Ok(ClusterFacts {
        version: version.git_version,
        uid,
        nodes,
        objects,
        charts,
        dry_runs,
        written_with: copy.as_ref().and_then(rewrite::mark),
        tokens,
        authorities,
        marked: copy.is_some(),
        bound,
        replicas,
        no_traffic: std::collections::BTreeSet::new(),
        old_clients: OldClients::default(),
        state_copy: copy::read(copy.as_ref()),
    })
}

/// Has the server try an apply of each of our objects that is there.
async fn dry_runs(
    client: &Client,
    kinds: &Kinds,
    wanted: &WantedObjects,
    live: &BTreeMap<ObjectRef, Value>,
) -> BTreeMap<ObjectRef, DryRun> {
    let tried: Vec<_> = wanted
        .objects
        .iter()
        .filter(|(object, _)| live.contains_key(object))
        .filter_map(|(object, value)| {
            let api = kinds.get(&object.kind())?.place(client, object);
            Some((object.clone(), value.clone(), api))
        })
        .collect();
    let tried = stream::iter(tried).map(|(object, value, api)| async move {
        let dry_run = dry_run(&api, &object, &value).await;
        (object, dry_run)
    });
    tried.buffer_unordered(WIDTH).collect().await
}

/// One that is not answered keeps nothing else from being seen; what it would have told is known after
/// the apply.
async fn dry_run(api: &Api<DynamicObject>, object: &ObjectRef, value: &Value) -> DryRun {
    let params = PatchParams::apply(super::FIELD_MANAGER).force().dry_run();
    let begun = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        let tried = api.patch(&object.name, &params, &Patch::Apply(value)).await;
        let why = match tried {
            Ok(would) => match serde_json::to_value(would) {
                Ok(would) => return DryRun::Would(would),
                Err(error) => error.to_string(),
            },
            // A server that has too much to do, or whose etcd or webhook hiccups.
            Err(error) if may_pass(&error) && begun.elapsed() < AGAIN => {
                sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
                pause *= 2;
                continue;
            }
            Err(kube::Error::Api(status)) => status.message.clone(),
            Err(error) => with_causes(&error),
        };
        return DryRun::KnownAfterApply(why);
    }
}

/// Too many requests, or an error of the server's own.
fn may_pass(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 429 | 500..))
}

async fn ready(client: &Client) -> kube::Result<()> {
    let request = Request::get("/readyz")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(|_| ())
}

async fn all_nodes(client: &Client) -> kube::Result<BTreeMap<NodeName, NodeFact>> {
    let mut nodes = BTreeMap::new();
    let all = Api::<Node>::all(client.clone());
    pages::each(&all, &ListParams::default(), |node| {
        let name = node.metadata.name.clone().unwrap_or_default();
        nodes.insert(NodeName(name), fact(&node));
    })
    .await?;
    Ok(nodes)
}

/// A Node object as a fact.
pub(super) fn fact(node: &Node) -> NodeFact {
    let status = node.status.as_ref();
    let ready = status
        .and_then(|status| status.conditions.as_ref())
        .and_then(|conditions| conditions.iter().find(|one| one.type_ == "Ready"));
    let is_ready = ready.is_some_and(|condition| condition.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    NodeFact {
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ready: is_ready,
        message: match ready {
            Some(_) if is_ready => String::new(),
            Some(condition) => condition.message.clone().unwrap_or_default(),
            None => "kubelet has not reported yet".to_owned(),
        },
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
        taints: taints
            .into_iter()
            .flatten()
            .map(|taint| Taint {
                key: taint.key.clone(),
                value: taint.value.clone().unwrap_or_default(),
                effect: taint.effect.clone(),
            })
            .collect(),
        kubelet_version: status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.kubelet_version.clone())
            .unwrap_or_default(),
        created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        unschedulable: node
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or(false),
        cores: status
            .and_then(|status| status.capacity.as_ref()?.get("cpu"))
            .map_or(0, |cpu| cores(&cpu.0)),
    }
}

/// `4`, or `3920m`.
fn cores(cpu: &str) -> u32 {
    match cpu.strip_suffix('m') {
        Some(thousandths) => thousandths.parse().unwrap_or(0) / 1000,
        None => cpu.parse().unwrap_or(0),
    }
}

/// Who the cluster is, where that is asked.
async fn identity(client: &Client, asked: bool) -> kube::Result<Option<String>> {
    if !asked {
        return Ok(None);
    }
    let system = Api::<Namespace>::all(client.clone())
        .get_metadata("kube-system")
        .await?;
    Ok(system.metadata.uid)
}

/// The signing keys of the tokens in Secrets, where they are wanted.
async fn signers(
    client: &Client,
    asked: bool,
) -> kube::Result<Option<BTreeMap<ObjectRef, Option<String>>>> {
    if !asked {
        return Ok(None);
    }
    Box::pin(tokens::signers(client)).await.map(Some)
}

/// The authorities that are handed out, where they are wanted.
async fn published(client: &Client, asked: bool) -> kube::Result<Option<PublishedAuthorities>> {
    if !asked {
        return Ok(None);
    }
    Box::pin(authorities::published(client)).await.map(Some)
}

async fn state_copy(client: &Client) -> kube::Result<Option<KubeSecret>> {
    Api::<KubeSecret>::namespaced(client.clone(), copy::NAMESPACE)
        .get_opt(copy::NAME)
        .await
}

/// The kinds of what the user's manifests had once.
async fn recorded(client: &Client) -> kube::Result<Vec<ObjectKind>> {
    let (namespace, name) = KINDS_RECORD;
    let record = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await?;
    let record = record.map(serde_json::to_value).transpose();
    let record = record.map_err(kube::Error::SerdeError)?.unwrap_or_default();
    Ok(recorded_kinds(&record).collect())
}

/// The objects of one kind that belong to add-ons. A list leaves out what its items are.
async fn objects(
    client: &Client,
    kinds: &Kinds,
    kind: &ObjectKind,
    wanted: &WantedObjects,
) -> kube::Result<Vec<(ObjectRef, Value)>> {
    // No such kind, no such objects.
    let Some(known) = kinds.get(kind) else {
        return Ok(Vec::new());
    };
    let params = ListParams::default().labels(label::ADDON);
    let mut objects = Vec::new();
    let all = known.all(client);
    pages::each(&all, &params, |object| objects.push(object)).await?;
    objects
        .into_iter()
        .map(|object| {
            let mut reference = ObjectRef {
                api_version: kind.api_version.clone(),
                kind: kind.kind.clone(),
                namespace: object.metadata.namespace.clone().unwrap_or_default(),
                name: object.metadata.name.clone().unwrap_or_default(),
            };
            // A manifest does not tell of every kind that it has no namespace.
            let assumed = ObjectRef {
                namespace: "default".to_owned(),
                ..reference.clone()
            };
            if reference.namespace.is_empty() && wanted.objects.contains_key(&assumed) {
                reference = assumed;
            }
            let mut value = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
            value["apiVersion"] = kind.api_version.clone().into();
            value["kind"] = kind.kind.clone().into();
            Ok((reference, value))
        })
        .collect()
}
