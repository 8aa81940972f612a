//! More readers than one call lets in, and dead ones before them: the line is served in several calls, each of which
//! says that there is more to do, whatever is lost on the way.

use super::run;
use super::world::{START_MS, World};
use crate::base::random::seeded;
use crate::{Client, Config, GuardState};
use fairlock_core::ClientId;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// More than twice what one call grants.
const READERS: usize = 300;

/// Time enough for replies and messages, one after the other.
const SOON: Duration = Duration::from_millis(200);

/// The time between heartbeats, and a little more for the replies.
const HEARTBEAT: Duration = Duration::from_millis(2_200);

/// The time after which a silent client counts as dead, and a heartbeat.
const DEAD_AFTER: Duration = Duration::from_secs(8);

/// The numbers of the clients in the world.
const WRITES: usize = 0;
const READS: usize = 1;
const DIES: usize = 2;

struct Scene {
    world: Arc<World>,
    clients: [Client; 3],
}

fn played<F: Future<Output = ()>>(story: impl FnOnce(Scene) -> F) {
    seeded::set(Some(7));
    let runtime = run::runtime();
    let world = runtime.block_on(async {
        crate::base::clock::start_at(START_MS);
        let world = World::begin(7, true);
        let client = |number: u128| {
            let id = ClientId::from_random(number);
            let peer = world.add_client(id);
            run::start(Config::tcp(super::world::host(peer), 6379), id).0
        };
        let scene = Scene { world: Arc::clone(&world), clients: [client(1), client(2), client(3)] };
        sleep(Duration::from_secs(1)).await;
        story(scene).await;
        world
    });
    drop(runtime);
    World::end();
    seeded::set(None);
    let violations = world.with(|state| std::mem::take(&mut state.oracle.violations));
    assert!(violations.is_empty(), "{violations:#?}");
}

/// They stand in the line when this returns.
async fn readers(client: &Client) -> Vec<JoinHandle<crate::ReadGuard>> {
    let lock = client.rw_lock("c");
    let one = |_| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.read().await.expect("a guard") })
    };
    let tasks = (0..READERS).map(one).collect();
    sleep(Duration::from_secs(1)).await;
    tasks
}

/// All have their guards within this time, which are valid together.
async fn all_read(tasks: Vec<JoinHandle<crate::ReadGuard>>, within: Duration) {
    let began = Instant::now();
    let mut guards = Vec::new();
    for task in tasks {
        let left = within.saturating_sub(began.elapsed());
        guards.push(timeout(left, task).await.expect("its turn").expect("no panic"));
    }
    let token = guards[0].token();
    assert!(guards.iter().all(|it| it.token() == token && it.state() == GuardState::Held));
}

#[test]
fn three_hundred_readers_are_let_in_at_once() {
    played(|Scene { world, clients }| async move {
        let written = clients[WRITES].rw_lock("c").write().await.expect("free");
        let tasks = readers(&clients[READS]).await;
        let before = world.with(|state| state.oracle.counts.calls);
        drop(written);
        all_read(tasks, SOON).await;
        // The release, and two calls for the rest.
        let calls = world.with(|state| state.oracle.counts.calls) - before;
        assert!((3..=4).contains(&calls), "{calls}");
    });
}

/// Nobody is told: the heartbeats of those who wait find all of them.
#[test]
fn three_hundred_readers_find_themselves_without_a_message() {
    played(|Scene { world, clients }| async move {
        let written = clients[WRITES].rw_lock("c").write().await.expect("free");
        let tasks = readers(&clients[READS]).await;
        world.with(|state| state.peers[READS].swallow_messages = true);
        drop(written);
        all_read(tasks, HEARTBEAT).await;
    });
}

/// The releaser never learns that there was more to do: the next heartbeat does it.
#[test]
fn three_hundred_readers_are_let_in_without_the_releaser() {
    played(|Scene { world, clients }| async move {
        // From here on the server knows the scripts: the reply that is lost is that of the release.
        let before = clients[WRITES].rw_lock("c").write().await.expect("free");
        let _ = before.release().await.expect("answered");
        let written = clients[WRITES].rw_lock("c").write().await.expect("free");
        let tasks = readers(&clients[READS]).await;
        world.with(|state| state.peers[WRITES].lose_replies = 1);
        drop(written);
        sleep(Duration::from_millis(20)).await;
        world.with(|state| state.kill(WRITES, true));
        all_read(tasks, HEARTBEAT).await;
    });
}

/// Hundreds of dead stand before them: some are looked at in each call, and all in the end.
#[test]
fn three_hundred_dead_readers_before_three_hundred_live_ones() {
    played(|Scene { world, clients }| async move {
        let written = clients[WRITES].rw_lock("c").write().await.expect("free");
        let dead = readers(&clients[DIES]).await;
        let tasks = readers(&clients[READS]).await;
        world.with(|state| state.kill(DIES, true));
        sleep(DEAD_AFTER).await;
        drop(written);
        all_read(tasks, SOON).await;
        dead.iter().for_each(JoinHandle::abort);
    });
}
