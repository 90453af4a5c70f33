//! A stream in hyper's terms: what its pooled client asks of a connection, over Docker's socket and
//! over TLS alike.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::io::{AsyncRead, AsyncWrite};

/// One connection.
pub struct Pipe<T>(TokioIo<T>);

impl<T> Pipe<T> {
    pub(super) fn new(stream: T) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl<T> Connection for Pipe<T> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl<T: AsyncRead + Unpin> hyper::rt::Read for Pipe<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> hyper::rt::Write for Pipe<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
