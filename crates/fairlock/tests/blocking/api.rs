//! Adapts the blocking API to the async one, so that the contract's cases run on it: every
//! acquisition has its own thread, on which its guards stay. Dropping a future interrupts the
//! thread and waits until it ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use fairlock::blocking::{self, Interrupt};
use fairlock::{
    ClientId, Config, ConnectionState, Detached, Error, FencingToken, GuardState, Holder, Kind,
    Leader, LockEntry, LockName, LockStatus, Owner, OwnerId, Release,
};
use tokio::sync::{oneshot, watch};

/// A thousand waiters need a thousand threads.
const STACK_BYTES: usize = 256 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Client(blocking::Client);

async fn away<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

impl Client {
    pub(crate) async fn connect(url: &str) -> Result<Self, Error> {
        Self::with_config(Config::from_url(url)?).await
    }

    pub(crate) async fn with_config(config: Config) -> Result<Self, Error> {
        away(|| blocking::Client::with_config(config)).await.map(Self)
    }

    pub(crate) fn fair_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.fair_lock(name))
    }

    pub(crate) fn plain_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.plain_lock(name))
    }

    pub(crate) fn simple_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.simple_lock(name))
    }

    pub(crate) fn rw_lock(&self, name: impl AsRef<[u8]>) -> RwLock {
        RwLock(self.0.rw_lock(name))
    }

    pub(crate) fn semaphore(&self, name: impl AsRef<[u8]>, limit: u32) -> Semaphore {
        Semaphore(self.0.semaphore(name, limit))
    }

    pub(crate) fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election(self.0.election(name))
    }

    /// The async one: its cases need futures.
    pub(crate) fn latch(&self, name: impl AsRef<[u8]>) -> fairlock::Latch {
        self.0.as_async().latch(name)
    }

    pub(crate) fn background_tasks(&self) -> usize {
        self.0.as_async().background_tasks()
    }

    pub(crate) fn owner(&self) -> Owner {
        self.0.owner()
    }

    pub(crate) fn once_owner(&self) -> Owner {
        self.0.once_owner()
    }

    pub(crate) fn id(&self) -> ClientId {
        self.0.id()
    }

    pub(crate) fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.0.as_async().connection()
    }

    pub(crate) fn locks(&self) -> Locks {
        Locks(Some(self.0.locks()))
    }

    pub(crate) async fn ping(&self) -> Result<(), Error> {
        let client = self.0.clone();
        away(move || client.ping()).await
    }

    pub(crate) async fn shutdown(self) {
        away(move || self.0.shutdown()).await.unwrap();
    }
}

/// `None` while a thread walks.
pub(crate) struct Locks(Option<blocking::Locks>);

impl Locks {
    pub(crate) fn keys_per_second(self, keys: u32) -> Self {
        Self(self.0.map(|locks| locks.keys_per_second(keys)))
    }

    pub(crate) fn pace(&self) -> Option<u32> {
        self.0.as_ref().unwrap().pace()
    }

    pub(crate) async fn next_page(&mut self) -> Result<Option<Vec<LockEntry>>, Error> {
        let mut locks = self.0.take().unwrap();
        let (locks, page) = away(move || {
            let page = locks.next_page();
            (locks, page)
        })
        .await;
        self.0 = Some(locks);
        page
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Lock(blocking::Lock);

impl Lock {
    pub(crate) fn name(&self) -> Result<&LockName, Error> {
        self.0.name()
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    pub(crate) fn max_hold(self, most: Duration) -> Self {
        Self(self.0.max_hold(most))
    }

    pub(crate) fn owned_by(self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    pub(crate) fn non_reentrant(self) -> Self {
        Self(self.0.non_reentrant())
    }

    pub(crate) fn poll(self, most: Duration) -> Self {
        Self(self.0.poll(most))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind()
    }

    pub(crate) async fn lock(&self) -> Result<Guard, Error> {
        let guard = acquire(&self.0, |lock| lock.lock().map(Some)).await?;
        Ok(guard.expect("a wait without an end"))
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        acquire(&self.0, blocking::Lock::try_lock).await
    }

    pub(crate) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        acquire(&self.0, move |lock| lock.try_lock_for(wait)).await
    }

    pub(crate) async fn inspect(&self) -> Result<LockStatus, Error> {
        self.away(blocking::Lock::inspect).await
    }

    pub(crate) async fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        self.away(move |lock| lock.inspect_first(waiters)).await
    }

    pub(crate) async fn is_locked(&self) -> Result<bool, Error> {
        self.away(blocking::Lock::is_locked).await
    }

    pub(crate) async fn holder(&self) -> Result<Option<Holder>, Error> {
        self.away(blocking::Lock::holder).await
    }

    pub(crate) async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        self.away(blocking::Lock::remaining_ttl).await
    }

    pub(crate) async fn force_unlock(&self) -> Result<bool, Error> {
        self.away(blocking::Lock::force_unlock).await
    }

    /// For cases about its errors only: a turn stays on its thread.
    pub(crate) async fn enqueue(&self) -> Result<(), Error> {
        self.away(|lock| lock.enqueue().map(drop)).await
    }

    /// For cases about its errors only: a future cannot run on the thread.
    pub(crate) async fn with<Fut>(
        &self,
        _: impl FnOnce(fairlock::Held) -> Fut,
    ) -> Result<(), Error> {
        self.away(|lock| lock.with(drop)).await?;
        panic!("the lock was got, and the closure cannot run");
    }

    async fn away<T: Send + 'static>(
        &self,
        work: impl FnOnce(&blocking::Lock) -> T + Send + 'static,
    ) -> T {
        let lock = self.0.clone();
        away(move || work(&lock)).await
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RwLock(blocking::RwLock);

fn reads(guard: blocking::ReadGuard) -> blocking::Guard {
    guard.into_guard()
}

fn writes(guard: blocking::WriteGuard) -> blocking::Guard {
    guard.into_guard()
}

impl RwLock {
    pub(crate) fn name(&self) -> Result<&LockName, Error> {
        self.0.name()
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    pub(crate) fn owned_by(self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    pub(crate) fn non_reentrant(self) -> Self {
        Self(self.0.non_reentrant())
    }

    pub(crate) async fn read(&self) -> Result<Guard, Error> {
        let guard = acquire(&self.0, |lock| lock.read().map(reads).map(Some)).await?;
        Ok(guard.expect("a wait without an end"))
    }

    pub(crate) async fn write(&self) -> Result<Guard, Error> {
        let guard = acquire(&self.0, |lock| lock.write().map(writes).map(Some)).await?;
        Ok(guard.expect("a wait without an end"))
    }

    pub(crate) async fn try_read(&self) -> Result<Option<Guard>, Error> {
        acquire(&self.0, |lock| Ok(lock.try_read()?.map(reads))).await
    }

    pub(crate) async fn try_write(&self) -> Result<Option<Guard>, Error> {
        acquire(&self.0, |lock| Ok(lock.try_write()?.map(writes))).await
    }

    pub(crate) async fn try_read_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        acquire(&self.0, move |lock| Ok(lock.try_read_for(wait)?.map(reads))).await
    }

    pub(crate) async fn try_write_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        acquire(&self.0, move |lock| Ok(lock.try_write_for(wait)?.map(writes))).await
    }

    pub(crate) async fn inspect(&self) -> Result<LockStatus, Error> {
        let lock = self.0.clone();
        away(move || lock.inspect()).await
    }

    pub(crate) async fn force_unlock(&self) -> Result<usize, Error> {
        let lock = self.0.clone();
        away(move || lock.force_unlock()).await
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Semaphore(blocking::Semaphore);

impl Semaphore {
    pub(crate) fn name(&self) -> Result<&LockName, Error> {
        self.0.name()
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    pub(crate) fn owned_by(self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    pub(crate) async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1).await
    }

    pub(crate) async fn acquire_many(&self, n: u32) -> Result<Guard, Error> {
        let how = move |pool: &blocking::Semaphore| pool.acquire_many(n);
        let guard = acquire(&self.0, move |pool| how(pool).map(|it| Some(it.into_guard()))).await?;
        Ok(guard.expect("a wait without an end"))
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire_many(1).await
    }

    pub(crate) async fn try_acquire_many(&self, n: u32) -> Result<Option<Guard>, Error> {
        let permits = blocking::Permit::into_guard;
        acquire(&self.0, move |pool| Ok(pool.try_acquire_many(n)?.map(permits))).await
    }

    pub(crate) async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        let permits = blocking::Permit::into_guard;
        acquire(&self.0, move |pool| Ok(pool.try_acquire_for(wait)?.map(permits))).await
    }

    pub(crate) async fn usage(&self) -> Result<fairlock::Usage, Error> {
        let pool = self.0.clone();
        away(move || pool.usage()).await
    }
}

/// What a thread waits for, in a way that can be interrupted.
trait Interruptible: Clone + Send + 'static {
    fn until(self, interrupt: &Interrupt) -> Self;
}

impl Interruptible for blocking::Lock {
    fn until(self, interrupt: &Interrupt) -> Self {
        self.interruptible(interrupt)
    }
}

impl Interruptible for blocking::RwLock {
    fn until(self, interrupt: &Interrupt) -> Self {
        self.interruptible(interrupt)
    }
}

impl Interruptible for blocking::Semaphore {
    fn until(self, interrupt: &Interrupt) -> Self {
        self.interruptible(interrupt)
    }
}

/// The guards of one thread, by number.
#[derive(Default)]
struct Guards {
    held: HashMap<u64, blocking::Guard>,
    next: u64,
}

impl Guards {
    fn add(&mut self, guard: blocking::Guard, thread: &Arc<Thread>) -> Guard {
        let number = self.next;
        self.next += 1;
        let facts = (guard.token(), guard.owner().clone(), guard.name().clone());
        let (token, owner, name) = facts;
        self.held.insert(number, guard);
        Guard { thread: Arc::clone(thread), number, token, owner, name, done: false }
    }
}

type Job = Box<dyn FnOnce(&mut Guards) + Send>;

/// A thread that holds guards and runs jobs on them.
struct Thread {
    id: ThreadId,
    jobs: mpsc::Sender<Job>,
}

impl Thread {
    /// Panics only if a test uses a guard that it has given away.
    fn ask<T: Send + 'static>(&self, job: impl FnOnce(&mut Guards) -> T + Send + 'static) -> T {
        let (reply, answer) = mpsc::channel();
        self.jobs.send(Box::new(move |guards| reply.send(job(guards)).unwrap())).unwrap();
        answer.recv().unwrap()
    }
}

/// Interrupts the thread when the acquisition is dropped.
struct Acquiring {
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.interrupt.interrupt();
        thread.join().unwrap();
    }
}

async fn acquire<L: Interruptible>(
    lock: &L,
    how: impl FnOnce(&L) -> Result<Option<blocking::Guard>, Error> + Send + 'static,
) -> Result<Option<Guard>, Error> {
    let interrupt = Interrupt::new();
    let lock = lock.clone().until(&interrupt);
    // Declared before the receiver, so dropped after it: a late result finds no receiver.
    let mut acquiring = Acquiring { interrupt, thread: None };
    let (done, result) = oneshot::channel();
    let work = move || {
        let acquired = how(&lock);
        // From here on only the guards keep the client alive.
        drop(lock);
        let (jobs, work) = mpsc::channel::<Job>();
        let thread = Arc::new(Thread { id: std::thread::current().id(), jobs });
        let mut guards = Guards::default();
        let reply = acquired.map(|guard| guard.map(|guard| guards.add(guard, &thread)));
        drop(thread);
        drop(done.send(reply));
        for job in work {
            job(&mut guards);
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap();
    acquiring.thread = Some(thread);
    let result = result.await.unwrap();
    // The thread continues on its own.
    drop(acquiring.thread.take());
    result
}

pub(crate) struct Guard {
    thread: Arc<Thread>,
    number: u64,
    token: FencingToken,
    owner: OwnerId,
    name: LockName,
    done: bool,
}

impl Guard {
    /// What the guards of shares become.
    pub(crate) fn into_guard(self) -> Self {
        self
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        &self.owner
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&blocking::Guard) -> T + Send + 'static,
    ) -> T {
        let number = self.number;
        self.thread.ask(move |guards| look(&guards.held[&number]))
    }

    pub(crate) fn hold_count(&self) -> u32 {
        self.look(blocking::Guard::hold_count)
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.look(blocking::Guard::remaining)
    }

    pub(crate) fn lease(&self) -> Duration {
        self.look(blocking::Guard::lease)
    }

    pub(crate) fn state(&self) -> GuardState {
        self.look(blocking::Guard::state)
    }

    pub(crate) fn lost_reason(&self) -> Option<fairlock::LostReason> {
        self.look(blocking::Guard::lost_reason)
    }

    pub(crate) fn ensure_valid(&self) -> Result<(), Error> {
        self.look(blocking::Guard::ensure_valid)
    }

    /// Polls, because the thread must stay free for other jobs.
    pub(crate) async fn state_changed(&self, from: GuardState) -> GuardState {
        loop {
            let state = self.state();
            if state != from {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn lost(&self) {
        while self.state() != GuardState::Lost {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The job continues when the future is dropped; its result is dropped then.
    async fn go<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Guards) -> T + Send + 'static,
    ) -> T {
        let (reply, answer) = oneshot::channel();
        self.thread.jobs.send(Box::new(move |guards| drop(reply.send(job(guards))))).unwrap();
        answer.await.unwrap()
    }

    pub(crate) async fn reenter(&self) -> Result<Self, Error> {
        let (number, thread) = (self.number, Arc::clone(&self.thread));
        self.go(move |guards| {
            let again = guards.held[&number].reenter()?;
            Ok(guards.add(again, &thread))
        })
        .await
    }

    pub(crate) async fn release(mut self) -> Result<Release, Error> {
        self.done = true;
        let number = self.number;
        self.go(move |guards| guards.held.remove(&number).unwrap().release()).await
    }

    pub(crate) async fn detach(mut self) -> Result<Detached, Error> {
        self.done = true;
        let number = self.number;
        self.go(move |guards| guards.held.remove(&number).unwrap().detach()).await
    }

    pub(crate) async fn detach_for(mut self, time: Duration) -> Result<Detached, Error> {
        self.done = true;
        let number = self.number;
        self.go(move |guards| guards.held.remove(&number).unwrap().detach_for(time)).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let number = self.number;
        let job = move |guards: &mut Guards| drop(guards.held.remove(&number));
        if std::thread::current().id() == self.thread.id {
            self.thread.jobs.send(Box::new(job)).unwrap();
        } else {
            self.thread.ask(job);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.look(|guard| format!("{guard:?}")))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Election(blocking::Election);

impl Election {
    pub(crate) fn name(&self) -> Result<&LockName, Error> {
        self.0.name()
    }

    pub(crate) fn while_touched(self, time: Duration) -> Self {
        Self(self.0.while_touched(time))
    }

    pub(crate) async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Term, Error> {
        let (election, value) = (self.0.clone(), value.as_ref().to_vec());
        let (done, result) = oneshot::channel();
        std::thread::spawn(move || {
            let (jobs, work) = mpsc::channel::<TermJob>();
            let campaign = election.campaign(value);
            drop(election);
            let facts = campaign.as_ref().map(|term| (term.token(), term.owner().clone()));
            let facts = facts.map_err(Clone::clone);
            drop(done.send(facts.map(|(token, owner)| Term { jobs, token, owner })));
            let mut term = campaign.ok();
            for job in work {
                job(&mut term);
            }
        });
        result.await.unwrap()
    }

    pub(crate) async fn leader(&self) -> Result<Option<Leader>, Error> {
        let election = self.0.clone();
        away(move || election.leader()).await
    }

    pub(crate) async fn observe(&self) -> Result<Observer, Error> {
        let election = self.0.clone();
        away(move || election.observe()).await.map(|observer| Observer(Some(observer)))
    }
}

type TermJob = Box<dyn FnOnce(&mut Option<blocking::Term>) + Send>;

/// A term on a thread of its own.
pub(crate) struct Term {
    jobs: mpsc::Sender<TermJob>,
    token: FencingToken,
    owner: OwnerId,
}

impl Term {
    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Option<blocking::Term>) -> T + Send + 'static,
    ) -> T {
        let (reply, answer) = mpsc::channel();
        self.jobs.send(Box::new(move |term| reply.send(job(term)).unwrap())).unwrap();
        answer.recv().unwrap()
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&blocking::Term) -> T + Send + 'static,
    ) -> T {
        self.ask(move |term| look(term.as_ref().unwrap()))
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        &self.owner
    }

    pub(crate) async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let value = value.as_ref().to_vec();
        self.look(move |term| term.proclaim(value))
    }

    pub(crate) fn touch(&self) {
        self.look(blocking::Term::touch);
    }

    pub(crate) fn ensure_valid(&self) -> Result<(), Error> {
        self.look(|term| term.ensure_valid())
    }

    pub(crate) fn lost_reason(&self) -> Option<fairlock::LostReason> {
        self.look(|term| term.lost_reason())
    }

    pub(crate) async fn lost(&self) {
        while self.look(|term| term.state()) != GuardState::Lost {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn resign(self) -> Result<Release, Error> {
        self.ask(|term| term.take().unwrap().resign())
    }
}

/// `None` while a thread waits.
pub(crate) struct Observer(Option<blocking::Observer>);

impl Observer {
    pub(crate) async fn changed(&mut self) -> Result<Option<Leader>, Error> {
        let mut observer = self.0.take().unwrap();
        let (observer, seen) = away(move || {
            let seen = observer.changed();
            (observer, seen)
        })
        .await;
        self.0 = Some(observer);
        seen
    }
}
