//! A highly available cluster that is changed in every way while it is used: its API is written to through a
//! worker and through each control plane, and a Service of three pods is asked from every node. Nothing that
//! was acknowledged is lost and no request fails twice. `make test-ha` runs it and prints its table.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use lab::{LabSpec, Profile};
use serde_json::json;

use crate::{
    lab_many::{ALL, WORKER, drains, names},
    real::{
        Site, publish,
        reader::{Answers, Reader},
        tell,
        writer::Writer,
    },
};

const RELEASES: [&str; 4] = ["v1.32.13", "v1.33.13", "v1.34.3", "v1.34.4"];

/// The demo's Service.
const SERVICE: &str = include_str!("../demo-service.yaml");

/// Whose proxy the API is asked through.
const THROUGH: &str = "n4";

const ETCD: &[&str] = &["etcd"];

type Nodes = BTreeMap<&'static str, &'static [&'static str]>;

struct Loaded {
    site: Site,
    runtime: tokio::runtime::Runtime,
    nodes: Nodes,
    release: &'static str,
    flag: Option<&'static str>,
    address: String,
    writers: BTreeMap<&'static str, Writer>,
    readers: BTreeMap<&'static str, Reader>,
    since: Instant,
    table: String,
}

impl Loaded {
    /// Three nodes with everything, two workers, and whoever uses them.
    fn new() -> Self {
        let spec = ["n1", "n2", "n3", "n4", "n5", "n6"]
            .iter()
            .fold(LabSpec::own("ha-load"), |spec, name| {
                spec.node(name, Profile::Plain)
            });
        let spec = RELEASES.iter().fold(spec, |spec, it| spec.release(it));
        let all: [(&str, &[&str]); 5] = [
            ("n1", ALL),
            ("n2", ALL),
            ("n3", ALL),
            ("n4", WORKER),
            ("n5", WORKER),
        ];
        let mut loaded = Self {
            site: Site::of(&spec),
            runtime: tokio::runtime::Runtime::new().expect("a runtime"),
            nodes: all.into(),
            release: RELEASES[0],
            flag: None,
            address: String::new(),
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            since: Instant::now(),
            table:
                "| change | `up` | writes | longest pause of the API: through a worker | through \
                    control planes that are not replaced just then | requests to the Service | \
                    second tries | failed |\n|---|---|---|---|---|---|---|---|\n"
                    .to_owned(),
        };
        loaded.writes_config();
        loaded.site.run(&["up", "--yes"]).well();
        loaded.serves();
        for name in ["n1", "n2", "n3", THROUGH] {
            loaded.writes_through(name);
        }
        for name in loaded.nodes.clone().into_keys() {
            loaded.reads_from(name);
        }
        loaded
    }

    fn writes_config(&self) {
        let site = &self.site;
        let nodes: Vec<(&str, &[&str])> = self
            .nodes
            .iter()
            .map(|(name, roles)| (*name, *roles))
            .collect();
        site.names(&nodes);
        site.edits(|config| {
            config["kubernetes_version"] = json!(self.release);
            if let Some(flag) = self.flag {
                config["services"]["kube-api"]["extra_args"]["max-requests-inflight"] = json!(flag);
            }
            drains(config);
        });
    }

    /// The Service is there, and its pods are on three nodes.
    fn serves(&mut self) {
        let site = &self.site;
        site.write_config("service.yml", SERVICE);
        let file = site.path("service.yml").to_string_lossy().into_owned();
        site.kubectl(&["apply", "-f", &file]).well();
        let rolled = ["rollout", "status", "deployment/web", "--timeout=240s"];
        site.kubectl(&rolled).well();
        let path = "jsonpath={.spec.clusterIP}";
        let address = site.kubectl(&["get", "service", "web", "-o", path]);
        let address = address.well().stdout;
        address.trim().clone_into(&mut self.address);
        Site::eventually("the Service answers", Duration::from_secs(60), || {
            let ask = format!("curl -sf -o /dev/null -m 2 http://{}/", self.address);
            self.site.lab.node(THROUGH).sh(&ask).is_ok()
        });
    }

    fn writes_through(&mut self, name: &'static str) {
        let writer = Writer::start(&self.site, self.site.lab.node(name), &self.runtime);
        self.writers.insert(name, writer);
    }

    fn reads_from(&mut self, name: &'static str) {
        let reader = Reader::start(&self.site, self.site.lab.node(name), &self.address);
        self.readers.insert(name, reader);
    }

    /// Nobody goes through this node or asks from it any more.
    fn is_left_alone(&mut self, name: &str) {
        if let Some(writer) = self.writers.remove(name) {
            writer.nothing_is_lost(&self.runtime);
        }
        if let Some(reader) = self.readers.remove(name) {
            none_failed(reader.answers());
        }
    }

    /// `up` with another config; a row of what those saw who use the cluster.
    fn change(&mut self, what: &str) {
        tell(&format!("== {what}"));
        self.writes_config();
        let counts: usize = self.writers.values().map(Writer::count).sum();
        let begun = Instant::now();
        let run = self.site.watched(&["up", "--yes"]);
        let took = begun.elapsed();
        assert_eq!(run.status, 0, "{what}: {:#?}", run.last);
        let there: Vec<&str> = self.nodes.keys().copied().collect();
        assert_eq!(self.site.ready(), names(&there), "{what}");

        let writes = self.writers.values().map(Writer::count).sum::<usize>() - counts;
        let pause = |name: &&str| {
            let own = run.replaced.get(*name).map_or(&[][..], Vec::as_slice);
            let own = if *name == THROUGH { &[][..] } else { own };
            self.writers[*name].longest_pause(self.since, own)
        };
        let through = pause(&THROUGH);
        let others = self.writers.keys().filter(|name| **name != THROUGH);
        let others = others.map(pause).max().unwrap_or_default();
        let mut all = Answers::default();
        for reader in self.readers.values() {
            let answers = reader.answers();
            all.requests += answers.requests;
            all.again += answers.again;
            all.failed += answers.failed;
        }
        let row = format!(
            "| {what} | {:.0} s | {writes} | {:.1} s | {:.1} s | {} | {} | {} |",
            took.as_secs_f64(),
            through.as_secs_f64(),
            others.as_secs_f64(),
            all.requests,
            all.again,
            all.failed
        );
        tell(&row);
        writeln!(self.table, "{row}").expect("a row");
        assert!(
            all.requests > self.readers.len(),
            "they asked all the while"
        );
        none_failed(all);
        self.since = Instant::now();
    }

    fn members(&self) -> Vec<String> {
        self.site.members("n1").into_iter().collect()
    }
}

#[track_caller]
fn none_failed(answers: Answers) {
    assert_eq!(answers.failed, 0, "{answers:?}");
}

#[test]
fn a_cluster_is_changed_in_every_way_while_it_is_used() {
    let mut loaded = Loaded::new();
    loaded.change("nothing");

    loaded.nodes.insert("n6", WORKER);
    loaded.change("a worker joins");
    loaded.nodes.remove("n6");
    loaded.change("it leaves");

    loaded.nodes.insert("n6", ETCD);
    loaded.change("a member of etcd joins");
    assert_eq!(
        loaded.members(),
        ["etcd-n1", "etcd-n2", "etcd-n3", "etcd-n6"]
    );
    loaded.nodes.remove("n6");
    loaded.change("it leaves etcd");
    assert_eq!(loaded.members(), ["etcd-n1", "etcd-n2", "etcd-n3"]);

    loaded.flag = Some("500");
    loaded.change("a flag of the API servers");

    loaded.is_left_alone("n3");
    loaded.nodes.remove("n3");
    loaded.nodes.insert("n6", ALL);
    loaded.change("a control plane is replaced");
    assert_eq!(loaded.members(), ["etcd-n1", "etcd-n2", "etcd-n6"]);
    loaded.writes_through("n6");
    loaded.reads_from("n6");

    for pair in RELEASES.windows(2) {
        loaded.release = pair[1];
        loaded.change(&format!("{} to {}", pair[0], pair[1]));
    }
    loaded.site.has_nothing_to_do();
    assert_eq!(loaded.site.ready(), names(&["n1", "n2", "n4", "n5", "n6"]));

    loaded.readers.clear();
    for writer in std::mem::take(&mut loaded.writers).into_values() {
        writer.nothing_is_lost(&loaded.runtime);
    }
    loaded.site.run(&["remove", "--force"]).well();
    publish("HA_TABLE", &loaded.table);
}
