//! `version`: rke-operator's version, and the cluster's if its kubeconfig is next to the config, as in RKE.

use std::{path::Path, time::Duration};

use super::{
    args::{Output, Version},
    management::{self, NoClient},
    output::results::VersionResult,
    print,
    report::CliError,
    session::{STOPPED, Session, kubeconfig_of},
};
use crate::error::with_causes;

/// How long the cluster may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs it.
pub(super) async fn version(args: &Version, session: &Session) -> Result<u8, CliError> {
    let file = kubeconfig_of(&args.config.config);
    let kubernetes = if file.exists() {
        let answer = tokio::select! {
            biased;
            _ = session.stop.stopped() => return Ok(STOPPED),
            answer = tokio::time::timeout(LIMIT, server(&file)) => answer,
        };
        let silence = || Err(format!("no answer within {} s", LIMIT.as_secs()));
        match answer.unwrap_or_else(|_| silence()) {
            Ok(version) => Some(version),
            Err(why) => {
                session.screen.warn(&format!(
                    "the cluster of `{}` did not return its version: {why}",
                    file.display()
                ));
                None
            }
        }
    } else {
        None
    };
    let versions = VersionResult {
        rke_operator: concat!("v", env!("CARGO_PKG_VERSION")).into(),
        kubernetes,
    };
    match args.output {
        Output::Json => print::json(&versions)?,
        Output::Text => {
            let mut text = format!("rke-operator {}", versions.rke_operator);
            if let Some(kubernetes) = &versions.kubernetes {
                text.push_str("\nkubernetes   ");
                text.push_str(kubernetes);
            }
            print::data(&text)?;
        }
    }
    Ok(0)
}

async fn server(file: &Path) -> Result<String, String> {
    let client = management::client(Some(file), None).await;
    let (client, _) = client.map_err(|error| match error {
        NoClient::Kubeconfig(why) => why,
        NoClient::Proxy(_) => with_causes(&error),
    })?;
    let info = client.apiserver_version().await;
    let info = info.map_err(|error| with_causes(&error))?;
    Ok(info.git_version)
}
