//! Servers as different people have set them up: what is not plain about each is carried over, got
//! around, or named before anything is changed; and `remove` gives each back as it was.

use std::{thread, time::Duration};

use lab::Profile;

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot, tell},
};

/// A shell that prints something at every login, which is no answer to anything. A resolver on the
/// node itself, which pods cannot ask: `CoreDNS` would ask itself. A Docker that keeps no logs: what
/// helper containers say comes another way. A proxy and a mirror that only Docker knows: pods are
/// pulled from where Docker pulls.
#[test]
fn a_server_with_all_kinds_of_odd_settings() {
    let site = Site::new("odd", Profile::Odd);
    // Whom the node's own resolver asks, where NetworkManager writes it; without it `plan` warns.
    site.node()
        .sh("mkdir -p /run/NetworkManager
             echo 'nameserver 192.0.2.53' > /run/NetworkManager/no-stub-resolv.conf")
        .expect("a file");
    let before = snapshot::take(site.node());
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    let again = site.run(&["up"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");

    let log = site.lab.registry().log().expect("the registry's log");
    let pulled = log
        .lines()
        .any(|line| line.contains("containerd/") && line.contains("hardened-coredns"));
    assert!(pulled, "nothing of a pod was pulled from the mirror");
    let environment = "systemctl show --property Environment containerd";
    let told = site.node().sh(environment).expect("a unit");
    for words in ["HTTPS_PROXY=http://proxy.lab:3128", "NO_PROXY=registry.lab"] {
        assert!(told.contains(words), "{words} is not in {told}");
    }
    // Long enough for CoreDNS to find that it asks itself, and to end.
    let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let dns = "get pods -n kube-system -l k8s-app=kube-dns -o";
    let dns: Vec<&str> = dns.split(' ').chain([restarts]).collect();
    thread::sleep(Duration::from_secs(10));
    assert_eq!(site.kubectl(&dns).stdout, "0", "CoreDNS ends");

    site.run(&["remove", "--force"]).well();
    snapshot::unchanged(site.node(), &before, ALLOWED);
}

/// As the CIS benchmark wants it: sshd forwards no ports, or nothing at all; or Docker is left to sudo. Programs of the
/// node carry what SSH does not. A run is one connection, and a second one does nothing.
fn goes_through(name: &str, profile: Profile) {
    let site = Site::new(name, profile);
    let before = snapshot::take(site.node());
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    let so_far = Site::logins(site.node());
    let again = site.run(&["up"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    assert_eq!(Site::logins(site.node()), so_far + 1);
    let doctor = site.run(&["doctor", "-o", "json"]).well();
    tell(&doctor.stdout);
    site.run(&["remove", "--force"]).well();
    let sudo = "its own folder, since it was asked whether the user may use it";
    let asked = ("files", snapshot::CAME, "/run/sudo/ts", sudo);
    let allowed: Vec<_> = ALLOWED.iter().copied().chain([asked]).collect();
    snapshot::unchanged(site.node(), &before, &allowed);
}

#[test]
fn an_sshd_that_forwards_no_ports() {
    goes_through("no-ports", Profile::NoPortForwarding);
}

#[test]
fn an_sshd_that_forwards_nothing() {
    goes_through("no-forwarding", Profile::NoForwarding);
}

#[test]
fn a_docker_that_is_left_to_sudo() {
    goes_through("sudo-only", Profile::SudoOnly);
}

/// One session at a time: commands wait for one another, and Docker is reached without one.
#[test]
fn an_sshd_that_allows_one_session() {
    goes_through("one-session", Profile::MaxSessions1);
}

#[test]
fn a_server_that_is_hardened() {
    goes_through("hardened", Profile::Hardened);
}
