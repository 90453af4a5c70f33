//! Plans of `up` as people read them, and every refusal.

use rke_operator::{
    desired::Desired,
    error::{ErrorClass, Explain, Obstacle},
    facts::{
        Actual, Barrier, ContainerFact, ContainerState, HostFacts, HostView, RemovedApi,
        Unreachable, Unreached,
    },
    model::{
        ClusterId, Component, HostNetwork, NodeName, ObjectRef, OpenPort, PeerPort, Range, RangeOf,
        Reach, label, path,
    },
    plan,
    plan::{Action, ClusterAction, HostAction, Plan, PreflightErrors, Step},
};

use crate::sim::{
    Knobs, Shell, World, bare_host, desired, effect,
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
    let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&one()) else {
        panic!("the host is up");
    };
    facts
}

pub(crate) fn titles(plan: &Plan) -> Vec<String> {
    plan.steps().map(plan::title).collect()
}

fn refused(change: impl FnOnce(&mut HostFacts)) -> PreflightErrors {
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

/// An add-on that this program does not know is another's, whatever label it bears: of a later
/// version of this program, or of a person.
#[test]
fn objects_of_an_addon_that_we_do_not_know_stay() {
    let (mut world, shell) = settled();
    let addons = ["coredns", "of-a-later-version"];
    let objects = addons.map(|addon| ObjectRef {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "kube-system".to_owned(),
        name: format!("unwanted-of-{addon}"),
    });
    for (object, addon) in objects.iter().zip(addons) {
        let value =
            serde_json::json!({"metadata": {"uid": addon, "labels": {label::ADDON: addon}}});
        world.etcd().objects.insert(object.clone(), value);
    }
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    let [ours, _] = objects;
    let steps: Vec<&Action> = plan.steps().map(|step| &step.action).collect();
    let prune = ClusterAction::PruneObjects {
        objects: [ours].into(),
    };
    assert_eq!(steps, [&Action::Cluster(prune)]);
}

/// What holds data is not deleted with the manifest that named it.
#[test]
fn objects_that_outlive_their_manifest_are_not_pruned() {
    let (mut world, shell) = settled();
    let mut want = want();
    want.known_addons.insert(label::USER_ADDONS.to_owned());
    let object = |kind: &str| ObjectRef {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: "default".to_owned(),
        name: "of-the-user".to_owned(),
    };
    for kind in ["ConfigMap", "PersistentVolumeClaim"] {
        let labels = serde_json::json!({label::ADDON: label::USER_ADDONS});
        let value = serde_json::json!({"metadata": {"uid": kind, "labels": labels}});
        world.etcd().objects.insert(object(kind), value);
    }
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let steps: Vec<&Action> = plan.steps().map(|step| &step.action).collect();
    let prune = ClusterAction::PruneObjects {
        objects: [object("ConfigMap")].into(),
    };
    assert_eq!(steps, [&Action::Cluster(prune)]);
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
            .filter_map(|step| step.action.on_host())
            .any(|(_, action)| *action == HostAction::AwaitHealthy { component })
    };
    assert!(awaits(Component::Etcd) && awaits(Component::ApiServer));
}

#[test]
fn notes_about_a_fresh_node() {
    let world = world_with(|facts| {
        facts.system.firewalld = true;
        facts.docker.default_runtime = "nvidia".to_owned();
        facts.docker.proxy = Some((
            "http://xxxxx:xxxxx@proxy".to_owned(),
            String::new(),
            String::new(),
        ));
        facts.system.services = ["ufw", "NetworkManager", "nm-cloud-setup"]
            .map(str::to_owned)
            .into();
        facts.system.resolv_loops = true;
    });
    let mut want = want();
    want.hosts.get_mut(&one()).unwrap().network = HostNetwork {
        ranges: vec![Range {
            of: RangeOf::Pods,
            net: "10.42.0.0/16".parse().unwrap(),
        }],
        ports: vec![
            OpenPort::tcp(6443, Reach::Clients, "the API server"),
            OpenPort::tcp_range(2379, 2380, Reach::Nodes, "etcd"),
            OpenPort::udp(8472, "traffic of pods"),
        ],
        ..HostNetwork::default()
    };
    let plan = plan_up(&want, &world.observe(&Shell::default())).unwrap();
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    insta::assert_debug_snapshot!(notes);
}

/// The message and its hints, as the terminal shows them.
fn shown(error: &PreflightErrors) -> String {
    let hints = error.hints();
    let hints: Vec<String> = hints.iter().map(|hint| format!("hint: {hint}")).collect();
    format!(
        "error: {error}\n\n{}\n(exit {})",
        hints.join("\n"),
        error.class().exit_code()
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
        .remove(rke_operator::model::CLAIM);
    let other = desired("b", &names(1), &Knobs::default());
    let error = plan_up(&other, &world.observe(&Shell::default())).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("of cluster `cluster-a` (id `a`)"),
        "{error}"
    );
}

pub(crate) fn foreign(image: &str, labels: &[(&str, &str)]) -> ContainerFact {
    ContainerFact {
        id: "fedcba9876543210".to_owned(),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        state: ContainerState::Running,
        runs: None,
        image: image.to_owned(),
        started: None,
    }
}

/// R25: a proxy that Docker gets later is containerd's too, and that is a change that wants consent.
#[test]
fn a_proxy_that_docker_gets_reaches_containerd() {
    let (world, shell) = settled();
    let mut want = want();
    let host = want.hosts.get_mut(&one()).unwrap();
    let proxy = ("HTTP_PROXY".to_owned(), "http://proxy:3128".to_owned());
    host.containerd.environment.extend([proxy]);
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let step = plan
        .steps()
        .find(|step| plan::title(step).starts_with("configure containerd"))
        .unwrap_or_else(|| panic!("{}", plan::render(&plan)));
    assert_eq!(step.cause, plan::Cause::Change);
    assert!(step.disturbs.is_some());
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
fn a_foreign_container_with_one_of_our_names_is_refused() {
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
    let paused = host(&mut world).containers.get_mut("kube-apiserver");
    paused.unwrap().state = ContainerState::Other;
    let plan = plan_up(&want(), &world.observe(&shell)).expect("and so does it while it is paused");
    assert!(titles(&plan).contains(&"replace kube-apiserver".to_owned()));
    let ended = host(&mut world).containers.get_mut("kube-apiserver");
    ended.unwrap().state = ContainerState::Exited(1);
    let error = plan_up(&want(), &world.observe(&shell)).unwrap_err();
    assert!(shown(&error).contains("port 6443"), "somebody else does");
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
    assert_eq!(error.class(), ErrorClass::User);
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
    assert_eq!(error.errors.len(), 3, "{error}");
}

#[test]
fn a_host_that_is_down_refuses_with_its_own_words() {
    let mut world = world_with(|_| {});
    let down = Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Transient,
        why: "node `n1` did not answer".to_owned(),
        hints: vec!["is it on?".to_owned()],
    };
    world.down.insert(one(), down);
    let have: Actual = world.observe(&Shell::default());
    let error = plan::up(&want(), &have).unwrap_err();
    assert_eq!(
        shown(&error),
        "error: nothing is changed: no node can be used: node `n1` did not answer\n\nhint: is it on?\n(exit 2)"
    );
    assert_eq!(error.class(), ErrorClass::Transient);
}

/// R40: after a genuine `rke remove`, say what is left of whom and what really clears it.
#[test]
fn what_another_kubernetes_left_is_named_with_the_commands_that_clear_it() {
    let error = refused(|facts| {
        let nginx = facts.containers["web"].clone();
        facts
            .containers
            .insert("k8s_POD_a_kube-system_0".to_owned(), nginx);
        let system = &mut facts.system;
        let paths = [path::KUBELET, path::ETCD].map(str::to_owned);
        system.paths.extend(paths);
        system.unreadable.insert(path::ETCD.to_owned());
        system
            .mounts
            .insert("/var/lib/kubelet/pods/a/volumes/v".to_owned());
        system.pods = 2;
    });
    insta::assert_snapshot!(shown(&error));
}

/// B1: what lies on disks of its own is somebody's data, and no advice deletes it.
#[test]
fn what_may_be_data_is_never_advised_to_be_deleted() {
    let error = refused(|facts| {
        let system = &mut facts.system;
        let paths = [path::KUBELET, path::ETCD, path::KUBERNETES].map(str::to_owned);
        system.paths.extend(paths);
        let disks = ["/var/lib/etcd/data", "/var/lib/etcd/wal"].map(str::to_owned);
        system.mounts.extend(disks);
    });
    let shown = shown(&error);
    assert!(!shown.contains("rm -r"), "{shown}");
    assert!(!shown.contains("umount"), "{shown}");
    insta::assert_snapshot!(shown);
}

/// B19, B20, B21: said before anything is written, with what the node's distribution calls it.
#[test]
fn what_pods_would_lack_is_said_before_a_node_joins() {
    let lacking = |facts: &mut HostFacts| {
        let system = &mut facts.system;
        system.distribution = ["rhel", "fedora"].map(str::to_owned).into();
        system.kernel = "6.12.0-55.el10.x86_64".to_owned();
        system.lacking_tools = ["iptables".to_owned()].into();
        let modules = ["vxlan", "xt_comment"].map(str::to_owned);
        system.absent_modules = modules.clone().into();
        system.lacking_modules = modules.into();
        facts.docker.lacking_cgroups = ["memory".to_owned()].into();
    };
    let mut want = want();
    let network = &mut want.hosts.get_mut(&one()).unwrap().network;
    network.modules = ["vxlan", "xt_comment"].map(str::to_owned).into();
    let world = world_with(lacking);
    let error = plan_up(&want, &world.observe(&Shell::default())).unwrap_err();
    insta::assert_snapshot!(shown(&error));

    // A cluster that runs goes on, and says so.
    let (mut world, shell) = settled();
    lacking(host(&mut world));
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let notes = plan
        .notes
        .iter()
        .filter(|note| note.text.contains("this node"));
    assert_eq!(notes.count(), 3);
}

/// B31 and rule 44: every address of the config beside those of the node.
#[test]
fn an_address_that_is_not_the_nodes_is_refused_before_anything_is_written() {
    let own = |facts: &mut HostFacts| {
        facts.system.addresses = ["192.0.2.10".to_owned()].into();
    };
    let with = |address: &str, key: &'static str| {
        let mut want = want();
        let network = &mut want.hosts.get_mut(&one()).unwrap().network;
        network.address = Some(address.into());
        network.key = key;
        want
    };
    let world = world_with(own);
    let have = world.observe(&Shell::default());
    plan_up(&with("192.0.2.10", "internal_address"), &have).unwrap();
    plan_up(&with("203.0.113.7", "address"), &have).unwrap();
    plan_up(&with("n1.example.com", "address"), &have).unwrap();
    let error = plan_up(&with("192.0.2.11", "internal_address"), &have).unwrap_err();
    insta::assert_snapshot!(shown(&error));
}

#[test]
fn a_network_inside_the_clusters_ranges_is_refused_before_a_node_joins() {
    use rke_operator::facts::{Interface, Route};
    let mut want = want();
    want.hosts.get_mut(&one()).unwrap().network.ranges = vec![
        Range {
            of: RangeOf::Pods,
            net: "10.42.0.0/16".parse().unwrap(),
        },
        Range {
            of: RangeOf::Services,
            net: "10.43.0.0/16".parse().unwrap(),
        },
    ];
    let taken = |facts: &mut HostFacts| {
        let system = &mut facts.system;
        system.routes = vec![Route {
            to: "10.42.8.0/24".parse().unwrap(),
            via: Some("192.0.2.1".parse().unwrap()),
            device: "wg0".to_owned(),
            of_interface: false,
        }];
        let eth1 = Interface {
            mtu: Some(1500),
            addresses: ["10.43.0.9".parse().unwrap()].into(),
        };
        system.interfaces = [("eth1".to_owned(), eth1)].into();
    };
    let world = world_with(taken);
    let error = plan_up(&want, &world.observe(&Shell::default())).unwrap_err();
    insta::assert_snapshot!(shown(&error));
    // Of a node of the cluster these routes are the cluster's.
    let (mut world, shell) = settled();
    taken(host(&mut world));
    plan_up(&want, &world.observe(&shell)).unwrap();
}

/// B8, B22.
#[test]
fn what_ends_with_a_restart_and_what_the_ingress_takes_is_noted() {
    let mut want = want();
    want.hosts.get_mut(&one()).unwrap().network.ingress = [80, 443].into();
    let world = world_with(|facts| {
        let system = &mut facts.system;
        system.unbooted = ["docker.service".to_owned()].into();
        system.listening.extend([80, 443]);
        system.listeners.insert(80, "nginx.service".to_owned());
    });
    let plan = plan_up(&want, &world.observe(&Shell::default())).unwrap();
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    insta::assert_snapshot!(notes.join("\n"));
}

/// R35: podman and nerdctl share the folder with Kubernetes.
#[test]
fn the_networks_of_other_tools_are_no_kubernetes() {
    let world = world_with(|facts| {
        let files = ["87-podman-bridge.conflist", "nerdctl-bridge.conflist"];
        let files = files.map(|file| format!("/etc/cni/net.d/{file}"));
        facts.system.paths.extend(files);
    });
    plan_up(&want(), &world.observe(&Shell::default())).expect("no other Kubernetes");
}

/// R2, R24, R29.
#[test]
fn a_node_that_lacks_what_we_need_is_refused() {
    let error = refused(|facts| {
        facts.system.no_port_forwarding = true;
        facts.system.containerd.ctr = false;
        facts.system.containerd.version = "1.4.13".to_owned();
        facts.system.containerd.command.odd = Some("/usr/bin/env containerd".to_owned());
    });
    insta::assert_snapshot!(shown(&error));
}

/// R1: Docker lost every container; the file that the claim wrote says whose the node is.
#[test]
fn a_node_whose_containers_are_lost_is_claimed_again() {
    let (mut world, shell) = settled();
    let facts = host(&mut world);
    facts.containers.clear();
    facts.files = None;
    let plan = plan_up(&want(), &world.observe(&shell)).expect("it is this cluster's");
    assert_eq!(titles(&plan), ["claim for cluster cluster-a"]);
    host(&mut world).system.cluster_id = Some(ClusterId("b".to_owned()));
    let other = plan_up(&want(), &world.observe(&shell)).unwrap_err();
    assert!(
        shown(&other).contains("belongs to another cluster (id `b`"),
        "{}",
        shown(&other)
    );
}

/// R25: such a file names an authority that Docker had. Without it nothing could be pulled.
#[test]
fn a_file_for_a_registry_that_docker_forgot_goes_and_a_persons_stays() {
    let (mut world, shell) = settled();
    let folder = "/etc/containerd/certs.d";
    let ours = b"# Written by rke-operator from this node's Docker configuration.\nserver = 1\n";
    let files = host(&mut world).files.get_or_insert_default();
    for (name, content) in [("forgotten", &ours[..]), ("theirs", b"server = 1\n")] {
        let file = effect::file(content, 0o644);
        files.insert(format!("{folder}/{name}/hosts.toml"), file);
    }
    let plan = plan_up(&want(), &world.observe(&shell)).expect("a plan");
    let removed: Vec<&HostAction> = plan.steps().filter_map(host_action).collect();
    let paths = [format!("{folder}/forgotten/hosts.toml")].into();
    assert_eq!(removed, [&HostAction::RemoveFiles { paths }]);
}

fn host_action(step: &Step) -> Option<&HostAction> {
    match &step.action {
        Action::Host(_, action) => Some(action),
        Action::Cluster(_) | Action::Local(_) => None,
    }
}

/// What `up` says when a cluster of 1.34 is asked for another release.
fn asked_for(minor: u8) -> Result<Plan, PreflightErrors> {
    let (world, shell) = settled();
    let knobs = Knobs {
        minor,
        ..Knobs::default()
    };
    plan_up(&desired("a", &names(1), &knobs), &world.observe(&shell))
}

#[test]
fn kubernetes_never_goes_back_and_one_minor_at_a_time_forward() {
    let error = asked_for(33).unwrap_err();
    assert_eq!(error.class(), ErrorClass::User);
    assert!(
        error.to_string().contains("going back is not supported"),
        "{error}"
    );
    let error = asked_for(36).unwrap_err();
    assert!(
        error.to_string().contains("one minor release at a time"),
        "{error}"
    );
    assert!(
        error.hints()[0].contains("v1.35 first"),
        "{:?}",
        error.hints()
    );
    asked_for(35).unwrap();
}

/// A node that was away while the others went on: its kubelet is replaced at once, whatever it has;
/// and no API server leaves one behind that it would not serve.
#[test]
fn a_kubelet_may_skip_releases_and_none_is_left_behind() {
    let ask = |kubelet: &str, api: &str| {
        let (mut world, shell) = settled();
        let container = |facts: &mut HostFacts, name: &str, tag: &str| {
            let image = &mut facts.containers.get_mut(name).unwrap().image;
            let (repository, _) = image.rsplit_once(':').unwrap();
            *image = format!("{repository}:{tag}-rke2r1");
        };
        let facts = host(&mut world);
        for name in ["kubelet", "kube-proxy"] {
            container(facts, name, kubelet);
        }
        for name in [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ] {
            container(facts, name, api);
        }
        let node = world.etcd().nodes.values_mut().next().unwrap();
        kubelet.clone_into(&mut node.kubelet_version);
        plan_up(&want(), &world.observe(&shell))
    };
    ask("v1.31.9", "v1.34.4").unwrap();
    ask("v1.29.1", "v1.34.4").unwrap();
    ask("v1.31.9", "v1.33.1").unwrap();
    let error = ask("v1.30.9", "v1.33.1").unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("`n1` has v1.30.9") && told.contains("v1.34."),
        "{told}"
    );
}

/// Rule 23: what the new release no longer has, and who did not tell.
#[test]
fn who_asks_for_what_the_next_release_no_longer_has_is_told() {
    let (mut world, shell) = settled();
    let old = &mut world.etcd().old_clients;
    old.asked.insert(RemovedApi {
        group: "flowcontrol.apiserver.k8s.io".to_owned(),
        version: "v1beta3".to_owned(),
        resource: "flowschemas".to_owned(),
        removed_in: "1.32".to_owned(),
    });
    old.untold
        .insert("n1".into(), "no complete answer".to_owned());
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    insta::assert_snapshot!(notes.join("\n"));
}

#[test]
fn a_roll_says_what_it_disturbs() {
    let plan = asked_for(35).unwrap();
    let said: Vec<String> = plan
        .disruptions()
        .map(|(step, what)| format!("{}: {what}", plan::title(step)))
        .collect();
    insta::assert_debug_snapshot!(said);
}

/// Docker of a node of this cluster lost everything: `docker system prune -a`, another data root.
#[test]
fn a_node_whose_docker_lost_everything_is_claimed_again_and_brought_back() {
    use crate::sim::mishap::{Mishap, happen};
    let (mut world, mut shell) = settled();
    happen(Mishap::DockerIsPruned, &mut world, &mut shell);
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["claim for cluster cluster-a"]);
    // Nor does it need the claim's own file.
    host(&mut world).system.cluster_id = None;
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["claim for cluster cluster-a"]);
    converge_up(&mut world, &want(), &mut shell);
    // Another cluster's state does not make it ours.
    happen(Mishap::DockerIsPruned, &mut world, &mut shell);
    let other = desired("b", &names(1), &Knobs::default());
    let mut theirs = Shell::default();
    plan_up(&other, &world.observe(&theirs)).expect_err("its data is there");
    theirs.saved = Some(desired("b", &["n9".into()], &Knobs::default()).saved);
    plan_up(&other, &world.observe(&theirs)).expect_err("n1 is not in its inventory");
}

/// A port that a firewall drops is found in no log later, only in waits: it is tried before anything is written.
#[test]
fn a_port_that_does_not_let_other_nodes_in_is_named_before_anything_is_written() {
    let nodes = names(3);
    let mut want = desired("a", &nodes, &Knobs::default());
    for (number, host) in (1..).zip(want.hosts.values_mut()) {
        host.network.address = Some(format!("10.0.0.{number}").as_str().into());
        host.network.ports = vec![
            OpenPort::tcp_range(2379, 2380, Reach::Nodes, "etcd"),
            OpenPort::tcp(10250, Reach::Nodes, "kubelet"),
        ];
    }
    let tried = |facts: &mut HostFacts, to: &str, how| {
        let peer = PeerPort::parse(to).unwrap();
        facts.system.unreached.insert(Unreached { peer, how });
    };
    let mut facts: Vec<HostFacts> = nodes.iter().map(bare_host).collect();
    tried(&mut facts[0], "10.0.0.2/2380", Barrier::Silent);
    tried(&mut facts[2], "10.0.0.2/2380", Barrier::Silent);
    tried(&mut facts[0], "10.0.0.3/10250", Barrier::Rejected);
    tried(&mut facts[1], "10.0.0.1/10250", Barrier::Forbidden);
    tried(&mut facts[1], "10.0.0.9/22", Barrier::Silent);
    facts[1].system.services.insert("ufw".to_owned());
    let world = World::new(nodes.iter().cloned().zip(facts));
    let errors = plan_up(&want, &world.observe(&Shell::default())).unwrap_err();
    assert_eq!(errors.class(), ErrorClass::Host);
    let told: Vec<String> = errors
        .errors
        .iter()
        .map(|error| format!("{}\n  {}", error.message, error.hints.join("\n  ")))
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}
