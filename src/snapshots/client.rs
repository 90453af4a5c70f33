//! Asks the program on a node for its report, over a stream to the node's loopback address.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use futures::{FutureExt as _, future::join_all};
use http::{Request, header::HOST};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;

use super::{
    health::PORT,
    record::{Report, Reports},
};
use crate::{
    error::with_causes,
    host::{Stream, pool::Hosts},
    model::NodeName,
};

/// How long it may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// A report is no longer.
const LONGEST: usize = 4 << 20;

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The report of the program that this stream leads to.
pub async fn report(stream: Box<dyn Stream>) -> Result<Report, Broken> {
    tokio::time::timeout(DEADLINE, asked(stream)).await?
}

/// The reports of the programs on these nodes, each asked through its node's connection.
pub async fn reports(hosts: &Hosts, nodes: &BTreeSet<NodeName>) -> Reports {
    let each = nodes.iter().map(|node| async move {
        let asked = async {
            let stream = hosts.port(node, PORT).await?;
            report(stream).await
        };
        let answer = asked.await.map_err(|error| with_causes(&*error));
        (node.clone(), answer)
    });
    join_all(each).await.into_iter().collect()
}

async fn asked(stream: Box<dyn Stream>) -> Result<Report, Broken> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/snapshots")
        .header(HOST, "localhost")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST).collect().await?;
        if status.is_success() {
            let report: Report = serde_json::from_slice(&body.to_bytes())?;
            return Ok(report.printable());
        }
        let text = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        Err(Broken::from(format!("HTTP {}: {text}", status.as_u16())))
    };
    // A connection that ends has delivered what came over it.
    let driven = connection.map(drop).then(|()| std::future::pending());
    tokio::select! {
        report = exchange => report,
        () = driven => Err("the connection ended".into()),
    }
}
