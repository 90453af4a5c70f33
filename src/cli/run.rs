//! `run`: the operator, until Ctrl-C or SIGTERM.

use super::{args::Run, intent, management, report::CliError, session::Session};
use crate::operator::{self, CertificateFiles, MetricsOptions, OperatorOptions, ProberOptions};

/// Runs it. An orderly stop is success: that is how an operator ends.
pub(super) async fn run(args: &Run, session: &Session) -> Result<u8, CliError> {
    let (client, _) = management::client(args.kubeconfig.as_deref(), None).await?;
    let mut options = OperatorOptions::new(&args.namespace);
    if let Some(namespace) = &args.credentials_namespace {
        options.credentials_namespace.clone_from(namespace);
    }
    options.identity = Some(args.identity.clone().unwrap_or_else(own_name));
    options
        .allowed_node_cidrs
        .clone_from(&args.allowed_node_cidrs);
    options.config_root.clone_from(&args.config_root);
    options
        .kubeconfig_groups
        .clone_from(&args.kubeconfig_groups);
    options
        .kubeconfig_namespaces
        .clone_from(&args.kubeconfig_namespaces);
    if let Some(limit) = args.memory_limit {
        options.prober = ProberOptions::within(limit);
    }
    options.agent = intent::own_program()?;
    options.probes = args.health_probe_bind_address;
    let files = args.metrics_cert.clone().zip(args.metrics_key.clone());
    options.metrics = args.metrics_bind_address.0.map(|address| MetricsOptions {
        address,
        certificate: files.map(|(cert, key)| CertificateFiles { cert, key }),
    });
    operator::run(options, client, session.stop.clone()).await?;
    Ok(0)
}

/// Another each time: two processes must not take each other for themselves.
fn own_name() -> String {
    format!("rke-operator_{:016x}", rand::random::<u64>())
}
