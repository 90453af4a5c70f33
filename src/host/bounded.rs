//! Answers of a server that are read whole into memory, with an end: of Docker on a node, which may be anybody's.
//!
//! bollard collects bodies without a bound, and wants hyper's own body type, so the bound is on the bytes below:
//! those that come after the first line of a request, which tells how much its answer may have.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A list of all containers, a configuration: nothing that is collected is larger.
pub(super) const ANSWER: usize = 8 << 20;

/// Requests whose answers are read as they come, and bounded by who reads them.
const STREAMS: [&str; 8] = [
    "/archive",
    "/images/create",
    "/images/load",
    "/logs",
    "/attach",
    "/wait",
    "/export",
    "/get",
];

/// A connection over which one request follows another.
pub(super) struct Bounded<T> {
    stream: T,
    /// The request is being sent, and its first line was seen.
    asking: bool,
    left: usize,
}

impl<T> Bounded<T> {
    pub(super) const fn new(stream: T) -> Self {
        Self {
            stream,
            asking: false,
            left: ANSWER,
        }
    }
}

/// How long the answer to a request that begins so may be.
fn limit(request: &[u8]) -> usize {
    let line = request.split(|byte| *byte == b'\n').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    let path = line.split_ascii_whitespace().nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    if STREAMS.iter().any(|end| path.ends_with(end)) {
        usize::MAX
    } else {
        ANSWER
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Bounded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let had = out.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        let read = out.filled().len() - had;
        if read > 0 {
            self.asking = false;
        }
        match self.left.checked_sub(read) {
            Some(left) => self.left = left,
            None => {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("the answer has more than {} MiB", ANSWER >> 20),
                )));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Bounded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.asking {
            self.asking = true;
            self.left = limit(bytes);
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{ANSWER, limit};

    #[test]
    fn what_is_collected_has_an_end_and_what_is_read_as_it_comes_has_its_own() {
        for (line, bound) in [
            (
                "GET /v1.47/containers/json?all=true HTTP/1.1\r\nhost: docker\r\n",
                ANSWER,
            ),
            ("GET /info HTTP/1.1\r\n", ANSWER),
            ("GET /v1.47/containers/archive/json HTTP/1.1\r\n", ANSWER),
            (
                "GET /v1.47/containers/c/archive?path=%2Fhost HTTP/1.1\r\n",
                usize::MAX,
            ),
            (
                "POST /v1.47/images/create?fromImage=a HTTP/1.1\r\n",
                usize::MAX,
            ),
            ("\u{1}", ANSWER),
        ] {
            assert_eq!(limit(line.as_bytes()), bound, "{line}");
        }
    }
}
