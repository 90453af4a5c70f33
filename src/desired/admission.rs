//! Admission plugins of the API server: which are on, and their settings. Pure.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::config::{PodSecurity, Services};

/// The admission plugins that are on in addition to Kubernetes' defaults, for `--enable-admission-plugins`.
pub(super) fn enabled(services: &Services) -> String {
    let chosen = [
        ("AlwaysPullImages", services.always_pull_images),
        ("EventRateLimit", services.event_rate_limit.is_some()),
    ];
    let chosen = chosen
        .into_iter()
        .filter_map(|(name, on)| on.then_some(name));
    let plugins: Vec<_> = ["NodeRestriction"].into_iter().chain(chosen).collect();
    plugins.join(",")
}

/// The file with the settings of plugins, where any has some. What the config writes itself wins over what
/// its other keys say. JSON is YAML, too.
pub(super) fn configuration(services: &Services) -> Option<String> {
    let mut plugins = BTreeMap::new();
    let mut ours = |name: &str, settings: Json| {
        plugins.insert(
            name.to_owned(),
            json!({"name": name, "configuration": settings}),
        );
    };
    if let Some(limits) = &services.event_rate_limit {
        ours("EventRateLimit", limits.clone());
    }
    if services.pod_security == PodSecurity::Restricted {
        ours("PodSecurity", restricted());
    }
    plugins.extend(services.admission_plugins.clone());
    (!plugins.is_empty()).then(|| {
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins.into_values().collect::<Vec<_>>(),
        })
        .to_string()
    })
}

/// As RKE has it: what a namespace without labels may run, `kube-system` excepted, where our add-ons are.
fn restricted() -> Json {
    let level = "restricted";
    json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {
            "enforce": level, "enforce-version": "latest",
            "audit": level, "audit-version": "latest",
            "warn": level, "warn-version": "latest",
        },
        "exemptions": {
            "usernames": [],
            "runtimeClasses": [],
            "namespaces": ["ingress-nginx", "kube-system"],
        },
    })
}
