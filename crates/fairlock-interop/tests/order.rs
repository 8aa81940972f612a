//! First in, first out across both sides, in the order of the list key.

use fairlock::{Client, Release, Turn};
use fairlock_interop::java::{Call, JavaClient, JavaLock};
use fairlock_interop::watch::is_java;

use fairlock_testkit::rng::first_seed;

use crate::fixture::{Fixture, measured, run, soon};

/// A waiter in the queue.
enum Waiter {
    Rust(Turn),
    Java(JavaLock, Call),
}

impl Waiter {
    async fn rust(client: &Client, lock: &str) -> (String, Self) {
        let turn = soon(client.fair_lock(lock).enqueue()).await.unwrap();
        (turn.owner().to_string(), Self::Rust(turn))
    }

    async fn java(client: &JavaClient, thread: usize, lock: &str) -> (String, Self) {
        let owner = client.owner(&format!("t{thread}")).await;
        let theirs = owner.fair(lock);
        let call = theirs.lock();
        (owner.id, Self::Java(theirs, call))
    }
}

/// Waiters arrive one by one in the given order (true: Java) while the lock is held, and are served
/// in that order; list, scores and hold are checked after each step.
async fn in_turn(fixture: &Fixture, order: &[bool], starts_with_java: bool) {
    let (rust, java) = (
        [fixture.rust().await, fixture.rust().await],
        [fixture.java().await, fixture.java().await],
    );
    let first = java[0].owner("first").await.fair("job");
    let guard = if starts_with_java {
        first.lock().value().await;
        None
    } else {
        Some(soon(rust[0].fair_lock("job").lock()).await.unwrap())
    };

    let (mut ids, mut waiters) = (Vec::new(), Vec::new());
    for (n, &by_java) in order.iter().enumerate() {
        let (id, waiter) = match by_java {
            true => Waiter::java(&java[n % 2], n, "job").await,
            false => Waiter::rust(&rust[n % 2], "job").await,
        };
        ids.push(id);
        waiters.push(waiter);
        fixture.queued("job", &ids).await;
        for (owner, ahead_ms) in fixture.scores("job") {
            // The head of ours has 30 s from its last heartbeat, the others minutes.
            assert!(ahead_ms > 27_000, "the score of {owner} ends in {ahead_ms} ms");
        }
    }
    assert!(ids.iter().zip(order).all(|(id, &by_java)| is_java(id) == by_java));

    match guard {
        Some(guard) => assert_eq!(guard.release().await.unwrap(), Release::Released),
        None => assert_eq!(first.unlock().value().await, "-"),
    }
    for (n, waiter) in waiters.into_iter().enumerate() {
        match waiter {
            Waiter::Rust(mut turn) => {
                let guard = soon(turn.wait()).await.unwrap();
                assert_eq!(fixture.hold("job"), Some((ids[n].clone(), 1)));
                fixture.queued("job", &ids[n + 1..]).await;
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
            Waiter::Java(lock, call) => {
                call.value().await;
                assert_eq!(fixture.hold("job"), Some((ids[n].clone(), 1)));
                fixture.queued("job", &ids[n + 1..]).await;
                assert_eq!(lock.hold_count().number().await, 1);
                lock.unlock().value().await;
            }
        }
    }
    fixture.nothing_left().await;
}

#[test]
fn four_and_four_in_turns() {
    run(|fixture| async move {
        let order = [false, true, false, true, true, false, true, false];
        in_turn(&fixture, &order, false).await;
        in_turn(&fixture, &order, true).await;
    });
}

#[test]
fn two_of_one_side_and_one_of_the_other() {
    run(|fixture| async move {
        for order in [[true, true], [false, false], [true, false], [false, true]] {
            in_turn(&fixture, &order, false).await;
            in_turn(&fixture, &order, true).await;
        }
    });
}

/// As many of each side, in an order, as the seed gives; the seed is printed on failure.
#[test]
fn random_mixtures_of_two_to_forty() {
    run(|fixture| async move {
        let seed = std::env::var("FAIRLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = first_seed(seed, false);
        measured(&format!("random mixtures from seed {seed}"));
        let mut state: u64 = seed;
        let mut random = move || {
            // PCG's multiplier; the high bits are the better ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for count in [2 + random() % 9, 11 + random() % 15, 26 + random() % 15] {
            let order: Vec<_> = (0..count).map(|_| random() % 2 == 0).collect();
            in_turn(&fixture, &order, random() % 2 == 0).await;
        }
    });
}

#[test]
fn twenty_and_twenty() {
    run(|fixture| async move {
        // Both sides in runs of every length from 1 to 4.
        let order: Vec<_> = [1, 2, 3, 4, 4, 3, 2, 1]
            .iter()
            .cycle()
            .scan(false, |by_java, &times| {
                *by_java = !*by_java;
                Some(std::iter::repeat_n(*by_java, times))
            })
            .flatten()
            .take(40)
            .collect();
        assert_eq!(order.iter().filter(|&&by_java| by_java).count(), 20);
        in_turn(&fixture, &order, true).await;
    });
}
