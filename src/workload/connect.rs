//! A kube client whose bytes go through a node's SSH connection.

use std::{io, sync::Arc};

use futures::FutureExt;
use http::Request;
use kube::{Client, client::Body};

use super::WorkloadError;
use crate::{
    host::{
        Host,
        https::{self, OpenStream},
        log::Sending,
    },
    model::{ClientIdentity, Component},
};

/// The name that every API server certificate of ours bears, whatever the node's address is.
pub(super) const SERVER_NAME: &str = "kubernetes";

/// A client of the API server on a control plane, through its SSH connection.
pub fn through(host: Arc<Host>, engine: &ClientIdentity) -> Result<Client, WorkloadError> {
    let open = move || {
        let host = Arc::clone(&host);
        async move {
            let port = Component::ApiServer.health_port();
            host.local_port(port).await.map_err(io::Error::other)
        }
        .boxed()
    };
    connect(Arc::new(open), engine)
}

/// A client of the first API server that takes a connection, of those on these control planes. It
/// outlives each of them.
pub fn through_any(
    hosts: Vec<Arc<Host>>,
    engine: &ClientIdentity,
) -> Result<Client, WorkloadError> {
    let open = move || {
        let hosts = hosts.clone();
        async move {
            let port = Component::ApiServer.health_port();
            let mut refused = io::Error::from(io::ErrorKind::NotFound);
            for host in hosts {
                match host.local_port(port).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => refused = io::Error::other(error),
                }
            }
            Err(refused)
        }
        .boxed()
    };
    connect(Arc::new(open), engine)
}

/// A client of the cluster's API; the server must prove with the cluster's CA that it is
/// `kubernetes`.
pub fn connect(open: OpenStream, engine: &ClientIdentity) -> Result<Client, WorkloadError> {
    let http = https::client::<Body>(open, SERVER_NAME.into(), engine)?;
    let service = tower::service_fn(move |request: Request<Body>| {
        let http = http.clone();
        async move {
            let request = https::addressed(SERVER_NAME, request)?;
            let sending = Sending::of(&request);
            let answer = http.request(request).await;
            sending.ended("the API server", &answer);
            Ok::<_, tower::BoxError>(answer?)
        }
    });
    Ok(Client::new(service, "default"))
}
