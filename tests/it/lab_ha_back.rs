//! Changes that fail on one node of a real cluster go back there: the former container runs again, no other node is
//! touched, the run ends with 3, and what has failed is not tried again until it is another definition or a person asks
//! for it. `make test-ha` runs it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    process::Command,
    time::{Duration, Instant},
};

use lab::{LabSpec, Node, Profile};
use serde_json::json;

use crate::{
    lab_many::ALL,
    real::{Run, Site, publish, tell},
};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The node on which changes fail.
const BROKEN: &str = "n2";
const UP: &[&str] = &["up", "--yes"];
/// A run waits so long for a component to be healthy.
const LIMIT: Duration = Duration::from_secs(300);

/// How a program fails. Its flags are tried with `--version` before anything is replaced, and it has none to complain of.
#[derive(Clone, Copy)]
enum Failing {
    /// It says why, and exits.
    Exits,
    /// It runs and does nothing.
    Hangs,
}

impl Failing {
    const fn line(self) -> &'static str {
        match self {
            Self::Exits => "echo 'panic: broken on purpose' >&2; exit 7",
            Self::Hangs => "exec sleep 100000",
        }
    }

    /// What the run says of it.
    const fn words(self) -> &'static str {
        match self {
            Self::Exits => "broken on purpose",
            Self::Hangs => "did not end within 300 s",
        }
    }
}

struct Back {
    site: Site,
    table: String,
}

impl Back {
    fn node(&self, name: &str) -> &Node {
        self.site.lab.node(name)
    }

    fn image(&self, node: &str, component: &str) -> String {
        let image = format!("docker inspect -f '{{{{.Config.Image}}}}' {component}");
        let image = self.node(node).sh(&image).expect("it is there");
        image.trim().to_owned()
    }

    /// Its id on each node: another one is another container.
    fn ids(&self, component: &str) -> BTreeMap<&'static str, String> {
        let id = format!("docker inspect -f '{{{{.Id}}}}' {component}");
        let of = |name| (name, self.node(name).sh(&id).expect("it is there"));
        NODES.into_iter().map(of).collect()
    }

    /// What changes have kept on these nodes.
    fn kept(&self, nodes: &[&str]) -> Vec<String> {
        let list = "docker ps -a --format '{{.Names}}' | grep '^before-' || true";
        let of = |name: &&str| self.node(name).sh(list).expect("it answers");
        let all: Vec<String> = nodes.iter().map(of).collect();
        all.iter()
            .flat_map(|names| names.lines().map(str::to_owned))
            .collect()
    }

    /// The image of that name is on every node; on one of them the program in it fails.
    fn makes(&self, image: &str, of: &str, program: &str, base: &str, failing: Failing) {
        for name in NODES {
            let script = format!("docker tag {of} {image}");
            self.node(name).sh(&script).expect("an image");
        }
        let script = format!(
            "cat > /root/program <<'END'
#!/bin/sh
for word in \"$@\"; do [ \"$word\" = --version ] && exit 0; done
{}
END
             chmod 755 /root/program
             docker rmi {image}
             docker create --name failing {base} none
             docker cp /root/program failing:/usr/local/bin/{program}
             docker commit failing {image}
             docker rm failing",
            failing.line()
        );
        self.node(BROKEN).sh(&script).expect("another image");
    }

    fn repairs(&self, image: &str, of: &str) {
        let script = format!("docker tag {of} {image}");
        self.node(BROKEN).sh(&script).expect("the right image");
    }

    /// `up` with an image whose program fails on one node: it is rolled back there, and no further node is changed.
    fn goes_back(&mut self, what: &str, program: &str, failing: Failing) -> Run {
        tell(&format!("== {what}"));
        let former = self.image(BROKEN, program);
        let before = self.ids(program);
        let begun = Instant::now();
        let run = self.site.run(UP);
        let took = begun.elapsed();
        tell(&format!(
            "exit {} after {took:?}\n{}",
            run.status, run.stderr
        ));
        assert_eq!(run.status, 3, "{what}: {run:?}");
        for word in [
            program,
            BROKEN,
            failing.words(),
            "up --retry",
            "the former container runs there again",
        ] {
            assert!(run.stderr.contains(word), "{what}: no `{word}` in {run:?}");
        }
        self.stands(what, program, &former, &before);
        let back = self.took_back(program);
        if matches!(failing, Failing::Hangs) {
            assert!(back < LIMIT + Duration::from_secs(30), "{what}: {back:?}");
        }
        let seconds = (took.as_secs_f64(), back.as_secs_f64());
        writeln!(
            self.table,
            "| {what} | {:.0} s | {:.0} s |",
            seconds.0, seconds.1
        )
        .expect("a row");

        // Not tried again: whatever else is done, the component is the same container on every node.
        let after = self.ids(program);
        let again = self.site.run(UP);
        assert_eq!(again.status, 3, "{what}: {again:?}");
        assert_eq!(self.ids(program), after, "{what}: it was tried again");
        assert_eq!(self.kept(&NODES), [""; 0], "{what}");
        run
    }

    /// The former one runs on the broken node, and one node at least was not touched.
    fn stands(&self, what: &str, program: &str, former: &str, before: &BTreeMap<&str, String>) {
        assert_eq!(self.image(BROKEN, program), former, "{what}");
        let after = self.ids(program);
        assert_eq!(
            after[BROKEN], before[BROKEN],
            "{what}: the former container itself"
        );
        let touched = NODES.into_iter().filter(|name| after[name] != before[name]);
        let touched: Vec<&str> = touched.collect();
        assert!(touched.len() < NODES.len() - 1, "{what}: {touched:?}");
        let policy = format!(
            "docker inspect -f '{{{{.HostConfig.RestartPolicy.Name}}}} {{{{.State.Running}}}}' {program}"
        );
        let policy = self.node(BROKEN).sh(&policy).expect("it is there");
        assert_eq!(policy.trim(), "always true", "{what}");
        let kept = self.kept(&[BROKEN]);
        assert!(
            !kept.contains(&format!("before-{program}")),
            "{what}: {kept:?}"
        );
        Site::eventually("every node is Ready", Duration::from_secs(120), || {
            self.site.ready() == crate::lab_many::names(&NODES)
        });
        assert!(self.site.nobody_is_cordoned(), "{what}");
    }

    /// A member of the former minor is left among the others while the new one fails: it goes back.
    fn minor_of_etcd(&mut self) {
        let log = &mut std::io::stderr();
        let program = lab::etcd("v1.32.13", log).expect("etcd of the former minor");
        let images = lab::images(log).expect("images");
        let wanted = images.program("etcd").expect("etcd").names[0].clone();
        let former = "rancher/hardened-etcd:v3.5.26-k3s1-build1";
        for name in NODES {
            let to = format!("{}:/root/etcd", self.node(name).container());
            let copy = Command::new("docker")
                .arg("cp")
                .arg(&program)
                .arg(to)
                .status();
            assert!(copy.expect("docker").success());
            let script = format!(
                "docker pull --quiet {wanted}
                 docker create --name former {wanted} none
                 docker cp /root/etcd former:/usr/local/bin/etcd
                 docker commit former {former}
                 docker rm former"
            );
            self.node(name).sh(&script).expect("an image");
        }
        let wants = |image: &str| {
            self.site
                .edits(|config| config["system_images"]["etcd"] = json!(image));
        };
        wants(former);
        self.site.run(UP).well();
        // The leader is the last.
        let leads = "id=$(docker exec etcd etcdctl member list | sed -n 's/, .*etcd-n3,.*//p')
                     docker exec etcd etcdctl move-leader $id || true";
        for name in NODES {
            self.node(name).sh(leads).expect("it answers");
        }
        let new = format!("{wanted}-back");
        wants(&new);
        // A base with a shell: the published one has nothing but etcd.
        let base = self.image("n1", "kube-apiserver");
        self.makes(&new, &wanted, "etcd", &base, Failing::Exits);
        self.goes_back("etcd", "etcd", Failing::Exits);
        let minors = NODES.map(|name| self.image(name, "etcd"));
        assert_eq!(
            minors,
            [new.as_str(), former, former],
            "in the middle of the two"
        );
        self.repairs(&new, &wanted);
        self.site.run(&["up", "--yes", "--retry"]).well();
        assert_eq!(
            NODES.map(|name| self.image(name, "etcd")),
            [new.as_str(); 3]
        );
    }

    /// How long the node was without the former container: from when that was stopped until it ran again.
    fn took_back(&self, program: &str) -> Duration {
        let times = format!(
            "docker inspect -f '{{{{.State.FinishedAt}}}} {{{{.State.StartedAt}}}}' {program} | \
             while read a b; do echo $(($(date -d $b +%s) - $(date -d $a +%s))); done"
        );
        let seconds = self.node(BROKEN).sh(&times).expect("two times");
        Duration::from_secs(seconds.trim().parse().expect("seconds"))
    }
}

#[test]
fn what_fails_on_one_node_goes_back_there() {
    let spec = NODES.iter().fold(LabSpec::own("ha-back"), |spec, name| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    let roles = NODES.map(|name| (name, ALL));
    site.names(&roles);
    let table =
        "| fails on the second node | run | its former container was away |\n|---|---|---|\n";
    let mut back = Back {
        site,
        table: table.to_owned(),
    };
    back.minor_of_etcd();
    let kubernetes = back.image("n1", "kube-apiserver");
    let cases = [
        ("kube-proxy", Failing::Exits),
        ("kubelet", Failing::Exits),
        ("kube-scheduler", Failing::Exits),
        ("kube-controller-manager", Failing::Hangs),
        ("kube-apiserver", Failing::Exits),
    ];
    let mut image = String::new();
    for (number, (program, failing)) in cases.into_iter().enumerate() {
        image = format!("{kubernetes}-back{number}");
        back.makes(&image, &kubernetes, program, &kubernetes, failing);
        back.site.edits(|config| {
            config["system_images"]["kubernetes"] = json!(image);
        });
        back.goes_back(program, program, failing);
    }
    back.repairs(&image, &kubernetes);
    let run = back.site.run(&["up", "--yes", "--retry"]).well();
    tell(&run.stderr);
    assert_eq!(back.kept(&NODES), [""; 0]);
    for node in NODES {
        for (program, _) in cases {
            assert_eq!(back.image(node, program), image, "{node}");
        }
    }
    back.site.has_nothing_to_do();
    tell(&back.table);
    publish("HA_TABLE", &back.table);
}
