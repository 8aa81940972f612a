//! Makes connections: the one place where a stream to a server is opened, whatever the topology.
//!
//! The streams are ours rather than redis-rs's: what is sent before a stream is ready is decided
//! here, and each connection asks for the server's address anew.

use super::classify::classify;
use super::link::made;
use super::login::Login;
use crate::store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind as Kind, RedisConnectionInfo, RedisError};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
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

/// A server, and who connects to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) login: Arc<Login>,
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
                let stream = tcp(host, *port).await.map_err(unreached)?;
                made(Connection::over(stream, login, config).await)
            }
            Target::Unix(path) => {
                let stream = unix(path).await.map_err(unreached)?;
                made(Connection::over(stream, login, config).await)
            }
        }
    }
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
