//! A client that is there twice, as after a snapshot of its machine that was started once more (F13).

use super::run;
use super::world::{START_MS, World};
use crate::base::random::seeded;
use crate::{Client, Config, GuardState, Release};
use fairlock_core::ClientId;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// What both have drawn from the operating system before the snapshot: the ids of their requests too.
const DRAWN: u64 = 13;

const LEASE: Duration = Duration::from_secs(30);

/// Until the answer is there, or a message.
const SOON: Duration = Duration::from_secs(1);

/// Both ask for a lock, each for itself, and have the same hold of it: the second request looks like a copy of the
/// first. All others are kept out while both go on. Whoever releases first gives the lock away for both; the other
/// is told at its next renewal, and what it writes meanwhile has the smaller token.
#[test]
fn f13_a_cloned_client_has_one_hold_twice() {
    let runtime = run::runtime();
    runtime.block_on(async {
        crate::base::clock::start_at(START_MS);
        let world = World::begin(DRAWN, false);
        let client = |number: u128| {
            let id = ClientId::from_random(number);
            let peer = world.add_client(id);
            let config = Config::tcp(super::world::host(peer), 6379).watchdog_lease(LEASE);
            run::start(config, id).0
        };
        let take = async |client: &Client| {
            seeded::set(Some(DRAWN));
            client.fair_lock("job").lock().await.expect("a guard")
        };
        let (first, clone, other) = (client(1), client(1), client(2));
        sleep(SOON).await;
        let held = take(&first).await;
        let copy = timeout(SOON, take(&clone)).await.expect("it is told the same");
        assert_eq!((held.token(), held.owner()), (copy.token(), copy.owner()), "one hold");

        let lock = other.fair_lock("job");
        let waits = tokio::spawn(async move { lock.lock().await });
        sleep(3 * LEASE).await;
        assert!(!waits.is_finished(), "it is kept out");
        assert_eq!((held.state(), copy.state()), (GuardState::Held, GuardState::Held));

        assert_eq!(held.release().await.expect("an outcome"), Release::Released);
        let next = timeout(SOON, waits).await.expect("its turn").expect("no panic");
        let next = next.expect("a guard");
        assert!(next.token() > copy.token());
        timeout(LEASE / 3 + SOON, copy.lost()).await.expect("it is told of its loss");
        assert_eq!(copy.release().await.expect("an outcome"), Release::Lost);
        assert_eq!(next.state(), GuardState::Held, "the third is not touched");
        assert_eq!(next.release().await.expect("an outcome"), Release::Released);
    });
    drop(runtime);
    World::end();
    seeded::set(None);
}
