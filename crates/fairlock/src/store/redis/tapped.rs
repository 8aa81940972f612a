//! A stream with a listener, which sees all bytes that are read and may end the stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Sees all bytes that are read from a stream.
pub(super) trait Listener {
    /// Called with the bytes of each read, none at the end of the stream, or with the error. The
    /// reader gets what this returns.
    ///
    /// # Errors
    /// Those of the stream, and any other to end reading.
    fn heard(&mut self, read: io::Result<&[u8]>) -> io::Result<()>;
}

pub(super) struct Tapped<S, L> {
    stream: S,
    listener: L,
}

impl<S, L> Tapped<S, L> {
    pub(super) fn new(stream: S, listener: L) -> Self {
        Self { stream, listener }
    }
}

impl<S: AsyncRead + Unpin, L: Listener + Unpin> AsyncRead for Tapped<S, L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let bytes = buf.filled().get(before..).unwrap_or_default();
        Poll::Ready(self.listener.heard(read.map(|()| bytes)))
    }
}

impl<S: AsyncWrite + Unpin, L: Unpin> AsyncWrite for Tapped<S, L> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
