//! Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the process.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::{output::Screen, session::InFlight};
use crate::apply::stop::{StopCause, Stopper};

/// Gives the stop signal at the first Ctrl-C or SIGTERM; returns at the second.
pub(super) async fn second(stopper: Stopper, screen: Arc<Screen>, in_flight: Arc<InFlight>) {
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
    screen.print(if screen.asks() {
        // On a line after the question.
        "\nstopping"
    } else if in_flight.any() {
        "stopping: running steps are completed, waits and pulls are cut short; Ctrl-C again exits at once"
    } else {
        "stopping: no step is running; Ctrl-C again exits at once"
    });
    stopper.stop(StopCause::Signal);
    next().await;
    screen.print("stopped at once; the same command again continues from here");
}
