//! A place in the queue of a fair lock, as a value.

use crate::api::guard::Guard;
use crate::api::session::Session;
use crate::base::error::{Error, ErrorKind};
use crate::engine::acquire::{Answered, Delivery, Requested};
use crate::engine::send::{self, Copies};
use crate::state::outcome::Release;
use crate::state::signals::{Signals, unconfirmed};
use crate::state::standing::GuardState;
use fairlock_core::{Body, Kind, LockName, Op, OwnerId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long to wait before looking again for a waiter that is returning to its place.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A place in the queue of a fair lock; returned by [`Lock::enqueue`](crate::Lock::enqueue).
///
/// The place is kept while the turn lives, whatever happens to the futures of its methods, so
/// [`wait`](Self::wait) can be one branch of a `select!` loop. Once granted, the lock is held, and
/// renewed like any other, for as long as the turn lives, even if nobody waits on the turn;
/// [`max_hold`](crate::Lock::max_hold) limits that.
///
/// Dropping the turn gives up the place in the background, or releases the lock.
/// [`leave`](Self::leave) waits until that is done.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let lock = client.fair_lock("invoice:42");
/// let first = lock.lock().await?;
///
/// let mut turn = lock.enqueue().await?; // from here on it stands in the queue
/// let mut ticks = tokio::time::interval(Duration::from_millis(10));
/// let mut first = Some(first);
/// let guard = loop {
///     tokio::select! {
///         guard = turn.wait() => break guard?,
///         _ = ticks.tick() => {
///             println!("{} before us", turn.position().await?);
///             drop(first.take());
///         }
///     }
/// };
/// let _ = guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the place in the queue is given up as soon as the turn is dropped"]
pub struct Turn {
    state: State,
    name: LockName,
    /// The lock's kind.
    kind: Kind,
    owner: OwnerId,
    cleaned: oneshot::Receiver<Result<(), Error>>,
    /// Last, so that it outlives the clean-up of the other fields.
    session: Session,
}

enum State {
    Waiting(Requested),
    Granted(Guard),
    Failed(Error),
    Taken,
}

impl Turn {
    /// Waits until the request is in the queue, or has another result.
    pub(crate) async fn enter(
        session: Session,
        (name, kind): (LockName, Kind),
        mut requested: Requested,
        signals: Signals,
    ) -> Result<Self, Error> {
        let Signals { queued, cleaned } = signals;
        let result = tokio::select! {
            biased;
            result = &mut requested => result,
            Ok(owner) = queued => {
                return Ok(Self { state: State::Waiting(requested), name, kind, owner, cleaned, session });
            }
        };
        let guard = guard_of(result, &session).map_err(|error| error.on(&name))?;
        let mut turn = Self::granted(session, kind, guard);
        turn.cleaned = cleaned;
        Ok(turn)
    }

    /// The turn of a lock that was granted at once.
    pub(crate) fn granted(session: Session, kind: Kind, guard: Guard) -> Self {
        let (_, cleaned) = oneshot::channel();
        let (name, owner) = (guard.name().clone(), guard.owner().clone());
        Self { state: State::Granted(guard), name, kind, owner, cleaned, session }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the owner id under which this turn waits.
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// Waits until the lock is held. The guard can be taken once.
    ///
    /// # Errors
    /// The store's errors: see [`ErrorKind`]. [`Lost`](ErrorKind::Lost) if the lock was granted,
    /// but lost before the guard was taken. Both are final: the place is gone. `Misuse` if the
    /// guard has already been taken.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the place, or the lock, is kept for the next call.
    pub async fn wait(&mut self) -> Result<Guard, Error> {
        self.ensure_here()?;
        if let State::Waiting(requested) = &mut self.state {
            let result = requested.await;
            self.settle(result);
        }
        // From here on there is no await.
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Granted(guard) => {
                if guard.state() != GuardState::Lost {
                    return Ok(guard);
                }
                let message = "the lock was granted, and lost before anybody took the guard";
                let error = self.about(Error::new(ErrorKind::Lost, message));
                self.state = State::Failed(error.clone());
                Err(error)
            }
            State::Failed(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
            State::Taken | State::Waiting(_) => {
                Err(self.about(Error::misuse("the guard of this turn was taken already")))
            }
        }
    }

    /// Waits for at most `time`; returns `None` if the lock was not granted by then. The place is
    /// kept.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// Same as [`wait`](Self::wait).
    pub async fn wait_for(&mut self, time: Duration) -> Result<Option<Guard>, Error> {
        let session = self.session.clone();
        tokio::select! {
            biased;
            guard = self.wait() => guard.map(Some),
            () = session.sleep(time) => Ok(None),
        }
    }

    /// Returns how many waiters are in front, foreign clients included, the holder excluded; 0 if
    /// this turn is the first, or holds the lock.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait), except `Lost`.
    ///
    /// # Cancel safety
    /// Same as [`wait`](Self::wait).
    pub async fn position(&mut self) -> Result<usize, Error> {
        self.ensure_here()?;
        let until = self.session.context().store_deadline();
        loop {
            match &mut self.state {
                State::Waiting(requested) => match requested.try_recv() {
                    Ok(result) => self.settle(Ok(result)),
                    Err(oneshot::error::TryRecvError::Empty) => {}
                    Err(_) => self.state = State::Failed(self.about(Error::closed())),
                },
                State::Granted(_) => return Ok(0),
                State::Failed(error) => return Err(error.clone()),
                State::Taken => {
                    return Err(
                        self.about(Error::misuse("the guard of this turn was taken already"))
                    );
                }
            }
            if !matches!(self.state, State::Waiting(_)) {
                continue;
            }
            if let Some(ahead) = self.look().await? {
                return Ok(ahead);
            }
            // The grant is on its way to this client, or the waiter is on its way back to its
            // place.
            if until.left().is_zero() {
                let message = "the waiter is not in the queue, and did not return in time";
                return Err(self.about(Error::new(ErrorKind::Unavailable, message)));
            }
            self.session.sleep(LOOK_AGAIN).await;
        }
    }

    async fn look(&self) -> Result<Option<usize>, Error> {
        let context = Arc::clone(self.session.context());
        let (name, op) = (self.name.clone(), Op::Place { owner: self.owner.clone() }.on(self.kind));
        let reply = self.session.on_background(async move {
            let until = context.store_deadline();
            send::until_answered(&context, &name, &op, until, &mut Copies::default()).await
        });
        match reply.await.and_then(std::convert::identity).map(|reply| reply.answer.body) {
            Ok(Body::Place { ahead }) => {
                Ok(ahead.map(|ahead| usize::try_from(ahead).unwrap_or(usize::MAX)))
            }
            Ok(_) => Err(self.about(Error::mismatch())),
            Err(error) => Err(self.about(error)),
        }
    }

    /// Gives up the place, or the lock if it was granted; returns once the store has confirmed
    /// that.
    ///
    /// # Errors
    /// [`Unknown`](ErrorKind::Unknown) if the store does not confirm it within the store timeout,
    /// or the store's refusal. The place or the hold then ends by itself.
    ///
    /// # Cancel safety
    /// Dropping the future, even before it is polled, gives up the place in the background.
    pub async fn leave(mut self) -> Result<(), Error> {
        self.ensure_here()?;
        let released = match std::mem::replace(&mut self.state, State::Taken) {
            State::Taken => return Ok(()),
            State::Granted(guard) => Some(guard.release().await?),
            State::Waiting(requested) => {
                drop(requested);
                None
            }
            State::Failed(_) => None,
        };
        let left = match released {
            Some(Release::Unknown) => Err(unconfirmed()),
            Some(_) => Ok(()),
            None => tokio::select! {
                biased;
                left = &mut self.cleaned => left.unwrap_or(Ok(())),
                () = self.session.sleep(self.session.context().config.store_timeout) => {
                    Err(unconfirmed())
                }
            },
        };
        left.map_err(|error| self.about(error))
    }

    /// Takes over the driver's result.
    fn settle(&mut self, result: Result<Answered, oneshot::error::RecvError>) {
        self.state = match guard_of(result, &self.session) {
            Ok(guard) => State::Granted(guard),
            Err(error) => State::Failed(self.about(error)),
        };
    }

    /// Fails in a forked child, where no answer would ever arrive.
    fn ensure_here(&self) -> Result<(), Error> {
        if self.session.context().is_forked_child() {
            return Err(self.about(Error::forked()));
        }
        Ok(())
    }

    fn about(&self, error: Error) -> Error {
        error.on(&self.name).by(&self.owner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.session.context().is_forked_child() {
            // The request belongs to the parent; closing the channel would wake its driver.
            std::mem::forget(std::mem::replace(&mut self.state, State::Taken));
        }
    }
}

fn guard_of(
    result: Result<Answered, oneshot::error::RecvError>,
    session: &Session,
) -> Result<Guard, Error> {
    let delivery = result.map_err(|_| Error::closed())??;
    // The wait had no deadline, so only the end of the client can have ended it.
    let part = delivery.and_then(Delivery::accept).ok_or_else(Error::closed)?;
    Ok(Guard::new(part, session.clone()))
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Waiting(_) => "waiting",
            State::Granted(_) => "granted",
            State::Failed(_) => "failed",
            State::Taken => "taken",
        };
        f.debug_struct("Turn")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
