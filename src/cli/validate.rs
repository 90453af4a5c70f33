//! `validate`: says what is wrong with a config, and needs no key for that; with `--connect` it is a `doctor` that writes
//! nothing anywhere.

use super::{
    args::{Doctor, Output, Validate},
    doctor, intent,
    intent::{Loaded, Warnings},
    output::{lines::count, results::ValidResult},
    print,
    report::CliError,
    session::Session,
};

/// Runs it.
pub(super) async fn validate(args: &Validate, session: &Session) -> Result<u8, CliError> {
    if args.connect {
        let args = Doctor {
            config: args.config.clone(),
            no_write: true,
            accept_new_host_keys: args.accept_new_host_keys,
            output: args.output,
        };
        return doctor::doctor(&args, session).await;
    }
    let file = &args.config.config;
    let Loaded { intent, warnings } =
        intent::load_to_validate(Warnings::Shown, file, session).await?;
    let nodes = intent.nodes.len();
    match args.output {
        Output::Text if session.screen.is_quiet() => {}
        Output::Text => print::data(&format!(
            "`{}` is valid: {}, Kubernetes {}",
            intent::shown(file),
            count(nodes, "node"),
            intent.version
        ))?,
        Output::Json => print::json(&ValidResult {
            result: "valid",
            nodes,
            kubernetes_version: intent.version.to_string(),
            warnings: warnings.iter().map(Into::into).collect(),
        })?,
    }
    Ok(0)
}
