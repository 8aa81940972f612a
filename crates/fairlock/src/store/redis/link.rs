//! The command connection: made, pinged while idle, and made again after a loss.

use super::attempt::Attempt;
use super::classify::{classify, is_permission, text};
use super::dial::{Connection, Target};
use super::handshake::Handshake;
use super::keys::Keys;
use super::place::{Moves, Part, Place};
use super::record::Record;
use super::wire::{self, CallError, Settings, Value};
use crate::base::backoff::Backoff;
use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::Config;
use crate::store::{Event, Events, Scope, StoreError};
use fairlock_core::{CoreError, Kind, LockName, Op, TOKEN_TTL_MS, kind_label, kind_of_label};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The command connection and the task that keeps it.
pub(crate) struct Link {
    place: Arc<Place>,
    part: Part,
    handshake: Handshake,
    connect_timeout: Duration,
    response_timeout: Duration,
    ping_interval: Duration,
    ping_timeout: Duration,
    record: Option<Arc<Record>>,
    events: Events,
    current: watch::Sender<Option<Connection>>,
    /// The server behind it, if that can change.
    leads_to: Mutex<Option<Target>>,
    /// There is a new connection. Wakes those who wait in the order of arrival; a `watch` wakes
    /// them in random order.
    made: Notify,
    /// When the server last answered anything: a busy connection needs no ping.
    last_answer: Mutex<Moment>,
    /// A call saw the connection fail.
    broken: Notify,
    /// How often the connection was to be made anew.
    orders: AtomicU64,
    ordered: Notify,
    hurry: Mutex<Option<Hurry>>,
    hurried: Notify,
    attempt: Attempt,
}

/// Somebody depends on the next connection: an attempt to make it takes at most `longest`. It lapses, as the
/// next attempt to reach a server that is far away must not fail because of a hold that is over.
#[derive(Clone, Copy)]
struct Hurry {
    longest: Duration,
    until: Moment,
}

/// The name of the connections in `CLIENT LIST`.
pub(crate) fn connection_name(config: &Config) -> String {
    config.client_name.clone().unwrap_or_else(|| "fairlock".into())
}

impl Link {
    /// The connection for commands.
    pub(crate) fn new(
        place: Arc<Place>,
        config: &Config,
        record: Option<Arc<Record>>,
        events: Events,
    ) -> Arc<Self> {
        Self::with((place, Part::Leads), config, record, events)
    }

    /// Another connection, to wherever the command connection goes.
    pub(crate) fn beside(place: Arc<Place>, config: &Config) -> Arc<Self> {
        Self::with((place, Part::Follows), config, None, Arc::new(|_| {}))
    }

    fn with(
        (place, part): (Arc<Place>, Part),
        config: &Config,
        record: Option<Arc<Record>>,
        events: Events,
    ) -> Arc<Self> {
        Arc::new(Self {
            place,
            part,
            handshake: Handshake::new(config),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            ping_interval: config.ping_interval,
            ping_timeout: config.ping_timeout,
            record,
            events,
            current: watch::Sender::new(None),
            leads_to: Mutex::default(),
            made: Notify::new(),
            last_answer: Mutex::new(Moment::now()),
            broken: Notify::new(),
            orders: AtomicU64::new(0),
            ordered: Notify::new(),
            hurry: Mutex::default(),
            hurried: Notify::new(),
            attempt: Attempt::default(),
        })
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        self.current.borrow().clone()
    }

    pub(crate) fn not_connected(&self) -> StoreError {
        let known = self.attempt.failure();
        known.unwrap_or_else(|| StoreError::unavailable("not connected yet".into(), false))
    }

    pub(crate) async fn first_contact(&self) -> Result<(), Error> {
        self.attempt.first().await
    }

    /// Like [`first_contact`](Self::first_contact), with more attempts until `until`: see
    /// [`Attempt::made`].
    pub(crate) async fn contact(&self, until: Moment) -> Result<(), Error> {
        self.attempt.made(until).await
    }

    pub(crate) async fn ready(&self) {
        loop {
            // Before the look, so that no connection is missed in between.
            let made = self.made.notified();
            if self.current.borrow().is_some() {
                return;
            }
            tokio::select! {
                biased;
                () = made => {}
                () = self.attempt.refused() => return,
            }
        }
    }

    /// The server that commands go to, while there is a connection.
    pub(crate) fn leads_to(&self) -> Option<Target> {
        lock(&self.leads_to).clone()
    }

    /// Whether commands will soon go to another server than `from`, as far as is known.
    pub(crate) async fn is_moving(&self, from: Option<&Target>) -> bool {
        self.place.is_moving(from, self.leads_to().as_ref()).await
    }

    /// Resolves when the server has refused the connection, as it will refuse the next.
    pub(crate) async fn refused(&self) {
        self.attempt.refused().await;
    }

    /// Notes for a day that the lock was last granted as this kind; returns the kind that was noted before.
    pub(crate) async fn note_kind(
        &self,
        name: &LockName,
        kind: Kind,
    ) -> Result<Option<Kind>, StoreError> {
        let conn = self.connection().ok_or_else(|| self.not_connected())?;
        let mut cmd = wire::cmd("SET");
        cmd.arg(Keys::new(name).kind()).arg(kind_label(kind));
        cmd.arg("PX").arg(TOKEN_TTL_MS).arg("GET");
        let reply = conn.call(&cmd).await.and_then(Value::extract_error);
        match reply.map_err(|error| classify(&error))? {
            Value::BulkString(label) => Ok(kind_of_label(&label)),
            _ => Ok(None),
        }
    }

    pub(crate) fn note_answer(&self) {
        *lock(&self.last_answer) = Moment::now();
    }

    pub(crate) fn note_failure(&self, error: &CallError) {
        let cuts = error.is_connection_dropped() || error.is_unrecoverable_error();
        // A caller may hear late of the end of a connection that another has replaced.
        let has_ended = || self.connection().is_none_or(|conn| conn.has_ended());
        if (cuts && has_ended()) || self.place.is_over(error) {
            self.broken.notify_one();
        } else if !cuts && !error.is_timeout() {
            self.note_answer();
        }
    }

    /// Gives up a connection that has been silent since `since`, and lets no attempt to connect take
    /// longer than `longest` for the time of two attempts, or until one has succeeded.
    pub(crate) fn hurry(&self, since: Moment, longest: Duration) {
        let now = Moment::now();
        {
            let mut hurry = lock(&self.hurry);
            if hurry.is_none_or(|other| other.until <= now || longest <= other.longest) {
                *hurry = Some(Hurry { longest, until: now.plus(2 * longest) });
            }
        }
        self.hurried.notify_one();
        if self.current.borrow().is_some() && *lock(&self.last_answer) < since {
            self.broken.notify_one();
        }
    }

    /// Gives up the connection, and one that is being made, and makes another at once: it may lead to
    /// another server.
    pub(crate) fn make_anew(&self) {
        self.orders.fetch_add(1, Ordering::Relaxed);
        if let Some(conn) = self.connection() {
            conn.give_up();
        }
        self.broken.notify_one();
        self.ordered.notify_one();
    }

    /// `time`, or less if somebody is in a hurry.
    fn at_most(&self, time: Duration) -> Duration {
        match *lock(&self.hurry) {
            Some(hurry) if Moment::now() < hurry.until => time.min(hurry.longest),
            _ => time,
        }
    }

    /// Resolves when an attempt to connect that begins now has taken too long.
    async fn took_too_long(&self) {
        let began = Moment::now();
        loop {
            let left =
                self.at_most(self.connect_timeout).saturating_sub(Moment::now().since(began));
            if left.is_zero() {
                return;
            }
            let _ = tokio::time::timeout(left, self.hurried.notified()).await;
        }
    }

    /// Connects, watches, reconnects, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        let mut moves = self.place.moves(self.part);
        if let Some(left) = self.current.send_replace(None) {
            // The task before this one has panicked.
            left.give_up();
            (self.events)(Event::Down(Scope::All));
        }
        loop {
            moves.forget();
            let orders = self.orders.load(Ordering::Relaxed);
            match self.connect(&mut moves).await {
                Ok(_) if self.orders.load(Ordering::Relaxed) != orders => {}
                Ok(conn) => {
                    self.note_answer();
                    *lock(&self.hurry) = None;
                    // What calls on the last connection reported says nothing about this one.
                    let _ = tokio::time::timeout(Duration::ZERO, self.broken.notified()).await;
                    self.current.send_replace(Some(conn.clone()));
                    self.made.notify_waiters();
                    (self.events)(Event::Up { scope: Scope::All, whole: true });
                    // After the event: once this names the new server, the releases that it may
                    // lack are being repeated.
                    *lock(&self.leads_to) = moves.at();
                    // Last: those who wait for the first contact must find it made.
                    self.attempt.succeeded();
                    let began = Moment::now();
                    self.watch(conn.clone(), &mut moves).await;
                    self.current.send_replace(None);
                    // Before the event: what this server answers says nothing about the next one. A
                    // late grant of an old primary is not known to the new one.
                    conn.give_up();
                    *lock(&self.leads_to) = None;
                    (self.events)(Event::Down(Scope::All));
                    backoff.settle(Moment::now().since(began));
                }
                Err(failure) => self.attempt.failed(self.place.at(failure)),
            }
            tokio::select! {
                biased;
                () = self.ordered.notified() => backoff = Backoff::default(),
                () = tokio::time::sleep(self.at_most(backoff.next())) => {}
                () = moves.next() => {}
            }
        }
    }

    async fn connect(&self, moves: &mut Moves) -> Result<Connection, StoreError> {
        let config = Settings::default().response_timeout(self.response_timeout);
        let connect = async {
            let mut conn = self.place.connect(self.part, config, moves).await?;
            self.introduce(&mut conn).await?;
            Ok(conn)
        };
        tokio::select! {
            biased;
            connected = connect => connected,
            () = self.took_too_long() => Err(self.place.late()),
        }
    }

    /// Names the connection, writes the client's record, and checks the server. The reply to the
    /// record does not matter: locks work without it.
    async fn introduce(&self, conn: &mut Connection) -> Result<(), StoreError> {
        let record = self.record.as_deref();
        let mut found = self.handshake.exchange(conn, record).await?;
        found.extend(self.place.warnings());
        (self.events)(Event::Checked(found));
        match record {
            Some(record) => made(announce(conn, record).await),
            None => Ok(()),
        }
    }

    /// Returns when the connection is dead: a call failed on it, a ping was not answered, or
    /// another server is now the master.
    async fn watch(&self, conn: Connection, moves: &mut Moves) {
        loop {
            let idle = Moment::now().since(*lock(&self.last_answer));
            let wait = self.ping_interval.saturating_sub(idle);
            if !wait.is_zero() {
                tokio::select! {
                    biased;
                    () = self.broken.notified() => return,
                    () = moves.next() => return,
                    () = tokio::time::sleep(wait) => continue,
                }
            }
            let ping = wire::cmd("PING");
            let answer = tokio::time::timeout(self.ping_timeout, conn.call(&ping));
            tokio::select! {
                biased;
                () = self.broken.notified() => return,
                () = moves.next() => return,
                answer = answer => match answer {
                    // Even an error is an answer, unless the connection itself failed.
                    Ok(Ok(_)) => self.note_answer(),
                    Ok(Err(error)) if !is_dead(&error) => self.note_answer(),
                    _ => return,
                },
            }
        }
    }
}

/// Keeps the client's record from expiring, forever, with one call per period and change.
pub(crate) async fn keep_record(link: Arc<Link>, record: Arc<Record>, period: Duration) {
    loop {
        let _ = tokio::time::timeout(period, record.changed()).await;
        let Some(mut conn) = link.connection() else { continue };
        if let Err(error) = announce(&mut conn, &record).await {
            link.note_failure(&error);
        }
    }
}

pub(super) async fn announce(conn: &mut Connection, record: &Record) -> Result<(), CallError> {
    if let Some(write) = record.write() {
        record.note(conn.call(&write).await?);
    }
    Ok(())
}

/// Names the connection, for operators.
pub(crate) async fn name_connection(conn: &mut Connection, name: &str) -> Result<(), CallError> {
    named(conn.call(&set_name(name)).await?)
}

pub(super) fn set_name(name: &str) -> wire::Cmd {
    let mut cmd = wire::cmd("CLIENT");
    cmd.arg("SETNAME").arg(name);
    cmd
}

/// The reply to `CLIENT SETNAME`. The name is a courtesy to operators: without the permission the
/// connection has none.
pub(super) fn named(reply: Value) -> Result<(), CallError> {
    match reply.extract_error() {
        Err(error) if !is_permission(&error) => Err(error),
        _ => Ok(()),
    }
}

/// A failure while a connection is made has no effect on locks.
pub(super) fn made<T>(result: Result<T, CallError>) -> Result<T, StoreError> {
    result.map_err(|error| {
        if error.is_connection_dropped() {
            // A server without a free connection says so and closes, and the close may be noticed
            // first.
            let said = text(&error);
            let message = format!(
                "the server closed the new connection ({said}): has it no connection left \
                 (`maxclients`), or does it expect TLS (`rediss://`)?"
            );
            let failure = StoreError::unavailable(message, false);
            return StoreError { error: failure.error.quoting(&said), ..failure };
        }
        StoreError { doubt: false, ..classify(&error) }
    })
}

fn is_dead(error: &CallError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
}

/// How a script names a string that counts something.
const NUMBER: &str = "a number without a TTL";

/// What such a string is, and what to do about it.
const COUNTER: &str = "a number without a TTL: a latch (`fairlock latch`; `latch`), or a counter or Redisson's RSemaphore \
                       or RCountDownLatch, not a lock; use another name, and remove nothing";

/// What the script found under the lock's name, and what to do about it.
pub(crate) async fn name_not_a_lock(
    conn: &mut Connection,
    name: &LockName,
    op: &Op,
    found: &str,
) -> StoreError {
    let used_for = match found.strip_prefix("in use: ") {
        Some("fair") => Some(Kind::Fair),
        Some("rw") => Some(Kind::ReadWrite),
        Some("semaphore") => Some(Kind::Semaphore),
        _ if found.contains("`mode`") => mode(conn, name).await,
        _ => None,
    };
    // Who named that kind is told what is wrong with it.
    let used_for = used_for.filter(|kind| op.kind() != Some(*kind));
    let message = match used_for {
        Some(kind) => CoreError::InUse(kind).to_string(),
        // Something else by now, or a mode of another program, or nobody may look.
        None if found.contains("`mode`") && !op.is_shared() => format!(
            "the key `{name}` holds {found}; if it is a read-write lock or a semaphore, name that kind (`--shared`, \
             `--permits`; `rw_lock`, `semaphore`), and remove nothing; otherwise use another name"
        ),
        None if found.starts_with(NUMBER) => format!("the key `{name}` holds {COUNTER}"),
        None if found.contains("not a latch") => format!(
            "the key `{name}` holds {found}; it may be a simple lock that somebody holds, or another program's: use \
             another name, and remove nothing"
        ),
        None => format!(
            "the key `{name}` holds {found}; another program uses that name: use another one, or remove \
             the key if nobody needs it"
        ),
    };
    StoreError::refused(Error::new(ErrorKind::WrongType, message).on(name))
}

/// Whether the lock's key holds a whole number without a TTL. Asked only after an error; a refusal counts as no.
async fn is_counter(conn: &mut Connection, name: &LockName) -> bool {
    /// No 64-bit number is longer.
    const END: &str = "20";
    let value = conn.call(wire::cmd("GETRANGE").arg(name.as_bytes()).arg("0").arg(END)).await;
    let Ok(Value::BulkString(value)) = value else { return false };
    let is_number = str::from_utf8(&value).is_ok_and(|text| text.parse::<i64>().is_ok());
    let ttl = conn.call(wire::cmd("PTTL").arg(name.as_bytes())).await;
    is_number && matches!(ttl, Ok(Value::Int(-1)))
}

/// The kind that the field `mode` of the lock's hash tells. Asked only after an error.
async fn mode(conn: &mut Connection, name: &LockName) -> Option<Kind> {
    match conn.call(wire::cmd("HGET").arg(name.as_bytes()).arg("mode")).await.ok()? {
        Value::BulkString(mode) => match &mode[..] {
            b"read" | b"write" => Some(Kind::ReadWrite),
            b"permits" => Some(Kind::Semaphore),
            _ => None,
        },
        _ => None,
    }
}

/// Finds out which key of the lock has a wrong type. Asks only after an error, so that the common
/// path does not pay for it.
pub(crate) async fn name_wrong_type(
    conn: &mut Connection,
    name: &LockName,
    op: &Op,
) -> Option<StoreError> {
    let types = match op {
        Op::Latch(_) => &["string", "hash"][..],
        op if op.is_simple() => &["string", "list", "zset", "string", "zset", "hash", "zset"],
        op if op.is_shared() => &["hash", "zset", "hash", "string", "zset", "hash", "zset"],
        // The last is an announcement's.
        _ => &["hash", "list", "zset", "string", "zset", "hash", "zset", "hash"],
    };
    let keys = Keys::new(name);
    let others = match op {
        Op::Announce(_) | Op::Leader => keys.others_parts(op),
        _ => Vec::new(),
    };
    for (at, (key, &wanted)) in keys.parts_of(op).iter().chain(&others).zip(types).enumerate() {
        let key = key.concat();
        let found = conn.call(wire::cmd("TYPE").arg(&key)).await.ok()?;
        let Value::SimpleString(found) = found else { return None };
        if found != wanted && found != "none" {
            if at == 0
                && found == "hash"
                && let Some(kind) = mode(conn, name).await
            {
                let message = CoreError::InUse(kind).to_string();
                return Some(StoreError::refused(
                    Error::new(ErrorKind::WrongType, message).on(name),
                ));
            }
            if at == 0 && found == "string" && is_counter(conn, name).await {
                let message = format!("the key `{}` holds {COUNTER}", key.escape_ascii());
                let error = Error::new(ErrorKind::WrongType, message).on(name);
                return Some(StoreError::refused(error));
            }
            // The first is the lock's own key: what other kinds keep there may be a lock that somebody holds.
            let advice = match (at, found.as_str()) {
                (0, "string") => {
                    "it is a simple lock (`--kind simple`; `simple_lock`), a latch (`fairlock latch`; `latch`), or another \
                     program's key: name what it is, or use another name, and remove nothing"
                }
                (0, "hash") => {
                    "it is a fair or plain lock, or another program's key: if it is a lock, name its kind (`--kind \
                     fair` or `plain`; `fair_lock`, `plain_lock`), and remove nothing; otherwise use another name"
                }
                _ => {
                    "another program wrote it: use another name for the lock, or remove the key if nobody needs it"
                }
            };
            let message = format!(
                "the key `{}` holds a {found} where the lock needs a {wanted}; {advice}",
                key.escape_ascii()
            );
            return Some(StoreError::refused(Error::new(ErrorKind::WrongType, message).on(name)));
        }
    }
    None
}
