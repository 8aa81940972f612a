//! The Sentinels of a set: which server is the master, and when that changes.
//!
//! All of them are asked at once, because a dead one does not answer and one that was cut off names
//! the old master. The answer with the highest configuration epoch counts: an epoch is used for one
//! failover only, and a majority of the Sentinels had to agree to it (Redis, "Sentinel spec").
//!
//! They are asked again while a connection lasts, because an old master that was cut off continues
//! to answer. A client leaves its master if a majority names another one, and warns if there is no
//! majority.

use super::aside::Aside;
use super::classify::{classify, is_permission};
use super::dial::{self, Connection, Endpoint, Target, Tls};
use super::login::{Login, Logon};
use super::route::Route;
use super::wire::{self, CallError, Push, PushKind, Settings, Value};
use crate::base::backoff::Backoff;
use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::settings::server_checks::{Check, Reaction, Warning};
use crate::store::{Event, Events, StoreError};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// After a majority has answered, the others get this long: a slow one may know of a later
/// failover, and a dead one should not cost the whole timeout.
const LATECOMERS: Duration = Duration::from_millis(100);

/// How often each Sentinel is asked while a connection to the master lasts. Announcements arrive at
/// once; this query finds what a Sentinel could not announce, and also serves as a ping on its
/// connection.
const LOOK: Duration = Duration::from_secs(5);

/// How long a majority must name another master, without knowing of a later failover, before it is
/// believed: two looks.
const OUTVOTED: Duration = LOOK.saturating_mul(2);

/// The channel on which Sentinels announce that a master has moved.
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
    /// Looks up the names of masters.
    looks: Arc<Aside>,
    /// How long an answer may take.
    patience: Duration,
    /// The last announcement of where the master has moved.
    moves: watch::Sender<Moved>,
    /// The master that was named last, to which connections are made.
    named: Mutex<Option<Named>>,
    /// The last answer of each Sentinel, while its connection lasts.
    views: Mutex<Vec<View>>,
    /// Since when a majority has named another master.
    outvoted: Mutex<Option<Moment>>,
    /// How to react to a minority.
    on_minority: Reaction,
    /// Set if only a minority answered the last question.
    minority: Mutex<Option<Warning>>,
}

/// An announcement that the master has moved.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Where to; unknown before the first announcement, and if it cannot be read.
    pub(crate) to: Option<Target>,
}

/// The answer of one Sentinel.
#[derive(Clone, Debug)]
struct Named {
    epoch: u64,
    target: Target,
    /// It is carrying out a failover.
    moving: bool,
}

/// What is known about one Sentinel.
#[derive(Clone, Debug)]
enum View {
    /// It was not reached yet.
    Unknown,
    Silent,
    Says(Named),
}

/// Why one Sentinel names no master.
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
        (login, tls, looks): (Arc<Login>, Option<Arc<Tls>>, Arc<Aside>),
        patience: Duration,
        on_minority: Reaction,
    ) -> Self {
        let moves = watch::Sender::new(Moved::default());
        Self {
            views: Mutex::new(vec![View::Unknown; endpoints.len()]),
            endpoints,
            own_login,
            master,
            login,
            tls,
            looks,
            patience,
            moves,
            named: Mutex::default(),
            outvoted: Mutex::default(),
            on_minority,
            minority: Mutex::default(),
        }
    }

    /// The current master.
    pub(crate) async fn master(&self) -> Result<Endpoint, StoreError> {
        let named = self.ask().await?;
        *lock(&self.named) = Some(named.clone());
        let (login, tls) = (Arc::clone(&self.login), self.tls.clone());
        let route = Route::new(Arc::clone(&self.looks), self.patience);
        Ok(Endpoint { target: named.target, login, tls, route })
    }

    /// Whether the master is another server than `at`, or is being replaced. What the master
    /// answers during a failover, its replacement does not know; and until the failover ends, only
    /// the Sentinel that carries it out reports it. A client that has `followed` is at the
    /// replacement already.
    pub(crate) async fn is_moving(&self, at: &Target, followed: bool) -> bool {
        let Ok(login) = self.own_login.now().await else { return false };
        let mut asked = JoinSet::new();
        for endpoint in &self.endpoints {
            let (endpoint, login) = (endpoint.clone(), login.clone());
            let (master, patience) = (self.master.clone(), self.patience);
            asked.spawn(async move {
                tokio::time::timeout(patience, ask(&endpoint, &login, &master)).await
            });
        }
        let majority = self.majority();
        let (mut answers, mut moving) = (0, false);
        let mut latest: Option<Named> = None;
        loop {
            let next = match answers >= majority {
                true => tokio::time::timeout(LATECOMERS, asked.join_next()).await.unwrap_or(None),
                false => asked.join_next().await,
            };
            match next {
                Some(Ok(Ok(Ok(named)))) => {
                    answers += 1;
                    moving |= named.moving;
                    if latest.as_ref().is_none_or(|latest| latest.epoch < named.epoch) {
                        latest = Some(named);
                    }
                }
                Some(_) => {}
                None => break,
            }
        }
        let Some(latest) = latest else { return false };
        if latest.target != *at {
            // The announcement may come seconds later.
            self.moves.send_replace(Moved { to: Some(latest.target) });
            return true;
        }
        moving && !followed
    }

    /// The login of the master.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The login for the Sentinels themselves.
    pub(crate) fn own_login(&self) -> &Login {
        &self.own_login
    }

    /// Whether connections to the Sentinels and to the master are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Notifies of announcements that the master has moved.
    pub(crate) fn moves(&self) -> watch::Receiver<Moved> {
        self.moves.subscribe()
    }

    pub(crate) fn describe(&self) -> String {
        match &*lock(&self.named) {
            Some(Named { target, .. }) => {
                format!("{target}, named as master `{}` by the Sentinels", self.master)
            }
            None => format!("the Sentinels of `{}`", self.master),
        }
    }

    async fn ask(&self) -> Result<Named, StoreError> {
        let mut asked = JoinSet::new();
        // The password is read once for all of them.
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
        let majority = self.majority();
        let mut best: Option<Named> = None;
        let mut answers = 0;
        let mut silences = Vec::new();
        loop {
            let next = if answers >= majority {
                // Dropping the set ends what is under way.
                tokio::time::timeout(LATECOMERS, asked.join_next()).await.unwrap_or(None)
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
                // A task that panicked has no answer.
                Some(Err(_)) => {}
                None => break,
            }
        }
        let best = best.ok_or_else(|| self.nobody_answers(&silences))?;
        let minority = self.minority(answers);
        lock(&self.minority).clone_from(&minority);
        match minority {
            Some(warning) if self.on_minority == Reaction::Refuse => {
                let name = Check::Sentinels.name();
                let message =
                    format!("{warning}; `on-{name}=warn` in the URL uses the master all the same");
                Err(dial::own(StoreError::unavailable(message, false)))
            }
            _ => Ok(best),
        }
    }

    fn majority(&self) -> usize {
        self.endpoints.len() / 2 + 1
    }

    /// The warning if this many answer.
    fn minority(&self, answers: usize) -> Option<Warning> {
        if answers >= self.majority() || self.on_minority == Reaction::Ignore {
            return None;
        }
        let of = self.endpoints.len();
        let message = format!(
            "{answers} of {of} Sentinels of `{}` can be reached, and no majority: while that lasts this client does \
             not learn of a failover, and may go on with a master that another one has replaced",
            self.master
        );
        Some(Warning::new(Check::Sentinels, message))
    }

    /// The warning from the last question for the master.
    pub(crate) fn warning(&self) -> Option<Warning> {
        lock(&self.minority).clone()
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
        let told = silences.iter().filter_map(|(place, silence)| match silence {
            Silence::Failed(failure) => Some((place, failure)),
            Silence::Unknown => None,
        });
        // A refusal tells more than a Sentinel that is down.
        let refused = told.clone().find(|(_, failure)| !failure.passing);
        let Some((place, failure)) = refused.or_else(|| told.clone().next()) else {
            return StoreError::unavailable("no Sentinel answers".into(), false);
        };
        let others = told.count() - 1;
        let error = failure.error.clone().at(format!("no Sentinel names a master; {place}"));
        let error = if others > 0 { error.at(format!("{} Sentinels", others + 1)) } else { error };
        let failure = StoreError { error, doubt: false, passing: failure.passing };
        self.own_login.judge(failure)
    }

    /// Listens to all Sentinels, forever, and reports findings to `events`.
    pub(crate) async fn watch(self: Arc<Self>, events: Events) {
        let mut all = JoinSet::new();
        for at in 0..self.endpoints.len() {
            all.spawn(Arc::clone(&self).watch_one(at, Arc::clone(&events)));
        }
        // They end with this set.
        while let Some(ended) = all.join_next().await {
            if let Err(ended) = ended
                && let Ok(panic) = ended.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }

    async fn watch_one(self: Arc<Self>, at: usize, events: Events) {
        let mut backoff = Backoff::default();
        loop {
            let began = Moment::now();
            self.listen(at, &events).await;
            self.note_view(at, View::Silent, &events);
            backoff.settle(Moment::now().since(began));
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Returns when the connection is lost.
    async fn listen(&self, at: usize, events: &Events) {
        let lost = Arc::new(Notify::new());
        let (tell, moves, master) = (Arc::clone(&lost), self.moves.clone(), self.master.clone());
        let config = Settings::default().response_timeout(self.patience).on_push(
            move |push: Push| match push.kind {
                PushKind::Disconnection => tell.notify_one(),
                PushKind::Message => {
                    if let Some(moved) = announced(&push.data, &master) {
                        moves.send_replace(moved);
                    }
                }
                _ => {}
            },
        );
        let connected = tokio::time::timeout(self.patience, self.endpoints[at].connect(config));
        let Ok(Ok(mut conn)) = connected.await else { return };
        // Without the permission for announcements, the regular looks remain.
        if let Err(error) = conn.subscribe(SWITCHED.as_bytes()).await
            && !is_permission(&error)
        {
            return;
        }
        loop {
            match named_by(&mut conn, &self.master).await {
                Ok(named) => self.note_view(at, View::Says(named), events),
                // It answers: it has just been reset, or does not let us ask.
                Err(Silence::Unknown) => self.note_view(at, View::Silent, events),
                Err(Silence::Failed(failure)) if !failure.passing => {
                    self.note_view(at, View::Silent, events);
                }
                Err(Silence::Failed(_)) => return,
            }
            tokio::select! {
                biased;
                () = lost.notified() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Whether it has lasted: for some seconds after a failover, most Sentinels may not know of it.
    fn is_outvoted_for_long(&self, outvoted: bool) -> bool {
        let now = Moment::now();
        let mut since = lock(&self.outvoted);
        let lasted = since.is_some_and(|since| now.since(since) >= OUTVOTED);
        *since = if outvoted && !lasted { since.or(Some(now)) } else { None };
        outvoted && lasted
    }

    /// Notes what a Sentinel says now, if anything, and judges what all of them say together.
    fn note_view(&self, at: usize, view: View, events: &Events) {
        let (answers, moved) = {
            let mut all = lock(&self.views);
            all[at] = view;
            let unknown = all.iter().filter(|view| matches!(view, View::Unknown)).count();
            let said = all.iter().filter_map(|view| match view {
                View::Says(named) => Some(named),
                _ => None,
            });
            let views: Vec<&Named> = said.collect();
            let current = lock(&self.named);
            let is_replaced = current.as_ref().is_some_and(|it| is_replaced(it, &views));
            let outvoted =
                current.as_ref().is_some_and(|it| is_outvoted(it, &views, self.majority()));
            let has_moved = is_replaced || self.is_outvoted_for_long(outvoted);
            let moved = current.as_ref().filter(|_| has_moved).map(|it| moved_to(it, &views));
            // A Sentinel that was not reached yet may well answer.
            (views.len() + unknown, moved)
        };
        if let Some(moved) = moved {
            self.moves.send_replace(moved);
        }
        let minority = self.minority(answers);
        let is_new = std::mem::replace(&mut *lock(&self.minority), minority.clone()) != minority;
        if is_new {
            events(Event::Found(Check::Sentinels, minority));
        }
    }
}

/// Whether any Sentinel knows of a later failover to another master: a majority has agreed to it.
fn is_replaced(current: &Named, views: &[&Named]) -> bool {
    views.iter().any(|view| view.epoch > current.epoch && view.target != current.target)
}

/// Whether a majority answers and nobody names the current master: the Sentinels were set up anew,
/// and count from 0. It is not enough that some name another one: Sentinels may use two names for
/// one server.
fn is_outvoted(current: &Named, views: &[&Named], majority: usize) -> bool {
    views.len() >= majority && views.iter().all(|view| view.target != current.target)
}

/// Among the views that do not name the current master: the master that the latest one names.
fn moved_to(current: &Named, views: &[&Named]) -> Moved {
    let others = views.iter().filter(|view| view.target != current.target);
    Moved { to: others.max_by_key(|view| view.epoch).map(|view| view.target.clone()) }
}

/// Reads an announcement about the master `name`: `<name> <old host> <old port> <host> <port>`.
pub(super) fn announced(data: &[Value], name: &str) -> Option<Moved> {
    let [_, Value::BulkString(text)] = data else { return None };
    let rest = text.strip_prefix(name.as_bytes())?.strip_prefix(b" ")?;
    let words: Vec<_> = std::str::from_utf8(rest).unwrap_or_default().split(' ').collect();
    let to = match words[..] {
        [_, _, host, port] => port.parse().ok().map(|port| Target::Tcp(host.to_owned(), port)),
        _ => None,
    };
    Some(Moved { to })
}

async fn ask(endpoint: &Endpoint, login: &Logon, master: &str) -> Result<Named, Silence> {
    let config = Settings::default();
    let conn = endpoint.connect_as(login, config).await;
    named_by(&mut conn.map_err(Silence::Failed)?, master).await
}

/// The master that the Sentinel names.
async fn named_by(conn: &mut Connection, master: &str) -> Result<Named, Silence> {
    let failed = |error: CallError| Silence::Failed(classify(&error));
    // The first has the epoch. The second names the new master while its failover is still under
    // way; the announcement and the first follow only afterwards.
    let mut both = wire::pipe();
    both.cmd("SENTINEL").arg("MASTER").arg(master);
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let replies = conn.call_all(&both).await.map_err(failed)?;
    let mut read = Vec::new();
    for reply in replies {
        match reply.extract_error() {
            Ok(reply) => read.push(reply),
            Err(error) if error.to_string().contains("No such master") => {
                return Err(Silence::Unknown);
            }
            Err(error) if error.to_string().to_lowercase().contains("unknown command") => {
                let message = "it is no Sentinel: use `redis://` for a single server, `redis+cluster://` for a \
                               Cluster, or the port of the Sentinel";
                let error = Error::misuse(message).quoting("");
                return Err(Silence::Failed(StoreError::refused(error)));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let named = match &read[..] {
        [of_master, addr] => epoch(of_master).zip(address(addr)).map(|(epoch, target)| {
            let flags = field(of_master, "flags").unwrap_or_default();
            let moving = flags.split(',').any(|flag| flag == "failover_in_progress");
            Named { epoch, target, moving }
        }),
        _ => None,
    };
    named.ok_or_else(|| {
        let message = "its answer to SENTINEL names no address; is it a Sentinel?";
        Silence::Failed(StoreError::refused(Error::new(ErrorKind::Protocol, message)))
    })
}

/// The epoch in a reply to `SENTINEL MASTER`.
pub(super) fn epoch(reply: &Value) -> Option<u64> {
    field(reply, "config-epoch")?.parse().ok()
}

/// A field of a reply to `SENTINEL MASTER`, whose fields and values come as a map or one after the
/// other.
fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a str> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Map(pairs) => pairs.iter().map(|(field, value)| (field, value)).collect(),
        Value::Array(words) => words.chunks_exact(2).map(|two| (&two[0], &two[1])).collect(),
        _ => return None,
    };
    pairs.iter().find_map(|(field, value)| if text(field)? == name { text(value) } else { None })
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
        let of = |text: &str| announced(&[bulk(SWITCHED), bulk(text)], "locks");
        let to = of("locks 10.0.0.7 7000 10.0.0.8 7001").expect("ours").to;
        assert_eq!(to, Some(Target::Tcp("10.0.0.8".into(), 7001)));
        assert_eq!(of("locks elsewhere").expect("ours").to, None);
        assert!(of("locks2 10.0.0.7 7000 10.0.0.8 7000").is_none());
        assert!(of("locks").is_none());
        assert!(announced(&[], "locks").is_none());
    }

    fn named(epoch: u64, host: &str) -> Named {
        Named { epoch, target: Target::Tcp(host.into(), 7000), moving: false }
    }

    #[test]
    fn d07_a_master_is_left_for_a_later_one_or_by_a_majority() {
        let old = named(3, "old");
        for (views, replaced, outvoted) in [
            (vec![], false, false),
            (vec![named(3, "old")], false, false),
            (vec![named(3, "old"), named(3, "old"), named(3, "old")], false, false),
            // One that knows of a later failover is enough: a majority has agreed to it.
            (vec![named(4, "new")], true, false),
            (vec![named(3, "old"), named(4, "new")], true, false),
            // They were set up anew, and count from 0; or have not heard of the last failover yet.
            (vec![named(0, "new"), named(0, "new")], false, true),
            (vec![named(0, "new")], false, false),
            // One of them has slept since before the last failover; or two names of one server.
            (vec![named(2, "older"), named(3, "old"), named(3, "old")], false, false),
            (vec![named(3, "also-old"), named(3, "also-old"), named(3, "old")], false, false),
            (vec![named(4, "old"), named(4, "old")], false, false),
        ] {
            let views: Vec<_> = views.iter().collect();
            let judged = (is_replaced(&old, &views), is_outvoted(&old, &views, 2));
            assert_eq!(judged, (replaced, outvoted), "{views:?}");
        }
    }
}
