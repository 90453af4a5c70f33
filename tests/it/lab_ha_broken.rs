//! One highly available cluster on real nodes, broken in many ways, one after the other: each has its exit
//! code and its words, and what was written is there when it is whole again. `make test-ha` runs it.

use std::{
    fmt::Write as _,
    fs, io,
    time::{Duration, Instant},
};

use lab::{LabSpec, Node, Profile};
use serde_json::json;

use crate::{
    lab_many::{ALL, WORKER, names},
    real::{Run, Site, publish, tell, writer::Writer},
};

const NODES: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];
const UP: &[&str] = &["up", "--yes"];

/// A cluster of three all-in-one nodes and two workers, and what became of each case.
struct Broken {
    site: Site,
    runtime: tokio::runtime::Runtime,
    table: String,
}

impl Broken {
    fn new() -> Self {
        let spec = NODES.iter().fold(LabSpec::own("ha-broken"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
        let site = Site::of(&spec);
        site.names(&[
            ("n1", ALL),
            ("n2", ALL),
            ("n3", ALL),
            ("n4", WORKER),
            ("n5", WORKER),
        ]);
        let begun = Instant::now();
        site.run(&["doctor", "--no-write"]).well();
        let took = begun.elapsed().as_secs_f64();
        tell(&format!("doctor of five nodes: {took:.1} s"));
        site.run(UP).well();
        Self {
            site,
            runtime: tokio::runtime::Runtime::new().expect("a runtime"),
            table: "| broken | `up` ends with | what it says |\n|---|---|---|\n".to_owned(),
        }
    }

    fn node(&self, name: &str) -> &Node {
        self.site.lab.node(name)
    }

    /// `up` on what is broken: it ends so and says these words. Then it is healed, and whole again.
    fn case(
        &mut self,
        what: &str,
        breaks: impl FnOnce(&Site),
        (status, words): (i32, &[&str]),
        heals: impl FnOnce(&Site),
    ) {
        self.judged(what, breaks, |site| site.run(UP), (status, words), heals);
    }

    fn judged(
        &mut self,
        what: &str,
        breaks: impl FnOnce(&Site),
        runs: impl FnOnce(&Site) -> Run,
        (status, words): (i32, &[&str]),
        heals: impl FnOnce(&Site),
    ) {
        tell(&format!("== {what}"));
        breaks(&self.site);
        self.told(what, runs, (status, words));
        heals(&self.site);
        self.is_whole(what);
    }

    /// One run on what is broken, as a row of the table.
    fn told(
        &mut self,
        what: &str,
        runs: impl FnOnce(&Site) -> Run,
        (status, words): (i32, &[&str]),
    ) {
        let begun = Instant::now();
        let run = runs(&self.site);
        let took = begun.elapsed().as_secs_f64();
        tell(&format!(
            "exit {} after {took:.1} s\n{}",
            run.status, run.stderr
        ));
        assert_eq!(run.status, status, "{what}: {run:?}");
        let said = format!("{}{}", run.stdout, run.stderr);
        for word in words {
            assert!(said.contains(word), "{what}: no `{word}` in {run:?}");
        }
        let words = if words.is_empty() {
            "–".to_owned()
        } else {
            format!("`{}`", words.join("`, `"))
        };
        writeln!(self.table, "| {what} | {status}, {took:.0} s | {words} |").expect("a row");
    }

    fn is_whole(&self, what: &str) {
        self.site.gets_through(what);
        self.site.is_whole(what, &NODES, &["n1", "n2", "n3"]);
    }

    /// The config with other flags of the kubelets.
    fn wants_pods(&self, most: &str) {
        self.site.edits(|config| {
            config["services"]["kubelet"]["extra_args"]["max-pods"] = json!(most);
        });
    }

    fn state(&self) -> Vec<u8> {
        fs::read(self.site.path("cluster.rke-operator.json")).expect("a state")
    }
}

fn on(site: &Site, node: &str, script: &str) {
    site.lab.node(node).sh(script).expect(script);
}

fn nothing(_: &Site) {}

/// Machines that are off, hang, or are cut off.
fn machines(broken: &mut Broken) {
    broken.case(
        "one of three members is off",
        |site| site.lab.node("n3").stop().expect("off"),
        (3, &["n3"]),
        |site| site.lab.heal().expect("healed"),
    );
    let before = broken.state();
    broken.case(
        "two of three members are off",
        |site| {
            site.lab.node("n2").stop().expect("off");
            site.lab.node("n3").stop().expect("off");
        },
        (
            2,
            &[
                "etcd needs 2 of its 3 nodes, and only 1 can be used",
                "n2",
                "n3",
            ],
        ),
        |site| site.lab.heal().expect("healed"),
    );
    assert_eq!(
        broken.state(),
        before,
        "nothing was written without a quorum"
    );
    broken.case(
        "a worker hangs",
        |site| site.lab.node("n5").pause().expect("it hangs"),
        (3, &["n5"]),
        |site| site.lab.heal().expect("healed"),
    );
    broken.case(
        "the tool is cut from a worker",
        |site| site.lab.node("n4").cut_from_tool().expect("cut"),
        (3, &["n4"]),
        |site| site.lab.heal().expect("healed"),
    );
    broken.case(
        "two members are cut from each other",
        |site| {
            let [a, b] = ["n2", "n3"].map(|name| site.lab.node(name));
            a.cut_from(b).expect("cut");
        },
        (0, &[]),
        |site| site.lab.heal().expect("healed"),
    );
}

/// What is on a machine is gone, or was changed by hand.
fn by_hand(broken: &mut Broken) {
    broken.case(
        "a container is stopped, one is removed, one is paused",
        |site| {
            on(site, "n4", "docker stop kubelet");
            on(site, "n5", "docker rm -f kube-proxy");
            on(site, "n3", "docker pause kube-scheduler");
        },
        (0, &[]),
        nothing,
    );
    broken.case(
        "a container was made anew by hand with other flags",
        |site| {
            on(
                site,
                "n5",
                "image=$(docker inspect -f '{{.Config.Image}}' kube-proxy)
                 docker rm -f kube-proxy
                 docker run -d --name kube-proxy --net host $image kube-proxy --version",
            );
        },
        (2, &["kube-proxy", "docker rm -f"]),
        |site| on(site, "n5", "docker rm -f kube-proxy"),
    );
    broken.case(
        "a node's certificates are deleted",
        |site| on(site, "n5", "rm -rf /etc/kubernetes/ssl"),
        (0, &[]),
        nothing,
    );
    broken.case(
        "a Node object is deleted by hand",
        |site| {
            site.kubectl(&["delete", "node", "n5", "--wait=false"])
                .well();
        },
        (0, &[]),
        nothing,
    );
    broken.case(
        "a member's data is deleted",
        |site| {
            on(
                site,
                "n3",
                "docker stop etcd && rm -rf /var/lib/etcd/member",
            );
        },
        (
            3,
            &["/var/lib/etcd/member", "take the node out of the config"],
        ),
        |site| {
            let all = fs::read(site.path("cluster.yml")).expect("a config");
            site.names(&[("n1", ALL), ("n2", ALL), ("n4", WORKER), ("n5", WORKER)]);
            site.run(UP).well();
            assert_eq!(site.members("n1"), names(&["etcd-n1", "etcd-n2"]));
            fs::write(site.path("cluster.yml"), all).expect("the config is back");
        },
    );
}

/// Raised by hand, as a member raises it whose database has reached its quota.
const NO_SPACE: &str = r#"
    flag() { docker inspect -f '{{range .Args}}{{println .}}{{end}}' etcd | sed -n "s/^--$1=//p"; }
    curl -sSf --cacert "$(flag trusted-ca-file)" --cert "$(flag cert-file)" --key "$(flag key-file)" \
      https://127.0.0.1:2379/v3/maintenance/alarm \
      -d '{"action":"ACTIVATE","memberID":"0","alarm":"NOSPACE"}'"#;

/// How long a node is away for its pods to be evicted, and more.
const AWAY: Duration = Duration::from_secs(360);
/// How much is written meanwhile.
const WRITES: usize = 5000;

/// The mount point below is empty then, as on a node that booted without its disk.
const UNMOUNT: &str = "docker stop etcd && mv /var/lib/etcd/member /var/lib/etcd-disk";
const MOUNT: &str = "mv /var/lib/etcd-disk /var/lib/etcd/member";

/// Disks that are full or away, and etcd's alarm.
fn disks(broken: &mut Broken) {
    broken.wants_pods("101");
    broken.case(
        "a worker's disk is full while its kubelet is to change",
        |site| site.lab.node("n5").fill_disk().expect("full"),
        (3, &["n5", "no space left on device"]),
        |site| site.lab.heal().expect("healed"),
    );
    broken.wants_pods("103");
    broken.case(
        "etcd has raised NOSPACE while kubelets are to change",
        |site| on(site, "n1", NO_SPACE),
        (3, &["NOSPACE", "is not replaced yet"]),
        |site| {
            let said = site.run(&["etcd", "defrag"]).well().stdout;
            let each = NODES[..3]
                .iter()
                .all(|node| said.contains(&format!("{node}: ")));
            assert!(
                each && said.contains("the alarm NOSPACE has ended"),
                "{said}"
            );
        },
    );
    broken.case(
        "a member's disk is not mounted at boot",
        |site| {
            on(site, "n2", UNMOUNT);
            site.lab.node("n2").stop().expect("off");
            site.lab.heal().expect("it boots");
        },
        (3, &["n2", "/var/lib/etcd/member"]),
        |site| on(site, "n2", MOUNT),
    );
}

/// The same address, and a machine on which nothing of the cluster is.
fn installed_anew(broken: &mut Broken) {
    let what = "a member's machine was installed anew";
    tell(&format!("== {what}"));
    let lab = &broken.site.lab;
    lab.reinstall("n3", &mut io::stderr()).expect("a machine");
    broken.told(
        what,
        |site| site.run(UP),
        (3, &["the host key of node `n3`", "has changed"]),
    );
    broken.site.lab.learn_host_keys().expect("they are known");
    broken.judged(
        "its new host key is accepted",
        nothing,
        |site| site.run(UP),
        (1, &["another machine answers as node `n3`", "--lose n3"]),
        |site| {
            // Its Node is Ready for as long as its last report counts.
            Site::eventually("n3 is given up", Duration::from_secs(180), || {
                let run = site.run(&["up", "--yes", "--lose", "n3"]);
                tell(&format!("--lose n3: exit {}\n{}", run.status, run.stderr));
                run.status == 0
            });
        },
    );
}

/// A control plane that is away for longer than its leases and its pods' tolerations last, while the
/// others are written to.
fn away(broken: &mut Broken) {
    let writer = Writer::start(&broken.site, broken.node("n4"), &broken.runtime);
    broken.site.lab.node("n3").stop().expect("off");
    let begun = Instant::now();
    writer.many("while-away", WRITES, &broken.runtime);
    std::thread::sleep(AWAY.saturating_sub(begun.elapsed()));
    let what = format!("a control plane was off for six minutes and {WRITES} writes");
    broken.case(
        &what,
        |site| site.lab.heal().expect("healed"),
        (0, &[]),
        nothing,
    );
    let count = "docker exec etcd etcdctl get --prefix /registry/configmaps/default/while-away \
                 --count-only --consistency=s --write-out=fields | sed -n 's/^\"Count\" : //p'";
    let has = broken.node("n3").sh(count).expect("etcd answers");
    assert_eq!(
        has.trim(),
        WRITES.to_string(),
        "its own member has them all"
    );
    writer.nothing_is_lost(&broken.runtime);
}

/// Two runs at once, of two people with the same files.
fn two_runners(broken: &mut Broken) {
    broken.wants_pods("102");
    let second = tempfile::tempdir().expect("a folder");
    let file = second.path().join("cluster.yml");
    fs::copy(broken.site.path("cluster.yml"), &file).expect("a copy");
    fs::copy(
        broken.site.path("cluster.rke-operator.json"),
        second.path().join("cluster.rke-operator.json"),
    )
    .expect("a copy");
    let writer = Writer::start(&broken.site, broken.node("n4"), &broken.runtime);
    let mut other = broken
        .site
        .command(&["up", "--yes", "--config", &file.to_string_lossy()])
        .spawn()
        .expect("it starts");
    broken.case("two runs at once", nothing, (0, &[]), nothing);
    let status = other.wait().expect("it ends");
    tell(&format!("the other run: {status}"));
    writer.nothing_is_lost(&broken.runtime);
}

#[test]
fn a_cluster_that_is_broken_in_many_ways_is_whole_again() {
    let mut broken = Broken::new();
    two_runners(&mut broken);
    disks(&mut broken);
    by_hand(&mut broken);
    machines(&mut broken);
    installed_anew(&mut broken);
    away(&mut broken);
    tell(&broken.table);
    publish("HA_TABLE", &broken.table);
}
