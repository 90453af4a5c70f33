//! What passes by itself is waited for within the run: a registry that is away for a moment, a
//! Docker that is restarted during a pull, a node that hangs, an SSH connection that breaks.

use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use lab::Profile;

use crate::real::{Site, tell};

/// The claim is there: pulls begin.
const CLAIMED: &str = "docker ps --all --format '{{.Names}}' | grep -q rke-operator";
/// The first component is there.
const STARTED: &str = "docker ps --format '{{.Names}}' | grep -qx etcd";

/// Components whose start begins a wait: for etcd and the API server, and for the node.
const WAITED_FOR: [&str; 2] = ["kube-apiserver", "kube-proxy"];

/// Waits until a file or a container on the node shows how far it is.
fn await_on(site: &Site, what: &str) {
    Site::eventually(what, Duration::from_secs(90), || {
        site.node().exec(what).is_ok_and(|output| output.ok())
    });
}

#[test]
fn one_run_outlives_a_registry_that_is_away_a_docker_that_restarts_and_a_node_that_hangs() {
    let site = Site::new("hiccup", Profile::Plain);
    let child = site
        .command(&["up", "--yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let (node, registry) = (site.node(), site.lab.registry());

    await_on(&site, CLAIMED);
    registry.stop().expect("the registry stops");
    thread::sleep(Duration::from_secs(8));
    registry.start().expect("the registry starts");
    node.sh("systemctl restart docker")
        .expect("Docker restarts");

    await_on(&site, STARTED);
    let begun = Instant::now();
    node.pause().expect("it hangs");
    thread::sleep(Duration::from_secs(60));
    node.resume().expect("it goes on");
    let up = child.wait_with_output().expect("the run ends");
    tell(&format!("ended {:?} after the node hung", begun.elapsed()));
    let said = String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success(), "{}: {said}", up.status);
    assert!(site.is_ready(), "{said}");
}

/// E23: whoever waits goes on through the connection that is there by then. sshd answers all the time.
#[test]
fn one_run_outlives_its_ssh_connections() {
    let site = Site::new("cut", Profile::Plain);
    let mut child = site
        .command(&["up", "--yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let begun = Instant::now();
    let mut cuts = 0;
    let cut = format!("pkill -KILL -f '^sshd[a-z-]*: {}'", site.node().user());
    for component in WAITED_FOR {
        await_on(
            &site,
            &format!("docker ps --format '{{{{.Names}}}}' | grep -qx {component}"),
        );
        for _ in 0..3 {
            // It may take a moment until there is one again, and the run may have ended.
            Site::eventually("a connection is cut", Duration::from_secs(30), || {
                let is_cut = site.node().exec(&cut).is_ok_and(|output| output.ok());
                cuts += usize::from(is_cut);
                is_cut || child.try_wait().expect("its status").is_some()
            });
            thread::sleep(Duration::from_secs(3));
        }
    }
    let up = child.wait_with_output().expect("the run ends");
    tell(&format!("ended {:?} after its begin", begun.elapsed()));
    let said = String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success(), "{}: {said}", up.status);
    assert!(cuts > WAITED_FOR.len(), "{cuts} cuts: {said}");
    assert!(begun.elapsed() < Duration::from_secs(180), "{said}");
    assert!(site.is_ready(), "{said}");
}
