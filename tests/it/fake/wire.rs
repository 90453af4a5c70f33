//! The cable between client and server: it can be cut, and it can go silent.

use rke_operator::host::Stream;
use tokio::io::{DuplexStream, copy_bidirectional};
use tokio_util::sync::CancellationToken;

/// Carries bytes until one side closes, the cable is cut, or it freezes.
pub(super) async fn carry(
    mut client: impl Stream,
    mut server: DuplexStream,
    cut: CancellationToken,
    frozen: CancellationToken,
) {
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = cut.cancelled() => {}
        // Both ends are kept open, so nobody is told.
        () = frozen.cancelled() => cut.cancelled().await,
    }
}
