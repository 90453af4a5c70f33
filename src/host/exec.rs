//! Unprivileged commands on the node.

use std::time::Duration;

use bytes::Bytes;
use russh::{Channel, ChannelMsg, client::Msg};
use tokio::time::{Instant, timeout, timeout_at};

use super::{error::HostError, ssh::Session};
use crate::model::printable;

/// How much a command may write.
const OUTPUT_LIMIT: usize = 4 << 20;

/// A script is sent in pieces of this size, since a connection keeps its buffers as large as what it once had to send.
/// Pieces that are sent together still share one buffer.
const PIECE: usize = 4 << 10;

/// What we allow on top of a command's own limit.
const GRACE: Duration = Duration::from_secs(15);

/// Until the login shell has read its files and begins the script.
const SHELL: Duration = Duration::from_secs(30);

/// How much of what a shell wrote instead is shown.
const SHOWN: usize = 500;

/// `timeout` says so when it had to end the command.
const TIMED_OUT: u32 = 124;

/// What a command left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit status.
    pub status: i32,
    /// Standard output, lossy UTF-8.
    pub stdout: String,
    /// Standard error, lossy UTF-8.
    pub stderr: String,
}

/// Printed before a script's own output: what a login shell's files print comes before it.
const BEGIN: &str = "@@rke-operator begin";

/// Runs a script with the node's `sh`, as the user who logged in; see [`super::Host::exec`].
pub(super) async fn run(
    session: &Session,
    script: &str,
    arguments: &[&str],
    limit: Duration,
) -> Result<ExecOutput, HostError> {
    let slow = || HostError::Timeout {
        at: session.place(),
        what: "a command".into(),
        limit,
    };
    let (mut channel, _permit) = session
        .command()
        .await
        .map_err(|error| error.at(session.place()))?;
    let seconds = limit.as_secs().max(1);
    let command = format!("timeout -k 5 {seconds} sh -s");
    let arguments = arguments
        .iter()
        .fold(String::new(), |words, word| words + " " + &quote(word));
    let script = format!("{{\nset --{arguments}\necho '{BEGIN}'\n{script}\n}} </dev/null\n");
    let begun = Instant::now();
    let talking = talk(session, &mut channel, command, script);
    let result = tokio::select! {
        result = timeout(limit + GRACE, talking) => result.unwrap_or_else(|_| Err(slow())),
        lost = session.died() => return Err(lost),
    };
    let _ = channel.close().await;
    let (status, output) = result?;
    let (to, took) = (session.place(), begun.elapsed());
    tracing::debug!(%to, status, ?took, "a script ended");
    if status == TIMED_OUT {
        return Err(slow());
    }
    match own_output(&output.stdout) {
        Some(own) => Ok(ExecOutput {
            stdout: own.to_owned(),
            ..output
        }),
        None => Err(HostError::Shell {
            at: session.place(),
            status: Some(status),
            limit: SHELL,
            said: said(&format!("{}\n{}", output.stdout, output.stderr)),
        }),
    }
}

/// The end of what a shell wrote, on one line.
fn said(text: &str) -> Option<String> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = words.chars().count().saturating_sub(SHOWN);
    let end: String = words.chars().skip(skipped).collect();
    (!end.is_empty()).then(|| printable(&end).into_owned())
}

/// What the script itself wrote: what comes after the line that it began with.
fn own_output(stdout: &str) -> Option<&str> {
    let (_, own) = stdout.split_once(&format!("{BEGIN}\n"))?;
    Some(own)
}

async fn talk(
    session: &Session,
    channel: &mut Channel<Msg>,
    command: String,
    script: String,
) -> Result<(u32, ExecOutput), HostError> {
    let failed = |source: russh::Error| {
        session.lost().unwrap_or_else(|| HostError::Exec {
            at: session.place(),
            source: Box::new(source),
        })
    };
    channel.exec(true, command).await.map_err(failed)?;
    let mut script = Bytes::from(script);
    while !script.is_empty() {
        let piece = script.split_to(script.len().min(PIECE));
        channel.data_bytes(piece).await.map_err(failed)?;
    }
    channel.eof().await.map_err(failed)?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut status = None;
    let mut why = "the channel was closed".to_owned();
    let late = Instant::now() + SHELL;
    let mut begun = false;
    loop {
        // Until the first line of the script is back, its login shell works, and not the script.
        let message = if begun {
            channel.wait().await
        } else {
            let waited = timeout_at(late, channel.wait()).await;
            waited.map_err(|_| HostError::Shell {
                at: session.place(),
                status: None,
                limit: SHELL,
                said: said(&String::from_utf8_lossy(&[&*stdout, &*stderr].concat())),
            })?
        };
        let Some(message) = message else { break };
        if let ChannelMsg::Data { data } = message {
            stdout.extend_from_slice(&data);
            begun = begun || own_output(&String::from_utf8_lossy(&stdout)).is_some();
        } else if let ChannelMsg::ExtendedData { data, .. } = message {
            stderr.extend_from_slice(&data);
        } else if let ChannelMsg::ExitStatus { exit_status } = message {
            status = Some(exit_status);
        } else if let ChannelMsg::Failure = message {
            return Err(failed(russh::Error::RequestDenied));
        } else if let ChannelMsg::ExitSignal { signal_name, .. } = message {
            why = printable(&format!("it was ended by signal {signal_name:?}")).into_owned();
        }
        if stdout.len() + stderr.len() > OUTPUT_LIMIT {
            return Err(HostError::ExecOutput {
                at: session.place(),
                limit: OUTPUT_LIMIT,
            });
        }
    }
    let Some(status) = status else {
        return Err(session.lost().unwrap_or_else(|| HostError::ExecEnded {
            at: session.place(),
            why,
        }));
    };
    let output = ExecOutput {
        status: i32::try_from(status).unwrap_or(i32::MAX),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    };
    Ok((status, output))
}

/// One word for `sh`.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::own_output;

    #[test]
    fn what_a_login_shell_prints_is_not_the_scripts() {
        assert_eq!(own_output("@@rke-operator begin\nok\n"), Some("ok\n"));
        let greeting = "Welcome!\nfailed: nothing\n@@rke-operator begin\nok\n";
        assert_eq!(own_output(greeting), Some("ok\n"));
        // A greeting without an end of line.
        assert_eq!(own_output("hi @@rke-operator begin\n"), Some(""));
        assert_eq!(own_output("This account is not available.\n"), None);
    }
}
