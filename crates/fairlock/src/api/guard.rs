//! The guard: what a caller owns while it holds a lock.

use crate::api::detached::Detached;
use crate::api::release_ticket::ReleaseTicket;
use crate::api::session::Session;
use crate::base::clock::Moment;
use crate::base::concurrent::all;
use crate::base::error::Error;
use crate::base::lost_reason::LostReason;
use crate::engine::{detach, downgrade, reenter, release};
use crate::settings::config::MIN_LEASE;
use crate::state::hold::{GuardEnd, Hold, Part};
use crate::state::in_flight::InFlightCleanup;
use crate::state::outcome::Release;
use crate::state::standing::GuardState;
use fairlock_core::{LockName, MAX_LEASE_MS, OwnerId, Token as FencingToken};
use std::convert::identity;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop;

/// Holds a lock until it is released or dropped, or the lock is lost.
///
/// The guard is renewed in the background (unless the lock has an explicit lease). It reports at
/// any time, without I/O, whether it still protects the resource: [`state`](Self::state),
/// [`ensure_valid`](Self::ensure_valid). The protected resource should check the
/// [`token`](Self::token): only the resource itself can refuse a holder that was paused for longer
/// than its lease.
///
/// Dropping the guard releases the lock in the background, from any thread and at the end of
/// `main`; [`release`](Self::release) returns the outcome. So bind it to a named variable,
/// `let _guard = ...`: `let _ = ...` releases at once.
#[must_use = "bind it to a named variable, `let _guard = ...`; `let _ = ...` releases at once"]
pub struct Guard {
    hold: Arc<Hold>,
    session: Session,
    done: bool,
    /// It only reads, in a writer's hold.
    reading: bool,
}

impl Guard {
    pub(crate) fn new(Part { hold, reading }: Part, session: Session) -> Self {
        Self { hold, session, done: false, reading }
    }

    pub(crate) fn hold(&self) -> Arc<Hold> {
        Arc::clone(&self.hold)
    }

    /// Returns the fencing token: larger than every token granted before on this lock, and the same
    /// for all guards of one hold.
    pub fn token(&self) -> FencingToken {
        self.hold.token
    }

    /// Returns the owner id, as it is written in the lock's key.
    pub fn owner(&self) -> &OwnerId {
        self.hold.owner()
    }

    /// Returns what another process needs to release this hold once this process is dead.
    #[doc(hidden)]
    pub fn release_ticket(&self) -> ReleaseTicket {
        let request = self.hold.acquisition.request();
        ReleaseTicket::new(self.name(), self.hold.kind(), self.owner(), self.token(), request)
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.hold.name
    }

    /// Returns how long this guard is valid without another renewal, by this machine's clock:
    /// counted from when the last confirmed request was sent, less a margin. Zero when lost.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns the whole lease: the explicit one, or what each renewal grants. Never more than the
    /// [longest hold](crate::Lock::max_hold). Zero in a forked child.
    pub fn lease(&self) -> Duration {
        if self.hold.is_forked_child() { Duration::ZERO } else { self.hold.lease().whole() }
    }

    /// Returns the hold count: this guard and its [re-entries](Self::reenter), without those that
    /// were released. [Detached](Self::detach) guards count. 0 in a forked child. No I/O.
    pub fn hold_count(&self) -> u32 {
        if self.hold.is_forked_child() { 0 } else { self.hold.count() }
    }

    /// Returns whether the guard still protects the resource. No I/O.
    pub fn state(&self) -> GuardState {
        self.hold.state()
    }

    /// Returns why the lock was lost; `None` if it is not lost. No I/O.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.hold.lost_reason()
    }

    /// Returns why the last renewal failed: the store's error, or that the store could not be
    /// reached. `None` if it succeeded, or if none has ended yet. No I/O.
    pub fn renewal_error(&self) -> Option<Error> {
        self.hold.renewal_error()
    }

    /// Waits for a state other than `from`; returns at once if the state already differs. Never
    /// resolves after [`Lost`](GuardState::Lost), which is final.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn state_changed(&self, from: GuardState) -> GuardState {
        self.hold.state_changed(from).await
    }

    /// Resolves when the lock is lost, at the latest when its validity ends.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Checks that the guard protects the resource at this moment. No I/O.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if it does not.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.hold.ensure_valid().map_err(|error| {
            let expired = error.lost_reason() == Some(LostReason::Expired);
            let ended = expired && self.session.context().is_closed();
            match ended && self.hold.lease().renewed {
                true => error.noting("its client was shut down, and no longer renewed it"),
                false => error,
            }
        })
    }

    fn ensure_open(&self) -> Result<(), Error> {
        self.session.context().usable().map_err(|error| self.about(error))
    }

    fn about(&self, error: Error) -> Error {
        error.on(&self.hold.name).by(self.hold.owner())
    }

    /// Enters the lock once more and returns a second guard of the same hold, with the same token.
    /// The lock is free once all guards are released. A simple lock's string has no count, so its
    /// guards are counted in this process, without a call to the store.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost), [`Misuse`](crate::ErrorKind::Misuse) at 2^31 - 1 guards,
    /// or the store's errors.
    ///
    /// # Cancel safety
    /// Dropping the future takes the re-entry back.
    pub async fn reenter(&self) -> Result<Self, Error> {
        // A simple lock needs no call to the store. As in `release`, this check comes before
        // anything is done.
        coop::consume_budget().await;
        self.ensure_open()?;
        self.ensure_valid()?;
        let Some(change) = self.hold.enter(self.reading) else {
            return Err(reenter::too_deep(&self.hold));
        };
        // From here on dropping `second` takes the re-entry back.
        let part = Part { hold: Arc::clone(&self.hold), reading: self.reading };
        let second = Self::new(part, self.session.clone());
        if self.hold.is_counted_here() {
            return Ok(second);
        }
        let hold = Arc::clone(&self.hold);
        let context = Arc::clone(self.session.context());
        let reply = self
            .session
            .on_background(async move { reenter::enter(&context, &hold, change).await });
        match reply.await.and_then(identity) {
            Ok(()) => Ok(second),
            Err(error) => Err(self.about(error)),
        }
    }

    /// Leaves the lock to the store: renews it once more, for the whole lease or for what remains
    /// of the [longest hold](crate::Lock::max_hold). The lock then stays held until that time is
    /// over, and nothing renews it again. Other guards of the same hold can still be released,
    /// which does not free the lock; guards that remain are lost when the lease ends. Only
    /// [`force_unlock`](crate::Lock::force_unlock) frees it earlier.
    ///
    /// Use it for work that continues where no guard can be, such as a job that was handed to
    /// another system, or for "at most once a minute".
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("newsletter").lease(Duration::from_secs(60));
    /// let detached = lock.lock().await?.detach().await?;
    /// println!("nobody else for {:?}, token {}", detached.remaining(), detached.token());
    /// assert!(lock.try_lock().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is no longer held,
    /// [`Closed`](crate::ErrorKind::Closed), [`NotReplicated`](crate::ErrorKind::NotReplicated) if
    /// too few [replicas](crate::Config::replicas) have the renewal, or the store's errors. After
    /// any of them this guard is released, as if it had been dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the guard is released.
    pub async fn detach(self) -> Result<Detached, Error> {
        self.leave(None).await
    }

    /// Like [`detach`](Self::detach), but for `time` from now, whatever the lease or the longest hold: "done for this
    /// period". The time is between 100 ms and ten years. The hold must have no other guard, not even a detached one.
    ///
    /// `time` counts from this call, not from the grant. For a job every hour choose less than an
    /// hour minus the time that the job takes and the differences between clocks, or the next run
    /// finds the lock held and is skipped. It is best to count from the start, as `fairlock run
    /// --once-per` does:
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// # async fn send() {}
    /// /// The job runs every hour, started by a clock that may be some minutes off.
    /// const ONCE_PER: Duration = Duration::from_secs(50 * 60);
    ///
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("newsletter").owned_by(&client.once_owner());
    /// let began = Instant::now();
    /// if let Some(guard) = lock.try_lock().await? {
    ///     send().await; // renewed for as long as this takes; given back if it fails
    ///     let left = ONCE_PER.saturating_sub(began.elapsed());
    ///     guard.detach_for(left.max(Duration::from_millis(100))).await?;
    /// }
    /// assert!(lock.try_lock().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An earlier, unanswered renewal on a lost connection may reach the server after this one. The
    /// lock then stays held for as long as that renewal grants, counted from its arrival, and no
    /// longer.
    ///
    /// # Errors
    /// Those of [`detach`](Self::detach), and [`Misuse`](crate::ErrorKind::Misuse) for a time out
    /// of bounds or while the hold has other guards. After any of them this guard is released, as
    /// if it had been dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the guard is released.
    pub async fn detach_for(self, time: Duration) -> Result<Detached, Error> {
        if time < MIN_LEASE || time > Duration::from_millis(MAX_LEASE_MS) {
            let message = format!(
                "a lock cannot be left to the store for {time:?}; it must be between {MIN_LEASE:?} and ten years"
            );
            return Err(self.about(Error::misuse(message)));
        }
        self.leave(Some(Moment::now().plus(time))).await
    }

    /// Reads from now on, instead of writing.
    pub(crate) async fn downgrade(self) -> Result<Self, Error> {
        // As in `release`.
        coop::consume_budget().await;
        self.ensure_open()?;
        self.ensure_valid()?;
        if self.hold.begin_reading().is_none() {
            let message = "a lock that is held by several guards that write cannot be downgraded, \
                           because the others go on writing; release them first";
            return Err(self.about(Error::misuse(message)));
        }
        let (context, hold) = (Arc::clone(self.session.context()), Arc::clone(&self.hold));
        let changed =
            self.session.on_background(async move { downgrade::downgrade(&context, &hold).await });
        match changed.await.and_then(identity) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.about(error)),
        }
    }

    /// Leaves the lock to the store: until `end`, or for its lease.
    async fn leave(mut self, end: Option<Moment>) -> Result<Detached, Error> {
        self.ensure_open()?;
        self.ensure_valid()?;
        let hold = Arc::clone(&self.hold);
        let context = Arc::clone(self.session.context());
        let renewed = self
            .session
            .on_background(async move { detach::renew_once(&context, &hold, end).await });
        if let Err(error) = renewed.await.and_then(identity) {
            self.ensure_valid()?;
            return Err(self.about(error));
        }
        self.ensure_valid()?;
        // From here on there is no await, so the future cannot be dropped in between.
        self.done = true;
        let until = detach::leave_behind(self.session.context(), &self.hold);
        Ok(Detached::new(&self.hold, until))
    }

    /// Releases this guard and returns the outcome. Waits for the store's answer until the hold
    /// would have ended by itself, for at most the [store timeout](crate::Config::store_timeout).
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) in a forked child. The outcome of the release is never
    /// an error, not even [`Lost`] or [`Unknown`]. A lock can still be released after a
    /// [shutdown](crate::Client::shutdown): otherwise nobody could take it until its lease ends.
    ///
    /// [`Lost`]: Release::Lost
    /// [`Unknown`]: Release::Unknown
    ///
    /// # Cancel safety
    /// The release continues if the future is dropped; only its outcome is lost.
    pub async fn release(mut self) -> Result<Release, Error> {
        // A release that completes at once must still let other tasks run. The guard is still whole
        // here: if this future is dropped at this await, the guard is released like any other.
        coop::consume_budget().await;
        if self.session.context().is_forked_child() {
            let error = self.about(Error::forked());
            std::mem::forget(self);
            return Err(error);
        }
        let end = self.end();
        if let Some(outcome) = release::release_now(self.session.context(), &self.hold, end) {
            return Ok(outcome);
        }
        let (context, hold) = (Arc::clone(self.session.context()), Arc::clone(&self.hold));
        let in_flight = InFlightCleanup::new(&context.in_flight);
        let outcome = self.session.begun_here(async move {
            let outcome = release::release(&context, &hold, end).await;
            drop(in_flight);
            outcome
        });
        outcome.await.map_err(|error| self.about(error))
    }

    /// As [`release`](Self::release), in the task that polls it.
    async fn release_here(mut self) -> Result<Release, Error> {
        let end = self.end();
        Ok(release::release(self.session.context(), &self.hold, end).await)
    }

    /// Marks this guard as released; the hold is not renewed on its behalf any more.
    fn end(&mut self) -> GuardEnd {
        self.done = true;
        // Metrics are the application's code: a hold that nobody has must not be renewed.
        let _closes = self.session.context().closes_on_panic();
        let end = self.hold.leave(self.reading);
        if end.unattended {
            self.session.context().watchdog.forget(&self.hold);
        }
        end
    }
}

/// Releases all these guards of one client at once: [`Guard::release`] for each, in one task.
pub(crate) async fn release_all(guards: Vec<Guard>) -> Vec<Result<Release, Error>> {
    let Some(first) = guards.first() else { return Vec::new() };
    let (session, name) = (first.session.clone(), first.name().clone());
    let context = session.context();
    if context.is_forked_child() || context.store.is_synchronous() {
        return all(guards.into_iter().map(Guard::release)).await;
    }
    coop::consume_budget().await;
    let in_flight = InFlightCleanup::new(&context.in_flight);
    // If a metric panics, the guards whose release has not begun are dropped, and so released like
    // any guard.
    let released = session.begun_here(async move {
        let outcomes = all(guards.into_iter().map(Guard::release_here)).await;
        drop(in_flight);
        outcomes
    });
    released.await.unwrap_or_else(|error| vec![Err(error.on(&name))])
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.session.context().is_forked_child() {
            // The hold belongs to the parent, and so does everything that dropping its last copy
            // would touch.
            std::mem::forget((Arc::clone(&self.hold), self.session.clone()));
            return;
        }
        let end = self.end();
        if release::release_now(self.session.context(), &self.hold, end).is_none() {
            release::release_later(self.session.context(), self.hold(), end, None);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.hold.name)
            .field("owner", self.hold.owner())
            .field("token", &self.hold.token)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
