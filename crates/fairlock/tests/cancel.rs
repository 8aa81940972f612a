//! The cancellation driver: drops every call after every number of polls, from every state it can
//! be in, and checks that nothing of it is left in the store.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{At, Store, granted, poll_once, queue_is, run, soon, wait_behind};
use fairlock::{Client, Config, Election, Guard, Kind, Lock, Release};
use fairlock_testkit::raw::{Raw, outlives_users};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;

/// Polls before the drop: 0, 1, 2, ... up to this, and once until the call returns.
const POLLS_MAX: usize = 24;

/// What a case leaves behind disappears within this time (it takes milliseconds). An abandoned
/// grant would expire by itself only after 12 s.
const CLEAN_WITHIN: Duration = Duration::from_secs(6);

/// The heartbeat period; three periods are the 12 s.
const HEARTBEAT: Duration = Duration::from_secs(4);

/// Cases that run concurrently.
const WORKERS: usize = 8;

/// The state of the lock when the call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    Free,
    /// Held by somebody else for as long as the call lives.
    Held,
    /// Held, with another waiter in front.
    Queued,
    /// The call waits, and the holder releases while it is polled.
    Granting,
    /// The call waits, and an operator has removed it from the queue: it returns to the queue.
    Removed,
}

/// The call that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Lock,
    /// By an explicit owner, which makes its next request at once.
    OwnedLock,
    /// By the owner that holds the lock.
    OwnedReenter,
    TryLockFor(Duration),
    TryLock,
    Reenter,
    Release,
    Detach,
    /// Enqueues and waits for its turn.
    Turn,
    /// Enqueues, waits briefly, and leaves.
    TurnLeaves,
    /// Runs a closure under the lock.
    With,
    /// Waits for a term of the lock's election, and announces a value.
    Campaign,
    /// Announces another value.
    Proclaim,
    /// Ends a term.
    Resign,
    /// Begins to observe.
    Observe,
    /// Observes while somebody begins to lead.
    Changed,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    number: usize,
    kind: Kind,
    start: Start,
    call: Call,
    /// `None`: until it returns.
    polls: Option<usize>,
    pause: Duration,
}

/// The clients of a case, and a raw connection if there is a server.
struct World {
    holder: Client,
    caller: Client,
    raw: Option<Raw>,
}

impl World {
    fn lock(&self, client: &Client, case: &Case) -> Lock {
        let name = case.name();
        match case.kind {
            Kind::Simple => client.simple_lock(name),
            Kind::Plain => client.plain_lock(name),
            _ => client.fair_lock(name),
        }
    }
}

impl Case {
    fn name(&self) -> String {
        format!("case {}", self.number)
    }

    fn queue_key(&self) -> String {
        format!("redisson_lock_queue:{{{}}}", self.name())
    }
}

/// Polls `future` at most `polls` times, `pause` apart, then drops it. The pauses let the other
/// threads run; it polls whether or not the future was woken.
pub(crate) async fn poll_n<T>(
    future: impl Future<Output = T>,
    polls: Option<usize>,
    pause: Duration,
) -> Option<T> {
    let mut future = pin!(future);
    let Some(polls) = polls else { return Some(soon("the whole call", future).await) };
    for _ in 0..polls {
        if let Some(result) = poll_once(&mut future).await {
            return Some(result);
        }
        if pause >= Duration::from_millis(1) {
            tokio::time::sleep(pause).await;
            continue;
        }
        // Shorter than a timer can wait.
        let until = Instant::now() + pause;
        loop {
            tokio::task::yield_now().await;
            if Instant::now() >= until {
                break;
            }
        }
    }
    None
}

type Acquisition = Pin<Box<dyn Future<Output = Option<Guard>> + Send>>;

fn acquisition(lock: Lock, election: Election, call: Call) -> Acquisition {
    Box::pin(async move {
        match call {
            Call::Campaign => Some(election.campaign("here").await.unwrap().into_guard()),
            Call::TryLockFor(wait) => lock.try_lock_for(wait).await.unwrap(),
            Call::TryLock => lock.try_lock().await.unwrap(),
            Call::Turn => Some(lock.enqueue().await.unwrap().wait().await.unwrap()),
            Call::With => {
                let work = async |held: fairlock::Held| {
                    tokio::task::yield_now().await;
                    held.ensure_valid().unwrap();
                };
                assert_eq!(lock.with(work).await.unwrap().release, Release::Released);
                None
            }
            Call::TurnLeaves => {
                let mut turn = lock.enqueue().await.unwrap();
                let guard = turn.wait_for(Duration::from_millis(1)).await.unwrap();
                turn.leave().await.unwrap();
                guard
            }
            _ => Some(lock.lock().await.unwrap()),
        }
    })
}

/// Runs a case; returns whether the call completed.
async fn run_case(world: &mut World, case: &Case) -> bool {
    let ended = match case.call {
        Call::Reenter | Call::OwnedReenter => reenter(world, case).await,
        Call::Release => release(world, case).await,
        Call::Detach => detach(world, case).await,
        Call::Proclaim => proclaim(world, case).await,
        Call::Resign => resign(world, case).await,
        Call::Observe | Call::Changed => observe(world, case).await,
        _ => acquire(world, case).await,
    };
    nothing_is_left(world, case).await;
    ended
}

async fn acquire(world: &mut World, case: &Case) -> bool {
    let holders = world.lock(&world.holder, case);
    let holder = match case.start {
        Start::Free => None,
        _ => Some(holders.lock().await.unwrap()),
    };
    let ahead = match case.start {
        Start::Queued => Some(wait_behind(&holders, 1).await),
        _ => None,
    };
    let lock = world.lock(&world.caller, case);
    let owned = case.call == Call::OwnedLock;
    let lock = if owned { lock.owned_by(&world.caller.owner()) } else { lock };
    let election = world.caller.election(case.name());
    let mut call = acquisition(lock.clone(), election, case.call);
    if case.start == Start::Granting || case.start == Start::Removed {
        let early = poll_once(&mut call).await;
        assert!(early.is_none(), "{case:?}");
        if case.kind == Kind::Fair {
            queue_is(&holders, 1).await;
        }
    }
    let mut holder = holder;
    if case.start == Start::Granting {
        let holder = holder.take().unwrap();
        tokio::spawn(async move { holder.release().await.unwrap() });
    }
    if case.start == Start::Removed {
        remove_from_queue(world.raw.as_mut().unwrap(), case);
    }
    let result = poll_n(call, case.polls, case.pause).await;
    let ended = result.is_some();
    // Queued behind the dropped request; must never get its hold.
    let again = if owned && !ended { Some(tokio::spawn(take_and_release(lock))) } else { None };
    if let Some(Some(guard)) = result {
        guard.ensure_valid().unwrap();
        if case.number.is_multiple_of(2) {
            drop(guard);
        } else {
            assert_eq!(guard.release().await.unwrap(), Release::Released, "{case:?}");
        }
    }
    if let Some(holder) = holder {
        assert_eq!(holder.release().await.unwrap(), Release::Released, "{case:?}");
    }
    if let Some(ahead) = ahead {
        assert_eq!(granted(ahead).await.release().await.unwrap(), Release::Released, "{case:?}");
    }
    if let Some(again) = again {
        assert_eq!(soon("its turn", again).await.unwrap(), Release::Released, "{case:?}");
    }
    ended
}

async fn take_and_release(lock: Lock) -> Release {
    let guard = lock.lock().await.unwrap();
    assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 1);
    guard.release().await.unwrap()
}

/// As an operator does, or a Java client that considers the waiter dead.
fn remove_from_queue(raw: &mut Raw, case: &Case) {
    let queue = case.queue_key();
    let Value::Bulk(owner) = raw.call(&["LINDEX", &queue, "0"]) else { panic!("{case:?}: empty") };
    let timeouts = format!("redisson_lock_timeout:{{{}}}", case.name());
    assert_eq!(raw.call(&[b"LREM", queue.as_bytes(), b"0", &owner[..]]).int(), 1);
    assert_eq!(raw.call(&[b"ZREM", timeouts.as_bytes(), &owner[..]]).int(), 1);
}

async fn reenter(world: &mut World, case: &Case) -> bool {
    let lock = world.lock(&world.caller, case).owned_by(&world.caller.owner());
    let guard = lock.lock().await.unwrap();
    if case.start == Start::Granting {
        // The lock is taken away meanwhile: an error, and nothing is left either.
        let lock = world.lock(&world.holder, case);
        tokio::spawn(async move { lock.force_unlock().await.unwrap() });
    }
    let again = if case.call == Call::Reenter {
        poll_n(guard.reenter(), case.polls, case.pause).await
    } else {
        poll_n(lock.lock(), case.polls, case.pause).await
    };
    let ended = again.is_some();
    let taken = case.start == Start::Granting;
    if let Some(result) = again {
        assert!(result.is_ok() || taken, "{case:?}");
        drop(result);
    }
    let released = guard.release().await.unwrap();
    // The client's thread takes the dropped re-entry back, perhaps only after this.
    let later = case.call == Call::OwnedReenter && released == Release::StillHeld(1);
    assert!(released == Release::Released || taken || later, "{case:?}: {released:?}");
    ended
}

async fn release(world: &mut World, case: &Case) -> bool {
    let lock = world.lock(&world.caller, case);
    let guard = lock.lock().await.unwrap();
    let behind = match case.start {
        Start::Queued => Some(wait_behind(&world.lock(&world.holder, case), 1).await),
        _ => None,
    };
    let ended = poll_n(guard.release(), case.polls, case.pause).await.is_some();
    if let Some(behind) = behind {
        let _ = granted(behind).await.release().await.unwrap();
    }
    ended
}

/// A detached lock stays until its lease ends, so an operator takes it away. A lock whose call was
/// dropped before it was detached is released: the operator finds nothing.
async fn detach(world: &mut World, case: &Case) -> bool {
    let lock = world.lock(&world.caller, case);
    let guard = lock.lock().await.unwrap();
    let look = world.lock(&world.holder, case);
    let behind = match case.start {
        Start::Queued => Some(wait_behind(&look, 1).await),
        _ => None,
    };
    let result = poll_n(guard.detach(), case.polls, case.pause).await;
    let ended = result.is_some();
    if let Some(detached) = result {
        let detached = detached.unwrap();
        assert_eq!(look.holder().await.unwrap().unwrap().owner, *detached.owner(), "{case:?}");
        assert!(look.force_unlock().await.unwrap(), "{case:?}");
    }
    if let Some(behind) = behind {
        let _ = granted(behind).await.release().await.unwrap();
    }
    ended
}

/// Whether or not the other value is announced, the term goes on. If the lock is taken away meanwhile, that is an error.
async fn proclaim(world: &mut World, case: &Case) -> bool {
    let taken = case.start == Start::Granting;
    let election = world.caller.election(case.name());
    let term = election.campaign("one").await.unwrap();
    if taken {
        let lock = world.lock(&world.holder, case);
        tokio::spawn(async move { lock.force_unlock().await.unwrap() });
    }
    let told = poll_n(term.proclaim("two"), case.polls, case.pause).await;
    let ended = told.is_some();
    assert!(taken || told.is_none_or(|told| told.is_ok()), "{case:?}");
    if !taken {
        term.ensure_valid().unwrap();
        term.proclaim("three").await.unwrap();
        let leader = world.holder.election(case.name()).leader().await.unwrap().unwrap();
        assert_eq!(leader.value.as_deref(), Some(&b"three"[..]), "{case:?}");
    }
    let resigned = term.resign().await.unwrap();
    assert!(resigned == Release::Released || taken, "{case:?}: {resigned:?}");
    ended
}

async fn resign(world: &mut World, case: &Case) -> bool {
    let election = world.caller.election(case.name());
    let term = election.campaign("one").await.unwrap();
    let next = world.holder.election(case.name());
    let next = match case.start {
        Start::Queued => {
            let task = tokio::spawn(async move { next.campaign("two").await.unwrap() });
            queue_is(&world.lock(&world.holder, case), 1).await;
            Some(task)
        }
        _ => None,
    };
    let ended = poll_n(term.resign(), case.polls, case.pause).await.is_some();
    if let Some(next) = next {
        let next = soon("the next term", next).await.unwrap();
        assert_eq!(next.resign().await.unwrap(), Release::Released, "{case:?}");
    }
    ended
}

/// An observer that was dropped listens no more, and a dropped wait has lost nothing.
async fn observe(world: &mut World, case: &Case) -> bool {
    let election = world.caller.election(case.name());
    let leads = world.holder.election(case.name());
    let ended = if case.call == Call::Observe {
        let term = match case.start {
            Start::Held => Some(leads.campaign("one").await.unwrap()),
            _ => None,
        };
        let observer = poll_n(election.observe(), case.polls, case.pause).await;
        let ended = observer.is_some();
        if let Some(observer) = observer {
            let seen = observer.unwrap().leader().is_some();
            assert_eq!(seen, term.is_some(), "{case:?}");
        }
        ended
    } else {
        let mut observer = election.observe().await.unwrap();
        assert_eq!(observer.changed().await.unwrap(), None);
        let term = tokio::spawn(async move { leads.campaign("one").await.unwrap() });
        let ended = poll_n(observer.changed(), case.polls, case.pause).await.is_some();
        let announced = async {
            while observer.leader().is_none_or(|leader| leader.value.is_none()) {
                observer.changed().await.unwrap();
            }
        };
        soon("the leader is seen", announced).await;
        drop(observer);
        drop(term.await.unwrap());
        ended
    };
    if let Some(raw) = &mut world.raw {
        let channel = format!("fairlock_leader:{{{}}}", case.name());
        let deadline = Instant::now() + CLEAN_WITHIN;
        while raw.call(&["PUBSUB", "NUMSUB", &channel]).array()[1].int() > 0 {
            assert!(Instant::now() < deadline, "{case:?}: it listens still");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    ended
}

/// Waits until nothing of the case is in the store except what is meant to stay.
async fn nothing_is_left(world: &mut World, case: &Case) {
    let look = world.lock(&world.holder, case);
    let deadline = Instant::now() + CLEAN_WITHIN;
    loop {
        let left = match &mut world.raw {
            Some(raw) => left_in_keys(raw, case),
            None => {
                let status = look.inspect().await.unwrap();
                let clean = status.holder.is_none() && status.queue_len == 0;
                if clean { Vec::new() } else { vec![format!("{status:?}")] }
            }
        };
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{case:?} leaves {left:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn left_in_keys(raw: &mut Raw, case: &Case) -> Vec<String> {
    let name = case.name();
    let mut keys = vec![name.clone()];
    let prefixes = ["redisson_lock_queue", "redisson_lock_timeout", "fairlock_order"];
    keys.extend(prefixes.map(|prefix| format!("{prefix}:{{{name}}}")));
    if !keeps_beats(raw, &name) {
        keys.push(format!("fairlock_beats:{{{name}}}"));
    } else {
        assert_eq!(case.start, Start::Removed, "{case:?}: nobody was removed");
    }
    keys.retain(|key| raw.call(&["EXISTS", key]).int() == 1);
    keys
}

/// The beats of a waiter that others removed stay for a minute: it may return, and must not be
/// taken for one that returns after a loss of state.
fn keeps_beats(raw: &mut Raw, name: &str) -> bool {
    raw.call(&["HEXISTS", &format!("fairlock_state:{{{name}}}"), "removed"]).int() == 1
}

/// The answer to `PTTL` of a key that does not exist.
const ENDED_MEANWHILE: i64 = -2;

/// What may stay in the end: token keys, and for a while the keys that protect against late copies.
fn only_what_may_stay_is_left(raw: &mut Raw) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for key in raw.call(&["KEYS", "*"]).array() {
        let key = key.text();
        let (kind, name) = key.split_once(":{").unwrap_or((key, ""));
        let may_stay = match kind {
            "redisson_lock_token"
            | "fairlock_kind"
            | "fairlock_state"
            | "fairlock_buried"
            | "fairlock_leader" => true,
            "fairlock_beats" => keeps_beats(raw, name.trim_end_matches('}')),
            _ => false,
        };
        assert!(may_stay, "{key} is left");
        let ttl = raw.call(&["PTTL", key]).int();
        if ttl == ENDED_MEANWHILE {
            continue;
        }
        assert!(ttl > 0, "{key} has no TTL");
        assert!(ttl <= 60_000 || outlives_users(key), "{key} has a TTL of {ttl} ms");
        *counts.entry(kind.to_owned()).or_insert(0) += 1;
    }
    counts
}

fn cases(at: At) -> Vec<Case> {
    let us = Duration::from_micros;
    let short = Call::TryLockFor(Duration::from_millis(1));
    let long = Call::TryLockFor(Duration::from_secs(60));
    let mut cases = Vec::new();
    let mut add = |kind, start, call, polls, pause| {
        let number = cases.len();
        cases.push(Case { number, kind, start, call, polls, pause });
    };
    let ends = |start, call| {
        matches!(start, Start::Free | Start::Granting)
            || !matches!(
                call,
                Call::Lock | Call::OwnedLock | Call::Turn | Call::With | Call::Campaign
            ) && call != long
    };
    let fair = [
        (Call::Lock, &[Start::Free, Start::Held, Start::Queued, Start::Granting][..]),
        (Call::OwnedLock, &[Start::Free, Start::Held, Start::Queued, Start::Granting]),
        (Call::OwnedReenter, &[Start::Held, Start::Granting]),
        (short, &[Start::Free, Start::Held, Start::Queued]),
        (long, &[Start::Held, Start::Queued, Start::Granting]),
        (Call::TryLock, &[Start::Free, Start::Held]),
        (Call::Turn, &[Start::Free, Start::Held, Start::Queued, Start::Granting]),
        (Call::With, &[Start::Free, Start::Held, Start::Queued, Start::Granting]),
        (Call::TurnLeaves, &[Start::Free, Start::Held, Start::Queued, Start::Granting]),
        (Call::Reenter, &[Start::Held, Start::Granting]),
        (Call::Release, &[Start::Held, Start::Queued]),
        (Call::Detach, &[Start::Held, Start::Queued]),
        (Call::Campaign, &[Start::Free, Start::Held, Start::Queued, Start::Granting]),
        (Call::Proclaim, &[Start::Held, Start::Granting]),
        (Call::Resign, &[Start::Held, Start::Queued]),
        (Call::Observe, &[Start::Free, Start::Held]),
        (Call::Changed, &[Start::Free]),
    ];
    let plain = [
        (Call::Lock, &[Start::Free, Start::Held, Start::Granting][..]),
        (Call::OwnedLock, &[Start::Free, Start::Held, Start::Granting]),
        (Call::OwnedReenter, &[Start::Held, Start::Granting]),
        (short, &[Start::Free, Start::Held]),
        (long, &[Start::Granting]),
        (Call::Reenter, &[Start::Held, Start::Granting]),
        (Call::Release, &[Start::Held]),
        (Call::Detach, &[Start::Held]),
    ];
    let table = fair.iter().map(|row| (Kind::Fair, row));
    let table = table.chain(plain.iter().map(|row| (Kind::Plain, row)));
    for (kind, (call, starts)) in table.chain(plain.iter().map(|row| (Kind::Simple, row))) {
        for start in *starts {
            for pause in [us(0), us(10), us(40), us(150)] {
                for polls in 0..=POLLS_MAX {
                    add(kind, *start, *call, Some(polls), pause);
                }
            }
            if ends(*start, *call)
                || matches!(call, Call::Reenter | Call::OwnedReenter | Call::Release | Call::Detach)
            {
                add(kind, *start, *call, None, us(0));
            }
        }
    }
    if matches!(at, At::Server(_)) {
        // A heartbeat discovers that the waiter is gone, and brings it back.
        for call in [Call::Lock, Call::Turn, long] {
            for polls in 0..=80 {
                add(Kind::Fair, Start::Removed, call, Some(polls), HEARTBEAT / 70);
            }
        }
    }
    cases
}

async fn drive(store: Store, at: At, at_least: usize) {
    let tune = |config: Config| config.heartbeat(HEARTBEAT);
    let holder = store.client_with(tune).await;
    let caller = store.client_with(tune).await;
    let all = cases(at);
    let count = all.len();
    let (slow, quick): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|case| case.start == Start::Removed);
    let done = Arc::new(Mutex::new((0, 0)));
    let mut tasks = Vec::new();
    // The slow cases mostly wait for heartbeats: all of them run at once, beside the others.
    let slow = slow.into_iter().map(|case| vec![case]);
    let quick = Arc::new(Mutex::new(quick.into_iter()));
    let world = || World { holder: holder.clone(), caller: caller.clone(), raw: store.raw() };
    for _ in 0..WORKERS {
        let (mut world, quick, done) = (world(), Arc::clone(&quick), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            loop {
                let next = quick.lock().unwrap().next();
                let Some(case) = next else { break };
                note(&done, run_case(&mut world, &case).await);
            }
        }));
    }
    for cases in slow {
        let (mut world, done) = (world(), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            for case in cases {
                note(&done, run_case(&mut world, &case).await);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (ended, dropped) = *done.lock().unwrap();
    assert_eq!(ended + dropped, count);
    assert!(count >= at_least, "only {count} cases");
    assert!(ended > count / 20 && dropped > count / 3, "{ended} ended, {dropped} were dropped");
    // The clients shut down as well, which removes their announcements.
    for client in [holder, caller] {
        client.shutdown().await;
    }
    let left = store.raw().map(|mut raw| only_what_may_stay_is_left(&mut raw));
    println!("{count} cases: {ended} ended, {dropped} were dropped; left: {left:?}");
}

fn note(done: &Mutex<(usize, usize)>, ended: bool) {
    let mut done = done.lock().unwrap();
    if ended {
        done.0 += 1;
    } else {
        done.1 += 1;
    }
}

#[test]
fn every_drop_leaves_nothing_on_a_server() {
    let at = At::Server(Generation::Redis70);
    run(at, |store| drive(store, at, 2_000));
}

#[test]
fn every_drop_leaves_nothing_in_memory() {
    run(At::Memory, |store| drive(store, At::Memory, 1_500));
}
