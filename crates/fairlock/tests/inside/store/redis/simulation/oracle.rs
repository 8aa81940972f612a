//! The oracle of a run: what the server did, what applications observed, and what must not happen.

#[cfg(test)]
mod tests;

use super::latches::Latches;
use super::server::Server;
use super::several::Together;
use super::shared::{Shared, is_beside};
use crate::state::hold::Hold;
use crate::state::standing::GuardState;
use fairlock_core::{
    Answer, Body, ClientId, LockName, Op, OwnerId, Share, SimpleValue, Snapshot, Token,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long after a fault everything is back to normal: two unanswered pings, on one connection
/// after the other, a pause before each is reconnected, and a heartbeat.
const GRACE: Duration = Duration::from_secs(12);

/// The longest lease in use. Until a lease is over, nobody can notice that a server has lost data
/// or that a clock went forward.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(30);

/// From a grant to the guard, whatever happened to the message: one heartbeat and the round trips.
pub(super) const WAKE_MAX: Duration = Duration::from_secs(3);

/// A guard that is no longer renewed is reported as lost within its lease and this.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The least that a guard subtracts from every TTL, minus what the server's rounding to
/// milliseconds takes.
const MARGIN: Duration = Duration::from_millis(8);

/// The lines of the trace that are printed when a run has failed.
const LINES_MAX: usize = 4_000;

#[derive(Default)]
pub(super) struct Oracle {
    pub(super) clients: BTreeMap<ClientId, usize>,
    /// By client.
    calm: Vec<Calm>,
    server_calm: Calm,
    /// Until then two guards may be valid for one lock, and older tokens may appear.
    forgiven_until: Option<Instant>,
    /// If both occur, tokens may start again: only the clock makes them rise after a loss of state.
    has_lost_state: bool,
    clock_went_back: bool,
    pub(super) locks: BTreeMap<LockName, LockHistory>,
    /// Application tasks that wait for a lock without a timeout, by a number of their own.
    wants: BTreeMap<u64, Want>,
    pub(super) next_want: u64,
    /// Tasks that take several locks at once, by a number of their own.
    pub(super) together: BTreeMap<u64, Together>,
    pub(super) latches: Latches,
    /// When a message to a client was last swallowed.
    swallowed: BTreeMap<usize, Instant>,
    guards: Vec<Kept>,
    pub(super) violations: Vec<String>,
    pub(super) counts: Counts,
    began: Option<Instant>,
    hash: u64,
    /// Only while a seed is replayed.
    pub(super) lines: Option<Vec<String>>,
}

/// The disturbances of one client, or of the server.
struct Calm {
    /// The number of faults at present.
    faults: u32,
    /// When the last of them ended.
    since: Instant,
    /// The client has crashed.
    is_over: bool,
}

impl Default for Calm {
    fn default() -> Self {
        Self { faults: 0, since: Instant::now() - GRACE, is_over: false }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) grants: u64,
    pub(super) guards: u64,
    pub(super) faults: u64,
    pub(super) events: u64,
}

#[derive(Default)]
pub(super) struct LockHistory {
    pub(super) waiting: Vec<Waiting>,
    holder: Option<(OwnerId, u64)>,
    /// Of one that several may hold.
    pub(super) shares: Shared,
    pub(super) highest: u64,
    /// Every token with its owner and its series.
    pub(super) minted: BTreeMap<u64, (OwnerId, u32)>,
    /// How often tokens have started again.
    pub(super) series: u32,
    /// The server's last grant, until a guard has resulted from it.
    pub(super) granted: Option<(u64, usize, Instant)>,
    /// Holds of which the application has given back all guards, by owner, with the token.
    given: BTreeMap<OwnerId, (u64, usize, Instant)>,
    forced: Option<Instant>,
    /// The latest series and token that wrote to the resource.
    written: (u32, u64),
    /// Since when the lock is free.
    free: Option<Instant>,
}

struct Want {
    name: LockName,
    peer: usize,
    since: Instant,
}

pub(super) struct Waiting {
    pub(super) owner: OwnerId,
    pub(super) peer: usize,
    pub(super) order: u64,
    pub(super) entered: Instant,
}

/// A guard that an application relies on.
struct Kept {
    hold: Arc<Hold>,
    peer: usize,
    since: Instant,
    gone: Option<Instant>,
}

impl Kept {
    fn share(&self) -> Share {
        self.hold.acquisition.share()
    }
}

impl Oracle {
    pub(super) fn begin(&mut self, now: Instant, replay: bool) {
        self.began = Some(now);
        self.lines = replay.then(Vec::new);
    }

    /// Adds a line to the trace; two runs of a seed must have the same lines.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{:>9.3} {}", self.elapsed().as_secs_f64(), line());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.counts.events += 1;
        if let Some(lines) = self.lines.as_mut().filter(|lines| lines.len() < LINES_MAX) {
            lines.push(line);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    fn elapsed(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    pub(super) fn violation(&mut self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        let at = self.elapsed().as_secs_f64();
        self.violations.push(format!("at {at:.3} s: {what}"));
    }

    pub(super) fn add_client(&mut self, id: ClientId) -> usize {
        let peer = self.calm.len();
        self.calm.push(Calm::default());
        self.clients.insert(id, peer);
        peer
    }

    fn calm_of(&mut self, peer: Option<usize>) -> &mut Calm {
        match peer {
            Some(peer) => &mut self.calm[peer],
            None => &mut self.server_calm,
        }
    }

    /// A fault of a client begins, or of the server if `peer` is `None`.
    pub(super) fn disturb(&mut self, peer: Option<usize>) {
        self.calm_of(peer).faults += 1;
    }

    /// The fault ends.
    pub(super) fn calm_down(&mut self, peer: Option<usize>) {
        let calm = self.calm_of(peer);
        calm.faults = calm.faults.saturating_sub(1);
        calm.since = Instant::now();
    }

    /// All faults end.
    pub(super) fn all_calm(&mut self) {
        for calm in self.calm.iter_mut().chain([&mut self.server_calm]) {
            if calm.faults > 0 {
                calm.faults = 0;
                calm.since = Instant::now();
            }
        }
    }

    /// Whether neither the client nor the server was disturbed since then, nor shortly before.
    pub(super) fn is_calm(&self, peer: usize, since: Instant) -> bool {
        let was = |calm: &Calm| calm.faults == 0 && !calm.is_over && calm.since + GRACE <= since;
        was(&self.calm[peer]) && was(&self.server_calm)
    }

    fn forgive(&mut self) {
        self.forgiven_until = Some(Instant::now() + LEASE_MAX + TOLD_WITHIN);
    }

    /// The server has lost state.
    pub(super) fn state_lost(&mut self) {
        self.has_lost_state = true;
        self.latch_lost();
        self.forgive();
        self.begin_tokens_again();
    }

    /// The server's clock was set.
    pub(super) fn clock_stepped(&mut self, ms: i64) {
        self.clock_went_back |= ms < 0;
        if ms > 0 {
            self.forgive();
            // What marks a request as counted may be over, and another copy be late.
            self.latches.counted.clear();
        }
        self.begin_tokens_again();
    }

    fn begin_tokens_again(&mut self) {
        if self.tokens_may_fall() {
            for lock in self.locks.values_mut() {
                lock.highest = 0;
                lock.series += 1;
            }
        }
    }

    pub(super) fn is_forgiven(&self, name: &LockName) -> bool {
        let forced = self.locks.get(name).and_then(|lock| lock.forced);
        let forced = forced.map(|at| at + LEASE_MAX + TOLD_WITHIN);
        self.forgiven_until.max(forced).is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn forced(&mut self, name: &LockName) {
        self.locks.entry(name.clone()).or_default().forced = Some(Instant::now());
    }

    pub(super) fn was_forced(&self, name: &LockName, since: Instant) -> bool {
        self.locks.get(name).is_some_and(|lock| lock.forced.is_some_and(|at| at >= since))
    }

    /// Called after the server has carried out an operation.
    pub(super) fn after(&mut self, name: &LockName, op: &Op, answer: &Answer, keys: &Snapshot) {
        let now = Instant::now();
        self.counts.calls += 1;
        let mut lock = self.locks.remove(name).unwrap_or_default();
        // A returning waiter has its former place, even if it is the first and gets the lock at
        // once.
        let is_known =
            |token: &Token| lock.holder.as_ref().is_some_and(|(_, of)| *of == token.get());
        let place = match (op, &answer.body) {
            (Op::Acquire(asked), Body::Queued { order, .. }) => Some((asked, *order)),
            (Op::Acquire(asked), Body::Granted { token, .. }) if !is_known(token) => {
                asked.order.map(|order| (asked, order))
            }
            _ => None,
        };
        if let Some((asked, order)) = place
            && let Some(&peer) = asked.owner.client().and_then(|id| self.clients.get(&id))
            && !lock.waiting.iter().any(|waiting| waiting.owner == asked.owner)
        {
            let place = lock.waiting.partition_point(|waiting| waiting.order < order);
            let owner = asked.owner.clone();
            lock.waiting.insert(place, Waiting { owner, peer, order, entered: now });
        }
        if let Op::Leave { owner, .. } = op
            && !keys.queue.contains(owner)
        {
            lock.waiting.retain(|waiting| waiting.owner != *owner);
        }
        let holder = holder(keys);
        if holder != lock.holder {
            if let Some((token, peer, at)) = lock.granted.take()
                && !gives_up(op, &lock)
                && self.is_calm(peer, at)
            {
                self.violation(format!("{name}: client {peer} let its grant {token} run out"));
            }
            // A hold that a failover brought back is not a new grant.
            if let Some((owner, token)) = &holder
                && lock.minted.get(token).is_none_or(|(whose, _)| whose != owner)
            {
                self.granted(name, &mut lock, owner, *token, now);
            }
            lock.holder = holder;
        }
        let holds = |owner: &OwnerId| lock.holder.as_ref().is_some_and(|(by, _)| by == owner);
        for waiting in &lock.waiting {
            let there = keys.queue.contains(&waiting.owner) || holds(&waiting.owner);
            if !there && self.is_calm(waiting.peer, waiting.entered) {
                let (owner, peer) = (&waiting.owner, waiting.peer);
                self.violation(format!(
                    "{name}: {owner} of client {peer} lives, and was dropped from the queue by {op:?}"
                ));
            }
        }
        self.locks.insert(name.clone(), lock);
    }

    fn granted(
        &mut self,
        name: &LockName,
        lock: &mut LockHistory,
        owner: &OwnerId,
        token: u64,
        now: Instant,
    ) {
        self.counts.grants += 1;
        lock.minted.insert(token, (owner.clone(), lock.series));
        if token <= lock.highest {
            self.violation(format!("{name}: token {token} after {}", lock.highest));
        }
        lock.highest = lock.highest.max(token);
        let place = lock.waiting.iter().position(|waiting| waiting.owner == *owner);
        let ahead = &lock.waiting[..place.unwrap_or(lock.waiting.len())];
        for waiting in ahead {
            if self.is_calm(waiting.peer, waiting.entered) {
                let (first, peer) = (&waiting.owner, waiting.peer);
                self.violation(format!(
                    "{name}: {owner} overtook {first} of client {peer}, which lives"
                ));
            }
        }
        lock.waiting.retain(|waiting| waiting.owner != *owner);
        let peer = owner.client().and_then(|id| self.clients.get(&id)).copied();
        lock.granted = peer.map(|peer| (token, peer, now));
    }

    /// An application got a guard.
    pub(super) fn took(&mut self, peer: usize, hold: &Arc<Hold>) {
        let (name, token) = (&hold.name, hold.token.get());
        self.counts.guards += 1;
        self.note(|| format!("client {peer} has {name} under {token}"));
        let rivals = self.guards.iter().filter(|kept| {
            kept.hold.name == *name
                && !Arc::ptr_eq(&kept.hold, hold)
                && kept.hold.state() != GuardState::Lost
        });
        // One hold may have several guards.
        let mut holds: Vec<&Kept> = Vec::new();
        for kept in rivals {
            if !holds.iter().any(|known| Arc::ptr_eq(&known.hold, &kept.hold)) {
                holds.push(kept);
            }
        }
        let rivals: Vec<_> =
            holds.iter().map(|kept| (kept.peer, kept.hold.token, kept.share())).collect();
        let has_room = is_beside(hold.acquisition.share(), rivals.iter().map(|rival| rival.2));
        if hold.state() != GuardState::Lost && !self.is_forgiven(name) && !has_room {
            for (other, of, _) in rivals {
                self.violation(format!(
                    "{name}: client {peer} has a guard ({token}) while that of client {other} ({of}) is valid"
                ));
            }
        }
        self.seen(name, hold.acquisition.owner(), token);
        let now = Instant::now();
        self.guards.push(Kept { hold: Arc::clone(hold), peer, since: now, gone: None });
    }

    /// The application knows of its grant.
    pub(super) fn seen(&mut self, name: &LockName, owner: &OwnerId, token: u64) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        if lock.granted.is_some_and(|(granted, ..)| granted == token) {
            lock.granted = None;
        }
        lock.shares.granted.remove(owner);
    }

    /// The application no longer relies on the guard. Returns whether it was undisturbed all the
    /// time, so that it must still have held the lock.
    pub(super) fn gave_back(&mut self, hold: &Arc<Hold>) -> bool {
        let Some(at) = self.guards.iter().position(|kept| Arc::ptr_eq(&kept.hold, hold)) else {
            return false;
        };
        let kept = self.guards.remove(at);
        if !self.guards.iter().any(|other| Arc::ptr_eq(&other.hold, hold)) {
            let lock = self.locks.entry(hold.name.clone()).or_default();
            let owner = hold.acquisition.owner().clone();
            lock.given.insert(owner, (hold.token.get(), kept.peer, Instant::now()));
        }
        let renewed = kept.hold.lease().renewed;
        renewed && self.is_calm(kept.peer, kept.since) && !self.was_forced(&hold.name, kept.since)
    }

    /// A client has crashed: nobody relies on its guards.
    pub(super) fn crashed(&mut self, peer: usize) {
        self.calm[peer].is_over = true;
        self.guards.retain(|kept| kept.peer != peer);
        self.wants.retain(|_, want| want.peer != peer);
        self.together.retain(|_, together| together.peer != peer);
        self.waits_no_more(peer);
    }

    pub(super) fn swallowed(&mut self, peer: usize) {
        self.swallowed.insert(peer, Instant::now());
    }

    /// A task waits for the lock from now on, until [`Self::unwant`].
    pub(super) fn want(&mut self, peer: usize, name: &LockName) -> u64 {
        self.next_want += 1;
        let want = Want { name: name.clone(), peer, since: Instant::now() };
        self.wants.insert(self.next_want, want);
        self.next_want
    }

    pub(super) fn unwant(&mut self, want: u64) {
        self.wants.remove(&want);
    }

    /// Whether a later token may be the smaller one: only the clock makes them rise after a loss of state.
    pub(super) fn tokens_may_fall(&self) -> bool {
        self.has_lost_state && self.clock_went_back
    }

    /// A client that believes it holds the lock writes to the protected resource.
    pub(super) fn write(&mut self, peer: usize, name: &LockName, token: Token) {
        let forgiven = self.is_forgiven(name);
        let lock = self.locks.entry(name.clone()).or_default();
        // A guard from before its tokens started again may still be valid; it comes before all that
        // follow.
        let series = lock.minted.get(&token.get()).map_or(lock.series, |(_, series)| *series);
        if (series, token.get()) >= lock.written {
            lock.written = (series, token.get());
        } else if !forgiven {
            let last = lock.written.1;
            self.violation(format!(
                "{name}: client {peer} writes under {token} after {last}, and its guard is valid"
            ));
        }
    }

    /// Checks what is due.
    pub(super) fn look(&mut self, server: &Server, now_us: u64) {
        let now = Instant::now();
        let mut found = Vec::new();
        for (name, lock) in &self.locks {
            let token_of = |name| server.standing(name, now_us).map(|hold| hold.token);
            let alone = lock.granted.filter(|(token, ..)| token_of(name) == Some(*token));
            let shares = lock.shares.granted.iter().filter_map(|(owner, granted)| {
                server.standing_of(name, owner, granted.0, now_us).map(|_| *granted)
            });
            for (token, peer, at) in alone.into_iter().chain(shares) {
                let told = now - at <= WAKE_MAX || self.is_among_several(peer, name);
                if !told && self.is_calm(peer, at) {
                    found
                        .push(format!("{name}: client {peer} was not woken for its grant {token}"));
                }
            }
        }
        self.look_at_locks(now, server, now_us, &mut found);
        self.look_at_latch(server, &mut found);
        let mut guards = std::mem::take(&mut self.guards);
        for kept in &mut guards {
            let (hold, peer) = (&kept.hold, kept.peer);
            let (name, token) = (&hold.name, hold.token);
            let owner = hold.acquisition.owner();
            let has = server.standing_of(name, owner, token.get(), now_us).is_some();
            let believes = hold.state() != GuardState::Lost;
            let lease = hold.lease();
            if has || !believes {
                kept.gone = None;
            }
            let whole = Duration::from_millis(lease.ms);
            let settled = now - kept.since > TOLD_WITHIN && self.is_calm(peer, now);
            if believes && has && lease.renewed && settled && hold.remaining() < whole / 2 {
                found.push(format!("{name}: client {peer} does not renew its guard {token}"));
            }
            if has
                && !believes
                && lease.renewed
                && self.is_calm(peer, kept.since)
                && !self.was_forced(name, kept.since)
            {
                found.push(format!("{name}: client {peer} lost its guard {token}, which stands"));
            }
            if !has && believes {
                let for_long = now - *kept.gone.get_or_insert(now);
                if for_long > whole + TOLD_WITHIN {
                    found.push(format!(
                        "{name}: client {peer} believes in {token} beyond its lease"
                    ));
                }
                let calm = self.is_calm(peer, now - for_long);
                if calm && lease.renewed && for_long > whole / 3 + WAKE_MAX {
                    found
                        .push(format!("{name}: client {peer} was not told of the loss of {token}"));
                }
            }
        }
        self.guards = guards;
        for what in found {
            // Once is enough.
            if !self.violations.iter().any(|known| known.ends_with(&what)) {
                self.violation(what);
            }
        }
    }
}

impl Oracle {
    /// No guard may be valid for longer than the server's hold lasts, to the millisecond, even if
    /// nobody else could get the lock in that time. A hold that the server has lost may be relied
    /// on for a lease.
    pub(super) fn compare(&mut self, server: &Server, now_us: u64) {
        let mut found = Vec::new();
        for Kept { hold, peer, .. } in &self.guards {
            let (name, token) = (&hold.name, hold.token.get());
            let believes = hold.valid_until().left();
            // In this order: asking for the state of a hold that is over changes it.
            if believes.is_zero() || hold.state() == GuardState::Lost || self.is_forgiven(name) {
                continue;
            }
            let has = server.standing_of(name, hold.acquisition.owner(), token, now_us);
            let left = has.map_or(Duration::ZERO, |has| has.left);
            if believes + MARGIN > left {
                found.push(format!(
                    "{name}: client {peer} relies on {token} for {believes:?}, and the server keeps it for {left:?}"
                ));
            }
        }
        for what in found {
            // Once for each guard is enough.
            let story = what.split(" for ").next().unwrap_or_default();
            if !self.violations.iter().any(|known| known.contains(story)) {
                self.violation(what);
            }
        }
    }

    /// Finds locks that stand idle, and holds without an owner.
    fn look_at_locks(
        &mut self,
        now: Instant,
        server: &Server,
        now_us: u64,
        found: &mut Vec<String>,
    ) {
        let mut locks = std::mem::take(&mut self.locks);
        for (name, lock) in &mut locks {
            lock.free = if server.is_held(name, now_us) { None } else { lock.free.or(Some(now)) };
            lock.given.retain(|owner, (token, ..)| {
                server.standing_of(name, owner, *token, now_us).is_some()
            });
            for (owner, (given, peer, at)) in &lock.given {
                let is_kept = |kept: &Kept| {
                    kept.hold.token.get() == *given && kept.hold.acquisition.owner() == owner
                };
                if !self.guards.iter().any(is_kept)
                    && now - *at > WAKE_MAX
                    && self.is_calm(*peer, *at)
                {
                    found.push(format!(
                        "{name}: client {peer} gave {given} back, and it is still held"
                    ));
                }
            }
        }
        self.locks = locks;
        for want in self.wants.values() {
            let lock = self.locks.get(&want.name);
            let Some(free) = lock.and_then(|lock| lock.free) else { continue };
            let since = free.max(want.since);
            // A plain lock's wake-up is not repeated: its lease has to end then.
            let told = self.swallowed.get(&want.peer).is_none_or(|at| now - *at > LEASE_MAX);
            let calm = told && self.is_calm(want.peer, since) && !self.is_forgiven(&want.name);
            if calm && now - since > WAKE_MAX {
                let (name, peer) = (&want.name, want.peer);
                found.push(format!("{name}: it is free, and client {peer} waits for it"));
            }
        }
    }
}

/// Whether the operation ends the hold, rather than finding that it has ended.
fn gives_up(op: &Op, lock: &LockHistory) -> bool {
    let by = match op.bare() {
        Op::Force { .. } => return true,
        Op::Leave { owner, .. } | Op::Release { owner, .. } => owner,
        _ => return false,
    };
    lock.holder.as_ref().is_some_and(|(owner, _)| owner == by)
}

/// The lock's holder and its token.
fn holder(keys: &Snapshot) -> Option<(OwnerId, u64)> {
    if let Some(SimpleValue::Ours { owner, token, .. }) = &keys.value {
        return Some((owner.clone(), token.get()));
    }
    Some((keys.hold.keys().next()?.clone(), keys.token?))
}
