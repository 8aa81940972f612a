//! A server's name that leads to other addresses, and locks of the same name in two databases.

use super::fixture::{Fixture, HB, LEASE, SLACK, client, eventually, measured, ms, steady, within};
use super::worker::Worker;
use fairlock_testkit::history::Event;
use fairlock_testkit::processes::unshare;
use fairlock_testkit::tempdir::TempDir;
use std::fs;
use std::time::Instant;

/// How many connections the server's client list shows at `address`.
fn reached_by(fixture: &Fixture, address: &str) -> usize {
    let list = fixture.call(&["CLIENT", "LIST"]);
    let wanted = format!("laddr={address}:");
    list.text().lines().filter(|line| line.contains(&wanted)).count()
}

/// F60: the server's name is resolved anew for each connection. After the connections are lost it
/// leads to no address for a while, then to another one, and back: the guard becomes Suspect, and
/// Held again.
#[test]
fn f60_the_name_leads_elsewhere() {
    steady(|| async {
        // A mount namespace, for a hosts file of its own.
        let Some(mut starter) = unshare(&["--mount"]) else { return };
        let Some(fixture) = Fixture::redis70() else { return };
        fixture.call(&["CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2"]);
        let dir = TempDir::new();
        let hosts = dir.path().join("hosts");
        let leads_to =
            |address: &str| fs::write(&hosts, format!("{address} locks.test\n")).unwrap();
        leads_to("127.0.0.1");
        starter.args(["sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
        starter.arg(&hosts);
        let url = format!("redis://locks.test:{}/", fixture.server.port());
        let mut worker = Worker::under(starter, &url, HB, 8 * LEASE, []);
        let line = worker.take(&fixture, "job");
        assert_eq!(reached_by(&fixture, "127.0.0.2"), 0);
        let other = fixture.client().await;
        let next = fixture.enter(&other, "job").await;

        for address in ["127.0.0.2", "127.0.0.1"] {
            // To no address for a while.
            fs::write(&hosts, "").unwrap();
            fixture.call(&["CLIENT", "KILL", "TYPE", "normal"]);
            fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            worker.expect("state 0 Suspect", SLACK);
            assert!(worker.hear("state 0 Held", ms(300)).is_none(), "to nowhere");
            leads_to(address);
            let began = Instant::now();
            worker.expect("state 0 Held", ms(2_000) + SLACK);
            measured(&format!("f60 the name leads to {address}: to Held"), began.elapsed());
            let (wanted, away) = if address == "127.0.0.2" { (2, 0) } else { (0, 2) };
            eventually("both connections are there", ms(2_000) + SLACK, || {
                reached_by(&fixture, "127.0.0.2") == wanted
            });
            assert!(reached_by(&fixture, "127.0.0.1") >= away);
        }
        fixture.history.record("job", line.owner(), Event::Released);
        worker.order("release 0");
        assert_eq!(worker.expect("released", SLACK).words[2], "Released");
        let _ = next.granted(HB + SLACK).await.release().await;
        fixture.history.assert_sound();
    });
}

/// F50: the message that a latch was counted down reaches those who wait for the latch of this name in another
/// database. Theirs is closed.
#[test]
fn f50_a_latch_opens_nobody_in_another_database() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let url = |database: u32| format!("{}{database}", fixture.server.url());
        let here = client(&url(0)).await.latch("import");
        let there = client(&url(1)).await.latch("import");
        assert!(here.try_set(2).await.unwrap());
        assert!(there.try_set(1).await.unwrap());
        let waiter = here.clone();
        let waits = tokio::spawn(async move { waiter.wait().await.unwrap() });
        eventually("it listens", SLACK, || {
            fixture.listeners("redisson_countdownlatch__channel__{import}") == 1
        });
        // Until a message cannot be about the latch before this one.
        tokio::time::sleep(HB).await;
        assert_eq!(there.count_down().await.unwrap(), 0);
        // Until its next look.
        tokio::time::sleep(2 * HB).await;
        assert!(!waits.is_finished(), "the latch here is closed");
        assert_eq!(here.count_down().await.unwrap(), 1);
        assert_eq!(here.count_down().await.unwrap(), 0);
        assert_eq!(within("the end", SLACK, waits).await.unwrap(), fairlock::Opened::CountedDown);
    });
}

/// F50: two databases of one server have locks of the same name, and share their channels. They are
/// two locks: each excludes and serves its own clients; messages of the other wake in vain.
#[test]
fn f50_the_same_name_in_two_databases() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let url = |database: u32| format!("{}{database}", fixture.server.url());
        let here = [client(&url(0)).await, client(&url(0)).await];
        let there = [client(&url(1)).await, client(&url(1)).await];
        for fair in [true, false] {
            let lock = |client: &fairlock::Client| {
                if fair { client.fair_lock("job") } else { client.plain_lock("job") }
            };
            let mut guards = Vec::new();
            let mut waits = Vec::new();
            for pair in [&here, &there] {
                let first = lock(&pair[0]);
                let taken = within("the hold", SLACK, first.lock()).await.unwrap();
                guards.push(taken);
                let second = lock(&pair[1]);
                waits.push(tokio::spawn(async move { second.lock().await.unwrap() }));
            }
            if fair {
                for pair in [&here, &there] {
                    let lock = lock(&pair[0]);
                    while lock.inspect().await.unwrap().queue_len != 1 {
                        tokio::task::yield_now().await;
                    }
                }
            } else {
                eventually("both listen", SLACK, || {
                    let channel = "redisson_lock__channel:{job}";
                    fixture.listeners(channel) == 2
                });
            }
            let (far, near) = (guards.pop().unwrap(), guards.pop().unwrap());
            let (far_wait, near_wait) = (waits.pop().unwrap(), waits.pop().unwrap());
            let token = near.token();
            let _ = near.release().await.unwrap();
            let next = within("the next here", HB + SLACK, near_wait).await.unwrap();
            assert!(next.token() > token);
            // Longer than any heartbeat: the other waiter would have been granted the lock by then.
            tokio::time::sleep(3 * HB).await;
            assert!(!far_wait.is_finished(), "the lock there is held");
            far.ensure_valid().unwrap();
            let _ = next.release().await.unwrap();
            let token = far.token();
            let _ = far.release().await.unwrap();
            let next = within("the next there", HB + SLACK, far_wait).await.unwrap();
            assert!(next.token() > token);
            let _ = next.release().await.unwrap();
        }
        // If the reply to a heartbeat brought a grant first, its message comes too late, once for each
        // kind of lock. The other database sends four messages.
        for [holder, waiter] in [&here, &there] {
            assert_eq!(holder.dropped_messages(), 0);
            assert!(waiter.dropped_messages() <= 2, "{}", waiter.dropped_messages());
        }
    });
}
