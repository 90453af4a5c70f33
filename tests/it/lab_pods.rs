//! The operator as pods of a real management cluster: another takes over when the one that leads
//! goes, is killed or is frozen; it has the rights that it uses and no others; a new release
//! restarts nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use crate::real::{
    Site, containers,
    operator::{CREDENTIALS, Management, NAMESPACE, condition, is, is_settled},
    tell,
};

const CLUSTER: &str = "minimal";
const MINUTES: Duration = Duration::from_secs(240);
const SOON: Duration = Duration::from_secs(60);

/// A run towards the spec is under way on a node.
fn is_running(cluster: &Value) -> bool {
    cluster["status"]["progress"]["done"]
        .as_u64()
        .is_some_and(|done| done > 0)
}

/// An edit that replaces most components, and thus takes a while.
fn edit(management: &Management, verbosity: u8) {
    let word = json!({"extra_args": {"v": verbosity.to_string()}});
    let services = json!({
        "kube-api": word, "kube-controller": word, "scheduler": word, "kubelet": word,
        "kubeproxy": {"extra_args": {"v": verbosity.to_string(), "conntrack-max-per-core": "0"}},
    });
    management.edit(
        CLUSTER,
        &json!({"spec": {"config": {"services": services}}}),
    );
    management.until(CLUSTER, "a run is under way", SOON, |cluster| {
        is_running(cluster) && !is_settled(cluster)
    });
}

/// With the host keys of its nodes in a ConfigMap.
fn create(management: &Management) {
    let mut sample = management.sample(CLUSTER, management.second());
    let ssh = sample["spec"]["ssh"].as_object_mut().expect("a login");
    let lines = ssh.remove("knownHosts").expect("host keys");
    ssh.insert(
        "knownHostsFrom".to_owned(),
        json!({"configMapKeyRef": {"name": "hosts"}}),
    );
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "hosts", "namespace": CREDENTIALS},
        "data": {"known_hosts": lines},
    });
    management.send(&["apply"], &map).well();
    management.send(&["create"], &sample).well();
}

/// Names of containers of the second node that somebody did something to since `time`. One whose process ends by
/// itself is started again by Docker: a controller manager without its API server ends every few seconds.
fn touched_since(management: &Management, time: &str) -> BTreeSet<String> {
    let node = management.second();
    let events = node.sh(&format!(
        "docker events --since {time} --until \"$(date +%s)\" --filter type=container \
         --format '{{{{.Action}}}} {{{{.Actor.Attributes.name}}}}'"
    ));
    let events = events.expect("docker events");
    let mut actions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (action, name) in events.lines().filter_map(|line| line.rsplit_once(' ')) {
        if !action.starts_with("exec_") && !action.starts_with("archive-path") {
            actions.entry(name).or_default().insert(action);
        }
    }
    let by_docker = |name: &str, actions: &BTreeSet<&str>| {
        let format = "docker inspect --format '{{.RestartCount}}' --type container";
        actions.is_subset(&["die", "start"].into())
            && node
                .sh(&format!("{format} '{name}'"))
                .is_ok_and(|count| count.trim() != "0")
    };
    let by_somebody = actions
        .iter()
        .filter(|(name, actions)| !by_docker(name, actions));
    by_somebody.map(|(name, _)| (*name).to_owned()).collect()
}

/// What `make deploy` applies, without the definitions, which have a golden of their own.
#[test]
fn the_manifests_are_these() {
    let output = std::process::Command::new(lab::kubectl().expect("a kubectl"))
        .args(["kustomize", "deploy"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("kubectl runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let yaml = String::from_utf8(output.stdout).expect("text");
    // Deleting this set deletes no Cluster.
    assert!(!yaml.contains("kind: CustomResourceDefinition"));
    let (rights, others): (Vec<&str>, Vec<&str>) = yaml
        .split("---\n")
        .partition(|text| text.contains("rbac.authorization.k8s.io"));
    let (bindings, roles): (Vec<&str>, Vec<&str>) = rights
        .into_iter()
        .partition(|text| text.contains("roleRef:"));
    let (pods, others): (Vec<&str>, Vec<&str>) = others
        .into_iter()
        .partition(|text| text.contains("kind: Deployment\n"));
    insta::assert_snapshot!("manifests", others.join("---\n"));
    insta::assert_snapshot!("manifests_pods", pods.join("---\n"));
    let (of_all, roles): (Vec<&str>, Vec<&str>) = roles
        .into_iter()
        .partition(|text| text.contains("kind: ClusterRole\n"));
    insta::assert_snapshot!("manifests_cluster_roles", of_all.join("---\n"));
    insta::assert_snapshot!("manifests_roles", roles.join("---\n"));
    insta::assert_snapshot!("manifests_role_bindings", bindings.join("---\n"));
}

#[test]
fn another_pod_takes_over() {
    let management = Management::new("takeover");
    management.deploy(&management.image("one"));

    // Deleted in the middle of a provision: it gives the lease back.
    create(&management);
    management.until(CLUSTER, "a run is under way", SOON, is_running);
    let leader = management.leader();
    management
        .kubectl(&["-n", NAMESPACE, "delete", "pod", &leader, "--wait=false"])
        .well();
    let (leader, took) = management.next_leader(&leader, MINUTES);
    assert!(took < Duration::from_secs(15), "it was not given back");
    management.settled(CLUSTER, MINUTES);

    // Killed, and nobody starts it again: the other waits until the lease is over.
    edit(&management, 3);
    management.without_kubelet();
    management.signal(&leader, "KILL");
    let (leader, took) = management.next_leader(&leader, MINUTES);
    assert!(took < Duration::from_secs(30), "nobody took it");
    management.with_kubelet();
    management.settled(CLUSTER, MINUTES);

    // Both at once: whichever comes back goes on.
    edit(&management, 4);
    for pod in management.pods() {
        if management.lives(&pod) {
            management.signal(&pod, "KILL");
        }
    }
    management.settled(CLUSTER, MINUTES);

    // Frozen for longer than its lease, and woken, with nobody there to take over.
    management
        .kubectl(&[
            "-n",
            NAMESPACE,
            "scale",
            "deployment/rke-operator",
            "--replicas=1",
        ])
        .well();
    Site::eventually("one pod is left", MINUTES, || management.pods().len() == 1);
    drop(leader);
    let only = management.pods().remove(0);
    Site::eventually("it leads", MINUTES, || management.leader() == only);
    management.settled(CLUSTER, MINUTES);
    edit(&management, 5);
    management.without_kubelet();
    management.signal(&only, "STOP");
    std::thread::sleep(Duration::from_secs(20));
    let woken = management.second().sh("date +%s").expect("the time");
    management.signal(&only, "CONT");
    Site::eventually("it ends", SOON, || !management.lives(&only));
    std::thread::sleep(Duration::from_secs(2));
    let touched = touched_since(&management, woken.trim());
    assert!(
        touched.len() <= 1,
        "more than what was under way: {touched:?}"
    );
    let unfinished = management.cluster(CLUSTER).expect("it is there");
    assert!(
        !is_settled(&unfinished),
        "nothing was left to do: {unfinished:#}"
    );
    management.with_kubelet();
    management.settled(CLUSTER, MINUTES);
}

/// A right: verb, resource with its group, namespace.
type Right = (String, String, String);

fn right(verb: &str, group: &str, resource: &str, namespace: &str) -> Right {
    let resource = if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    };
    (verb.to_owned(), resource, namespace.to_owned())
}

/// The rights that the shipped roles give.
fn given() -> BTreeSet<Right> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../deploy/rbac.yaml")).expect("YAML");
    let mut rights = BTreeSet::new();
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for role in documents {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        let is_role = role["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Role"));
        for rule in role["rules"]
            .as_array()
            .filter(|_| is_role)
            .into_iter()
            .flatten()
        {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        rights.insert(right(&verb, &group, &resource, namespace));
                    }
                }
            }
        }
    }
    rights
}

/// The rights that the operator used, by the audit log of the API server.
fn used(management: &Management) -> BTreeSet<Right> {
    let user = format!("system:serviceaccount:{NAMESPACE}:rke-operator");
    let log = management
        .first()
        .sh(&format!(
            "cat /var/log/kube-audit/*.json | grep -F '{user}'"
        ))
        .expect("the audit log");
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["user"]["username"] == *user && event["stage"] == "ResponseComplete")
        .filter_map(|event| {
            let about = event.get("objectRef")?;
            let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
            let resource = match text("subresource") {
                none if none.is_empty() => text("resource"),
                sub => format!("{}/{sub}", text("resource")),
            };
            let verb = event["verb"].as_str()?;
            // A namespace is logged as in itself, and is in none.
            let namespace = match resource.as_str() {
                "namespaces" => String::new(),
                _ => text("namespace"),
            };
            Some(right(verb, &text("apiGroup"), &resource, &namespace))
        })
        .collect()
}

/// Its nodes do not answer, and the deadline is short: the second record of one name is written
/// into the first one's ConfigMap.
fn orphan(management: &Management) {
    management.edit(
        CLUSTER,
        &json!({"spec": {"deletion": {"timeout": "5s", "onTimeout": "Orphan"}}}),
    );
    management.second().cut().expect("the network is cut");
    management.delete(CLUSTER);
    management.gone(CLUSTER, MINUTES);
    management.second().heal().expect("the network is back");
}

/// The same cluster under an object of the same name.
fn take_over(management: &Management) {
    let state = management.own("secret", "minimal-state").expect("a state");
    let id = state["metadata"]["labels"]["clusterprovisioner.rke.io/cluster-id"].clone();
    let mut sample = management.sample(CLUSTER, management.second());
    sample["metadata"]["annotations"] = json!({"clusterprovisioner.rke.io/take-over": id});
    management.send(&["create"], &sample).well();
    management.settled(CLUSTER, MINUTES);
}

#[test]
fn it_has_the_rights_that_it_uses_and_a_new_release_restarts_nothing() {
    let management = Management::new("rights");
    let (one, two) = (management.image("one"), management.image("two"));
    management.deploy(&one);

    // Create, edit, heal.
    create(&management);
    management.settled(CLUSTER, MINUTES);
    edit(&management, 3);
    management.settled(CLUSTER, MINUTES);
    management
        .second()
        .sh("docker rm -f kube-scheduler")
        .expect("it is gone");
    let edited = json!({"data": {"value": "ZWRpdGVk"}}).to_string();
    management
        .kubectl(&[
            "-n",
            CREDENTIALS,
            "patch",
            "secret",
            "minimal-kubeconfig",
            "-p",
            &edited,
        ])
        .well();
    Site::eventually("it is healed", MINUTES, || {
        let names = containers(management.second());
        names.contains_key("kube-scheduler") && management.kubeconfig(CLUSTER).contains("clusters")
    });

    its_metrics_are_read_by_who_may(&management);
    an_operation_is_carried_out(&management);

    // A new release, over a living cluster.
    let before = containers(management.second());
    management.deploy(&two);
    management.settled(CLUSTER, MINUTES);
    assert_eq!(containers(management.second()), before);

    // Orphan, take over, and both again.
    orphan(&management);
    take_over(&management);
    orphan(&management);
    take_over(&management);
    management.delete(CLUSTER);
    management.gone(CLUSTER, MINUTES);

    // An apply that creates is judged as both verbs, and logged as one.
    let by_apply = right("create", "clusterprovisioner.rke.io", "kubeconfigs", "");
    let mut used = used(&management);
    used.insert(by_apply);
    let given = given();
    let missing: Vec<_> = used.difference(&given).collect();
    let needless: Vec<_> = given.difference(&used).collect();
    tell(&format!("{} rights are used", used.len()));
    assert!(
        missing.is_empty() && needless.is_empty(),
        "missing: {missing:?}; needless: {needless:?}"
    );

    it_opens_no_port_but_the_named_one(&management);
    it_reads_no_other_secret(&management);
    it_says_what_it_lacks(&management);
    it_goes_and_leaves_what_is_kept(&management);
}

/// A token of a `ServiceAccount` that has the shipped `ClusterRole` reads the metrics of the pod that leads; that of another
/// does not, and neither does a request without one.
fn its_metrics_are_read_by_who_may(management: &Management) {
    for account in ["scraper", "stranger"] {
        management
            .kubectl(&["-n", NAMESPACE, "create", "serviceaccount", account])
            .well();
    }
    let account = format!("--serviceaccount={NAMESPACE}:scraper");
    let role = "--clusterrole=rke-operator-metrics-reader";
    management
        .kubectl(&["create", "clusterrolebinding", "scraper", role, &account])
        .well();
    let pod = management.get(&["-n", NAMESPACE, "pod", &management.leader()]);
    let address = pod["status"]["podIP"].as_str().expect("an address");
    let scrape = |account: Option<&str>| {
        let head = account.map_or_else(String::new, |account| {
            let token = management.kubectl(&["-n", NAMESPACE, "create", "token", account]);
            format!("Authorization: Bearer {}", token.well().stdout.trim())
        });
        let script = format!(
            "curl --silent --insecure --max-time 20 --write-out '%{{http_code}}' --header '{head}' \
             https://{address}:8443/metrics"
        );
        management.first().sh(&script).expect("an answer")
    };
    assert!(scrape(None).ends_with("401"));
    assert!(scrape(Some("stranger")).ends_with("403"));
    // A binding takes a moment to be seen, and the cluster one to be Ready again.
    Site::eventually("the metrics are read", MINUTES, || {
        let read = scrape(Some("scraper"));
        let lines = [
            "rke_leader 1",
            "rke_cluster_condition{name=\"minimal\",type=\"Ready\",status=\"True\"} 1",
            "rke_slots{class=\"deletes\",state=\"used\"} 0",
        ];
        read.ends_with("200") && lines.iter().all(|line| read.contains(line))
    });
}

/// There is a Cluster: its definition stays, whatever is asked for, and so does all that is kept.
fn it_goes_and_leaves_what_is_kept(management: &Management) {
    let refused = management.make("uninstall");
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("clusterprovisioner.rke.io/minimal"),
        "{refused:?}"
    );
    nothing_in_use_is_deleted(management);
    no_user_approves_for_another(management);
    let gone = management.make("undeploy").well();
    assert!(gone.stdout.contains("1 Clusters"), "{gone:?}");
    assert_eq!(management.pods(), [""; 0]);
    assert!(management.own("lease", "rke-operator").is_some());
    assert!(management.cluster(CLUSTER).is_some());
    assert!(management.credential("minimal-ssh").is_some());
    let free = json!({"metadata": {"finalizers": null}});
    management.edit(CLUSTER, &free);
    management.delete(CLUSTER);
    management.gone(CLUSTER, SOON);
    management.make("uninstall").well();
    let definition = ["crd", "clusters.clusterprovisioner.rke.io"];
    assert_eq!(management.find(&definition), None);
}

/// What a prune, a wrong context or a slip would delete: the admission refuses it, and says how to mean it.
fn nothing_in_use_is_deleted(management: &Management) {
    let protect = |value: Value| json!({"spec": {"deletionProtection": value}});
    management.edit(CLUSTER, &protect(json!(true)));
    let confirm = "clusterprovisioner.rke.io/confirm-deletion";
    for (kind, name) in [
        ("rkec", CLUSTER),
        ("crd", "clusters.clusterprovisioner.rke.io"),
        ("crd", "kubeconfigs.clusterprovisioner.rke.io"),
        ("crd", "clusteroperations.clusterprovisioner.rke.io"),
        ("namespace", "rke-operator"),
        ("namespace", "rke-operator-credentials"),
    ] {
        let refused = management.kubectl(&["delete", kind, name, "--wait=false"]);
        assert_eq!(refused.status, 1, "{kind}/{name}: {refused:?}");
        assert!(refused.stderr.contains(confirm), "{refused:?}");
        let tried = ["delete", kind, name, "--dry-run=server"];
        let annotation = format!("{confirm}={name}");
        let annotate = ["annotate", "--overwrite", kind, name, &annotation];
        management.kubectl(&annotate).well();
        management.kubectl(&tried).well();
        let another = format!("{confirm}=another");
        let annotate = ["annotate", "--overwrite", kind, name, &another];
        management.kubectl(&annotate).well();
        assert_eq!(management.kubectl(&tried).status, 1, "{kind}/{name}");
    }
    let all = management.kubectl(&["delete", "rkec", "--all", "--wait=false"]);
    assert_eq!(all.status, 1, "{all:?}");
    // The operator's own set takes the namespaces along.
    let set = management.kubectl(&["delete", "-k", "deploy", "--dry-run=server"]);
    assert_eq!(set.status, 1, "{set:?}");
    let there = management.cluster(CLUSTER).expect("the Cluster");
    assert_eq!(there["metadata"]["deletionTimestamp"], Value::Null);
    management.edit(CLUSTER, &protect(Value::Null));
}

/// An object of a user who may asks for it, and goes when it is done.
fn an_operation_is_carried_out(management: &Management) {
    let served = |management: &Management| {
        let node = management.second();
        node.sh("openssl x509 -noout -serial -in /etc/kubernetes/ssl/kube-scheduler.pem")
            .expect("a certificate")
    };
    let before = served(management);
    let operation = json!({
        "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
        "kind": "ClusterOperation",
        "metadata": {"name": "rotate"},
        "spec": {
            "clusterRef": {"name": CLUSTER},
            "type": "RotateCertificates",
            "rotateCertificates": {"services": ["kube-scheduler"]},
            "ttlSecondsAfterFinished": 0,
        },
    });
    let verbs = "--verb=create,get";
    let kind = "--resource=clusteroperations.clusterprovisioner.rke.io";
    let role = ["create", "clusterrole", "joe", verbs, kind];
    management.kubectl(&role).well();
    let bind = [
        "create",
        "clusterrolebinding",
        "joe",
        "--clusterrole=joe",
        "--user=joe",
    ];
    management.kubectl(&bind).well();
    Site::eventually("joe may create operations", SOON, || {
        let asked = ["auth", "can-i", "create", "rkeo", "--as=joe"];
        management.kubectl(&asked).status == 0
    });
    let refused = management.send(&["create", "--as=joe"], &operation);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("the verb \"operate\""),
        "{refused:?}"
    );
    management.send(&["create"], &operation).well();
    Site::eventually("it is done, and gone", MINUTES, || {
        management.find(&["rkeo", "rotate"]).is_none()
    });
    assert_ne!(served(management), before);
    management.settled(CLUSTER, MINUTES);
}

/// A plan is approved by a user who may, and in their name.
fn no_user_approves_for_another(management: &Management) {
    let may = |verbs: &str| {
        let verbs = format!("--verb={verbs}");
        let resource = "--resource=clusters.clusterprovisioner.rke.io";
        let role = ["create", "clusterrole", "editor", &verbs, resource];
        management.kubectl(&role).well();
    };
    let can = |verb: &str| {
        let asked = ["auth", "can-i", verb, "rkec", "--as=jane"];
        Site::eventually(&format!("jane may {verb}"), SOON, || {
            management.kubectl(&asked).status == 0
        });
    };
    let approve = |by: &str| {
        let by = format!("clusterprovisioner.rke.io/approved-by={by}");
        let digest = "clusterprovisioner.rke.io/approve=0123";
        let tried = [
            "annotate",
            "rkec",
            CLUSTER,
            digest,
            &by,
            "--as=jane",
            "--dry-run=server",
        ];
        management.kubectl(&tried)
    };
    may("get,patch");
    let bind = ["clusterrolebinding", "editor", "--clusterrole=editor"];
    management
        .kubectl(&[&["create"][..], &bind, &["--user=jane"]].concat())
        .well();
    can("patch");
    let refused = approve("jane");
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("the verb \"approve\""),
        "{refused:?}"
    );
    management
        .kubectl(&["delete", "clusterrole", "editor"])
        .well();
    may("get,patch,approve");
    can("approve");
    let refused = approve("joe");
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("approved-by: jane"), "{refused:?}");
    approve("jane").well();
}

/// By what listens in the pod's own network.
fn it_opens_no_port_but_the_named_one(management: &Management) {
    let leader = management.leader();
    let pid = management
        .first()
        .sh(&format!("pgrep -o -f -- '[-]-identity={leader}'"))
        .expect("its process");
    let listening = management
        .first()
        .sh(&format!(
            "cat /proc/{0}/net/tcp /proc/{0}/net/tcp6 | awk '$4 == \"0A\" {{ print $2 }}'",
            pid.trim()
        ))
        .expect("its sockets");
    let ports: BTreeSet<_> = listening
        .lines()
        .filter_map(|line| u16::from_str_radix(line.rsplit(':').next()?, 16).ok())
        .collect();
    assert_eq!(ports, BTreeSet::from([8081, 8443]));
    let pod = management.get(&["-n", NAMESPACE, "pod", &leader]);
    let named = pod["spec"]["containers"][0]["ports"].as_array();
    let named = named.into_iter().flatten();
    let named: Vec<_> = named.map(|port| port["containerPort"].as_u64()).collect();
    assert_eq!(named, [Some(8081), Some(8443)]);
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    let namespace = management.get(&["namespace", NAMESPACE]);
    let enforced = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(enforced, "restricted");
}

fn it_reads_no_other_secret(management: &Management) {
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:rke-operator");
    for (namespace, allowed) in [
        (NAMESPACE, true),
        (CREDENTIALS, true),
        ("kube-system", false),
        ("default", false),
    ] {
        let run = management.kubectl(&["-n", namespace, "get", "secrets", &user]);
        assert_eq!(run.status == 0, allowed, "{namespace}: {run:?}");
    }
    let run = management.kubectl(&["get", "secrets", "--all-namespaces", &user]);
    assert!(run.stderr.contains("forbidden"), "{run:?}");
}

/// Without its own namespace's rights no state can be read, and the object says so.
fn it_says_what_it_lacks(management: &Management) {
    management
        .kubectl(&["-n", NAMESPACE, "delete", "rolebinding", "rke-operator"])
        .well();
    create(management);
    let told = management.until(CLUSTER, "it says what it lacks", SOON, |cluster| {
        is(cluster, "Stalled", "True")
    });
    let stalled = condition(&told, "Stalled").expect("a condition");
    assert_eq!(stalled["reason"], "PermissionDenied");
    let message = stalled["message"].as_str().expect("a message");
    assert!(
        message.contains("cannot") && message.contains("\"secrets\""),
        "{message}"
    );
}
