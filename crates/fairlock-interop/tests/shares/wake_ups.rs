use std::time::Duration;

use fairlock::{Guard, Release, RwLock};
use fairlock_testkit::history::now_ns;

use super::Theirs;
use crate::fixture::{measured, run, settled, soon};

const WITHIN: Duration = Duration::from_millis(50);
/// A lost wake-up takes at least a quarter of a heartbeat.
const LOST: Duration = Duration::from_millis(350);
const ROUNDS: usize = 8;

async fn take(ours: &RwLock, writes: bool) -> Guard {
    if writes {
        ours.write().await.unwrap().into_guard()
    } else {
        ours.read().await.unwrap().into_guard()
    }
}

/// Whether nine of ten were in time and none was lost, and prints the result.
fn in_time(what: &str, took: &[Duration]) -> bool {
    let late = took.iter().filter(|took| **took > WITHIN).count();
    let worst = took.iter().max().expect("there are some");
    measured(&format!(
        "{what}: {} of {} within {WITHIN:?}, worst {worst:?}",
        took.len() - late,
        took.len()
    ));
    late * 10 <= took.len() && *worst < LOST
}

/// One side holds, and two of the other wait; each is woken by the end of the hold, not by a look. A
/// writer keeps out both kinds, and a reader writers only.
fn both_ways(held_writes: bool, waits_writes: bool) {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        let half = |writes: bool| if writes { &theirs.writes } else { &theirs.reads };
        let word = |writes: bool| if writes { "writer" } else { "reader" };
        let what = format!("a {} behind a {}", word(waits_writes), word(held_writes));
        // A busy machine may be late now and then; a lost wake-up is late each time.
        for _ in 0..5 {
            let (mut to_java, mut to_rust) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let guard = soon(take(&ours, held_writes)).await;
                let call = half(waits_writes).lock();
                fixture.waiting("job", 1).await;
                settled(&fixture).await;
                let released_ns = now_ns();
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                let ended_ns = call.answer().await.ended_ns;
                to_java.push(Duration::from_nanos(ended_ns - released_ns));
                half(waits_writes).unlock().value().await;
                fixture.waiting("job", 0).await;

                half(held_writes).lock().value().await;
                let waiting = tokio::spawn({
                    let ours = ours.clone();
                    async move {
                        let guard = take(&ours, waits_writes).await;
                        (now_ns(), guard)
                    }
                });
                fixture.waiting("job", 1).await;
                settled(&fixture).await;
                let unlocked_ns = half(held_writes).unlock().answer().await.began_ns;
                let (ended_ns, guard) = soon(waiting).await.unwrap();
                to_rust.push(Duration::from_nanos(ended_ns - unlocked_ns));
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                fixture.waiting("job", 0).await;
            }
            let what = format!("Redisson {}, {what}", fixture.version());
            let to_java = in_time(&format!("{what}, Rust to Java"), &to_java);
            let to_rust = in_time(&format!("{what}, Java to Rust"), &to_rust);
            if to_java && to_rust {
                fixture.nothing_left().await;
                return;
            }
        }
        panic!("not once were nine of ten wake-ups of {ROUNDS} rounds within {WITHIN:?}");
    });
}

#[test]
fn of_readers_behind_a_writer() {
    both_ways(true, false);
}

#[test]
fn of_writers_behind_a_writer() {
    both_ways(true, true);
}

#[test]
fn of_writers_behind_a_reader() {
    both_ways(false, true);
}

/// Readers of both sides that wait for a writer come in together, whichever side writes; and those
/// that wait while a writer of ours reads on, which Java tells nobody of its own.
#[test]
fn of_readers_that_come_in_together() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let ours = rust.rw_lock("job");
        let mut theirs = Vec::new();
        for n in 0..3 {
            theirs.push(Theirs::new(&java.owner(&format!("t{n}")).await, "job"));
        }
        let writer = Theirs::new(&fixture.java_owner().await, "job");
        for how in ["Java's unlock", "our release", "our downgrade"] {
            let ours_writes = (how != "Java's unlock").then(|| ours.write());
            let guard = match ours_writes {
                Some(write) => Some(soon(write).await.unwrap()),
                None => {
                    writer.writes.lock().value().await;
                    None
                }
            };
            let calls: Vec<_> = theirs.iter().map(|theirs| theirs.reads.lock()).collect();
            let reading: Vec<_> = (0..3)
                .map(|_| {
                    let ours = ours.clone();
                    tokio::spawn(async move { ours.read().await.unwrap() })
                })
                .collect();
            // Ours listen only while Java is in their way.
            fixture.waiting("job", if guard.is_none() { 2 } else { 1 }).await;
            settled(&fixture).await;
            let mut reads_on = None;
            match (guard, how) {
                (Some(guard), "our downgrade") => reads_on = Some(guard.downgrade().await.unwrap()),
                (Some(guard), _) => {
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
                (None, _) => {
                    writer.writes.unlock().value().await;
                }
            }
            for call in calls {
                call.value().await;
            }
            let mut guards = Vec::new();
            for reading in reading {
                guards.push(soon(reading).await.unwrap());
            }
            assert_eq!(fixture.holds("job").len(), 6 + usize::from(reads_on.is_some()), "{how}");
            for theirs in &theirs {
                theirs.reads.unlock().value().await;
            }
            for guard in guards.into_iter().chain(reads_on) {
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
        }
        fixture.nothing_left().await;
    });
}
