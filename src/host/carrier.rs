//! Streams through programs on the node, where its sshd forwards nothing: the Docker command line carries those to
//! Docker's socket, with sudo where the user has no other right to it, and bash those to ports.
//!
//! Each takes one of the session channels that sshd allows (`MaxSessions`), so there are few at once; the rest is left to
//! commands.

use std::time::Duration;

use russh::ChannelOpenFailure;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

use super::{
    exec::{self, quote},
    guard::Guarded,
    ssh::{OpenError, Session},
};

/// What a login shell may print before a program begins.
const GREETING: usize = 64 << 10;
/// Until it begins: a login shell reads its files, and a connection is made.
const BEGIN: Duration = Duration::from_secs(30);
/// The line with which the bytes of the other side begin.
const BEGINS: &str = "@@rke-operator begin";
/// Nothing listens there.
const CLOSED: &str = "@@rke-operator closed";
/// The node has no program for it.
const LACKING: &str = "@@rke-operator lacking";

/// For what a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// Docker.
    Docker,
    /// A TCP port.
    Port,
}

/// With which rights Docker's socket is used on the node; `None`: with neither, or Docker does not answer.
pub(super) async fn rights(session: &Session, socket: &str) -> Option<Rights> {
    const ASK: &str = "if docker -H \"unix://$1\" version >/dev/null 2>&1; then echo own
elif sudo -n docker -H \"unix://$1\" version >/dev/null 2>&1; then echo sudo
fi";
    let limit = Duration::from_secs(20);
    let said = exec::run(session, ASK, &[socket], limit).await.ok()?;
    match said.stdout.trim() {
        "own" => Some(Rights::Own),
        "sudo" => Some(Rights::Sudo),
        _ => None,
    }
}

/// With which rights the Docker command line is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// The user's own: they are in group docker.
    Own,
    /// Root's.
    Sudo,
}

/// A stream to Docker's socket.
pub(super) async fn to_docker(
    session: &Session,
    socket: &str,
    rights: Rights,
) -> Result<Guarded, OpenError> {
    let sudo = match rights {
        Rights::Own => "",
        Rights::Sudo => "sudo -n ",
    };
    let socket = quote(&format!("unix://{socket}"));
    let script =
        format!("echo '{BEGINS}'\nexec {sudo}docker -H {socket} system dial-stdio 2>/dev/null");
    begun(session, Carries::Docker, &script).await
}

/// A stream to a TCP port.
pub(super) async fn to_port(
    session: &Session,
    address: &str,
    port: u16,
) -> Result<Guarded, OpenError> {
    // Whichever side ends, both copies end with it, and nothing stays on the node.
    let relay = format!(
        "exec 3<>\"/dev/tcp/$0/$1\" || {{ echo '{CLOSED}'; exit; }}
exec 4<&0
echo '{BEGINS}'
cat <&3 & there=$!
cat <&4 >&3 & back=$!
wait -n
kill $there $back"
    );
    let (relay, address) = (quote(&relay), quote(address));
    let script = format!(
        "command -v bash >/dev/null || {{ echo '{LACKING}'; exit; }}
exec bash -c {relay} {address} {port} 2>/dev/null"
    );
    begun(session, Carries::Port, &script).await
}

async fn begun(session: &Session, what: Carries, script: &str) -> Result<Guarded, OpenError> {
    let command = format!("sh -c {}", quote(script));
    let mut stream = session.program(what, &command).await?;
    let refused = |failure| Err(OpenError::Refused(failure));
    let first = timeout(BEGIN, first_word(&mut stream)).await;
    match first.map_err(|_| OpenError::Slow(BEGIN))? {
        Some(BEGINS) => Ok(stream),
        Some(CLOSED) => refused(ChannelOpenFailure::ConnectFailed),
        Some(_) | None => refused(ChannelOpenFailure::AdministrativelyProhibited),
    }
}

/// The first line that the program itself prints. What comes after that line stays in the stream.
async fn first_word(stream: &mut (impl AsyncRead + Unpin)) -> Option<&'static str> {
    let mut line = Vec::new();
    for _ in 0..GREETING {
        let byte = stream.read_u8().await.ok()?;
        if byte != b'\n' {
            line.push(byte);
            continue;
        }
        let words = [BEGINS, CLOSED, LACKING].into_iter();
        let mut said = words.filter(|word| line == word.as_bytes());
        if let Some(word) = said.next() {
            return Some(word);
        }
        line.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_login_shell_prints_is_left_out() {
        let said = format!("Welcome!\n{BEGINS} not yet\n{BEGINS}\nHTTP/1.1 200 OK\n");
        let mut stream = said.as_bytes();
        assert_eq!(first_word(&mut stream).await, Some(BEGINS));
        assert_eq!(stream, b"HTTP/1.1 200 OK\n");
        let mut closed = format!("{CLOSED}\n");
        assert_eq!(first_word(&mut closed.as_bytes()).await, Some(CLOSED));
        closed.clear();
        assert_eq!(first_word(&mut closed.as_bytes()).await, None);
        let endless = vec![b'x'; GREETING + 1];
        assert_eq!(first_word(&mut endless.as_slice()).await, None);
    }
}
