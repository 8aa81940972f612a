//! Opens connections: the only place where a stream to a server is opened, in every topology.
//!
//! Nothing is sent before a stream is ready, and a host name resolves to the same address for all
//! connections of a client (`route.rs`).

use super::classify::classify;
use super::handshake;
use super::link::made;
use super::login::{Login, Logon};
use super::route::Route;
use super::tapped::{Listener, Tapped};
pub(crate) use super::wire::Connection;
use super::wire::{self, CallError, Settings, Value};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::host_port::HostPort;
use crate::settings::config::Config;
use crate::store::StoreError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => HostPort(host, *port).fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(feature = "tls")]
pub(crate) use super::tls::Tls;

/// What encrypts connections: nothing, in a build without the feature `tls`.
#[cfg(not(feature = "tls"))]
pub(crate) enum Tls {}

/// What encrypts connections according to the settings, if anything.
///
/// # Errors
/// This build cannot encrypt.
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

/// A server, and how to log in to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) login: Arc<Login>,
    /// If set, nothing goes to the server in plain text.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Chooses among the addresses of its name.
    pub(crate) route: Arc<Route>,
}

impl Endpoint {
    /// A new connection for commands, logged in. It chooses the address for all connections of the
    /// client: of several, the first that is not a replica. The caller bounds the time.
    pub(crate) async fn lead(&self, settings: Settings) -> Result<Connection, StoreError> {
        self.dial(&self.login.now().await?, settings, true).await
    }

    /// A connection to the address that the command connection has chosen, or is about to choose.
    /// The caller bounds the time.
    pub(crate) async fn follow(&self, settings: Settings) -> Result<Connection, StoreError> {
        let Some((host, _)) = self.name() else { return self.connect(settings).await };
        let addr = self.route.chosen().await;
        self.at(host, addr, &self.login.now().await?, settings).await
    }

    /// A connection to the first address that can be reached, logged in. The caller bounds the
    /// time.
    pub(crate) async fn connect(&self, settings: Settings) -> Result<Connection, StoreError> {
        self.connect_as(&self.login.now().await?, settings).await
    }

    /// Like [`connect`](Self::connect), with a login that was looked up before.
    pub(crate) async fn connect_as(
        &self,
        login: &Logon,
        settings: Settings,
    ) -> Result<Connection, StoreError> {
        self.dial(login, settings, false).await
    }

    /// The name to look up; `None` for an address, which leaves no choice.
    fn name(&self) -> Option<(&str, u16)> {
        match &self.target {
            Target::Tcp(host, port) if host.parse::<std::net::IpAddr>().is_err() => {
                #[cfg(feature = "_testkit")]
                #[cfg(test)]
                if super::simulation::is_simulated(host) {
                    return None;
                }
                Some((host, *port))
            }
            _ => None,
        }
    }

    async fn dial(
        &self,
        login: &Logon,
        settings: Settings,
        leads: bool,
    ) -> Result<Connection, StoreError> {
        let (host, port) = match &self.target {
            Target::Unix(path) => {
                let stream = unix(path).await?;
                return made(logged_in(stream, login, settings).await);
            }
            Target::Tcp(host, port) => (host, *port),
        };
        #[cfg(feature = "_testkit")]
        #[cfg(test)]
        if let Some(stream) = super::simulation::stream_to(host) {
            let stream = stream.await.map_err(|error| unreached(error.into()))?;
            return plain(stream, login, settings).await;
        }
        let addrs = self.route.addresses(host, port).await?;
        if let [only] = addrs[..] {
            let conn = self.at(host, only, login, settings).await?;
            if leads {
                self.route.choose(only);
            }
            return Ok(conn);
        }
        let until = Moment::now().plus(self.route.patience);
        let (mut replica, mut failure) = (None, None);
        for (addr, left) in addrs.iter().zip((1..=addrs.len() as u32).rev()) {
            let attempt = async {
                let mut conn = self.at(host, *addr, login, settings.clone()).await?;
                let is_replica = leads && is_replica(&mut conn).await?;
                Ok((conn, is_replica))
            };
            // A dead address must not use up the time of the others.
            let attempt = tokio::time::timeout(until.left() / left, attempt).await;
            match attempt.unwrap_or_else(|_| Err(late(self.tls.is_some()))) {
                Ok((conn, false)) => {
                    if leads {
                        self.route.choose(*addr);
                    }
                    return Ok(conn);
                }
                Ok((conn, true)) => replica = replica.or(Some((conn, *addr))),
                // A server is there and refuses; the next address would be another server.
                Err(refused) if !refused.passing => return Err(at_address(addr, refused)),
                Err(unreached) => {
                    failure = failure.or_else(|| Some(at_address(addr, unreached)));
                }
            }
        }
        if let Some((conn, addr)) = replica {
            // The checks of the server decide whether a replica may be used.
            self.route.choose(addr);
            return Ok(conn);
        }
        Err(failure
            .unwrap_or_else(|| StoreError::unavailable("the host has no address".into(), false)))
    }

    /// A new connection to one of the addresses of the host.
    async fn at(
        &self,
        host: &str,
        addr: SocketAddr,
        login: &Logon,
        settings: Settings,
    ) -> Result<Connection, StoreError> {
        let stream = tcp(addr).await.map_err(unreached)?;
        match &self.tls {
            None => plain(stream, login, settings).await,
            Some(tls) => encrypted(tls, host, stream, login, settings).await,
        }
    }
}

/// Adds to the failure which one of a name's several addresses was tried.
fn at_address(addr: &SocketAddr, failure: StoreError) -> StoreError {
    StoreError { error: failure.error.at(addr), ..failure }
}

/// `HELLO` needs no permission. A server that does not report its role is not a replica.
async fn is_replica(conn: &mut Connection) -> Result<bool, StoreError> {
    let hello = made(conn.call(&wire::cmd("HELLO")).await)?;
    let hello = hello.extract_error().unwrap_or(Value::Nil);
    Ok(handshake::field(&hello, "role").is_some_and(|role| role != "master"))
}

async fn plain<S>(stream: S, login: &Logon, settings: Settings) -> Result<Connection, StoreError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let opening = Arc::new(Opening::default());
    let stream = Tapped::new(stream, Sniffer::new(&opening));
    let connected = logged_in(stream, login, settings).await;
    opening.judge(connected, made)
}

#[cfg(feature = "tls")]
async fn encrypted(
    tls: &Tls,
    host: &str,
    stream: TcpStream,
    login: &Logon,
    settings: Settings,
) -> Result<Connection, StoreError> {
    let (stream, ends) = tls.over(host, stream).await?;
    let opening = Arc::new(Opening::default());
    let stream = Tapped::new(stream, Sniffer::new(&opening));
    let connected = logged_in(stream, login, settings).await;
    opening.judge(connected, |connected| connected.map_err(|error| ends.of_login(error)))
}

#[cfg(not(feature = "tls"))]
async fn encrypted(
    tls: &Tls,
    _: &str,
    _: TcpStream,
    _: &Logon,
    _: Settings,
) -> Result<Connection, StoreError> {
    match *tls {}
}

/// A server has not answered in time.
pub(crate) fn late(encrypted: bool) -> StoreError {
    // A Redis server takes a TLS handshake for the beginning of a long line, and waits for its end.
    let hint = if encrypted {
        "; does the server speak TLS on this port? One that does not may never answer (`redis://` is \
         for those)"
    } else {
        "; does a Redis or Valkey server listen there, and without TLS (`rediss://` is for those with it)?"
    };
    own(StoreError::unavailable(format!("connecting took too long{hint}"), false))
}

/// Marks a failure that quotes no other program.
pub(super) fn own(failure: StoreError) -> StoreError {
    StoreError { error: failure.error.quoting(""), ..failure }
}

/// Nobody was reached, so nothing was sent.
fn unreached(error: CallError) -> StoreError {
    StoreError { doubt: false, ..classify(&error) }
}

async fn tcp(addr: SocketAddr) -> Result<TcpStream, CallError> {
    let stream = TcpStream::connect(addr).await?;
    // Small messages must not wait for each other's acknowledgement.
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(unix)]
async fn unix(path: &std::path::Path) -> Result<tokio::net::UnixStream, StoreError> {
    tokio::net::UnixStream::connect(path).await.map_err(|error| unreached(error.into()))
}

#[cfg(not(unix))]
async fn unix(_: &std::path::Path) -> Result<TcpStream, StoreError> {
    Err(StoreError::refused(Error::misuse("this system has no Unix sockets")))
}

/// The first bytes from a stream: enough to tell what is there, if it is not a Redis or Valkey
/// server.
#[derive(Default)]
struct Opening(OnceLock<Vec<u8>>);

impl Opening {
    /// How a TLS server begins a refusal: an alert, of any version.
    const ALERT: [u8; 2] = [0x15, 0x03];

    /// How many bytes are kept, and shown.
    const BYTES_MAX: usize = 24;

    /// Why there is no connection. Recognizes answers that no Redis or Valkey server gives.
    fn judge<T>(
        &self,
        connected: Result<T, CallError>,
        otherwise: impl FnOnce(Result<T, CallError>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let heard = self.0.get().map_or(&[][..], Vec::as_slice);
        let refused = |kind, message: &str, said: &str| {
            Err(StoreError::refused(Error::new(kind, message.to_owned()).quoting(said)))
        };
        if connected.is_ok() {
            return otherwise(connected);
        }
        if heard.starts_with(&Self::ALERT) {
            let message =
                "the server speaks TLS here: use `rediss://`, or the port that is without";
            return refused(ErrorKind::Tls, message, "");
        }
        if heard.starts_with(b"HTTP/") {
            let message =
                "a web server answers here, and no Redis or Valkey server: check host and port";
            return refused(ErrorKind::Protocol, message, "");
        }
        match heard.first() {
            None
            | Some(
                b'+' | b'-' | b':' | b'$' | b'*' | b'%' | b'~' | b'>' | b'_' | b'#' | b',' | b'('
                | b'=' | b'!' | b'|',
            ) => otherwise(connected),
            Some(_) => {
                let said = heard.escape_ascii().to_string();
                let message = format!(
                    "what answers here is no Redis or Valkey server (it begins with `{said}`): check host and port"
                );
                refused(ErrorKind::Protocol, &message, &said)
            }
        }
    }
}

/// Records the [`Opening`], once.
struct Sniffer(Option<Arc<Opening>>);

impl Sniffer {
    fn new(opening: &Arc<Opening>) -> Self {
        Self(Some(Arc::clone(opening)))
    }
}

impl Listener for Sniffer {
    fn heard(&mut self, read: io::Result<&[u8]>) -> io::Result<()> {
        let bytes = read?;
        if !bytes.is_empty()
            && let Some(opening) = self.0.take()
        {
            // Empty until now: the first bytes take it.
            let _ = opening.0.set(bytes.iter().copied().take(Opening::BYTES_MAX).collect());
        }
        Ok(())
    }
}

/// Asks for RESP3 and logs in, on a stream on which nothing was sent. The caller bounds the time.
async fn logged_in<S>(stream: S, login: &Logon, settings: Settings) -> Result<Connection, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let conn = Connection::over(stream, settings);
    let mut both = wire::pipe();
    let hello = both.cmd("HELLO").arg(3_u8);
    if let Some((user, password)) = &login.credentials {
        hello.arg("AUTH").arg(user).arg(&password.0);
    }
    if login.database != 0 {
        both.cmd("SELECT").arg(login.database);
    }
    let asks = login.credentials.as_ref().filter(|(user, _)| login.needless.is_asked(user));
    if let Some((_, password)) = asks {
        both.cmd("AUTH").arg(&password.0);
    }
    let mut replies = conn.call_all(&both).await?;
    let asked = asks.and_then(|_| replies.pop());
    for reply in replies {
        reply.extract_error()?;
    }
    if let Some(reply) = asked {
        login.needless.note(reply.extract_error())?;
    }
    Ok(conn)
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
