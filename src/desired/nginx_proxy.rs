//! nginx-proxy: on every node without a control plane, `127.0.0.1:6443` leads to all API servers.
//! Pure.
//!
//! Its configuration is in a dedicated folder, which the container binds: when control planes join or
//! leave, nginx reloads it and its container is not replaced. New connections are not refused meanwhile.

use std::fmt::Write as _;

use super::{
    DesiredError,
    host_context::{Files, HostContext, PUBLIC},
    service::{Flags, Service, View, read_only},
};
use crate::{
    config::ServiceExtras,
    model::{ContainerSpec, Owner, Role, path},
};

/// The container. Its files are not among those that a change of replaces it.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let none = ServiceExtras::default();
    Service {
        key: "nginx_proxy",
        image: &context.intent.images.nginx,
        extras: &none,
        entrypoint: [
            "nginx",
            "-c",
            path::PROXY_CONFIG,
            "-e",
            "stderr",
            "-g",
            "daemon off;",
        ]
        .map(str::to_owned)
        .to_vec(),
        flags: Flags::default(),
        bootstrap: Flags::default(),
        files: Files::new(),
        view: View::OwnFiles,
        binds: vec![read_only(path::PROXY)],
        mounts: Vec::new(),
        env: [].into(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)
}

/// The file that it reads, and the digest of the one that it has read: written after the reload.
pub(super) fn files(context: &HostContext<'_>) -> Files {
    let config = context.file(configuration(context), PUBLIC);
    let read = context.file(format!("{}\n", config.digest.0), PUBLIC);
    Files::from([
        (path::PROXY_CONFIG.to_owned(), config),
        (path::PROXY_READ.to_owned(), read),
    ])
}

/// RKE's, with three differences. Connections of a former configuration are closed: a client that watches
/// through a control plane that leaves reconnects through another. The servers are used in rotation: with the
/// fewest-connections rule, one that listens and does not answer yet would get every new connection. And a server
/// that refused a connection is tried again after 2 s: with nginx's 10 s no server is left during a rollout,
/// because the next is replaced before the last is tried again.
fn configuration(context: &HostContext<'_>) -> String {
    let mut servers = String::new();
    for (_, node) in context.intent.with_role(Role::ControlPlane) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            servers,
            "    server {} max_fails=1 fail_timeout=2s;",
            node.internal_address.with_port(6443)
        );
    }
    format!(
        "\
error_log stderr notice;
worker_processes auto;
worker_rlimit_nofile 8192;
worker_shutdown_timeout 30s;
pid /run/nginx.pid;
events {{
  worker_connections 4096;
}}
stream {{
  upstream kube_apiserver {{
    zone kube_apiserver 64k;
{servers}  }}
  server {{
    listen 127.0.0.1:6443;
    proxy_pass kube_apiserver;
    proxy_timeout 30m;
    proxy_connect_timeout 2s;
  }}
}}
"
    )
}
