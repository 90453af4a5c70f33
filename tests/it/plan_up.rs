//! Plans of `up` as people read them, and every refusal.

use rke_operator::{
    actual::{Actual, ContainerFact, ContainerState, Down, HostFacts, HostView},
    config::NodeName,
    desired::{Desired, label, path},
    error::{Blame, Explain},
    plan::{self, Action, Component, Plan, PlanError},
};

use crate::sim::{
    Knobs, Shell, World, bare_host, desired,
    generate::names,
    world::{converge_up, plan_up},
};

pub(crate) fn one() -> NodeName {
    NodeName("n1".to_owned())
}

pub(crate) fn want() -> Desired {
    desired("a", &names(1), &Knobs::default())
}

pub(crate) fn world_with(change: impl FnOnce(&mut HostFacts)) -> World {
    let mut facts = bare_host(&one());
    change(&mut facts);
    World::new([(one(), facts)])
}

/// A cluster that is up, and the shell that holds its state.
pub(crate) fn settled() -> (World, Shell) {
    let (mut world, mut shell) = (world_with(|_| {}), Shell::default());
    converge_up(&mut world, &want(), &mut shell);
    (world, shell)
}

pub(crate) fn host(world: &mut World) -> &mut HostFacts {
    let Some(HostView::Up(facts)) = world.truth.hosts.get_mut(&one()) else {
        panic!("the host is up");
    };
    facts
}

pub(crate) fn titles(plan: &Plan) -> Vec<String> {
    plan.steps().map(plan::title).collect()
}

fn refused(change: impl FnOnce(&mut HostFacts)) -> PlanError {
    plan_up(&want(), &world_with(change).observe(&Shell::default())).unwrap_err()
}

#[test]
fn a_fresh_node() {
    let plan = plan_up(&want(), &world_with(|_| {}).observe(&Shell::default())).unwrap();
    insta::assert_snapshot!("up_fresh", plan::render(&plan));
}

#[test]
fn an_edit_of_the_config() {
    let (world, shell) = settled();
    let knobs = Knobs {
        tag: 1,
        verbosity: 3,
        labelled: true,
        coredns: false,
        ..Knobs::default()
    };
    let plan = plan_up(&desired("a", &names(1), &knobs), &world.observe(&shell)).unwrap();
    insta::assert_snapshot!("up_edit", plan::render(&plan));
}

#[test]
fn a_settled_world_plans_nothing() {
    let (world, shell) = settled();
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(plan, Plan::default());
    insta::assert_snapshot!(plan::render(&plan), @"Plan: nothing to do");
}

#[test]
fn invariant_08_a_plan_is_data_that_survives_json() {
    let plan = plan_up(&want(), &world_with(|_| {}).observe(&Shell::default())).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn invariant_08_no_content_is_in_a_plan() {
    let want = want();
    let world = world_with(|_| {});
    let (mut settled, shell) = settled();
    host(&mut settled).files.as_mut().unwrap().clear();
    for plan in [
        plan_up(&want, &world.observe(&Shell::default())).unwrap(),
        plan_up(&want, &settled.observe(&shell)).unwrap(),
    ] {
        let text = format!(
            "{}{}",
            plan::render(&plan),
            serde_json::to_string(&plan).unwrap()
        );
        for secret in [
            "cluster key of a",
            "service account key of a",
            "kubeconfig of a",
        ] {
            assert!(!text.contains(secret), "{secret} is in the plan");
        }
    }
}

#[test]
fn docker_that_stops_with_containerd_is_said() {
    let world = world_with(|facts| facts.system.containerd.docker_bound = true);
    let plan = plan_up(&want(), &world.observe(&Shell::default())).unwrap();
    let disruptions: Vec<&str> = plan.disruptions().map(|(_, what)| what).collect();
    insta::assert_debug_snapshot!(disruptions, @r#"
    [
        "restarts containerd, and Docker stops and starts with it on this node; containers keep running only where Docker's live-restore is on",
    ]
    "#);
}

#[test]
fn the_pause_image_comes_before_what_would_hide_that_it_is_missing() {
    let order = |plan: &Plan, first: &str, second: &str| {
        let titles = titles(plan);
        let place = |what: &str| titles.iter().position(|title| title.starts_with(what));
        assert!(place(first).unwrap() < place(second).unwrap(), "{titles:?}");
    };
    let fresh = plan_up(&want(), &world_with(|_| {}).observe(&Shell::default())).unwrap();
    order(&fresh, "import", "run kubelet");
    let (world, shell) = settled();
    let knobs = Knobs {
        pause: 1,
        ..Knobs::default()
    };
    let edit = plan_up(&desired("a", &names(1), &knobs), &world.observe(&shell)).unwrap();
    order(&edit, "import", "configure containerd");
}

#[test]
fn a_restarting_component_is_awaited_and_noted() {
    let (mut world, shell) = settled();
    let container = host(&mut world)
        .containers
        .get_mut("kube-scheduler")
        .unwrap();
    container.state = ContainerState::Restarting(2);
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["wait for kube-scheduler to be healthy"]);
    assert!(plan.only_waits());
    insta::assert_snapshot!(plan.notes[0].text, @"`kube-scheduler` keeps exiting with code 2 and Docker restarts it: `docker logs kube-scheduler` says why");
}

#[test]
fn an_addon_that_is_not_available_is_waited_for_and_nothing_else() {
    let (mut world, shell) = settled();
    for object in world.etcd().objects.values_mut() {
        if object.get("status").is_some() {
            object["status"] = serde_json::json!({});
        }
    }
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["wait for flannel", "wait for coredns"]);
    assert!(plan.only_waits());
}

#[test]
fn an_api_server_that_lost_its_etcd_is_awaited() {
    let (mut world, shell) = settled();
    // It still answers when the survey looks: only its etcd will be replaced.
    let etcd = host(&mut world).containers.get_mut("etcd").unwrap();
    etcd.runs
        .as_mut()
        .unwrap()
        .command
        .push("--by-hand".to_owned());
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    let awaits = |component| {
        plan.steps()
            .any(|step| step.action == Action::AwaitHealthy { component })
    };
    assert!(awaits(Component::Etcd) && awaits(Component::ApiServer));
}

#[test]
fn notes_about_a_fresh_node() {
    let world = world_with(|facts| {
        facts.system.firewalld = true;
        facts.docker.default_runtime = "nvidia".to_owned();
        facts.docker.proxy = Some(("http://proxy".to_owned(), String::new(), String::new()));
    });
    let plan = plan_up(&want(), &world.observe(&Shell::default())).unwrap();
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    insta::assert_debug_snapshot!(notes);
}

/// The message and its hints, as the terminal shows them.
fn shown(error: &PlanError) -> String {
    let hints = error.hints();
    let hints: Vec<String> = hints.iter().map(|hint| format!("hint: {hint}")).collect();
    format!(
        "error: {error}\n\n{}\n(exit {})",
        hints.join("\n"),
        error.blame().exit_code()
    )
}

#[test]
fn invariant_03_a_node_of_another_cluster_is_refused() {
    let (world, _) = settled();
    let other = desired("b", &names(1), &Knobs::default());
    let error = plan_up(&other, &world.observe(&Shell::default())).unwrap_err();
    insta::assert_snapshot!("foreign_claim", shown(&error));
}

#[test]
fn invariant_03_a_node_of_a_cluster_that_lost_its_claim_is_refused() {
    let (mut world, _) = settled();
    host(&mut world)
        .containers
        .remove(rke_operator::desired::CLAIM);
    let other = desired("b", &names(1), &Knobs::default());
    let error = plan_up(&other, &world.observe(&Shell::default())).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("of cluster `cluster-a` (id `a`)"),
        "{error}"
    );
}

fn foreign(image: &str, labels: &[(&str, &str)]) -> ContainerFact {
    ContainerFact {
        id: "fedcba9876543210".to_owned(),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        state: ContainerState::Running,
        runs: None,
        image: image.to_owned(),
    }
}

#[test]
fn invariant_03_rke_is_refused() {
    let error = refused(|facts| {
        let kubelet = foreign(
            "rancher/hyperkube:v1.30",
            &[("io.rancher.rke.container.name", "kubelet")],
        );
        facts.containers.insert("kubelet".to_owned(), kubelet);
        facts.containers.insert(
            "service-sidekick".to_owned(),
            foreign("rancher/rke-tools:1", &[]),
        );
    });
    insta::assert_snapshot!("rke", shown(&error));
}

#[test]
fn somebodys_nginx_proxy_is_not_rke() {
    let world = world_with(|facts| {
        facts.containers.insert(
            "nginx-proxy".to_owned(),
            foreign("jwilder/nginx-proxy", &[]),
        );
    });
    plan_up(&want(), &world.observe(&Shell::default())).unwrap();
}

#[test]
fn a_foreign_container_with_a_name_of_ours_is_refused() {
    let error = refused(|facts| {
        let etcd = foreign(
            "quay.io/coreos/etcd:v3.5",
            &[("com.docker.compose.project", "kv")],
        );
        facts.containers.insert("etcd".to_owned(), etcd);
    });
    insta::assert_snapshot!(shown(&error));
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let error = refused(|facts| {
        facts.system.listening.insert(6443);
    });
    insta::assert_snapshot!(shown(&error));
    for (owner, told) in [
        ("k3s.service", "taken by `k3s.service`"),
        ("docker.service", "taken by a container that publishes it"),
        ("docker-1f.scope", "taken by the container `web`"),
        ("1f", "taken by the container `web`"),
    ] {
        let error = refused(|facts| {
            facts.system.listening.insert(6443);
            facts.system.listeners.insert(6443, owner.to_owned());
            if let Some(web) = facts.containers.get_mut("web") {
                "1f".clone_into(&mut web.id);
            }
        });
        assert!(shown(&error).contains(told), "{}", shown(&error));
    }
    let (mut world, shell) = settled();
    host(&mut world).system.listening.insert(6443);
    plan_up(&want(), &world.observe(&shell)).expect("our own API server listens there");
}

#[test]
fn another_kubernetes_is_refused() {
    let error = refused(|facts| {
        facts
            .system
            .paths
            .extend([path::KUBERNETES.to_owned(), path::KUBELET.to_owned()]);
    });
    insta::assert_snapshot!(shown(&error));
    let world = world_with(|facts| {
        facts.system.paths.insert(path::ETCD.to_owned());
        facts.system.empty.insert(path::ETCD.to_owned());
    });
    plan_up(&want(), &world.observe(&Shell::default())).expect("an empty mount point is nobody's");
}

#[test]
fn a_docker_that_cannot_carry_a_node_is_refused() {
    let error = refused(|facts| {
        facts.docker.version = "19.3.1".to_owned();
        facts.docker.api_version = "1.40".to_owned();
        facts.docker.security_options = vec!["name=rootless".to_owned(), "name=userns".to_owned()];
        facts.docker.architecture = "riscv64".to_owned();
    });
    insta::assert_snapshot!(shown(&error));
}

#[test]
fn a_system_without_containerd_is_refused() {
    let error = refused(|facts| {
        facts.system.containerd.socket = false;
        facts.system.containerd.unit = false;
    });
    insta::assert_snapshot!(shown(&error));
    let error = refused(|facts| facts.system.systemd = false);
    assert!(
        error.to_string().contains("does not run systemd"),
        "{error}"
    );
}

#[test]
fn a_containerd_configuration_that_cannot_be_read_is_refused() {
    let error = refused(|facts| facts.system.containerd.dump = "version = [".to_owned());
    assert!(
        error
            .to_string()
            .contains("containerd's configuration on node `n1`"),
        "{error}"
    );
    // Root's alone: defaults in its place would drop what someone set.
    let error = refused(|facts| facts.system.containerd.dump.clear());
    assert!(
        error
            .to_string()
            .contains("cannot read containerd's configuration on node `n1`"),
        "{error}"
    );
}

#[test]
fn a_full_disk_is_refused_on_a_fresh_node_only() {
    let error = refused(|facts| {
        facts
            .system
            .free
            .insert("/var/lib/containerd".to_owned(), 300 << 20);
    });
    insta::assert_snapshot!(shown(&error));
    let (mut world, shell) = settled();
    host(&mut world).system.free.insert("/".to_owned(), 1 << 20);
    plan_up(&want(), &world.observe(&shell)).expect("a running node is not refused");
}

#[test]
fn one_machine_under_two_names_is_refused() {
    let hosts = names(2)
        .into_iter()
        .map(|name| (name.clone(), bare_host(&one())));
    let want = desired("a", &names(2), &Knobs::default());
    let error = plan_up(&want, &World::new(hosts).observe(&Shell::default())).unwrap_err();
    assert_eq!(error.blame(), Blame::User);
    assert!(
        error.to_string().contains("`n1` and `n2` are one machine"),
        "{error}"
    );
}

#[test]
fn everything_in_the_way_is_said_at_once() {
    let error = refused(|facts| {
        facts.system.listening.insert(2379);
        facts
            .system
            .paths
            .extend(["/etc/cni/net.d", "/etc/cni/net.d/10-x.conflist"].map(str::to_owned));
        facts.containers.insert(
            "kubelet".to_owned(),
            foreign("x", &[(label::CLUSTER_NAME, "y")]),
        );
    });
    assert_eq!(error.refusals.len(), 3, "{error}");
}

#[test]
fn a_host_that_is_down_refuses_with_its_own_words() {
    let mut world = world_with(|_| {});
    let down = Down {
        blame: Blame::Transient,
        why: "node `n1` did not answer".to_owned(),
        hints: vec!["is it on?".to_owned()],
    };
    world.down.insert(one(), down);
    let have: Actual = world.observe(&Shell::default());
    let error = plan::up(&want(), &have).unwrap_err();
    assert_eq!(
        shown(&error),
        "error: node `n1` did not answer\n\nhint: is it on?\n(exit 2)"
    );
    assert_eq!(error.blame(), Blame::Transient);
}
