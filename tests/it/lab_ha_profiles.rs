//! Three servers of each kind that the lab has, in one cluster: it is made, a second run does nothing and logs in once to
//! each machine, and `remove` gives the servers back as they were. What is special about each kind with one node is in
//! `lab_profiles`, `lab_ways` and `lab_registries`.

use lab::{LabSpec, Node, Profile};
use serde_json::{Value, json};

use crate::{
    lab_many::ALL,
    lab_registries,
    lab_remove::ALLOWED,
    lab_ways::{self, Agent},
    real::{Run, Site, snapshot},
};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Three of a kind, and a config that gives each all roles.
fn three(name: &str, profile: Profile) -> Site {
    let spec = NODES
        .iter()
        .fold(LabSpec::own(name), |spec, node| spec.node(node, profile));
    let site = Site::of(&spec);
    site.names(&NODES.map(|node| (node, ALL)));
    site
}

fn nodes(site: &Site) -> [&Node; 3] {
    NODES.map(|name| site.lab.node(name))
}

/// `up`, `up` again with so many logins to each, `remove`.
fn goes_through(site: &Site, expected: [u32; 3], run: impl Fn(&[&str]) -> Run) {
    let before = nodes(site).map(snapshot::take);
    run(&["up", "--yes"]).well();
    let ready = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
    // The name in the kubeconfig may be known behind a bastion host only.
    let server = format!("--server=https://{}:6443", site.node().address());
    let ready = site.kubectl(&["get", "nodes", "-o", ready, &server]).stdout;
    assert_eq!(ready, "True True True");

    let so_far = nodes(site).map(Site::logins);
    let again = run(&["up"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    let more = nodes(site).map(Site::logins);
    let more = [0, 1, 2].map(|at| more[at] - so_far[at]);
    assert_eq!(more, expected, "logins of a run");

    run(&["remove", "--force"]).well();
    let sudo = "its own folder, since it was asked whether the user may use it";
    let asked = ("files", snapshot::CAME, "/run/sudo/ts", sudo);
    let stay = "system images stay, from whichever registry";
    let pulled = ("images", snapshot::CAME, "private.lab", stay);
    let allowed: Vec<_> = ALLOWED.iter().copied().chain([asked, pulled]).collect();
    for (node, before) in nodes(site).into_iter().zip(&before) {
        snapshot::unchanged(node, before, &allowed);
    }
}

fn plainly(name: &str, profile: Profile) {
    let site = three(name, profile);
    goes_through(&site, [1, 1, 1], |args| site.run(args));
}

#[test]
fn three_as_debian_ships_them() {
    plainly("three-plain", Profile::Plain);
}

#[test]
fn three_with_containerd_as_docker_ships_it() {
    plainly("three-cri-off", Profile::CriOff);
}

#[test]
fn three_that_forward_nothing() {
    plainly("three-no-fwd", Profile::NoForwarding);
}

#[test]
fn three_that_forward_no_ports() {
    plainly("three-no-ports", Profile::NoPortForwarding);
}

#[test]
fn three_that_leave_docker_to_sudo() {
    plainly("three-sudo", Profile::SudoOnly);
}

#[test]
fn three_that_allow_one_session() {
    plainly("three-session", Profile::MaxSessions1);
}

#[test]
fn three_that_are_hardened() {
    plainly("three-hardened", Profile::Hardened);
}

#[test]
fn three_with_containerd_2() {
    plainly("three-ctrd-2", Profile::Containerd2);
}

/// The first is the first bastion, the second is the second, and only the second knows the names of the nodes.
#[test]
fn three_behind_two_bastions() {
    let site = three("three-bastions", Profile::Plain);
    let agent = Agent::start(&site);
    let [first, second, _] = nodes(&site);
    let write = |node: &Node, lines: &str| {
        let add = format!("printf '{lines}' >> /etc/hosts");
        node.sh(&add).expect("names");
    };
    write(first, &format!("{} middle.lab\\n", second.address()));
    let names = nodes(&site).map(|node| format!("{} {}.inside\\n", node.address(), node.name()));
    write(second, &names.concat());

    site.edits(|config| {
        let entries = config["nodes"].as_array_mut().expect("nodes");
        for (node, entry) in nodes(&site).into_iter().zip(entries) {
            entry["address"] = format!("{}.inside", node.name()).into();
            entry["internal_address"] = node.address().to_string().into();
            entry["ssh_key_path"] = Value::Null;
        }
        config["ssh_agent_auth"] = true.into();
        config["bastion_host"] = json!({
            "address": "middle.lab",
            "user": second.user(),
            "through": [{"address": first.address().to_string(), "user": first.user()}],
        });
    });
    goes_through(&site, [2, 2, 1], |args| lab_ways::run(&site, &agent, args));
}

#[test]
fn three_that_pull_from_a_registry_with_a_password() {
    let site = three("three-registry", Profile::Plain);
    lab_registries::start(&site);
    let address = site.node().sh("getent hosts private.lab").expect("a name");
    let address = address.split_whitespace().next().expect("an address");
    for name in ["n2", "n3"] {
        let knows =
            format!("echo '{address} private.lab' >> /etc/hosts; rm -r /etc/containerd/certs.d");
        site.lab.node(name).sh(&knows).expect("a name");
    }
    site.edits(|config| config["private_registries"] = lab_registries::login());
    goes_through(&site, [1, 1, 1], |args| site.run(args));
}
