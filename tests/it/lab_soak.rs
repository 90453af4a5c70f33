//! One highly available cluster on real nodes to which everything is done while everything goes wrong: each
//! operation with each fault, at a step that a seed chooses. It always converges, and nothing that was
//! acknowledged is gone. `make soak-ha` runs it; a run goes on where the last one stopped.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use lab::{LabSpec, Node, Profile};
use rke_operator::plan::{Plan, Target, title};

use crate::{
    lab_many::drains,
    real::{Site, publish, tell, writer::Writer},
    soak::{
        Fault, Moment, Operation, Pair, Place, RELEASES, Row, THROUGH, Wanted, chance, due, moment,
        rows, table,
    },
};

const UP: &[&str] = &["up", "--yes"];

/// How long a run may go on after a fault was healed.
const ENDS: Duration = Duration::from_secs(600);

/// Gives certificates that are signed by `authority` in place of `$*` the validity of some that were made
/// 300 days ago; keys and names stay.
const AGE: &str = r#"
umask 077
age() {
    for cert in "$@"; do
        openssl x509 -in "$cert" -CA "$authority.pem" -CAkey "$authority-key.pem" -out "$authority-new.pem" \
            -not_before "$(date -u -d '-300 days' +%Y%m%d%H%M%SZ)" -not_after "$(date -u -d '+60 days' +%Y%m%d%H%M%SZ)"
        cat "$authority-new.pem" > "$cert"
    done
    rm "$authority.pem" "$authority-key.pem" "$authority-new.pem"
}
"#;

struct Soak {
    site: Site,
    runtime: tokio::runtime::Runtime,
    wanted: Wanted,
    /// That the cluster is as it is wanted was not seen by this process.
    unknown: bool,
}

impl Soak {
    /// The lab of an earlier run, if it stands.
    fn open() -> Self {
        let nodes = ["n1", "n2", "n3", THROUGH, "n5", "n6"];
        let spec = nodes
            .iter()
            .fold(LabSpec::new(&told("SOAK_HA_LAB")), |spec, name| {
                spec.node(name, Profile::Plain)
            });
        let spec = RELEASES.iter().fold(spec, |spec, it| spec.release(it));
        let site = Site::standing(&spec);
        site.lab.heal().expect("healed");
        let wanted = fs::read(site.path("wanted.json")).ok();
        let wanted = wanted.map(|text| serde_json::from_slice(&text).expect("what was wanted"));
        Self {
            site,
            runtime: tokio::runtime::Runtime::new().expect("a runtime"),
            wanted: wanted.unwrap_or_default(),
            unknown: true,
        }
    }

    fn wants(&mut self, wanted: Wanted) {
        let text = serde_json::to_string(&wanted).expect("a text");
        self.site.write_config("wanted.json", &text);
        self.site.names(&wanted.nodes());
        self.site.edits(|config| {
            wanted.settings(config);
            drains(config);
        });
        self.wanted = wanted;
    }

    /// What the operation begins with is there.
    fn is_ready_for(&mut self, operation: Operation) {
        let before = operation.before(self.wanted.clone());
        if self.unknown || before != self.wanted {
            self.wants(before);
            self.converges("the pair before");
            self.unknown = false;
        }
    }

    /// `up` gets through, and everything is as the config says; gives the runs that it took.
    fn converges(&self, after: &str) -> usize {
        let runs = self.site.gets_through(after);
        let nodes: Vec<&str> = self.wanted.nodes().iter().map(|(name, _)| *name).collect();
        self.site
            .is_whole(after, &nodes, &self.wanted.with_role("etcd"));
        for node in self.site.lab.nodes() {
            if !nodes.contains(&node.name()) {
                Site::nothing_is_left(node);
            }
        }
        runs
    }

    /// What `up` would do now.
    fn steps(&self) -> BTreeSet<Place> {
        let plan = self.site.run(&["plan", "-o", "json"]).well().stdout;
        let plan: Plan = serde_json::from_str(&plan).expect("a plan");
        let place = |step| Place {
            title: title(step),
            node: match step.target() {
                Target::Host(name) => Some(name.to_string()),
                Target::Cluster | Target::Local => None,
            },
        };
        plan.steps().map(place).collect()
    }

    /// The certificates of control planes, kubelets and members end soon.
    fn ages_certificates(&self) {
        let state = self.site.state();
        let authority = |of: &str| {
            let part = |name: &str| state[of][name].as_str().expect("an authority").to_owned();
            let [cert, key] = [part("cert"), part("key")];
            format!(
                "authority=/run/soak-{of}\n\
                 cat > $authority.pem <<'PEM'\n{cert}\nPEM\n\
                 cat > $authority-key.pem <<'PEM'\n{key}\nPEM\n"
            )
        };
        let script = format!(
            "set -e\ncd /etc/kubernetes/ssl\n{AGE}\n\
             {}\nage kube-apiserver.pem kube-node.pem\n\
             {}\nage kube-apiserver-etcd-client.pem $(ls kube-etcd-*.pem | grep -v -e -key -e -ca.pem)\n",
            authority("clusterCa"),
            authority("etcdCa")
        );
        for name in self.wanted.with_role("controlplane") {
            let node = self.site.lab.node(name);
            node.sh(&script).expect("its certificates are older");
        }
    }

    /// `up`, with a fault on its way; gives its exit code, unless it was killed, and whether it had ended
    /// before.
    fn is_disturbed(&self, fault: Fault, moment: &Moment, folder: &Path) -> (Option<i32>, bool) {
        let node = self.site.lab.node(&moment.victim);
        let mut acts = 0;
        let act = |child: &mut Child| {
            acts += 1;
            match acts {
                1 if fault == Fault::Kill => child.kill().expect("the signal is sent"),
                1 => strike(node, fault),
                2 => node.heal().expect("healed"),
                _ => child.kill().expect("the signal is sent"),
            }
            [moment.lasts, ENDS]
                .get(acts - 1)
                .map(|next| Instant::now() + *next)
        };
        let when = |title: &str, on: Option<&str>| {
            let met = title == moment.place.title && on == moment.place.node.as_deref();
            met.then_some(moment.after)
        };
        let exit = self.site.disturbed(UP, folder, when, act);
        assert!(
            acts < 3,
            "the run did not end within {ENDS:?} after the fault was healed"
        );
        if acts == 0 && fault != Fault::Kill {
            strike(node, fault);
        }
        node.heal().expect("healed");
        (exit, acts == 0)
    }

    /// Goes through a pair; what is known of it is in the row, also when this ends with a panic.
    fn goes_through(&mut self, row: &mut Row) {
        let Pair { operation, fault } = row.pair;
        let before = self.wanted.clone();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = format!("soak-{}", now.expect("a time").as_secs());
        let through = self.site.lab.node(THROUGH);
        let writer = Writer::named(&name, &self.site, through, &self.runtime);
        if operation == Operation::Certificates {
            self.ages_certificates();
        }
        self.wants(operation.after(before.clone()));
        let chance = chance(row.seed, row.pair);
        let moment = moment(chance, &self.steps(), &before, &self.wanted).expect("it has steps");
        row.step.clone_from(&moment.place.title);
        row.struck = match fault {
            Fault::Kill => "the tool".to_owned(),
            _ => moment.victim.clone(),
        };
        tell(&format!("== {}: {moment:?}", row.pair));

        let folder = self.evidence(row.pair);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        (row.exit, row.late) = self.is_disturbed(fault, &moment, &folder);
        let said = fs::read_to_string(folder.join("stderr")).expect("what it said");
        said.trim().clone_into(&mut row.said);
        tell(&format!("exit {:?}, late: {}: {said}", row.exit, row.late));
        row.runs = self.converges(&row.pair.to_string());
        row.writes = writer.leaves_nothing(&self.runtime);
        assert!(row.writes > 0, "nothing could be written all the while");
    }

    /// What the disturbed run said, and everything about a pair that failed.
    fn evidence(&self, pair: Pair) -> PathBuf {
        self.site.path("evidence").join(pair.to_string())
    }

    fn gathers_evidence(&self, pair: Pair) {
        let folder = self.evidence(pair);
        tell(&format!("what is known is in {}", folder.display()));
        let asked = [
            ("plan", self.site.run(&["plan"])),
            ("status", self.site.run(&["status"])),
            ("nodes", self.site.kubectl(&["get", "nodes", "-o", "yaml"])),
            (
                "pods",
                self.site.kubectl(&["get", "pods", "-A", "-o", "wide"]),
            ),
        ];
        for (name, run) in asked {
            let _ = fs::write(folder.join(name), format!("{run:#?}"));
        }
        for node in self.site.lab.nodes() {
            let _ = node.logs(&folder);
        }
    }

    /// The cluster has been through everything.
    fn gives_everything_back(self) {
        self.site.run(&["remove", "--force"]).well();
        for node in self.site.lab.nodes() {
            Site::nothing_is_left(node);
        }
        self.site.lab.destroy().expect("the lab is gone");
    }
}

fn strike(node: &Node, fault: Fault) {
    // What runs may free a block just then, and what forks may not be frozen at once.
    Site::eventually("the fault is there", Duration::from_secs(20), || {
        let struck = match fault {
            Fault::Off => node.stop(),
            Fault::Hang => node.pause(),
            Fault::CutOff => node.cut(),
            Fault::DockerRestart => node.sh("systemctl restart docker").map(drop),
            Fault::Reboot => node.reboot(),
            Fault::DiskFull => node.fill_disk(),
            Fault::Kill => Ok(()),
        };
        struck.inspect_err(|error| tell(&error.to_string())).is_ok()
    });
}

fn told(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn number<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    match told(name).as_str() {
        "" => otherwise,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    }
}

/// One line more, which is there even if the machine ends now.
fn keep(file: &str, row: &Row) {
    let line = serde_json::to_string(row).expect("a line");
    let file = OpenOptions::new().append(true).create(true).open(file);
    let kept = file.and_then(|mut file| writeln!(file, "{line}").and_then(|()| file.sync_all()));
    kept.expect("the row is kept");
}

#[test]
fn a_cluster_converges_whatever_goes_wrong_with_whatever_is_done_to_it() {
    let file = told("SOAK_HA_ROWS");
    assert!(
        !file.is_empty(),
        "make soak-ha says where its rows are kept"
    );
    let kept = || rows(&fs::read_to_string(&file).unwrap_or_default());
    let due_now = due(&kept(), &told("ONLY")).unwrap_or_else(|wrong| panic!("{wrong}"));
    let (pairs, seed) = (number("PAIRS", usize::MAX), number("SOAK_SEED", 1));
    let mut soak = None;
    for pair in due_now.into_iter().take(pairs) {
        let soak = soak.get_or_insert_with(Soak::open);
        let mut row = Row::new(pair, told("SOAK_HA_COMMIT"), seed);
        let mut begun = Instant::now();
        let went = panic::catch_unwind(AssertUnwindSafe(|| {
            soak.is_ready_for(pair.operation);
            begun = Instant::now();
            soak.goes_through(&mut row);
        }));
        row.seconds = begun.elapsed().as_secs();
        row.failed = went.as_ref().err().map(|panic| said_by(panic.as_ref()));
        keep(&file, &row);
        tell(&format!("{row:?}"));
        if let Err(panic) = went {
            soak.gathers_evidence(pair);
            publish("SOAK_HA_TABLE", &table(&kept()));
            panic::resume_unwind(panic);
        }
    }
    publish("SOAK_HA_TABLE", &table(&kept()));
    if due(&kept(), "").is_ok_and(|left| left.is_empty())
        && let Some(soak) = soak
    {
        soak.gives_everything_back();
    }
}

/// What a panic said.
fn said_by(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic".to_owned())
}
