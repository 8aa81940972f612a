//! A waiter is woken by the release of the other side, not by a timeout.

use std::time::Duration;

use fairlock::Release;
use fairlock_interop::java::Kind;
use fairlock_interop::watch::{Watch, hand_overs, is_java};
use fairlock_testkit::history::now_ns;

use crate::fixture::{Fixture, measured, run, settled, soon, until};

const WITHIN: Duration = Duration::from_millis(50);
/// A lost wake-up takes at least this long: only a heartbeat or the end of a lease recovers it.
const LOST: Duration = Duration::from_secs(1);
const ROUNDS: usize = 20;

/// Times from the release, by the server's clock, to the return of the waiting call.
#[derive(Default)]
struct WakeUps {
    to_java: Vec<Duration>,
    to_rust: Vec<Duration>,
}

/// One of ours and one of theirs hand the lock back and forth, so that each release wakes the
/// other.
async fn to_and_fro(fixture: &Fixture, kind: Kind) -> WakeUps {
    let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
    let ours = if kind == Kind::Fair { rust.fair_lock("job") } else { rust.plain_lock("job") };
    let theirs = java.lock(kind, "job");
    let watch = Watch::start(fixture.server.addr());
    let (mut to_java, mut to_rust) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let guard = soon(ours.lock()).await.unwrap();
        let call = theirs.lock();
        // Java is waiting once it has subscribed and asked again: see its script calls.
        let channel = match kind {
            Kind::Fair => format!("redisson_lock__channel:{{job}}:{}", java.id),
            _ => "redisson_lock__channel:{job}".to_owned(),
        };
        until("Java listens", || fixture.listeners(&channel) > 0).await;
        settled(fixture).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        to_java.push(call.answer().await.ended_ns);

        let waiting = tokio::spawn({
            let ours = ours.clone();
            async move {
                let guard = ours.lock().await.unwrap();
                (now_ns(), guard)
            }
        });
        if kind == Kind::Fair {
            until("ours waits", || !fixture.queue("job").is_empty()).await;
        }
        settled(fixture).await;
        theirs.unlock().value().await;
        let (at_ns, guard) = soon(waiting).await.unwrap();
        to_rust.push(at_ns);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    let steps = watch.story("job", &watch.take());
    // Every second release has no waiter; ours takes the lock from there.
    let freed = |to_java: bool| {
        let steps = hand_overs(&steps).into_iter();
        let steps = steps
            .filter(move |step| is_java(&step.to) == to_java && is_java(&step.from) != to_java);
        steps.map(|step| step.freed_ns).collect::<Vec<_>>()
    };
    let took = |ends: Vec<u64>, freed: Vec<u64>| {
        assert_eq!(ends.len(), freed.len(), "a hand-over each");
        let took = ends.iter().zip(freed);
        took.map(|(end, freed)| Duration::from_nanos(end.saturating_sub(freed))).collect()
    };
    WakeUps { to_java: took(to_java, freed(true)), to_rust: took(to_rust, freed(false)) }
}

/// Returns whether nine of ten were in time and none was lost, and prints the result.
fn in_time(what: &str, took: &[Duration]) -> bool {
    let late = took.iter().filter(|&&took| took > WITHIN).count();
    let worst = took.iter().max().expect("there are some");
    measured(&format!(
        "{what}: {} of {} within {WITHIN:?}, worst {worst:?}",
        took.len() - late,
        took.len()
    ));
    late * 10 <= took.len() && *worst < LOST
}

fn both_ways(kind: Kind) {
    run(|fixture| async move {
        // A busy machine may be late now and then; a lost wake-up is late each time, and by
        // seconds.
        for _ in 0..5 {
            let wake_ups = to_and_fro(&fixture, kind).await;
            let what = format!("Redisson {}, {kind:?}", fixture.version());
            let to_java = in_time(&format!("{what}, Rust to Java"), &wake_ups.to_java);
            let to_rust = in_time(&format!("{what}, Java to Rust"), &wake_ups.to_rust);
            if to_java && to_rust {
                fixture.nothing_left().await;
                return;
            }
        }
        panic!("not once were nine of ten wake-ups of {ROUNDS} rounds within {WITHIN:?}");
    });
}

#[test]
fn of_fair_locks() {
    both_ways(Kind::Fair);
}

#[test]
fn of_plain_locks() {
    both_ways(Kind::Plain);
}
