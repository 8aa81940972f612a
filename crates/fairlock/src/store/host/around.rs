//! After an operation of this client: which clients' deaths it watches for, and which other clients
//! must look at the lock.

use super::file::HostFile;
use super::liveness::{self, Kernel, Sign};
use super::store::Inner;
use crate::base::clock::lock;
use crate::observe;
use crate::store::Topic;
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Effect, Kind, LockName, LockState, Mode, Op, OwnerId,
    REGISTRY_TTL_MS, RequestId, Shares, SimpleValue, Snapshot, Token, has_queue,
};
use std::time::Duration;

/// How many dead waiters are removed from the queue in one go, when a waiter behind them decides
/// whom to watch.
const LEFT_MAX: u32 = 64;

/// Heartbeats here only find lost messages and stopped waiters, so they are this many times rarer
/// than on a server: ten seconds apart by default. A waiter may cost a millisecond a minute.
const BEATS_APART: f64 = 5.0;

/// Waiters at these places send heartbeats at that rate, to find that a waiter before them was
/// granted the lock and is stopped. The first waiter has nobody before it, and those further behind
/// rely on these lookouts: the first and those send half as many.
const LOOKOUTS: std::ops::RangeInclusive<usize> = 1..=3;

/// Longest heartbeat period: the registry of a lock's waiters outlives two missed heartbeats, even
/// if processes of older versions wait, which keep it for a minute.
pub(super) const BEAT_MAX: Duration = Duration::from_millis(REGISTRY_TTL_MS / 3);

impl Inner {
    /// After an operation of this client, decides whom it must watch for this lock.
    pub(super) fn look_around(
        &self,
        file: &mut HostFile,
        name: &LockName,
        op: &Op,
        answer: &Answer,
        effects: &mut Vec<Effect>,
    ) {
        match (op, &answer.body) {
            (Op::Acquire(a), body) if !has_queue(a.kind) => {
                let taken = matches!(body, Body::Busy { .. } | Body::Taken { foreign: false, .. });
                if taken && a.mode == Mode::Wait && lock(&self.listened).contains_key(name) {
                    let now = file.known(name).map(LockState::snapshot);
                    let holder = now.and_then(|now| self.watchable(name, now));
                    let holder = holder.filter(|client| *client != self.client);
                    self.watches.set(&Topic::Base(name.clone()), holder.as_slice());
                }
            }
            (_, Body::Queued { .. }) if acquire_of(op).is_some_and(|a| a.order.is_none()) => {
                // Behind an older waiter of this client nothing changes.
                if !lock(&self.waits).contains_key(name) {
                    self.follow(file, name, effects);
                }
            }
            (_, Body::Queued { .. }) | (Op::Beat { .. }, _) => {
                self.follow(file, name, effects);
            }
            (Op::Inspect { .. } | Op::Place { .. } | Op::Leader | Op::Announce(_), _)
            | (_, Body::Renewed) => {}
            _ => {
                let waited = lock(&self.waits).contains_key(name);
                if waited {
                    self.follow(file, name, effects);
                }
            }
        }
    }

    /// Watches the next live client before this client's oldest waiter, or those that hold the lock if
    /// nobody waits before it, and removes the dead in between.
    fn follow(&self, file: &mut HostFile, name: &LockName, effects: &mut Vec<Effect>) {
        let topic = self.topic(name);
        for removed in 0..=LEFT_MAX {
            let Some(now) = file.known(name) else { break };
            let Some((stand, next)) = stands(now, self.client) else { break };
            lock(&self.waits).insert(name.clone(), stand);
            let (shares, now) = (now.shares(), now.snapshot());
            if let (None, Some(shares)) = (next, shares) {
                if !self.watch_holders(name, shares, &topic, removed == LEFT_MAX) {
                    return;
                }
                let world = Kernel::new(&self.folder, self.client, name);
                match file.apply(name, &Op::Nudge, &self.rules, &world) {
                    Ok((answer, more)) => {
                        observe::answered(name, &answer);
                        effects.extend(more);
                    }
                    // The alarm of the dead one goes off at once, and this is tried again.
                    Err(_) => {
                        if let Some(shares) = file.known(name).and_then(LockState::shares) {
                            self.watch_holders(name, shares, &topic, true);
                        }
                        return;
                    }
                }
                self.bury(world);
                continue;
            }
            let (before, request) = match next {
                Some(waiter) => {
                    let known = now.waiters.get(waiter).map(|waiter| waiter.request);
                    (Some(waiter), known.or_else(|| Some(RequestId::from_random(0))))
                }
                None => (now.hold.keys().next(), None),
            };
            let Some((owner, client)) = before.and_then(|owner| Some((owner, owner.client()?)))
            else {
                return self.watches.set(&topic, &[]);
            };
            if client == self.client {
                return self.watches.set(&topic, &[]);
            }
            let watched = self.watches.watches(&topic, client);
            if request.is_none() && self.watchable(name, now).is_none() {
                // The hold lasts as long as its lease, even if the client ends.
                return self.watches.set(&topic, &[]);
            }
            // After `LEFT_MAX` removals, a dead one is watched as well: its alarm goes off at once,
            // and the next heartbeat removes the others.
            if watched || liveness::look(&self.folder, client) != Sign::Gone || removed == LEFT_MAX
            {
                return self.watches.set(&topic, &[client]);
            }
            let op = match request {
                Some(request) => Op::Leave {
                    kind: shares.map_or(Kind::Fair, Shares::kind),
                    owner: owner.clone(),
                    request,
                    bury: false,
                    shared_owner: true,
                },
                None => Op::Nudge,
            };
            let world = Kernel::new(&self.folder, self.client, name);
            match file.apply(name, &op, &self.rules, &world) {
                Ok((answer, more)) => {
                    observe::answered(name, &answer);
                    effects.extend(more);
                }
                // The timer then fires at once, and this is tried again.
                Err(_) => return self.watches.set(&topic, &[client]),
            }
            self.bury(world);
        }
        let waits = file
            .known(name)
            .is_some_and(|now| now.line().any(|owner| owner.client() == Some(self.client)));
        if !waits {
            lock(&self.waits).remove(name);
            self.watches.set(&topic, &[]);
        }
    }

    /// The holder, if its death would end the hold: one that was left to the store lasts as long as
    /// its lease.
    fn watchable(&self, name: &LockName, lock: &Snapshot) -> Option<ClientId> {
        let token = match &lock.value {
            Some(SimpleValue::Ours { token, .. }) => Some(*token),
            _ => lock.token.and_then(Token::new),
        };
        let is_left = |client| {
            token.is_some_and(|token| liveness::is_left(&self.folder, client, name, token, None))
        };
        holder(lock).filter(|client| !is_left(*client))
    }

    /// Only the first waiters look again when the store expects a change: many waiters would all do
    /// so at the same moment, and find that the lock is not for them.
    pub(super) fn space_out(&self, name: &LockName, body: &mut Body) {
        let is_far =
            || lock(&self.waits).get(name).is_some_and(|stand| stand.place > *LOOKOUTS.end());
        if let Body::Queued { retry_ms, .. }
        | Body::Beaten { retry_ms, .. }
        | Body::Fates { retry_ms, .. } = body
            && retry_ms.is_some()
            && is_far()
        {
            *retry_ms = None;
        }
    }
}

/// What an operation asks for, if it asks for a lock or a share of one.
pub(super) fn acquire_of(op: &Op) -> Option<&Acquire> {
    match op {
        Op::Acquire(acquire) => Some(acquire),
        Op::AcquireShare(ask) => Some(&ask.acquire),
        _ => None,
    }
}

/// A client's oldest waiter on a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    /// How many waiters are before it.
    pub(super) place: usize,
    /// Its request, if it waits for a share.
    pub(super) of_shares: Option<RequestId>,
}

/// Where the client's oldest waiter stands, and the waiter before it.
fn stands(lock: &LockState, client: ClientId) -> Option<(Stand, Option<&OwnerId>)> {
    let mut before = None;
    for (place, owner) in lock.line().enumerate() {
        if owner.client() == Some(client) {
            let waiter = lock.shares().and_then(|_| lock.snapshot().waiters.get(owner));
            let stand = Stand { place, of_shares: waiter.map(|waiter| waiter.request) };
            return Some((stand, before));
        }
        before = Some(owner);
    }
    None
}

/// The client whose waiter is directly behind the one that leaves.
pub(super) fn behind_leaver(before: &LockState, op: &Op) -> Option<ClientId> {
    match op {
        Op::Leave { kind, owner, .. } if has_queue(*kind) => behind_of(before, owner),
        _ => None,
    }
}

pub(super) fn behind_of(lock: &LockState, owner: &OwnerId) -> Option<ClientId> {
    let mut behind = lock.line().skip_while(|member| *member != owner).skip(1);
    behind.next()?.client()
}

/// The client that holds the lock.
pub(super) fn holder(lock: &Snapshot) -> Option<ClientId> {
    match &lock.value {
        Some(SimpleValue::Ours { owner, .. }) => owner.client(),
        _ => lock.hold.keys().next()?.client(),
    }
}

/// The heartbeat period of a client at this place; locks without a queue have no places.
pub(super) fn beats_apart(place: Option<usize>, heartbeat: Duration) -> Duration {
    let apart = if place.is_none_or(|place| LOOKOUTS.contains(&place)) { 1.0 } else { 2.0 };
    heartbeat.mul_f64(BEATS_APART * apart).min(BEAT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What docs/host.md and docs/guarantees.md say about a stopped waiter depends on this.
    #[test]
    fn those_behind_the_first_look_out() {
        let default = Duration::from_secs(2);
        let apart = |place| beats_apart(place, default).as_secs();
        assert_eq!([0, 1, 2, 3, 4, 99].map(|place| apart(Some(place))), [20, 10, 10, 10, 20, 20]);
        assert_eq!(apart(None), 10);
        for place in [None, Some(0), Some(1)] {
            assert_eq!(beats_apart(place, Duration::from_secs(60)), BEAT_MAX);
        }
    }
}
