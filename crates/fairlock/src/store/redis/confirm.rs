//! Waiting for replicas, on a connection of its own.
//!
//! `WAIT` blocks its connection, and covers only that connection's writes. On the connection of all
//! other calls it would delay every renewal and heartbeat. So an operation that was answered there
//! is carried out again here, followed by `WAIT` in the same pipeline:
//!
//! - Each of these operations may be repeated: a renewal, or a release by its token.
//! - Replication is one stream. The write here comes after the one that was answered there, so a
//!   replica that acknowledges the second write has the first one.
//! - Operation and `WAIT` use one connection, and so one server. If another server has become the
//!   primary in between, the operation's reply here shows what that server knows about the lock.
//! - A renewal that is answered with `renewed` has written. A repeated release finds nothing to
//!   write, so a write that leaves nothing behind follows it (`replicated.lua`).
//!
//! All operations that arrive during one `WAIT` share the next one.

use super::classify::{self, classify};
use super::dial::Connection;
use super::kept::kept;
use super::keys::{Keys, Publishing};
use super::link::Link;
use super::place::Place;
use super::reply;
use super::rights;
use super::script::{self, By};
use super::wire::{self, CallError, Pipeline, Value};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::Config;
use crate::settings::replicas::Replicas;
use crate::settings::server_checks::Reactions;
use crate::store::{Confirmed, Event, Reply, StoreError};
use fairlock_core::{LockName, Op, Rules};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// How many operations share a `WAIT` at most: about a millisecond of the server's time.
const BATCH_MAX: usize = 128;

const TOUCH: &str = include_str!("lua/replicated.lua");

/// Confirms operations on a server and its replicas. Its tasks end with it.
pub(crate) struct Confirmer {
    /// Unbounded: in a bounded channel, a caller that waits for room keeps its place even while its
    /// future is not polled, and renewals behind it would get no room.
    line: mpsc::UnboundedSender<Item>,
    link: Arc<Link>,
    /// The command connection was lost, and not made again yet.
    is_lost: AtomicBool,
    tasks: [AbortHandle; 2],
}

impl Drop for Confirmer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

struct Item {
    name: LockName,
    op: Op,
    publishing: Publishing,
    tell: oneshot::Sender<Result<Confirmed, StoreError>>,
}

/// The task behind a [`Confirmer`].
struct Worker {
    link: Arc<Link>,
    wanted: Replicas,
    timeout: Duration,
    /// How long to wait for a connection that is being made.
    patience: Duration,
    rules: Rules,
    /// How many replicas were needed last time.
    last_needed: u32,
    /// Whether the user may write what replicas acknowledge. Tried with the first call, which is
    /// part of an acquisition: at the release it would be too late to do anything about it.
    may_touch: bool,
}

/// The result of a `WAIT`: how many replicas acknowledged, and how many were needed.
#[derive(Clone, Copy, Debug)]
struct Count {
    acknowledged: u32,
    needed: u32,
}

impl Confirmer {
    /// `None` if no replicas are waited for. Its tasks run on the current runtime.
    pub(crate) fn start(place: &Arc<Place>, config: &Config) -> Option<Self> {
        if config.replicas == Replicas::None {
            return None;
        }
        // Everything behind a WAIT is answered after it.
        let mut settings = config.clone();
        settings.response_timeout += config.replicas_timeout;
        settings.ping_timeout += config.replicas_timeout;
        // The command connection checks the server.
        settings.on = Reactions::ignoring();
        let link = Link::beside(Arc::clone(place), &settings);
        let keep = tokio::spawn(kept(Arc::clone(&link), Link::run));
        let (line, items) = mpsc::unbounded_channel();
        let worker = Worker {
            link: Arc::clone(&link),
            wanted: config.replicas,
            timeout: config.replicas_timeout,
            patience: config.response_timeout,
            rules: config.rules(),
            last_needed: config.replicas.needed(0),
            may_touch: false,
        };
        let work = tokio::spawn(worker.run(items));
        let (is_lost, tasks) = (AtomicBool::new(false), [keep.abort_handle(), work.abort_handle()]);
        Some(Self { line, link, is_lost, tasks })
    }

    /// The command connection was made or lost: it may lead to another server now. This connection
    /// would still lead to the old one, and confirm what the new one lacks.
    pub(super) fn hear(&self, event: &Event) {
        let is_stale = match event {
            Event::Down(_) => {
                self.is_lost.store(true, Ordering::Relaxed);
                true
            }
            Event::Up { .. } => self.is_lost.swap(false, Ordering::Relaxed),
            _ => false,
        };
        if is_stale {
            self.link.make_anew();
        }
    }

    /// Carries out `op`, and waits for replicas. Dropping the future leaves the outcome in doubt.
    pub(crate) async fn confirm(
        &self,
        name: &LockName,
        op: &Op,
        publishing: Publishing,
    ) -> Result<Confirmed, StoreError> {
        let gone = || StoreError::unavailable("the client has ended".into(), true);
        let (tell, told) = oneshot::channel();
        let item = Item { name: name.clone(), op: op.clone(), publishing, tell };
        self.line.send(item).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

impl Worker {
    async fn run(mut self, mut items: mpsc::UnboundedReceiver<Item>) {
        let mut batch = Vec::new();
        while items.recv_many(&mut batch, BATCH_MAX).await > 0 {
            // Drops those that nobody waits for any more.
            batch.retain(|item| !item.tell.is_closed());
            let _ = tokio::time::timeout(self.patience, self.link.ready()).await;
            let unknown = self.carry_out(std::mem::take(&mut batch), By::Hash).await;
            if !unknown.is_empty() {
                self.carry_out(unknown, By::Text).await;
            }
        }
    }

    /// Answers the items. Returns those whose script the server does not know by its hash.
    async fn carry_out(&mut self, batch: Vec<Item>, by: By) -> Vec<Item> {
        if batch.is_empty() {
            return batch;
        }
        let Some(mut conn) = self.link.connection() else {
            return refuse(batch, &self.link.not_connected());
        };
        let sent = Moment::now();
        let (replies, count) = match self.round(&mut conn, &batch, by).await {
            Ok(round) => round,
            Err(error) => {
                self.link.note_failure(&error);
                return refuse(batch, &failure_of(&error));
            }
        };
        self.link.note_answer();
        let missing = (count.acknowledged < count.needed).then(|| self.missing(count));
        let mut unknown = Vec::new();
        for (item, reply) in batch.into_iter().zip(replies) {
            let reply = reply.extract_error();
            if by == By::Hash && reply.as_ref().is_err_and(classify::is_noscript) {
                unknown.push(item);
                continue;
            }
            if let Err(error) = &reply {
                self.link.note_failure(error);
            }
            let answer = reply.map_err(|error| failure_of(&error)).and_then(|value| {
                reply::answer(value).map_err(|message| {
                    StoreError::refused(Error::new(ErrorKind::Protocol, message))
                })
            });
            let confirmed = answer.map(|answer| Confirmed {
                reply: Reply { sent, answer, clock: None },
                missing: missing.clone(),
            });
            // The caller may be gone.
            let _ = item.tell.send(confirmed);
        }
        unknown
    }

    /// One round trip: the operations, and the `WAIT` for all of them.
    async fn round(
        &mut self,
        conn: &mut Connection,
        batch: &[Item],
        by: By,
    ) -> Result<(Vec<Value>, Count), CallError> {
        let mut pipe = wire::pipe();
        for item in batch {
            pipe.add_command(script::call(by, &self.rules, item.publishing, &item.name, &item.op));
        }
        let is_release = |item: &&Item| !matches!(item.op.bare(), Op::Renew { .. });
        let untried = batch.first().filter(|_| !self.may_touch);
        let key = batch
            .iter()
            .find(is_release)
            .or(untried)
            .map(|item| Keys::new(&item.name).replicated());
        let mut replies = batch.len();
        if let Some(key) = &key {
            pipe.cmd("EVAL").arg(TOUCH).arg(1_u8).arg(key);
            replies += 1;
        }
        self.add_wait(&mut pipe, self.last_needed);
        let mut values = conn.call_all(&pipe).await?;
        let waited = values.split_off(replies);
        if let Some(key) = &key
            && let Some(touched) = values.pop()
        {
            let touched = touched.extract_error();
            self.may_touch = touched.is_ok();
            touched.map_err(|error| rights::of_key(key, error))?;
        }
        let mut count = self.count(waited)?;
        if count.acknowledged < count.needed && self.last_needed < count.needed {
            // There are more replicas than last time.
            let mut pipe = wire::pipe();
            self.add_wait(&mut pipe, count.needed);
            count = self.count(conn.call_all(&pipe).await?)?;
        }
        self.last_needed = count.needed;
        Ok((values, count))
    }

    fn add_wait(&self, pipe: &mut Pipeline, needed: u32) {
        pipe.cmd("WAIT").arg(needed).arg(self.timeout.as_millis() as u64);
        pipe.cmd("ROLE");
    }

    fn count(&self, waited: Vec<Value>) -> Result<Count, CallError> {
        let read = |waited: Vec<Value>| {
            let [acknowledged, role] = <[Value; WAIT_REPLIES]>::try_from(waited).ok()?;
            Some((acknowledged, role))
        };
        let odd = || CallError::Unexpected("odd reply to WAIT");
        let (acknowledged, role) = read(waited).ok_or_else(odd)?;
        let Value::Int(acknowledged) = acknowledged.extract_error()? else { return Err(odd()) };
        let connected = connected(&role.extract_error()?).ok_or_else(odd)?;
        let acknowledged = u32::try_from(acknowledged).map_err(|_| odd())?;
        Ok(Count { acknowledged, needed: self.wanted.needed(connected) })
    }

    fn missing(&self, count: Count) -> Error {
        let Count { acknowledged, needed } = count;
        let message = format!(
            "{acknowledged} of {needed} replicas had it within {:?}; check the replicas (INFO \
             replication), ask for fewer, or wait for longer",
            self.timeout
        );
        Error::new(ErrorKind::NotReplicated, message)
    }
}

/// Classifies a failure when another server may be the primary by now: that one answers the next
/// attempt.
fn failure_of(error: &CallError) -> StoreError {
    let moved = matches!(error.code(), Some("MOVED" | "ASK" | "UNBLOCKED"))
        || error.to_string().contains("cannot be used with replica");
    if moved {
        let message = format!("another server keeps the lock now: {}", classify(error).error);
        return StoreError::unavailable(message, true);
    }
    classify(error)
}

/// The replies to `WAIT` and `ROLE`.
const WAIT_REPLIES: usize = 2;

/// How many replicas are online, in a primary's reply to `ROLE`.
pub(super) fn connected(role: &Value) -> Option<u32> {
    match role {
        Value::Array(words) => match &words[..] {
            [_, _, Value::Array(replicas)] => u32::try_from(replicas.len()).ok(),
            _ => None,
        },
        _ => None,
    }
}

fn refuse(batch: Vec<Item>, failure: &StoreError) -> Vec<Item> {
    for item in batch {
        // The caller may be gone.
        let _ = item.tell.send(Err(failure.clone()));
    }
    Vec::new()
}
