//! The server dies and comes back, without its memory or with it.

use super::bed::{Bed, Held, LEASE, Place, SLACK, all_in_turn, config, measured, ms, steady};
use fairlock::{Client, GuardState};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

/// Long enough that all clients are back before the gathering after a loss of state is over.
const BEAT: Duration = Duration::from_secs(1);

async fn holder_and_waiters(bed: &Bed) -> ([Client; 3], Held, Vec<Place>) {
    let connect = || async {
        let config = config(&bed.server.url()).heartbeat(BEAT).watchdog_lease(4 * LEASE);
        Client::with_config(config).await.unwrap()
    };
    let clients = [connect().await, connect().await, connect().await];
    let held = bed.take(&clients[0], "job").await;
    let mut places = Vec::new();
    for n in [1, 2, 1, 0, 2] {
        places.push(bed.enter(&clients[n], "job").await);
    }
    (clients, held, places)
}

/// The server is killed and comes back empty (a24: what the waiters do then must not be faster
/// than what the holder is told). The holder hears that its lock is lost long before its lease
/// ends, the waiters enter again in their old order, and the tokens go on rising.
#[test]
fn f21_a24_restart_without_persistence() {
    steady(|| async {
        for generation in [Generation::Redis70, Generation::Valkey91] {
            let Some(bed) = Bed::start(generation) else { continue };
            let (_clients, held, places) = holder_and_waiters(&bed).await;
            let first = held.token();
            bed.server.kill9();
            bed.server.restart();
            let took = held.lost(SLACK).await;
            measured(&format!("f21 {} restart to Lost", generation.name()), took);
            let began = Instant::now();
            let tokens = all_in_turn(places, 2 * BEAT + SLACK).await;
            measured(&format!("f21 {} Lost to all served", generation.name()), began.elapsed());
            assert!(tokens[0] > first);
            bed.history.assert_sound();
        }
    });
}

/// The server is killed and comes back with everything it had answered for. The holder is in
/// doubt for a moment and then holds on, and all waiters stand where they stood.
#[test]
fn f22_restart_with_a_log() {
    steady(|| async {
        let Some(bed) = Bed::with(Server::builder(Generation::Redis70).persist(true)) else {
            return;
        };
        let (clients, held, places) = holder_and_waiters(&bed).await;
        let queue = bed.queue("job");
        bed.server.kill9();
        held.becomes(GuardState::Suspect, SLACK).await;
        bed.server.restart();
        let took = held.becomes(GuardState::Held, SLACK).await;
        measured("f22 restart to Held again", took);
        assert_eq!(bed.queue("job"), queue);
        // A waiter without an inbox counts as dead at its turn, and would return to its place.
        bed.inboxes_are_back(&clients);
        held.release().await;
        all_in_turn(places, SLACK).await;
        bed.history.assert_sound();
    });
}

/// The server is gone for longer than the lease: the guard ends by its own clock, while nobody
/// answers, and the waiters are served when the server is back.
#[test]
fn f24_the_server_sleeps_beyond_the_lease() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        let client = bed.client().await;
        let held = bed.take(&client, "job").await;
        let others = bed.client().await;
        let places = vec![bed.enter(&others, "job").await, bed.enter(&client, "job").await];
        let began = Instant::now();
        bed.server.stop();
        held.becomes(GuardState::Suspect, ms(300) + SLACK).await;
        measured("f24 freeze to Suspect", began.elapsed());
        held.lost(LEASE + ms(100)).await;
        measured("f24 freeze to Lost", began.elapsed());
        bed.server.cont();
        all_in_turn(places, LEASE + SLACK).await;
        bed.history.assert_sound();
    });
}
