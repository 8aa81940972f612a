//! Where the server is: fixed, or asked of the Sentinels before each connection.

use super::cluster::Cluster;
use super::dial::{self, Connection, Endpoint, Target, Tls};
use super::login::Login;
use super::route::{self, Route};
use super::sentinels::{Moved, Sentinels};
use super::wire::{self, CallError, Settings, Value};
use crate::base::error::Error;
use crate::settings::config::{Address, Config, SentinelPlace};
use crate::settings::server_checks::{Check, Warning};
use crate::store::{Events, StoreError};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// What a connection is for, if a name has several addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It carries the commands, and the others go where it goes.
    Leads,
    Follows,
}

/// What connections are made to.
pub(crate) enum Place {
    /// One server.
    Fixed(Endpoint),
    /// The server that the Sentinels currently name.
    Sentinels(Arc<Sentinels>),
    /// Any node of a Cluster, for messages that go to all.
    Anywhere(Weak<Cluster>),
}

impl Place {
    /// # Errors
    /// The settings name no server that this build can connect to.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, Error> {
        let login = Arc::new(Login::of_servers(config));
        let tls = dial::tls(config)?;
        let place = match &config.address {
            Address::Tcp { host, port } => {
                let target = Target::Tcp(host.clone(), *port);
                let route = Route::new(route::looks(), config.connect_timeout);
                Self::Fixed(Endpoint { target, login, tls, route })
            }
            Address::Unix(path) => {
                let target = Target::Unix(path.clone());
                let route = Route::new(route::looks(), config.connect_timeout);
                Self::Fixed(Endpoint { target, login, tls, route })
            }
            Address::Sentinel(place) => {
                Self::Sentinels(Arc::new(sentinels(config, place, login, tls)))
            }
            Address::Cluster(_) => {
                return Err(Error::misuse("a Cluster is no one server"));
            }
            Address::Memory | Address::SharedMemory(_) => {
                return Err(Error::misuse("`memory:` is no server"));
            }
            Address::Sqlite { .. } => return Err(Error::misuse("`sqlite:` is no server")),
        };
        Ok(Arc::new(place))
    }

    /// A new connection to the current server, which `moves` knows from then on. The caller bounds
    /// the time.
    pub(crate) async fn connect(
        &self,
        part: Part,
        config: Settings,
        moves: &mut Moves,
    ) -> Result<Connection, StoreError> {
        let (mut conn, target) = match self {
            Self::Fixed(endpoint) => {
                let conn = match part {
                    Part::Leads => endpoint.lead(config).await?,
                    Part::Follows => endpoint.follow(config).await?,
                };
                (conn, endpoint.target.clone())
            }
            Self::Sentinels(sentinels) => {
                let master = sentinels.master().await?;
                (master.connect(config).await?, master.target)
            }
            Self::Anywhere(cluster) => {
                let node = anywhere(cluster)?;
                (node.connect(config).await?, node.target)
            }
        };
        self.accept(&mut conn).await?;
        moves.at = Some(target);
        Ok(conn)
    }

    /// Checks that the server behind a new connection is the right one: the one that Sentinels name
    /// may have become a replica.
    async fn accept(&self, conn: &mut Connection) -> Result<(), StoreError> {
        if !matches!(self, Self::Sentinels(_)) {
            return Ok(());
        }
        let role = conn.call(&wire::cmd("ROLE")).await;
        let role = role.and_then(Value::extract_error);
        match role.map_err(|error| super::classify::classify(&error))? {
            Value::Array(words) if words.first().is_some_and(|word| says(word, b"master")) => {
                Ok(())
            }
            _ => Err(dial::own(StoreError::unavailable(
                "the Sentinels name it as the master, but it says that it is a replica".into(),
                false,
            ))),
        }
    }

    /// Problems with logins and Sentinels that were found at the last connection and did not
    /// prevent it.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let logins = match self {
            Self::Fixed(endpoint) => vec![&*endpoint.login],
            Self::Sentinels(sentinels) => vec![sentinels.login(), sentinels.own_login()],
            Self::Anywhere(_) => Vec::new(),
        };
        let of_sentinels = match self {
            Self::Sentinels(sentinels) => sentinels.warning(),
            _ => None,
        };
        logins.into_iter().flat_map(Login::warnings).chain(of_sentinels).collect()
    }

    /// Notifies that the connection belongs elsewhere now.
    pub(crate) fn moves(&self, part: Part) -> Moves {
        let news = match self {
            Self::Fixed(_) if part == Part::Leads => News::None,
            Self::Fixed(endpoint) => News::Any(endpoint.route.moves()),
            Self::Sentinels(sentinels) => News::Announced(sentinels.moves()),
            // It may be the node that has left.
            Self::Anywhere(cluster) => match cluster.upgrade() {
                Some(cluster) => News::Any(cluster.departures()),
                None => News::None,
            },
        };
        Moves { news, at: None }
    }

    /// Whether a connection that led to `from`, and leads to `at` now, belongs elsewhere, or soon will.
    pub(crate) async fn is_moving(&self, from: Option<&Target>, at: Option<&Target>) -> bool {
        match self {
            Self::Sentinels(sentinels) => match at {
                Some(at) => sentinels.is_moving(at, from != Some(at)).await,
                None => true,
            },
            _ => false,
        }
    }

    /// Listens to the Sentinels, forever.
    pub(crate) async fn watch(self: Arc<Self>, events: Events) {
        if let Self::Sentinels(sentinels) = &*self {
            Arc::clone(sentinels).watch(events).await;
        }
    }

    /// Whether a server's refusal means that it is no longer the master, and there may be another.
    /// A server with one address may become a master again.
    pub(crate) fn is_over(&self, error: &CallError) -> bool {
        let has_others = match self {
            Self::Sentinels(_) => true,
            Self::Fixed(endpoint) => endpoint.route.has_several(),
            Self::Anywhere(_) => false,
        };
        has_others && super::classify::is_read_only(error)
    }

    /// An attempt to connect took too long.
    pub(crate) fn late(&self) -> StoreError {
        let encrypted = match self {
            Self::Fixed(endpoint) => endpoint.tls.is_some(),
            Self::Sentinels(sentinels) => sentinels.is_encrypted(),
            Self::Anywhere(cluster) => cluster.upgrade().is_some_and(|all| all.is_encrypted()),
        };
        dial::late(encrypted)
    }

    /// Adds to the failure of an attempt to connect where it led to.
    pub(crate) fn at(&self, failure: StoreError) -> StoreError {
        let (place, login) = match self {
            // The Cluster's own links tell more.
            Self::Anywhere(_) => {
                return StoreError { error: failure.error.at("a node of the Cluster"), ..failure };
            }
            Self::Fixed(endpoint) => (endpoint.target.to_string(), &*endpoint.login),
            Self::Sentinels(sentinels) => (sentinels.describe(), sentinels.login()),
        };
        let failure = login.judge(failure);
        StoreError { error: failure.error.at(place), ..failure }
    }
}

/// Announcements that the master has moved, for one connection.
pub(crate) struct Moves {
    news: News,
    /// The server of the connection; `None` while there is none.
    at: Option<Target>,
}

enum News {
    /// The server is fixed.
    None,
    Announced(watch::Receiver<Moved>),
    /// Every one concerns the connection: a node has left, maybe this one, or the command
    /// connection has gone to another address.
    Any(watch::Receiver<u64>),
}

impl Moves {
    /// The server of the connection.
    pub(crate) fn at(&self) -> Option<Target> {
        self.at.clone()
    }

    /// Forgets earlier announcements: Sentinels that are asked for the master from now on know of
    /// them.
    pub(crate) fn forget(&mut self) {
        self.at = None;
        match &mut self.news {
            News::None => {}
            News::Announced(moves) => moves.mark_unchanged(),
            News::Any(moves) => moves.mark_unchanged(),
        }
    }

    /// Resolves at the next announcement, or at once if one came since [`Self::forget`]; never if
    /// the server is fixed. An announcement of the server that the connection already leads to does
    /// not count: each Sentinel announces a new master by itself, seconds after it has begun to
    /// name it. A client that left a good connection for that had no inbox when its turn came.
    pub(crate) async fn next(&mut self) {
        // The senders live as long as the connections' tasks do.
        let heard = match &mut self.news {
            News::None => false,
            News::Any(moves) => moves.changed().await.is_ok(),
            News::Announced(moves) => loop {
                if moves.changed().await.is_err() {
                    break false;
                }
                let to = &moves.borrow_and_update().to;
                if to.is_none() || *to != self.at {
                    break true;
                }
            },
        };
        if !heard {
            std::future::pending::<()>().await;
        }
    }
}

fn says(word: &Value, expected: &[u8]) -> bool {
    match word {
        Value::BulkString(bytes) => bytes == expected,
        Value::SimpleString(text) => text.as_bytes() == expected,
        _ => false,
    }
}

fn sentinels(
    config: &Config,
    place: &SentinelPlace,
    of_master: Arc<Login>,
    tls: Option<Arc<Tls>>,
) -> Sentinels {
    // Two connections of the client ask after each loss. An answer that takes half of the time for
    // a connection leaves the other half for the connection itself.
    let patience: Duration = config.connect_timeout / 2;
    let own_login = Arc::new(Login::of_sentinels(config));
    let looks = route::looks();
    let endpoint = |(host, port): &(String, u16)| {
        let target = Target::Tcp(host.clone(), *port);
        let route = Route::new(Arc::clone(&looks), patience);
        Endpoint { target, login: Arc::clone(&own_login), tls: tls.clone(), route }
    };
    let endpoints = place.sentinels.iter().map(endpoint).collect();
    let of_master = (of_master, tls, looks);
    let on_minority = config.on.to(Check::Sentinels);
    Sentinels::new(endpoints, own_login, place.master.clone(), of_master, patience, on_minority)
}

/// Some connected node.
fn anywhere(cluster: &Weak<Cluster>) -> Result<Endpoint, StoreError> {
    let cluster = cluster.upgrade();
    let endpoint = cluster.and_then(|cluster| Some(cluster.endpoint(&cluster.any()?.addr)));
    endpoint.ok_or_else(|| StoreError::unavailable("no node is connected".into(), false))
}
