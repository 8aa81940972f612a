//! The Sentinels of a set: who is the master, and when does that change.
//!
//! All are asked at once, because a dead one answers nothing and one that was cut off names the old
//! master. The answer with the highest configuration epoch counts: an epoch is used for one
//! failover only, and a majority of the Sentinels had to agree to it (Redis, "Sentinel spec").

use super::classify::classify;
use super::dial::{self, Endpoint, Target, Tls};
use super::link::made;
use super::login::Login;
use crate::backoff::Backoff;
use crate::clock::lock;
use crate::error::{Error, ErrorKind};
use crate::store::StoreError;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// After a majority has answered the others get this long: one that is merely slow may know of a
/// later failover, one that is dead should not cost the whole patience.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// A ping of the connection on which a Sentinel announces failovers: often enough for NAT and
/// half-open connections. What is missed meanwhile, the commands' own connection notices.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Where Sentinels announce that a master has moved.
const SWITCHED: &str = "+switch-master";

/// The Sentinels, and the master's name.
pub(crate) struct Sentinels {
    endpoints: Vec<Endpoint>,
    /// The login of the Sentinels themselves.
    own_login: Arc<Login>,
    master: String,
    /// The login of the master.
    login: Arc<Login>,
    /// What encrypts connections to the master.
    tls: Option<Arc<Tls>>,
    /// How long an answer may take.
    patience: Duration,
    /// Counts announcements that the master has moved.
    moves: watch::Sender<u64>,
    /// The master that was named last, for messages.
    named: Mutex<Option<Target>>,
}

/// What one Sentinel says.
#[derive(Debug)]
struct Named {
    epoch: u64,
    target: Target,
}

/// What one Sentinel's silence means.
#[derive(Debug)]
enum Silence {
    /// It watches no master of that name.
    Unknown,
    Failed(StoreError),
}

impl Sentinels {
    pub(crate) fn new(
        endpoints: Vec<Endpoint>,
        own_login: Arc<Login>,
        master: String,
        (login, tls): (Arc<Login>, Option<Arc<Tls>>),
        patience: Duration,
    ) -> Self {
        let moves = watch::Sender::new(0);
        Self { endpoints, own_login, master, login, tls, patience, moves, named: Mutex::default() }
    }

    /// The present master.
    pub(crate) async fn master(&self) -> Result<Endpoint, StoreError> {
        let named = self.ask().await?;
        *lock(&self.named) = Some(named.target.clone());
        let (login, tls) = (Arc::clone(&self.login), self.tls.clone());
        Ok(Endpoint { target: named.target, login, tls })
    }

    /// The login of the master.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The login at the Sentinels themselves.
    pub(crate) fn own_login(&self) -> &Login {
        &self.own_login
    }

    /// Whether connections are, to the Sentinels and to the master.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Counts the announcements that the master has moved.
    pub(crate) fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }

    pub(crate) fn describe(&self) -> String {
        match &*lock(&self.named) {
            Some(target) => format!("{target}, named as master `{}` by the Sentinels", self.master),
            None => format!("the Sentinels of `{}`", self.master),
        }
    }

    async fn ask(&self) -> Result<Named, StoreError> {
        let mut asked = JoinSet::new();
        // One look at the password for all of them.
        let login = self.own_login.now().await?;
        for endpoint in &self.endpoints {
            let (endpoint, login) = (endpoint.clone(), login.clone());
            let (master, patience) = (self.master.clone(), self.patience);
            asked.spawn(async move {
                let place = endpoint.target.to_string();
                let asking = ask(&endpoint, &login, &master);
                let answer = tokio::time::timeout(patience, asking).await;
                let late = dial::late(endpoint.tls.is_some());
                let answer = answer.unwrap_or(Err(Silence::Failed(late)));
                (place, answer)
            });
        }
        let majority = self.endpoints.len() / 2 + 1;
        let mut best: Option<Named> = None;
        let mut answers = 0;
        let mut silences = Vec::new();
        loop {
            let next = if answers >= majority {
                // The set is dropped, and what is under way with it.
                tokio::time::timeout(STRAGGLERS, asked.join_next()).await.unwrap_or(None)
            } else {
                asked.join_next().await
            };
            match next {
                Some(Ok((_, Ok(named)))) => {
                    answers += 1;
                    if best.as_ref().is_none_or(|best| best.epoch < named.epoch) {
                        best = Some(named);
                    }
                }
                Some(Ok((place, Err(silence)))) => silences.push((place, silence)),
                // A task that panicked has said nothing.
                Some(Err(_)) => {}
                None => break,
            }
        }
        best.ok_or_else(|| self.nobody_answers(&silences))
    }

    fn nobody_answers(&self, silences: &[(String, Silence)]) -> StoreError {
        let unknown = silences.iter().any(|(_, silence)| matches!(silence, Silence::Unknown));
        if unknown {
            let message = format!(
                "the Sentinels watch no master named `{}`; `SENTINEL MASTERS` lists those they do",
                self.master
            );
            // A Sentinel that was just reset learns the name again.
            let error = Error::new(ErrorKind::Unavailable, message);
            return StoreError { error, doubt: false, passing: false };
        }
        let mut told = silences.iter().filter_map(|(place, silence)| match silence {
            Silence::Failed(failure) => Some((place, failure)),
            Silence::Unknown => None,
        });
        let Some((place, failure)) = told.next() else {
            return StoreError::unavailable("no Sentinel answers".into(), false);
        };
        let others = told.count();
        let error = failure.error.clone().at(format!("no Sentinel names a master; {place}"));
        let error = if others > 0 { error.at(format!("{} Sentinels", others + 1)) } else { error };
        let failure = StoreError { error, doubt: false, passing: failure.passing };
        self.own_login.judge(failure)
    }

    /// Listens to announcements on one Sentinel at a time, for ever.
    pub(crate) async fn watch(&self) {
        let mut backoff = Backoff::default();
        for endpoint in self.endpoints.iter().cycle() {
            let began = crate::clock::Moment::now();
            self.listen(endpoint).await;
            backoff.settle(crate::clock::Moment::now().since(began));
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Returns when the connection is lost.
    async fn listen(&self, endpoint: &Endpoint) {
        let lost = Arc::new(Notify::new());
        let (tell, moves, master) = (Arc::clone(&lost), self.moves.clone(), self.master.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience))
            .set_push_sender(move |push: PushInfo| {
                match push.kind {
                    PushKind::Disconnection => tell.notify_one(),
                    PushKind::Message if is_of(&push.data, &master) => {
                        moves.send_modify(|count| *count += 1);
                    }
                    _ => {}
                }
                Ok::<(), Infallible>(())
            });
        let connect = async {
            let mut conn = endpoint.connect(config).await?;
            made(conn.subscribe(SWITCHED).await)?;
            Ok::<_, StoreError>(conn)
        };
        let Ok(Ok(mut conn)) = tokio::time::timeout(self.patience, connect).await else { return };
        loop {
            if conn.send_packed_command(&redis::cmd("PING")).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                () = lost.notified() => return,
                () = tokio::time::sleep(PING_INTERVAL) => {}
            }
        }
    }
}

/// Whether an announcement is of the master `name`: `<name> <old host> <old port> <host> <port>`.
pub(super) fn is_of(data: &[Value], name: &str) -> bool {
    match data {
        [_, Value::BulkString(text)] => {
            text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b' '))
        }
        _ => false,
    }
}

async fn ask(
    endpoint: &Endpoint,
    login: &RedisConnectionInfo,
    master: &str,
) -> Result<Named, Silence> {
    let failed = |error: RedisError| Silence::Failed(classify(&error));
    let config = AsyncConnectionConfig::new();
    let conn = endpoint.connect_as(login, config).await;
    let mut conn = conn.map_err(Silence::Failed)?;
    // The first has the epoch. The second is what knows the new master already while its failover
    // goes on; only then the announcement and the first follow.
    let mut both = redis::pipe();
    both.cmd("SENTINEL").arg("MASTER").arg(master);
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let replies = conn.send_packed_commands(&both, 0, 2).await.map_err(failed)?;
    let mut read = Vec::new();
    for reply in replies {
        match reply.extract_error() {
            Ok(reply) => read.push(reply),
            Err(error) if error.to_string().contains("No such master") => {
                return Err(Silence::Unknown);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let named = match &read[..] {
        [of_master, addr] => epoch(of_master).zip(address(addr)),
        _ => None,
    };
    named.map(|(epoch, target)| Named { epoch, target }).ok_or_else(|| {
        let message = "its answer to SENTINEL names no address; is it a Sentinel?";
        Silence::Failed(StoreError::refused(Error::new(ErrorKind::Protocol, message)))
    })
}

/// The epoch in a reply to `SENTINEL MASTER`: fields and values, as a map or one after the other.
pub(super) fn epoch(reply: &Value) -> Option<u64> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Map(pairs) => pairs.iter().map(|(field, value)| (field, value)).collect(),
        Value::Array(words) => words.chunks_exact(2).map(|two| (&two[0], &two[1])).collect(),
        _ => return None,
    };
    pairs.iter().find_map(|(field, value)| {
        (text(field)? == "config-epoch").then(|| text(value)?.parse().ok()).flatten()
    })
}

/// A reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`.
pub(super) fn address(reply: &Value) -> Option<Target> {
    let Value::Array(words) = reply else { return None };
    let [host, port] = &words[..] else { return None };
    let (host, port) = (text(host)?, text(port)?.parse().ok()?);
    (!host.is_empty() && port > 0).then(|| Target::Tcp(host.to_owned(), port))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn list(words: &[&str]) -> Value {
        Value::Array(words.iter().map(|word| bulk(word)).collect())
    }

    #[test]
    fn an_epoch_is_read_from_a_map_and_from_a_list() {
        let words = ["name", "locks", "ip", "10.0.0.7", "config-epoch", "12"];
        let pairs = words.chunks_exact(2).map(|two| (bulk(two[0]), bulk(two[1])));
        for reply in [list(&words), Value::Map(pairs.collect())] {
            assert_eq!(epoch(&reply), Some(12));
        }
        for words in [&["ip", "h"][..], &["config-epoch", "-1"], &["config-epoch"], &[]] {
            assert_eq!(epoch(&list(words)), None, "{words:?}");
        }
        assert_eq!(epoch(&Value::Nil), None);
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let expected = Target::Tcp("10.0.0.7".into(), 7000);
        assert_eq!(address(&list(&["10.0.0.7", "7000"])), Some(expected));
        for words in [&["h"][..], &["", "1"], &["h", "0"], &["h", "70000"], &["h", "1", "2"], &[]] {
            assert_eq!(address(&list(words)), None, "{words:?}");
        }
        assert_eq!(address(&Value::Nil), None);
    }

    #[test]
    fn announcements_of_other_masters_are_not_ours() {
        let announced = |text: &str| is_of(&[bulk(SWITCHED), bulk(text)], "locks");
        assert!(announced("locks 10.0.0.7 7000 10.0.0.8 7000"));
        assert!(!announced("locks2 10.0.0.7 7000 10.0.0.8 7000"));
        assert!(!announced("locks"));
        assert!(!is_of(&[], "locks"));
    }
}
