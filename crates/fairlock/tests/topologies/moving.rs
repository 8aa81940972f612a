//! Failovers in a row, and failovers that lose the tail of a queue.

use super::sentinel::{Scene, followed, three};
use super::{AGREED, connect, patient};
use crate::faults::fixture::{eventually, measured, ms, within};
use crate::support::in_real_time;
use fairlock::{ErrorKind, Guard, GuardState, Release, Replicas};
use fairlock_testkit::server::Generation;
use fairlock_testkit::tier::size;
use fairlock_testkit::topology::{SentinelSet, await_acknowledged};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Who is inside at present, and how often somebody entered.
#[derive(Default)]
struct Room {
    inside: Mutex<Vec<Arc<Guard>>>,
    last_token: Mutex<u64>,
    entered: AtomicUsize,
    refused: AtomicUsize,
}

impl Room {
    /// Nobody else inside may have a valid guard, and the token must be larger than all earlier
    /// ones.
    fn enter(&self, guard: &Arc<Guard>) {
        let mut inside = self.inside.lock().unwrap();
        for other in inside.iter() {
            assert_eq!(other.state(), GuardState::Lost, "two guards at once");
        }
        inside.push(Arc::clone(guard));
        let mut last = self.last_token.lock().unwrap();
        assert!(guard.token().get() > *last, "tokens rise");
        *last = guard.token().get();
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, guard: &Arc<Guard>) {
        self.inside.lock().unwrap().retain(|other| !Arc::ptr_eq(other, guard));
    }
}

/// F45 and F40: failovers are ordered one after another, under load. The old master is the last to
/// learn that it is no longer the master, and grants locks until then; since both replicas must
/// have a lock, none of those grants counts. So there are never two valid guards, and tokens rise.
/// READONLY, lost connections and refusals cost only time.
#[test]
fn f45_failovers_under_load_break_nothing_where_replicas_count() {
    in_real_time(|| async {
        let failovers = size(1, 3);
        const TASKS: usize = 6;
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let strict = || patient(&set.url()).replicas(Replicas::AtLeast(2));
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(connect(strict().replicas_timeout(ms(300)).heartbeat(ms(500))).await);
        }
        let (room, over) = (Arc::new(Room::default()), Arc::new(AtomicBool::new(false)));
        let mut tasks = Vec::new();
        for n in 0..TASKS {
            let lock = clients[n % clients.len()].fair_lock("job");
            let (room, over) = (Arc::clone(&room), Arc::clone(&over));
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = match lock.lock().await {
                        Ok(guard) => Arc::new(guard),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
                            room.refused.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                    };
                    room.enter(&guard);
                    // Some work that takes a moment.
                    tokio::time::sleep(ms(2)).await;
                    room.leave(&guard);
                    let guard = Arc::into_inner(guard).expect("nobody else looks at it now");
                    let release = guard.release().await.unwrap();
                    assert!(matches!(release, Release::Released | Release::Unknown), "{release:?}");
                }
            }));
        }
        let entered = || room.entered.load(Ordering::Relaxed);
        eventually("all are at work", AGREED, || entered() > 20);
        for n in 1..=failovers {
            let began = Instant::now();
            set.fail_over();
            set.await_whole();
            let before = entered();
            eventually("they go on", 2 * AGREED, || entered() > before + 20);
            measured(&format!("failover {n}: until they go on"), began.elapsed());
        }
        over.store(true, Ordering::Relaxed);
        for task in tasks {
            within("the end", 2 * AGREED, task).await.unwrap();
        }
        println!(
            "measured: {} acquisitions, {failovers} failovers, {} refused, 0 violations",
            entered(),
            room.refused.load(Ordering::Relaxed)
        );
    });
}

/// F41: the new master does not know some of the waiters, nor the last token. The waiters return
/// with their first heartbeat, behind those that it knows and in their order, although each
/// client's oldest waiter is still listed there; tokens rise.
#[test]
fn f41_the_tail_of_the_queue_is_lost() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let clients = three(&set.url()).await;
        let mut scene = Scene::begin(&clients, "job").await;
        let token = scene.guard.token().get();
        let old = set.master();
        await_acknowledged(&mut set.raw(old), 2);
        set.cut_replication();
        for n in [2, 1] {
            scene.turns.push(clients[n].fair_lock("job").enqueue().await.unwrap());
        }
        // A token of another lock that no replica received.
        let missed = clients[0].fair_lock("other").lock().await.unwrap();
        let last = missed.token();
        let ids: Vec<_> = scene.turns.iter().map(|turn| turn.owner().to_string()).collect();
        let began = Instant::now();
        set.kill_master();
        let queue = || {
            let mut master = set.raw(set.agreed_master()?);
            let list = master.try_call(&["LRANGE", "redisson_lock_queue:{job}", "0", "-1"]).ok()?;
            Some(list.array().iter().map(|owner| owner.text().to_owned()).collect::<Vec<_>>())
        };
        eventually("all stand where they stood", AGREED, || queue().as_ref() == Some(&ids));
        measured("the master killed to the queue whole again", began.elapsed());
        within("the loss", AGREED, missed.lost()).await;
        let again = within("the next", AGREED, clients[1].fair_lock("other").lock()).await;
        assert!(again.unwrap().token() > last, "tokens rise");
        followed(&set, &clients);
        assert_eq!(scene.guard.release().await.unwrap(), Release::Released);
        Scene::all_in_turn(scene.turns, token).await;
        assert!(began.elapsed() < Duration::from_secs(120), "no lease was waited for");
    });
}
