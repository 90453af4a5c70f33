//! A member joins a running etcd as a learner, and becomes a voter when it has caught up. A join that was
//! interrupted anywhere is repeated: etcd's own list shows how far it came.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{
    containers::{await_healthy, cause_in_log, remove_container, run_container},
    helper::{node_error, run_helper, succeeded},
};
use crate::{
    apply::{
        executor::{Executor, failed, until},
        limit::CATCHES_UP,
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    etcd::{self, Client, Member, MemberId, Roster, change},
    facts::{ContainerFact, ContainerState},
    host::Host,
    model::{Component, ContainerSpec, NodeName, label, path},
};

const MEMBER: &str = include_str!("member.sh");

/// etcd refuses a new member for some seconds after any of its members restarted.
const REFUSES: Duration = Duration::from_secs(60);

/// Adds the member, runs it, and lets it vote.
pub(in crate::apply) async fn join_etcd(
    run: &Executor<'_>,
    host: &Host,
    spec: &ContainerSpec,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let MemberFlags { name, peer_url } = MemberFlags::of(spec)
        .ok_or_else(|| node_error(host, "its member of etcd has no name or no peer URL", &[]))?;
    let voter = voter(run, &host.name).await?;
    let roster = change::roster(&voter).await.map_err(failed)?;
    let known = Known::of(&roster, peer_url);
    let mut there = host
        .container(Component::Etcd.container())
        .await
        .map_err(failed)?;
    let mut data = Data::NotSeen;
    let running = loop {
        match next(known, Container::of(there.as_ref(), run), data) {
            Next::RemoveContainer => {
                if let Some(left) = there.take() {
                    remove_container(host, &left.id).await?;
                }
            }
            Next::LookAtData => data = look(run, host, "look").await?,
            Next::MoveAside => {
                look(run, host, "aside").await?;
                data = Data::Empty;
            }
            Next::DataAreLost => return Err(lost(host, roster.with_peer_url(peer_url))),
            Next::AskAgain => {
                let why = "no majority of etcd's members confirms their list";
                return Err(StepError::Guard(why.to_owned()));
            }
            Next::Join => break false,
            Next::Follow => break true,
        }
    };
    let member = added(&voter, peer_url, reporter, stop).await?;
    if !running {
        // Its flags may have an old list of members, with which etcd does not start without data.
        if let Some(left) = there.filter(|there| is_ours(there, run)) {
            remove_container(host, &left.id).await?;
        }
        let roster = change::roster(&voter).await.map_err(failed)?;
        let list = etcd::initial_cluster(&roster.members, Some((member, name)));
        run_member(run, host, spec, &list).await?;
    }
    match timeout(CATCHES_UP, promoted(&voter, member, reporter, stop)).await {
        Ok(promoted) => promoted?,
        Err(_elapsed) => return Err(given_up(host, &voter, member).await),
    }
    await_healthy(run, host, Component::Etcd, reporter, stop).await
}

/// Removes a node's member. A leader transfers its leadership first, so that etcd need not elect a new one.
pub(in crate::apply) async fn remove_member(
    run: &Executor<'_>,
    node: &NodeName,
    member: MemberId,
) -> Result<Done, StepError> {
    let etcd = &run.context.actual.etcd;
    let stays = etcd.healthy().into_iter().find(|id| *id != member);
    // A member that does not answer is not the leader.
    if etcd.on(node) == Some(member)
        && let (Some(to), Ok(_)) = (stays, run.host(node).await)
    {
        let engine = &run.context.engines()?.etcd;
        let own = Client::through(run.hosts, node, engine).map_err(failed)?;
        // A member that is not the leader refuses; and the member is removed even if the transfer fails.
        drop(change::move_leader(&own, to).await);
    }
    let voter = voter(run, node).await?;
    change::remove(&voter, member).await.map_err(failed)?;
    Ok(Done::default())
}

/// What etcd's own list says of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A majority confirms that it has none with this address.
    NoMember,
    /// A list without it that no majority confirmed: it proves nothing.
    Unconfirmed,
    /// It was added, and the list does not have its name yet: it may have started all the same.
    Added,
    /// It has started.
    Started,
}

impl Known {
    fn of(roster: &Roster, peer_url: &str) -> Self {
        match roster.with_peer_url(peer_url) {
            Some((_, member)) if member.name.is_empty() => Self::Added,
            Some(_) => Self::Started,
            None if roster.confirmed => Self::NoMember,
            None => Self::Unconfirmed,
        }
    }
}

/// What is there under the name of etcd's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    None,
    /// This cluster's, and it runs.
    Runs,
    /// This cluster's, and it does not run.
    Ended,
    /// Another owner's.
    Foreign,
}

impl Container {
    fn of(there: Option<&ContainerFact>, run: &Executor<'_>) -> Self {
        match there {
            None => Self::None,
            Some(fact) if !is_ours(fact, run) => Self::Foreign,
            Some(fact) if fact.state == ContainerState::Running => Self::Runs,
            Some(_) => Self::Ended,
        }
    }
}

/// What is in the folder of etcd's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    NotSeen,
    Empty,
    There,
}

/// What is done next so that a member joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    RemoveContainer,
    LookAtData,
    MoveAside,
    DataAreLost,
    AskAgain,
    /// It is added if it is not there, and started with the list of that moment.
    Join,
    /// It runs: only its vote is missing.
    Follow,
}

/// Decides from what is there. Data are moved aside only when they are of no member that etcd has, and a container
/// goes with them only when a majority says so: what a container has is its member's, because etcd writes before
/// the others know its name.
const fn next(known: Known, container: Container, data: Data) -> Next {
    use {Container as C, Data as D, Known as K};
    match (known, container, data) {
        (K::Unconfirmed, _, _) => Next::AskAgain,
        // What is left of a member that was removed never serves again.
        (K::NoMember, C::Runs | C::Ended, _) => Next::RemoveContainer,
        (K::Added | K::Started, C::Runs, _) => Next::Follow,
        (_, C::None, D::NotSeen) | (K::Started, C::Ended, D::NotSeen) => Next::LookAtData,
        (K::Started, C::None | C::Ended, D::Empty) => Next::DataAreLost,
        (K::NoMember | K::Added, C::None, D::There) => Next::MoveAside,
        // Under a name that is taken nothing is touched: starting it says so.
        (_, C::Foreign, _)
        | (K::Added, C::Ended, _)
        | (K::Started, C::None | C::Ended, D::There)
        | (K::NoMember | K::Added, C::None, D::Empty) => Next::Join,
    }
}

/// Refuses to start a member without its data: it would take part with its old id, and with nothing of what it has
/// acknowledged.
pub(super) async fn has_its_data(run: &Executor<'_>, host: &Host) -> Result<(), StepError> {
    match look(run, host, "look").await? {
        Data::There => Ok(()),
        Data::Empty | Data::NotSeen => {
            let etcd = &run.context.actual.etcd;
            let member = etcd.of_node(&host.name).next();
            Err(lost(host, member))
        }
    }
}

/// The member's name and peer URL, from the flags of its container.
struct MemberFlags<'a> {
    name: &'a str,
    peer_url: &'a str,
}

impl<'a> MemberFlags<'a> {
    fn of(spec: &'a ContainerSpec) -> Option<Self> {
        Some(Self {
            name: spec.flag("name").next()?,
            peer_url: spec.flag("initial-advertise-peer-urls").next()?,
        })
    }
}

fn is_ours(container: &ContainerFact, run: &Executor<'_>) -> bool {
    let id = container.labels.get(label::CLUSTER_ID);
    run.context.id().is_ok_and(|ours| id == Some(&ours.0))
}

/// A client of a voter on another node.
async fn voter(run: &Executor<'_>, joining: &NodeName) -> Result<Client, StepError> {
    let engine = &run.context.engines()?.etcd;
    let mut last = None;
    for (_, member) in run.context.actual.etcd.voters() {
        let Some((node, _)) = &member.status else {
            continue;
        };
        if node == joining {
            continue;
        }
        match run.host(node).await {
            Ok(_) => return Client::through(run.hosts, node, engine).map_err(failed),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| StepError::Guard("no member of etcd answers".to_owned())))
}

/// What is in the folder of the data, which is moved aside where that is wanted.
async fn look(run: &Executor<'_>, host: &Host, what: &str) -> Result<Data, StepError> {
    let arguments = [path::ETCD_MEMBER, what];
    let limit = Duration::from_secs(60);
    let output = run_helper(host, run.context.id()?, MEMBER, &arguments, limit).await?;
    succeeded(host, &output, "etcd's folder cannot be looked into", &[])?;
    let below = output.log.lines();
    let mut below = below.filter_map(|line| line.strip_prefix("rke-operator: below "));
    if let Some(mount) = below.next() {
        return Err(mounted(host, mount));
    }
    let there = output.log.lines().any(|line| line == "rke-operator: data");
    Ok(if there { Data::There } else { Data::Empty })
}

/// What is mounted below cannot be moved, and half of the data would stay.
pub(super) fn mounted(host: &Host, mount: &str) -> StepError {
    let what = format!(
        "`{}` has data of a former member of etcd, and `{mount}` is mounted below it: nothing of it is moved aside",
        path::ETCD_MEMBER
    );
    let cure = format!(
        "look at what is there (`findmnt {mount}`), unmount it (`sudo umount {mount}`), and run it again; a disk for \
         etcd belongs to `{}`",
        path::ETCD
    );
    node_error(host, &what, &[&cure])
}

fn lost(host: &Host, known: Option<(MemberId, &Member)>) -> StepError {
    let (what, cure) = match known {
        Some((id, _)) => (
            format!("etcd knows its member {id}, and the member's data are not there"),
            format!(
                "if they are gone for good, on another member: `docker exec etcd etcdctl member remove {id}`; then run it \
                 again"
            ),
        ),
        None => (
            "it had a member of etcd, whose data are not there, and no other member answers".to_owned(),
            "if the cluster was being removed, finish that: `rke-operator remove` (of a `Cluster`: its deletion)"
                .to_owned(),
        ),
    };
    node_error(
        host,
        &what,
        &["look whether the disk of `/var/lib/etcd` is mounted", &cure],
    )
}

/// Adds the member as a learner, repeatedly until etcd accepts it; or returns the existing member with this peer URL.
async fn added(
    voter: &Client,
    peer_url: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<MemberId, StepError> {
    let begun = Instant::now();
    let pause = Duration::from_secs(1);
    until(
        Component::Etcd.container(),
        pause,
        reporter,
        stop,
        |_| async move {
            match change::add_learner(voter, peer_url).await {
                Ok(member) => Ok(Ok(member)),
                Err(error) if begun.elapsed() < REFUSES => Ok(Err(error.to_string())),
                Err(error) => Err(failed(error)),
            }
        },
    )
    .await
}

async fn run_member(
    run: &Executor<'_>,
    host: &Host,
    spec: &ContainerSpec,
    initial_cluster: &str,
) -> Result<(), StepError> {
    let mut spec = spec.clone();
    let of_now = format!("--initial-cluster={initial_cluster}");
    spec.bootstrap_args
        .retain(|word| !word.starts_with("--initial-cluster="));
    spec.bootstrap_args.push(of_now);
    run_container(run, host, Component::Etcd, &spec).await?;
    Ok(())
}

/// Promotes the learner, repeatedly until it has caught up: etcd refuses before that.
async fn promoted(
    voter: &Client,
    member: MemberId,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<(), StepError> {
    let pause = Duration::from_millis(500);
    until(
        Component::Etcd.container(),
        pause,
        reporter,
        stop,
        |_| async move {
            match change::promote(voter, member).await {
                Ok(()) => Ok(Ok(())),
                Err(error @ etcd::EtcdError::NoSuchMember(_)) => Err(failed(error)),
                Err(error) => Ok(Err(error.to_string())),
            }
        },
    )
    .await
}

/// A learner does no harm to the quorum, but etcd accepts no second one while it exists.
async fn given_up(host: &Host, voter: &Client, member: MemberId) -> StepError {
    let minutes = CATCHES_UP.as_secs() / 60;
    let what = format!(
        "its member of etcd has not caught up within {minutes} minutes and was removed again"
    );
    let cause = cause_in_log(host, Component::Etcd.container()).await;
    let hint = cause.map(|cause| format!("its log: {cause}"));
    if let Err(error) = change::remove(voter, member).await {
        return failed(error);
    }
    if let Err(error) = remove_container(host, Component::Etcd.container()).await {
        return error;
    }
    let hints: Vec<&str> = hint.iter().map(String::as_str).collect();
    node_error(host, &what, &hints)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    fn member(name: &str, url: &str) -> Member {
        Member {
            name: name.to_owned(),
            peer_urls: [url.to_owned()].into(),
            is_learner: false,
            status: None,
        }
    }

    #[test]
    fn the_list_is_that_of_this_moment() {
        let members = [
            (MemberId(1), member("etcd-n1", "https://10.0.0.1:2380")),
            (MemberId(2), member("", "https://10.0.0.2:2380")),
            (MemberId(3), member("", "https://10.0.0.3:2380")),
        ];
        let roster = Roster {
            confirmed: true,
            members: members.into(),
        };
        assert_eq!(
            etcd::initial_cluster(&roster.members, Some((MemberId(2), "etcd-n2"))),
            "etcd-n1=https://10.0.0.1:2380,etcd-n2=https://10.0.0.2:2380,\
             not-started-3=https://10.0.0.3:2380"
        );
    }

    /// A list that no majority confirmed proves nothing.
    #[test]
    fn only_a_confirmed_list_tells_that_a_member_was_removed() {
        let members = [(MemberId(1), member("etcd-n1", "https://10.0.0.1:2380"))];
        let roster = |confirmed| Roster {
            confirmed,
            members: members.clone().into(),
        };
        let known = |confirmed, url| Known::of(&roster(confirmed), url);
        assert_eq!(known(true, "https://10.0.0.2:2380"), Known::NoMember);
        assert_eq!(known(true, "https://10.0.0.1:2380"), Known::Started);
        assert_eq!(known(false, "https://10.0.0.2:2380"), Known::Unconfirmed);
    }

    /// Rules 4 and 5: every case, and that it comes to an end.
    #[test]
    fn what_is_next_follows_from_list_container_and_data() {
        use {Container as C, Data as D, Known as K};
        let table = [
            (K::NoMember, C::None, D::NotSeen, Next::LookAtData),
            (K::NoMember, C::None, D::Empty, Next::Join),
            (K::NoMember, C::None, D::There, Next::MoveAside),
            (K::NoMember, C::Runs, D::NotSeen, Next::RemoveContainer),
            (K::NoMember, C::Ended, D::NotSeen, Next::RemoveContainer),
            (K::NoMember, C::Foreign, D::NotSeen, Next::Join),
            (K::Unconfirmed, C::None, D::There, Next::AskAgain),
            (K::Unconfirmed, C::Ended, D::There, Next::AskAgain),
            (K::Added, C::None, D::NotSeen, Next::LookAtData),
            (K::Added, C::None, D::Empty, Next::Join),
            (K::Added, C::None, D::There, Next::MoveAside),
            (K::Added, C::Runs, D::NotSeen, Next::Follow),
            (K::Added, C::Ended, D::NotSeen, Next::Join),
            (K::Started, C::None, D::NotSeen, Next::LookAtData),
            (K::Started, C::None, D::Empty, Next::DataAreLost),
            (K::Started, C::None, D::There, Next::Join),
            (K::Started, C::Runs, D::NotSeen, Next::Follow),
            (K::Started, C::Ended, D::NotSeen, Next::LookAtData),
            (K::Started, C::Ended, D::Empty, Next::DataAreLost),
            (K::Started, C::Ended, D::There, Next::Join),
        ];
        for (known, container, data, wanted) in table {
            assert_eq!(
                next(known, container, data),
                wanted,
                "{known:?} {container:?} {data:?}"
            );
        }
        for known in [K::NoMember, K::Unconfirmed, K::Added, K::Started] {
            for first in [C::None, C::Runs, C::Ended, C::Foreign] {
                for seen in [D::Empty, D::There] {
                    let (mut container, mut data) = (first, D::NotSeen);
                    let ends = (0..5).any(|_| {
                        match next(known, container, data) {
                            Next::RemoveContainer => container = C::None,
                            Next::LookAtData => data = seen,
                            Next::MoveAside => {
                                assert_ne!(known, K::Started, "data of a living member");
                                data = D::Empty;
                            }
                            Next::DataAreLost | Next::AskAgain | Next::Join | Next::Follow => {
                                return true;
                            }
                        }
                        false
                    });
                    assert!(ends, "{known:?} {first:?} {seen:?}");
                }
            }
        }
    }

    /// E13: where the folder is a mount point, the data stay on that disk; where something is mounted below, nothing is
    /// moved.
    #[test]
    fn what_is_on_a_disk_stays_on_it_and_nothing_below_a_mount_is_moved() {
        let run = |setup: &str, after: &str| {
            let folder = tempfile::tempdir().unwrap();
            let script = "set -e; mkdir $1/member; eval \"$2\"; cd $1; \
                          for what in aside look; do sh -c \"$4\" rke-operator $1/member $what; done; eval \"$3\"";
            let mut unshare = Command::new("unshare");
            if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
                unshare.arg("--map-root-user");
            }
            let output = unshare
                .args(["--mount", "sh", "-c", script, "sh"])
                .arg(folder.path())
                .args([setup, after, MEMBER])
                .output()
                .expect("unshare");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{out}{err}");
            out.replace(folder.path().to_str().unwrap(), "")
        };
        let disk = "mount -t tmpfs none $1/member; mkdir $1/member/lost+found $1/member/snap; echo x >$1/member/snap/db";
        assert_eq!(
            run(
                disk,
                "cat member/removed-*/snap/db; ls member | grep -v removed; ls"
            ),
            "rke-operator: data\nrke-operator: empty\nx\nlost+found\nmember\n"
        );
        // The disk for etcd is at the folder above, as usual.
        let above = "mount -t tmpfs none $1; mkdir $1/lost+found $1/member; echo x >$1/member/a";
        assert_eq!(
            run(
                above,
                "cat member.removed-*/a; mountpoint -q . && ls member"
            ),
            "rke-operator: data\nrke-operator: empty\nx\n"
        );
        let below = "mkdir $1/member/snap $1/member/wal; mount -t tmpfs none $1/member/wal; echo x >$1/member/wal/0";
        assert_eq!(
            run(below, "ls member; cat member/wal/0; ls"),
            "rke-operator: data\nrke-operator: below /member/wal\nrke-operator: data\nsnap\nwal\nx\nmember\n"
        );
    }

    /// Rule 5: data of a member that was removed are never used again and never deleted.
    #[test]
    fn data_are_moved_aside_and_never_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let member = folder.path().join("member");
        let said = |what: &str| {
            let output = Command::new("sh")
                .args(["-c", MEMBER, "rke-operator"])
                .args([member.as_os_str(), what.as_ref()])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(said("look"), "rke-operator: empty\n");
        fs::create_dir_all(member.join("wal")).unwrap();
        fs::write(member.join("wal/0"), "entries").unwrap();
        fs::write(member.join(".hidden"), "x").unwrap();
        assert_eq!(said("look"), "rke-operator: data\n");
        assert!(member.join("wal/0").exists());
        assert_eq!(said("aside"), "rke-operator: data\n");
        assert_eq!(said("look"), "rke-operator: empty\n");
        let aside = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        let aside: Vec<_> = aside.map(|entry| entry.path()).collect();
        let [aside] = &aside
            .into_iter()
            .filter(|path| *path != member)
            .collect::<Vec<_>>()[..]
        else {
            panic!("one folder next to it");
        };
        let kept = fs::metadata(aside.join("wal/0")).unwrap().len();
        assert_eq!(kept, "entries".len() as u64);
        assert!(aside.join(".hidden").exists());
    }
}
