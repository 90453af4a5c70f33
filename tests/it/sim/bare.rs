//! A node that nobody has touched.

use std::collections::{BTreeMap, BTreeSet};

use rke_operator::{
    facts::{
        ContainerFact, ContainerState, ContainerdFacts, DockerFacts, HostFacts, ReachedBy,
        SystemFacts,
    },
    model::NodeName,
};

/// A node that nobody has touched, with one container, image and folder of somebody else's.
pub(crate) fn bare_host(name: &NodeName) -> HostFacts {
    let nginx = ContainerFact {
        id: "0123456789abcdef".to_owned(),
        labels: BTreeMap::new(),
        state: ContainerState::Running,
        runs: None,
        image: "nginx:1.27".to_owned(),
        started: None,
    };
    HostFacts {
        docker: DockerFacts {
            reached: ReachedBy::Socket,
            version: "26.1.5".to_owned(),
            api_version: "1.45".to_owned(),
            root_dir: "/var/lib/docker".to_owned(),
            storage_driver: "overlay2".to_owned(),
            cgroup_driver: "systemd".to_owned(),
            cgroup_version: 2,
            security_options: vec!["name=seccomp,profile=builtin".to_owned()],
            log_driver: "json-file".to_owned(),
            logs_bounded: false,
            default_runtime: "runc".to_owned(),
            proxy: None,
            architecture: "x86_64".to_owned(),
            processors: 4,
            memory: 8 << 30,
            mirrors: vec![],
            insecure_registries: vec![],
            lacking_cgroups: BTreeSet::new(),
        },
        containers: [("web".to_owned(), nginx)].into(),
        images: ["nginx:1.27".to_owned()].into(),
        files: None,
        system: SystemFacts {
            hostname: name.0.clone(),
            boot: Some(format!("boot-of-{name}")),
            kernel: "6.12.0".to_owned(),
            os: "Debian GNU/Linux 13".to_owned(),
            systemd: true,
            containerd: ContainerdFacts {
                socket: true,
                unit: true,
                version: "1.7.24".to_owned(),
                dump: "version = 2\n".to_owned(),
                started: 1,
                ctr: true,
                ..ContainerdFacts::default()
            },
            resolv_conf: "/etc/resolv.conf".to_owned(),
            listening: [22, 80].into(),
            listeners: [(22, "ssh.service".to_owned())].into(),
            paths: [
                "/etc/containerd",
                "/etc/modules-load.d",
                "/etc/sysctl.d",
                "/opt/cni",
            ]
            .map(str::to_owned)
            .into(),
            empty: BTreeSet::new(),
            modules: ["overlay".to_owned()].into(),
            sysctls: [("net.ipv4.ip_forward".to_owned(), "0".to_owned())].into(),
            free: [("/".to_owned(), 40 << 30)].into(),
            machine_id: format!("machine {name}"),
            ..SystemFacts::default()
        },
        clock: None,
    }
}
