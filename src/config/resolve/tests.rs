//! Each bad input with the exact words a person gets for it.

use std::{cell::RefCell, path::PathBuf};

use insta::assert_snapshot;
use jiff::Timestamp;

use crate::{
    catalog::Catalogue,
    config::{
        Certificate, DefaultKey, Intent, Problems, Refusal, Resolved, RkeConfig, SecretSources,
        Sources, SshConfig, SshHost, SshKey, SshQuery,
    },
    model::{DrainRules, KubernetesVersion, MaxUnavailable, UpgradeStrategy},
};

/// A private key made for this run.
pub(super) fn pem() -> String {
    rcgen::KeyPair::generate()
        .expect("a key pair")
        .serialize_pem()
}

/// Files by path, as the command line would give them.
pub(super) struct Files {
    pub(super) pem: String,
    pub(super) certificate: String,
    /// It is next to the key, too.
    pub(super) is_adjacent: bool,
    pub(super) now: Option<Timestamp>,
    pub(super) agent: Option<PathBuf>,
    pub(super) asked: RefCell<Vec<String>>,
    pub(super) ssh: SshConfig,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            pem: pem(),
            certificate: String::new(),
            is_adjacent: false,
            now: None,
            agent: None,
            asked: RefCell::default(),
            ssh: SshConfig::default(),
        }
    }
}

impl Sources for Files {
    fn manifest_at(&self, place: &str) -> Result<String, Refusal> {
        match place {
            "missing.yaml" => Err(Refusal {
                message: "the manifest does not exist".to_owned(),
                detail: Some(place.to_owned()),
                hint: None,
            }),
            _ => Ok("{apiVersion: v1, kind: ConfigMap, metadata: {name: included}}".to_owned()),
        }
    }

    fn authority_at(&self, path: &str) -> Result<String, Refusal> {
        match path {
            "missing.pem" => Err(Refusal {
                message: "the file of the authority cannot be read".to_owned(),
                detail: Some(path.to_owned()),
                hint: None,
            }),
            _ => Ok(format!("-----BEGIN CERTIFICATE-----\n{path}\n")),
        }
    }

    fn key_at(&self, path: &str) -> Result<SshKey, Refusal> {
        self.asked.borrow_mut().push(path.to_owned());
        let pem = match path {
            "key.pub" => "ssh-ed25519 AAAAC3Nza me@here".to_owned(),
            "missing" => {
                return Err(Refusal {
                    message: "the private key file does not exist".to_owned(),
                    detail: Some("missing: No such file or directory".to_owned()),
                    hint: None,
                });
            }
            _ => self.pem.clone(),
        };
        Ok(SshKey {
            pem: pem.into(),
            source: path.to_owned(),
        })
    }

    fn lacks_key(&self, path: &str) -> bool {
        path == "missing"
    }

    fn ssh_host(&self, query: &SshQuery) -> Option<SshHost> {
        self.ssh.host(query).cloned()
    }

    fn default_key_path(&self) -> &'static str {
        "ssh_key_path"
    }

    fn default_key(&self) -> Result<DefaultKey, Refusal> {
        self.key_at("~/.ssh/id_rsa").map(DefaultKey::Key)
    }

    fn certificate_next_to(&self, path: &str) -> Option<Result<Certificate, Refusal>> {
        self.is_adjacent
            .then(|| self.certificate_at(&format!("{path}-cert.pub")))
    }

    fn file_of(&self, source: &str) -> Option<PathBuf> {
        (source != "ssh_key" && source != "ssh_cert")
            .then(|| PathBuf::from(format!("/home/me/{source}")))
    }

    fn now(&self) -> Option<Timestamp> {
        self.now
    }

    fn certificate_at(&self, path: &str) -> Result<Certificate, Refusal> {
        if path == "missing-cert.pub" {
            return Err(Refusal {
                message: "the certificate file cannot be read".to_owned(),
                detail: Some("missing-cert.pub: No such file or directory".to_owned()),
                hint: None,
            });
        }
        Ok(Certificate {
            text: self.certificate.clone(),
            source: path.to_owned(),
        })
    }

    fn agent(&self) -> Result<Option<PathBuf>, Refusal> {
        Ok(self.agent.clone())
    }

    fn default_user(&self) -> Result<String, Refusal> {
        Ok("me".to_owned())
    }

    fn allows_inline_key(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

/// A config that is right, to be spoiled.
pub(super) const GOOD: &str = "\
nodes:
  - address: 192.0.2.10
    user: ubuntu
    role: [controlplane, etcd, worker]
network: {plugin: flannel}
ingress: {provider: none}
monitoring: {provider: none}
";

pub(super) fn resolve(yaml: &str) -> Result<Resolved, Problems> {
    resolve_with(yaml, &Files::new())
}

fn resolve_with(yaml: &str, files: &Files) -> Result<Resolved, Problems> {
    RkeConfig::parse(yaml).and_then(|config| Intent::from_config(&config, files))
}

pub(super) fn good(yaml: &str) -> Resolved {
    good_with(yaml, &Files::new())
}

pub(super) fn good_with(yaml: &str, files: &Files) -> Resolved {
    match resolve_with(yaml, files) {
        Ok(resolved) => resolved,
        Err(problems) => panic!("{}", problems.render("cluster.yml", yaml, false)),
    }
}

/// One line a problem: what may go into a status, then what only a terminal shows.
pub(super) fn bad(yaml: &str) -> String {
    bad_with(yaml, &Files::new())
}

pub(super) fn bad_with(yaml: &str, files: &Files) -> String {
    let problems = resolve_with(yaml, files).expect_err("a problem");
    let lines = problems.iter().map(|problem| {
        let detail = problem.detail.as_ref().map(|text| format!(" | {text}"));
        let hint = problem.hint.as_ref().map(|text| format!("\n  {text}"));
        format!(
            "{problem}{}{}",
            detail.unwrap_or_default(),
            hint.unwrap_or_default()
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The good config with one line replaced.
pub(super) fn with(line: &str, instead: &str) -> String {
    assert!(GOOD.contains(line), "{line}");
    GOOD.replace(line, instead)
}

/// The good config with more keys for its node.
pub(super) fn node(more: &str) -> String {
    with(
        "    user: ubuntu\n",
        &format!("    user: ubuntu\n    {more}\n"),
    )
}

/// The good config with more at its end.
pub(super) fn and(more: &str) -> String {
    format!("{GOOD}{more}\n")
}

#[test]
fn defaults_are_those_of_rke() {
    let Resolved {
        intent, warnings, ..
    } = good(GOOD);
    assert_eq!(warnings, []);
    assert_eq!(intent.cluster_name, "local");
    assert_eq!(intent.version.to_string(), "v1.34.4");
    assert_eq!(intent.services.cluster_cidr.to_string(), "10.42.0.0/16");
    assert_eq!(
        intent.services.service_cluster_ip_range.to_string(),
        "10.43.0.0/16"
    );
    assert_eq!(intent.services.service_node_port_range, (30000, 32767));
    assert_eq!(intent.services.cluster_dns_server.to_string(), "10.43.0.10");
    assert_eq!(intent.services.cluster_domain, "cluster.local");
    assert!(!intent.services.fail_swap_on);
    let (name, node) = intent.nodes.first_key_value().expect("a node");
    assert_eq!(name.0, "192.0.2.10");
    assert_eq!(node.endpoint.port, 22);
    assert_eq!(node.internal_address, "192.0.2.10".into());
    assert!(!node.has_internal_address);
    assert_eq!(node.login.docker_socket, "/var/run/docker.sock");
    assert_eq!(node.login.key_source, "~/.ssh/id_rsa");
}

#[test]
fn scalars_are_read_as_they_are_written() {
    let yaml = node("labels: {a: no, b: 010, c: 1.30, d: ~, e: 'yes'}\n    port: '2222'");
    let Resolved { intent, .. } = good(&yaml);
    let node = intent.nodes.values().next().expect("a node");
    let labels: Vec<_> = node
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(labels, ["a=no", "b=010", "c=1.30", "d=", "e=yes"]);
    assert_eq!(node.endpoint.port, 2222);
}

#[test]
fn a_document_that_is_none() {
    assert_snapshot!(bad(""), @"
    the config is empty
      it needs at least `nodes`, with an address, a user and roles for each node
    ");
    assert_snapshot!(bad("# nothing\n"), @"
    the config is empty
      it needs at least `nodes`, with an address, a user and roles for each node
    ");
    assert_snapshot!(bad("- a\n- b\n"), @"the config is a list, not a mapping of keys");
    assert_snapshot!(bad("nodes: [\n"), @"line 1: the document is not valid YAML | unclosed bracket '['");
    assert_snapshot!(bad("nodes:\n\t- address: a\n"), @"
    line 2: the document is not valid YAML | tabs disallowed within this context (block indentation)
      indent with spaces
    ");
    assert_snapshot!(bad("cluster_name: 'half\n"), @"line 2: the document is not valid YAML | invalid indentation in multiline quoted scalar");
    assert_snapshot!(bad(&and("---\ncluster_name: two")), @"
    line 8: the file holds more than one document
      remove the `---`
    ");
    assert_snapshot!(bad(&and("addons: *nowhere")), @"line 8: the document is not valid YAML: an alias (`*name`) has no anchor (`&name`) before it | alias references unknown anchor");
}

#[test]
fn keys_that_are_unknown_or_set_twice() {
    assert_snapshot!(bad(&node("rol: [etcd]")), @"
    `nodes[0].rol` (line 4): unknown key
      did you mean `role`?
    ");
    assert_snapshot!(bad(&and("Cluster-Name: x")), @"
    `Cluster-Name` (line 8): unknown key
      did you mean `cluster_name`?
    ");
    assert_snapshot!(bad(&and("cluster_cidr: 10.0.0.0/16")), @"
    `cluster_cidr` (line 8): unknown key
      `cluster_cidr` belongs under `services.kube-controller`
    ");
    assert_snapshot!(bad(&and("gateway: x")), @"
    `gateway` (line 8): unknown key
      remove it: RKE has no such key, and ignores it
    ");
    assert_snapshot!(bad(&and("cluster_name: a\ncluster_name: b")), @"
    `cluster_name` (line 9): this key is already set in line 8
      keep one of the two
    ");
    assert_snapshot!(bad(&node("labels: {a: b, a: c}")), @"
    `nodes[0].labels.a` (line 4): this key is already set in line 4
      keep one of the two
    ");
    assert_snapshot!(bad(&and("services: {kubeapi: {}}")), @"
    `services.kubeapi` (line 8): unknown key
      did you mean `kube-api`?
    ");
}

#[test]
fn values_of_the_wrong_type() {
    assert_snapshot!(bad(&with("[controlplane, etcd, worker]", "etcd")), @"
    `nodes[0].role` (line 4): must be a list, not a single value
      write it in brackets, as in `role: [worker]`
    ");
    assert_snapshot!(bad("nodes: {a: b}\nnetwork: []\ningress: none\nmonitoring: {provider: none}"), @"
    `nodes` (line 1): must be a list, not a mapping
    `network` (line 2): must be a mapping, not a list
    `ingress` (line 3): must be a mapping, not a single value
      write `ingress: {provider: none}`
    ");
    assert_snapshot!(bad(&node("port: ssh")), @"`nodes[0].port` (line 4): must be a port, 1 to 65535 | ssh");
    assert_snapshot!(bad(&node("port: 65536")), @"`nodes[0].port` (line 4): must be a port, 1 to 65535 | 65536");
    assert_snapshot!(bad(&node("labels: [a]\n    taints: {a: b}")), @"
    `nodes[0].labels` (line 4): must be a mapping, not a list
    `nodes[0].taints` (line 5): must be a list, not a mapping
    ");
    assert_snapshot!(bad(&and("").replace("monitoring: {provider: none}", "monitoring: {replicas: -1, options: {--v: 2}, node_selector: {a b: c}, tolerations: [{operator: In}, {key: a b, effect: Now}, {value: b}, {key: a, operator: Exists, value: b, tolerationseconds: 5}]}")), @r#"
    `monitoring.replicas` (line 7): must be a whole number, 0 or more | -1
    `monitoring.options.--v` (line 7): is not the name of a flag
      write it without the dashes
    `monitoring.node_selector["a b"]` (line 7): is not the key of a label
      `name` or `prefix/name`; the name has at most 63 letters, digits, `-`, `_` and `.`
    `monitoring.tolerations[0].operator` (line 7): unknown operator | In
      write `Exists` or `Equal`
    `monitoring.tolerations[1].key` (line 7): is not the key of a taint | a b
      `name` or `prefix/name`; the name has at most 63 letters, digits, `-`, `_` and `.`
    `monitoring.tolerations[1].effect` (line 7): unknown effect | Now
      the effects are `NoSchedule`, `PreferNoSchedule`, `NoExecute`
    `monitoring.tolerations[2]` (line 7): a toleration of every taint has `operator: Exists`
    `monitoring.tolerations[3].value` (line 7): is not allowed with `operator: Exists`
    `monitoring.tolerations[3].tolerationseconds` (line 7): has no meaning without `effect: NoExecute`
    "#);
    assert_snapshot!(bad(&and("services: {kube-api: {pod_security_configuration: baseline, always_pull_images: 2, audit_log: {configuration: {max_age: -1, format: xml, policy: {kind: Rules, rules: [{level: All}, {}]}}}, event_rate_limit: {configuration: {apiVersion: v1, limits: 5}}, admission_configuration: {plugins: [{path: /a}, {name: b}, {name: b}]}, extra_args_array: {v: 4, --v: [1], w: [[]]}}}\nauthentication: {sans: ['a b', '10.0.0', '*.example.com', 'fd00::1']}")), @"
    `services.kube-api.pod_security_configuration` (line 8): is not a level of RKE's | baseline
      write `privileged` or `restricted`
    `services.kube-api.always_pull_images` (line 8): must be `true` or `false` | 2
    `services.kube-api.audit_log.configuration.max_age` (line 8): must be a whole number, 0 or more | -1
    `services.kube-api.audit_log.configuration.format` (line 8): is not a format of the audit log | xml
      write `json` or `legacy`
    `services.kube-api.audit_log.configuration.policy.kind` (line 8): is not the expected value | Rules
      write `Policy`
    `services.kube-api.audit_log.configuration.policy.rules` (line 8): must be a list of mappings, at least one
    `services.kube-api.audit_log.configuration.policy.rules[0].level` (line 8): is not a level of the audit log | All
      write one of `None`, `Metadata`, `Request`, `RequestResponse`
    `services.kube-api.audit_log.configuration.policy.rules[1].level` (line 8): is not a level of the audit log
      write one of `None`, `Metadata`, `Request`, `RequestResponse`
    `services.kube-api.event_rate_limit.configuration.apiVersion` (line 8): is not the expected value | v1
      write `eventratelimit.admission.k8s.io/v1alpha1`
    `services.kube-api.event_rate_limit.configuration.limits` (line 8): must be a list of mappings, at least one
    `services.kube-api.admission_configuration.plugins[0].name` (line 8): a plugin needs a name
    `services.kube-api.admission_configuration.plugins[1].name` (line 8): kube-apiserver has no such admission plugin | b
      remove it: the API server would not start with it
    `services.kube-api.admission_configuration.plugins[2].name` (line 8): another plugin has this name | b
    `services.kube-api.admission_configuration.plugins[2].name` (line 8): kube-apiserver has no such admission plugin | b
      remove it: the API server would not start with it
    `services.kube-api.extra_args_array.v` (line 8): must be a list, not a single value
    `services.kube-api.extra_args_array.--v` (line 8): is not the name of a flag
      write it without the dashes
    `services.kube-api.extra_args_array.w` (line 8): kube-apiserver has no such flag
      did you mean `v`?
    `services.kube-api.extra_args_array.w[0]` (line 8): must be a single value, not a list
    `authentication.sans[0]` (line 9): is neither a DNS name nor an address | a b
    `authentication.sans[1]` (line 9): is neither a DNS name nor an address | 10.0.0
    ");
    assert_snapshot!(bad(&and("services: {kubelet: {fail_swap_on: perhaps}}")), @"`services.kubelet.fail_swap_on` (line 8): must be `true` or `false` | perhaps");
    let strategy = |text: &str| bad(&and(&format!("upgrade_strategy: {{{text}}}")));
    assert_snapshot!(strategy("max_unavailable_worker: 0"), @"`upgrade_strategy.max_unavailable_worker` (line 8): must be a number of nodes, 1 or more, or a percentage, `1%` to `100%` | 0");
    assert_snapshot!(strategy("max_unavailable_controlplane: 101%"), @"`upgrade_strategy.max_unavailable_controlplane` (line 8): must be a number of nodes, 1 or more, or a percentage, `1%` to `100%` | 101%");
    assert_snapshot!(strategy("node_drain_input: {timeout: -1}"), @"`upgrade_strategy.node_drain_input.timeout` (line 8): must be a number of seconds, 1 or more");
    assert_snapshot!(strategy("node_drain_input: {grace_period: soon}"), @"`upgrade_strategy.node_drain_input.grace_period` (line 8): must be a number of seconds | soon");
    assert_snapshot!(bad(&and("cluster_name: {a: b}")), @"`cluster_name` (line 8): must be a single value, not a mapping");
}

/// C17: whatever a person writes in the place of the section.
#[test]
fn a_single_value_in_the_place_of_a_section() {
    for (written, hint) in [
        ("network: flannel", "write `network: {plugin: flannel}`"),
        (
            "network: cilium",
            "write `network: {plugin: …}`; `plugin` is one of `canal`, `flannel`, `calico`, `none`",
        ),
        ("ingress: false", "write `ingress: {provider: none}`"),
        ("monitoring: off", "write `monitoring: {provider: none}`"),
        (
            "authorization: rbac",
            "write `authorization: {mode: …}`, with the value there",
        ),
        (
            "bastion_host: jump",
            "write `bastion_host: {address: …}`, with the value there",
        ),
    ] {
        let said = bad(&format!("nodes: [{{address: a, user: b}}]\n{written}\n"));
        assert!(said.contains(hint), "{written}: {said}");
    }
}

#[test]
fn nodes_and_roles() {
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: ''")), @"`nodes[0].address` (line 2): a node needs an address");
    assert_snapshot!(bad(&with("[controlplane, etcd, worker]", "[controlplane, worker, master]")), @"
    `nodes[0].role[2]` (line 4): unknown role | master
      this is `controlplane` here; the roles are `controlplane`, `etcd` and `worker`
    ");
    assert_snapshot!(bad(&with("[controlplane, etcd, worker]", "[etcd]")), @"
    `nodes` (line 1): no node has the role `controlplane`
      add `controlplane` to the `role` of a node
    ");
    assert_snapshot!(bad("nodes: []\nnetwork: {plugin: none}\ningress: {provider: none}\nmonitoring: {provider: none}"), @"
    `nodes` (line 1): there is no node
      each node needs an `address` and a `role`
    ");
    let named =
        "  - {address: node2, hostname_override: 192.0.2.10, user: root, role: [worker]}\nnetwork:";
    assert_snapshot!(bad(&with("network:", named)), @"`nodes[1].hostname_override` (line 5): `nodes[0]` (line 2) has this name, too | 192.0.2.10");
    let twice = "  - address: 192.0.2.10\n    user: root\n    role: [worker]\nnetwork:";
    assert_snapshot!(bad(&with("network:", twice)), @"
    `nodes[1].address` (line 5): `nodes[0]` (line 2) has this address, too | 192.0.2.10
      list each node once; nodes behind one address need a `port` each, an `internal_address` and a `hostname_override`
    ");
}

#[test]
fn addresses_and_names() {
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: 192.0.2.300")), @"`nodes[0].address` (line 2): is neither a host name nor an IP address | 192.0.2.300");
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: 0.0.0.0")), @"`nodes[0].address` (line 2): is no address of a single machine | 0.0.0.0");
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: 192.0.2.10:22")), @"
    `nodes[0].address` (line 2): is neither a host name nor an IP address | 192.0.2.10:22
      write the port in `port`
    ");
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: root@node1")), @"
    `nodes[0].address` (line 2): is neither a host name nor an IP address | root@node1
      write the user in `user`
    ");
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: '2001:db8::1'")), @"
    `nodes[0].address` (line 2): is an IPv6 address, which only SSH can use | 2001:db8::1
      write the node's IPv4 address, at which other nodes reach it, in `internal_address`
    `nodes[0].address` (line 2): is an IPv6 address, which cannot be the node's name as well | 2001:db8::1
      write a name in `hostname_override`, such as `node-1`
    ");
    assert_snapshot!(bad(&node("internal_address: node1.internal")), @"
    `nodes[0].internal_address` (line 4): must be an IPv4 address | node1.internal
      kubelet, etcd and the API server advertise it: a host name cannot be used
    ");
    assert_snapshot!(bad(&node("hostname_override: my_node")), @"
    `nodes[0].hostname_override` (line 4): is not a valid node name | my_node
      at most 63 letters, digits, `-` and `.`, beginning and ending with a letter or digit
    ");
    assert_snapshot!(bad(&node("docker_socket: unix:///var/run/docker.sock")), @"
    `nodes[0].docker_socket` (line 4): must be an absolute path on the node | unix:///var/run/docker.sock
      leave the `unix://` out
    ");
    assert_snapshot!(bad(&with("user: ubuntu", "user: the admin")), @"`nodes[0].user` (line 3): a user has no spaces in its name | the admin");
    assert_snapshot!(bad(&with("address: 192.0.2.10", "address: 10.42.0.7")), @"
    `nodes[0].address` (line 2): lies inside of `services.kube-controller.cluster_cidr` | 10.42.0.7 in 10.42.0.0/16
      pods, services and nodes need separate ranges
    ");
    assert_snapshot!(bad(&and("cluster_name: ' a '")), @"`cluster_name` (line 8): must be one line of at most 253 characters without spaces at its ends |  a");
}

#[test]
fn labels_and_taints() {
    assert_snapshot!(bad(&node("labels: {'a b': c, good: 'not good', 'node-role.kubernetes.io/etcd': 'no'}")), @r#"
    `nodes[0].labels["a b"]` (line 4): is not the key of a label
      `name` or `prefix/name`; the name has at most 63 letters, digits, `-`, `_` and `.`
    `nodes[0].labels.good` (line 4): is not the value of a label | not good
      at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit
    `nodes[0].labels["node-role.kubernetes.io/etcd"]` (line 4): this label is set by `role`
      remove it
    "#);
    assert_snapshot!(bad(&node("taints: [{key: a, effect: Never}, {value: b}, {key: 'a b', value: 'c d', effect: NoExecute}, {kye: a}]")), @"
    `nodes[0].taints[0].effect` (line 4): unknown effect | Never
      the effects are `NoSchedule`, `PreferNoSchedule`, `NoExecute`
    `nodes[0].taints[1].key` (line 4): a taint needs a key
    `nodes[0].taints[1].effect` (line 4): a taint needs an effect
    `nodes[0].taints[2].key` (line 4): is not the key of a taint | a b
      `name` or `prefix/name`; the name has at most 63 letters, digits, `-`, `_` and `.`
    `nodes[0].taints[2].value` (line 4): is not the value of a taint | c d
      at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit
    `nodes[0].taints[3].key` (line 4): a taint needs a key
    `nodes[0].taints[3].effect` (line 4): a taint needs an effect
    `nodes[0].taints[3].kye` (line 4): unknown key
      did you mean `key`?
    ");
}

#[test]
fn keys_that_log_in() {
    assert_snapshot!(bad(&node("ssh_key_path: missing")), @"`nodes[0].ssh_key_path` (line 4): the private key file does not exist | missing: No such file or directory");
    assert_snapshot!(bad(&node("ssh_key_path: key.pub")), @"
    `nodes[0].ssh_key_path` (line 4): this is a public key | key.pub
      name the private one: the file without `.pub`
    ");
    assert_snapshot!(bad(&node("ssh_key: secret")), @"
    `nodes[0].ssh_key` (line 4): this is not a private key
      a private key begins with `-----BEGIN … PRIVATE KEY-----`
    ");
    assert_snapshot!(bad(&and("ssh_key_path: missing")), @"`ssh_key_path` (line 8): the private key file does not exist | missing: No such file or directory");
}

#[test]
fn the_nearest_key_wins_and_is_read_once() {
    let files = Files::new();
    let yaml = and("ssh_key_path: cluster");
    let config = RkeConfig::parse(&yaml).expect("a config");
    let resolved = Intent::from_config(&config, &files).expect("an intent");
    let login = &resolved.intent.nodes.values().next().expect("a node").login;
    assert_eq!(login.key_source, "cluster");
    assert_eq!(*files.asked.borrow(), ["cluster"]);

    let yaml = format!("{}ssh_key_path: cluster\n", node("ssh_key_path: node"));
    let login = good(&yaml)
        .intent
        .nodes
        .into_values()
        .next()
        .expect("a node")
        .login;
    assert_eq!(login.key_source, "node");

    let inline = format!("\n{}", pem().trim_end()).replace('\n', "\n      ");
    let yaml = node(&format!("ssh_key_path: node\n    ssh_key: |-{inline}"));
    let login = good(&yaml)
        .intent
        .nodes
        .into_values()
        .next()
        .expect("a node")
        .login;
    assert_eq!(login.key_source, "ssh_key");
}

#[test]
fn an_object_may_not_name_files_or_hold_keys() {
    let sources = SecretSources::new("minimal-ssh", pem().into());
    let validate = |json: serde_json::Value| {
        RkeConfig::from_json(&json).and_then(|config| Intent::from_config(&config, &sources))
    };
    let mut json = serde_json::json!({
        "nodes": [{"address": "192.0.2.10", "user": "ubuntu", "port": 22,
                   "role": ["controlplane", "etcd", "worker"]}],
        "network": {"plugin": "flannel"},
        "ingress": {"provider": "none"},
        "monitoring": {"provider": "none"},
    });
    let resolved = validate(json.clone()).expect("an intent");
    let login = &resolved.intent.nodes.values().next().expect("a node").login;
    assert_eq!(login.key_source, "minimal-ssh");

    json["ssh_key_path"] = "/etc/shadow".into();
    let error = validate(json.clone()).expect_err("a problem");
    assert_snapshot!(error, @"the config is not valid: `ssh_key_path`: a `Cluster` object cannot name a file");
    json["nodes"][0]["ssh_key"] = pem().into();
    let error = validate(json).expect_err("a problem");
    assert_snapshot!(error, @"the config is not valid: `nodes[0].ssh_key`: a private key has no place in a `Cluster` object");
    assert_snapshot!(validate(serde_json::json!([])).expect_err("a problem"), @"the config is not valid: the config is a list, not a mapping of keys");

    let sources = SecretSources::new("minimal-ssh", String::from("oops").into());
    let config = RkeConfig::parse(GOOD).expect("a config");
    assert_snapshot!(Intent::from_config(&config, &sources).expect_err("a problem"), @"the config is not valid: `spec.ssh.keySecretRef`: this is not a private key");
}

#[test]
fn versions() {
    for text in ["v1.34.4", "1.34.4", "v1.34.4+rke2r1", "v1.34.4-rancher1-1"] {
        let resolved = good(&and(&format!("kubernetes_version: {text}")));
        assert_eq!(resolved.intent.version.to_string(), "v1.34.4");
        assert_eq!(resolved.warnings, []);
    }
    let resolved = good(&and("kubernetes_version: v1.32.5-rancher1-1"));
    assert!(resolved.intent.images.kubernetes.contains("v1.32.5"));
    assert_snapshot!(resolved.warnings[0], @"`kubernetes_version` (line 8): v1.32.5 is in the catalogue, but not tested with this release of rke-operator");

    assert_snapshot!(bad(&and("kubernetes_version: 1.34")), @"
    `kubernetes_version` (line 8): is not a Kubernetes release | 1.34
      write one like `v1.34.4`; the newest of this minor is `v1.34.10`
    ");
    assert_snapshot!(bad(&and("kubernetes_version: latest")), @"
    `kubernetes_version` (line 8): is not a Kubernetes release | latest
      write one like `v1.34.4`
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.34.99")), @"
    `kubernetes_version` (line 8): this Kubernetes release is not in the catalogue | v1.34.99
      the nearest there is `v1.34.10`; the catalogue goes from v1.28.1 to v1.36.3
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.24.17-rancher1-1")), @"
    `kubernetes_version` (line 8): this Kubernetes release is not in the catalogue | v1.24.17-rancher1-1
      remove this key for `v1.34.4`, the default, or write another release from v1.28.1 to v1.36.3; a cluster that runs an older release cannot be taken over
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.40.0")), @"
    `kubernetes_version` (line 8): this Kubernetes release is not in the catalogue | v1.40.0
      the nearest there is `v1.36.3`; the catalogue goes from v1.28.1 to v1.36.3
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.34.4+rke2r9")), @"
    `kubernetes_version` (line 8): this build of the release is not in the catalogue | v1.34.4+rke2r9
      write `v1.34.4+rke2r1`, or `v1.34.4`
    ");
}

#[test]
fn address_ranges() {
    let api = |text: &str| and(&format!("services: {{kube-api: {{{text}}}}}"));
    let controller = |text: &str| and(&format!("services: {{kube-controller: {{{text}}}}}"));
    let kubelet = |text: &str| and(&format!("services: {{kubelet: {{{text}}}}}"));
    assert_snapshot!(bad(&controller("cluster_cidr: 10.42.0.0")), @"
    `services.kube-controller.cluster_cidr` (line 8): is not a valid CIDR | 10.42.0.0
      write one like `10.42.0.0/16`
    ");
    assert_snapshot!(bad(&controller("cluster_cidr: 10.42.0.0/33")), @"
    `services.kube-controller.cluster_cidr` (line 8): is not a valid CIDR | 10.42.0.0/33
      write one like `10.42.0.0/16`
    ");
    assert_snapshot!(bad(&controller("cluster_cidr: 10.42.0.0/28")), @"`services.kube-controller.cluster_cidr` (line 8): must be between /8 and /23 wide | 10.42.0.0/28");
    assert_snapshot!(bad(&controller("cluster_cidr: 'fd00::/56'")), @"`services.kube-controller.cluster_cidr` (line 8): IPv6 is not supported yet | fd00::/56");
    assert_snapshot!(bad(&controller("cluster_cidr: '10.42.0.0/16,fd00::/56'")), @"`services.kube-controller.cluster_cidr` (line 8): two address families are not supported yet | 10.42.0.0/16,fd00::/56");
    assert_snapshot!(bad(&controller("cluster_cidr: 10.43.128.0/17")), @"
    `services.kube-controller.cluster_cidr` (line 8): the ranges of pods (`cluster_cidr`) and services (`service_cluster_ip_range`) overlap | 10.43.128.0/17 and 10.43.0.0/16
      pods and services need separate ranges; RKE's are `10.42.0.0/16` and `10.43.0.0/16`
    ");
    assert_snapshot!(bad(&api("service_cluster_ip_range: 10.0.0.0/8")), @"
    `services.kube-api.service_cluster_ip_range` (line 8): must be between /12 and /28 wide | 10.0.0.0/8
    `services.kube-api.service_cluster_ip_range` (line 8): the ranges of pods (`cluster_cidr`) and services (`service_cluster_ip_range`) overlap | 10.42.0.0/16 and 10.0.0.0/8
      pods and services need separate ranges; RKE's are `10.42.0.0/16` and `10.43.0.0/16`
    ");
    assert_snapshot!(bad(&api("service_cluster_ip_range: 10.96.0.0/12")), @"
    `services.kubelet.cluster_dns_server` (line 8): not set, and RKE's default `10.43.0.10` lies outside of `service_cluster_ip_range` | the range is 10.96.0.0/12: write e.g. 10.96.0.10
      choose an address in that range; by convention the tenth
    ");
    assert_snapshot!(bad(&and("services: {kube-api: {service_cluster_ip_range: 10.96.0.0/16}, kube-controller: {service_cluster_ip_range: 10.97.0.0/16}, kubelet: {cluster_dns_server: 10.96.0.10}}")), @"
    `services.kube-controller.service_cluster_ip_range` (line 8): differs from `services.kube-api.service_cluster_ip_range` | 10.97.0.0/16, and there 10.96.0.0/16
      write the same range in both places, or in one
    ");
    assert_snapshot!(bad(&kubelet("cluster_dns_server: 10.44.0.10")), @"
    `services.kubelet.cluster_dns_server` (line 8): lies outside of `service_cluster_ip_range` | 10.44.0.10; the range is 10.43.0.0/16: write e.g. 10.43.0.10
      choose an address in that range; by convention the tenth
    ");
    assert_snapshot!(bad(&kubelet("cluster_dns_server: 10.43.0.1")), @"
    `services.kubelet.cluster_dns_server` (line 8): the first address of the service range is the API server's own | 10.43.0.1; write e.g. 10.43.0.10
      choose another address; by convention the tenth
    ");
    assert_snapshot!(bad(&kubelet("cluster_dns_server: dns")), @"
    `services.kubelet.cluster_dns_server` (line 8): is not an address | dns
      write one out of the service range
    ");
    assert_snapshot!(bad(&kubelet("cluster_domain: Cluster_Local")), @"
    `services.kubelet.cluster_domain` (line 8): is not a DNS domain | Cluster_Local
      write one like `cluster.local`
    ");
    assert_snapshot!(bad(&api("service_node_port_range: 32767-30000")), @"
    `services.kube-api.service_node_port_range` (line 8): is not a range of ports | 32767-30000
      write one like `30000-32767`
    ");

    let resolved = good(&controller("service_cluster_ip_range: 10.43.7.9/16"));
    assert_eq!(
        resolved
            .intent
            .services
            .service_cluster_ip_range
            .to_string(),
        "10.43.0.0/16"
    );
}

/// B6: drivers of volumes, logins of registries and the cleaning of a node know one folder.
#[test]
fn kubelets_folder_stays_where_it_is() {
    let kubelet = |text: &str| and(&format!("services: {{kubelet: {{{text}}}}}"));
    good(&kubelet("extra_args: {root-dir: /var/lib/kubelet/}"));
    for text in [
        "extra_args: {root-dir: /data/kubelet}",
        "extra_args_array: {root-dir: [/data/kubelet]}",
    ] {
        let said = bad(&kubelet(text));
        let words = ["root-dir` (line 8): kubelet's folder stays", "/etc/fstab"];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn flags_mounts_and_environment() {
    let kubelet = |text: &str| and(&format!("services: {{kubelet: {{{text}}}}}"));
    assert_snapshot!(bad(&kubelet("extra_args: {--v: 4, 'a b': c, list: [d]}")), @r#"
    `services.kubelet.extra_args.--v` (line 8): is not the name of a flag
      write it without the dashes
    `services.kubelet.extra_args["a b"]` (line 8): is not the name of a flag
    `services.kubelet.extra_args.list` (line 8): kubelet has no such flag
      remove it: kubelet would not start with it
    `services.kubelet.extra_args.list` (line 8): must be a single value, not a list
    "#);
    assert_snapshot!(bad(&kubelet("extra_binds: ['/a', 'a:/b', '/a:/b:ro:z', '/a:/b:fast', '/c:/d', '/e:/d/']")), @"
    `services.kubelet.extra_binds[0]` (line 8): is not a bind mount | /a
      `source:target` or `source:target:options`, both absolute paths, e.g. `/etc/ssl:/etc/ssl:ro`
    `services.kubelet.extra_binds[1]` (line 8): is not a bind mount | a:/b
      `source:target` or `source:target:options`, both absolute paths, e.g. `/etc/ssl:/etc/ssl:ro`
    `services.kubelet.extra_binds[2]` (line 8): is not a bind mount | /a:/b:ro:z
      `source:target` or `source:target:options`, both absolute paths, e.g. `/etc/ssl:/etc/ssl:ro`
    `services.kubelet.extra_binds[3]` (line 8): is not a bind mount | /a:/b:fast
      `source:target` or `source:target:options`, both absolute paths, e.g. `/etc/ssl:/etc/ssl:ro`
    `services.kubelet.extra_binds[4]` (line 8): kubelet sees a path of the node only where it is | /c:/d
      remove it, and name the node's own path in what uses it; or mount it there on the node itself
    `services.kubelet.extra_binds[5]` (line 8): another bind has this target | /e:/d/
    `services.kubelet.extra_binds[5]` (line 8): kubelet sees a path of the node only where it is | /e:/d/
      remove it, and name the node's own path in what uses it; or mount it there on the node itself
    ");
    assert_snapshot!(bad(&kubelet("extra_env: [PASSWORD, '=x', '']")), @"
    `services.kubelet.extra_env[0]` (line 8): is not `NAME=value`
    `services.kubelet.extra_env[1]` (line 8): is not `NAME=value`
    `services.kubelet.extra_env[2]` (line 8): must not be empty
    ");
}

#[test]
fn what_is_not_supported_yet() {
    assert_snapshot!(bad("nodes: [{address: 192.0.2.10, user: u, role: [etcd, controlplane, worker]}]
network: {plugin: weave}
dns: {provider: kube-dns}
ingress: {provider: haproxy}
monitoring: {provider: prometheus}"), @"
    `network.plugin` (line 2): weave is not supported: it was discontinued, and RKE removed it in 1.30
      write `plugin: canal`: a new cluster needs nothing else
    `dns.provider` (line 3): kube-dns is not supported: Kubernetes replaced it with CoreDNS in 1.13
      write `provider: coredns`: upstreamnameservers, stubdomains and the name of the Service stay as they are
    `ingress.provider` (line 4): unknown ingress controller | haproxy
      write `nginx`, `traefik`, or `none` to bring your own
    `monitoring.provider` (line 5): unknown provider | prometheus
      write `metrics-server` or `none`
    ");
    assert_snapshot!(bad(&and("\
private_registries: [{ecr_credential_plugin: {aws_access_key_id: a}}]
addons: |
  kind: Namespace
bastion_host: {address: 192.0.2.1, user: jump, pasword: x}
prefix_path: /opt/rke
ssh_agent_auth: true
rotate_certificates: {}
rotate_encryption_key: true
restore: {restore: true, snapshot_name: a}
cloud_provider: {name: aws, awsCloudProvider: {global: {zone: a}}}
upgrade_strategy: {max_unavailable_worker: 10%}
services:
  etcd:
    backup_config: {enabled: true, interval_hours: 12}
  kube-api:
    pod_security_configuration: restricted
    secrets_encryption_config: {enabled: true, custom_config: {kind: EncryptionConfiguration}}
  kubelet:
    infra_container_image: pause:1")), @"
    `private_registries[0].ecr_credential_plugin.aws_access_key_id` (line 8): is not supported
      remove it: let kubelet run a credential provider of AWS (`services.kubelet.extra_args`: `image-credential-provider-config`), or write a user and a password
    `addons` (line 9): document 1, line 1: has no `apiVersion`
    `addons` (line 9): document 1, line 1: has no `metadata.name`
    `bastion_host.pasword` (line 11): unknown key
      remove it: RKE has no such key, and ignores it
    `prefix_path` (line 12): is not supported yet
      remove `prefix_path`, or write `/`
    `rotate_certificates` (line 14): is not supported
      remove it: `rke-operator cert rotate` (a `Cluster` has the `ClusterOperation` of the type `RotateCertificates`) replaces certificates
    `rotate_encryption_key` (line 15): is not supported
      remove it: `rke-operator encrypt rotate-key` (a `Cluster` has the `ClusterOperation` of the type `RotateEncryptionKey`) replaces the key
    `restore` (line 16): is not supported
      remove it: `rke-operator etcd snapshot-restore --name NAME` (a `Cluster` has the `ClusterOperation` of the type `Restore`) restores a snapshot
    `cloud_provider.name` (line 17): no release here has a cloud provider of this name built in
      write `name: external`, and install the cloud's own controller manager and CSI driver
    `cloud_provider.awsCloudProvider` (line 17): is not supported
      Kubernetes has no cloud provider built in any more: write `name: external`, and give these settings to the cloud's own controller manager
    `services.kube-api.secrets_encryption_config.custom_config.resources` (line 24): must be a list of mappings, at least one
    `services.kubelet.infra_container_image` (line 26): is not supported
      write `pod_infra_container` under `system_images`
    ");
}

#[test]
fn nothing_is_ignored_in_silence() {
    let resolved = good(&and("\
services: {etcd: {snapshot: true}}
system_images: {kubernetes: 'rancher/hyperkube:v1.30.5-rancher1', alpine: 'rancher/rke-tools:v0.1.103', canal_node: 'registry.example.com/node:1', etcd: 'registry.example.com/etcd:3'}"));
    let warnings: Vec<_> = resolved.warnings.iter().map(ToString::to_string).collect();
    assert_snapshot!(warnings.join("\n"), @"
    `system_images` (line 9): RKE's own images are replaced by those of the catalogue for v1.30.5: `kubernetes`
    `system_images` (line 9): these images have no effect: their components are not deployed: `canal_node`
    `system_images.kubernetes` (line 9): v1.30.5 is in the catalogue, but not tested with this release of rke-operator
    ");
    assert!(
        resolved
            .intent
            .images
            .kubernetes
            .starts_with("rancher/hardened-kubernetes:")
    );
    assert_eq!(resolved.intent.images.etcd, "registry.example.com/etcd:3");

    let yaml = node(
        "taints: [{key: node-role.kubernetes.io/etcd, value: 'true', effect: NoExecute}, {key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]",
    );
    let resolved = good(&yaml);
    let warnings: Vec<_> = resolved.warnings.iter().map(ToString::to_string).collect();
    assert_snapshot!(warnings.join("\n"), @"
    `nodes[0].taints[0]` (line 4): left out: this taint is set by `role`
    `nodes[0].taints[2]` (line 4): left out: a taint with this key and effect stands above
    ");
    let node = resolved.intent.nodes.values().next().expect("a node");
    assert_eq!(node.taints.len(), 1);

    assert_snapshot!(bad(&and("system_images: {kubernets: a, wave: b, etcd: 'a b'}")), @"
    `system_images.kubernets` (line 8): unknown image name
      did you mean `kubernetes`?
    `system_images.wave` (line 8): unknown image name
      the names are those of RKE's `system_images`
    `system_images.etcd` (line 8): is not an image reference | a b
    ");
}

#[test]
fn anchors_and_merge_keys_work() {
    let yaml = "\
nodes:
  - &node
    address: 192.0.2.10
    user: ubuntu
    role: [controlplane, etcd, worker]
services:
  kubelet: &base
    extra_args: {v: 4}
  kubeproxy:
    <<: *base
    extra_env: [A=b]
network: {plugin: none}
ingress: {provider: none}
monitoring: {provider: none}
";
    let services = good(yaml).intent.services;
    assert_eq!(services.kubeproxy.extra_args["v"], "4");
    assert_eq!(services.kubeproxy.extra_env["A"].expose(), "b");
}

#[expect(
    clippy::too_many_lines,
    reason = "a table of bad inputs and their exact words"
)]
#[test]
fn a_status_shows_no_value_and_a_terminal_shows_the_line() {
    let yaml = "\
nodes:
  - address: 192.0.2.10
    user: my hunter2
    port: hunter2
    ssh_key: hunter2
    role: [hunter2]
    labels: {a: 'hunter2!'}
    docker_socket: hunter2
services:
  kubelet:
    extra_env: [hunter2]
    extra_binds: [hunter2]
    cluster_dns_server: hunter2
kubernetes_version: hunter2
network: {plugin: hunter2}
dns: {provider: hunter2}
private_registries: [{password: hunter2}]
";
    let problems = resolve(yaml).expect_err("problems");
    let hints = crate::error::Explain::hints(&problems).join("\n");
    assert!(!problems.to_string().contains("hunter2"), "{problems}");
    assert!(!hints.contains("hunter2"), "{hints}");
    assert_snapshot!(problems.render("cluster.yml", yaml, false), @"
    error: `nodes[0].user`: a user has no spaces in its name
     --> cluster.yml:3:11
      |
    3 |     user: my hunter2
      |           ^^^^^^^^^^

    error: `nodes[0].port`: must be a port, 1 to 65535
     --> cluster.yml:4:11
      |
    4 |     port: hunter2
      |           ^^^^^^^

    error: `nodes[0].ssh_key`: this is not a private key
     --> cluster.yml:5:14
      |
    5 |     ssh_key: ***
      |              ^^^
      |
      = help: a private key begins with `-----BEGIN … PRIVATE KEY-----`

    error: `nodes[0].role[0]`: unknown role
     --> cluster.yml:6:12
      |
    6 |     role: [hunter2]
      |            ^^^^^^^
      |
      = help: the roles are `controlplane`, `etcd` and `worker`

    error: `nodes[0].labels.a`: is not the value of a label
     --> cluster.yml:7:17
      |
    7 |     labels: {a: 'hunter2!'}
      |                 ^^^^^^^^^^
      |
      = help: at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit

    error: `nodes[0].docker_socket`: must be an absolute path on the node
     --> cluster.yml:8:20
      |
    8 |     docker_socket: hunter2
      |                    ^^^^^^^

    error: `services.kubelet.extra_env[0]`: is not `NAME=value`
      --> cluster.yml:11:17
       |
    11 |     extra_env: [***]
       |                 ^^^

    error: `services.kubelet.extra_binds[0]`: is not a bind mount
      --> cluster.yml:12:19
       |
    12 |     extra_binds: [hunter2]
       |                   ^^^^^^^
       |
       = help: `source:target` or `source:target:options`, both absolute paths, e.g. `/etc/ssl:/etc/ssl:ro`

    error: `services.kubelet.cluster_dns_server`: is not an address
      --> cluster.yml:13:25
       |
    13 |     cluster_dns_server: hunter2
       |                         ^^^^^^^
       |
       = help: write one out of the service range

    error: `kubernetes_version`: is not a Kubernetes release
      --> cluster.yml:14:21
       |
    14 | kubernetes_version: hunter2
       |                     ^^^^^^^
       |
       = help: write one like `v1.34.4`

    error: `network.plugin`: unknown network plugin
      --> cluster.yml:15:19
       |
    15 | network: {plugin: hunter2}
       |                   ^^^^^^^
       |
       = help: write `plugin: canal`, which is RKE's default, `flannel`, `calico`, or `none` to bring your own

    error: `dns.provider`: unknown DNS provider
      --> cluster.yml:16:17
       |
    16 | dns: {provider: hunter2}
       |                 ^^^^^^^
       |
       = help: write `provider: coredns`, or `provider: none` to bring your own

    error: `private_registries[0]`: has a `password` and no `user`
      --> cluster.yml:17:22
       |
    17 | private_registries: [{password: ***}]
       |                      ^
    ");
}

/// The good config with these nodes in place of its node.
fn nodes(entries: &[&str]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|entry| format!("  - {{user: u, {entry}}}\n"))
        .collect();
    let rest = GOOD.split_once("network:").expect("a network").1;
    format!("nodes:\n{}network:{rest}", entries.concat())
}

#[test]
fn many_nodes_with_any_roles_are_an_intent() {
    let Resolved {
        intent, warnings, ..
    } = good(&nodes(&[
        "address: a, role: [etcd]",
        "address: b, role: [controlplane]",
        "address: c, role: [worker]",
        "address: d, role: [etcd, worker]",
        "address: e, role: [etcd, controlplane]",
    ]));
    assert_eq!(warnings, []);
    assert_eq!(intent.nodes.len(), 5);
}

#[test]
fn many_nodes_need_each_role_and_distinct_addresses() {
    assert_snapshot!(bad(&nodes(&["address: a, role: [worker]", "address: b, role: [worker]", "address: c"])), @"
    `nodes` (line 1): no node has the role `etcd`
      add `etcd` to the `role` of a node
    `nodes` (line 1): no node has the role `controlplane`
      add `controlplane` to the `role` of a node
    `nodes[2].role` (line 4): a node needs a role
      write `role: [controlplane, etcd, worker]`
    ");
    assert_snapshot!(bad(&nodes(&[
        "address: 192.0.2.1, internal_address: 10.0.0.1, role: [etcd, controlplane]",
        "address: 192.0.2.2, internal_address: 10.0.0.1, role: [worker]",
        "address: 192.0.2.3, internal_address: 192.0.2.1, role: [worker]",
        "address: 192.0.2.1, role: [worker]",
        "address: 192.0.2.4, hostname_override: 192.0.2.2, role: [worker]",
    ])), @"
    `nodes[1].internal_address` (line 3): `nodes[0]` (line 2) has this address, too | 10.0.0.1
    `nodes[2].internal_address` (line 4): `nodes[0]` (line 2) has this address, too | 192.0.2.1
    `nodes[3].address` (line 5): `nodes[0]` (line 2) has this address, too | 192.0.2.1
      list each node once; nodes behind one address need a `port` each, an `internal_address` and a `hostname_override`
    ");
}

#[test]
fn an_even_number_of_etcd_members_is_warned_about() {
    let Resolved {
        intent, warnings, ..
    } = good(&nodes(&[
        "address: a, role: [etcd, controlplane, worker]",
        "address: b, role: [etcd]",
    ]));
    assert_eq!(intent.with_role(crate::model::Role::Etcd).count(), 2);
    let told: Vec<_> = warnings
        .iter()
        .map(|warning| format!("{warning}\n  {}", warning.hint.clone().unwrap_or_default()))
        .collect();
    assert_snapshot!(told.join("\n"), @"
    `nodes` (line 1): 2 nodes have the role `etcd`, an even number
      one member fewer survives as many failures: use 1, 3 or 5
    ");
}

#[test]
fn whether_a_version_is_written_is_known() {
    assert!(!good(GOOD).intent.version_given);
    assert!(!good(&and("kubernetes_version: ''")).intent.version_given);
    assert!(
        good(&and("kubernetes_version: v1.34.4"))
            .intent
            .version_given
    );
}

/// R20: a newer program moves no cluster whose config names no release.
#[test]
fn a_cluster_keeps_its_release_and_the_images_that_are_written_stay() {
    let catalogue = Catalogue::builtin().unwrap();
    let old = KubernetesVersion {
        major: 1,
        minor: 33,
        patch: 6,
    };
    let etcd = "registry.example.com/etcd:mine";
    let intent = good(&and(&format!("system_images: {{etcd: {etcd}}}"))).intent;
    let kept = intent.keeping(old, catalogue).unwrap();
    assert_eq!(kept.version, old);
    assert_eq!(kept.images.etcd, etcd);
    assert_eq!(
        kept.images.kubernetes,
        catalogue.images(old).unwrap().kubernetes
    );
    let given = good(&and("kubernetes_version: v1.34.4")).intent;
    assert_eq!(*given.keeping(old, catalogue).unwrap(), given);
    let unknown = KubernetesVersion {
        major: 1,
        minor: 99,
        patch: 0,
    };
    assert!(intent.keeping(unknown, catalogue).is_none());
}

/// `rke config` writes zeros and empty texts: RKE's defaults count.
#[test]
fn a_strategy_that_says_nothing_is_rkes() {
    let strategy = |text: &str| {
        let config = and(&format!("upgrade_strategy: {{{text}}}"));
        good(&config).intent.upgrade
    };
    let default = UpgradeStrategy::default();
    assert_eq!(good(GOOD).intent.upgrade, default);
    let empty = "max_unavailable_worker: '', drain: null, node_drain_input: null";
    assert_eq!(strategy(empty), default);
    let zeros = "drain: true, node_drain_input: {grace_period: 0, timeout: 0}";
    assert_eq!(strategy(zeros).drain, Some(DrainRules::default()));
    let all = "max_unavailable_worker: 3, max_unavailable_controlplane: 50%, drain: true, \
               node_drain_input: {force: true, ignore_daemonsets: false, \
               delete_local_data: true, grace_period: 5, timeout: 7}";
    let rules = DrainRules {
        force: true,
        ignore_daemonsets: false,
        delete_local_data: true,
        grace_period: Some(5),
        timeout: 7,
    };
    let wanted = UpgradeStrategy {
        workers: MaxUnavailable::Nodes(3),
        control_planes: MaxUnavailable::Percent(50),
        drain: Some(rules),
    };
    assert_eq!(strategy(all), wanted);
}

#[test]
fn limits_of_events_are_those_that_the_plugin_has() {
    assert_snapshot!(bad(&and("services: {kube-api: {event_rate_limit: {enabled: true, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Servr, qps: 1, burst: 0}, {type: User, burst: 1}]}}}}")), @"
    `services.kube-api.event_rate_limit.configuration.limits[0].type` (line 8): is not a type of a limit | Servr
      write one of `Server`, `Namespace`, `User`, `SourceAndObject`
    `services.kube-api.event_rate_limit.configuration.limits[0].burst` (line 8): must be a whole number, 1 or more | 0
    `services.kube-api.event_rate_limit.configuration.limits[1].qps` (line 8): must be a whole number, 1 or more
    ");
}
