//! The latch: a count that others wait for.

use crate::api::session::Session;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::latch;
use fairlock_core::{
    LATCH_COUNT_MAX, LatchFate, LatchOp, LatchRequest, LatchSeen, LockName, Opened, latch_fate,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How much longer a timed wait may take if the store is silent at its end.
const SILENCE_GRACE: Duration = Duration::from_millis(500);

/// A latch by name: it is set to a number, counted down, and opens at 0. Any number of tasks, on any
/// number of hosts, can wait until it is open.
///
/// On a server it is Redisson's `RCountDownLatch` of the same name: Java clients set it, count it
/// down and wait for it as clients of fairlock do.
///
/// It is not a lock. Nobody holds it, a client that dies does not count it down, and it has no
/// lease: a latch that nobody counts down stays until [`delete`](Self::delete).
///
/// # What ends a wait
/// [`Opened::CountedDown`]: the latch was counted down to 0. [`Opened::Gone`]: the latch does not
/// exist, and nothing shows that it was counted down: it was deleted, was lost with the server's
/// data, was never set, or was counted down by a Java client whose message was lost. The event that
/// the latch stands for may then not have happened; check whether it has, or treat this result as
/// an error. A wait that begins when there is no latch gets the outcome of the last one that a
/// client of fairlock saw. If a latch ends and is set anew while somebody waits, that wait does not continue with
/// the new latch.
///
/// A waiting client looks at the latch with each heartbeat
/// ([`Config::heartbeat`](crate::Config::heartbeat)), once for all of its waiting tasks; messages
/// only speed this up.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// use fairlock::Opened;
///
/// let client = fairlock::Client::connect("memory:").await?;
/// let import = client.latch("import");
/// assert!(import.try_set(2).await?);
/// import.count_down().await?;
/// let rest = import.clone();
/// let worker = tokio::spawn(async move { rest.count_down().await });
/// assert_eq!(import.wait().await?, Opened::CountedDown);
/// # worker.await.unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is asked before one of its methods is called and awaited"]
pub struct Latch {
    session: Session,
    name: Result<LockName, Error>,
}

impl Latch {
    pub(crate) fn new(session: Session, name: &[u8]) -> Self {
        Self { session, name: LockName::new(name).map_err(Error::from) }
    }

    /// Sets the count, from 1 to 2^53 - 1. Returns `false` and changes nothing if the latch is
    /// already set and not yet counted down.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) for another count or a bad name;
    /// [`WrongType`](crate::ErrorKind::WrongType) if the name is in use for something else; the
    /// store's errors. After [`Unknown`](crate::ErrorKind::Unknown) the latch may be set or not;
    /// after [`NotReplicated`](crate::ErrorKind::NotReplicated) it is set, but on too few replicas.
    ///
    /// # Cancel safety
    /// Once begun, the call continues even if the future is dropped.
    pub async fn try_set(&self, count: u64) -> Result<bool, Error> {
        if !(1..=LATCH_COUNT_MAX).contains(&count) {
            let message = format!("a latch counts from 1 to {LATCH_COUNT_MAX}, not {count}");
            return Err(Error::misuse(message));
        }
        let request = self.request()?;
        Ok(self.carry_out(LatchOp::Set { count, request }).await?.done)
    }

    /// Counts down by one, and returns the new count. A latch that is open stays open.
    ///
    /// Each call counts once, however often it is sent when connections break: the store recognises
    /// copies of a call.
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set). After [`Unknown`](crate::ErrorKind::Unknown) the call may
    /// have counted, and after [`NotReplicated`](crate::ErrorKind::NotReplicated) it has: another
    /// call counts once more.
    ///
    /// # Cancel safety
    /// Once begun, the call continues even if the future is dropped.
    pub async fn count_down(&self) -> Result<u64, Error> {
        let request = self.request()?;
        Ok(self.carry_out(LatchOp::CountDown { request }).await?.count)
    }

    /// Returns the count; 0 if the latch is open, or was never set.
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn count(&self) -> Result<u64, Error> {
        Ok(self.carry_out(LatchOp::Look { waiting: None }).await?.count)
    }

    /// Waits until the latch is open; returns at once if it is open or was never set.
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set); [`Unavailable`](crate::ErrorKind::Unavailable) if the store
    /// does not answer within [`Config::store_timeout`](crate::Config::store_timeout), even in the
    /// middle of the wait.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait, and changes nothing.
    pub async fn wait(&self) -> Result<Opened, Error> {
        self.wait_until_open(None).await
    }

    /// Waits for the latch of this generation, or for the present one.
    async fn wait_until_open(&self, waits_for: Option<u64>) -> Result<Opened, Error> {
        let (context, name) = (self.session.context(), self.name.clone()?);
        context.usable()?;
        context.background()?;
        let mut waiting = latch::wait(context, &name, waits_for);
        // If the task that looks has ended without a result, so has the client.
        (&mut waiting.done).await.unwrap_or_else(|_| Err(Error::closed().on(&name)))
    }

    /// Waits until the latch is open, for at most `time`; returns `None` if it is not open by then.
    /// A store that is silent when the time is up gets half a second more.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and [`Unavailable`](crate::ErrorKind::Unavailable) if the store is silent
    /// when the time is up.
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    pub async fn wait_for(&self, time: Duration) -> Result<Option<Opened>, Error> {
        let until = Moment::now().plus(time);
        // Finds out which latch this call waits for. Without time left, a look is enough, and changes nothing.
        let waiting = (!time.is_zero()).then_some(0);
        let first = self.look_within(time.saturating_add(SILENCE_GRACE), waiting).await?;
        let generation = match latch_fate(None, &first, false) {
            LatchFate::Over(opened) => return Ok(Some(opened)),
            LatchFate::Closed(generation) => generation,
        };
        if until.left().is_zero() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            opened = self.wait_until_open(Some(generation)) => return opened.map(Some),
            () = self.session.sleep(until.left()) => {}
        }
        // A waiter's look, which restores a lost note.
        let last = self.look_within(SILENCE_GRACE, Some(generation)).await?;
        Ok(match latch_fate(Some(generation), &last, false) {
            LatchFate::Over(opened) => Some(opened),
            LatchFate::Closed(_) => None,
        })
    }

    /// Looks at the latch, if the store answers within `time`.
    async fn look_within(&self, time: Duration, waiting: Option<u64>) -> Result<LatchSeen, Error> {
        tokio::select! {
            biased;
            seen = self.carry_out(LatchOp::Look { waiting }) => seen,
            () = self.session.sleep(time) => {
                let message = "the store did not answer while this waited, so nobody knows whether the \
                               latch is open; check the server and the network, or wait for longer";
                Err(Error::new(ErrorKind::Unavailable, message).on(&self.name.clone()?))
            }
        }
    }

    /// Removes the latch, whatever its count. Everybody who waits for it gets [`Opened::Gone`].
    /// Returns whether there was a latch.
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set).
    ///
    /// # Cancel safety
    /// Once begun, the call continues even if the future is dropped.
    pub async fn delete(&self) -> Result<bool, Error> {
        let request = self.request()?;
        Ok(self.carry_out(LatchOp::Delete { request }).await?.done)
    }

    /// Creates a request; its time limit is set when it is sent.
    fn request(&self) -> Result<LatchRequest, Error> {
        Ok(LatchRequest { id: self.session.context().new_request()?, not_after_ms: 0 })
    }

    async fn carry_out(&self, op: LatchOp) -> Result<LatchSeen, Error> {
        let (context, name) = (Arc::clone(self.session.context()), self.name.clone()?);
        context.usable()?;
        let work = async move { latch::carry_out(&context, &name, op).await };
        self.session.on_background(work).await?
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("name", &self.name).finish_non_exhaustive()
    }
}
