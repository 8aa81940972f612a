//! A server without the library in between, for benches: connections that carry nothing else, and
//! the scripts of locks one after the other, as fast as the server takes them.

use super::classify::{self, classify};
use super::dial::Connection;
use super::exchange::Call;
use super::keys::{Keys, Publishing};
use super::link::Link;
use super::reply;
use super::script::{self, By};
use super::wire::{self, Pipeline, Value};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::random::Requests;
use crate::store::StoreError;
use fairlock_core::{Acquire, Body, Kind, LockName, Mode, Op, OwnerId, Rules, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many locks are removed with one write: half a millisecond of the server's time.
const ERASED_AT_ONCE: usize = 100;

/// TTL of a hold in milliseconds. The next call releases it; if the bench dies, it lasts this long.
const LEASE_MS: u64 = 30_000;

/// Locks of one server.
pub(crate) struct Group {
    pub(crate) link: Arc<Link>,
    pub(crate) rules: Rules,
    pub(crate) publishing: Publishing,
    pub(crate) names: Vec<LockName>,
}

/// A connection to each server, and its locks.
pub(crate) struct Raw(Vec<Part>);

#[derive(Clone)]
struct Part {
    conn: Connection,
    rules: Rules,
    publishing: Publishing,
    names: Vec<LockName>,
}

impl Raw {
    pub(crate) async fn connect(groups: Vec<Group>) -> Result<Self, StoreError> {
        let mut parts = Vec::with_capacity(groups.len());
        for Group { link, rules, publishing, names } in groups {
            parts.push(Part { conn: link.another().await?, rules, publishing, names });
        }
        Ok(Self(parts))
    }

    /// A round trip to the server of the first lock.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        let Some(part) = self.0.first() else { return Err(no_locks()) };
        let pong = part.conn.clone().call(&wire::cmd("PING")).await;
        pong.and_then(Value::extract_error).map(drop).map_err(|error| classify(&error))
    }

    /// Acquires and releases all locks in pipelines, again and again for this long. Returns how
    /// often. Half of a server's locks are under way while the calls for the other half are made,
    /// so that the server never waits for the client.
    pub(crate) async fn pairs(&self, owner: &OwnerId, time: Duration) -> Result<u64, StoreError> {
        let until = Moment::now().plus(time);
        let requests = Arc::new(Requests::default());
        let mut halves = JoinSet::new();
        for part in &self.0 {
            let (one, other) = part.names.split_at(part.names.len() / 2);
            for names in [one, other].into_iter().filter(|names| !names.is_empty()) {
                let half = Part { names: names.to_vec(), ..part.clone() };
                halves.spawn(half.pairs(owner.clone(), Arc::clone(&requests), until));
            }
        }
        // All of them end, so that a failure leaves no locks of the others held.
        let mut pairs = Ok(0);
        while let Some(half) = halves.join_next().await {
            // Nobody aborts it, and it does not panic.
            let half = half.unwrap_or_else(|_| Err(no_locks()));
            pairs = pairs.and_then(|sum| Ok(sum + half?));
        }
        pairs
    }
}

impl Part {
    async fn pairs(
        mut self,
        owner: OwnerId,
        requests: Arc<Requests>,
        until: Moment,
    ) -> Result<u64, StoreError> {
        let mut pairs = 0;
        // At least once.
        while pairs == 0 || !until.left().is_zero() {
            let mut calls = Vec::with_capacity(self.names.len());
            for name in &self.names {
                calls.push((name.clone(), acquire(&owner, &requests)?));
            }
            let granted = self.all(&calls).await?;
            for ((name, op), body) in calls.iter_mut().zip(granted) {
                let Body::Granted { token, .. } = body else { return Err(in_use(name)) };
                *op = release(&owner, token);
            }
            self.all(&calls).await?;
            pairs += calls.len() as u64;
        }
        Ok(pairs)
    }

    /// Sends all calls in one pipeline. Those whose script the server does not know are sent again
    /// with the text.
    async fn all(&mut self, calls: &[(LockName, Op)]) -> Result<Vec<Body>, StoreError> {
        let Self { rules, publishing, .. } = &*self;
        let mut pipe = Pipeline::with_capacity(calls.len());
        for (name, op) in calls {
            pipe.add_command(script::call(By::Hash, rules, *publishing, name, op));
        }
        let replies = self.conn.call_all(&pipe).await;
        let mut bodies = Vec::with_capacity(calls.len());
        for ((name, op), value) in calls.iter().zip(replies.map_err(|error| classify(&error))?) {
            let mut result = value.extract_error();
            if result.as_ref().is_err_and(classify::is_noscript) {
                let call = Call { rules: &self.rules, publishing: self.publishing, name, op };
                result = call.send(&mut self.conn, false).await.1;
            }
            let value = result.map_err(|error| classify(&error))?;
            let answer = reply::answer(value)
                .map_err(|message| StoreError::refused(Error::new(ErrorKind::Protocol, message)))?;
            bodies.push(answer.body);
        }
        Ok(bodies)
    }
}

/// Removes all keys of these locks, whoever holds them.
pub(crate) async fn erase(groups: Vec<Group>) -> Result<(), StoreError> {
    for Group { link, names, .. } in groups {
        let Some(conn) = link.connection() else { return Err(link.not_connected()) };
        for names in names.chunks(ERASED_AT_ONCE) {
            let mut pipe = Pipeline::with_capacity(names.len());
            for name in names {
                let keys = Keys::new(name);
                pipe.cmd("DEL").args(&keys.all()).arg(keys.kind());
            }
            let replies = conn.call_all(&pipe).await;
            for reply in replies.map_err(|error| classify(&error))? {
                reply.extract_error().map_err(|error| classify(&error))?;
            }
        }
    }
    Ok(())
}

fn acquire(owner: &OwnerId, requests: &Requests) -> Result<Op, StoreError> {
    Ok(Op::Acquire(Acquire {
        kind: Kind::Fair,
        owner: owner.clone(),
        request: requests.draw().map_err(StoreError::refused)?,
        lease_ms: LEASE_MS,
        mode: Mode::Try,
        order: None,
        not_after_ms: u64::MAX,
        sure: false,
        shared_owner: false,
    }))
}

fn release(owner: &OwnerId, token: Token) -> Op {
    Op::Release { kind: Kind::Fair, owner: owner.clone(), token, keep: 0, change: 1 }
}

fn no_locks() -> StoreError {
    StoreError::refused(Error::misuse("a yardstick needs the name of a lock"))
}

fn in_use(name: &LockName) -> StoreError {
    StoreError::refused(Error::misuse("somebody else uses the lock of a yardstick").on(name))
}
