//! Several locks at once.

use crate::api::guard::{self, Guard};
use crate::api::lock::{Glance, Lock};
use crate::api::member::Member;
use crate::api::multi_guard::{self, MultiGuard, MultiHeld};
use crate::api::scoped::Done;
use crate::api::session::Session;
use crate::base::clock::Moment;
use crate::base::concurrent::all;
use crate::base::error::Error;
use crate::engine::acquire::errors;
use crate::engine::detach;
use crate::state::standing::GuardState;
use fairlock_core::LockName;
use fairlock_core::client::acquiring::SILENCE_GRACE;
use fairlock_core::client::{NotTogether, TOGETHER_MAX, Take, Together, order_of};
use std::convert::identity;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How many times an attempt requests all the locks again because one that was not free has since become free.
const TRIES_MAX: u32 = 3;

/// Several locks that are taken together: see [`Client::multi_lock`](crate::Client::multi_lock).
///
/// If all of them are free, one call takes them; on a Cluster, one call for each slot. Otherwise the client waits for
/// each in its own line, in an order that follows from the names alone, while it holds and renews those before it. So
/// programs that name the same locks in different orders cannot deadlock. The guard is returned only when all are held:
/// if they were granted one after the other, the store confirms after the last grant that the earlier ones are still
/// held. If one is lost meanwhile, all are given back and the acquisition begins again.
///
/// The members are ordinary locks, which others may take alone or together with further ones. A
/// program that holds a lock and then takes a multi-lock can deadlock with another that does the
/// same in a different order, as with any locks. A multi-lock is not reentrant: it has owners of
/// its own, so a program that already holds one of its locks waits for itself.
///
/// While a multi-lock waits for one lock, it keeps others waiting for those that it already holds.
/// This costs more the more locks there are and the busier they are.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called and awaited"]
pub struct MultiLock {
    session: Session,
    /// The locks in the order in which they are taken.
    members: Vec<Lock>,
    /// The index in `members` of the lock that was named first, second, ...
    named: Vec<usize>,
    lease: Option<Duration>,
}

impl MultiLock {
    pub(crate) fn new(
        session: &Session,
        members: impl Iterator<Item = Member>,
    ) -> Result<Self, Error> {
        let client = session.context().client_id;
        // One more than the maximum is enough for a refusal; an endless iterator must not be
        // collected.
        let locks = members.take(TOGETHER_MAX + 1).map(|member| member.lock(session));
        let locks: Vec<Lock> = locks.collect();
        let names = locks.iter().map(|lock| lock.name().cloned()).collect::<Result<Vec<_>, _>>()?;
        let order = order_of(&names).map_err(refused)?;
        locks.iter().try_for_each(|lock| lock.check_member(client))?;
        let mut named = vec![0; order.len()];
        for (place, which) in order.iter().enumerate() {
            named[*which] = place;
        }
        let members = order.iter().map(|which| locks[*which].clone()).collect();
        Ok(Self { session: session.clone(), members, named, lease: None })
    }

    /// Sets an explicit lease: the guard ends with it and is never renewed. The lease begins when the last lock is
    /// granted; until then the held locks are renewed.
    ///
    /// With a lease below 100 ms or above ten years, the next call fails.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Returns the names of the locks, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.named.iter().filter_map(|place| self.members[*place].name().ok())
    }

    /// Waits until it holds all the locks.
    ///
    /// # Errors
    /// Those of [`Lock::lock`], about the lock that could not be taken. The others are given back.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the line, and gives back what was taken. Nothing is
    /// left behind.
    ///
    /// A future that was polled once and is kept still holds the locks that it has, and others wait
    /// for them: drop it when you no longer want the locks.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        match self.take(None).await? {
            Some(guard) => Ok(guard),
            // The wait had no deadline, so only the end of the client can have ended it.
            None => Err(Error::closed()),
        }
    }

    /// Takes all the locks if all are free and nobody waits for any; otherwise takes none and, except in the cases
    /// below, holds none even for a moment.
    ///
    /// On a Cluster with names in several slots, it first looks at all the locks, in one round trip, and then takes
    /// them slot by slot, beginning where it saw a holder or a waiter. If somebody takes a lock in between, the locks
    /// of earlier slots were held in vain and are given back. Without a Cluster, the same can happen to a read-write
    /// lock or a semaphore with holders, and to a lock that dead clients left behind: such a lock is requested alone,
    /// before the others.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        self.check()?;
        let steps = self.steps()?;
        let mut members = self.members.iter();
        let same = steps.chunk_by(|a, b| a == b);
        let mut groups: Vec<Vec<Lock>> =
            same.map(|same| members.by_ref().take(same.len()).cloned().collect()).collect();
        if groups.len() > 1 {
            let looks = groups.iter().map(|group| async move {
                let looks = all(group.iter().map(Lock::glance)).await;
                looks.into_iter().all(|seen| seen == Glance::Free)
            });
            let free = all(looks).await;
            let mut seen: Vec<_> = free.into_iter().zip(groups).collect();
            seen.sort_by_key(|(is_free, _)| *is_free);
            groups = seen.into_iter().map(|(_, group)| group).collect();
        }
        let (mut held, mut steps) = (Vec::with_capacity(self.members.len()), 0);
        for group in groups {
            let Some(taken) = self.try_group(group, &mut steps).await? else {
                give_back(held).await;
                return Ok(None);
            };
            held.extend(taken);
        }
        // Locks that were all taken in one step began with the lease, and that step confirmed them.
        let is_alone = self.members.len() == 1;
        let is_whole = match self.lease.filter(|_| steps > 1 || is_alone) {
            None if steps == 1 => true,
            lease => self.renew(&held, lease).await?,
        };
        if !is_whole {
            give_back(held).await;
            return Ok(None);
        }
        held.sort_by_key(|guard| {
            self.members.iter().position(|it| it.name().ok() == Some(guard.name()))
        });
        Ok(Some(MultiGuard::new(held, self.named.clone())))
    }

    /// Takes these locks, which have the same step, if all are free. Counts the steps that took
    /// something.
    async fn try_group(
        &self,
        mut left: Vec<Lock>,
        steps: &mut usize,
    ) -> Result<Option<Vec<Guard>>, Error> {
        let (mut held, mut looks) = (Vec::with_capacity(left.len()), 0);
        while !left.is_empty() {
            let busy = match left.len() {
                1 => None,
                _ => match self.together(&left).await? {
                    Ok(taken) => {
                        *steps += 1;
                        held.extend(taken);
                        break;
                    }
                    Err(busy) => busy,
                },
            };
            if let Some(busy) = busy {
                match left[busy].glance().await {
                    Glance::Taken => {
                        give_back(held).await;
                        return Ok(None);
                    }
                    // It has become free since, as others take turns at it: only locks that are requested in one step
                    // are never held in vain.
                    Glance::Free if looks < TRIES_MAX => {
                        looks += 1;
                        continue;
                    }
                    Glance::Free if held.is_empty() => return Ok(None),
                    _ => {}
                }
            }
            // Alone, because only a single request reveals whether the lock can be had, and why
            // not.
            match left.remove(busy.unwrap_or(0)).acquire(None, true).await? {
                Some(taken) => {
                    *steps += 1;
                    held.push(taken);
                }
                None => {
                    give_back(held).await;
                    return Ok(None);
                }
            }
        }
        Ok(Some(held))
    }

    /// Waits until it holds all the locks, for at most `wait` in total. Zero means
    /// [`try_lock`](Self::try_lock).
    ///
    /// Returns `None` if not all were granted in time. By then everything has been given back, which adds to `wait` as
    /// with [`Lock::try_lock_for`].
    ///
    /// # Errors
    /// Those of [`Lock::try_lock_for`].
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        if wait.is_zero() {
            return self.try_lock().await;
        }
        self.take(Some(Moment::now().plus(wait))).await
    }

    /// Waits for all the locks and runs `work` while holding them: see [`Lock::with`]. The closure's future is dropped
    /// as soon as one of the locks is lost.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) if a lock was lost before the
    /// closure had a value: it was cancelled.
    ///
    /// # Panics
    /// If the closure does; the locks are released in the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops the closure's future first, then releases the locks in the
    /// background, or gives up as [`lock`](Self::lock).
    pub async fn with<T, F, Fut>(&self, work: F) -> Result<Done<T>, Error>
    where
        F: FnOnce(MultiHeld) -> Fut,
        Fut: Future<Output = T>,
    {
        multi_guard::run(self.lock().await?, work).await
    }

    fn check(&self) -> Result<(), Error> {
        self.session.context().usable()?;
        match (self.lease, self.members.first()) {
            (Some(lease), Some(first)) => first.clone().lease(lease).check_times(),
            _ => Ok(()),
        }
    }

    /// Returns each member's step: the store takes locks with the same step at once.
    fn steps(&self) -> Result<Vec<u16>, Error> {
        let store = &self.session.context().store;
        self.members.iter().map(|member| Ok(store.step_of(member.name()?))).collect()
    }

    async fn take(&self, until: Option<Moment>) -> Result<Option<MultiGuard>, Error> {
        self.check()?;
        let groups = self.steps()?;
        let mut course = Together::new(&groups, true);
        let (mut held, mut has_lease) = (Vec::with_capacity(self.members.len()), false);
        // How many were held before the last step: the store has not confirmed these since the last grant.
        let mut before = 0;
        loop {
            let is_lost = match course.next() {
                Take::Group(group) => {
                    let taken = self.take_group(&self.members[group], until).await?;
                    has_lease = taken.as_ref().is_some_and(|taken| taken.len() == groups.len());
                    course.group(taken.is_some());
                    if taken.is_some() {
                        before = held.len();
                    }
                    held.extend(taken.into_iter().flatten());
                    false
                }
                Take::One(one) => {
                    let taken = self.take_one(&self.members[one], until, &held).await?;
                    if let Some(taken) = &taken {
                        course.one(taken.is_some());
                    }
                    let is_lost = taken.is_none();
                    before = held.len();
                    held.extend(taken.flatten());
                    is_lost
                }
                Take::Held => {
                    let (lease, grace) = (self.lease.filter(|_| !has_lease), grace(until));
                    let renewed = if lease.is_some() { &held[..] } else { &held[..before] };
                    let is_whole = self.in_time(grace, self.renew(renewed, lease)).await;
                    let is_whole = is_whole.unwrap_or_else(|| Err(self.silence(&held)))?;
                    if is_whole && held.iter().all(|guard| guard.state() != GuardState::Lost) {
                        return Ok(Some(MultiGuard::new(held, self.named.clone())));
                    }
                    true
                }
                Take::Nothing => {
                    self.give_back_in_time(held, until).await?;
                    return Ok(None);
                }
            };
            if is_lost {
                self.give_back_in_time(std::mem::take(&mut held), until).await?;
                if until.is_some_and(|until| until.left().is_zero()) {
                    return Ok(None);
                }
                course.again();
            }
        }
    }

    /// Takes these locks in one step, or none of them. If the time ends first, it is left to single requests to find
    /// out whether the store is silent.
    async fn take_group(
        &self,
        group: &[Lock],
        until: Option<Moment>,
    ) -> Result<Option<Vec<Guard>>, Error> {
        let taken = self.in_time(until, self.together(group)).await;
        taken.unwrap_or(Ok(Err(None))).map(Result::ok)
    }

    /// Like [`Lock::acquire_together`]. If the group has all members, an explicit lease begins at
    /// once.
    async fn together(&self, group: &[Lock]) -> Result<Result<Vec<Guard>, Option<usize>>, Error> {
        match self.lease {
            Some(lease) if group.len() == self.members.len() => {
                let leased: Vec<_> = group.iter().map(|lock| lock.clone().lease(lease)).collect();
                Lock::acquire_together(&leased).await
            }
            _ => Lock::acquire_together(group).await,
        }
    }

    async fn in_time<T>(&self, until: Option<Moment>, work: impl Future<Output = T>) -> Option<T> {
        let Some(until) = until else { return Some(work.await) };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.session.sleep(until.left()) => None,
        }
    }

    /// Gives these guards back. If the store is silent, the releases continue in the background.
    async fn give_back_in_time(
        &self,
        held: Vec<Guard>,
        until: Option<Moment>,
    ) -> Result<(), Error> {
        let silence = self.silence(&held);
        self.in_time(grace(until), give_back(held)).await.ok_or(silence)
    }

    fn silence(&self, held: &[Guard]) -> Error {
        let error = errors::silence(true, None);
        match held.first() {
            Some(guard) => error.on(guard.name()).by(guard.owner()),
            None => error,
        }
    }

    /// Takes one lock while the others are held. Returns `None` if one of the held ones is lost
    /// meanwhile.
    async fn take_one(
        &self,
        lock: &Lock,
        until: Option<Moment>,
        held: &[Guard],
    ) -> Result<Option<Option<Guard>>, Error> {
        tokio::select! {
            biased;
            taken = lock.acquire(until, false) => taken.map(Some),
            () = multi_guard::any_lost(held.iter().map(Guard::lost)) => Ok(None),
        }
    }

    /// Renews `held`, so that the store confirms these holds; if `lease` is given, it starts now. Returns false if a
    /// lock was lost: its holder may not have been notified, and another owner may already hold it.
    async fn renew(&self, held: &[Guard], lease: Option<Duration>) -> Result<bool, Error> {
        let renewed = held.iter().map(|guard| {
            let (context, hold) = (Arc::clone(self.session.context()), guard.hold());
            self.session.on_background(async move {
                match lease {
                    Some(lease) => detach::begin_lease(&context, &hold, lease).await,
                    None => detach::confirm(&context, &hold).await,
                }
            })
        });
        let outcomes = all(renewed).await;
        if held.iter().any(|guard| guard.state() == GuardState::Lost) {
            return Ok(false);
        }
        outcomes.into_iter().try_for_each(|outcome| outcome.and_then(identity))?;
        Ok(true)
    }
}

/// Until when a store that is silent at the end of the caller's time may still answer.
fn grace(until: Option<Moment>) -> Option<Moment> {
    until.map(|until| until.plus(SILENCE_GRACE))
}

async fn give_back(held: Vec<Guard>) {
    // A hold that cannot be released now ends with its lease.
    guard::release_all(held).await;
}

fn refused(why: NotTogether) -> Error {
    match why {
        NotTogether::None => Error::misuse("a multi-lock needs at least one lock"),
        NotTogether::TooMany(_) => Error::misuse(format!(
            "a multi-lock has at most {TOGETHER_MAX} locks; take one for the whole instead"
        )),
        NotTogether::OneQueue(first, second) if first == second => {
            Error::misuse("the same lock is named twice").on(&first)
        }
        NotTogether::OneQueue(first, second) => {
            let message =
                format!("it shares the queue of {second}, so both cannot be taken together");
            Error::misuse(message).on(&first)
        }
    }
}
