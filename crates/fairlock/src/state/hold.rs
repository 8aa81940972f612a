//! One hold of a lock: what its guards, its renewals and its release share.

use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::base::lost_reason::LostReason;
use crate::base::process::Origin;
use crate::observe;
use crate::state::seat::Seat;
use crate::state::standing::{GuardState, Standing};
use fairlock_core::{Body, Grant, Kind, LockName, Op, OwnerId, RequestId, Token};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a hold shall last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// What a renewal gives at most, in milliseconds.
    pub(crate) ms: u64,
    /// Whether it is renewed again and again.
    pub(crate) renewed: bool,
    /// Nothing renews it beyond this moment.
    pub(crate) end: Option<Moment>,
    /// That moment is the end of the longest hold.
    pub(crate) ends_by_max_hold: bool,
}

impl Lease {
    pub(crate) fn whole(self) -> Duration {
        Duration::from_millis(self.ms)
    }

    /// The TTL that a renewal asks for now, in milliseconds: the whole lease, or what is left
    /// until the end.
    pub(crate) fn wanted_ms(self) -> u64 {
        let left = self.end.map_or(u64::MAX, |end| end.left().as_millis() as u64);
        self.ms.min(left).max(1)
    }

    fn capped(self, moment: Moment) -> Moment {
        self.end.map_or(moment, |end| moment.min(end))
    }

    /// Whether a hold that is valid until then has had all of its lease: the last renewal before the end
    /// leaves no more than its margin.
    fn is_used_up(self, valid_until: Moment) -> bool {
        self.end.is_some_and(|end| valid_until.plus_ms(margin_ms(self.ms) + LAST_CALL_MS) >= end)
    }
}

pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) name: LockName,
    pub(crate) kind: Kind,
    pub(crate) owner: OwnerId,
    pub(crate) token: Token,
    /// The one that was granted.
    pub(crate) request: RequestId,
    /// Where it can be held: not in a forked child. `None` when that does not matter.
    origin: Option<Origin>,
    /// Requests of which a copy was never answered: buried when the hold ends.
    pub(crate) doubtful: Vec<RequestId>,
    /// Set for an explicit owner: where its other requests find this hold.
    pub(crate) seat: Option<Arc<Seat>>,
    /// Whether the server was told of the whole lease and the connection held since.
    whole_lease: AtomicBool,
    /// That the last renewal under way is over.
    unasked: Notify,
    /// Whoever took the lock away by force says that it was this hold.
    forced: AtomicBool,
    inner: Mutex<Inner>,
    pub(crate) story: observe::Story,
    standing: Standing,
}

struct Inner {
    lease: Lease,
    valid_until: Moment,
    /// How many guards hold it, and those that were detached.
    count: u32,
    /// How many of them were detached.
    detached: u32,
    /// How many renewals of the watchdog are under way.
    asking: u32,
    /// It is, or was, to be left to the store for a time of its own: the watchdog sends nothing more.
    being_left: bool,
    change: u64,
    ended: bool,
    /// Who held the lock when the server said that this hold is gone.
    taken_by: Option<OwnerId>,
}

/// What a renewal to the very end may fall short of it, besides its margin: fractions of milliseconds.
const LAST_CALL_MS: u64 = 5;

/// Taken off every TTL before a guard relies on it: clocks differ in rate, threads wake late.
pub(crate) fn margin_ms(ttl_ms: u64) -> u64 {
    (ttl_ms / 100).max(10)
}

/// When a guard whose TTL is counted from `base` stops being valid.
pub(crate) fn valid_until(base: Moment, ttl_ms: u64) -> Moment {
    base.plus_ms(ttl_ms.saturating_sub(margin_ms(ttl_ms)))
}

/// A change of the hold count that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) count: u32,
    pub(crate) number: u64,
}

impl Hold {
    pub(crate) fn new(
        name: LockName,
        kind: Kind,
        owner: OwnerId,
        grant: &Grant,
        lease: Lease,
        valid_until: Moment,
        doubtful: Vec<RequestId>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            kind,
            owner,
            token: grant.token,
            request: grant.request,
            origin: None,
            doubtful,
            seat: None,
            whole_lease: AtomicBool::new(false),
            unasked: Notify::new(),
            forced: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                lease,
                valid_until: lease.capped(valid_until),
                count: 1,
                detached: 0,
                asking: 0,
                being_left: false,
                change: 0,
                ended: false,
                taken_by: None,
            }),
            story: observe::Story::default(),
            standing: Standing::default(),
        }
    }

    /// What is told of it.
    pub(crate) fn told(&self) -> observe::Hold<'_> {
        observe::Hold {
            name: &self.name,
            kind: self.kind,
            owner: &self.owner,
            token: self.token,
            story: &self.story,
        }
    }

    /// Can be held in this process only.
    pub(crate) fn stay_at(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    /// The call that renews this hold.
    pub(crate) fn renewal(&self, ttl_ms: u64) -> Op {
        Op::Renew { kind: self.kind, owner: self.owner.clone(), token: self.token, ttl_ms }
    }

    /// Whether the store knows of one guard only: the others are counted in this process.
    pub(crate) fn is_counted_here(&self) -> bool {
        self.kind == Kind::Simple
    }

    pub(crate) fn lease(&self) -> Lease {
        self.times().0
    }

    /// The lease, and until when the hold is valid.
    pub(crate) fn times(&self) -> (Lease, Moment) {
        let inner = lock(&self.inner);
        (inner.lease, inner.valid_until)
    }

    /// How many guards hold it, and those that were detached.
    pub(crate) fn count(&self) -> u32 {
        lock(&self.inner).count
    }

    pub(crate) fn has_whole_lease(&self) -> bool {
        self.whole_lease.load(Ordering::Relaxed)
    }

    pub(crate) fn set_whole_lease(&self, yes: bool) {
        self.whole_lease.store(yes, Ordering::Relaxed);
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.times().1
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.state() == GuardState::Lost {
            return Duration::ZERO;
        }
        self.valid_until().left()
    }

    /// The state at this moment, by the clock as well as by what was heard.
    pub(crate) fn state(&self) -> GuardState {
        // First: in a forked child the copy of a mutex may be locked for ever.
        if self.origin.is_some_and(Origin::is_forked_child) {
            return GuardState::Lost;
        }
        let known = self.standing.known();
        if known != GuardState::Lost && self.valid_until().left().is_zero() {
            self.lose(self.why_over());
            return GuardState::Lost;
        }
        known
    }

    /// Why it is lost, if it is.
    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        if self.origin.is_some_and(Origin::is_forked_child) {
            return Some(LostReason::Forked);
        }
        if self.state() == GuardState::Lost { self.standing.reason() } else { None }
    }

    /// Why its validity has run out.
    fn why_over(&self) -> LostReason {
        let (lease, valid_until) = self.times();
        let unheard = self.standing.known() == GuardState::Suspect || self.is_asking();
        match lease.is_used_up(valid_until) {
            true if lease.ends_by_max_hold => LostReason::MaxHold,
            false if unheard => LostReason::Unreachable,
            _ => LostReason::Expired,
        }
    }

    /// A renewal of the watchdog begins, and is over when what this returns is dropped. `None`: it must not be sent,
    /// because the hold is left to the store for a time that it would replace.
    pub(crate) fn begin_renewal(&self) -> Option<Renewing<'_>> {
        let mut inner = lock(&self.inner);
        if inner.being_left {
            return None;
        }
        inner.asking += 1;
        Some(Renewing(self))
    }

    /// Begins to leave the hold to the store until `end`: from here on no renewal of the watchdog begins, nobody enters,
    /// and nothing is valid beyond `end`. Says whether that was done: other guards would count on their renewals.
    pub(crate) fn begin_leaving(&self, end: Moment) -> bool {
        let mut inner = lock(&self.inner);
        if inner.count != 1 {
            return false;
        }
        inner.being_left = true;
        inner.lease.end = Some(inner.lease.capped(end));
        // Before anything is sent: the server may end it by then though nobody hears of it.
        inner.valid_until = inner.valid_until.min(end);
        true
    }

    /// Whether it is, or was, to be left to the store for a time of its own.
    pub(crate) fn is_being_left(&self) -> bool {
        lock(&self.inner).being_left
    }

    /// Resolves when no renewal of the watchdog is under way.
    pub(crate) async fn renewals_are_over(&self) {
        loop {
            // Before the look, so that no end falls between.
            let unasked = self.unasked.notified();
            if !self.is_asking() {
                return;
            }
            unasked.await;
        }
    }

    /// Whether somebody says that it was taken away by force.
    pub(crate) fn set_forced(&self, yes: bool) {
        self.forced.store(yes, Ordering::Relaxed);
    }

    fn is_asking(&self) -> bool {
        lock(&self.inner).asking > 0
    }

    /// The next state that differs from `from`.
    pub(crate) async fn state_changed(&self, from: GuardState) -> GuardState {
        loop {
            // Before the look, so that no change falls between.
            let change = self.standing.change();
            let state = self.state();
            if state != from {
                return state;
            }
            change.await;
        }
    }

    /// Resolves when the lock is lost.
    pub(crate) async fn lost(&self) {
        let mut state = self.state();
        while state != GuardState::Lost {
            state = self.state_changed(state).await;
        }
    }

    pub(crate) fn ensure_valid(&self) -> Result<(), Error> {
        if self.state() == GuardState::Lost {
            return Err(self.lost_error());
        }
        Ok(())
    }

    pub(crate) fn lost_error(&self) -> Error {
        // It was lost, or nobody would ask; the clock does not go back.
        let reason = self.lost_reason().unwrap_or(LostReason::Expired);
        let message = format!("the lock was lost: {reason}; undo or check what was done under it");
        let error = Error::new(ErrorKind::Lost, message).on(&self.name).by(&self.owner);
        let error = error.because(reason);
        if reason == LostReason::Forked {
            // A copy of a mutex may be locked for ever.
            return error;
        }
        error.held_by(lock(&self.inner).taken_by.clone())
    }

    /// The server says that this hold is gone, and who has the lock instead.
    pub(crate) fn lose_to(&self, holder: Option<OwnerId>) {
        let reason = match holder {
            _ if self.forced.load(Ordering::Relaxed) => LostReason::Forced,
            Some(_) => LostReason::Replaced,
            None => LostReason::DataLost,
        };
        // By the clock first: what ran out before is not the server's doing.
        if self.state() != GuardState::Lost {
            lock(&self.inner).taken_by = holder;
            self.lose(reason);
        }
    }

    /// The same, from what the server said.
    pub(crate) fn lose_by(&self, body: Body) {
        match body {
            Body::NotHeld { holder } => self.lose_to(holder),
            _ => self.lose_to(None),
        }
    }

    pub(crate) fn lose(&self, reason: LostReason) {
        if self.standing.lose(reason) {
            observe::lost(&self.told(), self.valid_until().left().is_zero());
        }
    }

    pub(crate) fn suspect(&self) {
        if self.standing.suspect() {
            observe::suspect(&self.told());
        }
    }

    /// A renewal that was sent at `sent` gave the hold `ttl_ms`. Validity only moves forward, up
    /// to the end of the lease, and nothing comes back from Lost. A process that was frozen past
    /// its old deadline, with the reply waiting to be read, has lost nothing if nobody looked
    /// meanwhile.
    pub(crate) fn renewed(&self, sent: Moment, ttl_ms: u64) {
        if self.standing.known() == GuardState::Lost {
            return;
        }
        {
            let mut inner = lock(&self.inner);
            let until = inner.lease.capped(valid_until(sent, ttl_ms));
            inner.valid_until = inner.valid_until.max(until);
        }
        if self.state() == GuardState::Lost {
            return;
        }
        self.standing.trust();
    }

    /// Whether the last guard is gone.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.inner).ended
    }

    /// One more guard; `None` when the count is at its limit, or the hold has ended or is being left.
    pub(crate) fn enter(&self) -> Option<Change> {
        let mut inner = lock(&self.inner);
        if inner.ended || inner.being_left || inner.count >= fairlock_core::MAX_HOLD_COUNT {
            return None;
        }
        inner.count += 1;
        inner.change += 1;
        Some(Change { count: inner.count, number: inner.change })
    }

    /// One guard less; at 0 the hold ends. Says also whether it is unattended now.
    pub(crate) fn leave(&self) -> (Change, bool) {
        let (change, unattended) = {
            let mut inner = lock(&self.inner);
            inner.count = inner.count.saturating_sub(1);
            inner.change += 1;
            inner.ended = inner.count == 0;
            let change = Change { count: inner.count, number: inner.change };
            (change, inner.is_unattended())
        };
        if change.count == 0 {
            observe::let_go(&self.story);
        }
        (change, unattended)
    }

    /// One guard leaves its part of the hold to the store: it is never given back, and from now
    /// on nothing renews the hold. Says until when it lasts at least.
    pub(crate) fn detach(&self) -> Moment {
        let mut inner = lock(&self.inner);
        inner.detached += 1;
        inner.lease.renewed = false;
        inner.lease.end = Some(inner.valid_until);
        inner.lease.ends_by_max_hold = false;
        inner.valid_until
    }

    /// The renewal that was sent at `sent` is the last one: it gave the hold `ttl_ms`, which may be more or less
    /// than its lease.
    pub(crate) fn left_until(&self, sent: Moment, ttl_ms: u64) {
        if self.state() == GuardState::Lost {
            return;
        }
        {
            let mut inner = lock(&self.inner);
            inner.valid_until = valid_until(sent, ttl_ms);
            inner.lease.ms = ttl_ms;
            inner.lease.end = Some(inner.valid_until);
        }
        self.standing.trust();
    }

    /// Whether no guard is left: all were released or detached.
    pub(crate) fn is_unattended(&self) -> bool {
        lock(&self.inner).is_unattended()
    }
}

/// A renewal of the watchdog, for as long as it is under way.
pub(crate) struct Renewing<'a>(&'a Hold);

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.asking -= 1;
        if inner.asking == 0 && inner.being_left {
            self.0.unasked.notify_waiters();
        }
    }
}

impl Inner {
    fn is_unattended(&self) -> bool {
        self.count == self.detached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        let token = Token::new(1).unwrap();
        Grant { request: RequestId::from_random(1), token, ttl_ms: 60_000 }
    }

    #[test]
    fn nothing_comes_back_from_lost() {
        let owner = OwnerId::parse(b"someone");
        let name = LockName::new(b"x").unwrap();
        let until = Moment::now().plus_ms(60_000);
        let lease = Lease { ms: 60_000, renewed: true, end: None, ends_by_max_hold: false };
        let hold = Hold::new(name, Kind::Fair, owner, &grant(), lease, until, vec![]);
        assert_eq!(hold.state(), GuardState::Held);
        hold.suspect();
        assert_eq!(hold.state(), GuardState::Suspect);
        hold.renewed(Moment::now(), 60_000);
        assert_eq!(hold.state(), GuardState::Held);
        hold.lose(LostReason::Expired);
        hold.renewed(Moment::now(), 60_000);
        hold.suspect();
        assert_eq!(hold.state(), GuardState::Lost);
        assert_eq!(hold.remaining(), Duration::ZERO);
    }

    /// The holder is frozen right after its renewal was sent, and goes on when the old validity has
    /// run out: the reply that it then reads speaks of a hold that never ended.
    #[test]
    fn a_renewal_that_is_heard_late_counts_unless_the_loss_was_seen() {
        let frozen = || {
            let owner = OwnerId::parse(b"someone");
            let name = LockName::new(b"x").unwrap();
            let over = Moment::now().minus_ms(1);
            let lease = Lease { ms: 60_000, renewed: true, end: None, ends_by_max_hold: false };
            Hold::new(name, Kind::Fair, owner, &grant(), lease, over, vec![])
        };
        let sent = Moment::now().minus_ms(1_000);
        let hold = frozen();
        hold.renewed(sent, 60_000);
        assert_eq!(hold.state(), GuardState::Held);
        let seen = frozen();
        assert_eq!(seen.state(), GuardState::Lost);
        seen.renewed(sent, 60_000);
        assert_eq!(seen.state(), GuardState::Lost);
        let too_late = frozen();
        too_late.renewed(sent, 900);
        assert_eq!(too_late.state(), GuardState::Lost);
    }

    /// Whatever a renewal was answered, and however late it was sent.
    #[test]
    fn nothing_is_valid_beyond_the_end_of_its_lease() {
        let owner = OwnerId::parse(b"someone");
        let name = LockName::new(b"x").unwrap();
        let end = Moment::now().plus_ms(5_000);
        let lease = Lease { ms: 60_000, renewed: true, end: Some(end), ends_by_max_hold: true };
        assert!((4_000..=5_000).contains(&lease.wanted_ms()));
        let until = end.plus_ms(1);
        let hold = Hold::new(name, Kind::Fair, owner, &grant(), lease, until, vec![]);
        assert_eq!(hold.valid_until(), end);
        hold.renewed(Moment::now(), 60_000);
        assert_eq!(hold.valid_until(), end);
        let over = Lease { end: Some(Moment::now().minus_ms(1)), ..lease };
        assert_eq!(over.wanted_ms(), 1);
    }
}
