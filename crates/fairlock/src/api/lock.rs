//! The handle of a lock.

use crate::api::guard::Guard;
use crate::api::owner::Owner;
use crate::api::scoped::{self, Done, Held};
use crate::api::session::Session;
use crate::api::status::{self, Holder, LockStatus};
use crate::api::turn::Turn;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::acquire::{self, Begun, Delivery, Request};
use crate::engine::send::{self, Copies};
use crate::observe;
use crate::settings::config::{MIN_LEASE, MIN_POLL};
use crate::state::signals::TurnReporter;
use fairlock_core::{
    Body, ClientId, Kind, LockName, MAX_LEASE_MS, Op, Share, has_queue, is_share_of, is_shared,
};
use std::convert::identity;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop;

/// A lock by name. Cheap to create and to clone; nothing happens on the store until it is used.
///
/// A store inside this process, or in a file, may answer without waiting. Each call therefore
/// consumes one unit of tokio's cooperative [budget](tokio::task::coop) before it does anything, so
/// that a loop of such calls yields to the other tasks of its thread. Outside of tokio there is no
/// budget, and such a loop never yields.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let lock = client.fair_lock("invoice:42");
/// let guard = lock.lock().await?;
/// println!("token {}", guard.token());
/// let _ = guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called and awaited"]
pub struct Lock {
    session: Session,
    name: Result<LockName, Error>,
    kind: Kind,
    /// The share to request, if several may hold the lock.
    share: Share,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    owner: Option<Owner>,
    non_reentrant: bool,
    poll: Option<Duration>,
}

/// What a look reveals about the outcome of a request that would not wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glance {
    /// Nobody holds the lock or waits for it.
    Free,
    /// The request would not be granted.
    Taken,
    /// Only the request itself can tell.
    Unclear,
}

impl Lock {
    pub(crate) fn new(session: Session, name: &[u8], kind: Kind) -> Self {
        let name = LockName::new(name).map_err(Error::from);
        let share = Share::Whole;
        Self {
            session,
            name,
            kind,
            share,
            lease: None,
            max_hold: None,
            owner: None,
            non_reentrant: false,
            poll: None,
        }
    }

    /// Requests this share of the lock.
    pub(crate) fn sharing(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Sets an explicit lease: a guard ends with it and is never renewed. Without one, guards are
    /// renewed until they are released.
    ///
    /// With a lease below 100 ms or above ten years, the next call fails.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets a longest hold: a guard is [lost](Guard::lost) at the latest when this time is over,
    /// even if it is renewed. The time counts from the grant. It limits how long a task that hangs,
    /// or a leaked guard, can keep the others waiting. With a lease, explicit or not, the shorter
    /// of the two applies.
    ///
    /// With a longest hold below 100 ms or above ten years, the next call fails.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("nightly").max_hold(Duration::from_secs(3_600));
    /// let guard = lock.lock().await?; // renewed, for an hour at most
    /// # let _ = guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// Sets the owner that requests the lock: while it holds the lock, `lock()` and its variants
    /// enter the lock once more, as described at [`Owner`]. The default is a new owner for each
    /// call.
    ///
    /// With an owner of another client, the next call fails.
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Forbids re-entry: while the owner holds the lock, `lock()` and its variants fail at once with
    /// [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld), and nothing is sent. Without an [explicit owner](Self::owned_by)
    /// this changes nothing, since each call is an owner of its own, and a second one waits for the first.
    ///
    /// Only guards that the owner already has count: a request that is sent again because its reply was lost still gets
    /// its lock. [`Guard::reenter`] is not affected.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("invoice:42").owned_by(&client.owner()).non_reentrant();
    /// let guard = lock.lock().await?;
    /// let error = lock.lock().await.unwrap_err();
    /// assert_eq!(error.kind(), fairlock::ErrorKind::AlreadyHeld);
    /// # let _ = guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn non_reentrant(mut self) -> Self {
        self.non_reentrant = true;
        self
    }

    /// Makes waiters look at a plain lock at least this often, even without a message: for a lock whose holder notifies
    /// nobody of its release, such as a spin lock of Redisson's. Otherwise a waiter looks with each
    /// [heartbeat](crate::Config::heartbeat), every 2 s by default and every 10 to 20 s on the host store; a longer
    /// time changes nothing. Up to 20 ms are added, so that waiters do not look at the same moment. Waiters of one
    /// client look one after the other, so all of them should set the same time.
    ///
    /// Each look is a call to the store, so with a time below 10 ms the next call fails. It also fails for other kinds
    /// of lock, which need no such setting: the store notifies the waiters of a fair lock, and a simple lock whose
    /// holder notifies nobody is polled every 25 to 270 ms anyway.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// // Java locks it with getSpinLock("invoice:42").
    /// let lock = client.plain_lock("invoice:42").poll(Duration::from_millis(100));
    /// # let _ = lock.lock().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn poll(mut self, most: Duration) -> Self {
        self.poll = Some(most);
        self
    }

    /// Returns the lock's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(Clone::clone)
    }

    /// Returns the lock's kind: fair, plain or simple.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Waits for its turn and takes the lock.
    ///
    /// # Errors
    /// Bad names and leases, and the store's errors: see [`ErrorKind`](crate::ErrorKind). If the
    /// store stays unreachable for the store timeout, the wait ends with
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue, or releases the lock if it was granted
    /// at that moment. Nothing is left behind.
    ///
    /// A future that was polled once and is kept still waits, and still gets the lock: drop it when
    /// you no longer want the lock.
    pub async fn lock(&self) -> Result<Guard, Error> {
        match self.acquire(None, false).await? {
            Some(guard) => Ok(guard),
            // The wait had no deadline, so only the end of the client can have ended it.
            None => Err(self.about(Error::closed())),
        }
    }

    /// Takes the lock if it is free and nobody waits for it.
    ///
    /// It does not wait for the lock, only for the store's answer, for up to the [store
    /// timeout](crate::Config::store_timeout) (30 s by default) if the store cannot be reached. In a request handler
    /// use [`try_lock_for`](Self::try_lock_for) with a short time, which bounds both.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(None, true).await
    }

    /// Waits for its turn for at most `wait`. Zero means [`try_lock`](Self::try_lock), which may
    /// wait longer for the store.
    ///
    /// Returns `None` if the lock was not granted in time. By then the place in the queue has been
    /// given up, so that it delays nobody; that request adds a round trip to `wait`. If the store
    /// is silent when the time is up, it gets at most 600 ms more to answer whether the lock is
    /// taken.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock). If the store does not answer in that time, the call fails
    /// ([`Unavailable`](crate::ErrorKind::Unavailable), or [`Unknown`](crate::ErrorKind::Unknown)
    /// if the request had been sent): its silence does not mean that the lock is taken.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        if wait.is_zero() {
            return self.try_lock().await;
        }
        self.acquire(Some(Moment::now().plus(wait)), false).await
    }

    /// Joins the queue of a fair lock and returns once the request is in the queue, or has been
    /// granted: see [`Turn`]. An [explicit owner](Self::owned_by) has one request in the queue at a
    /// time: a second call waits until the first request has been granted or has ended.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock), and [`Misuse`](crate::ErrorKind::Misuse) for a lock that has
    /// no queue.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    pub async fn enqueue(&self) -> Result<Turn, Error> {
        if !has_queue(self.kind) {
            let message = "only a fair lock has a queue to stand in; use `fair_lock`, or `lock()`";
            return Err(self.about(Error::misuse(message)));
        }
        // As in `acquire`.
        coop::consume_budget().await;
        let (reporter, signals) = TurnReporter::new();
        let session = self.session.clone();
        match self.request(None, false, Some(reporter))? {
            Begun::Held(hold) => {
                Ok(Turn::granted(session.clone(), self.kind, Guard::new(hold.into(), session)))
            }
            Begun::Sent(requested) => {
                let name = (self.name()?.clone(), self.kind);
                Turn::enter(session, name, requested, signals).await
            }
        }
    }

    /// Waits for its turn and runs `work` while holding the lock. The closure gets a [`Held`]; its
    /// future is dropped as soon as the lock is lost. Otherwise its value is returned, whether or
    /// not the release succeeded: check [`Done::release`] if that matters.
    ///
    /// ```
    /// # async fn job(_: fairlock::FencingToken) -> u32 { 42 }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("invoice:42");
    ///
    /// let done = lock.with(async |held| job(held.token()).await).await?;
    /// assert_eq!((done.value, done.release), (42, fairlock::Release::Released));
    ///
    /// // In a task of its own:
    /// let task = tokio::spawn(async move {
    ///     lock.with(|held| async move { job(held.token()).await }).await
    /// });
    /// # assert_eq!(task.await.unwrap()?.value, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock); the closure was not called in that case.
    /// [`Lost`](crate::ErrorKind::Lost) if the lock was lost before the closure had a value: it was
    /// cancelled.
    ///
    /// # Panics
    /// If the closure does; the lock is released in the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops the closure's future first, then releases the lock in the
    /// background, or leaves the queue.
    pub async fn with<T, F, Fut>(&self, work: F) -> Result<Done<T>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        scoped::run(self.lock().await?, work).await
    }

    /// Like [`with`](Self::with) if the lock is free and nobody waits for it; otherwise returns
    /// `None` without calling the closure.
    ///
    /// # Errors
    /// Those of [`with`](Self::with).
    ///
    /// # Panics
    /// Same as [`with`](Self::with).
    ///
    /// # Cancel safety
    /// Same as [`with`](Self::with).
    pub async fn try_with<T, F, Fut>(&self, work: F) -> Result<Option<Done<T>>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        match self.try_lock().await? {
            Some(guard) => scoped::run(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    /// Like [`with`](Self::with), but waits for its turn for at most `wait`. If the lock is not
    /// granted by then, returns `None` without calling the closure. `wait` does not limit the closure itself.
    ///
    /// # Errors
    /// Those of [`with`](Self::with).
    ///
    /// # Panics
    /// Same as [`with`](Self::with).
    ///
    /// # Cancel safety
    /// Same as [`with`](Self::with).
    pub async fn try_with_for<T, F, Fut>(
        &self,
        wait: Duration,
        work: F,
    ) -> Result<Option<Done<T>>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        match self.try_lock_for(wait).await? {
            Some(guard) => scoped::run(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) async fn acquire(
        &self,
        until: Option<Moment>,
        try_once: bool,
    ) -> Result<Option<Guard>, Error> {
        // A store that answers at once would never let other tasks run. Nothing has been requested
        // yet, so a future that is dropped at this await leaves nothing behind.
        coop::consume_budget().await;
        let part = match self.request(until, try_once, None)? {
            Begun::Held(hold) => Some(hold.into()),
            Begun::Sent(requested) => match requested.await {
                Ok(answered) => answered?.and_then(Delivery::accept),
                Err(_) => return Err(self.about(Error::closed())),
            },
        };
        Ok(part.map(|part| Guard::new(part, self.session.clone())))
    }

    /// Requests the lock; a store inside this process may grant it at once.
    fn request(
        &self,
        until: Option<Moment>,
        try_once: bool,
        reporter: Option<Arc<TurnReporter>>,
    ) -> Result<Begun, Error> {
        let wanted = self.wanted(until, try_once, reporter)?;
        let begun = acquire::begin(self.session.context(), wanted);
        begun.map_err(|error| self.about(error))
    }

    /// Requests all of these locks in one step, which takes all or none and does not wait. They must have the same
    /// [step](crate::store::Store::step_of). If none is taken, returns the index of the first lock that is not plainly
    /// free, if the store named it.
    pub(crate) async fn acquire_together(
        locks: &[Self],
    ) -> Result<Result<Vec<Guard>, Option<usize>>, Error> {
        coop::consume_budget().await;
        let Some(first) = locks.first() else { return Ok(Err(None)) };
        let wanted = locks.iter().map(|lock| lock.wanted(None, true, None));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        let begun = acquire::begin_together(first.session.context(), wanted);
        let (requested, mut busy) = begun.map_err(|error| first.about(error))?;
        let (mut guards, mut failed) = (Vec::with_capacity(locks.len()), None);
        // The last one first: once it is answered, so are the others, so this task is woken up only
        // once.
        for (lock, requested) in locks.iter().zip(requested).rev() {
            match requested.await {
                Ok(Ok(held)) => {
                    let part = held.and_then(Delivery::accept);
                    guards.extend(part.map(|part| Guard::new(part, lock.session.clone())));
                }
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some(lock.about(Error::closed())),
            }
        }
        guards.reverse();
        // Locks that were taken nevertheless are released when their guards are dropped.
        match failed {
            Some(error) => Err(error),
            None if guards.len() == locks.len() => Ok(Ok(guards)),
            None => Ok(Err(busy.try_recv().ok())),
        }
    }

    /// What a look reveals about the outcome of a request that would not wait.
    pub(crate) async fn glance(&self) -> Glance {
        match self.look(0).await {
            Ok(seen) if seen.holder.is_none() && seen.holding == 0 && seen.queue_len == 0 => {
                Glance::Free
            }
            // With other kinds, several may hold a share at once.
            Ok(seen) if self.kind == Kind::Fair && seen.holder.is_some() => Glance::Taken,
            _ => Glance::Unclear,
        }
    }

    fn wanted(
        &self,
        until: Option<Moment>,
        try_once: bool,
        reporter: Option<Arc<TurnReporter>>,
    ) -> Result<Request, Error> {
        let context = self.session.context();
        let name = self.name()?.clone();
        context.usable().map_err(|error| self.about(error))?;
        // Metrics are the application's code.
        let _closes = context.closes_on_panic();
        let mut wanted = Request {
            asked: observe::Asked::now(
                context.config.log_names,
                &name,
                observe::What(self.kind, self.share),
            ),
            name,
            kind: self.kind,
            share: self.share,
            lease: self.lease,
            max_hold: self.max_hold,
            until,
            try_once,
            reporter,
            poll: self.poll,
            non_reentrant: self.non_reentrant,
            seat: None,
        };
        self.check_times()?;
        self.check_poll()?;
        self.check_owner()?;
        if is_shared(self.kind) {
            self.check_share()?;
        }
        wanted.seat =
            self.owner.as_ref().map(|owner| context.owners.seat(&wanted.name, owner.id()));
        Ok(wanted)
    }

    /// Checks that the lock can be a member of a multi-lock of this client.
    pub(crate) fn check_member(&self, client: ClientId) -> Result<(), Error> {
        let message = if self.session.context().client_id != client {
            "it belongs to another client; all locks of a multi-lock are of the client that makes it"
        } else if !has_queue(self.kind) {
            "only locks with a queue can be taken together with others; use `fair_lock`, `rw_lock` or \
             `semaphore`"
        } else if self.lease.is_some() || self.max_hold.is_some() || self.owner.is_some() {
            "a lock of a multi-lock has no lease, longest hold or owner of its own; set the lease of \
             the multi-lock"
        } else if is_shared(self.kind) {
            return self.check_share();
        } else {
            return self.check_poll();
        };
        Err(self.about(Error::misuse(message)))
    }

    pub(crate) fn check_times(&self) -> Result<(), Error> {
        for (what, time) in [("a lease", self.lease), ("a longest hold", self.max_hold)] {
            let Some(time) = time else { continue };
            if time < MIN_LEASE || time > Duration::from_millis(MAX_LEASE_MS) {
                return Err(self.about(Error::misuse(format!(
                    "{what} of {time:?} cannot be used; it must be between {MIN_LEASE:?} and ten \
                     years"
                ))));
            }
        }
        Ok(())
    }

    fn check_poll(&self) -> Result<(), Error> {
        let Some(poll) = self.poll else { return Ok(()) };
        let message = if self.kind != Kind::Plain {
            "only a plain lock is polled; leave `poll` out".to_owned()
        } else if poll < MIN_POLL {
            format!("a look every {poll:?} is too often; it must be at least {MIN_POLL:?}")
        } else {
            return Ok(());
        };
        Err(self.about(Error::misuse(message)))
    }

    fn check_share(&self) -> Result<(), Error> {
        if is_share_of(self.kind, self.share) {
            return Ok(());
        }
        let message = match self.share {
            Share::Permits { n: 0, .. } => {
                "0 permits cannot be acquired; ask for at least one".into()
            }
            Share::Permits { n: 1, limit } => {
                format!("1 permit is never free, as the limit is {limit}; name a higher limit")
            }
            Share::Permits { n, limit } => format!(
                "{n} permits are never free, as the limit is {limit}; ask for fewer, or name a \
                 higher limit"
            ),
            _ => "a lock of this kind has no such share".into(),
        };
        Err(self.about(Error::misuse(message)))
    }

    fn check_owner(&self) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        if owner.id().client() == Some(self.session.context().client_id) {
            return Ok(());
        }
        let message = "the owner belongs to another client; make one with this client's `owner()`";
        Err(self.about(Error::misuse(message)))
    }

    /// Adds the lock and the explicit owner to an error.
    pub(crate) fn about(&self, error: Error) -> Error {
        let error = match &self.name {
            Ok(name) => error.on(name),
            Err(_) => error,
        };
        match &self.owner {
            Some(owner) => error.by(owner.id()),
            None => error,
        }
    }

    /// Returns who holds the lock and who waits: places, times, and what the clients publish about
    /// themselves ([`ClientInfo`](crate::ClientInfo)). Lists the first 1 000 waiters. Takes one
    /// round trip, and a second one if a client of fairlock holds the lock or waits.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect(&self) -> Result<LockStatus, Error> {
        status::inspect(&self.session, self.name.clone()?, self.kind, status::LISTED_MAX).await
    }

    /// Like [`inspect`](Self::inspect) with a shorter list: the first `waiters` in the queue, up to
    /// 1 000. The length of the whole queue is reported nevertheless. For views of many locks,
    /// where the whole queue of each is too much.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        let limit = u32::try_from(waiters).unwrap_or(u32::MAX).min(status::LISTED_MAX);
        status::inspect(&self.session, self.name.clone()?, self.kind, limit).await
    }

    async fn look(&self, limit: u32) -> Result<LockStatus, Error> {
        status::look(&self.session, self.name.clone()?, self.kind, limit).await
    }

    /// Takes the lock away from its holder and hands it to the next waiter. Returns whether anybody held it. A holder
    /// that uses fairlock is notified, and asks the store at once. It notices only at its next renewal if the message
    /// is lost, if Java or an operator's `DEL` takes the lock away, or, on a Cluster with sharded messages, unless its
    /// client waits for a lock of that slot. Until then only fencing tokens protect the resource. For operators.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock). Data that is clearly not a lock, such as another program's,
    /// stays as it is ([`WrongType`](crate::ErrorKind::WrongType)). A call without an answer is not
    /// repeated but fails with [`Unknown`](crate::ErrorKind::Unknown): a second call could take the
    /// lock from the next holder.
    ///
    /// # Cancel safety
    /// The lock may have been taken away even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        Ok(self.force_all().await? > 0)
    }

    /// Takes the lock away from all its holders, and returns their number.
    pub(crate) async fn force_all(&self) -> Result<usize, Error> {
        match self.operate(Op::Force { kind: self.kind }).await? {
            Body::Forced { holder: None, .. } => Ok(0),
            Body::Forced { others, .. } => Ok(others as usize + 1),
            _ => Err(self.about(Error::mismatch())),
        }
    }

    /// Returns whether anybody holds the lock.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.holder().await?.is_some())
    }

    /// Returns who holds the lock, if anybody.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        Ok(self.look(0).await?.holder)
    }

    /// Returns how long the lock stays held without another renewal, by the server's clock. `None`
    /// if nobody holds it, or if somebody removed its TTL.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("invoice:42");
    /// assert!(lock.remaining_ttl().await?.is_none());
    /// let guard = lock.lock().await?;
    /// assert!(lock.remaining_ttl().await?.is_some());
    /// assert_eq!(&lock.holder().await?.unwrap().owner, guard.owner());
    /// # let _ = guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        Ok(self.look(0).await?.ttl)
    }

    async fn operate(&self, op: Op) -> Result<Body, Error> {
        let name = self.name()?.clone();
        let context = Arc::clone(self.session.context());
        context.usable().map_err(|error| error.on(&name))?;
        let lock = name.clone();
        let reply = self.session.on_background(async move {
            let until = context.store_deadline();
            let mut copies = Copies::default();
            send::until_answered(&context, &name, &op, until, &mut copies).await
        });
        let reply = reply.await.and_then(identity).map_err(|error| error.on(&lock))?;
        Ok(reply.answer.body)
    }
}
