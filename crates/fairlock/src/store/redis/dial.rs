//! Makes connections: the one place where a stream to a server is opened, whatever the topology.
//!
//! The streams are ours rather than redis-rs's: what is sent before a stream is ready is decided
//! here, and each connection asks for the server's address anew.

use super::bounded::Heard;
use super::classify::classify;
use super::link::made;
use super::login::Login;
use super::tapped::{Listener, Tapped};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind as Kind, RedisConnectionInfo, RedisError};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(feature = "tls")]
pub(crate) use super::tls::Tls;

/// What encrypts connections: nothing, in a build without the feature `tls`.
#[cfg(not(feature = "tls"))]
pub(crate) enum Tls {}

/// What the settings want connections to be encrypted with, if anything.
///
/// # Errors
/// When this build cannot.
pub(crate) fn tls(config: &Config) -> Result<Option<Arc<Tls>>, Error> {
    let Some(settings) = &config.tls else { return Ok(None) };
    #[cfg(feature = "tls")]
    return Ok(Some(Arc::new(Tls::new(settings.clone()))));
    #[cfg(not(feature = "tls"))]
    {
        let _ = settings;
        Err(Error::misuse(
            "this build of fairlock is without the `tls` feature, so that it cannot make encrypted \
             connections (`rediss://`); add `tls` to the features of `fairlock` in Cargo.toml",
        ))
    }
}

/// A server, and who connects to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) login: Arc<Login>,
    /// With it, nothing goes to the server in plain text.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Endpoint {
    /// A new connection, logged in. The caller bounds the time.
    pub(crate) async fn connect(
        &self,
        config: AsyncConnectionConfig,
    ) -> Result<Connection, StoreError> {
        self.connect_as(&self.login.now().await?, config).await
    }

    /// The same with a login that was looked up before.
    pub(crate) async fn connect_as(
        &self,
        login: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<Connection, StoreError> {
        match &self.target {
            Target::Tcp(host, port) => {
                #[cfg(all(test, feature = "test-util"))]
                if let Some(stream) = super::simulation::stream_to(host) {
                    let stream = stream.await.map_err(|error| unreached(error.into()))?;
                    return plain(stream, login, config).await;
                }
                let stream = tcp(host, *port).await.map_err(unreached)?;
                match &self.tls {
                    None => plain(stream, login, config).await,
                    Some(tls) => encrypted(tls, host, stream, login, config).await,
                }
            }
            Target::Unix(path) => {
                let stream = unix(path).await.map_err(unreached)?;
                made(Connection::over(stream, login, config).await)
            }
        }
    }
}

async fn plain<S>(
    stream: S,
    login: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<Connection, StoreError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let opening = Arc::new(Opening::default());
    let stream = Tapped::new(stream, Sniffer(Some(Arc::clone(&opening))));
    let connected = Connection::over(stream, login, config).await;
    if connected.is_err() && opening.0.get() == Some(&Opening::ALERT) {
        let message = "the server speaks TLS here: use `rediss://`, or the port that is without";
        return Err(StoreError::refused(Error::new(ErrorKind::Tls, message)));
    }
    made(connected)
}

#[cfg(feature = "tls")]
async fn encrypted(
    tls: &Tls,
    host: &str,
    stream: TcpStream,
    login: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<Connection, StoreError> {
    let (stream, ends) = tls.over(host, stream).await?;
    Connection::over(stream, login, config).await.map_err(|error| ends.of_login(error))
}

#[cfg(not(feature = "tls"))]
async fn encrypted(
    tls: &Tls,
    _: &str,
    _: TcpStream,
    _: &RedisConnectionInfo,
    _: AsyncConnectionConfig,
) -> Result<Connection, StoreError> {
    match *tls {}
}

/// A server has not answered in time.
pub(crate) fn late(encrypted: bool) -> StoreError {
    // A Redis server takes a handshake for the beginning of a long line, and waits for its end.
    let hint = if encrypted {
        "; does the server speak TLS on this port? One that does not may never answer (`redis://` is \
         for those)"
    } else {
        ""
    };
    StoreError::unavailable(format!("connecting took too long{hint}"), false)
}

/// Nobody was there to say anything to.
fn unreached(error: RedisError) -> StoreError {
    StoreError { doubt: false, ..classify(&error) }
}

/// To whichever of the host's addresses answers first: one that is dead must not use up the time.
async fn tcp(host: &str, port: u16) -> Result<TcpStream, RedisError> {
    let mut attempts = JoinSet::new();
    for addr in tokio::net::lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(addr));
    }
    let mut failure = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(stream)) => {
                // Small messages that must not wait for each other's acknowledgement.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = Some(error.into()),
            // Nobody aborts an attempt, and connecting does not panic.
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or_else(|| (Kind::Io, "the host has no address").into()))
}

#[cfg(unix)]
async fn unix(path: &std::path::Path) -> Result<tokio::net::UnixStream, RedisError> {
    Ok(tokio::net::UnixStream::connect(path).await?)
}

#[cfg(not(unix))]
async fn unix(_: &std::path::Path) -> Result<TcpStream, RedisError> {
    Err((Kind::InvalidClientConfig, "this system has no Unix sockets").into())
}

/// What came first on a stream without TLS: enough to know a server that wants it.
#[derive(Default)]
struct Opening(OnceLock<[u8; 2]>);

impl Opening {
    /// How a record begins with which a server of TLS refuses: an alert, of any version.
    const ALERT: [u8; 2] = [0x15, 0x03];
}

/// Notes it, unless that was done.
struct Sniffer(Option<Arc<Opening>>);

impl Listener for Sniffer {
    fn heard(&mut self, read: io::Result<&[u8]>) -> io::Result<()> {
        if let &[first, ref more @ ..] = read?
            && let Some(opening) = self.0.take()
        {
            // Empty until now: it is taken with its first bytes.
            let _ = opening.0.set([first, more.first().copied().unwrap_or(0)]);
        }
        Ok(())
    }
}

/// A connection of redis-rs, with the task that moves its bytes; both end with the last clone.
#[derive(Clone)]
pub(crate) struct Connection {
    calls: MultiplexedConnection,
    _driver: Arc<Driver>,
}

struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Says hello and logs in on a stream that nothing was sent on.
    async fn over<S>(
        stream: S,
        login: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<Self, RedisError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // No server makes us keep more than we asked for.
        let stream = Tapped::new(stream, Heard::default());
        let (calls, driver) = MultiplexedConnection::new_with_config(login, stream, config).await?;
        let driver = Driver(tokio::spawn(driver).abort_handle());
        Ok(Self { calls, _driver: Arc::new(driver) })
    }
}

impl Deref for Connection {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.calls
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_like_their_urls() {
        let shown = |host: &str| Target::Tcp(host.into(), 7000).to_string();
        assert_eq!(shown("db.example"), "db.example:7000");
        assert_eq!(shown("::1"), "[::1]:7000");
        assert_eq!(Target::Unix("/run/r.sock".into()).to_string(), "/run/r.sock");
    }
}
