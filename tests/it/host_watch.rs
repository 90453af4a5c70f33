//! Connections that are kept, against a server in this process: what Docker reports, a node that goes silent, an API
//! server that hangs; and nothing is left when they are not kept any more.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use rke_operator::{
    apply::{
        remote::{OverSsh, Remote},
        watch::{RemoteWatch, Watched},
    },
    error::Obstacle,
    facts::ContainerState,
    host::{KnownHosts, Policy, pool::Verified},
    model::{ClusterId, NodeName, label},
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    etcd_support::members,
    fake::{FakeContainer, FakeHost, target},
};

fn n1() -> NodeName {
    NodeName::from("n1")
}

fn id() -> ClusterId {
    ClusterId("00000000-0000-4000-8000-000000000001".to_owned())
}

fn of(cluster: &ClusterId) -> FakeContainer {
    let mut container = FakeContainer::foreign("etcd:3");
    container.body["Labels"] = json!({ label::CLUSTER_ID: cluster.0 });
    container
}

fn becomes(host: &FakeHost, state: &str) {
    let mut docker = host.docker();
    let container = docker.containers.get_mut("etcd").unwrap();
    state.clone_into(&mut container.state);
}

/// As the prober keeps them: no host key is on record but the one that the state has.
fn kept(host: &FakeHost) -> Box<dyn RemoteWatch> {
    let (_, engine) = members(&["10.0.0.1"]);
    let remote = OverSsh::new(Arc::new(host.dial()));
    let keys = KnownHosts::from_text("the state", "", Policy::Strict);
    let mut target = target(FakeHost::endpoint(), host.login());
    target.verified = Verified {
        host: vec![host.host_key()],
        bastions: vec![],
    };
    let watched = Watched {
        id: id(),
        members: vec![n1()],
        engine,
    };
    remote.watch(
        Arc::new(keys),
        BTreeMap::from([(n1(), Ok(target))]),
        watched,
    )
}

/// Of this cluster's containers alone, within two seconds, and for each of what may befall one.
#[tokio::test]
async fn docker_reports_what_becomes_of_containers() {
    let host = FakeHost::new();
    host.docker()
        .containers
        .insert("etcd".to_owned(), of(&id()));
    let watch = kept(&host);
    watch.connect(&n1()).await.unwrap();
    let name = n1();
    let mut events = watch.events(&name);
    assert!(
        timeout(Duration::from_millis(300), events.next())
            .await
            .is_err(),
        "nothing happens"
    );
    let other = ClusterId("00000000-0000-4000-8000-000000000002".to_owned());
    host.docker()
        .containers
        .insert("other".to_owned(), of(&other));
    for (state, runs) in [("exited", false), ("running", true)] {
        let begun = Instant::now();
        becomes(&host, state);
        let event = events.next().await.unwrap().unwrap();
        assert_eq!(event.name, "etcd");
        assert!(begun.elapsed() < Duration::from_secs(2));
        let listed = watch.containers(&name).await.unwrap();
        assert_eq!(listed.keys().collect::<Vec<_>>(), ["etcd"]);
        assert_eq!(listed["etcd"].state == ContainerState::Running, runs);
    }
    host.docker().containers.remove("etcd");
    events.next().await.unwrap().unwrap();
    assert!(watch.containers(&name).await.unwrap().is_empty());
}

/// Two questions without an answer, and then it is away: within 15 s, whatever hangs meanwhile. What is asked over the
/// connection ends with it, and a connection that is silent is not taken for a new one.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_is_noticed() {
    let host = FakeHost::new();
    let watch = kept(&host);
    watch.connect(&n1()).await.unwrap();
    watch.containers(&n1()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let name = n1();
    assert!(
        timeout(Duration::from_secs(60), watch.lost(&name))
            .await
            .is_err(),
        "it answers"
    );
    host.freeze();
    let begun = Instant::now();
    let why = watch.lost(&name).await;
    assert!(
        begun.elapsed() <= Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(why.obstacle, Obstacle::Silence);
    assert!(watch.connect(&name).await.is_err());
    assert!(watch.containers(&name).await.is_err());
}

/// An API server that takes connections and answers nothing: whoever asks gives up, and the node's connection is good.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_holds_nothing_up() {
    let host = FakeHost::new();
    let open = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&open);
    host.on_port(6443, move |stream| {
        let open = Arc::clone(&counted);
        Box::pin(async move {
            open.fetch_add(1, Ordering::SeqCst);
            let _held = stream;
            std::future::pending::<()>().await;
        })
    });
    let watch = kept(&host);
    let name = n1();
    watch.connect(&name).await.unwrap();
    for _ in 0..6 {
        let asked = timeout(Duration::from_secs(5), watch.serves(&name)).await;
        assert!(asked.is_err() || asked.unwrap().is_err());
        sleep(Duration::from_secs(5)).await;
    }
    watch.containers(&name).await.unwrap();
    assert_eq!(host.connections(), 1);
}

/// Dropped in the middle of whatever it does, it leaves no connection; and a lost one is dialled again.
#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_and_a_dropped_one_is_closed() {
    let host = FakeHost::new();
    let watch = kept(&host);
    let name = n1();
    watch.connect(&name).await.unwrap();
    let mut events = watch.events(&name);
    assert!(
        timeout(Duration::from_secs(1), events.next())
            .await
            .is_err()
    );
    host.cut();
    watch.lost(&name).await;
    assert!(!matches!(events.next().await, Some(Ok(_))));
    drop(events);
    watch.connect(&name).await.unwrap();
    watch.containers(&name).await.unwrap();
    assert_eq!(host.connections(), 2);
}
