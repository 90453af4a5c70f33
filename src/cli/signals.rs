//! Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the process.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::output::Screen;
use crate::apply::stop::{StopCause, Stopper};

/// Gives the stop signal at the first Ctrl-C or SIGTERM; returns at the second.
pub(super) async fn second(stopper: Stopper, screen: Arc<Screen>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        // Without handlers the default action ends the process at the first one.
        return std::future::pending().await;
    };
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    screen.print("stopping: the step in flight is finished first; Ctrl-C again ends at once");
    stopper.stop(StopCause::Signal);
    next().await;
}
