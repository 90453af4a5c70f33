//! `man`: the manual pages, one for each command.

use clap::CommandFactory as _;

use super::{
    args::{Cli, Man},
    print,
    report::{CliError, Failure},
};

/// Runs it.
pub(super) fn man(args: &Man) -> Result<u8, CliError> {
    let folder = &args.folder;
    let failed = |source| Failure::Write {
        what: format!("manual pages into `{}`", folder.display()),
        source,
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    // RKE's word before the version is for `--version`.
    let command = Cli::command().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    let page = folder.join("rke-operator.1");
    print::data(&format!("`man -l {}` shows the first", page.display()))?;
    Ok(0)
}
