//! What an `EncryptionConfiguration` names, as kinds of the server: by discovery, of the groups that this server keeps in
//! its etcd. Those of other servers (metrics-server) are not stored there.

use std::collections::BTreeSet;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::APIResource,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
};

use super::{WorkloadError, objects::patiently};

/// The kinds of these resources and patterns, each once. What the server does not have is not stored.
pub(super) async fn kinds(
    client: &Client,
    resources: &BTreeSet<String>,
) -> Result<Vec<ApiResource>, WorkloadError> {
    let wanted: Vec<Wanted<'_>> = resources.iter().map(|name| Wanted::of(name)).collect();
    let mut kinds = Vec::new();
    if wanted.iter().any(|wanted| wanted.is_in("")) {
        let doing = "look up the kinds of Kubernetes' core";
        let core = patiently(doing, || client.list_core_api_resources("v1")).await?;
        add(&mut kinds, "", "v1", core.resources, &wanted);
    }
    if wanted.iter().any(|wanted| wanted.group != Some("")) {
        for (group, version) in local(client).await? {
            if !wanted.iter().any(|wanted| wanted.is_in(&group)) {
                continue;
            }
            let place = format!("{group}/{version}");
            let doing = format!("look up the kinds of {place}");
            let list = patiently(&doing, || client.list_api_group_resources(&place)).await?;
            add(&mut kinds, &group, &version, list.resources, &wanted);
        }
    }
    Ok(kinds)
}

/// As an `EncryptionConfiguration` names it.
pub(super) fn name(kind: &ApiResource) -> String {
    if kind.group.is_empty() {
        kind.plural.clone()
    } else {
        format!("{}.{}", kind.plural, kind.group)
    }
}

/// A resource, or a pattern.
struct Wanted<'a> {
    /// `None`: all of them.
    resource: Option<&'a str>,
    /// Empty: Kubernetes' core; `None`: all of them.
    group: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// `secrets`, `widgets.example.com`, `*.apps`, `*.` (the core), `*.*`.
    fn of(name: &'a str) -> Self {
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        let all = resource == "*";
        Self {
            resource: (!all).then_some(resource),
            group: (name != "*" && group != "*").then_some(group),
        }
    }

    fn is_in(&self, group: &str) -> bool {
        self.group.is_none_or(|own| own == group)
    }

    fn names(&self, group: &str, resource: &str) -> bool {
        self.is_in(group) && self.resource.is_none_or(|own| own == resource)
    }
}

/// The groups that this server keeps itself, with their versions; the version that it prefers comes first.
async fn local(client: &Client) -> Result<Vec<(String, String)>, WorkloadError> {
    let all = Api::<APIService>::all(client.clone());
    let params = ListParams::default();
    let list = patiently("list the groups of the API", || all.list(&params)).await?;
    let specs = list.items.into_iter().filter_map(|item| item.spec);
    let mut local: Vec<_> = specs
        .filter(|spec| spec.service.is_none())
        .filter_map(|spec| Some((spec.group?, -spec.version_priority, spec.version?)))
        .filter(|(group, ..)| !group.is_empty())
        .collect();
    local.sort();
    let versions = local.into_iter();
    Ok(versions
        .map(|(group, _, version)| (group, version))
        .collect())
}

/// A kind that has several versions is stored once. A kind that cannot be listed is not stored; neither is one that
/// cannot be patched, unless `wanted` names it explicitly.
fn add(
    kinds: &mut Vec<ApiResource>,
    group: &str,
    version: &str,
    resources: Vec<APIResource>,
    wanted: &[Wanted<'_>],
) {
    let has = |resource: &APIResource, verb: &str| resource.verbs.iter().any(|own| own == verb);
    let named = |resource: &str| {
        wanted
            .iter()
            .any(|wanted| wanted.resource == Some(resource))
    };
    for resource in resources {
        let known = kinds
            .iter()
            .any(|kind| kind.group == group && kind.plural == resource.name);
        let is_stored = !resource.name.contains('/')
            && has(&resource, "list")
            && (has(&resource, "patch") || named(&resource.name));
        let is_wanted = wanted
            .iter()
            .any(|wanted| wanted.names(group, &resource.name));
        if known || !is_stored || !is_wanted {
            continue;
        }
        kinds.push(ApiResource {
            api_version: if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            },
            group: group.to_owned(),
            version: version.to_owned(),
            kind: resource.kind,
            plural: resource.name,
        });
    }
}
