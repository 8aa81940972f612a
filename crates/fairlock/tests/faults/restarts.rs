//! The server dies and comes back, with or without its data.

use super::fixture::{
    Fixture, Held, LEASE, Place, SLACK, all_in_turn, assert_ordered, config, eventually, inbox,
    measured, ms, steady, within,
};
use fairlock::{Client, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::await_acknowledged;
use std::time::{Duration, Instant};

/// Long enough that all clients are back before the gathering after a loss of state ends.
const BEAT: Duration = Duration::from_secs(1);

async fn holder_and_waiters(fixture: &Fixture) -> ([Client; 3], Held, Vec<Place>) {
    let connect = || async {
        let config = config(&fixture.server.url()).heartbeat(BEAT).watchdog_lease(4 * LEASE);
        Client::with_config(config).await.unwrap()
    };
    let clients = [connect().await, connect().await, connect().await];
    let held = fixture.take(&clients[0], "job").await;
    let mut places = Vec::new();
    for n in [1, 2, 1, 0, 2] {
        places.push(fixture.enter(&clients[n], "job").await);
    }
    all_know(&clients).await;
    (clients, held, places)
}

/// Waits until each client knows that its waiters are in the queue, which the server knows earlier:
/// replies come in order. Without it f23 failed on a busy machine: the reply to the last waiter was
/// lost with the server, so its request reached the next server as a new one, and a new request for
/// an empty lock is served at once, before those that return.
async fn all_know(clients: &[Client]) {
    for client in clients {
        let answered = async { while client.ping().await.is_err() {} };
        within("a reply", 10 * SLACK, answered).await;
    }
}

/// The server is killed and comes back empty (a24: the waiters must not act on it before the holder
/// is told). The holder learns that its lock is lost long before its lease ends, the waiters return
/// in their old order, and the tokens keep rising.
#[test]
fn f21_a24_restart_without_persistence() {
    steady(|| async {
        for generation in [Generation::Redis70, Generation::Valkey91] {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (_clients, held, places) = holder_and_waiters(&fixture).await;
            let first = held.token();
            fixture.server.kill9();
            fixture.server.restart();
            // Attempts to reconnect are up to 2 s apart.
            let took = held.lost(ms(2_000) + SLACK).await;
            measured(&format!("f21 {} restart to Lost", generation.name()), took);
            let began = Instant::now();
            let tokens = all_in_turn(places, 2 * BEAT + SLACK).await;
            measured(&format!("f21 {} Lost to all served", generation.name()), began.elapsed());
            assert!(tokens[0] > first);
            fixture.history.assert_sound();
        }
    });
}

/// The server is killed and comes back with everything that it had answered. The guard is Suspect
/// for a moment and then Held again, and all waiters keep their places.
#[test]
fn f22_restart_with_a_log() {
    steady(|| async {
        let Some(fixture) = Fixture::with(Server::builder(Generation::Redis70).persist(true))
        else {
            return;
        };
        let (clients, held, places) = holder_and_waiters(&fixture).await;
        let queue = fixture.queue("job");
        fixture.server.kill9();
        held.becomes(GuardState::Suspect, SLACK).await;
        fixture.server.restart();
        let took = held.becomes(GuardState::Held, ms(2_000) + SLACK).await;
        measured("f22 restart to Held again", took);
        assert_eq!(fixture.queue("job"), queue);
        // A waiter without an inbox counts as dead at its turn, and would return to its place.
        fixture.inboxes_are_back(&clients);
        let _ = held.release().await;
        all_in_turn(places, SLACK).await;
        fixture.history.assert_sound();
    });
}

/// F23: the server dies, and the address leads to its replica, which had not received the last
/// writes: replication is asynchronous. What it had received stays as it was, holder and places.
/// The rest is lost: the holder learns of it with the first reply, long before its lease ends; its
/// waiters return in their order; the token is larger, although the replica never received the
/// last.
#[test]
fn f23_a_replica_takes_over_without_the_last_writes() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let Some(replica) = Server::start(Generation::Redis70) else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let connect = || async {
            let config = config(&proxy.url()).heartbeat(BEAT).watchdog_lease(30 * LEASE);
            Client::with_config(config).await.unwrap()
        };
        let clients = [connect().await, connect().await, connect().await];
        let mut raw = replica.client();
        let port = fixture.server.addr().port().to_string();
        raw.call(&["REPLICAOF", "127.0.0.1", &port]);
        eventually("the replica is in step", 10 * SLACK, || {
            raw.call(&["INFO", "replication"]).text().contains("master_link_status:up")
        });

        let copied = fixture.take(&clients[0], "copied").await;
        let mut places = Vec::new();
        for n in [1, 2, 1] {
            places.push(fixture.enter(&clients[n], "copied").await);
        }
        let queue = fixture.queue("copied");
        await_acknowledged(&mut fixture.server.client(), 1);
        // From here on the replica receives nothing more.
        raw.call(&["REPLICAOF", "NO", "ONE"]);
        let missed = fixture.take(&clients[0], "missed").await;
        let mut lost_places = Vec::new();
        for n in [1, 2, 1] {
            lost_places.push(fixture.enter(&clients[n], "missed").await);
        }
        assert_eq!(raw.call(&["EXISTS", "copied", "missed"]).int(), 1);
        all_know(&clients).await;

        fixture.server.kill9();
        proxy.move_to(replica.addr());
        proxy.cut_all();
        let took = missed.lost(BEAT + SLACK).await;
        measured("f23 fail-over to Lost", took);
        let last = missed.token();
        let began = Instant::now();
        // The gathering, and a look.
        let tokens = all_in_turn(lost_places, 2 * BEAT + SLACK).await;
        measured("f23 Lost to all served", began.elapsed());
        assert!(tokens[0] > last);

        copied.becomes(GuardState::Held, SLACK).await;
        let there = raw.call(&["LRANGE", "redisson_lock_queue:{copied}", "0", "-1"]);
        let there: Vec<_> = there.array().iter().map(|owner| owner.text().to_owned()).collect();
        assert_eq!(there, queue);
        eventually("the inboxes are back", SLACK, || {
            clients.iter().all(|client| raw.listeners(&inbox(client)) == 1)
        });
        assert_eq!(copied.release().await, Release::Released);
        all_in_turn(places, SLACK).await;
        assert_ordered(&fixture);
    });
}

/// F47, F66: the clock of the replica that takes over differs, by seconds and by minutes. However
/// it reads the times that it received: it decides nothing before it is promoted, waiters keep
/// their order, and tokens rise, even if its clock is behind. If a lease is over by its clock, the
/// lock is lost and its holder learns of it; if the holder lives, its next renewal corrects the
/// lease.
#[test]
fn f47_f66_a_promoted_replica_has_another_clock() {
    const FIXED: Duration = Duration::from_secs(20);
    steady(|| async {
        for seconds in [-60, -5, 5, 60] {
            let Some(fixture) = Fixture::redis70() else { return };
            let shimmed = Server::builder(Generation::Redis70).clock_shim(true).start();
            let Some(replica) = shimmed else { return };
            replica.clock().set_offset(seconds * 1_000_000);
            let proxy = Proxy::start(fixture.server.addr());
            let connect = || async {
                let config = config(&proxy.url()).heartbeat(BEAT).watchdog_lease(FIXED);
                Client::with_config(config).await.unwrap()
            };
            let clients = [connect().await, connect().await, connect().await];
            let mut raw = replica.client();
            let port = fixture.server.port().to_string();
            raw.call(&["REPLICAOF", "127.0.0.1", &port]);
            eventually("the replica is in step", 10 * SLACK, || {
                raw.call(&["INFO", "replication"]).text().contains("master_link_status:up")
            });
            let held = fixture.take(&clients[0], "job").await;
            let mut places = Vec::new();
            for n in [1, 2, 1] {
                places.push(fixture.enter(&clients[n], "job").await);
            }
            await_acknowledged(&mut fixture.server.client(), 1);
            // No client asks the replica yet, however it sees the lease.
            assert_eq!(held.guard.state(), GuardState::Held);
            all_know(&clients).await;
            raw.call(&["REPLICAOF", "NO", "ONE"]);
            fixture.server.kill9();
            proxy.move_to(replica.addr());
            proxy.cut_all();

            let first = held.token();
            let began = Instant::now();
            if seconds == 60 {
                held.lost(BEAT + SLACK).await;
                assert_eq!(held.release().await, Release::Lost);
            } else {
                held.becomes(GuardState::Held, BEAT + SLACK).await;
                let mut ttl = || ms(u64::try_from(raw.call(&["PTTL", "job"]).int()).unwrap_or(0));
                eventually("the lease is right", FIXED / 3 + SLACK, || {
                    let left = ttl();
                    left > FIXED / 2 && left <= FIXED
                });
                eventually("the inboxes are back", SLACK, || {
                    clients.iter().all(|client| raw.listeners(&inbox(client)) == 1)
                });
                assert_eq!(held.release().await, Release::Released);
            }
            measured(
                &format!("f66 {seconds:+} s: fail-over to the end of the hold"),
                began.elapsed(),
            );
            let tokens = all_in_turn(places, 2 * BEAT + 3 * SLACK).await;
            assert!(tokens[0] > first, "{tokens:?} after {first}");
            assert_ordered(&fixture);
        }
    });
}

/// The server is gone for longer than the lease: the guard is lost by its own clock, without any
/// reply, and the waiters are served when the server is back.
#[test]
fn f24_the_server_sleeps_beyond_the_lease() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let held = fixture.take(&client, "job").await;
        let others = fixture.client().await;
        let places = vec![fixture.enter(&others, "job").await, fixture.enter(&client, "job").await];
        let began = Instant::now();
        fixture.server.stop();
        held.becomes(GuardState::Suspect, ms(300) + SLACK).await;
        measured("f24 freeze to Suspect", began.elapsed());
        held.lost(LEASE + ms(100)).await;
        measured("f24 freeze to Lost", began.elapsed());
        fixture.server.cont();
        all_in_turn(places, LEASE + SLACK).await;
        fixture.history.assert_sound();
    });
}

/// An owner releases a lock and takes it again, and the server comes back without both: it has the
/// former hold. The current hold claimed that one for itself; then the former release, which is
/// repeated, freed it: two owners held the lock for the rest of a lease.
#[test]
fn what_is_told_again_ends_no_newer_hold_of_its_owner() {
    steady(|| async {
        for fair in [true, false] {
            let Some(fixture) = Fixture::redis70() else { return };
            let (client, other) = (fixture.client().await, fixture.client().await);
            let of = |client: &Client| match fair {
                true => client.fair_lock("job"),
                false => client.plain_lock("job"),
            };
            let mine = of(&client).owned_by(&client.owner());
            let former = within("the former hold", SLACK, mine.lock()).await.unwrap();
            let keys = ["job", "redisson_lock_token:{job}", "fairlock_state:{job}"];
            let kept = keys.map(|key| format!("kept-{key}"));
            for (key, kept) in keys.iter().zip(&kept) {
                fixture.call(&["COPY", key, kept]);
            }
            assert_eq!(former.release().await.unwrap(), Release::Released);
            let present = within("the present hold", SLACK, mine.lock()).await.unwrap();
            let token = present.token().get();
            let restore = "for i = 1, 3 do redis.call('DEL', KEYS[i]) \
                 redis.call('COPY', KEYS[i + 3], KEYS[i]) end";
            let mut call = vec!["EVAL", restore, "6"];
            call.extend(keys);
            call.extend(kept.iter().map(String::as_str));
            fixture.call(&call);
            fixture.call(&["CLIENT", "KILL", "TYPE", "normal"]);
            fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let known = || fixture.call(&["GET", keys[1]]).text().parse::<u64>().unwrap();
            eventually("the present hold is known", 5 * SLACK, || known() == token);
            // The repeated release comes within a round trip of that.
            let began = Instant::now();
            while began.elapsed() < ms(300) {
                assert!(of(&other).try_lock().await.unwrap().is_none(), "fair: {fair}");
                tokio::time::sleep(ms(5)).await;
            }
            assert_eq!(present.release().await.unwrap(), Release::Released);
            let next = of(&other).try_lock().await.unwrap().expect("it is free");
            assert!(next.token().get() > token);
        }
    });
}
