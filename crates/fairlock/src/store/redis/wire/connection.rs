//! A connection: callers write their commands themselves, and its task reads the replies.
//!
//! As long as few calls are under way, a caller writes its command at once, in one `write`.
//! Otherwise the task writes it, once the other ready tasks of its thread have added theirs, so
//! that commands that come together leave together. The task waits for no caller.

use super::calls::{Arrival, Calls, Tell, Waiting};
use super::command::{Cmd, Pipeline};
use super::error::CallError;
use super::parser::Parser;
use super::value::{Push, PushKind, Value};
use crate::base::clock::lock;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// With more calls than this under way, commands are collected before they are written.
const AT_ONCE_MAX: usize = 4;

/// Bytes that may wait until the server reads. More means that it has stopped reading.
const UNSENT_MAX: usize = 16 << 20;

/// The capacity for unsent bytes that is kept for the next calls.
const KEPT_MAX: usize = 256 << 10;

/// Bytes of one read.
const READ_MAX: usize = 16 << 10;

/// How a connection treats calls and messages.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    response_timeout: Option<Duration>,
    on_push: Option<Arc<dyn Fn(Push) + Send + Sync>>,
}

impl Settings {
    /// Calls fail after this time. Without it, the caller bounds them.
    pub(crate) fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = Some(timeout);
        self
    }

    /// Gets every message, confirmations of subscriptions included, and the end of the connection.
    /// Called by the connection's task, so it must not block.
    pub(crate) fn on_push(mut self, on_push: impl Fn(Push) + Send + Sync + 'static) -> Self {
        self.on_push = Some(Arc::new(on_push));
        self
    }
}

/// A connection. It ends with its last clone.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    state: Mutex<State>,
    /// There is something to write that no caller writes.
    left_over: Notify,
    response_timeout: Option<Duration>,
    given_up: AtomicBool,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct State {
    /// `None` once the connection has ended.
    stream: Option<Box<dyn Stream>>,
    /// Not written yet.
    unsent: Vec<u8>,
    /// The task writes what is unsent.
    is_left: bool,
    /// In the order of their commands.
    waiting: Calls,
}

/// The connection has ended, or ends before it has answered.
fn ended() -> CallError {
    io::ErrorKind::BrokenPipe.into()
}

impl Connection {
    /// On a stream on which nothing was sent. Its task runs on the current runtime.
    pub(crate) fn over<S>(stream: S, settings: Settings) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let state = State {
            stream: Some(Box::new(stream)),
            unsent: Vec::new(),
            is_left: false,
            waiting: Calls::default(),
        };
        let Settings { response_timeout, on_push } = settings;
        let left_over = Notify::new();
        let state = Mutex::new(state);
        let given_up = AtomicBool::new(false);
        let shared = Arc::new(Shared { state, left_over, response_timeout, given_up });
        let driver = Driver { shared: Arc::clone(&shared), on_push };
        let task = tokio::spawn(driver.run()).abort_handle();
        Self(Arc::new(Handle { shared, task }))
    }

    /// Ends the connection and the calls that are under way on it, for all of its clones. No caller
    /// gets a reply after this, not even one that has arrived already.
    pub(crate) fn give_up(&self) {
        self.0.shared.given_up.store(true, Ordering::Release);
        self.0.shared.end(ended());
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.0.shared.state).stream.is_none()
    }

    /// Sends the command, and waits for its reply. An error of the server is a reply.
    ///
    /// # Errors
    /// The connection fails, or the time is up.
    pub(crate) async fn call(&self, cmd: &Cmd) -> Result<Value, CallError> {
        self.bounded(self.send(cmd)?).await
    }

    fn send(&self, cmd: &Cmd) -> Result<oneshot::Receiver<Result<Value, CallError>>, CallError> {
        let (tell, told) = oneshot::channel();
        let confirmations = cmd.confirmation().map(|it| Some(it.clone())).into_iter().collect();
        let waiting =
            Waiting { missing: 1, confirmations, replies: Vec::new(), tell: Tell::One(tell) };
        self.0.shared.send(std::slice::from_ref(cmd), waiting)?;
        Ok(told)
    }

    /// The same for several commands at once.
    ///
    /// # Errors
    /// The connection fails before all replies have come, or the time is up.
    pub(crate) async fn call_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, CallError> {
        let commands = pipeline.commands();
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (tell, told) = oneshot::channel();
        let confirmations = match commands.iter().any(|cmd| cmd.confirmation().is_some()) {
            true => commands.iter().map(|cmd| cmd.confirmation().cloned()).collect(),
            false => VecDeque::new(),
        };
        let replies = Vec::with_capacity(commands.len());
        let tell = Tell::All(tell);
        let waiting = Waiting { missing: commands.len(), confirmations, replies, tell };
        self.0.shared.send(commands, waiting)?;
        self.bounded(told).await
    }

    async fn bounded<T>(
        &self,
        told: oneshot::Receiver<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let told = match self.0.shared.response_timeout {
            None => told.await,
            Some(limit) => tokio::time::timeout(limit, told)
                .await
                .map_err(|_| CallError::from(io::ErrorKind::TimedOut))?,
        };
        if self.0.shared.given_up.load(Ordering::Acquire) {
            return Err(ended());
        }
        told.unwrap_or_else(|_| Err(ended()))
    }

    /// Subscribes to the channel. The command is sent now, not when the future is polled, so that
    /// commands of several threads are in the order of these calls.
    ///
    /// # Errors
    /// The server refuses, the connection fails, or the time is up.
    pub(crate) fn subscribe(
        &self,
        channel: &[u8],
    ) -> impl Future<Output = Result<(), CallError>> + Send + use<> {
        self.subscription(PushKind::Subscribe, channel)
    }

    /// Unsubscribes from the channel; the command is sent now.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub(crate) fn unsubscribe(
        &self,
        channel: &[u8],
    ) -> impl Future<Output = Result<(), CallError>> + Send + use<> {
        self.subscription(PushKind::Unsubscribe, channel)
    }

    fn subscription(
        &self,
        kind: PushKind,
        channel: &[u8],
    ) -> impl Future<Output = Result<(), CallError>> + Send + use<> {
        let (this, sent) = (self.clone(), self.send(&Cmd::subscription(kind, channel)));
        async move { this.bounded(sent?).await?.extract_error().map(drop) }
    }
}

impl Shared {
    /// Sends the commands, at once or soon.
    fn send(&self, commands: &[Cmd], waiting: Waiting) -> Result<(), CallError> {
        let is_left = {
            let mut state = lock(&self.state);
            if state.stream.is_none() {
                return Err(ended());
            }
            if state.unsent.len() > UNSENT_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for cmd in commands {
                cmd.write_to(&mut state.unsent);
            }
            state.waiting.add(waiting);
            // The task has been notified, and waits for the stream with its own waker.
            if state.is_left {
                return Ok(());
            }
            // An error is left to the task as well, which ends the connection.
            state.is_left = state.waiting.len() > AT_ONCE_MAX
                || !matches!(
                    state.poll_write(&mut Context::from_waker(Waker::noop())),
                    Poll::Ready(Ok(()))
                );
            state.is_left
        };
        if is_left {
            self.left_over.notify_one();
        }
        Ok(())
    }

    /// Ends the connection. The call that waited longest learns why; nothing is known about the
    /// others.
    fn end(&self, reason: CallError) {
        let (stream, waiting) = {
            let mut state = lock(&self.state);
            state.unsent = Vec::new();
            (state.stream.take(), std::mem::take(&mut state.waiting))
        };
        drop(stream);
        let mut reason = Some(reason);
        for waiting in waiting {
            waiting.tell.fail(reason.take().unwrap_or_else(ended));
        }
    }
}

impl State {
    /// Writes what is unsent.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        let mut written = 0;
        let result = loop {
            let Some(left @ [_, ..]) = self.unsent.get(written..) else {
                break Pin::new(&mut **stream).poll_flush(cx);
            };
            match Pin::new(&mut **stream).poll_write(cx, left) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(more)) => written += more,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.unsent.drain(..written);
        if self.unsent.is_empty() && self.unsent.capacity() > KEPT_MAX {
            self.unsent = Vec::new();
        }
        result
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(0)) };
        let mut buf = ReadBuf::new(buf);
        Pin::new(&mut **stream).poll_read(cx, &mut buf).map_ok(|()| buf.filled().len())
    }
}

/// The connection's task. However it ends, so does the connection.
struct Driver {
    shared: Arc<Shared>,
    /// Owned by the task, not by the state that its connections share: it may keep the connection,
    /// and the two would then keep each other alive.
    on_push: Option<Arc<dyn Fn(Push) + Send + Sync>>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.end(ended());
    }
}

impl Driver {
    async fn run(self) {
        let reason = tokio::select! {
            biased;
            reason = self.read() => reason,
            reason = self.write() => reason,
        };
        self.shared.end(reason);
        self.push(Push { kind: PushKind::Disconnection, data: Vec::new() });
    }

    /// Reads until the connection ends.
    async fn read(&self) -> CallError {
        let mut parser = Parser::default();
        let mut buf = vec![0; READ_MAX];
        let (mut values, mut arrivals) = (Vec::new(), Vec::new());
        loop {
            let read = poll_fn(|cx| lock(&self.shared.state).poll_read(cx, &mut buf)).await;
            let bytes = match read {
                Ok(0) if parser.is_at_rest() => return ended(),
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(length) => buf.get(..length).unwrap_or_default(),
                Err(error) => return error.into(),
            };
            let fed = parser.feed(bytes, &mut values);
            let assigned = self.arrived(&mut values, &mut arrivals);
            if let Err(refused) = assigned.and(fed) {
                return refused;
            }
        }
    }

    /// Assigns the values to the calls, in their order, and tells the callers.
    ///
    /// # Errors
    /// There are more replies than calls.
    fn arrived(
        &self,
        values: &mut Vec<Value>,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), CallError> {
        let mut assigned = Ok(());
        {
            let mut state = lock(&self.shared.state);
            for value in values.drain(..) {
                let this = state.waiting.assign(value, arrivals);
                assigned = assigned.and(this);
            }
        }
        for arrival in arrivals.drain(..) {
            // The caller may be gone.
            match arrival {
                Arrival::Push(push) => self.push(push),
                Arrival::One(tell, value) => drop(tell.send(Ok(value))),
                Arrival::All(tell, values) => drop(tell.send(Ok(values))),
            }
        }
        assigned
    }

    fn push(&self, push: Push) {
        if let Some(on_push) = &self.on_push {
            on_push(push);
        }
    }

    /// Writes what callers leave, until that fails.
    async fn write(&self) -> CallError {
        loop {
            self.shared.left_over.notified().await;
            // Those who are about to send something do it first.
            tokio::task::yield_now().await;
            let written = poll_fn(|cx| {
                let mut state = lock(&self.shared.state);
                let written = state.poll_write(cx);
                if written.is_ready() {
                    state.is_left = false;
                }
                written
            });
            if let Err(error) = written.await {
                return error.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::{cmd, pipe};
    use super::super::value::ServerError;
    use super::*;
    use crate::store::redis::classify::classify;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const ROOM: usize = 1 << 20;

    /// Of paused time: nothing else is waited for.
    const SOON: Duration = Duration::from_secs(60);

    fn over(room: usize, settings: Settings) -> (Connection, DuplexStream) {
        let (ours, theirs) = duplex(room);
        (Connection::over(ours, settings), theirs)
    }

    fn text(text: &str) -> Value {
        Value::SimpleString(text.into())
    }

    /// What the server has received: all of it, once nothing more comes.
    async fn received(server: &mut DuplexStream) -> String {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        let next = Duration::from_millis(1);
        while let Ok(read) = tokio::time::timeout(next, server.read(&mut buffer)).await {
            all.extend_from_slice(&buffer[..read.unwrap()]);
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn replies_belong_to_their_calls_in_order() {
        let (conn, mut server) = over(ROOM, Settings::default());
        let mut both = pipe();
        both.cmd("B");
        both.cmd("C").arg(1_u8);
        let (one, two) = (cmd("A"), cmd("D"));
        let calls = async { tokio::join!(conn.call(&one), conn.call_all(&both), conn.call(&two)) };
        let serves = async {
            let expected =
                "*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n*2\r\n$1\r\nC\r\n$1\r\n1\r\n*1\r\n$1\r\nD\r\n";
            assert_eq!(received(&mut server).await, expected);
            server.write_all(b"+a\r\n+b\r\n-ERR c\r").await.unwrap();
            tokio::task::yield_now().await;
            server.write_all(b"\n+d\r\n").await.unwrap();
        };
        let ((a, bc, d), ()) = tokio::join!(calls, serves);
        let refused = Value::ServerError(ServerError::new("ERR c".into()));
        assert_eq!((a.unwrap(), bc.unwrap()), (text("a"), vec![text("b"), refused]));
        assert_eq!(d.unwrap(), text("d"));
    }

    /// A proxy that repeats a reply shifts all that follow: one waiter took the grant of another, for
    /// as long as the connection lasted.
    #[tokio::test(start_paused = true)]
    async fn a_reply_that_nobody_asked_for_ends_the_connection() {
        let (conn, mut server) = over(ROOM, Settings::default());
        let one = cmd("A");
        let (reply, written) = tokio::join!(conn.call(&one), server.write_all(b"+a\r\n+a\r\n"));
        written.unwrap();
        assert_eq!(reply.unwrap(), text("a"));
        let next = tokio::time::timeout(SOON, conn.call(&cmd("B"))).await.unwrap();
        assert!(next.unwrap_err().is_connection_dropped());
    }

    /// One thread left a channel, and then another one wanted it. Both noted that in this order,
    /// but the commands were written when they were polled: the subscription first, and the other
    /// command ended it. A waiter for a plain lock was not woken.
    #[tokio::test(start_paused = true)]
    async fn subscriptions_are_sent_in_the_order_of_their_calls() {
        let (conn, mut server) = over(ROOM, Settings::default());
        let (leaves, joins) = (conn.unsubscribe(b"x"), conn.subscribe(b"x"));
        let expected =
            "*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\nx\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nx\r\n";
        assert_eq!(received(&mut server).await, expected);
        drop((joins, leaves));
    }

    /// The late reply to a call that nobody waits for any more is not the next call's.
    #[tokio::test(start_paused = true)]
    async fn a_reply_that_comes_too_late_is_nobodys() {
        let limit = Duration::from_secs(1);
        let (conn, mut server) = over(ROOM, Settings::default().response_timeout(limit));
        let late = conn.call(&cmd("A")).await.unwrap_err();
        assert!(late.is_timeout() && classify(&late).doubt, "{late}");
        let two = cmd("B");
        let (reply, written) = tokio::join!(conn.call(&two), server.write_all(b"+a\r\n+b\r\n"));
        written.unwrap();
        assert_eq!(reply.unwrap(), text("b"));
    }

    /// A server that was killed in the middle of a reply ended a waiter for good, with "the
    /// server's reply cannot be read".
    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_cut_off_is_a_lost_connection() {
        for (sent, passing) in [
            (&b"$5\r\nab"[..], true),
            (b"*2\r\n:1\r\n", true),
            (b"%1\r\n+a", true),
            (b"", true),
            (b"HTTP/1.1 400\r\n", false),
        ] {
            let (tell, mut ends) = tokio::sync::mpsc::unbounded_channel();
            let settings = Settings::default().on_push(move |push| tell.send(push.kind).unwrap());
            let (conn, mut server) = over(ROOM, settings);
            let (one, two) = (cmd("A"), cmd("B"));
            let calls = async { tokio::join!(conn.call(&one), conn.call(&two)) };
            let serves = async move { server.write_all(sent).await.unwrap() };
            let ((first, second), ()) = tokio::join!(calls, serves);
            let error = first.unwrap_err();
            let failure = classify(&error);
            assert_eq!((failure.passing, failure.doubt), (passing, true), "{error}");
            assert!(error.is_unrecoverable_error(), "{error}");
            for error in [second.unwrap_err(), conn.call(&one).await.unwrap_err()] {
                assert!(error.is_connection_dropped() && classify(&error).passing, "{error}");
            }
            let end = tokio::time::timeout(SOON, ends.recv()).await;
            assert_eq!(end, Ok(Some(PushKind::Disconnection)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_is_confirmed_by_its_own_message_alone() {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let (conn, mut server) =
            over(ROOM, Settings::default().on_push(move |push| tell.send(push.kind).unwrap()));
        let ping = cmd("PING");
        let calls = async { tokio::join!(conn.unsubscribe(b"b"), conn.call(&ping)) };
        let serves = async {
            let ends = |channel| format!(">3\r\n$11\r\nunsubscribe\r\n$1\r\n{channel}\r\n:0\r\n");
            let message = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n";
            // The first two, and the one before the last, are replies to nothing.
            let all = [&ends("a"), message, &ends("b"), &ends("c"), "+PONG\r\n"].concat();
            server.write_all(all.as_bytes()).await.unwrap();
        };
        let ((left, pong), ()) = tokio::join!(calls, serves);
        left.unwrap();
        assert_eq!(pong.unwrap(), text("PONG"));
        let mut kinds = Vec::new();
        while let Ok(kind) = told.try_recv() {
            kinds.push(kind);
        }
        let ends = PushKind::Unsubscribe;
        assert_eq!(kinds, [ends, PushKind::Message, ends, ends]);
        let (refused, written) =
            tokio::join!(conn.subscribe(b"a"), server.write_all(b"-NOPERM x\r\n"));
        written.unwrap();
        assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));
    }

    /// A server that does not read prevents nobody from sending, and gets everything later.
    #[tokio::test(start_paused = true)]
    async fn what_the_server_does_not_read_waits_in_order() {
        const CALLS: usize = 50;
        let (conn, mut server) = over(64, Settings::default());
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..CALLS {
            let conn = conn.clone();
            calls.spawn(async move {
                let reply = conn.call(cmd("ECHO").arg(number)).await.unwrap();
                assert_eq!(reply, Value::Int(number as i64));
            });
        }
        let expected: Vec<u8> = (0..CALLS)
            .flat_map(|number| {
                let number = number.to_string();
                let sent = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{number}\r\n", number.len());
                sent.into_bytes()
            })
            .collect();
        assert_eq!(received(&mut server).await.as_bytes(), expected);
        for number in 0..CALLS {
            server.write_all(format!(":{number}\r\n").as_bytes()).await.unwrap();
        }
        assert_eq!(calls.join_all().await.len(), CALLS);
    }

    /// Counts writes.
    struct Counted(DuplexStream, Arc<std::sync::atomic::AtomicUsize>);

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_made_together_leave_together() {
        const CALLS: usize = 64;
        let (ours, mut server) = duplex(ROOM);
        let writes = Arc::default();
        let conn = Connection::over(Counted(ours, Arc::clone(&writes)), Settings::default());
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..CALLS {
            let conn = conn.clone();
            calls.spawn(async move { conn.call(&cmd("A")).await.unwrap() });
        }
        assert_eq!(received(&mut server).await.len(), CALLS * "*1\r\n$1\r\nA\r\n".len());
        assert_eq!(writes.load(Ordering::Relaxed), AT_ONCE_MAX + 1);
        server.write_all("+a\r\n".repeat(CALLS).as_bytes()).await.unwrap();
        assert_eq!(calls.join_all().await.len(), CALLS);
    }

    /// The listener kept the connection alive, and the connection the listener: the descriptors of
    /// the runtime of each client that had ended stayed open.
    #[test]
    fn a_connection_whose_listener_keeps_it_ends_with_the_runtime() {
        let kept = Arc::new(Mutex::new(None));
        let weak = Arc::downgrade(&kept);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let listens = Arc::clone(&kept);
            let settings = Settings::default().on_push(move |_| drop(lock(&listens)));
            *lock(&kept) = Some(over(ROOM, settings));
        });
        drop((kept, runtime));
        assert_eq!(weak.strong_count(), 0);
    }

    /// A grant of the old primary that came after the switch to the new one was believed.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_given_up_answers_nobody() {
        let (conn, mut server) = over(ROOM, Settings::default());
        let (under_way, one) = (conn.clone(), cmd("A"));
        let mut calls = std::pin::pin!(async {
            tokio::join!(under_way.call(&one), under_way.call(&one), under_way.call(&one))
        });
        assert!(
            poll_fn(|cx| Poll::Ready(calls.as_mut().poll(cx))).await.is_pending()
                && !conn.has_ended()
        );
        // The first has its answer, but has not looked yet.
        assert!(!received(&mut server).await.is_empty());
        server.write_all(b"+a\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        conn.give_up();
        // It may find no reader.
        let _ = server.write_all(b"+a\r\n+a\r\n").await;
        let (first, second, third) = calls.await;
        for result in [first, second, third, conn.call(&one).await] {
            let error = result.unwrap_err();
            let failure = classify(&error);
            assert!(failure.passing && failure.doubt, "{error}");
        }
        assert!(under_way.has_ended());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_last_clone() {
        let (conn, mut server) = over(ROOM, Settings::default());
        drop(conn.clone());
        let one = cmd("A");
        let (reply, written) = tokio::join!(conn.call(&one), server.write_all(b"+a\r\n"));
        written.unwrap();
        assert_eq!(reply.unwrap(), text("a"));
        drop(conn);
        let mut rest = Vec::new();
        let end = tokio::time::timeout(SOON, server.read_to_end(&mut rest)).await;
        end.expect("the stream ends").unwrap();
        assert_eq!(rest, b"*1\r\n$1\r\nA\r\n");
    }
}
