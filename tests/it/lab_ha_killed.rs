//! `kill -9` at each kind of step of an upgrade to the next minor release, while the cluster is written to. Not
//! beside the other kills of `make test`: a second release takes ten minutes to build where there is none.

use lab::{LabSpec, Profile};
use serde_json::json;

use crate::{
    lab_many::{ALL, CENTRAL, WORKER, drains},
    lab_many_killed::{UP, converged, killed, met},
    real::{Site, writer::Writer},
};

const FROM: &str = "v1.32.13";
const TO: &str = "v1.33.13";

#[test]
fn an_upgrade_converges_wherever_it_is_killed() {
    let nodes = ["n1", "n2", "n3", "n4"];
    let members = ["etcd-n1", "etcd-n2", "etcd-n3"];
    let spec = nodes.iter().fold(LabSpec::own("ha-killed"), |spec, name| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec.release(FROM).release(TO));
    site.names(&[
        ("n1", ALL),
        ("n2", CENTRAL),
        ("n3", CENTRAL),
        ("n4", WORKER),
    ]);
    let goes_to = |release: &str| {
        site.edits(|config| {
            config["kubernetes_version"] = json!(release);
            drains(config);
        });
    };
    goes_to(FROM);
    site.run(UP).well();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let writer = Writer::start(&site, site.lab.node("n4"), &runtime);

    goes_to(TO);
    let rolled = [
        "replace etcd",
        "replace kube-apiserver",
        "replace kube-scheduler",
        "drain",
        "replace kubelet",
        "replace kube-proxy",
    ];
    met(&killed(&site, UP), &rolled);
    converged(&site, "n1", &nodes, &members, 2);
    assert!(site.nobody_is_cordoned());
    let path = "jsonpath={.items[*].status.nodeInfo.kubeletVersion}";
    let kubelets = site.kubectl(&["get", "nodes", "-o", path]).well().stdout;
    let kubelets: Vec<&str> = kubelets.split_whitespace().collect();
    assert_eq!(kubelets, [TO; 4]);

    writer.nothing_is_lost(&runtime);
    site.run(&["remove", "--force"]).well();
}
