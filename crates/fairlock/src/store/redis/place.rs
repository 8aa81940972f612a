//! Where the server is: known from the start, or asked of Sentinels before each connection.

use super::login::Login;
use super::sentinels::Sentinels;
use crate::config::{Address, Config, SentinelPlace};
use crate::error::Error;
use crate::store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What connections are made to.
pub(crate) enum Place {
    /// One server.
    Fixed { addr: ConnectionAddr, login: Login },
    /// Whatever server the Sentinels name at the time.
    Sentinels(Sentinels),
}

impl Place {
    /// # Errors
    /// When the settings cannot name a server.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, Error> {
        let login = Login::of_servers(config);
        let place = match &config.address {
            Address::Tcp { host, port } => {
                Self::Fixed { addr: ConnectionAddr::Tcp(host.clone(), *port), login }
            }
            Address::Unix(path) => Self::Fixed { addr: ConnectionAddr::Unix(path.clone()), login },
            Address::Sentinel(place) => Self::Sentinels(sentinels(config, place, login)),
            Address::Cluster(_) => {
                return Err(Error::misuse("Cluster is not built yet: its locks cannot be used"));
            }
            Address::Memory => return Err(Error::misuse("`memory:` is no server")),
            Address::Sqlite { .. } => return Err(Error::misuse("`sqlite:` is no server")),
        };
        Ok(Arc::new(place))
    }

    /// The client of redis-rs for the server to connect to now.
    pub(crate) async fn client(&self) -> Result<Client, StoreError> {
        match self {
            Self::Fixed { addr, login } => client(addr.clone(), login.now().await?),
            Self::Sentinels(sentinels) => sentinels.master().await,
        }
    }

    /// Whether the server behind a new connection is the one to talk to: what Sentinels name may
    /// have become a replica meanwhile.
    pub(crate) async fn accept(&self, conn: &mut MultiplexedConnection) -> Result<(), StoreError> {
        if matches!(self, Self::Fixed { .. }) {
            return Ok(());
        }
        let role = conn.send_packed_command(&redis::cmd("ROLE")).await;
        let role = role.and_then(Value::extract_error);
        match role.map_err(|error| super::classify::classify(&error))? {
            Value::Array(words) if words.first().is_some_and(|word| says(word, b"master")) => {
                Ok(())
            }
            _ => Err(StoreError::unavailable(
                "the Sentinels name it as the master, but it says that it is a replica".into(),
                false,
            )),
        }
    }

    /// What tells that the master has moved.
    pub(crate) fn moves(&self) -> Moves {
        match self {
            Self::Fixed { .. } => Moves(None),
            Self::Sentinels(sentinels) => Moves(Some(sentinels.moves())),
        }
    }

    /// Listens to what Sentinels announce, for ever.
    pub(crate) async fn watch(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.watch().await;
        }
    }

    /// Whether a server's refusal says that it is the master no longer. A server that is fixed
    /// may become a master again, and there is no other.
    pub(crate) fn is_over(&self, error: &RedisError) -> bool {
        matches!(self, Self::Sentinels(_)) && super::classify::is_read_only(error)
    }

    /// An attempt to connect failed: says to whom.
    pub(crate) fn at(&self, failure: StoreError) -> StoreError {
        let (place, login) = match self {
            Self::Fixed { addr, login } => (addr.to_string(), login),
            Self::Sentinels(sentinels) => (sentinels.describe(), sentinels.login()),
        };
        let failure = login.judge(failure);
        StoreError { error: failure.error.at(place), ..failure }
    }
}

/// Announcements that the master has moved.
pub(crate) struct Moves(Option<watch::Receiver<u64>>);

impl Moves {
    /// Forgets those that came so far: whoever is asked for the master from now on knows of them.
    pub(crate) fn forget(&mut self) {
        if let Some(moves) = &mut self.0 {
            moves.mark_unchanged();
        }
    }

    /// Resolves at the next one, or at once if one came since [`Self::forget`]; never where the server
    /// is fixed.
    pub(crate) async fn next(&mut self) {
        // The sender lives as long as the connections' tasks do.
        if let Some(moves) = &mut self.0
            && moves.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

fn says(word: &Value, expected: &[u8]) -> bool {
    match word {
        Value::BulkString(bytes) => bytes == expected,
        Value::SimpleString(text) => text.as_bytes() == expected,
        _ => false,
    }
}

fn sentinels(config: &Config, place: &SentinelPlace, of_master: Login) -> Sentinels {
    let addrs = place.sentinels.iter();
    let addrs = addrs.map(|(host, port)| ConnectionAddr::Tcp(host.clone(), *port)).collect();
    // Two connections of the client ask after each loss; an answer that takes half of the time for
    // a connection leaves the other half for the connection.
    let patience: Duration = config.connect_timeout / 2;
    let of_sentinels = Login::of_sentinels(config);
    Sentinels::new(addrs, of_sentinels, place.master.clone(), of_master, patience)
}

/// A client of redis-rs: nothing is sent here.
pub(super) fn client(
    addr: ConnectionAddr,
    login: RedisConnectionInfo,
) -> Result<Client, StoreError> {
    // Small messages that must not wait for each other's acknowledgement.
    let tcp = TcpSettings::default().set_nodelay(true);
    addr.into_connection_info()
        .map(|info| info.set_redis_settings(login).set_tcp_settings(tcp))
        .and_then(Client::open)
        .map_err(|error| Error::misuse(format!("the store's address cannot be used: {error}")))
        .map_err(StoreError::refused)
}
