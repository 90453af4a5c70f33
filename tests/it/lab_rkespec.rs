//! Documents of `rkespec/` on real nodes, as they are but for where the nodes are and how to log in. What each
//! asks for is shown by its effect.

use std::time::Duration;

use lab::Profile;
use serde_json::{Value, json};

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
};

const MINUTE: Duration = Duration::from_secs(60);

fn parse(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).expect("YAML")
}

/// The document for the lab's node, and for the cluster that is there.
fn write(site: &Site, document: &str) {
    let mut document = parse(document);
    let there = parse(&site.node().cluster_yml("lab").expect("a config"));
    for key in ["cluster_name", "nodes"] {
        document[key] = there[key].clone();
    }
    // What machines of the lab need, which are containers.
    add(&mut document["services"], &there["services"]);
    site.write_config("cluster.yml", &document.to_string());
}

/// What `there` has and `document` has not.
fn add(document: &mut Value, there: &Value) {
    match (document, there) {
        (Value::Object(document), Value::Object(there)) => {
            for (key, value) in there {
                add(document.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (document @ Value::Null, there) => *document = there.clone(),
        _ => {}
    }
}

fn goes_up(site: &Site) {
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    site.has_nothing_to_do();
}

/// Asks the API server for a pod that is not made.
fn ask_for_a_pod(site: &Site, more: &[&str]) -> crate::real::Run {
    let account = ["get", "serviceaccount", "default"];
    Site::eventually("pods can be made", MINUTE, || {
        site.kubectl(&account).status == 0
    });
    let mut args = vec!["run", "asked", "--image=none:1", "--dry-run=server"];
    args.extend(more);
    site.kubectl(&args)
}

/// The entries of the audit log.
fn audited(site: &Site) -> Vec<Value> {
    let log = site.node().sh("cat /var/log/kube-audit/audit-log.json");
    let log = log.expect("an audit log");
    let entries = log.lines().map(serde_json::from_str);
    entries.collect::<Result<_, _>>().expect("JSON")
}

fn of<'a>(entries: &'a [Value], resource: &'a str) -> impl Iterator<Item = &'a Value> {
    let made = move |entry: &&Value| {
        entry["verb"] == "create" && entry["objectRef"]["resource"] == resource
    };
    entries.iter().filter(made)
}

/// What was changed is kept whole, of Secrets only that they were; kube-proxy's watches are left out.
fn the_audit_log_has_what_its_policy_says(site: &Site) {
    site.kubectl(&["create", "serviceaccount", "audited"])
        .well();
    let secret = "create secret generic hidden --from-literal=word=unseen";
    site.kubectl(&secret.split(' ').collect::<Vec<_>>()).well();
    let entries = audited(site);
    let account = of(&entries, "serviceaccounts")
        .find(|entry| entry["objectRef"]["name"] == "audited")
        .expect("the account is in the log");
    assert_eq!(account["requestObject"]["metadata"]["name"], "audited");
    let secret = of(&entries, "secrets")
        .find(|entry| entry["requestURI"].to_string().contains("default/secrets"))
        .expect("the Secret is in the log");
    assert_eq!(secret["level"], "Metadata", "{secret}");
    for entry in &entries {
        assert!(!entry.to_string().contains("dW5zZWVu"), "{entry}");
        assert_ne!(entry["stage"], "RequestReceived", "{entry}");
        let proxy = entry["user"]["username"] == "system:kube-proxy";
        assert!(!(proxy && entry["verb"] == "watch"), "{entry}");
    }
}

/// 20 at once and five a second; who asks is told to wait, and does.
fn events_are_limited(site: &Site) {
    let event = |number: u32| {
        json!({
            "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Counted", "message": "one more",
            "metadata": {"name": format!("counted-{number}"), "namespace": "default"},
            "involvedObject": {"kind": "Namespace", "name": "default", "namespace": "default"},
        })
    };
    let events: Vec<Value> = (0..40).map(event).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": events});
    site.write_config("events.json", &list.to_string());
    let path = site.path("events.json");
    site.kubectl(&["create", "-f", path.to_str().expect("a path")]);
    let entries = audited(site);
    let codes: Vec<i64> = of(&entries, "events")
        .filter_map(|entry| entry["responseStatus"]["code"].as_i64())
        .collect();
    assert!(codes.contains(&201) && codes.contains(&429), "{codes:?}");
}

/// The names that the certificate of the API server has.
fn certified(site: &Site) -> String {
    let names = "openssl s_client -connect 127.0.0.1:6443 < /dev/null 2> /dev/null |
                 openssl x509 -noout -ext subjectAltName";
    site.node().sh(names).expect("a certificate")
}

#[test]
fn the_keys_of_kube_api_have_their_effects() {
    let site = Site::new("rkespec", Profile::Plain);
    write(&site, include_str!("../../rkespec/admission.yml"));
    goes_up(&site);
    the_audit_log_has_what_its_policy_says(&site);
    events_are_limited(&site);
    let refused = ask_for_a_pod(&site, &["--privileged"]);
    let level = "violates PodSecurity \"baseline:latest\"";
    assert!(refused.stderr.contains(level), "{refused:?}");
    ask_for_a_pod(&site, &[]).well();

    write(&site, include_str!("../../rkespec/kube-api.yml"));
    goes_up(&site);
    let names = certified(&site);
    for name in [
        "DNS:api.example.com",
        "DNS:*.k8s.example.com",
        "IP Address:198.51.100.7",
    ] {
        assert!(names.contains(name), "{name} is not among {names}");
    }
    let refused = ask_for_a_pod(&site, &[]);
    let level = "violates PodSecurity \"restricted:latest\"";
    assert!(refused.stderr.contains(level), "{refused:?}");
    let policy = "jsonpath={.spec.containers[0].imagePullPolicy}";
    let exempt = ask_for_a_pod(&site, &["--namespace=kube-system", "-o", policy]).well();
    assert_eq!(exempt.stdout, "Always");
    site.run(&["remove", "--force"]).well();
    assert_eq!(site.containers().len(), 0);
}

/// `kubectl top`, as the metrics server's own flags say; and without it nothing of it is left.
#[test]
fn the_metrics_server_serves_and_goes() {
    let site = Site::new("metrics", Profile::Plain);
    write(&site, include_str!("../../rkespec/metrics-server.yml"));
    goes_up(&site);
    for what in ["nodes", "pods"] {
        let top = ["top", what, "--no-headers", "--namespace=kube-system"];
        Site::eventually(&format!("kubectl top {what}"), MINUTE, || {
            let top = site.kubectl(&top);
            top.status == 0 && !top.stdout.is_empty()
        });
    }

    write(&site, include_str!("../../rkespec/minimal.yml"));
    goes_up(&site);
    let kinds = "apiservices,deployments,services,clusterroles,clusterrolebindings,rolebindings";
    let label = "clusterprovisioner.rke.io/addon=metrics-server";
    let left = site
        .kubectl(&["get", kinds, "-A", "-o", "name", "-l", label])
        .well();
    assert_eq!(left.stdout, "");
}

/// The test plays the cloud's controller manager, which takes the taint of a new node away; until then no pod is there.
#[test]
fn a_node_waits_for_its_cloud_and_everybody_may_do_everything() {
    let site = Site::new("cloud", Profile::Plain);
    let minimal = include_str!("../../rkespec/minimal.yml");
    let cloud = "cloud_provider: {name: custom, customCloudProvider: '[Global]'}";
    write(
        &site,
        &format!("{minimal}\n{cloud}\nauthorization: {{mode: none}}\n"),
    );
    let get = |what: &str, path: &str| {
        let path = format!("-o=jsonpath={path}");
        site.kubectl(&["get", what, "-n=kube-system", &path]).stdout
    };
    let taint = "node.cloudprovider.kubernetes.io/uninitialized";
    let up = std::thread::scope(|scope| {
        let up = scope.spawn(|| site.run(&["up", "--yes"]));
        Site::eventually("nothing but the cloud is missing", 3 * MINUTE, || {
            let waits = "{.items[*].status.conditions[?(@.type==\"PodScheduled\")].reason}";
            site.is_ready()
                && get("nodes", "{.items[*].spec.taints[*].key}") == taint
                && get("pods", waits) == "Unschedulable"
        });
        let taint = format!("{taint}-");
        site.kubectl(&["taint", "nodes", "--all", &taint]).well();
        up.join().expect("up ends").well()
    });
    let said = [up.stdout, up.stderr].concat();
    assert!(said.contains("no node accepts pods"), "{said}");
    assert!(!said.contains("[Global]"), "{said}");
    goes_up(&site);
    assert_eq!(get("deploy/coredns", "{.status.availableReplicas}"), "1");
    let file = "stat -c %a /etc/kubernetes/cloud-config && cat /etc/kubernetes/cloud-config";
    assert_eq!(site.node().sh(file).expect("a file"), "600\n[Global]");
    let nobody = "auth can-i delete nodes --as=system:serviceaccount:default:default";
    let nobody: Vec<_> = nobody.split(' ').collect();
    assert_eq!(site.kubectl(&nobody).well().stdout.trim(), "yes");

    write(&site, &format!("{minimal}\n{cloud}\n"));
    goes_up(&site);
    assert_eq!(site.kubectl(&nobody).stdout.trim(), "no");
    site.run(&["remove", "--force"]).well();
    let left = site.node().sh("ls /etc/kubernetes 2>&1 || true");
    assert!(!left.expect("ls").contains("cloud-config"));
}

/// A definition and an object of its kind in one text, and a file beside the config. What others delete comes
/// back, and what is taken out of the config goes, but for the definition and the namespace.
#[test]
fn manifests_of_the_user_are_applied_changed_and_pruned() {
    let site = Site::new("addons", Profile::Plain);
    let document = include_str!("../../rkespec/addons.yml");
    let with_file = |document: &str| format!("{document}\naddons_include: [more.yaml]\n");
    let more = |value: u8| {
        let more = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}, "data": {"a": value.to_string()},
        });
        let found = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "found"}, "data": {"b": value.to_string()},
        });
        let found = if value > 1 { found } else { Value::Null };
        site.write_config("more.yaml", &format!("{more}\n---\n{found}\n"));
    };
    let read = |object: &str, path: &str| {
        let path = format!("-o=jsonpath={{{path}}}");
        let run = site.kubectl(&["get", object, "-n=paint", &path]);
        (run.status == 0).then_some(run.stdout)
    };
    let in_default = |name: &str| {
        let run = site.kubectl(&["get", name, "-n=default", "-o=jsonpath={.data}"]);
        (run.status == 0).then_some(run.stdout)
    };
    more(1);
    write(&site, &with_file(document));
    goes_up(&site);
    assert_eq!(read("color/red", ".spec.code").as_deref(), Some("ff0000"));
    assert_eq!(read("configmap/brush", ".data.size").as_deref(), Some("12"));
    assert_eq!(
        in_default("secret/recipe").as_deref(),
        Some("{\"mix\":\"c2VjcmV0\"}")
    );
    assert_eq!(
        in_default("configmap/more").as_deref(),
        Some("{\"a\":\"1\"}")
    );

    site.kubectl(&["delete", "configmap/more", "-n=default"])
        .well();
    // Of others, until the manifests have it too.
    let found = [
        "create",
        "configmap",
        "found",
        "-n=default",
        "--from-literal=a=1",
    ];
    site.kubectl(&found).well();
    more(2);
    let changed = document
        .replace("size: \"12\"", "size: \"14\"")
        .replace("mix: secret", "mix: hunter2");
    let dns = "dns: {upstreamnameservers: [192.0.2.53], linear_autoscaler_params: {min: 2}}\n";
    write(&site, &(with_file(&changed) + dns));
    let plan = site.run(&["plan"]).well();
    assert!(
        plan.stdout.contains("Secret `default/recipe`"),
        "{}",
        plan.stdout
    );
    assert!(!plan.stdout.contains("aHVudGVyMg"), "{}", plan.stdout);
    goes_up(&site);
    assert_eq!(read("configmap/brush", ".data.size").as_deref(), Some("14"));
    assert_eq!(
        in_default("configmap/more").as_deref(),
        Some("{\"a\":\"2\"}")
    );
    let both = Some("{\"a\":\"1\",\"b\":\"2\"}");
    assert_eq!(in_default("configmap/found").as_deref(), both);
    let system = |what: &str, path: &str| {
        let path = format!("-o=jsonpath={{{path}}}");
        site.kubectl(&["get", what, "-n=kube-system", &path])
            .well()
            .stdout
    };
    assert!(system("configmap/coredns", ".data.Corefile").contains("forward . 192.0.2.53\n"));
    assert_eq!(
        system("deployment/coredns", ".status.availableReplicas"),
        "2"
    );

    write(&site, include_str!("../../rkespec/minimal.yml"));
    goes_up(&site);
    for gone in ["color/red", "configmap/brush"] {
        assert_eq!(read(gone, ".metadata.name"), None, "{gone}");
    }
    assert_eq!(in_default("secret/recipe"), None);
    assert_eq!(in_default("configmap/more"), None);
    assert_eq!(in_default("configmap/found").as_deref(), both);
    for stays in ["namespace/paint", "crd/colors.example.com"] {
        assert!(read(stays, ".metadata.name").is_some(), "{stays}");
    }
    let record = [
        "get",
        "configmap/rke-operator-user-addons",
        "-n=kube-system",
    ];
    assert_ne!(site.kubectl(&record).status, 0, "the record is there");
}

/// `extra-args.yml` with calico, and nginx on a port of every node. What the file says is read where it has its effect:
/// of the processes, the node and its ports.
#[test]
fn flags_mounts_and_a_node_port_reach_the_node() {
    let site = Site::new("options", Profile::Plain);
    let on_node = |script: &str| site.node().sh(script).expect(script);
    on_node(
        "mkdir -p /data /etc/ssl/corporate; echo ours | tee /data/word >/etc/ssl/corporate/word",
    );
    let before = snapshot::take(site.node());
    let mut document = parse(include_str!("../../rkespec/extra-args.yml"));
    let wanted = document["nodes"][0].clone();
    // An image that is nowhere.
    document["system_images"] = Value::Null;
    document["network"] = parse(include_str!("../../rkespec/calico.yml"))["network"].clone();
    let write_with = |port: u16, user: u32| {
        let mut document = document.clone();
        document["services"]["etcd"]["uid"] = json!(user);
        document["services"]["etcd"]["gid"] = json!(user + 1);
        let service = json!({"enabled": true, "type": "NodePort", "nodePorts": {"http": port}});
        document["ingress"] = json!({
            "provider": "nginx", "network_mode": "none", "values": {"controller": {"service": service}},
        });
        write(&site, &document.to_string());
        let written = std::fs::read_to_string(site.path("cluster.yml")).expect("a config");
        let mut config: Value = serde_json::from_str(&written).expect("JSON");
        for key in ["labels", "taints"] {
            config["nodes"][0][key] = wanted[key].clone();
        }
        config["nodes"][0]["labels"]["net"] = json!("calico");
        site.write_config("cluster.yml", &config.to_string());
    };
    write_with(30080, 52034);
    goes_up(&site);

    let process = |component: &str, file: &str| {
        let script =
            format!("cat /proc/$(docker inspect -f '{{{{.State.Pid}}}}' {component})/{file}");
        on_node(&script).replace('\0', "\n")
    };
    for (component, file, said) in [
        ("etcd", "cmdline", "--election-timeout=10000"),
        ("kube-apiserver", "cmdline", "--event-ttl=2h"),
        ("kube-apiserver", "environ", "GODEBUG=http2client=0"),
        ("kube-apiserver", "root/etc/ssl/corporate/word", "ours"),
        (
            "kube-controller-manager",
            "cmdline",
            "--node-monitor-grace-period=60s",
        ),
        ("kube-scheduler", "cmdline", "--v=2"),
        ("kubelet", "root/data/word", "ours"),
    ] {
        let found = process(component, file);
        assert!(
            found.lines().any(|line| line == said),
            "{component}: {found}"
        );
    }
    let is_etcds = |user: u32| {
        let owner = format!("{user}:{}", user + 1);
        let its_own =
            "/var/lib/etcd /var/lib/etcd/member/wal /etc/kubernetes/ssl/kube-etcd-*-key.pem";
        let owners = on_node(&format!("stat -c %u:%g {its_own} | sort -u"));
        assert_eq!(owners.trim(), owner);
        let others = on_node(&format!(
            "find /var/lib/etcd ! -uid {user} -o ! -gid {}",
            user + 1
        ));
        assert_eq!(others.trim(), "");
        let status = process("etcd", "status");
        let runs_as = |line: &str| {
            let id = if line.starts_with("Uid:") {
                user
            } else {
                user + 1
            };
            line.split_whitespace()
                .skip(1)
                .all(|word| word == id.to_string())
        };
        let ids = status
            .lines()
            .filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
        let ids: Vec<&str> = ids.collect();
        assert!(ids.len() == 2 && ids.into_iter().all(runs_as), "{status}");
    };
    is_etcds(52034);
    let node = site.kubectl(&["get", "nodes", "-o", "json"]).well().stdout;
    let node = &parse(&node)["items"][0];
    assert_eq!(node["status"]["capacity"]["pods"], "200");
    assert_eq!(
        node["metadata"]["labels"]["topology.kubernetes.io/zone"],
        "a"
    );
    let taint = json!({"key": "dedicated", "value": "build", "effect": "PreferNoSchedule"});
    assert_eq!(node["spec"]["taints"], json!([taint]));
    let cidr = "-o=jsonpath={.spec.calicoNetwork.ipPools[0].cidr}";
    let installation = site.kubectl(&["get", "installation", "default", cidr]);
    assert_eq!(installation.well().stdout, "10.42.0.0/16");

    let ask = |port: u16| {
        let ask = format!("curl -s http://{}:{port}/", site.node().address());
        let answer = site.node().exec(&ask).expect("a node");
        answer.stdout
    };
    let answers = |port: u16| {
        Site::eventually(&format!("nginx answers at {port}"), MINUTE, || {
            ask(port).contains("default backend")
        });
    };
    answers(30080);
    assert_eq!(ask(80), "");
    write_with(30090, 52036);
    let plan = site.run(&["plan"]).well().stdout;
    assert!(plan.contains("render and apply nginx"), "{plan}");
    assert!(!plan.contains("render and apply calico"), "{plan}");
    assert!(plan.contains("definition changed: user"), "{plan}");
    goes_up(&site);
    answers(30090);
    is_etcds(52036);
    assert_eq!(ask(30080), "");

    site.run(&["remove", "--force"]).well();
    snapshot::unchanged(site.node(), &before, ALLOWED);
}
