//! A client that exists twice, as after a snapshot of its machine was started a second time (F13).

use super::run;
use super::world::{START_MS, World};
use crate::base::random::seeded;
use crate::{Client, Config, GuardState, Release};
use fairlock_core::ClientId;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The seed of the random numbers that both drew before the snapshot, including the ids of their
/// requests.
const DRAWN: u64 = 13;

const LEASE: Duration = Duration::from_secs(30);

/// Time enough for a reply or a message.
const SOON: Duration = Duration::from_secs(1);

/// Each of the two asks for the lock, and both have the same hold: the second request looks like a
/// copy of the first. While both keep it, everybody else is kept out. The first to release gives
/// the lock away for both; the other learns of it at its next renewal, and until then writes with
/// the smaller token.
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
