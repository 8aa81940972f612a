//! Streams between clients and server: bytes arrive later, in order, or never.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::base::clock::lock;

/// How one direction of a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// In order, after all bytes that were sent.
    Closed,
    /// At once: bytes in flight are lost.
    Reset,
}

/// One direction of a connection.
pub(super) struct Pipe(Mutex<Flow>);

struct Flow {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    /// When the last bytes sent will arrive: nothing overtakes them.
    last: Instant,
    end: Option<(Instant, End)>,
    /// Nothing arrives; the bytes are kept until this ends.
    held: bool,
    reader: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(held: bool) -> Arc<Self> {
        let flow =
            Flow { chunks: VecDeque::new(), last: Instant::now(), end: None, held, reader: None };
        Arc::new(Self(Mutex::new(flow)))
    }

    fn change(&self, change: impl FnOnce(&mut Flow)) {
        let reader = {
            let mut flow = lock(&self.0);
            change(&mut flow);
            flow.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Sends bytes that arrive at `due` at the earliest.
    pub(super) fn send(&self, due: Instant, bytes: &[u8]) {
        self.change(|flow| {
            if flow.end.is_none() {
                flow.last = flow.last.max(due);
                flow.chunks.push_back((flow.last, bytes.to_vec()));
            }
        });
    }

    pub(super) fn end(&self, due: Instant, end: End) {
        self.change(|flow| {
            if end == End::Reset {
                flow.chunks.clear();
                flow.last = due;
                flow.end = Some((due, end));
            } else if flow.end.is_none() {
                flow.last = flow.last.max(due);
                flow.end = Some((flow.last, end));
            }
        });
    }

    pub(super) fn hold(&self, held: bool) {
        self.change(|flow| flow.held = held);
    }

    /// The bytes that have arrived; otherwise when to look again, if that is known.
    fn take(
        &self,
        cx: &Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Result<io::Result<()>, Option<Instant>> {
        let mut flow = lock(&self.0);
        flow.reader = Some(cx.waker().clone());
        if flow.held {
            return Err(None);
        }
        let now = Instant::now();
        if let Some((due, bytes)) = flow.chunks.front_mut() {
            if *due > now {
                return Err(Some(*due));
            }
            let fits = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..fits]);
            bytes.drain(..fits);
            if bytes.is_empty() {
                flow.chunks.pop_front();
            }
            return Ok(Ok(()));
        }
        match flow.end {
            Some((due, _)) if due > now => Err(Some(due)),
            Some((_, End::Closed)) => Ok(Ok(())),
            Some((_, End::Reset)) => Ok(Err(io::ErrorKind::ConnectionReset.into())),
            None => Err(None),
        }
    }

    fn is_ended(&self) -> bool {
        lock(&self.0).end.is_some()
    }
}

/// Returns when bytes sent now will arrive.
pub(super) type Delay = Box<dyn Fn() -> Instant + Send + Sync>;

/// One side of a connection.
pub(crate) struct Stream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    delay: Delay,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(incoming: Arc<Pipe>, outgoing: Arc<Pipe>, delay: Delay) -> Self {
        Self { incoming, outgoing, delay, timer: None }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.outgoing.end((self.delay)(), End::Closed);
        self.incoming.end(Instant::now(), End::Reset);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.incoming.take(cx, buf) {
                Ok(read) => return Poll::Ready(read),
                Err(None) => return Poll::Pending,
                Err(Some(due)) => {
                    let timer =
                        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
                    timer.as_mut().reset(due);
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.outgoing.is_ended() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.outgoing.send((self.delay)(), bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.end((self.delay)(), End::Closed);
        Poll::Ready(Ok(()))
    }
}
