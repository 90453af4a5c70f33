//! Servers as different people have set them up: what is not plain about each is carried over, got
//! around, or named before anything is changed; and `remove` gives each back as it was.

use std::{thread, time::Duration};

use lab::Profile;

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
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

/// As the CIS benchmark wants it: what goes through SSH are sockets, not ports. It is told at once and
/// not after five minutes of waiting, and nothing was begun.
#[test]
fn an_sshd_that_forwards_no_ports_is_refused_at_once() {
    let site = Site::new("no-ports", Profile::NoPortForwarding);
    let before = snapshot::take(site.node());
    let up = site.run(&["up", "--yes"]);
    assert_eq!(up.status, 2, "{up:?}");
    assert!(up.stderr.contains("AllowTcpForwarding"), "{up:?}");
    let sudo = "its own folder, since it was asked whether the user may use it";
    let allowed = [("files", snapshot::CAME, "/run/sudo/ts", sudo)];
    snapshot::unchanged(site.node(), &before, &allowed);
}
