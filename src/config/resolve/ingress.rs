//! `ingress`: the controller and its options.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    Found,
    pods::{self, Runs},
    values,
};
use crate::{
    config::{
        cursor::Cursor,
        ingress::{Ingress, IngressOptions, NetworkMode},
    },
    model::Secret,
};

/// `None` only when a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<Ingress> {
    let before = found.problems.len();
    let provider = at.get("provider");
    let name = match values::text(&provider, found) {
        None => "nginx",
        Some(known @ ("nginx" | "traefik" | "none")) => known,
        Some(other) => {
            let problem = provider.problem("unknown ingress controller").detail(other);
            found.problem(problem.hint("write `nginx`, `traefik`, or `none` to bring your own"));
            return None;
        }
    };
    let options = Box::new(options(at, found));
    let ingress = match name {
        "nginx" => {
            if !provider.is_empty() {
                let problem = provider.problem(
                    "ingress-nginx was retired upstream in March 2026: it gets no more fixes",
                );
                found.warning(problem.hint("on a new cluster write `provider: traefik`"));
            }
            Ingress::Nginx(options)
        }
        "traefik" => {
            let nginx = [
                ("options", "write traefik's settings under `values`"),
                (
                    "default_backend",
                    "traefik answers such requests itself with 404",
                ),
            ];
            for (key, hint) in nginx {
                let at = at.get(key);
                let off = at.scalar().and_then(super::super::schema::boolean) == Some(false);
                if !at.has_nothing() && !off {
                    found.warning(at.problem("has no effect with traefik").hint(hint));
                }
            }
            Ingress::Traefik(options)
        }
        _ => Ingress::None,
    };
    (found.problems.len() == before).then_some(ingress)
}

fn options(at: &Cursor<'_>, found: &mut Found) -> IngressOptions {
    let network_mode = network_mode(&at.get("network_mode"), found);
    let http_port = port(&at.get("http_port"), found);
    let https_port = port(&at.get("https_port"), found);
    if network_mode == NetworkMode::HostPort && http_port == https_port && http_port > 0 {
        let problem = at.get("https_port");
        found.problem(problem.problem("is the port of HTTP, too"));
    }
    let extra_args = values::map(&at.get("extra_args"), found).into_iter();
    let extra_args = extra_args.filter_map(|(name, (value, text))| {
        values::is_flag(name, &value, found).then(|| (name.to_owned(), text.to_owned()))
    });
    let extra_args = extra_args.collect();
    IngressOptions {
        options: settings(&at.get("options"), found),
        extra_args,
        node_selector: values::labels(&at.get("node_selector"), found),
        dns_policy: dns_policy(&at.get("dns_policy"), found),
        extra_envs: named(&at.get("extra_envs"), found)
            .filter(|envs| !envs.is_empty())
            .map(|envs| Secret::new(Json::from(envs).to_string())),
        extra_volumes: named(&at.get("extra_volumes"), found).unwrap_or_default(),
        extra_volume_mounts: named(&at.get("extra_volume_mounts"), found).unwrap_or_default(),
        update_strategy: pods::update_strategy(&at.get("update_strategy"), Runs::DaemonSet, found),
        http_port,
        https_port,
        network_mode,
        tolerations: pods::tolerations(&at.get("tolerations"), found),
        default_backend: values::flag_or_default(&at.get("default_backend"), found),
        backend_priority_class: pods::priority_class(
            &at.get("default_http_backend_priority_class_name"),
            found,
        ),
        priority_class: pods::priority_class(
            &at.get("nginx_ingress_controller_priority_class_name"),
            found,
        ),
        default_class: values::flag_or_default(&at.get("default_ingress_class"), found),
        values: values::json_map(&at.get("values"), found),
    }
}

fn settings(at: &Cursor<'_>, found: &mut Found) -> BTreeMap<String, String> {
    let settings = values::map(at, found).into_iter();
    settings
        .map(|(name, (value, text))| {
            // Some releases' charts take it for a template, others do not.
            if text.contains("{{") {
                found.problem(value.problem("must not have `{{`: the chart reads it as its own"));
            }
            (name.to_owned(), text.to_owned())
        })
        .collect()
}

/// 0 is the default, as in RKE.
fn port(at: &Cursor<'_>, found: &mut Found) -> u16 {
    let written = values::number(at, found).filter(|port| *port > 0);
    let number = written
        .or_else(|| at.default().parse().ok())
        .unwrap_or_default();
    u16::try_from(number).unwrap_or_else(|_| {
        found.problem(at.problem("is not a port"));
        0
    })
}

fn network_mode(at: &Cursor<'_>, found: &mut Found) -> NetworkMode {
    match values::word(at, "unknown network mode", found) {
        "hostNetwork" => NetworkMode::HostNetwork,
        "none" => NetworkMode::None,
        _ => NetworkMode::HostPort,
    }
}

/// `None` where it is the default.
fn dns_policy(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let text = values::word(at, "unknown DNS policy", found);
    (text != at.default()).then(|| text.to_owned())
}

/// Objects of Kubernetes in a list, each with a name. They go on as YAML reads them.
fn named(at: &Cursor<'_>, found: &mut Found) -> Option<Vec<Json>> {
    if at.has_nothing() {
        return None;
    }
    let items = values::mappings(at, found);
    for item in &items {
        let name = item.get("name");
        if values::text(&name, found).is_none() && !item.entries().is_empty() {
            found.problem(name.problem("must have a name"));
        }
    }
    Some(items.iter().map(Cursor::json).collect())
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::config::resolve::tests::{and, bad, good};

    fn ingress(options: &str) -> String {
        and("").replace("ingress: {provider: none}", &format!("ingress: {options}"))
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        assert_snapshot!(bad(&ingress(
            "{provider: nginx, options: [a], node_selector: {a b: c}, extra_args: {--v: 1}, dns_policy: Cluster, extra_envs: [{value: hunter2}], extra_volumes: {a: b}, extra_volume_mounts: [x], update_strategy: {strategy: Recreate}, http_port: 70000, https_port: x, network_mode: NodePort, tolerations: [{operator: In}], default_backend: 2, default_ingress_class: maybe, nginx_ingress_controller_priority_class_name: A b, values: 5}"
        )));
        assert_snapshot!(bad(&ingress(
            "{http_port: 8443, https_port: 8443, options: {a: '{{ b }}'}}"
        )));
    }

    #[test]
    fn the_end_of_nginx_is_reported_where_it_is_written() {
        let told = |options: &str| good(&ingress(options)).warnings.len();
        assert_eq!(
            (
                told("{provider: nginx}"),
                told("{}"),
                told("{provider: traefik}")
            ),
            (1, 0, 0)
        );
    }
}
