//! A tiny synchronous client, independent of fairlock and of the client library below it.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::resp::{self, Value};

/// How long a reply may take where a failure is a valid result: [`Raw::try_call`].
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a required reply may take: enough for any loaded machine, and a hung test still ends.
const ANSWERED: Duration = Duration::from_secs(60);

/// One connection to a server.
///
/// Commands panic if the connection fails or a reply takes longer than a minute; the `try_` forms
/// return the error instead, after five seconds.
#[derive(Debug)]
pub struct Raw {
    stream: Box<dyn Stream>,
    /// Bytes that have arrived and are not yet a whole value.
    unread: Vec<u8>,
}

impl Raw {
    /// Connects to a server's TCP port.
    ///
    /// # Panics
    ///
    /// If nothing accepts there.
    #[track_caller]
    pub fn connect(addr: impl ToSocketAddrs + Debug) -> Self {
        Self::try_connect(&addr)
            .unwrap_or_else(|error| panic!("cannot connect to {addr:?}: {error}"))
    }

    /// Connects to a server's TCP port.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn try_connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Self::over(Box::new(stream))
    }

    /// Connects to a server's Unix socket.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn try_connect_unix(path: &Path) -> io::Result<Self> {
        Self::over(Box::new(UnixStream::connect(path)?))
    }

    fn over(stream: Box<dyn Stream>) -> io::Result<Self> {
        stream.set_timeouts(REPLY_TIMEOUT)?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// How many scripts the server has been asked to run so far, under any command that runs them.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[track_caller]
    pub fn script_calls(&mut self) -> u64 {
        let info = self.call(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let is_script = matches!(command, "eval" | "evalsha" | "fcall");
            is_script.then(|| rest.split(',').next()?.parse::<u64>().ok()).flatten()
        };
        info.text().lines().filter_map(calls).sum()
    }

    /// Sends a command and reads its reply. An error reply is a [`Value::Error`].
    ///
    /// # Panics
    ///
    /// If the connection fails or the reply takes too long.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        let reply = self.call_within(args, ANSWERED);
        reply.unwrap_or_else(|error| panic!("{} failed: {error}", show(args)))
    }

    /// How many connections are subscribed to a channel.
    ///
    /// # Panics
    ///
    /// If the connection fails, or the reply takes too long or is not a number.
    #[track_caller]
    pub fn listeners(&mut self, channel: &str) -> i64 {
        self.call(&["PUBSUB", "NUMSUB", channel]).array()[1].int()
    }

    /// Sends a command and reads its reply. An error reply is a [`Value::Error`].
    ///
    /// # Errors
    ///
    /// If the connection fails or the reply takes too long.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.call_within(args, REPLY_TIMEOUT)
    }

    fn call_within<A: AsRef<[u8]>>(&mut self, args: &[A], timeout: Duration) -> io::Result<Value> {
        self.send_bytes(&resp::encode(args))?;
        self.read_within(timeout)?.ok_or_else(timed_out)
    }

    /// Sends a command without reading anything.
    ///
    /// # Panics
    ///
    /// If the connection fails.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.send_bytes(&resp::encode(args))
            .unwrap_or_else(|error| panic!("cannot send {}: {error}", show(args)));
    }

    /// Sends these bytes unchanged.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the next reply or message.
    ///
    /// # Errors
    ///
    /// If the connection fails or no whole value arrives within five seconds.
    pub fn read(&mut self) -> io::Result<Value> {
        self.read_within(REPLY_TIMEOUT)?.ok_or_else(timed_out)
    }

    /// Reads the next reply or message, or returns `None` if no whole value arrives in time.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn read_within(&mut self, timeout: Duration) -> io::Result<Option<Value>> {
        let deadline = Instant::now() + timeout;
        loop {
            let parsed = resp::parse(&self.unread)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no RESP"))?;
            if let Some((value, length)) = parsed {
                self.unread.drain(..length);
                return Ok(Some(value));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_timeouts(left)?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.unread.extend_from_slice(&chunk[..length]),
                // The deadline above decides.
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Subscribes to a channel and waits for the confirmation. From here on use
    /// [`Raw::message_within`].
    ///
    /// # Panics
    ///
    /// If the connection fails.
    #[track_caller]
    pub fn subscribe(&mut self, channel: &str) {
        let confirmation = self.call(&["SUBSCRIBE", channel]);
        assert_eq!(confirmation.array()[0].text(), "subscribe", "{confirmation:?}");
    }

    /// The next published message as channel and payload, or `None` if none arrives in time.
    ///
    /// # Panics
    ///
    /// If the connection fails.
    #[track_caller]
    pub fn message_within(&mut self, timeout: Duration) -> Option<(String, Vec<u8>)> {
        let value = self.read_within(timeout).expect("the subscription's connection")?;
        match value.array() {
            [kind, channel, Value::Bulk(payload)] if kind.text() == "message" => {
                Some((channel.text().to_owned(), payload.clone()))
            }
            other => panic!("expected a message, got {other:?}"),
        }
    }
}

/// The two kinds of connection behind one type.
trait Stream: Read + Write + Debug + Send {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(REPLY_TIMEOUT))
    }
}

impl Stream for UnixStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(REPLY_TIMEOUT))
    }
}

fn timed_out() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn show<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg.as_ref())).collect();
    words.join(" ")
}

/// Whether a key is kept for at least a day after the last use of its lock. It holds the last token or the last kind.
pub fn outlives_users(key: &str) -> bool {
    ["redisson_lock_token:", "fairlock_kind:"].iter().any(|prefix| key.starts_with(prefix))
}
