//! Which failed connections are tried again, and after which pause: a server that hangs up before a login may do so
//! once (a full queue of connections, a machine that starts).

use std::time::Duration;

use super::{error::HostError, wire::Heard, words};

/// Without a word: three times more, within seconds.
const SHORT: [u64; 3] = [300, 1_000, 2_500];
/// With a word that says that it passes: 50 s. sshd shuts out for 15 s at least.
const LONG: [u64; 5] = [2_000, 5_000, 10_000, 15_000, 18_000];

/// The pause before the next try, after `failed` tries that failed before this one; `None`: the error is reported.
pub(super) fn pause(error: &HostError, heard: &Heard, failed: usize) -> Option<Duration> {
    let early = matches!(error, HostError::Handshake { .. } | HostError::Lost { .. });
    if !early || !heard.hung_up() {
        return None;
    }
    let pauses: &[u64] = match heard.said() {
        Some(said) if words::say_that_it_passes(&said) => &LONG,
        // It said why.
        Some(_) => &[],
        None => &SHORT,
    };
    pauses.get(failed).copied().map(Duration::from_millis)
}
