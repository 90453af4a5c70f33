//! `cert info`: the certificates of a cluster and their ends. Reads certificates, shows no key.

use std::{path::Path, sync::Arc};

use super::{
    args::{CertInfo, Output},
    dispatch::DEGRADED,
    environment, intent,
    kubeconfig::state,
    output::{Page, status::render_certificates},
    print,
    report::{CliError, Failure},
    session::{STOPPED, Session},
    status::opening,
};
use crate::{
    converge::{inspect, inspect_served},
    environment::Environment,
    facts::{Actual, by_cause},
    status::{CertificateStatus, Served, certificates},
};

/// Runs it.
pub(super) async fn info(args: &CertInfo, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let environment = environment::open(file, opening(args.accept_new_host_keys), session)?;
    let nodes = args.nodes || args.served;
    let (all, unread) = if nodes {
        tokio::select! {
            biased;
            _ = session.stop.stopped() => return Ok(STOPPED),
            all = Box::pin(of_nodes(args, &environment, session)) => all?,
        }
    } else {
        (of_state(file, &environment).await?, false)
    };
    match args.output {
        Output::Json => print::json(&all)?,
        Output::Text => {
            let mut text = render_certificates(&all, Page::stdout());
            if !nodes {
                text.push_str("\nTo include the certificates on the nodes, use `--nodes`.\n");
            }
            print::data(&text)?;
        }
    }
    Ok(if unread { DEGRADED } else { 0 })
}

async fn of_state(
    config: &Path,
    environment: &Environment,
) -> Result<Vec<CertificateStatus>, CliError> {
    let saved = state(config, environment).await?;
    let kubeconfig = environment.kubeconfig.load().await;
    let known = Actual {
        saved: Some(Box::new(saved)),
        kubeconfig: kubeconfig.map_err(|source| Failure::Read {
            what: format!("the kubeconfig {}", environment.kubeconfig.place()),
            source,
        })?,
        ..Actual::default()
    };
    let now = environment.clock.now();
    Ok(certificates(&known, None, &Served::new(), now))
}

/// With whether those of a node could not be read.
async fn of_nodes(
    args: &CertInfo,
    environment: &Environment,
    session: &Session,
) -> Result<(Vec<CertificateStatus>, bool), CliError> {
    // Without a state there are no certificates to tell of, whatever lies on nodes.
    state(&args.config.config, environment).await?;
    let intent = intent::load(&args.config.config, session).await?;
    let host_keys = environment::host_keys(&opening(args.accept_new_host_keys), session)?;
    let environment = &Environment {
        host_keys: Arc::new(host_keys),
        ..environment.clone()
    };
    let (seen, served) = if args.served {
        inspect_served(&intent, environment).await?
    } else {
        (inspect(&intent, environment).await?, Served::new())
    };
    let down = by_cause(seen.actual.unreachable());
    let mut unread = !down.is_empty();
    for group in &down {
        let hints = group.hints.iter().map(|hint| format!("\nhint: {hint}"));
        let hints: String = hints.collect();
        session.screen.warn(&(group.named() + &hints));
    }
    for ((node, port), answer) in &served {
        if let Err(why) = answer {
            unread = true;
            let text = format!("{node}: what is served on port {port} was not seen: {why}");
            session.screen.warn(&text);
        }
    }
    let desired = seen.desired.as_ref();
    let all = certificates(&seen.actual, desired, &served, seen.now);
    Ok((all, unread))
}
