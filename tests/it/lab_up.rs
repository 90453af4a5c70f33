//! `up` on a real node: Ready, serving, a no-op the second time.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use lab::Profile;

use crate::real::{Run, Site, snapshot};

const MINUTES: Duration = Duration::from_secs(240);

/// The demo's pod, behind a service.
const POD: &str = concat!(
    include_str!("../demo-pod.yaml"),
    "---\n",
    r"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: hello}, ports: [{port: 80, targetPort: 8080}]}
"
);

fn plan_only_reads(site: &Site) {
    let before = snapshot::take(site.node());
    let plan = site.run(&["plan"]).well();
    assert!(plan.stdout.contains("kube-apiserver"), "{}", plan.stdout);
    let json = site.run(&["plan", "-o", "json"]).well();
    let parsed: serde_json::Value = serde_json::from_str(&json.stdout).expect("one document");
    assert!(
        parsed["stages"]
            .as_array()
            .is_some_and(|stages| !stages.is_empty())
    );
    let after = snapshot::take(site.node());
    assert_eq!(
        snapshot::difference(&before, &after, &[]),
        Vec::<String>::new()
    );
    assert_eq!(
        fs::read_dir(site.folder()).expect("the folder").count(),
        2,
        "cluster.yml, home"
    );
}

#[test]
fn up_makes_a_cluster_and_a_second_up_is_a_no_op() {
    let site = Site::new("up", Profile::Plain);
    plan_only_reads(&site);

    site.run(&["up", "--yes"]).well();
    assert!(
        site.is_ready(),
        "{:?}",
        site.kubectl(&["get", "nodes", "-o", "wide"])
    );
    let mode = fs::metadata(site.path("kube_config_cluster.yml"))
        .expect("it")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    let containers = site.containers();
    let before = snapshot::take(site.node());
    let files = files(&site);
    let second = site.run(&["up", "-o", "json"]).well();
    assert_eq!(
        steps(&second),
        Vec::<String>::new(),
        "a second up has nothing to do"
    );
    assert_eq!(site.containers(), containers);
    assert_eq!(
        files,
        self::files(&site),
        "neither state nor kubeconfig is written"
    );
    let after = snapshot::take(site.node());
    // What a living cluster changes by itself: kube-proxy's rules, pods and what carries them.
    let alive = [
        "cgroups",
        "iptables-legacy",
        "iptables-nft",
        "ip6tables-legacy",
        "ip6tables-nft",
        "links",
        "mounts",
        "netns",
        "nft",
        "pods",
        "processes",
        "routes",
    ];
    let mut moving: Vec<snapshot::Allowed> = alive
        .into_iter()
        .map(|section| (section, "", "the cluster is alive"))
        .collect();
    moving.push(("files", "/run/", "the cluster is alive"));
    moving.push(("files", "/var/", "the cluster is alive"));
    assert_eq!(
        snapshot::difference(&before, &after, &moving),
        Vec::<String>::new()
    );
    assert!(site.run(&["plan"]).well().stdout.contains("nothing to do"));

    workloads_serve(&site);
}

fn steps(run: &Run) -> Vec<String> {
    run.events()
        .iter()
        .filter(|event| event["event"] == "stepStarted")
        .map(|event| event["title"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn files(site: &Site) -> Vec<(String, std::time::SystemTime)> {
    let mut files: Vec<_> = fs::read_dir(site.folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.file_name() != "home")
        .map(|entry| {
            let modified = entry
                .metadata()
                .and_then(|it| it.modified())
                .expect("a time");
            (entry.file_name().to_string_lossy().into_owned(), modified)
        })
        .collect();
    files.sort();
    files
}

/// Pods start, resolve names through CoreDNS, and `logs` and `exec` work.
fn workloads_serve(site: &Site) {
    site.write_config("pod.yml", POD);
    let pod = site.path("pod.yml").to_string_lossy().into_owned();
    Site::eventually("the default service account", MINUTES, || {
        site.kubectl(&["get", "serviceaccount", "default"]).status == 0
    });
    site.kubectl(&["apply", "-f", &pod]).well();
    site.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/hello",
        "--timeout=120s",
    ])
    .well();
    let page = "exec 3<>/dev/tcp/web.default.svc.cluster.local/80; \
                printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    Site::eventually("a pod reaches a service by its name", MINUTES, || {
        site.kubectl(&["exec", "hello", "--", "bash", "-c", page])
            .stdout
            .contains("200 OK")
    });
    let logs = site
        .kubectl(&["-n", "kube-system", "logs", "deployment/coredns"])
        .well();
    assert!(logs.stdout.contains("CoreDNS"), "{}", logs.stdout);
}
