//! kubelet: a container that works in the node's own file system. Pure.
//!
//! The image's kubelet is one static program. The container opens it, enters the node's root (an
//! rshared bind of `/`) and executes what it opened. hostPath checks, mounts, NFS and CSI then
//! behave as if kubelet were installed on the node, and replacing the container leaves pods running.
//!
//! Where do I add a setting? Into the configuration file below if it has a field there. Flags are
//! for what has none. A user's `extra_args` are flags, and kubelet itself lets flags win.

use std::fmt::Write as _;

use super::{
    DesiredError,
    host_context::{Files, HostContext, PUBLIC, TLS_CIPHERS, announced},
    node,
    pki::CertKind,
    service::{Flags, Service, View},
};
use crate::{
    config::{Dns, Services},
    model::{Bind, ContainerSpec, Owner, path},
};

const HOST: &str = "/host";

/// Runs in the image with bash, which with coreutils is all that is sure there. `$0` is the
/// program's name. The search path is the node's from there on: mount and iptables are the node's.
/// A process is called as the file that it was started from: a link of kubelet's name, or it would
/// be called `3`.
const FIND: &str = "set -e; exec 3< \"$(command -v \"$0\")\"; \
    mkdir -p /host/run/rke-operator; ln -sfn /proc/self/fd/3 /host/run/rke-operator/kubelet; ";
/// Behind [`FIND`].
const ENTER: &str = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; \
    exec chroot /host /run/rke-operator/kubelet \"$@\"";

/// Lets kubelet find the logins to registries, where it has none yet: a file that someone else wrote stays in use.
fn enter(context: &HostContext<'_>) -> String {
    if context.intent.registries.logins.is_empty() {
        return [FIND, ENTER].concat();
    }
    let (logins, file) = (path::KUBELET_LOGINS, path::REGISTRIES);
    let root = path::KUBELET;
    let link = format!(
        "mkdir -p -m 750 {HOST}{root}; [ -e {HOST}{logins} ] || ln -sfn {file} {HOST}{logins}; "
    );
    [FIND, &link, ENTER].concat()
}

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let mut files = Files::new();
    let kubeconfig = context.kubeconfig(CertKind::Node, &mut files)?;
    let config = format!("{}/kubelet.yaml", path::KUBERNETES);
    let text = configuration(context, &mut files)?;
    files.insert(config.clone(), context.file(text, PUBLIC));
    let mut flags = Flags::from([
        ("config", config),
        ("hostname-override", context.name.to_string()),
        ("kubeconfig", kubeconfig),
        ("root-dir", path::KUBELET.to_owned()),
        ("v", "2".to_owned()),
    ]);
    if context.intent.cloud_provider.is_some() {
        flags.set("cloud-provider", "external");
    }
    if let Some(address) = node_ip(context) {
        flags.set("node-ip", address);
    }
    Service {
        key: "kubelet",
        image: &context.intent.images.kubernetes,
        extras: &context.intent.services.kubelet,
        entrypoint: ["bash", "-c", &enter(context), "kubelet"]
            .map(str::to_owned)
            .to_vec(),
        flags,
        bootstrap: Flags::default(),
        files,
        view: View::Host,
        binds: vec![Bind {
            source: "/".to_owned(),
            target: HOST.to_owned(),
            options: "rshared".to_owned(),
        }],
        mounts: Vec::new(),
        env: [].into(),
        user: Owner::ROOT,
        privileged: true,
        host_pid: true,
        host_cgroupns: true,
    }
    .finish(context)
}

/// The value of kubelet's `--node-ip`: `None` where kubelet would choose the same by default.
fn node_ip(context: &HostContext<'_>) -> Option<String> {
    if context.node.has_internal_address {
        return Some(context.node.internal_address.to_string());
    }
    let system = &context.facts?.system;
    announced(context.intent, context.name, context.node, system)
        .filter(|address| system.route_address.as_ref() != Some(address))
}

/// Where pods ask for names: the cache of their node where there is one, as far as the config tells.
fn dns_server(context: &HostContext<'_>) -> String {
    let cache = match &context.intent.dns {
        Dns::CoreDns(dns) => dns.node_local.as_ref(),
        Dns::None => None,
    };
    let labels = node::meta(context.node).labels;
    let here = cache.filter(|cache| node::is_selected(&labels, &cache.node_selector));
    here.map_or_else(
        || context.intent.services.cluster_dns_server.to_string(),
        |cache| cache.address.to_string(),
    )
}

/// kubelet's configuration file; the files that it names are added to `files`.
fn configuration(context: &HostContext<'_>, files: &mut Files) -> Result<String, DesiredError> {
    let services = &context.intent.services;
    let ca = context.cluster_ca(files);
    let (cert, key) = context.pair(CertKind::Kubelet, files)?;
    let driver = context.cgroup_driver()?;
    let resolv_conf = context
        .facts
        .map(|facts| facts.system.resolv_conf.as_str())
        .filter(|path| !path.is_empty())
        .unwrap_or("/etc/resolv.conf");
    let ciphers = TLS_CIPHERS
        .split(',')
        .fold(String::new(), |mut list, name| {
            // Writing to a string cannot fail.
            let _ = writeln!(list, "- {name}");
            list
        });
    let mut text = format!(
        "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: {ca}
authorization:
  mode: Webhook
cgroupDriver: {driver}
clusterDNS:
- {dns}
clusterDomain: {domain}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
eventRecordQPS: 0
failSwapOn: {fail_swap_on}
readOnlyPort: 0
resolvConf: {resolv_conf}
streamingConnectionIdleTimeout: 30m0s
tlsCertFile: {cert}
tlsCipherSuites:
{ciphers}tlsPrivateKeyFile: {key}
volumePluginDir: {root}/volumeplugins
",
        driver = driver.name(),
        dns = serde_json::Value::from(dns_server(context)),
        domain = services.cluster_domain,
        fail_swap_on = services.fail_swap_on,
        resolv_conf = serde_json::Value::from(resolv_conf),
        root = path::KUBELET,
    );
    let cgroup_v1 = context.facts.is_some_and(|f| f.docker.cgroup_version == 1);
    if cgroup_v1 && context.intent.version.minor >= 35 {
        // From 1.35 on the default is to refuse. Earlier releases do not all know the field.
        text.push_str("failCgroupV1: false\n");
    }
    let taints = node::taints(context.node);
    if !taints.is_empty() {
        text.push_str("registerWithTaints:\n");
        for taint in taints {
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let _ = writeln!(
                text,
                "- key: {}\n  value: {}\n  effect: {}",
                quoted(&taint.key),
                quoted(&taint.value),
                quoted(&taint.effect)
            );
        }
    }
    Ok(text)
}

/// True where kubelet does not start on a node with swap.
pub(super) fn forbids_swap(services: &Services) -> bool {
    let flag = services.kubelet.extra_args.get("fail-swap-on");
    flag.map_or(services.fail_swap_on, |value| {
        !value.eq_ignore_ascii_case("false")
    })
}
