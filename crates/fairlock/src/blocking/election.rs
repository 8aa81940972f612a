//! The election, for threads.

use super::{Guard, Interrupt, wait};
use crate::api::election::Office;
use crate::api::observer::{self, Leader};
use crate::base::backoff::Backoff;
use crate::base::error::{Error, ErrorKind};
use crate::state::outcome::Release;
use crate::state::standing::GuardState;
use fairlock_core::LockName;
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::time::Duration;

/// A named election: see [`Election`](crate::Election) of the async API.
///
/// A term does not belong to the thread: each campaign is independent, even in a thread that
/// already leads.
///
/// ```
/// # fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::blocking::Client::connect("memory:")?;
/// let election = client.election("scheduler");
/// let term = election.campaign("me")?;
/// assert_eq!(election.leader()?.expect("somebody leads").term, term.token());
/// let _ = term.resign()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called"]
pub struct Election {
    inner: crate::Election,
    interrupt: Option<Interrupt>,
}

impl Election {
    pub(super) fn new(inner: crate::Election) -> Self {
        Self { inner, interrupt: None }
    }

    /// Returns the election's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.inner.name()
    }

    /// Requires a sign of life: see [`Election::while_touched`](crate::Election::while_touched).
    pub fn while_touched(self, time: Duration) -> Self {
        Self { inner: self.inner.while_touched(time), ..self }
    }

    /// Lets `interrupt` end the waits of this handle.
    pub fn interruptible(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    /// Waits for its turn to lead, and announces `value`.
    ///
    /// # Errors
    /// Those of [`Election::campaign`](crate::Election::campaign) of the async API,
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Term, Error> {
        let campaign = self.inner.campaign(value);
        wait::until_interrupted(self.interrupt.as_ref(), campaign).map(Term::new)
    }

    /// Campaigns, runs `work` while leading, and returns its result. If the term was lost by then,
    /// campaigns again and runs `work` once more instead.
    ///
    /// A thread cannot be stopped from outside, so `work` continues when the term is lost, unlike a future in
    /// [`Election::run`](crate::Election::run) of the async API. It should check [`ensure_valid`](Guard::ensure_valid)
    /// before each effect, and return when that fails.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign), from the first campaign or a later one.
    pub fn run<T>(
        &self,
        value: impl AsRef<[u8]>,
        mut work: impl FnMut(&Term) -> T,
    ) -> Result<T, Error> {
        loop {
            let term = match self.campaign(value.as_ref()) {
                Err(error) if error.kind() == ErrorKind::Lost => continue,
                term => term?,
            };
            let value = work(&term);
            if term.state() != GuardState::Lost {
                let _ = term.resign()?;
                return Ok(value);
            }
        }
    }

    /// Campaigns and runs `work` in one term after the other, until `work` returns [`ControlFlow::Break`]: see
    /// [`Election::run_terms`](crate::Election::run_terms) of the async API. As with [`run`](Self::run), `work`
    /// continues when the term is lost; unlike there, what it returns then counts.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign) that are not retryable.
    pub fn run_terms<T>(
        &self,
        value: impl AsRef<[u8]>,
        mut work: impl FnMut(&Term) -> ControlFlow<T>,
    ) -> Result<T, Error> {
        let mut backoff = Backoff::default();
        loop {
            let term = match self.campaign(value.as_ref()) {
                Ok(term) => term,
                // It was lost before the value was announced.
                Err(error) if error.kind() == ErrorKind::Lost => continue,
                Err(error) => {
                    let pause = self.inner.pause_after(error, &mut backoff);
                    wait::until_interrupted(self.interrupt.as_ref(), pause)?;
                    continue;
                }
            };
            backoff = Backoff::default();
            let done = work(&term);
            // If it cannot be given back, its lease ends.
            let _ = term.resign();
            if let ControlFlow::Break(value) = done {
                return Ok(value);
            }
        }
    }

    /// Returns who leads now, if anybody does.
    ///
    /// # Errors
    /// The store's, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        wait::until_ready(self.inner.leader())
    }

    /// Observes who leads: see [`Observer`].
    ///
    /// # Errors
    /// Those of [`Election::observe`](crate::Election::observe) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn observe(&self) -> Result<Observer, Error> {
        let inner = wait::until_ready(self.inner.observe())?;
        Ok(Observer { inner, interrupt: self.interrupt.clone() })
    }
}

/// One term of a leader: see [`Term`](crate::Term) of the async API. Like a [`Guard`], it stays on its thread.
#[must_use = "bind it to a named variable, `let _term = ...`; `let _ = ...` resigns at once"]
pub struct Term {
    guard: Guard,
    office: Office,
}

impl Term {
    fn new(inner: crate::Term) -> Self {
        let (guard, office) = inner.into_parts();
        Self { guard: Guard::new(guard), office }
    }

    /// Announces another value in place of the present one.
    ///
    /// # Errors
    /// Those of [`Term::proclaim`](crate::Term::proclaim) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        wait::until_ready(self.office.proclaim(value.as_ref()))
    }

    /// Gives a sign of life of the program: see [`Election::while_touched`]. No I/O.
    pub fn touch(&self) {
        self.office.touch();
    }

    /// Ends the term, and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub fn resign(self) -> Result<Release, Error> {
        self.into_guard().release()
    }

    /// Returns the guard itself, for functions that consume one: see
    /// [`Term::into_guard`](crate::Term::into_guard).
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for Term {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Watches who leads an election: see [`Observer`](crate::Observer) of the async API.
pub struct Observer {
    inner: observer::Observer,
    interrupt: Option<Interrupt>,
}

impl Observer {
    /// Waits for a state other than the last one, and returns it; the first call returns the present one.
    ///
    /// # Errors
    /// Those of [`Observer::changed`](crate::Observer::changed) of the async API,
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn changed(&mut self) -> Result<Option<Leader>, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), self.inner.changed())
    }

    /// Returns the last state that was seen. No I/O.
    pub fn leader(&self) -> Option<&Leader> {
        self.inner.leader()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
