//! A registry that sends 1 MB/s, a node that is 200 ms away, and a link that is gone for ten seconds: a run takes long,
//! says why, and ends well.

use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use lab::{Fault, Line, Profile};
use serde_json::Value;

use crate::real::{Run, Site, tell};

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// What begins when the first large image is on its way.
const PULLS: &str =
    "docker ps --all --format '{{.Names}}' | grep -q rke-operator && docker images | grep -q etcd";

/// From now on the node's sshd is reached by a long line.
fn lead_through_a_line(site: &Site) {
    let node = site.node();
    let nodes = [(node.name(), node.address().into())];
    let line = Line::to(nodes.into_iter(), ROUND_TRIP).expect("a line");
    let yaml = node.cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let entry = &mut config["nodes"][0];
    entry["internal_address"] = node.address().to_string().into();
    entry["address"] = "127.0.0.1".into();
    entry["port"] = line.0[node.name()].into();
    site.write_config("cluster.yml", &config.to_string());
}

#[test]
fn a_slow_registry_a_long_line_and_a_link_that_drops_are_waited_for_and_named() {
    let site = Site::new("slow", Profile::Plain);
    let (node, registry) = (site.node(), site.lab.registry());
    lead_through_a_line(&site);
    registry.slow().expect("the registry is slow");

    let begun = Instant::now();
    let mut command = site.command(&["up", "--yes", "--accept-new-host-keys"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    Site::eventually("images come", Duration::from_mins(5), || {
        node.exec(PULLS).is_ok_and(|output| output.ok())
    });
    node.suffer(Fault::Unplugged).expect("the link drops");
    thread::sleep(Duration::from_secs(10));
    node.heal().expect("the link is there");
    let output = child.wait_with_output().expect("the run ends");
    let up = Run {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
    .well();
    tell(&up.stderr);
    tell(&format!("took {:?}", begun.elapsed()));
    for why in [" MB of ", "is pulling `"] {
        assert!(up.stderr.contains(why), "{why}: {up:?}");
    }
    let server = format!("--server=https://{}:6443", node.address());
    let ready = site.kubectl(&["wait", "node/n1", "--for=condition=Ready", &server]);
    assert_eq!(ready.status, 0, "{ready:?}");

    let again = site.run(&["up", "--accept-new-host-keys"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    site.run(&["remove", "--force", "--accept-new-host-keys"])
        .well();
}
