//! Neither side gets what the other holds, and each reports it correctly.

use fairlock::{Client, Lock, Release};
use fairlock_interop::java::Kind;
use fairlock_interop::version::Version;

use crate::fixture::{run, soon};

/// The Java kinds that share a lock with ours, in this version.
fn pairs(version: Version) -> Vec<(Kind, bool)> {
    let mut pairs =
        vec![(Kind::Fair, true), (Kind::Plain, false), (Kind::Spin, false), (Kind::Plain, true)];
    if version.has_fenced() {
        pairs.extend([(Kind::Fenced, false), (Kind::Fenced, true)]);
    }
    if version.has_non_reentrant() {
        pairs.extend([(Kind::NonReentrant, false), (Kind::NonReentrantFair, true)]);
    }
    pairs
}

fn ours(client: &Client, is_fair: bool, name: &str) -> Lock {
    if is_fair { client.fair_lock(name) } else { client.plain_lock(name) }
}

#[test]
fn what_java_holds_is_held_for_rust() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for (kind, is_fair) in pairs(fixture.version()) {
            let lock = ours(&rust, is_fair, "job");
            let theirs = java.lock(kind, "job");
            theirs.lock().value().await;
            assert!(lock.try_lock().await.unwrap().is_none(), "{kind:?}");
            assert!(lock.is_locked().await.unwrap());
            let holder = lock.holder().await.unwrap().unwrap();
            assert_eq!(holder.owner.to_string(), java.id);
            // Both read the same TTL, one after the other.
            let ours_ms = lock.remaining_ttl().await.unwrap().unwrap().as_millis();
            let theirs_ms = theirs.remaining_ms().number().await;
            let apart_ms = i64::try_from(ours_ms).unwrap() - theirs_ms;
            assert!((0..1000).contains(&apart_ms), "{kind:?}: {ours_ms} and then {theirs_ms}");
            theirs.unlock().value().await;
            assert!(!lock.is_locked().await.unwrap());
            let guard = lock.try_lock().await.unwrap().expect("it is free");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}

#[test]
fn what_rust_holds_is_held_for_java() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for (kind, is_fair) in pairs(fixture.version()) {
            let guard = soon(ours(&rust, is_fair, "job").lock()).await.unwrap();
            let theirs = java.lock(kind, "job");
            assert!(!theirs.try_lock().is_true().await, "{kind:?}");
            assert!(theirs.is_locked().is_true().await);
            assert!(!theirs.is_mine().is_true().await);
            assert_eq!(theirs.hold_count().number().await, 0);
            let exception = theirs.unlock().exception().await;
            assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
            assert_eq!(fixture.holder("job"), Some(guard.owner().to_string()));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert!(theirs.try_lock().is_true().await, "{kind:?}");
            theirs.unlock().value().await;
        }
        fixture.nothing_left().await;
    });
}

/// Threads of several JVM clients and tasks of several of ours increment a number that only the
/// lock protects: read, wait, write. No increment is lost, whatever the kind.
#[test]
fn an_unprotected_counter_loses_nothing() {
    run(|fixture| async move {
        const EACH: usize = 15;
        for (kind, is_fair) in [(Kind::Fair, true), (Kind::Plain, false)] {
            let (rust, java) = (fixture.rust().await, fixture.java().await);
            let mut workers = Vec::new();
            for n in 0..3 {
                let java = java.owner(&format!("t{n}")).await.lock(kind, "counted");
                let (lock, server) = (ours(&rust, is_fair, "counted"), fixture.server.addr());
                workers.push(tokio::spawn(async move {
                    for _ in 0..EACH {
                        java.lock().value().await;
                        add_one(server).await;
                        java.unlock().value().await;
                    }
                }));
                workers.push(tokio::spawn(async move {
                    for _ in 0..EACH {
                        let guard = lock.lock().await.unwrap();
                        add_one(server).await;
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                }));
            }
            for worker in workers {
                soon(worker).await.unwrap();
            }
            assert_eq!(fixture.call(&["GET", "n"]).text(), (6 * EACH).to_string(), "{kind:?}");
            fixture.call(&["DEL", "n"]);
        }
        fixture.nothing_left().await;
    });
}

/// Two calls with a gap in which interference would show.
async fn add_one(server: std::net::SocketAddr) {
    let mut raw = fairlock_testkit::raw::Raw::connect(server);
    let n = raw.call(&["GET", "n"]);
    let n = if n.is_nil() { 0 } else { n.text().parse::<u32>().unwrap() };
    tokio::task::yield_now().await;
    raw.call(&["SET", "n", &(n + 1).to_string()]);
}
