//! The machine ends and comes back.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::helper::{helper, node_error};
use crate::{
    apply::{
        executor::{Executor, failed},
        limit::REBOOT_PATIENCE,
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    facts::system,
    host::Host,
};

/// Once: the helper has ended before the machine does, and a second one of the name is not begun.
const REBOOT: &str = include_str!("reboot.sh");

const LOOK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(3);

/// Reboots a machine that runs this boot, and waits until it runs another one.
pub(in crate::apply) async fn reboot(
    run: &Executor<'_>,
    host: &Host,
    from: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    if boot(host).await?.is_some_and(|boot| boot != from) {
        return Ok(Done::default());
    }
    let none: [&str; 0] = [];
    helper(
        host,
        run.context.id()?,
        REBOOT,
        &none,
        Duration::from_secs(60),
    )
    .await?;
    let (begun, mut tries) = (Instant::now(), 0);
    loop {
        let found = match run.host(&host.name).await {
            Ok(host) => boot(&host).await,
            Err(error) => Err(error),
        };
        let (waiting, is_away) = match found {
            Ok(Some(boot)) if boot != from => return Ok(Done::default()),
            Ok(_) => ("the machine to end".to_owned(), false),
            Err(_) => ("the machine to come back".to_owned(), true),
        };
        if begun.elapsed() >= REBOOT_PATIENCE {
            return Err(overdue(host, is_away));
        }
        tries += 1;
        reporter.waiting(waiting, tries);
        tokio::select! {
            biased;
            _ = stop.stopped() => return Err(StepError::Stopped),
            () = sleep(PAUSE) => {}
        }
    }
}

async fn boot(host: &Host) -> Result<Option<String>, StepError> {
    let output = host.exec_with(system::BOOT, &[], LOOK).await;
    Ok(system::boot(&output.map_err(failed)?.stdout))
}

fn overdue(host: &Host, is_away: bool) -> StepError {
    let minutes = REBOOT_PATIENCE.as_secs() / 60;
    let (what, hint) = if is_away {
        (
            format!("it was rebooted and does not answer SSH after {minutes} minutes"),
            "look at the console of the machine; when it answers, the same command continues with it",
        )
    } else {
        (
            format!(
                "it still runs the boot from before, {minutes} minutes after `systemctl reboot`"
            ),
            "`systemctl list-jobs` and `systemd-inhibit --list` on the node show what holds the reboot back",
        )
    };
    node_error(host, &what, &[hint])
}
