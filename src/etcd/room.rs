//! What a person does about an etcd whose database is full: commands for the containers of this very cluster. Pure.

use super::{AlarmKind, EtcdView};
use crate::model::quoted;

/// The commands that free space, in order; empty while there is enough.
pub(crate) fn cures(etcd: &EtcdView) -> Vec<String> {
    if !etcd.faults().iter().any(|fault| fault.lacks_room) {
        return Vec::new();
    }
    let members = etcd.members.values();
    let answered: Vec<_> = members
        .filter_map(|member| member.status.as_ref())
        .collect();
    let (one, each) = match answered.as_slice() {
        [] => (
            "on a node with etcd".to_owned(),
            "on each node with etcd, one after the other".to_owned(),
        ),
        [(node, _)] => (format!("on node `{node}`"), format!("on node `{node}`")),
        [(node, _), ..] => {
            let all = quoted(answered.iter().map(|(node, _)| node));
            let each = format!("on each of the nodes {all}, one after the other");
            (format!("on node `{node}`"), each)
        }
    };
    // Before 3.4 `etcdctl` spoke another API by default.
    let is_old = |version: &str| {
        let mut words = version.split('.').map(str::parse::<u32>);
        matches!((words.next(), words.next()), (Some(Ok(3)), Some(Ok(0..=3))))
    };
    let old = answered.iter().any(|(_, status)| is_old(&status.version));
    let env = if old { "-e ETCDCTL_API=3 " } else { "" };
    let etcdctl = format!("sudo docker exec {env}etcd etcdctl");
    let live = answered
        .iter()
        .any(|(_, status)| status.nearly_has(status.db_in_use));
    let quota = live.then(|| {
        "what is in use nearly fills it: write a larger `quota-backend-bytes` into `services.etcd.extra_args` and \
         apply that"
            .to_owned()
    });
    let room = [
        format!(
            "old revisions go {one}: `{etcdctl} compact $({etcdctl} endpoint status -w json | grep -o \
             '\"revision\":[0-9]*' | cut -d: -f2)`"
        ),
        format!("then their space comes free {each}: `{etcdctl} defrag --command-timeout=120s`"),
    ];
    let alarm = etcd.alarms.iter();
    let mut alarm = alarm.filter(|alarm| alarm.kind == AlarmKind::NoSpace);
    let disarm = alarm.next().map(|_| {
        format!(
            "then the alarm goes {one}: `{etcdctl} alarm disarm`; until then it stays and nothing is written, also \
             after the quota was raised"
        )
    });
    quota.into_iter().chain(room).chain(disarm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{Alarm, Member, MemberId, MemberStatus};

    fn etcd(versions: &[&str], in_use: u64) -> EtcdView {
        let member = |(number, version): (u64, &&str)| {
            let status = MemberStatus {
                version: (*version).to_owned(),
                leader: Some(MemberId(1)),
                term: 2,
                index: 1,
                is_learner: false,
                db_size: 2 << 30,
                db_in_use: in_use,
                quota: None,
            };
            let member = Member {
                name: format!("etcd-n{number}"),
                peer_urls: [].into(),
                is_learner: false,
                status: Some((format!("n{number}").as_str().into(), status)),
            };
            (MemberId(number), member)
        };
        EtcdView {
            members: (1..).zip(versions).map(member).collect(),
            ..EtcdView::default()
        }
    }

    fn full(mut etcd: EtcdView) -> EtcdView {
        let alarm = Alarm {
            member: MemberId(1),
            kind: AlarmKind::NoSpace,
        };
        etcd.alarms.insert(alarm);
        etcd
    }

    /// E5, B27: the commands work in the containers of etcd 3.4 and 3.5, and the last one takes the alarm back.
    #[test]
    fn the_commands_that_give_room_are_named() {
        insta::assert_snapshot!(cures(&full(etcd(&["3.4.27", "3.5.9"], 1 << 20))).join("\n"), @r#"
        old revisions go on node `n1`: `sudo docker exec etcd etcdctl compact $(sudo docker exec etcd etcdctl endpoint status -w json | grep -o '"revision":[0-9]*' | cut -d: -f2)`
        then their space comes free on each of the nodes `n1`, `n2`, one after the other: `sudo docker exec etcd etcdctl defrag --command-timeout=120s`
        then the alarm goes on node `n1`: `sudo docker exec etcd etcdctl alarm disarm`; until then it stays and nothing is written, also after the quota was raised
        "#);
        let live = cures(&full(etcd(&["3.5.9"], 2 << 30)));
        assert!(live[0].contains("`quota-backend-bytes`"), "{live:?}");
        let nearly = cures(&etcd(&["3.5.9"], 1 << 20));
        assert!(
            !nearly.iter().any(|cure| cure.contains("disarm")),
            "{nearly:?}"
        );
        let old = cures(&full(etcd(&["3.3.15"], 1 << 20)));
        let told = |cure: &String| cure.contains("exec -e ETCDCTL_API=3 etcd etcdctl");
        assert!(old.iter().all(told), "{old:?}");
        assert_eq!(cures(&EtcdView::default()), [""; 0]);
    }
}
