//! What `status` shows: of simulated clusters that the product's own runs made.

use insta::{assert_json_snapshot, assert_snapshot};
use jiff::{SignedDuration, Timestamp};
use rke_operator::{
    cli::output::{Page, Paint, status::render, status::render_certificates},
    converge::{Inspection, inspect},
    etcd::{Alarm, AlarmKind, Member, MemberId, Quorum},
    facts::{ApiHealth, ContainerState, HostView},
    model::{NodeName, path},
    state::RemovalSnapshot,
    status::{Health, Served, Status, certificates, serving},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;

use crate::{
    differences,
    joint_properties::{block_on, runner, settle},
    sim::{World, runner::Runner, wish::Wish},
};

const NARROW: Page = Page {
    paint: Paint::OFF,
    columns: Some(80),
};

const NARROWEST: Page = Page {
    paint: Paint::OFF,
    columns: Some(40),
};

const PIPE: Page = Page {
    paint: Paint::OFF,
    columns: None,
};

pub(crate) fn of(masks: &[u8]) -> Wish {
    Wish {
        masks: masks.to_vec(),
        ..Wish::plain()
    }
}

/// Three control planes with etcd, and two workers.
pub(crate) fn five() -> Wish {
    of(&[3, 3, 0, 0])
}

/// A cluster that was made three days ago.
pub(crate) async fn made(wish: &Wish, nodes: usize) -> Runner {
    let runner = runner(nodes);
    settle(&runner, &wish.intent()).await;
    runner.remote.world(|world| {
        let cluster = world.truth.cluster.as_mut().unwrap();
        "v1.34.4".clone_into(&mut cluster.version);
        for node in cluster.nodes.values_mut() {
            node.ready = true;
            node.created = Some(days_ago(3));
            "v1.34.4".clone_into(&mut node.kubelet_version);
        }
    });
    runner
}

/// Before the moment at which every run of a [`Runner`] takes place.
fn days_ago(days: i64) -> Timestamp {
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    now.checked_sub(SignedDuration::from_hours(24 * days))
        .unwrap()
}

pub(crate) async fn seen(runner: &Runner, wish: &Wish) -> Inspection {
    let before = (
        runner.remote.world(|world| world.clone()),
        runner.memory.shell(),
    );
    let seen = inspect(&wish.intent(), &runner.environment())
        .await
        .unwrap();
    let after = (
        runner.remote.world(|world| world.clone()),
        runner.memory.shell(),
    );
    assert_eq!(before, after, "something was written");
    seen
}

async fn status(runner: &Runner, wish: &Wish) -> Status {
    Status::of(&seen(runner, wish).await.seen())
}

fn shown(status: &Status, page: Page) -> String {
    let text = render(status, "cluster.yml", page);
    let Some(id) = &status.cluster.id else {
        return text;
    };
    text.replace(&id.0, "<cluster id>")
}

pub(crate) fn node<'a>(world: &'a mut World, name: &str) -> &'a mut rke_operator::facts::HostFacts {
    match world.truth.hosts.get_mut(&NodeName::from(name)) {
        Some(HostView::Reachable(facts)) => facts,
        Some(HostView::Unreachable(_)) | None => panic!("there is no {name}"),
    }
}

#[test]
fn a_healthy_cluster_is_a_tree_and_nothing_more() {
    block_on(async {
        let runner = made(&five(), 5).await;
        let status = status(&runner, &five()).await;
        assert_eq!(status.cluster.health, Health::Healthy);
        assert_eq!(status.cluster.agrees_with_config, Some(true));
        assert_snapshot!(shown(&status, NARROW));
        let mut json = serde_json::to_value(&status).unwrap();
        json["cluster"]["id"] = "<cluster id>".into();
        assert_json_snapshot!("json", one_of_each(&json));
    });
}

/// The first item of each list, and the first of those whose names follow from the cluster.
pub(crate) fn one_of_each(json: &Value) -> Value {
    match json {
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(name, value)| (name.clone(), one_of_each(value)))
                .collect()
        }
        Value::Array(items) => items.iter().take(1).map(one_of_each).collect(),
        plain => plain.clone(),
    }
}

/// A member away, a node that is not Ready, a scheduler that ended; one node too many in the
/// cluster, one too few; flags that were edited.
async fn degraded() -> (Runner, Wish) {
    let runner = made(&five(), 6).await;
    runner.remote.kill("n2");
    runner.remote.end("n3", "kube-scheduler");
    runner.remote.world(|world| {
        let cluster = world.truth.cluster.as_mut().unwrap();
        let n4 = cluster.nodes.get_mut(&NodeName::from("n4")).unwrap();
        n4.ready = false;
        "container runtime network not ready".clone_into(&mut n4.message);
        n4.created = Some(days_ago(400));
    });
    let edited = Wish {
        masks: vec![3, 3, 0, 0, 0],
        without: vec![4],
        verbosity: 4,
        ..Wish::plain()
    };
    (runner, edited)
}

#[test]
fn what_is_wrong_and_what_differs_are_told_apart() {
    block_on(async {
        let (runner, edited) = degraded().await;
        let status = status(&runner, &edited).await;
        assert_eq!(status.cluster.health, Health::Degraded);
        assert_eq!(status.cluster.agrees_with_config, Some(false));
        for (page, columns) in [(NARROW, 80), (NARROWEST, 40)] {
            let text = shown(&status, page);
            let too_wide = text.lines().find(|line| line.chars().count() > columns);
            assert_eq!(too_wide, None);
        }
        assert_snapshot!(shown(&status, NARROW));
        let narrowest = shown(&status, NARROWEST);
        let tree = narrowest.split("\nproblems").next().unwrap();
        assert_snapshot!("narrowest", tree);
        assert_snapshot!("wide", shown(&status, PIPE));
        let healthy = made(&five(), 5).await;
        let healthy = self::status(&healthy, &five()).await;
        let [healthy, degraded] = [healthy, status]
            .map(|mut status| {
                status.cluster.id = None;
                status
            })
            .map(|status| differences::of_json(&serde_json::to_value(status).unwrap()));
        let differ = differences::between(&healthy, &degraded).join("\n");
        assert_snapshot!("json_of_what_is_wrong", differ);
    });
}

/// `up` would create the cluster again on nodes that were just cleaned.
#[test]
fn a_removal_that_is_not_finished_is_shown() {
    block_on(async {
        let wish = five();
        let runner = made(&wish, 5).await;
        let words = "  removal       begun at 2029-12-31 10:00:00Z, not finished: `rke-operator";
        assert!(!shown(&status(&runner, &wish).await, PIPE).contains("removal"));
        let mut shell = runner.memory.shell();
        let saved = shell.saved.as_mut().unwrap();
        saved.memory.last_snapshot = Some(RemovalSnapshot {
            name: "before-removal".to_owned(),
            node: "n1".into(),
            begun_at: "2029-12-31T10:00:00Z".parse().unwrap(),
            failed: false,
            saved: None,
        });
        runner.memory.keep(shell);
        let text = shown(&status(&runner, &wish).await, PIPE);
        assert!(text.contains(words), "{text}");
    });
}

/// Colours are added to the words, and take nothing away.
#[test]
fn without_its_colours_it_says_the_same() {
    block_on(async {
        let (runner, edited) = degraded().await;
        let status = status(&runner, &edited).await;
        let colourful = Page {
            paint: Paint::ON,
            ..NARROW
        };
        let text = shown(&status, colourful);
        assert!(text.contains('\x1b'), "{text}");
        let mut plain = String::new();
        for part in text.split('\x1b') {
            let rest = part.strip_prefix('[').and_then(|part| part.split_once('m'));
            plain.push_str(rest.map_or(part, |(_, rest)| rest));
        }
        assert_eq!(plain, shown(&status, NARROW));
    });
}

#[test]
fn without_a_quorum_it_says_so_and_shows_what_answers() {
    block_on(async {
        let runner = made(&five(), 5).await;
        runner.remote.kill("n1");
        runner.remote.kill("n2");
        let status = status(&runner, &five()).await;
        assert_eq!(status.cluster.health, Health::Unavailable);
        assert_eq!(status.cluster.agrees_with_config, None);
        assert_snapshot!(shown(&status, NARROW));
    });
}

#[test]
fn before_it_is_made_every_node_is_new() {
    block_on(async {
        let runner = runner(1);
        let status = status(&runner, &of(&[])).await;
        assert_eq!(status.cluster.health, Health::Absent);
        assert_eq!(status.cluster.agrees_with_config, Some(false));
        assert_snapshot!(shown(&status, NARROW));
    });
}

/// The state was lost: what `up` would say is said.
#[test]
fn a_cluster_without_its_state_is_named_by_its_id() {
    block_on(async {
        let runner = made(&of(&[]), 1).await;
        let id = runner.memory.shell().saved.unwrap().cluster_id.0;
        runner.memory.keep(crate::sim::Shell::default());
        let status = status(&runner, &of(&[])).await;
        assert_eq!(status.cluster.health, Health::Absent);
        let refusal = status.differences.refusal.unwrap().message;
        assert!(refusal.contains(&id), "{refusal}");
    });
}

#[test]
fn members_and_nodes_that_lack_one_another_alarms_and_sizes() {
    block_on(async {
        let runner = made(&five(), 5).await;
        let mut seen = seen(&runner, &five()).await;
        let etcd = &mut seen.actual.etcd;
        let Quorum::Serving { leader } = etcd.quorum else {
            panic!("{etcd:?}");
        };
        // n3's is gone; one that nobody knows was added; n2's is nearly full, and follows only.
        let (gone, _) = etcd.of_node(&"n3".into()).next().unwrap();
        etcd.members.remove(&gone);
        let stray = Member {
            name: "etcd-old".to_owned(),
            peer_urls: [].into(),
            is_learner: false,
            status: None,
        };
        etcd.members.insert(MemberId(0xabc), stray);
        let (full, _) = etcd.of_node(&"n2".into()).next().unwrap();
        let member = etcd.members.get_mut(&full).unwrap();
        member.is_learner = true;
        let (_, status) = member.status.as_mut().unwrap();
        status.db_size = 1900 << 20;
        etcd.alarms.insert(Alarm {
            member: full,
            kind: AlarmKind::NoSpace,
        });
        let status = Status::of(&seen.seen());
        assert_eq!(status.cluster.health, Health::Degraded);
        assert_eq!(status.etcd.nodes_without_member, ["n3".into()]);
        let member = |id: MemberId| {
            let mut members = status.etcd.members.iter();
            members.find(|member| member.id == id.to_string()).unwrap()
        };
        assert!(member(leader).is_leader && member(leader).healthy);
        assert_eq!(member(MemberId(0xabc)).node, None);
        assert_eq!(member(full).quota_used_percent, Some(92));
        assert_snapshot!(shown(&status, NARROW));
    });
}

/// An API server that hangs is its node's matter while another one serves.
#[test]
fn an_api_server_that_does_not_serve_is_named() {
    block_on(async {
        let runner = made(&five(), 5).await;
        let mut seen = seen(&runner, &five()).await;
        let why = "node `n2`: no complete answer within 20 s".to_owned();
        let down = ApiHealth::Unreachable(why.clone());
        seen.actual.apis.insert("n2".into(), down);
        let status = Status::of(&seen.seen());
        assert_eq!(status.cluster.health, Health::Degraded);
        let problem = &status.problems[0];
        assert_eq!(problem.node, Some("n2".into()));
        assert!(problem.message.contains(&why), "{problem:?}");
    });
}

#[test]
fn what_does_not_run_is_a_problem_while_its_node_is_still_ready() {
    block_on(async {
        let runner = made(&of(&[]), 1).await;
        runner.remote.world(|world| {
            let fact = node(world, "n1").containers.get_mut("kube-scheduler");
            fact.unwrap().state = ContainerState::Restarting(137);
        });
        let status = status(&runner, &of(&[])).await;
        assert_eq!(status.cluster.health, Health::Degraded);
        let said = &status.problems[0].message;
        assert!(
            said.contains("`kube-scheduler`") && said.contains("137"),
            "{said}"
        );
    });
}

/// Each served certificate is matched with the files of its node. One without a file, as after a renewal without a restart,
/// is listed separately.
#[test]
fn certificates_that_are_served_are_compared_with_the_files() {
    block_on(async {
        let runner = made(&of(&[]), 1).await;
        let seen = seen(&runner, &of(&[])).await;
        let ports: Vec<u16> = serving(&seen.actual)
            .iter()
            .map(|(_, port)| *port)
            .collect();
        assert_eq!(ports, [2379, 2380, 6443, 10250]);
        let facts = seen.actual.up(&"n1".into()).unwrap();
        let der = |path: &str| {
            let pem = &facts.files.as_ref().unwrap()[path].content;
            let pem = CertificateDer::from_pem_slice(pem.expose()).unwrap();
            Ok(pem.to_vec())
        };
        let former = rcgen::generate_simple_self_signed(["former.example".to_owned()]).unwrap();
        let served: Served = [
            (6443, der("/etc/kubernetes/ssl/kube-apiserver.pem")),
            (10250, Ok(former.cert.der().to_vec())),
            (2379, Err("no TLS handshake within 10 s".to_owned())),
        ]
        .map(|(port, answer)| (("n1".into(), port), answer))
        .into();
        let all = certificates(&seen.actual, seen.desired.as_ref(), &served, seen.now);
        let on: Vec<_> = all.iter().filter(|one| !one.served_on.is_empty()).collect();
        let named: Vec<_> = on
            .iter()
            .map(|one| (&*one.end.name, &*one.served_on))
            .collect();
        assert_eq!(
            named,
            [
                ("kube-apiserver", &[6443][..]),
                ("served by kubelet, in no file", &[10250]),
            ]
        );
        assert_eq!(on[1].subject_alternative_names, ["former.example"]);
        let shown = render_certificates(&all, NARROW);
        assert!(shown.contains("served on port 6443"), "{shown}");
    });
}

/// The names of certificates are known without the config; those on nodes only from the nodes.
#[test]
fn certificates_are_listed_and_those_that_the_next_up_makes_anew_are_marked() {
    block_on(async {
        let runner = made(&of(&[]), 1).await;
        let seen = seen(&runner, &of(&[])).await;
        let fresh = certificates(
            &seen.actual,
            seen.desired.as_ref(),
            &Served::new(),
            seen.now,
        );
        assert!(
            fresh.iter().all(|one| !one.renewed_by_next_up),
            "{fresh:#?}"
        );
        assert_snapshot!(render_certificates(&fresh, NARROW));
        assert_json_snapshot!("certificates", &fresh[..6]);
        // Nine months later, by what the files themselves say.
        let late = seen
            .now
            .checked_add(SignedDuration::from_hours(24 * 280))
            .unwrap();
        for one in certificates(&seen.actual, None, &Served::new(), late) {
            let is_authority = one.end.days_left > 3_000;
            assert_eq!(one.renewed_by_next_up, !is_authority, "{one:?}");
        }
        // People made the one for an external etcd, and make it anew.
        let mut external = seen.actual.clone();
        let facts = external.hosts.get_mut(&"n1".into());
        let Some(HostView::Reachable(facts)) = facts else {
            panic!("no facts");
        };
        let files = facts.files.as_mut().unwrap();
        let client = files["/etc/kubernetes/ssl/kube-apiserver.pem"].clone();
        files.insert(path::EXTERNAL_ETCD_CERTIFICATE.to_owned(), client);
        let late = certificates(&external, None, &Served::new(), late);
        let client = late.iter().find(|one| one.end.name == "kube-etcd-client");
        assert!(!client.unwrap().renewed_by_next_up, "{client:?}");
        // No node answers: what is kept here is known all the same.
        let mut alone = seen.actual.clone();
        alone.hosts.clear();
        let kept = certificates(&alone, None, &Served::new(), seen.now);
        let names: Vec<&str> = kept.iter().map(|one| one.end.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "the cluster's CA",
                "etcd's CA",
                "the front proxy's CA",
                "the CA of certificate requests",
                "kube-admin"
            ]
        );
    });
}
