//! No pod writes beside its successor, however often a cluster is restored: a pod of a `StatefulSet` writes down who it is
//! ten times a second; a snapshot is taken, the pod is moved to another node, and the snapshot is restored, while the
//! program is killed and a machine loses its power at random instants. `SOAK_SEED` names other instants.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{CENTRAL, WORKER, names},
    lab_restore::{LIMIT, apply, get, uid},
    real::{Site, chance::Chance, publish, tell},
};

const ROUNDS: u32 = 20;
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// The pod is on one of the workers.
const ROLES: [(&str, &[&str]); 3] = [("n1", CENTRAL), ("n2", WORKER), ("n3", WORKER)];

/// It writes to its node, with the time of the machine that all nodes of the lab run on.
const WRITER: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: writer
          image: nginx:1.26.3
          env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]
          command: [sh, -c, 'while read -r now rest </proc/uptime; do echo "$WHO $now" >>/written/by; sleep 0.1; done']
          volumeMounts: [{name: written, mountPath: /written}]
      volumes: [{name: written, hostPath: {path: /var/lib/written, type: DirectoryOrCreate}}]
"#;

/// From when to when each pod wrote, on whatever node.
fn written(site: &Site) -> BTreeMap<String, (f64, f64)> {
    let mut spans = BTreeMap::new();
    for name in NODES {
        let lines = site
            .lab
            .node(name)
            .sh("cat /var/lib/written/by 2>/dev/null || true");
        for line in lines.expect("what was written").lines() {
            // One that lost its power may have left half a line.
            let Some((who, at)) = line.split_once(' ') else {
                continue;
            };
            let Ok(at) = at.parse::<f64>() else { continue };
            let span = spans.entry(who.to_owned()).or_insert((at, at));
            *span = (span.0.min(at), span.1.max(at));
        }
    }
    spans
}

/// Nobody wrote while another one did. Gives how many wrote.
fn one_after_the_other(site: &Site) -> usize {
    let mut spans: Vec<(String, (f64, f64))> = written(site).into_iter().collect();
    spans.sort_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
    for pair in spans.windows(2) {
        let [(before, (_, end)), (after, (begin, _))] = pair else {
            continue;
        };
        assert!(
            end < begin,
            "{before} wrote until {end}, {after} from {begin}"
        );
    }
    spans.len()
}

fn node_of(site: &Site) -> String {
    get(site, &["pod", "db-0"], "{.spec.nodeName}").stdout
}

/// The pod is another one than these, and writes.
fn writes(site: &Site, others: &[&str]) -> String {
    let mut now = String::new();
    Site::eventually("another pod writes", LIMIT, || {
        now = uid(site, "db-0");
        !now.is_empty() && !others.contains(&&*now) && written(site).contains_key(&now)
    });
    now
}

/// Restores it while that happens. Gives how often the program was killed.
fn restores(site: &Site, name: &str, chance: &mut Chance) -> usize {
    let restore = ["etcd", "snapshot-restore", "--name", name, "--yes"];
    // A plan has about forty steps.
    let fatal = chance.below(40);
    let power = chance
        .below(2)
        .eq(&0)
        .then(|| (chance.below(3), Duration::from_millis(chance.below(30_000))));
    thread::scope(|scope| {
        scope.spawn(|| {
            let Some((node, after)) = power else { return };
            let node = site
                .lab
                .node(NODES[usize::try_from(node).expect("an index")]);
            thread::sleep(after);
            tell(&format!("{} loses its power", node.name()));
            node.stop().expect("it is off");
            thread::sleep(Duration::from_secs(2));
            node.start().expect("it is on");
            node.wait_ssh(LIMIT).expect("it answers");
        });
        let mut steps = 0;
        let ended = site.disturbed(
            &restore,
            site.folder(),
            |_, _| {
                steps += 1;
                (steps > fatal).then(|| chance.instant())
            },
            |child| {
                child.kill().expect("the signal is sent");
                None
            },
        );
        // Where it was not killed before, a machine without power may have made it fail.
        let kills = usize::from(ended.is_none());
        tell(&format!("the run ended with {ended:?}"));
        kills
    })
}

/// The same command until it has nothing left to do: a machine that has no power yet makes it fail.
fn is_restored(site: &Site, name: &str) {
    let restore = ["etcd", "snapshot-restore", "--name", name, "--yes"];
    let mut said = None;
    Site::eventually("it is restored", Duration::from_secs(300), || {
        let run = site.run(&restore);
        let ended = run.status == 0;
        said = Some(run);
        ended
    });
    tell(&said.expect("a run").stderr);
}

#[test]
fn no_pod_writes_beside_its_successor_in_twenty_restores() {
    let spec = NODES.iter().fold(LabSpec::own("ha-writers"), |spec, name| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    site.names(&ROLES);
    site.run(&["up", "--yes"]).well();
    apply(&site, WRITER);
    let mut chance = Chance::of_round().unwrap_or(Chance::of(1));
    let (mut kills, begun) = (0, Instant::now());
    let mut pod = writes(&site, &[]);
    for round in 1..=ROUNDS {
        let (name, node) = (format!("round-{round}"), node_of(&site));
        site.run(&["etcd", "snapshot-save", "--name", &name]).well();
        site.kubectl(&["cordon", &node]).well();
        site.kubectl(&["delete", "pod", "db-0"]).well();
        let successor = writes(&site, &[&pod]);
        assert_ne!(node_of(&site), node, "it moved");
        site.kubectl(&["uncordon", &node]).well();

        kills += restores(&site, &name, &mut chance);
        is_restored(&site, &name);
        pod = writes(&site, &[&pod, &successor]);
        assert_eq!(site.ready(), names(&NODES));
        let pods = one_after_the_other(&site);
        tell(&format!(
            "round {round}: {pods} pods wrote, one after the other"
        ));
    }
    site.has_nothing_to_do();
    let pods = one_after_the_other(&site);
    publish(
        "HA_TABLE",
        &format!(
            "{ROUNDS} restores with {kills} kills and machines that lose their power: {pods} pods wrote, one after the other \
             ({:.0} s)",
            begun.elapsed().as_secs_f64()
        ),
    );
}
