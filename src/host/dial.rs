//! TCP to a node.

use std::{io, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use socket2::SockRef;
use tokio::net::TcpStream;

use super::{Dial, Stream};
use crate::model::Endpoint;

/// How long unacknowledged data may stay on the wire. SSH keepalives are not served while a full
/// send buffer is being flushed, so without this a peer that went silent during an upload would
/// never be noticed.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens TCP connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            let stream = TcpStream::connect((to.address.as_str(), to.port)).await?;
            stream.set_nodelay(true)?;
            #[cfg(target_os = "linux")]
            SockRef::from(&stream).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        }
        .boxed()
    }
}
