//! `run`: the operator, until Ctrl-C or SIGTERM.

use std::path::Path;

use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{
    args::Run,
    report::{CliError, Failure},
    session::Session,
};
use crate::{
    error::with_causes,
    operator::{self, OperatorOptions},
};

/// Runs it. An orderly stop is success: that is how an operator ends.
pub(super) async fn run(args: &Run, session: &Session) -> Result<u8, CliError> {
    let client = client(args.kubeconfig.as_deref())
        .await
        .map_err(|why| Failure::NoManagementCluster { why })?;
    let mut options = OperatorOptions::new(&args.namespace);
    if let Some(namespace) = &args.credentials_namespace {
        options.credentials_namespace.clone_from(namespace);
    }
    options.identity = Some(args.identity.clone().unwrap_or_else(own_name));
    options
        .allowed_node_cidrs
        .clone_from(&args.allowed_node_cidrs);
    options.config_root.clone_from(&args.config_root);
    options.probes = args.health_probe_bind_address;
    operator::run(options, client, session.stop.clone()).await?;
    Ok(0)
}

/// Another each time: two processes must not take each other for themselves.
fn own_name() -> String {
    format!("rke-operator_{:016x}", rand::random::<u64>())
}

async fn client(kubeconfig: Option<&Path>) -> Result<Client, String> {
    let config = match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).map_err(|error| with_causes(&error))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|error| with_causes(&error))?
        }
        None => kube::Config::infer()
            .await
            .map_err(|error| with_causes(&error))?,
    };
    Client::try_from(config).map_err(|error| with_causes(&error))
}
