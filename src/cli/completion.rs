//! `completion`: what a shell needs to complete commands and flags.

use clap::CommandFactory as _;

use super::{
    args::{Cli, Completion},
    print,
    report::CliError,
};

/// Runs it.
pub(super) fn completion(args: &Completion) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "rke-operator", &mut script);
    print::data(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
