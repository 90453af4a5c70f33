//! The command line and the object say the same of a cluster that is not well, although its containers
//! run and its API answers `/readyz`: an alarm of etcd, a member that hangs, an API server that hangs.

use std::{fs, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    lab_kill_operator::CLUSTER,
    lab_many::ALL,
    real::{
        operator::{Management, condition, is, is_settled},
        tell,
    },
};

const LIMIT: Duration = Duration::from_secs(900);
/// A look a minute, and what a look waits for one that hangs.
const SEEN: Duration = Duration::from_secs(240);

const NODES: [&str; 3] = ["n2", "n3", "n4"];

/// Raised by hand, as a member raises it whose database has reached its quota.
const NO_SPACE: &str = r#"
    flag() { docker inspect -f '{{range .Args}}{{println .}}{{end}}' etcd | sed -n "s/^--$1=//p"; }
    curl -sSf --cacert "$(flag trusted-ca-file)" --cert "$(flag cert-file)" --key "$(flag key-file)" \
      https://127.0.0.1:2379/v3/maintenance/alarm \
      -d '{"action":"ACTIVATE","memberID":"0","alarm":"NOSPACE"}'"#;

/// A process that is there and does nothing: Docker says that its container runs.
fn signal(container: &str, signal: &str) -> String {
    format!("kill -{signal} \"$(docker inspect -f '{{{{.State.Pid}}}}' {container})\"")
}

struct Both {
    management: Management,
    config: String,
}

impl Both {
    fn on(&self, node: &str, script: &str) {
        let node = self.management.site().lab.node(node);
        node.sh(script).expect(script);
    }

    /// What `status` says of the same cluster, by the state that the operator keeps.
    fn by_hand(&self) -> (i32, Value) {
        let site = self.management.site();
        site.write_config("same.yml", &self.config);
        let secret = self
            .management
            .own("secret", &format!("{CLUSTER}-state"))
            .expect("a state");
        let state = secret["data"]["state.json"].as_str().expect("the state");
        let state = BASE64_STANDARD.decode(state).expect("base64");
        fs::write(site.path("same.rke-operator.json"), state).expect("the state is written");
        let kubeconfig = self.management.kubeconfig(CLUSTER);
        fs::write(site.path("kube_config_same.yml"), kubeconfig)
            .expect("the kubeconfig is written");
        let run = site.run(&["status", "--config", "same.yml", "--output", "json"]);
        let said = serde_json::from_str(&run.stdout);
        (run.status, said.unwrap_or_else(|_| panic!("{run:?}")))
    }

    /// It is broken, both say so with this word, and neither does when it is mended.
    fn case(&self, what: &str, (node, breaks): (&str, &str), mends: &str, kind: &str, says: &str) {
        tell(&format!("== {what}"));
        self.on(node, breaks);
        let told = self
            .management
            .until(CLUSTER, "its object says so", SEEN, |cluster| {
                is(cluster, kind, "False") && is(cluster, "Ready", "False")
            });
        let message = &condition(&told, kind).expect("a condition")["message"];
        let message = message.as_str().expect("text");
        assert!(message.contains(says), "{what}: {message}");
        assert!(is(&told, "Available", "True"), "it still answers");
        let (status, said) = self.by_hand();
        assert_eq!(status, 3, "{what}: {said:#}");
        let problems = said["problems"].as_array().expect("problems");
        let named = problems.iter().any(|problem| {
            problem["message"]
                .as_str()
                .is_some_and(|text| text.contains(says))
        });
        assert!(named, "{what}: {problems:#?}");
        self.on(node, mends);
        self.management
            .until(CLUSTER, "it is well again", LIMIT, |cluster| {
                is_settled(cluster) && is(cluster, kind, "True") && is(cluster, "Ready", "True")
            });
        let (status, said) = self.by_hand();
        assert_eq!(status, 0, "{what}: {:#}", said["problems"]);
    }
}

#[test]
fn the_object_and_the_command_line_say_the_same() {
    let management = Management::with("ha-status", &NODES);
    let nodes = NODES.map(|name| (name, ALL));
    let mut sample = management.sample(CLUSTER, management.second());
    sample["spec"]["config"] = management.config_of(CLUSTER, &nodes);
    let lab = &management.site().lab;
    let named = nodes.map(|(name, roles)| (name, lab.node(name), roles.to_vec()));
    let config = lab::Node::common_yml(CLUSTER, &named).expect("a config");
    management.send(&["create"], &sample).well();
    let _operator = management.operator();
    management.settled(CLUSTER, LIMIT);
    let both = Both { management, config };
    let (status, said) = both.by_hand();
    assert_eq!(status, 0, "{:#}", said["problems"]);
    assert_eq!(said["problems"], json!([]));

    both.case(
        "etcd has raised NOSPACE",
        ("n2", NO_SPACE),
        "docker exec etcd etcdctl alarm disarm",
        "EtcdHealthy",
        "NOSPACE",
    );
    both.case(
        "a member of etcd hangs",
        ("n3", &signal("etcd", "STOP")),
        &signal("etcd", "CONT"),
        "EtcdHealthy",
        "does not follow the leader",
    );
    both.case(
        "an API server hangs",
        ("n4", &signal("kube-apiserver", "STOP")),
        &signal("kube-apiserver", "CONT"),
        "ControlPlaneHealthy",
        "its API server does not serve",
    );
}
