//! Values that a program refuses though it has the flag.

use super::{Arg, Runs, lists};
use crate::{
    catalog::accepts::{self, Minor, Program, ValueType, go_bool},
    config::{cursor::Cursor, problem::Problem, resolve::Found, validate::nearest},
    model::quoted,
};

const fn k(minor: u16) -> Minor {
    Minor { major: 1, minor }
}

/// Flags with a few words for values, and the program; `None`: each that has the flag.
const WORDS: &[(Option<Program>, &str, &[&str])] = &[
    (None, "logging-format", &["text", "json"]),
    (
        None,
        "tls-min-version",
        &[
            "VersionTLS10",
            "VersionTLS11",
            "VersionTLS12",
            "VersionTLS13",
        ],
    ),
    (Some(Program::ApiServer), "storage-backend", &["etcd3"]),
    (
        Some(Program::ApiServer),
        "audit-log-format",
        &["legacy", "json"],
    ),
    (
        Some(Program::ApiServer),
        "audit-log-version",
        &["audit.k8s.io/v1"],
    ),
    (
        Some(Program::ApiServer),
        "audit-webhook-version",
        &["audit.k8s.io/v1"],
    ),
    (
        Some(Program::ApiServer),
        "audit-log-mode",
        &["batch", "blocking", "blocking-strict"],
    ),
    (
        Some(Program::ApiServer),
        "audit-webhook-mode",
        &["batch", "blocking", "blocking-strict"],
    ),
    (
        Some(Program::ApiServer),
        "endpoint-reconciler-type",
        &["master-count", "lease", "none"],
    ),
    (
        Some(Program::Kubelet),
        "authorization-mode",
        &["AlwaysAllow", "Webhook"],
    ),
    (
        Some(Program::Kubelet),
        "cpu-manager-policy",
        &["none", "static"],
    ),
    (
        Some(Program::Kubelet),
        "memory-manager-policy",
        &["None", "Static"],
    ),
    (
        Some(Program::Kubelet),
        "topology-manager-policy",
        &["none", "best-effort", "restricted", "single-numa-node"],
    ),
    (
        Some(Program::Kubelet),
        "topology-manager-scope",
        &["container", "pod"],
    ),
    (
        Some(Program::Etcd),
        "auto-compaction-mode",
        &["periodic", "revision"],
    ),
    (
        Some(Program::Etcd),
        "log-level",
        &["debug", "info", "warn", "error", "panic", "fatal"],
    ),
];

/// The modes by which kube-apiserver authorizes requests.
const AUTHORIZATION: [&str; 6] = [
    "AlwaysAllow",
    "AlwaysDeny",
    "ABAC",
    "Webhook",
    "RBAC",
    "Node",
];

pub(super) fn read(
    program: Program,
    runs: Runs,
    arg: &Arg<'_>,
    all: &[Arg<'_>],
    found: &mut Found,
) {
    let row = WORDS.iter().find(|(of, name, _)| {
        *name == arg.name && of.map_or(program != Program::Etcd, |of| of == program)
    });
    for (at, text) in arg.values.iter().filter(|(_, text)| !text.is_empty()) {
        let of_words = row.and_then(|(_, _, words)| {
            (!words.contains(text)).then(|| {
                let problem = at.problem(format!("{} takes no such value", program.name()));
                problem
                    .detail(*text)
                    .hint(format!("it takes {}", quoted(*words)))
            })
        });
        let of_type = || {
            let kind = accepts::value_type(program, &arg.name)?;
            (!kind.takes(text)).then(|| wrong_type(at, text, kind))
        };
        let of_list = || of_list(program, arg, at, text);
        let problem = of_words.or_else(of_type).or_else(of_list);
        let problem = problem.or_else(|| match program {
            Program::Kubelet => of_kubelet(arg, at, text, all, runs.release),
            Program::Proxy => proxy_mode(arg, at, text, all, runs.release),
            Program::ControllerManager | Program::ApiServer if arg.name == "cloud-provider" => {
                in_tree(at, text, program, runs.release)
            }
            Program::Etcd => of_etcd(arg, at, text, runs.release),
            Program::ApiServer if arg.name == "service-node-port-range" => port_range(at, text),
            Program::ControllerManager | Program::ApiServer | Program::Scheduler => None,
        });
        if let Some(problem) = problem {
            runs.say(problem, found);
        }
    }
}

/// An item of a list that the program does not know.
fn of_list(program: Program, arg: &Arg<'_>, at: &Cursor<'_>, text: &str) -> Option<Problem> {
    let known: Vec<&str> = match (program, arg.name.as_str()) {
        (Program::ApiServer, "authorization-mode") => AUTHORIZATION.to_vec(),
        (Program::Etcd, "cipher-suites") | (_, "tls-cipher-suites") => accepts::ciphers().collect(),
        _ => return None,
    };
    let mut items = text.split(',').map(str::trim);
    let other = items.find(|item| !known.contains(item))?;
    let hint = nearest(other, known.iter().copied()).map_or_else(
        || format!("it takes {}", quoted(&known)),
        |near| format!("did you mean `{near}`?"),
    );
    let problem = at.problem(format!("{} takes no such value", program.name()));
    Some(problem.detail(other).hint(hint))
}

/// `30000-32767`, or, as Kubernetes reads it as well, `30000+2767` and a single port.
fn port_range(at: &Cursor<'_>, text: &str) -> Option<Problem> {
    let port = |text: &str| text.trim().parse::<u16>().ok();
    let ends = text.split_once('-').or_else(|| text.split_once('+'));
    let is_range = match ends {
        Some((first, last)) => port(first).zip(port(last)).is_some_and(|(first, last)| {
            text.contains('+') && first.checked_add(last).is_some() || first <= last
        }),
        None => port(text).is_some(),
    };
    (!is_range).then(|| {
        let problem = at.problem("is not a range of ports").detail(text);
        problem.hint("write one like `30000-32767`")
    })
}

fn wrong_type(at: &Cursor<'_>, text: &str, kind: ValueType) -> Problem {
    at.problem(format!("must be {}", kind.form())).detail(text)
}

/// A cloud that was built in. The hardened images have none from 1.29 on, nor has anyone.
fn in_tree(at: &Cursor<'_>, text: &str, program: Program, release: Minor) -> Option<Problem> {
    let gone = release >= k(29) && !matches!(text, "external" | "");
    gone.then(|| {
        at.problem(format!(
            "{} {release} has no cloud provider built in",
            program.name()
        ))
        .detail(text)
        .hint("remove it, write `cloud_provider.name: external`, and install the cloud's own controller manager")
    })
}

fn of_kubelet(
    arg: &Arg<'_>,
    at: &Cursor<'_>,
    text: &str,
    all: &[Arg<'_>],
    release: Minor,
) -> Option<Problem> {
    let has = |name: &str| {
        let mut values = all.iter().filter(|arg| arg.name == name);
        values.any(|arg| arg.values.iter().any(|(_, text)| !text.is_empty()))
    };
    match arg.name.as_str() {
        "cloud-provider" => in_tree(at, text, Program::Kubelet, release),
        "node-labels" => {
            let keys = text
                .split(',')
                .map(|pair| pair.split('=').next().unwrap_or(pair));
            let reserved = keys.map(str::trim).find(|key| !may_label_itself(key))?;
            let problem = at.problem("kubelet may not set a label of Kubernetes' own on its node");
            Some(
                problem
                    .detail(reserved)
                    .hint("write it under `labels` of the node"),
            )
        }
        "runonce" if release >= k(32) && go_bool(text) == Some(true) => Some(
            at.problem("kubelet refuses `true` since 1.32")
                .hint("remove it"),
        ),
        "container-log-max-files" if text.parse::<i64>().is_ok_and(|files| files < 2) => {
            Some(at.problem("must be 2 or more").detail(text))
        }
        "enforce-node-allocatable" => {
            let mut names: Vec<&str> = text.split(',').map(str::trim).collect();
            let lacks = names.iter().find_map(|name| {
                let of = matches!(*name, "kube-reserved" | "system-reserved");
                let cgroup = format!("{name}-cgroup");
                (of && !has(&cgroup)).then_some(cgroup)
            });
            if let Some(cgroup) = lacks {
                let problem = at.problem("kubelet needs the cgroup that it is to enforce this on");
                return Some(problem.hint(format!("add `{cgroup}`, or enforce `pods` alone")));
            }
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            let twice = names.len() < count && release >= k(31);
            twice.then(|| at.problem("names one of them twice").detail(text))
        }
        _ => None,
    }
}

/// What the admission plugin `NodeRestriction` and kubelet itself let a node say of itself.
fn may_label_itself(key: &str) -> bool {
    const OWN: [&str; 12] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "",
    ];
    let Some((prefix, _)) = key.split_once('/') else {
        return true;
    };
    let below = |domain: &str| {
        prefix == domain
            || prefix
                .strip_suffix(domain)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    let reserved = below("kubernetes.io") || below("k8s.io");
    let allowed = below("kubelet.kubernetes.io") || below("node.kubernetes.io");
    !reserved || allowed || OWN.contains(&key)
}

fn proxy_mode(
    arg: &Arg<'_>,
    at: &Cursor<'_>,
    text: &str,
    all: &[Arg<'_>],
    release: Minor,
) -> Option<Problem> {
    if arg.name != "proxy-mode" {
        return None;
    }
    let gate = "NFTablesProxyMode";
    match text {
        "iptables" | "ipvs" => None,
        "nftables" if release >= k(31) => None,
        "nftables" if release >= k(29) && lists::is_on(all, gate) => None,
        "nftables" if release >= k(29) => Some(
            at.problem(format!("needs the feature gate `{gate}` before 1.31"))
                .hint(format!("write `feature-gates: {gate}=true`, too")),
        ),
        "nftables" => {
            let problem = at.problem(format!(
                "kube-proxy has this mode since 1.29; this is {release}"
            ));
            Some(problem.hint("write `iptables` or `ipvs`"))
        }
        _ => {
            let problem = at.problem("kube-proxy has no such mode").detail(text);
            Some(problem.hint("write `iptables`, `ipvs` or, since 1.29, `nftables`"))
        }
    }
}

fn of_etcd(arg: &Arg<'_>, at: &Cursor<'_>, text: &str, release: Minor) -> Option<Problem> {
    const fn e(minor: u16) -> Minor {
        Minor { major: 3, minor }
    }
    match (arg.name.as_str(), text) {
        ("logger", "capnslog") if release >= e(5) => Some(
            at.problem(format!("etcd {release} has no such logger"))
                .hint("remove it, or write `zap`"),
        ),
        ("v2-deprecation", "not-yet") if release >= e(6) => Some(
            at.problem(format!("etcd {release} does not take this value"))
                .hint("remove it"),
        ),
        _ => None,
    }
}

/// KMS v1 in an `EncryptionConfiguration`.
pub(super) fn kms(api: &Cursor<'_>, runs: Runs, args: &[Arg<'_>], found: &mut Found) {
    if runs.release < k(29) || lists::is_on(args, "KMSv1") {
        return;
    }
    let custom = api.get("secrets_encryption_config").get("custom_config");
    for entry in custom.get("resources").items() {
        for provider in entry.get("providers").items() {
            let kms = provider.get("kms");
            let version = kms.get("apiVersion");
            if kms.is_written() && version.scalar() != Some("v2") {
                let problem = version.problem("KMS v1 is off since Kubernetes 1.29");
                runs.say(
                    problem.hint(
                        "write `apiVersion: v2`, or `feature-gates: KMSv1=true` under `services.kube-api.extra_args`",
                    ),
                    found,
                );
            }
        }
    }
}
