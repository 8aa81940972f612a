//! Processes are killed and stopped: dead ones delay nobody, stopped ones do not count as dead.

use super::{AT_ONCE, LONG, enter, run, take, take_over};
use crate::faults::fixture::measured;
use crate::faults::worker::Worker;
use crate::support::{SOON, granted, queue_is, until, wait_behind};
use std::time::{Duration, Instant};

#[test]
fn a_killed_holder_hands_on_at_once() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        for _ in 0..5 {
            let mut holder = [fixture.worker()];
            take(&mut holder[0], &lock).await;
            let next = wait_behind(&lock, 1).await;
            take_over("a killed holder", &mut holder, next).await;
        }
    });
}

#[test]
fn a_killed_holder_of_a_lock_without_a_queue_hands_on_at_once() {
    run(async |fixture| {
        let client = fixture.client().await;
        for kind in ["plain", "simple"] {
            let lock =
                if kind == "plain" { client.plain_lock(kind) } else { client.simple_lock(kind) };
            let mut holder = [fixture.worker()];
            holder[0].order(&format!("{kind} 0 {kind}"));
            holder[0].expect("granted 0", SOON);
            let own = lock.clone();
            let next = tokio::spawn(async move { own.lock().await });
            until("it listens", async || fixture.files(".base").len() == 1).await;
            take_over("a killed holder of a lock without a queue", &mut holder, next).await;
            until("nobody listens", async || fixture.files(".base").is_empty()).await;
        }
    });
}

/// Nobody waits, so nobody watches the holder: the next client discovers its death.
#[test]
fn a_lock_of_the_dead_is_free_for_who_comes() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut holder = fixture.worker();
        take(&mut holder, &lock).await;
        assert!(lock.try_lock().await.unwrap().is_none());
        holder.kill9();
        assert!(!lock.is_locked().await.unwrap(), "a look does not show it either");
        let _ = lock.try_lock().await.unwrap().unwrap().release().await.unwrap();
    });
}

/// The head of the queue, one in the middle, and three in a row.
#[test]
fn killed_waiters_delay_nobody_and_the_others_keep_their_order() {
    const DIE: [usize; 5] = [0, 2, 4, 5, 6];
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let guard = lock.lock().await.unwrap();
        let mut workers: Vec<_> = (0..9).map(|_| fixture.worker()).collect();
        for (at, worker) in workers.iter_mut().enumerate() {
            enter(worker, &lock, at + 1).await;
        }
        for at in DIE {
            workers[at].kill9();
        }
        let began = Instant::now();
        let _ = guard.release().await.unwrap();
        let mut last = 0;
        for at in (0..9).filter(|at| !DIE.contains(at)) {
            let line = workers[at].expect("granted 0", AT_ONCE);
            assert!(line.token() > last, "out of turn: {at}");
            last = line.token();
            workers[at].order("release 0");
        }
        measured("four turns past five dead waiters", began.elapsed());
        queue_is(&lock, 0).await;
    });
}

/// The middle one dies first: the one behind it must then watch the holder.
#[test]
fn the_line_of_watchers_closes_behind_the_dead() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let (mut holder, mut middle) = ([fixture.worker()], fixture.worker());
        take(&mut holder[0], &lock).await;
        enter(&mut middle, &lock, 1).await;
        let last = wait_behind(&lock, 2).await;
        middle.kill9();
        // The one behind removes it from the queue; no other client makes a call.
        queue_is(&lock, 1).await;
        take_over("a killed holder behind whom another one was killed", &mut holder, last).await;
    });
}

/// All but the last die at the same time.
#[test]
fn all_before_it_die_at_once() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut workers: Vec<_> = (0..6).map(|_| fixture.worker()).collect();
        take(&mut workers[0], &lock).await;
        for (place, worker) in workers.iter_mut().enumerate().skip(1) {
            enter(worker, &lock, place).await;
        }
        let last = wait_behind(&lock, 6).await;
        take_over("six killed before the last one", &mut workers, last).await;
    });
}

/// Killed after the hand-over in the file and before the next waiter's bell rang, as if that bell
/// could not be rung. The waiter watches the process that died, so it looks.
#[test]
fn a_releaser_killed_before_it_rings_costs_nothing() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut holder = [fixture.worker()];
        take(&mut holder[0], &lock).await;
        let next = wait_behind(&lock, 1).await;
        let bell = format!("locks-clients/{}.bell", client.id());
        std::fs::remove_file(fixture.dir.path().join(bell)).unwrap();
        holder[0].order("release 0");
        holder[0].expect("released 0 Released", SOON);
        let holds = lock.holder().await.unwrap().expect("handed on").owner;
        assert_eq!(holds.client(), Some(client.id()));
        assert!(!next.is_finished(), "who told it?");
        take_over("killed before it rang", &mut holder, next).await;
    });
}

#[test]
fn a_stopped_holder_is_not_dead() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut holder = fixture.worker();
        take(&mut holder, &lock).await;
        let next = wait_behind(&lock, 1).await;
        super::stop_between_writes(&holder, fixture).await;
        // Long after a death would have been noticed.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!next.is_finished(), "taken from one that lives");
        holder.cont();
        holder.order("release 0");
        let _ = granted(next).await.release().await.unwrap();
    });
}

/// A stopped head delays the others for as long as it has to confirm a grant, plus a heartbeat, and
/// then gets its place back.
#[test]
fn a_stopped_waiter_is_passed_over_and_comes_back() {
    const HEARTBEAT: Duration = Duration::from_millis(200);
    run(async |fixture| {
        let config = fairlock::Config::from_url(&fixture.url()).unwrap();
        let config = config.heartbeat(HEARTBEAT).watchdog_lease(LONG);
        let client = fairlock::Client::with_config(config).await.unwrap();
        let lock = client.fair_lock("job");
        let guard = lock.lock().await.unwrap();
        let mut head = Worker::with(&fixture.url(), HEARTBEAT, LONG, []);
        enter(&mut head, &lock, 1).await;
        let second = wait_behind(&lock, 2).await;
        let third = wait_behind(&lock, 3).await;
        super::stop_between_writes(&head, fixture).await;
        let began = Instant::now();
        let _ = guard.release().await.unwrap();
        let guard = granted(second).await;
        measured("past a stopped waiter, at a heartbeat of 200 ms", began.elapsed());
        assert!(began.elapsed() >= HEARTBEAT, "it had no time to confirm");
        head.cont();
        // It asks for its place with its next heartbeat.
        queue_is(&lock, 2).await;
        let _ = guard.release().await.unwrap();
        head.expect("granted 0", SOON);
        assert!(!third.is_finished(), "out of turn");
        head.order("release 0");
        let _ = granted(third).await.release().await.unwrap();
    });
}

/// When somebody clears the folder, only time is lost.
#[test]
fn a_holder_whose_file_was_removed_keeps_the_lock() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut holder = fixture.worker();
        take(&mut holder, &lock).await;
        let folder = fixture.dir.path().join("locks-clients");
        for name in fixture.files("") {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        assert!(lock.try_lock().await.unwrap().is_none());
        let next = wait_behind(&lock, 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!next.is_finished(), "taken from one that lives");
        drop(next);
    });
}

/// A detached hold outlives its process.
#[test]
fn a_detached_hold_outlives_its_process() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut holder = fixture.worker();
        take(&mut holder, &lock).await;
        holder.order("detach 0");
        holder.expect("detached 0", SOON);
        holder.kill9();
        assert!(lock.is_locked().await.unwrap());
        assert!(lock.try_lock().await.unwrap().is_none());
    });
}
