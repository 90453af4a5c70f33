//! `doctor`: what on the nodes prevents `up` or will trouble the cluster, each with its cure. Nothing stays on a node.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    args::{Doctor, Output},
    dispatch::DEGRADED,
    environment, intent,
    output::{Page, doctor::render, results::DoctorResult},
    print,
    report::CliError,
    rke_state,
    session::{STOPPED, Session},
    status::opening,
    stream::shown,
};
use crate::{
    converge::{Examined, examine},
    error::Explain,
    status::doctor::{self, Diagnosis, Severity},
};

/// As a rule a disk is measured within this time.
const MEASUREMENT: Duration = Duration::from_secs(5);

/// Runs it.
pub(super) async fn doctor(args: &Doctor, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let trust = || opening(args.accept_new_host_keys);
    let mut environment = environment::open(file, trust(), session)?;
    rke_state::refuse(file, &environment).await?;
    let loaded = intent::load_whole(file, session).await?;
    environment.host_keys = Arc::new(environment::host_keys(&trust(), session)?);
    let looking = examine(&loaded.intent, &environment, !args.no_write);
    let mut looking = std::pin::pin!(shown(session, Box::pin(looking)));
    let examined = tokio::select! {
        biased;
        _ = session.stop.stopped() => {
            // The container that measures a disk is removed at its end; nothing else has to be finished.
            if !args.no_write {
                let _ = timeout(MEASUREMENT, &mut looking).await;
            }
            return Ok(STOPPED);
        }
        examined = &mut looking => examined?,
    };
    let diagnosis = diagnosed(&examined);
    match args.output {
        Output::Text => {
            let version = examined.intent.version.to_string();
            let name = file.display().to_string();
            print::data(&render(&diagnosis, &name, &version, Page::stdout()))?;
        }
        Output::Json => print::json(&DoctorResult {
            ready: diagnosis.prevents().is_none(),
            kubernetes_version: examined.intent.version.to_string(),
            warnings: loaded.warnings.iter().map(Into::into).collect(),
            diagnosis: &diagnosis,
        })?,
    }
    Ok(match diagnosis.prevents() {
        Some(class) => class.exit_code(),
        None if diagnosis.count(Severity::Unreachable) > 0 => DEGRADED,
        None => 0,
    })
}

fn diagnosed(examined: &Examined) -> Diagnosis {
    let refusal = examined.refusal.as_ref();
    Diagnosis::of(&doctor::Examined {
        now: examined.now,
        intent: &examined.intent,
        actual: &examined.actual,
        found: &examined.found,
        refusal: refusal.map(|error| error as &(dyn Explain + 'static)),
        measured: &examined.measured,
    })
}
