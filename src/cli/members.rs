//! `etcd members`: the members of etcd as they describe themselves. Writes nothing anywhere.

use super::{
    args::{EtcdLook, Output},
    dispatch::DEGRADED,
    output::{
        Page,
        members::{render, render_problems},
    },
    print,
    report::CliError,
    session::{STOPPED, Session},
    status::look,
};
use crate::status::{EtcdStatus, QuorumState};

/// Runs it.
pub(super) async fn members(args: &EtcdLook, session: &Session) -> Result<u8, CliError> {
    let status = look(&args.config.config, args.accept_new_host_keys, session).await?;
    let Some(status) = status else {
        return Ok(STOPPED);
    };
    match args.output {
        Output::Text => print::data(&render(&status, Page::stdout()))?,
        Output::Json => {
            print::json(&status.etcd)?;
            let page = Page {
                columns: None,
                paint: session.screen.paint(),
            };
            let problems = render_problems(&status, page);
            if !problems.is_empty() {
                session.screen.print(problems.trim_start());
            }
        }
    }
    Ok(if is_well(&status.etcd) { 0 } else { DEGRADED })
}

/// It serves, and nothing is wrong with any member.
fn is_well(etcd: &EtcdStatus) -> bool {
    let external = etcd.external.as_ref();
    let answers = external.is_some_and(|external| external.answers == Some(true));
    let serves = match etcd.quorum {
        QuorumState::Serving => true,
        QuorumState::External => answers,
        QuorumState::Lost | QuorumState::Disagree | QuorumState::Unknown => false,
    };
    let mut members = etcd.members.iter();
    serves
        && members.all(|member| member.healthy)
        && etcd.nodes_without_member.is_empty()
        && etcd.alarms.is_empty()
}
