//! Read-write locks and semaphores on replicas, and in slots that move.

use super::{AGREED, connect, patient};
use crate::faults::fixture::{eventually, measured, within};
use crate::support::in_real_time;
use fairlock::{Client, Guard, GuardState, Release, Replicas, Share};
use fairlock_testkit::server::Generation;
use fairlock_testkit::topology::{Cluster, Replicated, slot};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const LIMIT: u32 = 3;

async fn takes(client: &Client, name: &str, share: Share) -> Result<Guard, fairlock::Error> {
    match share {
        Share::Read => Ok(client.rw_lock(name).read().await?.into_guard()),
        Share::Permits { n, limit } => {
            Ok(client.semaphore(name, limit).acquire_many(n).await?.into_guard())
        }
        _ => Ok(client.rw_lock(name).write().await?.into_guard()),
    }
}

/// A task that is in the line when this returns.
async fn waits(client: &Client, name: &str, share: Share) -> JoinHandle<Guard> {
    let look = || {
        let (lock, pool) = (client.rw_lock(name), client.semaphore(name, LIMIT));
        async move {
            match share {
                Share::Permits { .. } => pool.inspect().await.unwrap().queue_len,
                _ => lock.inspect().await.unwrap().queue_len,
            }
        }
    };
    let before = look().await;
    let task = tokio::spawn({
        let (client, name) = (client.clone(), name.to_owned());
        async move { takes(&client, &name, share).await.unwrap() }
    });
    let began = Instant::now();
    while look().await == before {
        assert!(began.elapsed() < AGREED, "it stands in line");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    task
}

/// Nobody gets a share that the replica does not have, alone or with others by one message, and no release is complete
/// while the replica still has the hold.
#[test]
fn shares_come_and_go_with_the_replica() {
    in_real_time(|| async {
        for generation in Generation::few() {
            let Some(set) = Replicated::start(generation, 1) else { continue };
            let strict = || {
                patient(&set.primary().url())
                    .replicas(Replicas::AtLeast(1))
                    .replicas_timeout(AGREED)
                    .watchdog_lease(4 * AGREED)
                    .response_timeout(AGREED)
            };
            let (first, second) = (connect(strict()).await, connect(strict()).await);
            let permits = |n| Share::Permits { n, limit: LIMIT };
            for (name, all, one) in
                [("rw", Share::Whole, Share::Read), ("sem", permits(LIMIT), permits(1))]
            {
                let replica = set.replica(0);
                let held = || replica.client().call(&["HLEN", name]).int();
                replica.stop();
                let asked = tokio::spawn({
                    let first = first.clone();
                    async move { takes(&first, name, all).await.unwrap() }
                });
                eventually("the primary has it", AGREED, || {
                    set.raw().call(&["EXISTS", name]).int() == 1
                });
                assert!(!asked.is_finished(), "{generation:?}: not without the replica");
                replica.cont();
                let guard = within("the lock", AGREED, asked).await.unwrap();
                assert_eq!(held(), 2, "{generation:?}: a mode and one holder");

                let others = [waits(&second, name, one).await, waits(&second, name, one).await];
                replica.stop();
                let released = tokio::spawn(guard.release());
                eventually("the primary has handed it on", AGREED, || {
                    set.raw().call(&["HLEN", name]).int() == 3
                });
                assert!(!released.is_finished() && !others.iter().any(JoinHandle::is_finished));
                replica.cont();
                let released = within("the release", AGREED, released).await.unwrap().unwrap();
                assert_eq!(released, Release::Released, "{generation:?} {name}");
                for other in others {
                    let guard = within("the hand-over", AGREED, other).await.unwrap();
                    assert!(held() >= 2, "{generation:?} {name}: the replica has this hold");
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
                assert_eq!(held(), 0, "{generation:?} {name}: the replica has the releases");
            }
        }
    });
}

/// A slot on its way: shares stay held; who waits gets its own when the move is over, all readers with it; and a release
/// during the move succeeds.
#[test]
fn f48_shares_in_a_slot_on_its_way() {
    in_real_time(|| async {
        for generation in Generation::few() {
            let Some(cluster) = Cluster::start(generation) else { continue };
            let (one, two) =
                (connect(patient(&cluster.url())).await, connect(patient(&cluster.url())).await);
            let permits = |n| Share::Permits { n, limit: LIMIT };
            for (name, all, some) in
                [("rw", Share::Whole, Share::Read), ("sem", permits(LIMIT), permits(1))]
            {
                let slot = slot(name.as_bytes());
                let guard = takes(&one, name, all).await.unwrap();
                let waiters = [waits(&two, name, some).await, waits(&two, name, some).await];
                let last = waits(&one, name, all).await;
                let to = (cluster.master_of(slot).unwrap() + 1) % 3;
                cluster.begin_move(slot, to);
                let token = guard.token();
                let release = tokio::spawn(guard.release());
                // This test is about time: copies of the release meet the slot on its way.
                tokio::time::sleep(Duration::from_millis(300)).await;
                tokio::task::block_in_place(|| cluster.end_move(slot, to));
                let began = Instant::now();
                let released = within("the release", AGREED, release).await.unwrap().unwrap();
                assert_eq!(released, Release::Released, "{generation:?} {name}");
                let mut guards = Vec::new();
                for waiter in waiters {
                    guards.push(within("the turn", AGREED, waiter).await.unwrap());
                }
                measured(&format!("{generation:?} {name}: moved to granted"), began.elapsed());
                assert!(guards.iter().all(|it| it.token() > token), "{generation:?} {name}");
                assert!(!last.is_finished(), "{generation:?} {name}");
                for guard in guards {
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
                drop(within("the last turn", AGREED, last).await.unwrap());
            }
        }
    });
}

/// Who holds which share of the two locks. A guard that is not Lost counts.
#[derive(Default)]
struct Room {
    inside: Mutex<Vec<(Arc<Guard>, Share)>>,
    turns: AtomicU64,
}

impl Room {
    fn enter(&self, guard: &Arc<Guard>, share: Share) {
        let mut inside = self.inside.lock().unwrap();
        inside.push((Arc::clone(guard), share));
        let valid = || {
            let here = inside.iter().filter(|(guard, _)| guard.state() != GuardState::Lost);
            here.map(|(_, share)| *share)
        };
        let count = |wanted: Share| valid().filter(|share| *share == wanted).count();
        let (writers, readers) = (count(Share::Whole), count(Share::Read));
        assert!(writers == 0 || writers + readers == 1, "{writers} writers, {readers} readers");
        let permits = valid().map(|share| match share {
            Share::Permits { n, .. } => n,
            _ => 0,
        });
        assert!(permits.sum::<u32>() <= LIMIT);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, guard: &Arc<Guard>) {
        self.inside.lock().unwrap().retain(|(other, _)| !Arc::ptr_eq(other, guard));
    }
}

/// B15, F48: a script that is broken off where a slot moves leaves half of what it does. Readers, writers and permits take
/// turns while their slot goes back and forth; in the end no permit has gone astray.
#[test]
fn b15_no_permit_is_lost_where_a_slot_moves() {
    in_real_time(|| async {
        const MOVES: usize = 10;
        for generation in Generation::few() {
            let Some(cluster) = Cluster::start(generation) else { continue };
            let (rw, sem) = ("{hot}rw", "{hot}sem");
            let slot = slot(rw.as_bytes());
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(connect(patient(&cluster.url())).await);
            }
            let (room, over) = (Arc::new(Room::default()), Arc::new(AtomicBool::new(false)));
            let mut tasks = Vec::new();
            for number in 0..18_usize {
                let client = clients[number % clients.len()].clone();
                let (name, share) = match number % 6 {
                    0 => (rw, Share::Whole),
                    1 | 2 => (rw, Share::Read),
                    3 => (sem, Share::Permits { n: 2, limit: LIMIT }),
                    _ => (sem, Share::Permits { n: 1, limit: LIMIT }),
                };
                let (room, over) = (Arc::clone(&room), Arc::clone(&over));
                tasks.push(tokio::spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        let guard = Arc::new(takes(&client, name, share).await.unwrap());
                        room.enter(&guard, share);
                        tokio::time::sleep(Duration::from_micros(200)).await;
                        room.leave(&guard);
                        let guard = Arc::into_inner(guard).expect("nobody else looks at it now");
                        let release = guard.release().await.unwrap();
                        assert_eq!(release, Release::Released, "{generation:?} {share:?}");
                    }
                }));
            }
            let turns = || room.turns.load(Ordering::Relaxed);
            eventually("turns are taken", AGREED, || turns() > 100);
            let first = cluster.master_of(slot).unwrap();
            let mut longest = Duration::ZERO;
            for number in 0..MOVES {
                let to = if number % 2 == 0 { (first + 1) % 3 } else { first };
                let began = Instant::now();
                let before = turns();
                tokio::task::block_in_place(|| {
                    cluster.move_slot(slot, to);
                    eventually("turns are taken there", AGREED, || turns() > before + 30);
                });
                longest = longest.max(began.elapsed());
            }
            over.store(true, Ordering::Relaxed);
            for task in tasks {
                within("its last turn", AGREED, task).await.unwrap();
            }
            measured(&format!("{generation:?}: the longest, until turns go on"), longest);
            println!("measured: {generation:?}: {} turns", turns());
            let usage = clients[0].semaphore(sem, LIMIT).usage().await.unwrap();
            assert_eq!((usage.used, usage.waiting), (0, 0), "{generation:?}");
            drop(clients[1].semaphore(sem, LIMIT).try_acquire_many(LIMIT).await.unwrap().unwrap());
            drop(clients[1].rw_lock(rw).try_write().await.unwrap().unwrap());
        }
    });
}
