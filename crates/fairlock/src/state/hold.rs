//! One hold of a lock, as its guards, its renewals and its release share it. Its state and rules
//! are [`fairlock_core::client::Hold`].

use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::base::lost_reason::LostReason;
use crate::base::process::Origin;
use crate::observe;
use crate::state::outcome::Release;
use crate::state::seat::Seat;
use crate::state::standing::{GuardState, Standing};
use fairlock_core::client::{Acquisition, Counted, Hold as Known, Look, Outcome, Released};
pub(crate) use fairlock_core::client::{Change, GuardEnd, Lease};
use fairlock_core::{Kind, LockName, Op, OwnerId, RequestId, Share, Token, is_shared, is_string};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// A leader's announcement: the number of the change, from 1, and the value.
type Said = (u64, Vec<u8>);

pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) name: LockName,
    /// Who holds it, and the requests under which the store may have the hold.
    pub(crate) acquisition: Acquisition,
    pub(crate) token: Token,
    /// The process in which it can be held, as opposed to a forked child. `None` if that does not
    /// matter.
    origin: Option<Origin>,
    /// Set for an explicit owner, whose other requests find this hold there.
    pub(crate) seat: Option<Arc<Seat>>,
    /// Notified when the last renewal under way is over.
    unasked: Notify,
    known: Mutex<Known>,
    /// Its leader's announcement, with the number of that change.
    said: Mutex<Option<Box<Said>>>,
    /// Why the last renewal failed; `None` if it succeeded.
    missed: Mutex<Option<Error>>,
    pub(crate) story: observe::Story,
    standing: Standing,
}

/// One guard's part of a hold.
pub(crate) struct Part {
    pub(crate) hold: Arc<Hold>,
    /// It only reads, in a writer's hold.
    pub(crate) reading: bool,
}

/// The part of the guard for which the hold was acquired.
impl From<Arc<Hold>> for Part {
    fn from(hold: Arc<Hold>) -> Self {
        Self { hold, reading: false }
    }
}

impl Part {
    /// Ends the guard: see [`Known::leave`].
    pub(crate) fn leave(&self) -> GuardEnd {
        self.hold.leave(self.reading)
    }
}

impl Hold {
    pub(crate) fn new(
        name: LockName,
        acquisition: Acquisition,
        token: Token,
        known: Known,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            acquisition,
            token,
            origin: None,
            seat: None,
            unasked: Notify::new(),
            standing: Standing::new(&known),
            known: Mutex::new(known),
            said: Mutex::default(),
            missed: Mutex::default(),
            story: observe::Story::default(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.acquisition.kind()
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        self.acquisition.owner()
    }

    /// The hold as metrics and events show it.
    pub(crate) fn told(&self) -> observe::Hold<'_> {
        observe::Hold {
            name: &self.name,
            kind: observe::What(self.kind(), self.acquisition.share()),
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

    /// The operation that renews this hold. A store that has lost the record of a share's hold takes it up to
    /// `not_after_ms`.
    pub(crate) fn renewal(&self, ttl_ms: u64, not_after_ms: u64) -> Op {
        let (kind, owner, token) = (self.kind(), self.owner().clone(), self.token);
        self.op(Op::Renew { kind, owner, token, ttl_ms }, not_after_ms)
    }

    /// This operation, which has owner and token of the hold, on the hold.
    pub(crate) fn op(&self, op: Op, not_after_ms: u64) -> Op {
        op.of_hold(self.kind(), self.acquisition.request(), not_after_ms)
    }

    /// The request that identifies a share's hold beside owner and token.
    pub(crate) fn request_of_share(&self) -> Option<RequestId> {
        is_shared(self.kind()).then(|| self.acquisition.request())
    }

    /// Whether the store counts only one guard, because the others are counted in this process.
    pub(crate) fn is_counted_here(&self) -> bool {
        is_string(self.kind())
    }

    /// Applies an input, updates the state that guards see, and notifies others after that.
    fn input<R>(&self, input: impl FnOnce(&mut Known) -> R) -> R {
        let mut known = lock(&self.known);
        let result = input(&mut known);
        let news = self.standing.show(&known);
        drop(known);
        if let Some(state) = news {
            self.tell(state);
        }
        result
    }

    #[cold]
    fn tell(&self, state: GuardState) {
        self.standing.tell();
        match state {
            GuardState::Held => {}
            GuardState::Suspect => observe::suspect(&self.told()),
            GuardState::Lost => {
                let reason = self.standing.reason().unwrap_or(LostReason::Expired);
                observe::lost(&self.told(), reason);
            }
        }
    }

    pub(crate) fn lease(&self) -> Lease {
        lock(&self.known).lease()
    }

    /// The TTL that a renewal asks for now, in milliseconds.
    pub(crate) fn wanted_ms(&self) -> u64 {
        self.lease().wanted_ms(Moment::now().nanos())
    }

    /// The number of guards that hold it, including those that were detached.
    pub(crate) fn count(&self) -> u32 {
        lock(&self.known).count()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::at_nanos(self.standing.valid_until_ns())
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.state() == GuardState::Lost {
            return Duration::ZERO;
        }
        self.valid_until().left()
    }

    /// The present state, by the clock as well as by the store's answers.
    pub(crate) fn state(&self) -> GuardState {
        // Checked first: in a forked child, the copy of a mutex may be locked for ever.
        if self.is_forked_child() {
            return GuardState::Lost;
        }
        let known = self.standing.known();
        if known != GuardState::Lost && self.valid_until().left().is_zero() {
            self.input(|known| known.time(Moment::now().nanos()));
            return self.standing.known();
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

    /// The watchdog begins to watch it. Returns when to look at it.
    pub(crate) fn watched(&self, now: Moment) -> Moment {
        Moment::at_nanos(self.input(|known| known.watched(now.nanos())))
    }

    /// The watchdog looks at it.
    pub(crate) fn look(&self) -> Option<Look> {
        self.input(|known| known.look(Moment::now().nanos()))
    }

    /// How long an answer of the store, or a connection, may take now.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_nanos(lock(&self.known).patience_ns(Moment::now().nanos()))
    }

    /// Begins a renewal of the watchdog, which is over when the result is dropped. `None` if it
    /// must not be sent.
    pub(crate) fn begin_renewal(&self) -> Option<Renewing<'_>> {
        let ttl_ms = self.input(|known| known.begin_renewal(Moment::now().nanos()))?;
        Some(Renewing { hold: self, ttl_ms })
    }

    /// Notes a renewal that was sent at `sent` and gave the hold `ttl_ms`. Returns when to look at
    /// it next, unless it is lost.
    pub(crate) fn renewed(&self, sent: Moment, ttl_ms: u64) -> Option<Moment> {
        let (now, sent) = (Moment::now().nanos(), sent.nanos());
        *lock(&self.missed) = None;
        self.input(|known| known.renewed(now, sent, ttl_ms)).map(Moment::at_nanos)
    }

    /// Why the last renewal failed.
    pub(crate) fn renewal_error(&self) -> Option<Error> {
        if self.is_forked_child() { None } else { lock(&self.missed).clone() }
    }

    /// Notes a renewal that was not answered, or refused. Returns when to look at it again.
    pub(crate) fn unanswered(&self, error: Error) -> Moment {
        *lock(&self.missed) = Some(error);
        Moment::at_nanos(self.input(|known| known.unanswered(Moment::now().nanos())))
    }

    /// Begins to leave the hold to the store until `end`. Returns false, without effect, if there
    /// are other guards, which count on renewals.
    pub(crate) fn begin_leaving(&self, end: Moment) -> bool {
        self.input(|known| known.begin_leaving(end.nanos()))
    }

    /// Whether it is being, or was, left to the store for a time of its own.
    pub(crate) fn is_being_left(&self) -> bool {
        lock(&self.known).is_being_left()
    }

    /// Resolves when no renewal of the watchdog is under way.
    pub(crate) async fn renewals_are_over(&self) {
        loop {
            // Created before the check, so that no end falls in between.
            let unasked = self.unasked.notified();
            if !lock(&self.known).is_being_renewed() {
                return;
            }
            unasked.await;
        }
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
        // Only called for a lost hold. The clock does not go back, so there is a reason.
        let reason = self.lost_reason().unwrap_or(LostReason::Expired);
        let message = format!("the lock was lost: {reason}; undo or check what was done under it");
        let error = Error::new(ErrorKind::Lost, message).on(&self.name).by(self.owner());
        let error = error.because(reason);
        if reason == LostReason::Forked {
            // In a forked child, the copy of a mutex may be locked for ever.
            return error;
        }
        error.held_by(lock(&self.known).taken_by().cloned())
    }

    /// Marks the hold as lost, because the server no longer has it; `holder` has the lock now, if
    /// anybody does. Does nothing if the last guard was already released: the hold is gone because
    /// of that release, and the reply to it decides the outcome.
    pub(crate) fn lose_to(&self, holder: Option<OwnerId>) {
        self.input(|known| {
            if !known.has_ended() {
                known.gone(Moment::now().nanos(), holder);
            }
        });
    }

    /// Notes that a release is over; `said` is the store's answer, if there was one.
    pub(crate) fn released(&self, sent: Released, said: Option<Counted>) -> Release {
        let outcome = sent.outcome(said).unwrap_or_else(|holder| {
            self.input(|known| known.released_when_gone(Moment::now().nanos(), sent, holder))
        });
        match outcome {
            Outcome::Free => Release::Released,
            Outcome::StillHeld(count) => Release::StillHeld(count),
            Outcome::Lost => Release::Lost,
            Outcome::Unknown => Release::Unknown,
        }
    }

    pub(crate) fn lose(&self, reason: fairlock_core::client::Loss) {
        self.input(|known| known.lose(reason));
    }

    /// A hold that was renewed until now gets an explicit lease, which begins now.
    pub(crate) fn lease_begins(&self, lease: Duration) {
        let ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        self.input(|known| known.lease_begins(Moment::now().nanos(), ms));
    }

    /// Replaces the announcement. The numbers continue however often, and by however many of its
    /// guards, the hold leads: a value under a number that was used before would not be published.
    pub(crate) fn announces(&self, value: Vec<u8>) {
        let mut said = lock(&self.said);
        let last = said.as_ref().map_or(0, |said| said.0);
        *said = Some(Box::new((last + 1, value)));
    }

    /// The announced value, and the number of the change, from 1.
    pub(crate) fn announced(&self) -> Option<(u64, Vec<u8>)> {
        lock(&self.said).as_deref().cloned()
    }

    pub(crate) fn suspect(&self) {
        self.input(Known::suspect);
    }

    pub(crate) fn connection_lost(&self) {
        self.input(|known| known.connection_lost(Moment::now().nanos()));
    }

    /// From now on, even a hold that is never renewed must be confirmed anew.
    pub(crate) fn must_be_confirmed(&self) {
        self.input(|known| known.must_be_confirmed(Moment::now().nanos()));
    }

    /// Notes that, according to a message, the hold was taken away by force.
    pub(crate) fn reported_taken(&self) {
        self.input(|known| known.reported_taken(Moment::now().nanos()));
    }

    /// Whether the last guard is gone.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.known).has_ended()
    }

    /// Adds a guard; `reading` if it only reads in a writer's hold. `None` if the count is at its
    /// limit, or the hold has ended or is being left.
    pub(crate) fn enter(&self, reading: bool) -> Option<Change> {
        self.input(|known| known.enter(reading))
    }

    /// Whether a guard with this share only reads in this hold, which is a writer's.
    pub(crate) fn is_reading(&self, wanted: Share) -> bool {
        wanted == Share::Read && self.acquisition.share() == Share::Whole
    }

    /// Adds a guard with this share, which must be a part of the held one: a writer may also read.
    ///
    /// # Errors
    /// The held share, if it is not.
    pub(crate) fn enter_for(&self, wanted: Share) -> Result<Option<Change>, Share> {
        let reading = self.is_reading(wanted);
        let acquired = self.acquisition.share();
        self.input(|known| {
            let has = if known.reads() { Share::Read } else { acquired };
            let fits = match (has, wanted) {
                (Share::Permits { n, .. }, Share::Permits { n: wants, .. }) => n == wants,
                (Share::Whole, Share::Read) => true,
                (has, wants) => has == wants,
            };
            if fits { Ok(known.enter(reading)) } else { Err(has) }
        })
    }

    /// Begins to make a writer's hold a reader's. `None` if other guards write, or it is over.
    pub(crate) fn begin_reading(&self) -> Option<Change> {
        self.input(Known::begin_reading)
    }

    /// Removes a guard, which entered with the same `reading`; at 0 the hold ends.
    pub(crate) fn leave(&self, reading: bool) -> GuardEnd {
        let end = self.input(|known| known.leave(reading));
        if end.change.count == 0 {
            observe::let_go(&self.story);
        }
        end
    }

    /// Detaches a guard, which leaves its part of the hold to the store. Returns until when the
    /// hold lasts at least.
    pub(crate) fn detach(&self) -> Moment {
        Moment::at_nanos(self.input(Known::detach))
    }

    /// Notes the last renewal, which was sent at `sent` and gave the hold `ttl_ms`.
    pub(crate) fn left_until(&self, sent: Moment, ttl_ms: u64) {
        let (now, sent) = (Moment::now().nanos(), sent.nanos());
        self.input(|known| known.left(now, sent, ttl_ms));
    }

    /// Whether no guard is left: all were released or detached.
    pub(crate) fn is_unattended(&self) -> bool {
        lock(&self.known).is_unattended()
    }
}

/// A renewal of the watchdog, for as long as it is under way.
pub(crate) struct Renewing<'a> {
    hold: &'a Hold,
    /// The TTL to ask for.
    pub(crate) ttl_ms: u64,
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        if self.hold.input(Known::renewal_over) {
            self.hold.unasked.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::client::Loss;
    use fairlock_core::{Mode, RequestId};

    const LEASE: Lease = Lease {
        ms: 60_000,
        renewed: true,
        end_ns: None,
        ends_by_max_hold: false,
        may_be_cut: false,
        java_fleet: false,
    };

    fn hold(lease: Lease, until: Moment) -> Hold {
        let (name, owner) = (LockName::new(b"x").unwrap(), OwnerId::parse(b"someone"));
        let request = RequestId::from_random(1);
        let acquisition = Acquisition::new(Kind::Fair, owner, Mode::Wait, 60_000, false, request);
        Hold::new(name, acquisition, Token::new(1).unwrap(), Known::new(lease, until.nanos()))
    }

    #[test]
    fn nothing_comes_back_from_lost() {
        let until = Moment::now().plus_ms(60_000);
        let hold = hold(LEASE, until);
        assert_eq!(hold.state(), GuardState::Held);
        hold.suspect();
        assert_eq!(hold.state(), GuardState::Suspect);
        hold.renewed(Moment::now(), 60_000);
        assert_eq!(hold.state(), GuardState::Held);
        hold.lose(Loss::Expired);
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
            hold(LEASE, over)
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
        let lease = Lease { end_ns: Some(end.nanos()), ends_by_max_hold: true, ..LEASE };
        assert!((4_000..=5_000).contains(&lease.wanted_ms(Moment::now().nanos())));
        let until = end.plus_ms(1);
        let hold = hold(lease, until);
        assert_eq!(hold.valid_until(), end);
        hold.renewed(Moment::now(), 60_000);
        assert_eq!(hold.valid_until(), end);
        let over = Lease { end_ns: Some(Moment::now().minus_ms(1).nanos()), ..lease };
        assert_eq!(over.wanted_ms(Moment::now().nanos()), 1);
    }
}
