//! A node gets another address by an edit of the config: what is changed in place, and what is refused.
//! The product's own runs, on simulated worlds.

use rke_operator::{
    config::{Intent, Network},
    converge::Goal,
    error::{ErrorClass, Explain},
    model::{HostAddress, NodeName},
    plan,
};

use crate::{
    joint_nodes::of,
    joint_properties::{block_on, runner, settle},
    sim::runner::Runner,
};

/// n1 has every role, n2 is a member, n3 a control plane, n4 a worker.
const ROLES: [u8; 3] = [1, 2, 0];

/// With an internal address of its own for every node.
fn apart() -> Intent {
    let mut intent = of(&ROLES).intent();
    for (number, node) in (1..).zip(intent.nodes.values_mut()) {
        node.internal_address = HostAddress::from(format!("10.0.0.{number}").as_str());
        node.has_internal_address = true;
    }
    intent
}

/// What is done on which node, or about it, besides keeping the state.
async fn steps(runner: &Runner, intent: &Intent) -> Vec<String> {
    let plan = runner.plan(&Goal::Up(intent)).await.unwrap();
    let steps = plan.steps().filter_map(|step| {
        let node = step.node()?;
        Some(format!("{node}: {}", plan::title(step)))
    });
    steps.collect()
}

async fn refused(runner: &Runner, intent: &Intent, node: &str, what: &str) {
    let before = runner.remote.world(|world| world.clone());
    let error = runner.converge(&Goal::Up(intent)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::User);
    let said = error.to_string();
    assert!(said.contains(&format!("node `{node}` is {what}")), "{said}");
    let hints = error.hints().join("\n");
    let cure = format!("remove `{node}` from the config, run `up`");
    assert!(hints.contains(&cure), "{hints}");
    assert!(runner.remote.world(|world| *world == before));
}

/// Rule 30: nobody but SSH and the kubeconfig uses it.
#[test]
fn another_address_for_ssh_restarts_only_an_api_server_whose_certificate_names_it() {
    block_on(async {
        let runner = runner(4);
        let mut intent = apart();
        settle(&runner, &intent).await;
        for (node, replaced) in [("n4", None), ("n2", None), ("n3", Some("kube-apiserver"))] {
            let moved = intent.nodes.get_mut(&NodeName::from(node)).unwrap();
            moved.endpoint.address = format!("198.51.100.{}", &node[1..]);
            let done = steps(&runner, &intent).await;
            let restarts = |step: &&String| {
                let effects = ["replace", "remove", "run ", "start", "drain", "cordon"];
                let kept = step.contains("remove before-");
                !kept && effects.iter().any(|effect| step.contains(effect))
            };
            let wanted = replaced.map(|component| format!("{node}: replace {component}"));
            let restarted: Vec<&String> = done.iter().filter(restarts).collect();
            assert_eq!(restarted, wanted.iter().collect::<Vec<_>>(), "{done:#?}");
            let told = format!("{node}: set node labels, annotations and taints");
            assert!(done.contains(&told), "{done:#?}");
            settle(&runner, &intent).await;
        }
    });
}

/// Rule 30: of a worker only the kubelet has it.
#[test]
fn another_internal_address_of_a_worker_restarts_its_kubelet_and_nothing_else() {
    block_on(async {
        let runner = runner(4);
        let mut intent = apart();
        settle(&runner, &intent).await;
        let worker = intent.nodes.get_mut(&NodeName::from("n4")).unwrap();
        worker.internal_address = HostAddress::from("10.0.0.44");
        let done = steps(&runner, &intent).await;
        let replaced: Vec<&String> = done
            .iter()
            .filter(|step| step.contains("replace"))
            .collect();
        assert_eq!(replaced, ["n4: replace kubelet"], "{done:#?}");
        let elsewhere = done.iter().filter(|step| !step.starts_with("n4: "));
        assert_eq!(elsewhere.collect::<Vec<_>>(), [""; 0], "{done:#?}");
        settle(&runner, &intent).await;
    });
}

/// Rule 30: the others have it in their lists. Where no `internal_address` is given, `address` is both.
#[test]
fn another_internal_address_of_a_member_or_a_control_plane_is_refused() {
    block_on(async {
        for (node, what) in [
            ("n1", "a member of etcd"),
            ("n2", "a member of etcd"),
            ("n3", "a control plane"),
        ] {
            let runner = runner(4);
            let mut intent = apart();
            settle(&runner, &intent).await;
            let name = NodeName::from(node);
            let moved = intent.nodes.get_mut(&name).unwrap();
            moved.internal_address = HostAddress::from("10.0.0.99");
            refused(&runner, &intent, node, what).await;
        }
        let runner = runner(4);
        let mut intent = of(&ROLES).intent();
        settle(&runner, &intent).await;
        let moved = intent.nodes.get_mut(&NodeName::from("n2")).unwrap();
        moved.endpoint.address = "198.51.100.2".to_owned();
        moved.internal_address = HostAddress::from("198.51.100.2");
        refused(&runner, &intent, "n2", "a member of etcd").await;
        // The former one as the internal address, and only SSH goes another way.
        let moved = intent.nodes.get_mut(&NodeName::from("n2")).unwrap();
        moved.internal_address = HostAddress::from("192.0.2.2");
        moved.has_internal_address = true;
        settle(&runner, &intent).await;
    });
}

/// Nodes and Services keep what they have.
#[test]
fn another_range_of_pods_or_services_is_refused() {
    block_on(async {
        for (pods, was, key) in [
            (
                true,
                "10.42.0.0/16",
                "services.kube-controller.cluster_cidr",
            ),
            (
                false,
                "10.43.0.0/16",
                "services.kube-api.service_cluster_ip_range",
            ),
        ] {
            let runner = runner(4);
            let mut intent = apart();
            settle(&runner, &intent).await;
            let services = &mut intent.services;
            let range = if pods {
                &mut services.cluster_cidr
            } else {
                &mut services.service_cluster_ip_range
            };
            *range = "10.96.0.0/12".parse().unwrap();
            let before = runner.remote.world(|world| world.clone());
            let error = runner.converge(&Goal::Up(&intent)).await.unwrap_err();
            assert_eq!(error.class(), ErrorClass::User);
            let said = error.to_string();
            let why = format!("{was}: the range cannot be changed to 10.96.0.0/12");
            assert!(said.contains(&why), "{said}");
            let hints = error.hints().join("\n");
            assert!(
                hints.contains(&format!("set `{key}` to {was} again")),
                "{hints}"
            );
            assert!(runner.remote.world(|world| *world == before));
        }
    });
}

/// Pods look for names in the domain that their kubelet had when they started.
#[test]
fn another_domain_is_refused() {
    block_on(async {
        let runner = runner(4);
        let mut intent = apart();
        settle(&runner, &intent).await;
        let was = intent.services.cluster_domain.clone();
        intent.services.cluster_domain = "example.internal".to_owned();
        let before = runner.remote.world(|world| world.clone());
        let error = runner.converge(&Goal::Up(&intent)).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::User);
        let said = error.to_string();
        let why = format!("names in {was}: the domain cannot be changed to example.internal");
        assert!(said.contains(&why), "{said}");
        let cure = format!("set `services.kubelet.cluster_domain` to {was} again");
        assert!(error.hints().join("\n").contains(&cure));
        assert!(runner.remote.world(|world| *world == before));
        intent.services.cluster_domain = was;
        settle(&runner, &intent).await;
    });
}

/// Pods have their interfaces from the plugin that was there when they started.
#[test]
fn another_network_plugin_is_refused() {
    block_on(async {
        let runner = runner(4);
        let mut intent = apart();
        settle(&runner, &intent).await;
        for (plugin, is) in [
            (Network::Canal(Box::default()), "canal"),
            (Network::None, "none"),
        ] {
            intent.network = plugin;
            let before = runner.remote.world(|world| world.clone());
            let error = runner.converge(&Goal::Up(&intent)).await.unwrap_err();
            assert_eq!(error.class(), ErrorClass::User);
            let said = error.to_string();
            let why = format!("is `flannel`: it cannot be changed to `{is}`");
            assert!(said.contains(&why), "{said}");
            assert!(error.hints().join("\n").contains("`plugin: flannel`"));
            assert!(runner.remote.world(|world| *world == before));
        }
        intent.network = Network::Flannel(Box::default());
        settle(&runner, &intent).await;
    });
}
