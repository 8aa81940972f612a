//! Read-write locks and semaphores on more than one server: failovers, slots that move, replicas.

use super::{AGREED, connect, patient};
use crate::faults::fixture::{eventually, measured, ms, within};
use crate::support::in_real_time;
use crate::topologies::sentinel::{followed, three, until_state};
use fairlock::{Client, ErrorKind, Guard, GuardState, Release, Replicas, Turn};
use fairlock_testkit::server::Generation;
use fairlock_testkit::tier::size;
use fairlock_testkit::topology::{Cluster, Replicated, SentinelSet, await_acknowledged, slot};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Two readers of two clients, a writer behind them, and a reader behind that.
struct Scene {
    reads: Vec<Guard>,
    writer: Turn,
    behind: Turn,
}

impl Scene {
    async fn begin(clients: &[Client], name: &str) -> Self {
        let mut reads = Vec::new();
        for client in &clients[..2] {
            reads.push(client.rw_lock(name).read().await.unwrap().into_guard());
        }
        let writer = clients[0].rw_lock(name).enqueue_write().await.unwrap();
        let behind = clients[1].rw_lock(name).enqueue_read().await.unwrap();
        Self { reads, writer, behind }
    }

    /// The readers still hold, and release; then all get their turns, with rising tokens.
    async fn ends(self) {
        let Self { reads, mut writer, mut behind } = self;
        let mut token = reads[0].token();
        for read in reads {
            let release = within("the release", AGREED, read.release()).await.unwrap();
            assert_eq!(release, Release::Released);
        }
        for turn in [&mut writer, &mut behind] {
            let guard = within("the turn", AGREED, turn.wait()).await.unwrap();
            assert!(guard.token() > token, "tokens rise");
            token = guard.token();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }
}

/// F45: failovers in which the replicas have everything, ordered and after the master's death: all readers stay valid,
/// the line stands as it stood, and permits in use are counted as before. F40: what the new master never received
/// is lost: its readers are told, and a writer is let in only then.
#[test]
fn f40_f45_failovers_with_readers() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let clients = three(&set.url()).await;
        for &how in size(&["ordered"][..], &["ordered", "master killed"]) {
            let scene = Scene::begin(&clients, "c").await;
            let permits = clients[2].semaphore("s", 3).acquire_many(2).await.unwrap();
            let master = set.master();
            await_acknowledged(&mut set.raw(master), 2);
            let began = Instant::now();
            match how {
                "ordered" => set.fail_over(),
                _ => set.kill_master(),
            };
            followed(&set, &clients);
            measured(&format!("{how}: until all have followed"), began.elapsed());
            for read in &scene.reads {
                until_state(read, GuardState::Held).await;
            }
            let pool = clients[0].semaphore("s", 3);
            assert!(
                pool.try_acquire_many(2).await.unwrap().is_none(),
                "{how}: two of three are used"
            );
            assert!(pool.try_acquire().await.unwrap().is_some(), "{how}");
            assert_eq!(permits.release().await.unwrap(), Release::Released, "{how}");
            scene.ends().await;
            if how == "master killed" {
                set.data()[master].restart();
                set.await_whole();
            }
        }

        let master = set.master();
        await_acknowledged(&mut set.raw(master), 2);
        set.cut_replication();
        let missed = [
            clients[0].rw_lock("missed").read().await.unwrap(),
            clients[1].rw_lock("missed").read().await.unwrap(),
        ];
        let token = missed[0].token();
        let mut writer = clients[2].rw_lock("missed").enqueue_write().await.unwrap();
        set.kill_master();
        let writes = within("the writer", 2 * AGREED, writer.wait()).await.unwrap();
        for read in &missed {
            assert_eq!(read.state(), GuardState::Lost, "before the writer is let in");
        }
        assert!(writes.token() > token, "tokens rise");
        assert_eq!(writes.release().await.unwrap(), Release::Released);
    });
}

/// F48: a slot on its way, with readers, a writer and permits: they stay held, and are released; who waits gets its
/// turn when the move is over. Nobody is let in beside a reader meanwhile.
#[test]
fn f48_a_lock_that_is_read_in_a_slot_on_its_way() {
    in_real_time(|| async {
        for generation in Generation::few() {
            let Some(cluster) = Cluster::start(generation) else { continue };
            let clients =
                [connect(patient(&cluster.url())).await, connect(patient(&cluster.url())).await];
            let name = "c";
            let slot = slot(name.as_bytes());
            let Scene { mut reads, mut writer, mut behind } = Scene::begin(&clients, name).await;
            let to = (cluster.master_of(slot).unwrap() + 1) % 3;
            cluster.begin_move(slot, to);
            let token = reads[0].token();
            // In the background: the replies come when the move is over.
            let first = tokio::spawn(reads.remove(0).release());
            let brief = clients[1].rw_lock(name).try_write_for(ms(300)).await;
            assert!(!matches!(brief, Ok(Some(_))), "{generation:?}: beside a reader");
            reads[0].ensure_valid().unwrap();
            tokio::task::block_in_place(|| cluster.end_move(slot, to));
            let released = within("the release", AGREED, first).await.unwrap().unwrap();
            assert_eq!(released, Release::Released, "{generation:?}");
            until_state(&reads[0], GuardState::Held).await;
            let last = reads.remove(0);
            assert_eq!(last.release().await.unwrap(), Release::Released, "{generation:?}");
            let writes = within("the writer", AGREED, writer.wait()).await.unwrap();
            assert!(writes.token() > token, "{generation:?}");
            assert_eq!(writes.release().await.unwrap(), Release::Released);
            let read = within("the reader", AGREED, behind.wait()).await.unwrap();
            assert_eq!(read.release().await.unwrap(), Release::Released);
        }
    });
}

/// F48: readers, writers and holders of permits take turns while their slot moves to another node and back, ten times.
/// A writer is alone, and permits in use are at most the limit.
#[test]
fn f48_a_hot_slot_of_readers_and_writers_moves() {
    in_real_time(|| async {
        const MOVES: usize = 10;
        /// What one writer counts for.
        const WHOLE: i64 = 1_000;
        const LIMIT: u32 = 3;
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        // One slot for both.
        let (lock, pool) = ("{hot}c", "{hot}s");
        let slot = slot(b"hot");
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(connect(patient(&cluster.url())).await);
        }
        let (inside, used) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for n in 0..18_u32 {
            let client = clients[n as usize % 3].clone();
            let (inside, used) = (Arc::clone(&inside), Arc::clone(&used));
            let (over, turns) = (Arc::clone(&over), Arc::clone(&turns));
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let (guard, counter, weight, most) = match n / 3 {
                        0 => {
                            let guard = client.rw_lock(lock).write().await.unwrap().into_guard();
                            (guard, &inside, WHOLE, WHOLE)
                        }
                        1..4 => {
                            let guard = client.rw_lock(lock).read().await.unwrap().into_guard();
                            (guard, &inside, 1, WHOLE - 1)
                        }
                        _ => {
                            let wants = 1 + n % 2;
                            let guard = client.semaphore(pool, LIMIT).acquire_many(wants).await;
                            (guard.unwrap().into_guard(), &used, i64::from(wants), i64::from(LIMIT))
                        }
                    };
                    let now = counter.fetch_add(weight, Ordering::SeqCst) + weight;
                    assert!(now <= most, "{now} of {most}");
                    tokio::time::sleep(Duration::from_micros(200)).await;
                    guard.ensure_valid().unwrap();
                    counter.fetch_sub(weight, Ordering::SeqCst);
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let enough = |at_least: u64| {
            eventually("turns are taken", AGREED, || turns.load(Ordering::Relaxed) >= at_least);
        };
        tokio::task::block_in_place(|| enough(100));
        let first = cluster.master_of(slot).unwrap();
        let began = Instant::now();
        for number in 0..MOVES {
            let to = if number % 2 == 0 { (first + 1) % 3 } else { first };
            tokio::task::block_in_place(|| {
                cluster.move_slot(slot, to);
                enough(turns.load(Ordering::Relaxed) + 20);
            });
        }
        measured(&format!("{MOVES} moves"), began.elapsed());
        over.store(true, Ordering::Relaxed);
        for task in tasks {
            within("its last turn", AGREED, task).await.unwrap();
        }
    });
}

/// F42: with `replicas`, nobody reads, writes or has a permit before a replica has it. Without one nothing is acquired,
/// nothing is left, and others are not let in by mistake.
#[test]
fn f42_shares_wait_for_replicas() {
    in_real_time(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let url = set.primary().url();
        let strict =
            |timeout| patient(&url).replicas(Replicas::AtLeast(1)).replicas_timeout(timeout);
        let waits = connect(strict(AGREED)).await;
        let brief = connect(strict(ms(500))).await;
        let written = waits.rw_lock("c").write().await.unwrap();
        let mut turns = Vec::new();
        for _ in 0..3 {
            turns.push(waits.rw_lock("c").enqueue_read().await.unwrap());
        }
        set.replica(0).stop();
        let released = tokio::spawn(written.release());
        let count = || set.raw().call(&["HLEN", "c"]).int();
        eventually("the primary has let them in", AGREED, || count() == 4);
        for turn in &mut turns {
            assert!(!released.is_finished());
            let waits = tokio::time::timeout(ms(50), turn.wait()).await;
            assert!(waits.is_err(), "not before the replica has it");
        }
        for error in [
            brief.rw_lock("d").read().await.unwrap_err(),
            brief.rw_lock("d").write().await.unwrap_err(),
            brief.semaphore("s", 2).acquire().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
        }
        eventually("nothing is left", AGREED, || set.raw().call(&["EXISTS", "d", "s"]).int() == 0);
        set.replica(0).cont();
        let _ = within("the release", AGREED, released).await.unwrap().unwrap();
        for mut turn in turns {
            let read = within("a reader", AGREED, turn.wait()).await.unwrap();
            assert_eq!(set.replica(0).client().call(&["HGET", "c", "mode"]).text(), "read");
            assert_eq!(read.release().await.unwrap(), Release::Released);
        }
    });
}
