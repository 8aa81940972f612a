//! What applications do in a run: take locks in every way, give up at any moment, release in every
//! way.

use super::world::World;
use crate::{Client, Error, Guard, Kind, Lock, Owner, Release, Share};
use fairlock_core::LockName;
use fairlock_testkit::rng::Rng;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The locks, each with its share in per cent.
pub(super) const LOCKS: [(&str, Kind, u64); 6] = [
    ("orders", Kind::Fair, 25),
    ("stock", Kind::Fair, 10),
    ("plain", Kind::Plain, 15),
    ("simple", Kind::Simple, 10),
    ("pages", Kind::ReadWrite, 25),
    ("slots", Kind::Semaphore, 15),
];

/// The permits of a semaphore.
const LIMIT: u32 = 3;

/// A future that gives up on `work` once it was polled a number of times without being ready.
struct Given<F> {
    work: F,
    polls: u64,
}

impl<F: Future + Unpin> Future for Given<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(value) = Pin::new(&mut self.work).poll(cx) {
            return Poll::Ready(Some(value));
        }
        match self.polls.checked_sub(1) {
            Some(left) => self.polls = left,
            None => return Poll::Ready(None),
        }
        Poll::Pending
    }
}

/// Polls `work` at most `polls` + 1 times, then drops it.
pub(super) async fn given<F: Future>(polls: u64, work: F) -> Option<F::Output> {
    let work = pin!(work);
    Given { work, polls }.await
}

/// One task of an application.
pub(super) struct Actor {
    pub(super) world: Arc<World>,
    pub(super) peer: usize,
    pub(super) client: Client,
    pub(super) rng: Rng,
    /// An owner shared with another task of the same client.
    pub(super) owner: Owner,
}

impl Actor {
    pub(super) async fn run(mut self, rounds: u64) {
        for _ in 0..rounds {
            sleep(self.some(1_500)).await;
            if self.rng.chance(10) {
                self.observe().await;
                continue;
            }
            if self.rng.chance(12) {
                self.take_several().await;
                continue;
            }
            if self.rng.chance(15) {
                self.use_latch().await;
                continue;
            }
            let (name, lock) = self.lock();
            let began = Instant::now();
            match self.take(&name, &lock).await {
                Ok(Some(guard)) => self.hold(guard).await,
                Ok(None) => {}
                Err(error) => self.failed(began, &error),
            }
        }
    }

    /// A random duration below this many milliseconds.
    pub(super) fn some(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.rng.below(ms))
    }

    fn lock(&mut self) -> (LockName, Lock) {
        let mut share = self.rng.below(100);
        let chosen = LOCKS.iter().find(|(_, _, percent)| {
            let found = share < *percent;
            share = share.saturating_sub(*percent);
            found
        });
        let (name, kind, _) = chosen.expect("they add up to a hundred");
        let lock = self.of(name, *kind);
        let lock = match self.rng.below(5) {
            0 => lock.lease(Duration::from_secs(self.rng.between(3, 9))),
            _ => lock,
        };
        let lock = match self.rng.below(6) {
            0 => lock.owned_by(&self.owner),
            _ => lock,
        };
        (LockName::new(name.as_bytes()).expect("a name"), lock)
    }

    /// A handle of this lock; of some share, if several may hold it.
    pub(super) fn of(&mut self, name: &str, kind: Kind) -> Lock {
        match kind {
            Kind::Plain => self.client.plain_lock(name),
            Kind::Simple => self.client.simple_lock(name),
            Kind::ReadWrite => {
                let lock = self.client.rw_lock(name);
                if self.rng.chance(70) { lock.reads } else { lock.writes }
            }
            Kind::Semaphore => {
                let n = if self.rng.chance(60) { 1 } else { self.rng.between(2, LIMIT.into()) };
                self.client.semaphore(name, LIMIT).wanting(n as u32)
            }
            _ => self.client.fair_lock(name),
        }
    }

    async fn take(&mut self, name: &LockName, lock: &Lock) -> Result<Option<Guard>, Error> {
        match self.rng.below(10) {
            0..3 => {
                let peer = self.peer;
                let want = self.world.with(|state| state.oracle.want(peer, name));
                let guard = lock.lock().await;
                self.world.with(|state| state.oracle.unwant(want));
                guard.map(Some)
            }
            3 => lock.try_lock().await,
            4 | 5 => lock.try_lock_for(self.some(20_000)).await,
            6 => given(self.rng.below(3), lock.lock()).await.transpose(),
            7 => {
                let patience = self.some(6_000);
                tokio::time::timeout(patience, lock.lock()).await.ok().transpose()
            }
            8 => self.enqueue(lock).await,
            _ => {
                self.with(lock).await?;
                Ok(None)
            }
        }
    }

    async fn enqueue(&mut self, lock: &Lock) -> Result<Option<Guard>, Error> {
        let mut turn = lock.enqueue().await?;
        if self.rng.chance(50) {
            turn.position().await?;
        }
        match self.rng.below(4) {
            0 => Ok(None),
            1 => turn.leave().await.map(|()| None),
            2 => {
                let patience = self.some(5_000);
                turn.wait_for(patience).await
            }
            _ => turn.wait().await.map(Some),
        }
    }

    async fn with(&mut self, lock: &Lock) -> Result<(), Error> {
        let time = self.some(2_000);
        let (world, peer) = (Arc::clone(&self.world), self.peer);
        let fences = lock.kind() != Kind::Semaphore;
        let done = lock.with(|held| async move {
            let (name, token) = (held.name().clone(), held.token());
            world.with(|state| state.oracle.seen(&name, held.owner(), token.get()));
            sleep(time).await;
            if fences && held.ensure_valid().is_ok() {
                world.with(|state| state.oracle.write(peer, &name, token));
            }
        });
        match done.await {
            // The loss itself is checked elsewhere.
            Err(error) if error.kind() == crate::ErrorKind::Lost => Ok(()),
            done => done.map(drop),
        }
    }

    async fn hold(&mut self, guard: Guard) {
        let hold = guard.hold();
        let counted = guard.hold_count() == 1;
        // Permits do not fence: an older one may be valid.
        let fences = !matches!(hold.acquisition.share(), Share::Permits { .. });
        self.world.with(|state| state.took(self.peer, &hold));
        let leads = hold.kind() == Kind::Fair && self.rng.chance(25);
        let guard = if leads { self.lead(guard).await } else { Some(guard) };
        let Some(guard) = guard else { return };
        let ms = if self.rng.chance(15) { 40_000 } else { 1_200 };
        let until = Instant::now() + self.some(ms);
        let inner = if self.rng.chance(20) { guard.reenter().await.ok() } else { None };
        while Instant::now() < until {
            sleep(Duration::from_millis(250)).await;
            if guard.ensure_valid().is_err() {
                break;
            }
            if fences {
                let (name, token) = (guard.name(), guard.token());
                self.world.with(|state| state.oracle.write(self.peer, name, token));
            }
        }
        drop(inner);
        let calm = self.world.with(|state| state.oracle.gave_back(&hold));
        match self.rng.below(4) {
            0 => drop(guard),
            1 => drop(given(self.rng.below(2), guard.release()).await),
            _ => {
                let released = guard.release().await;
                let fine = matches!(released, Ok(Release::Released | Release::StillHeld(_)));
                if calm && counted && !fine {
                    self.world.with(|state| {
                        let what = format!("{}: {released:?} at the end of a calm hold", hold.name);
                        state.oracle.violation(what);
                    });
                }
            }
        }
    }

    /// Announces something, and something else.
    async fn lead(&mut self, guard: Guard) -> Option<Guard> {
        let (began, hold) = (Instant::now(), guard.hold());
        let election = self.client.election(guard.name().as_bytes());
        let leads = async {
            let term = election.lead(guard, "here").await?;
            sleep(Duration::from_millis(20)).await;
            term.proclaim("there").await?;
            Ok(term.into_guard())
        };
        match leads.await {
            Ok(guard) => Some(guard),
            Err(error) => {
                self.world.with(|state| state.oracle.gave_back(&hold));
                self.failed(began, &error);
                None
            }
        }
    }

    /// Observes who leads: terms rise, and nothing is shown twice.
    async fn observe(&mut self) {
        let (began, until) = (Instant::now(), Instant::now() + self.some(15_000));
        let mut observer = match self.client.election("orders").observe().await {
            Ok(observer) => observer,
            Err(error) => return self.failed(began, &error),
        };
        let (mut term, mut value, mut is_over) = (0, None, true);
        while let Ok(seen) = tokio::time::timeout_at(until, observer.changed()).await {
            let Ok(seen) = seen else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let goes_on = |leader: &crate::Leader| {
                let known = leader.term.get() == term && !is_over;
                leader.term.get() > term
                    || (known && leader.value != value && leader.value.is_some())
            };
            let is_news = seen.as_ref().map_or(!is_over || term == 0, goes_on);
            if !is_news {
                let what = format!("orders: {seen:?} was shown after {value:?} of term {term}");
                self.world.with(|state| state.oracle.violation(what));
            }
            is_over = seen.is_none();
            if let Some(leader) = seen {
                (term, value) = (leader.term.get(), leader.value);
            }
        }
    }

    pub(super) fn failed(&self, began: Instant, error: &Error) {
        let peer = self.peer;
        self.world.with(|state| {
            state.oracle.note(|| format!("client {peer}: {error}"));
            // An owner that holds the lock may not queue for it again.
            let misuse = error.kind() == crate::ErrorKind::Misuse;
            // A leader learns of it when it announces something.
            let forced = error.kind() == crate::ErrorKind::Lost
                && error.lock().is_some_and(|name| state.oracle.was_forced(name, began));
            if state.oracle.is_calm(peer, began) && !misuse && !forced {
                state.oracle.violation(format!("client {peer} was not disturbed: {error}"));
            }
        });
    }
}
