//! The reverse: what dead clients of ours cost Java when only Java is left, compared with a dead
//! Java client in the same place. All with default settings except for the lease, for which Java
//! sleeps.

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock_interop::java::{Call, Java, JavaClient, JavaOwner, Settings};
use fairlock_interop::worker::Worker;

use super::Moved;
use crate::deaths::{WORKER_LEASE, doomed};
use crate::fixture::{Fixture, block_on, measured, ms, until};

const FAIR_WAIT: Duration = Duration::from_secs(300);
const SHORT_FAIR_WAIT: Duration = Duration::from_secs(8);
/// Time advances in these steps: small ones first.
const STEP: Duration = Duration::from_secs(1);
const LONG_STEP: Duration = Duration::from_secs(5);
const SMALL_STEPS: Duration = Duration::from_secs(45);
/// How long pollers need after each step.
const LOOK: Duration = Duration::from_millis(40);
/// No one waits longer than dead clients can cost.
const ALL_DEAD: Duration = Duration::from_secs(3000);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Holder,
    Head,
    /// At the head, with a short fair wait on both sides.
    HeadShort,
    /// Behind one Java thread, with three more behind it.
    Middle,
    /// Three in a row.
    Many,
}

impl Place {
    const ALL: [Self; 5] = [Self::Holder, Self::Head, Self::HeadShort, Self::Middle, Self::Many];

    fn dead(self) -> usize {
        if self == Self::Many { 3 } else { 1 }
    }

    fn fair_wait(self) -> Duration {
        if self == Self::HeadShort { SHORT_FAIR_WAIT } else { FAIR_WAIT }
    }
}

/// A lock that a doomed client holds or waits for.
struct Case {
    place: Place,
    ours: bool,
    lock: String,
    holder: JavaOwner,
    /// The doomed owners, in order of arrival.
    dead: Vec<String>,
    worker: Option<Worker>,
    /// The waiter before the dead.
    before: Option<(JavaOwner, Call)>,
    /// The waiter right behind the dead, and how long it waited once all were dead and the lock was
    /// free.
    survivor: Call,
    cost: Option<Duration>,
}

fn settings(fair_wait: Duration) -> Settings {
    let fair_wait = (fair_wait != FAIR_WAIT).then_some(fair_wait);
    Settings { watchdog: WORKER_LEASE, fair_wait }
}

impl Case {
    async fn new(fixture: &Fixture, doomed: &Java, place: Place, ours: bool) -> Self {
        let lock = format!("{place:?}-{}", if ours { "ours" } else { "java" });
        let java = fixture.java.client(fixture.server.addr(), settings(place.fair_wait())).await;
        let holder = java.owner("holder").await;
        let mut queue = Vec::new();
        if place != Place::Holder {
            holder.fair(&lock).lock().value().await;
        }
        let before = match place {
            Place::Middle => Some(enter(fixture, &java, "before", &lock, &mut queue).await),
            _ => None,
        };
        let (dead, worker) = dying(fixture, doomed, place, &lock, ours).await;
        if place == Place::Holder {
            until("it holds it", || fixture.holder(&lock).as_ref() == dead.first()).await;
        } else {
            queue.extend(dead.clone());
            fixture.queued(&lock, &queue).await;
        }
        let (_, survivor) = enter(fixture, &java, "survivor", &lock, &mut queue).await;
        if place == Place::Middle {
            let _waits = enter(fixture, &java, "one-more", &lock, &mut queue).await;
            let _waits = enter(fixture, &java, "the-last", &lock, &mut queue).await;
        }
        Self { place, ours, lock, holder, dead, worker, before, survivor, cost: None }
    }
}

/// A Java thread that starts to wait.
async fn enter(
    fixture: &Fixture,
    java: &JavaClient,
    name: &str,
    lock: &str,
    queue: &mut Vec<String>,
) -> (JavaOwner, Call) {
    let owner = java.owner(name).await;
    let call = owner.fair(lock).lock();
    queue.push(owner.id.clone());
    fixture.queued(lock, queue).await;
    (owner, call)
}

/// The doomed owners, in order of arrival.
async fn dying(
    fixture: &Fixture,
    doomed: &Java,
    place: Place,
    lock: &str,
    ours: bool,
) -> (Vec<String>, Option<Worker>) {
    if ours {
        let program = Path::new(env!("CARGO_BIN_EXE_fairlock-interop"));
        let (url, times, wait) = (fixture.server.url(), place.dead(), place.fair_wait());
        let worker = Worker::waiting(program, &url, lock, WORKER_LEASE, times, wait).await;
        return (worker.owners.clone(), Some(worker));
    }
    let client = doomed.client(fixture.server.addr(), settings(place.fair_wait())).await;
    let mut owners = Vec::new();
    for n in 0..place.dead() {
        let owner = client.owner(&format!("dies{n}")).await;
        let _dies = owner.fair(lock).lock();
        until("it waits or holds", || {
            fixture.queue(lock).contains(&owner.id)
                || fixture.holder(lock).as_ref() == Some(&owner.id)
        })
        .await;
        owners.push(owner.id);
    }
    (owners, None)
}

/// Waits until ours has sent another heartbeat.
async fn heartbeat(fixture: &Fixture, lock: &str, owner: &str) {
    let (client, _) = owner.split_once(':').expect("an owner of ours");
    let key = format!("fairlock_beats:{{{lock}}}");
    let last = || fixture.call(&["ZSCORE", &key, client]).text().parse::<f64>().unwrap();
    let before = last();
    until("a heartbeat", || last() > before).await;
}

#[test]
fn our_dead_cost_java_no_more_than_its_own() {
    let Some(alone) = Moved::open() else { return };
    block_on(async {
        if !alone.version().looks_again() {
            alone.skipped("its waiters sleep for minutes, or for ever, whoever has died");
            return;
        }
        let doomed = doomed(&alone);
        let places =
            Place::ALL.into_iter().flat_map(|place| [true, false].map(|ours| (place, ours)));
        let mut cases = Vec::new();
        for (place, ours) in places {
            cases.push(Case::new(&alone, &doomed, place, ours).await);
        }
        // A heartbeat of ours updates liveness and place.
        for case in cases.iter().filter(|case| case.ours && case.place != Place::Holder) {
            heartbeat(&alone, &case.lock, &case.dead[0]).await;
        }
        doomed.kill9();
        for case in &mut cases {
            if let Some(worker) = case.worker.take() {
                worker.kill9();
            }
        }
        let killed = Instant::now();
        for case in &mut cases {
            if case.place != Place::Holder {
                case.holder.fair(&case.lock).unlock().value().await;
            }
            if let Some((owner, call)) = case.before.take() {
                call.value().await;
                owner.fair(&case.lock).unlock().value().await;
            }
        }
        until_all_are_served(&alone, &mut cases, killed).await;
        let dearer: Vec<_> =
            cases.chunks(2).filter_map(|pair| dearer(&alone, &pair[0], &pair[1])).collect();
        assert!(dearer.is_empty(), "{dearer:?}");
    });
}

/// First in real time until all poll; then time advances in steps.
async fn until_all_are_served(fixture: &Moved, cases: &mut [Case], killed: Instant) {
    let polling = Instant::now() + WORKER_LEASE + ms(700);
    loop {
        let cost = killed.elapsed() + fixture.by.get();
        let mut waiting = 0;
        for case in cases.iter_mut().filter(|case| case.cost.is_none()) {
            if case.survivor.is_over() {
                case.cost = Some(cost);
            } else {
                waiting += 1;
            }
        }
        if waiting == 0 {
            return;
        }
        if cost > ALL_DEAD {
            let who = cases.iter().find(|case| case.cost.is_none()).expect("one waits");
            let lock = &who.lock;
            panic!("{lock} still waits: {:?}, {:?}", fixture.hold(lock), fixture.scores(lock));
        }
        if Instant::now() > polling {
            fixture.jump(if fixture.by.get() < SMALL_STEPS { STEP } else { LONG_STEP });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the place if ours cost more.
fn dearer(fixture: &Fixture, ours: &Case, java: &Case) -> Option<Place> {
    assert!(ours.ours && !java.ours && ours.place == java.place);
    let (place, cost) = (ours.place, |case: &Case| case.cost.expect("all are served"));
    let (ours, java) = (cost(ours), cost(java));
    measured(&format!(
        "Redisson {} alone, past the dead, {place:?}: ours {:.1} s, Java's {:.1} s",
        fixture.version(),
        ours.as_secs_f64(),
        java.as_secs_f64()
    ));
    let step = if java < SMALL_STEPS { STEP } else { LONG_STEP };
    (ours > java + 2 * step).then_some(place)
}
