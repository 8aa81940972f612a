//! Applications that set, count down, delete and wait for a latch, and what must not happen to it: a count-down that
//! counts twice, a wait that nobody ends, or one that ends for no reason.

use super::actors::{Actor, given};
use super::oracle::{Oracle, WAKE_MAX};
use super::server::Server;
use crate::{Error, Opened};
use fairlock_core::{LatchOp, LockName, RequestId, SimpleValue};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, timeout};

pub(super) const LATCH: &str = "gate";

/// What the oracle knows of the latch.
#[derive(Default)]
pub(super) struct Latches {
    /// Requests that have counted down, since the server last lost state.
    pub(super) counted: BTreeSet<RequestId>,
    /// When it was last counted down to 0, and when it last went in another way.
    opened: Option<Instant>,
    gone: Option<Instant>,
    /// Since when it is open.
    open: Option<Instant>,
    waits: Vec<Wait>,
}

struct Wait {
    number: u64,
    peer: usize,
    since: Instant,
    was_closed: bool,
}

impl Server {
    /// The count; 0 if the latch is open.
    pub(super) fn latch_count(&self) -> u64 {
        let name = LockName::new(LATCH.as_bytes()).expect("a name");
        match self.model.get(&name).map(|lock| &lock.snapshot().value) {
            Some(Some(SimpleValue::Foreign(text))) => {
                let text = std::str::from_utf8(text).expect("a count");
                text.parse().expect("a count")
            }
            _ => 0,
        }
    }
}

impl Oracle {
    /// Called after the server has carried out an operation on the latch.
    pub(super) fn after_latch(&mut self, op: &LatchOp, before: u64, after: u64) {
        self.counts.calls += 1;
        if before == after {
            return;
        }
        match op {
            LatchOp::CountDown { request } => {
                if before != after + 1 || !self.latches.counted.insert(request.id) {
                    self.violation(format!(
                        "{LATCH}: {} counted from {before} to {after}",
                        request.id
                    ));
                }
                if after == 0 {
                    self.latches.opened = Some(Instant::now());
                }
            }
            LatchOp::Delete { .. } => self.latches.gone = Some(Instant::now()),
            LatchOp::Set { count, .. } if before == 0 && after == *count => {}
            _ => self.violation(format!("{LATCH}: {op:?} changed it from {before} to {after}")),
        }
    }

    /// The server has lost state, which may have been anything.
    pub(super) fn latch_lost(&mut self) {
        let now = Some(Instant::now());
        self.latches.counted.clear();
        (self.latches.opened, self.latches.gone) = (now, now);
    }

    fn begins_to_wait(&mut self, peer: usize, is_closed: bool) -> u64 {
        self.next_want += 1;
        let (number, since) = (self.next_want, Instant::now());
        self.latches.waits.push(Wait { number, peer, since, was_closed: is_closed });
        number
    }

    fn ends_to_wait(&mut self, number: u64, opened: Option<Opened>) {
        let at = self.latches.waits.iter().position(|wait| wait.number == number);
        let Some(wait) = at.map(|at| self.latches.waits.swap_remove(at)) else { return };
        let reason = match opened {
            Some(Opened::CountedDown) => self.latches.opened,
            Some(_) => self.latches.gone,
            None => return,
        };
        // One that was open before may have been counted down, or not, at any time.
        if wait.was_closed && reason.is_none_or(|at| at < wait.since) {
            let peer = wait.peer;
            self.violation(format!("{LATCH}: client {peer} was told {opened:?} for no reason"));
        }
    }

    /// Whoever waits for an open latch learns of it from the message, or with the next heartbeat.
    pub(super) fn look_at_latch(&mut self, server: &Server, found: &mut Vec<String>) {
        let now = Instant::now();
        let latches = &mut self.latches;
        latches.open = (server.latch_count() == 0).then(|| latches.open.unwrap_or(now));
        let Some(open) = latches.open else { return };
        for Wait { peer, since, .. } in &self.latches.waits {
            let since = open.max(*since);
            if now - since > WAKE_MAX && self.is_calm(*peer, since) {
                found.push(format!("{LATCH}: it is open, and client {peer} waits for it"));
            }
        }
    }

    pub(super) fn waits_no_more(&mut self, peer: usize) {
        self.latches.waits.retain(|wait| wait.peer != peer);
    }
}

impl Actor {
    /// One call on the latch.
    pub(super) async fn use_latch(&mut self) {
        let (latch, began) = (self.client.latch(LATCH), Instant::now());
        let done: Result<(), Error> = match self.rng.below(20) {
            0..5 => latch.try_set(self.rng.between(1, 4)).await.map(drop),
            5..11 => latch.count_down().await.map(drop),
            11 => given(self.rng.below(4), latch.count_down()).await.transpose().map(drop),
            12 => latch.delete().await.map(drop),
            13 => latch.count().await.map(drop),
            how => {
                let peer = self.peer;
                let number = self.world.with(|state| {
                    let is_closed = state.server.latch_count() > 0;
                    state.oracle.begins_to_wait(peer, is_closed)
                });
                let time = self.some(20_000);
                // Perhaps nobody counts it down any more.
                let ended = match how {
                    14 => {
                        let dropped = given(self.rng.below(6), latch.wait());
                        timeout(time, dropped).await.ok().flatten().transpose()
                    }
                    15 | 16 => timeout(time, latch.wait()).await.ok().transpose(),
                    _ => latch.wait_for(time + Duration::from_millis(1)).await,
                };
                let opened = ended.as_ref().ok().copied().flatten();
                self.world.with(|state| state.oracle.ends_to_wait(number, opened));
                ended.map(drop)
            }
        };
        if let Err(error) = done {
            self.failed(began, &error);
        }
    }
}
