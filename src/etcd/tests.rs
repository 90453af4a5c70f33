//! What follows from the answers of etcd, as a table.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A cluster of voters 1 to `voters`, and learners after them; the list is confirmed.
struct Case {
    answers: BTreeMap<crate::model::NodeName, Answer>,
    roster: Option<Roster>,
    alarms: BTreeSet<Alarm>,
}

fn member(is_learner: bool, name: &str) -> Member {
    Member {
        name: name.to_owned(),
        peer_urls: BTreeSet::from([format!("https://{name}:2380")]),
        is_learner,
        status: None,
    }
}

fn cluster(voters: u64, learners: u64) -> Case {
    let ids = 1..=voters + learners;
    let name = |id: u64| format!("n{id}");
    let members = ids
        .clone()
        .map(|id| (MemberId(id), member(id > voters, &name(id))));
    let answers = ids.map(|id| {
        let status = MemberStatus {
            version: "3.6.7".to_owned(),
            leader: Some(MemberId(1)),
            term: 2,
            index: 100_000,
            is_learner: id > voters,
            db_size: 1 << 20,
            db_in_use: 1 << 20,
            quota: None,
        };
        let answer = Answer {
            cluster: 77,
            member: MemberId(id),
            status,
        };
        (name(id).as_str().into(), answer)
    });
    Case {
        answers: answers.collect(),
        roster: Some(Roster {
            confirmed: true,
            members: members.collect(),
        }),
        alarms: BTreeSet::new(),
    }
}

impl Case {
    fn on(&mut self, id: u64) -> &mut Answer {
        let name = format!("n{id}");
        self.answers.get_mut(&name.as_str().into()).unwrap()
    }

    fn without(mut self, ids: &[u64]) -> Self {
        for id in ids {
            self.answers.remove(&format!("n{id}").as_str().into());
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn view(self) -> EtcdView {
        combine(self.answers, self.roster, self.alarms, BTreeMap::new())
    }
}

fn unconfirmed(case: &mut Case) {
    case.roster.as_mut().unwrap().confirmed = false;
}

const LED_BY_ONE: Quorum = Quorum::Serving {
    leader: MemberId(1),
};

#[test]
fn quorum_is_what_the_voters_say_and_not_how_many_hosts_answer() {
    let cases: Vec<(&str, Case, Quorum)> = vec![
        ("one member", cluster(1, 0), LED_BY_ONE),
        ("three members", cluster(3, 0), LED_BY_ONE),
        (
            "one of three answers us, and a majority confirmed its list",
            cluster(3, 0).without(&[1, 2]),
            LED_BY_ONE,
        ),
        (
            "no member answers",
            cluster(3, 0)
                .without(&[1, 2, 3])
                .with(|it| it.roster = None),
            Quorum::Unknown,
        ),
        (
            "only a learner answers",
            cluster(1, 1).without(&[1]).with(|it| it.roster = None),
            Quorum::Unknown,
        ),
        (
            "a voter answers, and gives no list at all",
            cluster(1, 0).with(|it| it.roster = None),
            Quorum::Unknown,
        ),
        (
            "no member knows a leader",
            cluster(3, 0).without(&[2, 3]).with(|it| {
                it.on(1).status.leader = None;
                unconfirmed(it);
            }),
            Quorum::Lost,
        ),
        (
            "it names a leader still, and no majority confirms",
            cluster(3, 0).without(&[2, 3]).with(unconfirmed),
            Quorum::Lost,
        ),
    ];
    for (what, case, quorum) in cases {
        assert_eq!(case.view().quorum, quorum, "{what}");
    }
}

#[test]
fn members_that_contradict_one_another_disagree() {
    let cases: Vec<(&str, Case, Quorum)> = vec![
        (
            "two leaders in one term",
            cluster(3, 0).with(|it| it.on(2).status.leader = Some(MemberId(2))),
            Quorum::Disagree,
        ),
        (
            "one that was cut off names its old leader",
            cluster(3, 0).with(|it| {
                it.on(3).status.leader = Some(MemberId(3));
                it.on(3).status.term = 1;
            }),
            LED_BY_ONE,
        ),
        (
            "one that was removed and does not know it",
            cluster(3, 0).with(|it| {
                it.on(3).member = MemberId(9);
                it.on(3).status.leader = Some(MemberId(9));
            }),
            LED_BY_ONE,
        ),
        (
            "two clusters",
            cluster(3, 0).with(|it| it.on(3).cluster = 78),
            Quorum::Disagree,
        ),
        (
            "an election at this moment",
            cluster(1, 0).with(|it| it.on(1).status.leader = None),
            Quorum::Disagree,
        ),
        (
            "the leader is no member",
            cluster(1, 0).with(|it| it.on(1).status.leader = Some(MemberId(5))),
            Quorum::Disagree,
        ),
        (
            "a learner knows another leader",
            cluster(1, 1).with(|it| it.on(2).status.leader = Some(MemberId(2))),
            LED_BY_ONE,
        ),
    ];
    for (what, case, quorum) in cases {
        assert_eq!(case.view().quorum, quorum, "{what}");
    }
}

#[test]
fn a_member_may_stop_when_a_majority_is_healthy_without_it() {
    let behind = |id: u64| move |it: &mut Case| it.on(id).status.index -= 5_001;
    let cases: Vec<(&str, Case, u64, bool)> = vec![
        ("the only one", cluster(1, 0), 1, false),
        ("one of two", cluster(2, 0), 1, false),
        ("one of three", cluster(3, 0), 1, true),
        (
            "one of three, another is silent",
            cluster(3, 0).without(&[3]),
            1,
            false,
        ),
        (
            "the silent one of three",
            cluster(3, 0).without(&[3]),
            3,
            true,
        ),
        (
            "two of five are silent",
            cluster(5, 0).without(&[4, 5]),
            1,
            false,
        ),
        (
            "one of five is silent",
            cluster(5, 0).without(&[5]),
            1,
            true,
        ),
        (
            "another is far behind",
            cluster(3, 0).with(behind(2)),
            1,
            false,
        ),
        (
            "another is a little behind",
            cluster(3, 0).with(|it| it.on(2).status.index -= 5_000),
            1,
            true,
        ),
        (
            "another follows no leader",
            cluster(3, 0).with(|it| it.on(2).status.leader = None),
            1,
            false,
        ),
        ("learners do not count", cluster(2, 2), 1, false),
        ("a learner", cluster(1, 1), 2, true),
        ("quorum is lost", cluster(3, 0).with(unconfirmed), 1, false),
    ];
    for (what, case, stopped, serves) in cases {
        assert_eq!(
            case.view().serves_without(MemberId(stopped)),
            serves,
            "{what}"
        );
    }
}

#[test]
fn statuses_belong_to_members_and_hosts() {
    let view = cluster(2, 1).without(&[2]).view();
    assert_eq!(view.on(&"n1".into()), Some(MemberId(1)));
    assert_eq!(view.on(&"n3".into()), Some(MemberId(3)));
    assert_eq!(view.on(&"n2".into()), None, "it is silent");
    assert_eq!(view.members[&MemberId(2)].status, None);
    let voters: Vec<_> = view.voters().map(|(id, _)| id).collect();
    assert_eq!(voters, [MemberId(1), MemberId(2)]);
    assert_eq!(EtcdView::default().quorum, Quorum::Unknown);
}

#[test]
fn alarms_and_databases_that_are_nearly_full_are_reported() {
    assert_eq!(cluster(3, 0).view().problems(), [""; 0]);
    let alarm = |member, kind| Alarm {
        member: MemberId(member),
        kind,
    };
    let case = cluster(3, 0).with(|it| {
        it.alarms = BTreeSet::from([
            alarm(1, AlarmKind::NoSpace),
            alarm(2, AlarmKind::Corrupt),
            alarm(10, AlarmKind::Other("TOO_HOT".to_owned())),
            alarm(0, AlarmKind::Corrupt),
        ]);
        // The default quota is 2 GiB, of which 80 % are 1638.4 MiB.
        it.on(2).status.db_size = 1639 << 20;
        it.on(1).status.db_size = 1638 << 20;
        it.on(3).status.db_size = 81 << 20;
        it.on(3).status.quota = Some(100 << 20);
    });
    insta::assert_snapshot!(case.view().problems().join("\n"), @r"
    a member of etcd has raised the alarm CORRUPT: its data differ from the other members'
    member `n1` of etcd has raised the alarm NOSPACE: its database has reached its quota
    member `n2` of etcd has raised the alarm CORRUPT: its data differ from the other members'
    member a of etcd has raised the alarm TOO_HOT
    the database of member `n2` of etcd has 1639 MiB of its quota of 2048 MiB
    the database of member `n3` of etcd has 81 MiB of its quota of 100 MiB
    ");
}

/// As a member of 3.6 writes them.
#[test]
fn the_peers_that_a_member_hears_are_in_its_metrics() {
    let metrics = "# HELP etcd_network_active_peers The current number of active peer connections.\n\
        # TYPE etcd_network_active_peers gauge\n\
        etcd_network_active_peers{Local=\"8211f1d0f64f3269\",Remote=\"91bc3c398fb3c146\"} 1\n\
        etcd_network_active_peers{Local=\"8211f1d0f64f3269\",Remote=\"fd422379fda50e48\"} 0\n\
        etcd_network_client_grpc_received_bytes_total 1\n";
    let heard = view::active_peers(metrics);
    assert_eq!(heard, [MemberId(0x91bc_3c39_8fb3_c146)].into());
    assert_eq!(view::active_peers("etcd_network_active_peers{"), [].into());
}
