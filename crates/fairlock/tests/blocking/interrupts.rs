//! Waits that another thread interrupts.

use std::time::{Duration, Instant};

use super::threads::on_stores;
use fairlock::ErrorKind;
use fairlock::blocking::{Client, Interrupt, Lock};

/// The most that an interrupt may take: a thread wakes up and sends a message. It takes about 1 ms,
/// and was seen to take 240 ms beside the cancellation driver; the heartbeats are a minute apart.
const AT_ONCE: Duration = Duration::from_secs(3);

fn queue_is(lock: &Lock, count: usize) -> Duration {
    let began = Instant::now();
    while lock.inspect().unwrap().queue_len != count {
        assert!(began.elapsed() < Duration::from_secs(10), "the queue is not {count} long");
        std::thread::sleep(Duration::from_micros(200));
    }
    began.elapsed()
}

#[test]
fn a_blocked_wait_ends_at_once_and_leaves_the_queue() {
    on_stores(|client, server| {
        let lock = client.fair_lock("job");
        let guard = lock.lock().unwrap();
        let (mut slowest, mut left) = (Duration::ZERO, Duration::ZERO);
        for round in 0..50 {
            let interrupt = Interrupt::new();
            let waiting = std::thread::spawn({
                let lock = lock.clone().interruptible(&interrupt);
                move || {
                    let result = if round % 2 == 0 {
                        lock.lock().map(Some)
                    } else {
                        lock.try_lock_for(Duration::from_secs(60))
                    };
                    (result.unwrap_err(), Instant::now())
                }
            });
            queue_is(&lock, 1);
            let began = Instant::now();
            interrupt.clone().interrupt();
            left = left.max(queue_is(&lock, 0));
            let (error, ended) = waiting.join().unwrap();
            slowest = slowest.max(ended.duration_since(began));
            assert_eq!(error.kind(), ErrorKind::Interrupted);
            let text = error.to_string();
            let named = error.owner().is_some() && text.contains("job");
            assert!(named && text.contains("interrupted"), "{text}");
        }
        println!(
            "{}: the thread went on within {slowest:?}, out of the queue within {left:?}",
            if server.is_some() { "redis" } else { "memory" }
        );
        assert!(slowest < AT_ONCE && left < AT_ONCE, "{slowest:?}, {left:?}");
        let _ = guard.release().unwrap();
        // No waiter is left that could have received the lock.
        assert!(!lock.is_locked().unwrap());
    });
}

/// Waits that share one switch end together; others keep waiting.
#[test]
fn others_keep_their_places() {
    on_stores(|client, _| {
        let lock = client.fair_lock("job");
        let guard = lock.lock().unwrap();
        let interrupt = Interrupt::new();
        let mut ended = Vec::new();
        let mut served = Vec::new();
        for place in 0..10 {
            let lock = lock.clone();
            if place % 2 == 0 {
                let lock = lock.interruptible(&interrupt);
                ended.push(std::thread::spawn(move || lock.lock().map(drop)));
            } else {
                served.push(std::thread::spawn(move || {
                    let guard = lock.lock().unwrap();
                    guard.token()
                }));
            }
            queue_is(&client.fair_lock("job"), place + 1);
        }
        interrupt.interrupt();
        for thread in ended {
            assert_eq!(thread.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
        }
        queue_is(&lock, 5);
        drop(guard);
        let tokens: Vec<_> = served.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
    });
}

#[test]
fn one_that_comes_before_the_wait_ends_it_until_it_is_cleared() {
    on_stores(|client, _| {
        let interrupt = Interrupt::new();
        let lock = client.fair_lock("job").interruptible(&interrupt);
        interrupt.interrupt();
        assert!(interrupt.is_interrupted());
        for _ in 0..2 {
            // Also for a free lock, and without a trace in the store.
            assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Interrupted);
            assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Interrupted);
            let timed = lock.try_lock_for(Duration::from_secs(5));
            assert_eq!(timed.unwrap_err().kind(), ErrorKind::Interrupted);
        }
        assert!(lock.inspect().unwrap().token.is_none());
        assert!(interrupt.clear());
        assert!(!interrupt.clear() && !interrupt.is_interrupted());
        let guard = lock.lock().unwrap();
        // Existing holds are not affected.
        interrupt.interrupt();
        guard.ensure_valid().unwrap();
        let again = guard.reenter().unwrap();
        drop(again);
        let _ = guard.release().unwrap();
        assert!(!lock.is_locked().unwrap());
    });
}

#[test]
fn a_turn_keeps_its_place() {
    on_stores(|client, _| {
        let lock = client.fair_lock("job");
        let guard = lock.lock().unwrap();
        std::thread::scope(|scope| {
            let interrupt = Interrupt::new();
            let (placed, is_placed) = std::sync::mpsc::channel();
            let own = client.fair_lock("job").interruptible(&interrupt);
            let switch = interrupt.clone();
            let thread = scope.spawn(move || {
                let mut turn = own.enqueue().unwrap();
                assert!(turn.wait_for(Duration::from_millis(5)).unwrap().is_none());
                assert_eq!(turn.position().unwrap(), 0);
                placed.send(()).unwrap();
                assert_eq!(turn.wait().unwrap_err().kind(), ErrorKind::Interrupted);
                let timed = turn.wait_for(Duration::from_secs(60));
                assert_eq!(timed.unwrap_err().kind(), ErrorKind::Interrupted);
                assert_eq!(own.enqueue().unwrap_err().kind(), ErrorKind::Interrupted);
                assert_eq!(turn.position().unwrap(), 0);
                assert!(switch.clear());
                placed.send(()).unwrap();
                assert_eq!(turn.wait().unwrap().owner(), turn.owner());
                turn.leave().unwrap();
            });
            is_placed.recv().unwrap();
            interrupt.interrupt();
            is_placed.recv().unwrap();
            assert_eq!(lock.inspect().unwrap().queue_len, 1);
            drop(guard);
            thread.join().unwrap();
        });
        lock.enqueue().unwrap().leave().unwrap();
        assert!(!lock.is_locked().unwrap());
    });
}

/// Whichever wins, grant or interrupt: the lock is free in the end, and nobody waits.
#[test]
fn it_races_with_the_grant() {
    on_stores(|client: &Client, _| {
        let lock = client.fair_lock("job");
        let (mut granted, mut interrupted) = (0, 0);
        for round in 0..200_u64 {
            let guard = lock.lock().unwrap();
            let interrupt = Interrupt::new();
            let waiting = std::thread::spawn({
                let lock = lock.clone().interruptible(&interrupt);
                move || lock.lock().map(drop)
            });
            queue_is(&lock, 1);
            drop(guard);
            std::thread::sleep(Duration::from_micros(round % 20 * 15));
            interrupt.interrupt();
            match waiting.join().unwrap() {
                Ok(()) => granted += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Interrupted);
                    interrupted += 1;
                }
            }
        }
        let last = lock.try_lock_for(Duration::from_secs(10)).unwrap();
        let _ = last.expect("nothing is left behind").release().unwrap();
        println!("{granted} granted, {interrupted} interrupted");
        assert_eq!(granted + interrupted, 200);
    });
}
