//! The charts of the release on a real node, from stand-ins: applied once, mended, changed, pruned, wherever it
//! is cut; and nothing of them is left after `remove`.

use std::time::Duration;

use lab::Profile;
use serde_json::{Value, json};

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
};

const MINUTE: Duration = Duration::from_secs(60);

/// RKE's default network, and this ingress controller.
fn write(site: &Site, ingress: &str) {
    let config = site.node().cluster_yml("charts").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&config).expect("YAML");
    config["network"] = json!({"plugin": "canal"});
    config["ingress"] = json!({"provider": ingress});
    site.write_config("cluster.yml", &config.to_string());
}

fn goes_up(site: &Site) -> String {
    let up = site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    site.has_nothing_to_do();
    up.stderr
}

/// What is there of a chart, of every kind that one may have.
fn objects(site: &Site, chart: &str) -> Vec<String> {
    let kinds = "serviceaccounts,configmaps,daemonsets,clusterroles,clusterrolebindings,ingressclasses,\
                 jobs,customresourcedefinitions";
    let label = format!("clusterprovisioner.rke.io/chart={chart}");
    let get = ["get", kinds, "-A", "-o", "name", "-l", &label];
    let found = site.kubectl(&get).well().stdout;
    found.lines().map(str::to_owned).collect()
}

/// What answers at the node's own port 80.
fn answers(site: &Site, what: &str) {
    let ask = format!(
        "curl -s http://{}/ | grep -q '{what}'",
        site.node().address()
    );
    Site::eventually(what, MINUTE, || {
        site.node().exec(&ask).is_ok_and(|it| it.code == 0)
    });
}

#[test]
fn charts_are_applied_mended_changed_and_pruned() {
    let site = Site::new("charts", Profile::Plain);
    let before = snapshot::take(site.node());
    write(&site, "nginx");
    let plan = site.run(&["plan"]).well().stdout;
    let step = "render and apply canal (chart rke2-canal of rancher/rke2-runtime:";
    assert!(plan.contains(step), "{plan}");

    goes_up(&site);
    answers(&site, "default backend");
    assert!(!objects(&site, "canal").is_empty());
    // Each rendering of nginx differs, and what is rendered from does not.
    let again = site.run(&["up"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");

    what_others_do_is_mended(&site);
    another_one_takes_its_place(&site);
    what_is_cut_is_carried_on(&site);

    // The chains of the portmap plugin are told to be ours by what leads through them.
    write(&site, "nginx");
    goes_up(&site);
    site.run(&["remove", "--force"]).well();
    snapshot::unchanged(site.node(), &before, ALLOWED);
}

fn what_others_do_is_mended(site: &Site) {
    let system = "--namespace=kube-system";
    site.kubectl(&["delete", "configmap", "rke2-canal-config", system])
        .well();
    let nginx = objects(site, "nginx");
    let set = nginx
        .iter()
        .find_map(|name| name.strip_prefix("daemonset.apps/"));
    let set = format!("daemonset/{}", set.expect("a DaemonSet"));
    let set = set.as_str();
    let patch = r#"{"spec": {"template": {"spec": {"dnsPolicy": "Default"}}}}"#;
    let place = [
        "get",
        "daemonsets",
        "-A",
        "-o",
        "jsonpath={.items[0].metadata.namespace}",
    ];
    let label = "-l=clusterprovisioner.rke.io/chart=nginx";
    let place = site.kubectl(&[&place[..], &[label]].concat()).well().stdout;
    let place = format!("--namespace={place}");
    let place = place.as_str();
    site.kubectl(&["patch", set, place, "-p", patch]).well();
    let plan = site.run(&["plan"]).well().stdout;
    for what in [
        "render and apply canal",
        "ConfigMap `kube-system/rke2-canal-config`",
        "render and apply nginx",
        "changed by others",
    ] {
        assert!(plan.contains(what), "{what} is not in\n{plan}");
    }
    goes_up(site);
    let policy = "jsonpath={.spec.template.spec.dnsPolicy}";
    let policy = site.kubectl(&["get", set, place, "-o", policy]).well();
    assert_eq!(policy.stdout, "ClusterFirst");
    // What is nobody's of ours stays.
    site.kubectl(&["annotate", set, place, "theirs=kept"])
        .well();
    site.has_nothing_to_do();
}

/// A definition comes before its objects, a hook runs first; what others made of a kind keeps its definition.
fn another_one_takes_its_place(site: &Site) {
    write(site, "traefik");
    goes_up(site);
    answers(site, "404 page not found");
    assert_eq!(objects(site, "nginx"), Vec::<String>::new());
    let theirs =
        "apiVersion: traefik.io/v1alpha1\nkind: IngressRoute\nmetadata: {name: theirs}\nspec: {}\n";
    site.write_config("theirs.yml", theirs);
    let file = site.path("theirs.yml").to_string_lossy().into_owned();
    site.kubectl(&["apply", "-f", &file]).well();
    write(site, "none");
    let said = goes_up(site);
    assert!(said.contains("these stay"), "{said}");
    let definition = "customresourcedefinition.apiextensions.k8s.io/ingressroutes.traefik.io";
    assert_eq!(objects(site, "traefik"), [definition]);
    site.kubectl(&["get", "ingressroute", "theirs"]).well();
}

/// Killed while a chart is applied, and while one is pruned.
fn what_is_cut_is_carried_on(site: &Site) {
    for (provider, title) in [
        ("nginx", "render and apply nginx"),
        ("none", "delete nginx"),
    ] {
        write(site, provider);
        for tenths in [1, 4, 8, 14] {
            let after = Duration::from_millis(tenths * 100);
            let fatal = |step: &str| step.starts_with(title).then_some(after);
            if site.kill_when(&["up", "--yes"], fatal).is_none() {
                break;
            }
        }
        goes_up(site);
    }
    assert_eq!(objects(site, "nginx"), Vec::<String>::new());
}
