//! One hold of a lock: what its guards, its renewals and its release share.

use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::base::lost_reason::LostReason;
use crate::base::process::Origin;
use crate::observe;
use crate::state::seat::Seat;
use crate::state::standing::{GuardState, Standing};
use fairlock_core::client::Acquisition;
use fairlock_core::{Kind, LockName, Op, OwnerId, Token, is_string};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a hold is to last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// Longest TTL that a renewal gives, in milliseconds.
    pub(crate) ms: u64,
    /// Whether the watchdog keeps renewing it.
    pub(crate) renewed: bool,
    /// Nothing renews it beyond this moment.
    pub(crate) end: Option<Moment>,
    /// Whether `end` is the end of the longest hold.
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

    /// Whether a hold that is valid until `valid_until` has used up its lease: the last renewal
    /// before the end falls short of it by no more than its margin.
    fn is_used_up(self, valid_until: Moment) -> bool {
        self.end.is_some_and(|end| valid_until.plus_ms(margin_ms(self.ms) + LAST_CALL_MS) >= end)
    }
}

pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) name: LockName,
    /// Who holds it, and by which requests the store may know that.
    pub(crate) acquisition: Acquisition,
    pub(crate) token: Token,
    /// The process in which it can be held, as opposed to a forked child. `None` if that does not
    /// matter.
    origin: Option<Origin>,
    /// Set for an explicit owner, whose other requests find this hold there.
    pub(crate) seat: Option<Arc<Seat>>,
    /// Whether the server was told of the whole lease, and the connection has lasted since.
    whole_lease: AtomicBool,
    /// Notified when the last renewal under way is over.
    unasked: Notify,
    /// A message says that this hold was taken away by force.
    forced: AtomicBool,
    inner: Mutex<Inner>,
    pub(crate) story: observe::Story,
    standing: Standing,
}

struct Inner {
    lease: Lease,
    valid_until: Moment,
    /// The number of guards that hold it, including those that were detached.
    count: u32,
    /// The number of guards that were detached.
    detached: u32,
    /// The number of renewals of the watchdog under way.
    asking: u32,
    /// The hold is being, or was, left to the store for a time of its own: the watchdog no longer
    /// renews it.
    being_left: bool,
    change: u64,
    ended: bool,
    /// Who held the lock when the server said that this hold is gone.
    taken_by: Option<OwnerId>,
}

/// By how much a renewal until the very end may miss it, besides its margin: fractions of
/// milliseconds.
const LAST_CALL_MS: u64 = 5;

/// Subtracted from every TTL before a guard relies on it: clocks differ in rate, and threads wake
/// late.
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
        acquisition: Acquisition,
        token: Token,
        lease: Lease,
        valid_until: Moment,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            acquisition,
            token,
            origin: None,
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

    pub(crate) fn kind(&self) -> Kind {
        self.acquisition.kind()
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        self.acquisition.owner()
    }

    /// What metrics and events show of it.
    pub(crate) fn told(&self) -> observe::Hold<'_> {
        observe::Hold {
            name: &self.name,
            kind: self.kind(),
            owner: self.owner(),
            token: self.token,
            story: &self.story,
        }
    }

    /// Restricts the hold to this process.
    pub(crate) fn stay_at(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    /// Whether this is a forked child's copy, whose mutex may be locked for ever.
    pub(crate) fn is_forked_child(&self) -> bool {
        self.origin.is_some_and(Origin::is_forked_child)
    }

    /// The operation that renews this hold.
    pub(crate) fn renewal(&self, ttl_ms: u64) -> Op {
        Op::Renew { kind: self.kind(), owner: self.owner().clone(), token: self.token, ttl_ms }
    }

    /// Whether the store knows of one guard only, because the others are counted in this process.
    pub(crate) fn is_counted_here(&self) -> bool {
        is_string(self.kind())
    }

    pub(crate) fn lease(&self) -> Lease {
        self.times().0
    }

    /// The lease, and until when the hold is valid.
    pub(crate) fn times(&self) -> (Lease, Moment) {
        let inner = lock(&self.inner);
        (inner.lease, inner.valid_until)
    }

    /// The number of guards that hold it, including those that were detached.
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

    /// The present state, by the clock as well as by what the store has said.
    pub(crate) fn state(&self) -> GuardState {
        // Checked first: in a forked child, the copy of a mutex may be locked for ever.
        if self.is_forked_child() {
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
        if self.is_forked_child() {
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

    /// Begins a renewal of the watchdog, which is over when the result is dropped. `None` if it
    /// must not be sent, because the hold is being left to the store for a time that the renewal
    /// would replace.
    pub(crate) fn begin_renewal(&self) -> Option<Renewing<'_>> {
        let mut inner = lock(&self.inner);
        if inner.being_left {
            return None;
        }
        inner.asking += 1;
        Some(Renewing(self))
    }

    /// Begins to leave the hold to the store until `end`: from here on no renewal of the watchdog
    /// begins, nobody enters, and nothing is valid beyond `end`. Returns false, without effect, if
    /// there are other guards, which count on renewals.
    pub(crate) fn begin_leaving(&self, end: Moment) -> bool {
        let mut inner = lock(&self.inner);
        if inner.count != 1 {
            return false;
        }
        inner.being_left = true;
        inner.lease.end = Some(inner.lease.capped(end));
        // Shortened before anything is sent: the server may end it by then even if its reply is
        // lost.
        inner.valid_until = inner.valid_until.min(end);
        true
    }

    /// Whether it is being, or was, left to the store for a time of its own.
    pub(crate) fn is_being_left(&self) -> bool {
        lock(&self.inner).being_left
    }

    /// Resolves when no renewal of the watchdog is under way.
    pub(crate) async fn renewals_are_over(&self) {
        loop {
            // Created before the check, so that no end falls in between.
            let unasked = self.unasked.notified();
            if !self.is_asking() {
                return;
            }
            unasked.await;
        }
    }

    /// Notes whether a message says that it was taken away by force.
    pub(crate) fn set_forced(&self, yes: bool) {
        self.forced.store(yes, Ordering::Relaxed);
    }

    fn is_asking(&self) -> bool {
        lock(&self.inner).asking > 0
    }

    /// Waits for a state that differs from `from`.
    pub(crate) async fn state_changed(&self, from: GuardState) -> GuardState {
        loop {
            // Created before the check, so that no change falls in between.
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
        // It is lost, or nobody would ask, and the clock does not go back.
        let reason = self.lost_reason().unwrap_or(LostReason::Expired);
        let message = format!("the lock was lost: {reason}; undo or check what was done under it");
        let error = Error::new(ErrorKind::Lost, message).on(&self.name).by(self.owner());
        let error = error.because(reason);
        if reason == LostReason::Forked {
            // In a forked child, the copy of a mutex may be locked for ever.
            return error;
        }
        error.held_by(lock(&self.inner).taken_by.clone())
    }

    /// Loses the hold, which the server says is gone. `holder` has the lock instead, if anybody
    /// does.
    pub(crate) fn lose_to(&self, holder: Option<OwnerId>) {
        let reason = match holder {
            _ if self.forced.load(Ordering::Relaxed) => LostReason::Forced,
            Some(_) => LostReason::Replaced,
            None => LostReason::DataLost,
        };
        // Check the clock first: a hold that had run out before was not lost because of the server.
        if self.state() != GuardState::Lost {
            lock(&self.inner).taken_by = holder;
            self.lose(reason);
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

    /// Notes a renewal that was sent at `sent` and gave the hold `ttl_ms`. Validity only moves
    /// forward, up to the end of the lease, and Lost is final. A process that was frozen past its
    /// old deadline, with the reply waiting to be read, has lost nothing if nobody checked
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

    /// Adds a guard. `None` if the count is at its limit, or the hold has ended or is being left.
    pub(crate) fn enter(&self) -> Option<Change> {
        let mut inner = lock(&self.inner);
        if inner.ended || inner.being_left || inner.count >= fairlock_core::MAX_HOLD_COUNT {
            return None;
        }
        inner.count += 1;
        inner.change += 1;
        Some(Change { count: inner.count, number: inner.change })
    }

    /// Removes a guard; at 0 the hold ends. Also returns whether it is unattended now.
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

    /// Detaches a guard, which leaves its part of the hold to the store: that part is never given
    /// back, and nothing renews the hold any more. Returns until when the hold lasts at least.
    pub(crate) fn detach(&self) -> Moment {
        let mut inner = lock(&self.inner);
        inner.detached += 1;
        inner.lease.renewed = false;
        inner.lease.end = Some(inner.valid_until);
        inner.lease.ends_by_max_hold = false;
        inner.valid_until
    }

    /// Notes the last renewal, which was sent at `sent` and gave the hold `ttl_ms`. That may be
    /// more or less than its lease.
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
    use fairlock_core::{Mode, RequestId};

    fn hold(lease: Lease, until: Moment) -> Hold {
        let (name, owner) = (LockName::new(b"x").unwrap(), OwnerId::parse(b"someone"));
        let request = RequestId::from_random(1);
        let acquisition = Acquisition::new(Kind::Fair, owner, Mode::Wait, 60_000, false, request);
        Hold::new(name, acquisition, Token::new(1).unwrap(), lease, until)
    }

    #[test]
    fn nothing_comes_back_from_lost() {
        let until = Moment::now().plus_ms(60_000);
        let lease = Lease { ms: 60_000, renewed: true, end: None, ends_by_max_hold: false };
        let hold = hold(lease, until);
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

    /// The holder is frozen right after its renewal was sent, and resumes when the old validity has
    /// run out. The reply that it then reads is about a hold that never ended.
    #[test]
    fn a_renewal_that_is_heard_late_counts_unless_the_loss_was_seen() {
        let frozen = || {
            let over = Moment::now().minus_ms(1);
            let lease = Lease { ms: 60_000, renewed: true, end: None, ends_by_max_hold: false };
            hold(lease, over)
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

    /// Whatever the reply to a renewal, and however late it was sent.
    #[test]
    fn nothing_is_valid_beyond_the_end_of_its_lease() {
        let end = Moment::now().plus_ms(5_000);
        let lease = Lease { ms: 60_000, renewed: true, end: Some(end), ends_by_max_hold: true };
        assert!((4_000..=5_000).contains(&lease.wanted_ms()));
        let until = end.plus_ms(1);
        let hold = hold(lease, until);
        assert_eq!(hold.valid_until(), end);
        hold.renewed(Moment::now(), 60_000);
        assert_eq!(hold.valid_until(), end);
        let over = Lease { end: Some(Moment::now().minus_ms(1)), ..lease };
        assert_eq!(over.wanted_ms(), 1);
    }
}
