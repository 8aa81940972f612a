//! What the simulation found in the client, each scene in small, at every moment of its window.

use super::run;
use super::world::{Peer, START_MS, World};
use crate::random::seeded;
use crate::{Client, Config, Error, Guard, Lock};
use fairlock_core::ClientId;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The bytes of the client that is looked at take up to so long.
const SLOW_MS: u64 = 20;

/// A lock of one kind.
type Make = fn(&Client, &'static str) -> Lock;

/// A scene of two clients: the first holds the locks, the second wants them.
struct Scene {
    world: Arc<World>,
    holder: Client,
    waiter: Client,
}

impl Scene {
    /// A lock that the holder holds, and the waiter's task, which has stood in its queue for a while.
    async fn held_and_waited_for(&self, of: Make) -> (Guard, JoinHandle<Result<Guard, Error>>) {
        let held = of(&self.holder, "job").lock().await.expect("free");
        let wanted = of(&self.waiter, "job");
        let waits = tokio::spawn(async move { wanted.lock().await });
        sleep(Duration::from_millis(500)).await;
        (held, waits)
    }

    fn channels(&self) -> usize {
        self.world.with(|state| {
            let conns = state.server.conns.values().filter(|conn| conn.peer == 1);
            conns.map(|conn| conn.channels()).sum()
        })
    }

    /// The waiter's inbox is lost, and made anew from now on.
    fn lose_inbox(&self) {
        self.world.with(|state| {
            state.peers[1].slow_ms = SLOW_MS;
            state.reset(Some(1), true);
        });
    }

    /// For as long as it takes to make it anew, and some more.
    async fn settle(&self) {
        self.world.with(|state| state.peers[1].slow_ms = 0);
        sleep(Duration::from_secs(1)).await;
    }
}

/// Plays the scene once for every millisecond at which something can happen in it.
fn at_every_moment<F: Future<Output = ()>>(until_ms: u64, play: impl Fn(Scene, Duration) -> F) {
    for ms in 0..until_ms {
        seeded::set(Some(ms));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            crate::clock::start_at(START_MS);
            let world = World::begin(ms, false);
            let client = |number: u128| {
                let id = ClientId::from_random(number);
                let peer = world.with(|state| {
                    state.peers.push(Peer::default());
                    state.book.add_client(id)
                });
                run::start(Config::tcp(super::world::host(peer), 6379), id).0
            };
            let (holder, waiter) = (client(1), client(2));
            let scene = Scene { world: Arc::clone(&world), holder, waiter };
            sleep(Duration::from_secs(1)).await;
            play(scene, Duration::from_millis(ms)).await;
        });
        drop(runtime);
        World::end();
        seeded::set(None);
    }
}

/// A waiter that gave up while the inbox was made anew: its channel was subscribed after that, and kept
/// for as long as the connection lived.
#[test]
fn a_channel_that_was_left_while_the_inbox_was_made_anew_is_not_kept() {
    at_every_moment(120, |scene, when| async move {
        let (_held, waits) = scene.held_and_waited_for(Client::plain_lock).await;
        assert_eq!(scene.channels(), 2, "its own, and the lock's");
        scene.lose_inbox();
        sleep(when).await;
        waits.abort();
        sleep(Duration::from_millis(200)).await;
        scene.settle().await;
        assert_eq!(scene.channels(), 1, "given up after {when:?}");
    });
}

/// A waiter that came while the inbox was made anew: its channel was subscribed on no connection, and the
/// lock stood free until the lease of its last holder would have ended.
#[test]
fn a_waiter_that_came_while_the_inbox_was_made_anew_is_woken() {
    at_every_moment(120, |scene, when| async move {
        let held = scene.holder.plain_lock("other").lock().await.expect("free");
        let (_held, first) = scene.held_and_waited_for(Client::plain_lock).await;
        let other = scene.waiter.plain_lock("other");
        scene.lose_inbox();
        sleep(when).await;
        let second = tokio::spawn(async move { other.lock().await.map(drop) });
        sleep(Duration::from_millis(200)).await;
        scene.settle().await;
        held.release().await.expect("released");
        let woken = timeout(Duration::from_secs(1), second).await;
        assert!(woken.is_ok(), "came after {when:?}");
        first.abort();
    });
}

/// A silent end of the server's machine was noticed by the command connection after four seconds and by
/// the inbox after twenty. Until then every waiter was taken for dead when its turn came, and others went
/// before it.
#[test]
fn an_inbox_is_looked_at_when_the_command_connection_was_lost() {
    at_every_moment(1, |scene, _| async move {
        scene.world.with(|state| {
            let data = std::mem::take(&mut state.server.model);
            state.stop_server(true);
            state.start_server(data);
        });
        scene.world.reachable_again();
        let began = Instant::now();
        while scene.channels() == 0 {
            assert!(began.elapsed() < Duration::from_secs(12), "deaf for {:?}", began.elapsed());
            sleep(Duration::from_millis(100)).await;
        }
    });
}

/// Who waited all the time hears what is said on the new connection.
#[test]
fn a_waiter_hears_by_the_inbox_that_was_made_anew() {
    at_every_moment(1, |scene, _| async move {
        let (held, waits) = scene.held_and_waited_for(Client::plain_lock).await;
        scene.lose_inbox();
        scene.settle().await;
        held.release().await.expect("released");
        let woken = timeout(Duration::from_millis(100), waits).await;
        assert!(woken.is_ok(), "it was not woken");
    });
}

/// What was said while nobody listened is looked for.
#[test]
fn a_waiter_looks_when_the_inbox_was_made_anew() {
    at_every_moment(1, |scene, _| async move {
        let (held, waits) = scene.held_and_waited_for(Client::plain_lock).await;
        scene.lose_inbox();
        held.release().await.expect("released");
        scene.settle().await;
        let woken = timeout(Duration::from_millis(100), waits).await;
        assert!(woken.is_ok(), "it was not woken");
    });
}

/// What seeds show too seldom: a grant whose message is long under way is not relied
/// on for longer than the server keeps it.
#[test]
fn a_guard_by_a_late_message_ends_before_its_hold() {
    at_every_moment(20, |scene, _| async move {
        let (held, waits) = scene.held_and_waited_for(Client::fair_lock).await;
        scene.world.with(|state| state.peers[1].slow_ms = 1_000);
        held.release().await.expect("released");
        let woken = timeout(Duration::from_secs(10), waits).await.expect("woken");
        let guard = woken.expect("no panic").expect("granted");
        let violations = scene.world.with(|state| {
            state.took(1, &guard.hold());
            std::mem::take(&mut state.book.violations)
        });
        assert!(violations.is_empty(), "{violations:?}");
    });
}
