//! A member joins a living etcd: it follows first, and votes when it has caught up. Torn anywhere it
//! is done again: etcd's own list says how far it came.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{
    containers::{await_healthy, remove_container, run_container},
    helper::{node_error, run_helper, succeeded},
};
use crate::{
    actual::{ContainerFact, ContainerState},
    apply::{
        executor::{Executor, failed, until},
        limit::CATCHES_UP,
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    etcd::{self, Client, Member, MemberId, Roster, change},
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
    let Told { name, peer_url } = Told::by(spec)
        .ok_or_else(|| node_error(host, "its member of etcd has no name or no peer URL", &[]))?;
    let voter = voter(run, &host.name).await?;
    let roster = change::roster(&voter).await.map_err(failed)?;
    let known = roster.with_peer_url(peer_url);
    let container = Component::Etcd.container();
    // What a container has is its member's: etcd writes before the others know its name.
    let mut runs = host.container(container).await.map_err(failed)?;
    // Its member was removed meanwhile: what is left of that never serves again.
    if is_no_member(&roster, peer_url)
        && let Some(left) = runs.take_if(|there| is_ours(there, run))
    {
        remove_container(host, &left.id).await?;
    }
    if runs.is_none() {
        let has_data = data(run, host, "look").await?;
        let started = known.is_some_and(|(_, member)| !member.name.is_empty());
        if started && !has_data {
            return Err(lost(host, known));
        }
        if has_data && !started {
            data(run, host, "aside").await?;
        }
    }
    let member = added(&voter, peer_url, reporter, stop).await?;
    let running = runs.as_ref().map(|there| there.state) == Some(ContainerState::Running);
    if !running {
        // The list that it was told may be an old one, and without data it would not start.
        if let Some(left) = runs.filter(|there| is_ours(there, run)) {
            remove_container(host, &left.id).await?;
        }
        let roster = change::roster(&voter).await.map_err(failed)?;
        run_member(run, host, spec, &initial_cluster(&roster, member, name)).await?;
    }
    match timeout(CATCHES_UP, promoted(&voter, member, reporter, stop)).await {
        Ok(promoted) => promoted?,
        Err(_elapsed) => return Err(given_up(host, &voter, member).await),
    }
    await_healthy(run, host, Component::Etcd, reporter, stop).await
}

/// Takes a node's member out. One that leads hands the lead over first: nobody waits for an election.
pub(in crate::apply) async fn remove_member(
    run: &Executor<'_>,
    node: &NodeName,
    member: MemberId,
) -> Result<Done, StepError> {
    let etcd = &run.context.actual.etcd;
    let stays = etcd.healthy().into_iter().find(|id| *id != member);
    // One that does not answer leads nobody.
    if etcd.on(node) == Some(member)
        && let (Some(to), Ok(host)) = (stays, run.host(node).await)
    {
        let own = Client::through(host, &run.context.engines()?.etcd).map_err(failed)?;
        // One that does not lead has nothing to hand over, and one that fails goes all the same.
        drop(change::move_leader(&own, to).await);
    }
    let voter = voter(run, node).await?;
    change::remove(&voter, member).await.map_err(failed)?;
    Ok(Done::default())
}

/// True when a majority confirms that etcd has no member with this address: what a container or a folder
/// there has is a former member's.
fn is_no_member(roster: &Roster, peer_url: &str) -> bool {
    roster.confirmed && roster.with_peer_url(peer_url).is_none()
}

/// What the definition says of the member.
struct Told<'a> {
    name: &'a str,
    peer_url: &'a str,
}

impl<'a> Told<'a> {
    fn by(spec: &'a ContainerSpec) -> Option<Self> {
        let flag = |name: &str| {
            let mut words = spec.command.iter();
            words.find_map(|word| word.strip_prefix(name))
        };
        Some(Self {
            name: flag("--name=")?,
            peer_url: flag("--initial-advertise-peer-urls=")?,
        })
    }
}

fn is_ours(container: &ContainerFact, run: &Executor<'_>) -> bool {
    let id = container.labels.get(label::CLUSTER_ID);
    run.context.id().is_ok_and(|ours| id == Some(&ours.0))
}

/// A member that votes, on another node.
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
            Ok(host) => return Client::through(host, engine).map_err(failed),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| StepError::Guard("no member of etcd answers".to_owned())))
}

/// Whether there are data; they are moved aside where that is wanted.
async fn data(run: &Executor<'_>, host: &Host, what: &str) -> Result<bool, StepError> {
    let arguments = [path::ETCD_MEMBER, what];
    let limit = Duration::from_secs(60);
    let output = run_helper(host, run.context.id()?, MEMBER, &arguments, limit).await?;
    succeeded(host, &output, "etcd's folder cannot be looked into", &[])?;
    Ok(output.log.lines().any(|line| line == "rke-operator: data"))
}

fn lost(host: &Host, known: Option<(MemberId, &Member)>) -> StepError {
    let id = known.map_or_else(String::new, |(id, _)| id.to_string());
    let cure = format!(
        "if they are gone for good, on another member: `docker exec etcd etcdctl member remove {id}`; then run it again"
    );
    let what = format!("etcd knows its member {id}, and the member's data are not there");
    node_error(
        host,
        &what,
        &["look whether the disk of `/var/lib/etcd` is mounted", &cure],
    )
}

/// Asks until etcd takes it; one that is there already is it.
async fn added(
    voter: &Client,
    peer_url: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<MemberId, StepError> {
    let begun = Instant::now();
    let pause = Duration::from_secs(1);
    until("etcd", pause, reporter, stop, |_| async move {
        match change::add_learner(voter, peer_url).await {
            Ok(member) => Ok(Ok(member)),
            Err(error) if begun.elapsed() < REFUSES => Ok(Err(error.to_string())),
            Err(error) => Err(failed(error)),
        }
    })
    .await
}

/// `--initial-cluster` of this moment: etcd compares it with its own list.
fn initial_cluster(roster: &Roster, own: MemberId, name: &str) -> String {
    let each = roster.members.iter().flat_map(|(id, member)| {
        let name = if *id == own {
            name.to_owned()
        } else if member.name.is_empty() {
            format!("not-started-{id}")
        } else {
            member.name.clone()
        };
        let urls = member.peer_urls.iter();
        urls.map(move |url| format!("{name}={url}"))
    });
    each.collect::<Vec<_>>().join(",")
}

async fn run_member(
    run: &Executor<'_>,
    host: &Host,
    spec: &ContainerSpec,
    initial_cluster: &str,
) -> Result<(), StepError> {
    let saved = run.context.saved()?;
    let mut spec = spec.clone();
    let of_now = format!("--initial-cluster={initial_cluster}");
    spec.bootstrap_args
        .retain(|word| !word.starts_with("--initial-cluster="));
    spec.bootstrap_args.push(of_now);
    run_container(host, Component::Etcd.container(), &spec, saved).await?;
    Ok(())
}

/// Asks for its vote until it has caught up: etcd refuses before.
async fn promoted(
    voter: &Client,
    member: MemberId,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<(), StepError> {
    let pause = Duration::from_millis(500);
    until("etcd", pause, reporter, stop, |_| async move {
        match change::promote(voter, member).await {
            Ok(()) => Ok(Ok(())),
            Err(error @ etcd::EtcdError::NoSuchMember(_)) => Err(failed(error)),
            Err(error) => Ok(Err(error.to_string())),
        }
    })
    .await
}

/// A learner holds nobody up, but etcd takes no other one beside it.
async fn given_up(host: &Host, voter: &Client, member: MemberId) -> StepError {
    let minutes = CATCHES_UP.as_secs() / 60;
    let what = format!(
        "its member of etcd has not caught up within {minutes} minutes and was taken away again"
    );
    let log = host.log_tail("etcd", 4).await.unwrap_or_default();
    let hint = format!("the end of its log: {}", log.trim());
    if let Err(error) = change::remove(voter, member).await {
        return failed(error);
    }
    if let Err(error) = remove_container(host, "etcd").await {
        return error;
    }
    node_error(host, &what, &[&hint])
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
            initial_cluster(&roster, MemberId(2), "etcd-n2"),
            "etcd-n1=https://10.0.0.1:2380,etcd-n2=https://10.0.0.2:2380,\
             not-started-3=https://10.0.0.3:2380"
        );
    }

    /// A list that nobody confirmed proves nothing.
    #[test]
    fn only_a_confirmed_list_tells_that_a_member_was_removed() {
        let members = [(MemberId(1), member("etcd-n1", "https://10.0.0.1:2380"))];
        let roster = |confirmed| Roster {
            confirmed,
            members: members.clone().into(),
        };
        assert!(is_no_member(&roster(true), "https://10.0.0.2:2380"));
        assert!(!is_no_member(&roster(true), "https://10.0.0.1:2380"));
        assert!(!is_no_member(&roster(false), "https://10.0.0.2:2380"));
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
            panic!("one folder beside it");
        };
        let kept = fs::metadata(aside.join("wal/0")).unwrap().len();
        assert_eq!(kept, "entries".len() as u64);
        assert!(aside.join(".hidden").exists());
    }
}
