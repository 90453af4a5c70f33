//! Nodes of several releases of Debian, each with the Docker, containerd and systemd of its packages: `doctor` finds
//! nothing, a cluster is made, left alone and removed, and nothing is left. `make test-versions ONLY=distributions` runs
//! these, for the images of their nodes take minutes to build. Debian 14 is not
//! among them: its systemd needs cgroup v2, which not every machine with a lab has.

use std::time::Instant;

use lab::{LabSpec, Profile, Suite};

use crate::{
    lab_many::{ALL, WORKER},
    lab_remove::ALLOWED,
    real::{Site, snapshot, tell},
};

const HEALTHY: &str = "every node answers, and nothing prevents `up`";

/// How people set a server up that runs it: Debian 11 has a containerd that is too old.
fn profile(suite: Suite) -> Profile {
    match suite {
        Suite::Bullseye => Profile::Containerd2,
        Suite::Bookworm | Suite::Trixie | Suite::Forky => Profile::Plain,
    }
}

/// Nothing prevents `up`, and there is no warning. How fast the disk is here does not matter.
#[track_caller]
fn is_healthy(site: &Site) {
    let run = site.run(&["doctor", "--no-write"]).well();
    tell(&run.stdout);
    let last = run.stdout.trim_end().lines().last();
    assert_eq!(last, Some(HEALTHY), "{run:?}");
}

/// From a server of that release to a cluster and back.
fn is_a_node_and_a_server_again(suite: Suite) {
    let name = format!("on-{}", suite.name());
    let site = Site::of(&LabSpec::own(&name).node_of(suite, "n1", profile(suite)));
    // What iptables makes when it is first used is there before, too.
    site.node()
        .sh("iptables -w -L >/dev/null")
        .expect("iptables");
    let before = snapshot::take(site.node());
    is_healthy(&site);
    snapshot::unchanged(site.node(), &before, &[]);

    let begun = Instant::now();
    site.run(&["up", "--yes"]).well();
    tell(&format!(
        "up on {}: {:.1} s",
        suite.name(),
        begun.elapsed().as_secs_f64()
    ));
    assert!(site.is_ready());
    site.has_nothing_to_do();
    let containers = site.containers();
    let again = site.run(&["up"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    assert_eq!(site.containers(), containers);
    // The disk is measured once more, next to a member of etcd; its port is in use by now.
    let run = site.run(&["doctor"]);
    tell(&run.stdout);
    assert_eq!(run.status, 0, "{run:?}");

    site.run(&["remove", "--force"]).well();
    let asked = "containerd 1.6 makes it when it is first asked for its plugins";
    let folder = "/var/lib/containerd/io.containerd.grpc.v1.introspection";
    let asked = ("files", snapshot::CAME, folder, asked);
    let allowed: Vec<_> = ALLOWED.iter().copied().chain([asked]).collect();
    snapshot::unchanged(site.node(), &before, &allowed);
}

#[test]
fn debian_11_with_a_newer_containerd() {
    is_a_node_and_a_server_again(Suite::Bullseye);
}

#[test]
fn debian_12() {
    is_a_node_and_a_server_again(Suite::Bookworm);
}

#[test]
fn debian_13() {
    is_a_node_and_a_server_again(Suite::Trixie);
}

/// Also between them: long packets, and datagrams to a port that nothing listens on.
#[test]
fn doctor_finds_nothing_on_nodes_of_different_releases() {
    let suites = [Suite::Bullseye, Suite::Bookworm, Suite::Trixie];
    let names: Vec<String> = (1..=suites.len())
        .map(|number| format!("n{number}"))
        .collect();
    let nodes = || names.iter().zip(&suites);
    let spec = nodes().fold(LabSpec::own("releases"), |spec, (name, suite)| {
        spec.node_of(*suite, name, profile(*suite))
    });
    let site = Site::of(&spec);
    let roles = names.iter().enumerate().map(|(index, name)| {
        let roles = if index == 0 { ALL } else { WORKER };
        (name.as_str(), roles)
    });
    site.names(&roles.collect::<Vec<_>>());
    let begun = Instant::now();
    is_healthy(&site);
    tell(&format!(
        "doctor of {} nodes: {:.1} s",
        names.len(),
        begun.elapsed().as_secs_f64()
    ));
}
