//! The election: one leader at a time, known to everybody.

use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::api::observer::{Leader, Observer};
use crate::api::session::Session;
use crate::base::backoff::Backoff;
use crate::base::error::{Error, ErrorKind};
use crate::engine::election::{self, Patience};
use crate::settings::config::MIN_LEASE;
use crate::state::hold::Hold;
use crate::state::outcome::Release;
use fairlock_core::{ANNOUNCED_BYTES_MAX, Kind, LockName, MAX_LEASE_MS};
use std::convert::identity;
use std::fmt;
use std::future::Future;
use std::ops::{ControlFlow, Deref};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// An election by name: at most one candidate leads at a time, and everybody can see which.
///
/// It is the [fair lock](crate::Client::fair_lock) of that name: candidates lead in the order in
/// which they campaigned, the next one takes over when a dead leader's lease ends, and
/// [`Lock::inspect`] and `fairlock status` show the leader as holder and the candidates as waiters.
/// The fencing token is the term: a resource that refuses smaller tokens refuses leaders of earlier
/// terms. An election adds a value that the leader announces (its address, for instance), and
/// [`observe`](Self::observe).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let election = client.election("scheduler");
/// let term = election.campaign("http://10.0.0.7:8080").await?; // leads from here on
///
/// let mut observer = client.election("scheduler").observe().await?; // in any process
/// let leader = observer.changed().await?.expect("somebody leads");
/// assert_eq!(leader.term, term.token());
/// assert_eq!(leader.value.as_deref(), Some(&b"http://10.0.0.7:8080"[..]));
///
/// let _ = term.resign().await?;
/// assert!(observer.changed().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called and awaited"]
pub struct Election {
    lock: Lock,
    session: Session,
    patience: Option<Duration>,
}

impl Election {
    /// The longest value that can be announced, in bytes: enough for an address, or a small record
    /// of where to find more.
    pub const VALUE_BYTES_MAX: usize = ANNOUNCED_BYTES_MAX;

    pub(crate) fn new(session: Session, name: &[u8]) -> Self {
        Self { lock: Lock::new(session.clone(), name, Kind::Fair), session, patience: None }
    }

    /// Returns the election's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.lock.name()
    }

    /// Requires a sign of life: if the program does not [touch](Term::touch) a term for `time`,
    /// counted from the start of the term or the last touch, the term is lost and the next
    /// candidate leads. A lease is renewed in the background even while the leading program hangs;
    /// this setting ends the term of such a program.
    ///
    /// This client measures the time. The program may still be working when another candidate
    /// already leads, so the resource must check the [token](Guard::token), as always.
    ///
    /// With a time below 100 ms or above ten years, the next call fails.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let election = client.election("scheduler").while_touched(Duration::from_millis(100));
    /// let term = election.campaign("me").await?;
    /// term.touch(); // with every round of the work
    /// term.lost().await; // no more of them
    /// assert_eq!(term.lost_reason(), Some(fairlock::LostReason::Untouched));
    /// # Ok(())
    /// # }
    /// ```
    pub fn while_touched(mut self, time: Duration) -> Self {
        self.patience = Some(time);
        self
    }

    /// Waits for its turn to lead, and announces `value`, which may have up to 1024 bytes.
    ///
    /// # Errors
    /// Those of [`Lock::lock`], and [`Misuse`](crate::ErrorKind::Misuse) for a value that is too
    /// long, before anything is sent. If the value cannot be announced, the term is given back and
    /// the error is the store's.
    ///
    /// # Cancel safety
    /// As for [`Lock::lock`]: dropping the future gives up the candidacy, or the term.
    pub async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Term, Error> {
        let value = self.checked(value.as_ref())?;
        self.announced(self.lock.lock().await?, value).await
    }

    /// Leads with a guard of the election's lock, however it was acquired: with
    /// [`try_lock_for`](Lock::try_lock_for), or from a [place in the queue](Lock::enqueue).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// if let Some(guard) = client.fair_lock("scheduler").try_lock().await? {
    ///     let term = client.election("scheduler").lead(guard, "me").await?;
    /// #   let _ = term.resign().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A hold announces one value, the last that any of its terms has set: with another guard of a
    /// hold that already leads, this call sets the value as [`Term::proclaim`] does.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign), and [`Misuse`](crate::ErrorKind::Misuse) for a guard of another lock or
    /// another client. The guard is then released, as if it had been dropped.
    ///
    /// # Cancel safety
    /// Dropping the future releases the guard.
    pub async fn lead(&self, guard: Guard, value: impl AsRef<[u8]>) -> Result<Term, Error> {
        let value = self.checked(value.as_ref())?;
        let here = self.session.context().client_id;
        let is_its = self.lock.name()? == guard.name() && guard.hold().kind() == Kind::Fair;
        if !is_its || guard.owner().client() != Some(here) {
            let message = "the guard is not one of this election's lock, a fair lock of the same name and client";
            return Err(self.lock.about(Error::misuse(message)));
        }
        self.announced(guard, value).await
    }

    /// Campaigns, runs `work` while leading, and returns its result. If the term is lost, drops the
    /// future of `work` and campaigns again. `work` receives the term, which is over when this
    /// function returns.
    ///
    /// ```
    /// # async fn serve(_: &fairlock::Term) -> u32 { 42 }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let election = client.election("scheduler");
    /// let value = election.run("me", async |term| serve(&term).await).await?;
    /// assert_eq!(value, 42);
    ///
    /// // In a task of its own:
    /// let task = tokio::spawn(async move {
    ///     election.run("me", |term| async move { serve(&term).await }).await
    /// });
    /// # assert_eq!(task.await.unwrap()?, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign), from the first campaign or a later one. An
    /// unreachable store is such an error: the program decides whether and when to try again.
    ///
    /// # Panics
    /// If `work` does; the term is given back in the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops the future of `work`, and gives up the candidacy or the term.
    pub async fn run<T, F, Fut>(&self, value: impl AsRef<[u8]>, mut work: F) -> Result<T, Error>
    where
        F: FnMut(Term) -> Fut,
        Fut: Future<Output = T>,
    {
        let value = value.as_ref();
        loop {
            let term = match self.campaign(value).await {
                Ok(term) => term,
                // It was lost before the value was announced.
                Err(error) if error.kind() == ErrorKind::Lost => continue,
                Err(error) => return Err(error),
            };
            let hold = term.guard.hold();
            let mut work = pin!(work(term));
            tokio::select! {
                // A value that is ready matters more than the news of a loss.
                biased;
                value = &mut work => return Ok(value),
                () = hold.lost() => {}
            }
        }
    }

    /// Campaigns and runs `work` in one term after the other, until `work` returns [`ControlFlow::Break`]: for a
    /// service that is a candidate as long as it runs. It campaigns again when a term is lost (the future of `work` is
    /// then dropped), when `work` returns [`ControlFlow::Continue`] (the term is then given back, and the next candidate
    /// leads), and after an error that is [retryable](crate::ErrorKind::is_retryable), after a pause of up to 2 s.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # async fn serve(_: &fairlock::Term) -> ControlFlow<()> { ControlFlow::Break(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// client.election("scheduler").run_terms("me", async |term| serve(&term).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign) that are not retryable.
    ///
    /// # Panics
    /// If `work` does; the term is given back in the background.
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub async fn run_terms<T, F, Fut>(
        &self,
        value: impl AsRef<[u8]>,
        mut work: F,
    ) -> Result<T, Error>
    where
        F: FnMut(Term) -> Fut,
        Fut: Future<Output = ControlFlow<T>>,
    {
        let value = value.as_ref();
        let mut backoff = Backoff::default();
        loop {
            let term = self.run(value, |term| {
                backoff = Backoff::default();
                work(term)
            });
            match term.await {
                Ok(ControlFlow::Break(value)) => return Ok(value),
                Ok(ControlFlow::Continue(())) => {}
                Err(error) => self.pause_after(error, &mut backoff).await?,
            }
        }
    }

    /// Waits before another campaign.
    ///
    /// # Errors
    /// This one, if another campaign would fail as well.
    pub(crate) async fn pause_after(
        &self,
        error: Error,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        if !error.kind().is_retryable() {
            return Err(error);
        }
        let pause = backoff.next();
        // On the client's thread: the caller's need not have a timer.
        self.session.on_background(tokio::time::sleep(pause)).await
    }

    /// Returns who leads now, if anybody does. One round trip.
    ///
    /// # Errors
    /// Those of [`Lock::lock`].
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Observer::look(&self.session, self.lock.name()?).await.map(Leader::of)
    }

    /// Observes who leads: see [`Observer`].
    ///
    /// # Errors
    /// Those of [`Lock::lock`], and [`Denied`](crate::ErrorKind::Denied) without the right to the election's channel.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn observe(&self) -> Result<Observer, Error> {
        Observer::begin(self.session.clone(), self.lock.name()?.clone()).await
    }

    fn checked(&self, value: &[u8]) -> Result<Vec<u8>, Error> {
        self.lock.name()?;
        if value.len() > ANNOUNCED_BYTES_MAX {
            return Err(self.lock.about(too_long(value.len())));
        }
        if let Some(time) = self.patience
            && (time < MIN_LEASE || time > Duration::from_millis(MAX_LEASE_MS))
        {
            let message = format!(
                "a sign of life every {time:?} cannot be waited for; the time must be between {MIN_LEASE:?} and ten \
                 years"
            );
            return Err(self.lock.about(Error::misuse(message)));
        }
        Ok(value.to_vec())
    }

    async fn announced(&self, guard: Guard, value: Vec<u8>) -> Result<Term, Error> {
        let patience = Arc::new(Patience::new(self.patience));
        let (session, hold) = (self.session.clone(), guard.hold());
        hold.announces(value);
        let mut office = Office { hold, patience, session, keeper: None };
        office.announce().await?;
        // The time that the store took to answer does not count as the program's silence.
        office.patience.touch();
        let context = Arc::clone(self.session.context());
        let (hold, patience) = (Arc::clone(&office.hold), Arc::clone(&office.patience));
        office.keeper = Some(self.session.context().spawn(election::keep(context, hold, patience)));
        Ok(Term { guard, office })
    }
}

/// One term of a leader: from the grant until the leader [resigns](Self::resign), or the term is
/// dropped or lost. A [`Guard`] of the election's lock, whose [token](Guard::token) is the number
/// of the term.
#[must_use = "bind it to a named variable, `let _term = ...`; `let _ = ...` resigns at once"]
pub struct Term {
    guard: Guard,
    office: Office,
}

/// The parts of a term besides its guard.
pub(crate) struct Office {
    hold: Arc<Hold>,
    patience: Arc<Patience>,
    session: Session,
    /// Repeats the announcement, and measures the time without a sign of life; ends with the term.
    keeper: Option<JoinHandle<()>>,
}

impl Term {
    /// Announces another value, of up to 1024 bytes, in place of the current one.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost), [`Misuse`](crate::ErrorKind::Misuse) for a value that is
    /// too long, or the store's errors. The client repeats the announcement every 20 s, so the value may
    /// arrive after an error of the store.
    ///
    /// # Cancel safety
    /// If the future is dropped, the value may still be announced.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.office.proclaim(value.as_ref()).await
    }

    /// Gives a sign of life of the program: see [`Election::while_touched`]. No I/O.
    pub fn touch(&self) {
        self.office.touch();
    }

    /// Ends the term, and returns the outcome: see [`Guard::release`]. The next candidate leads at once.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::release`].
    pub async fn resign(self) -> Result<Release, Error> {
        self.into_guard().release().await
    }

    /// Returns the guard itself, for functions that consume one. The announcement is no longer
    /// repeated, and no sign of life is required.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_parts(self) -> (Guard, Office) {
        (self.guard, self.office)
    }
}

impl Office {
    pub(crate) async fn proclaim(&self, value: &[u8]) -> Result<(), Error> {
        if value.len() > ANNOUNCED_BYTES_MAX {
            return Err(too_long(value.len()).on(&self.hold.name).by(self.hold.owner()));
        }
        self.hold.ensure_valid()?;
        self.hold.announces(value.to_vec());
        self.announce().await
    }

    pub(crate) fn touch(&self) {
        self.patience.touch();
    }

    async fn announce(&self) -> Result<(), Error> {
        let (context, hold) = (Arc::clone(self.session.context()), Arc::clone(&self.hold));
        context.usable().map_err(|error| error.on(&hold.name))?;
        let announced =
            self.session.on_background(async move { election::announce(&context, &hold).await });
        let about = |error: Error| error.on(&self.hold.name).by(self.hold.owner());
        announced.await.and_then(identity).map_err(about)
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let keeper = self.keeper.take();
        if self.session.context().origin.is_forked_child() {
            // The term belongs to the parent, as does everything that dropping the last copy of the
            // hold would touch.
            std::mem::forget((keeper, Arc::clone(&self.hold), self.session.clone()));
        } else if let Some(keeper) = keeper {
            keeper.abort();
        }
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

fn too_long(bytes: usize) -> Error {
    Error::misuse(format!(
        "a value of {bytes} bytes cannot be announced; the most are {ANNOUNCED_BYTES_MAX}: announce where to find the rest"
    ))
}
