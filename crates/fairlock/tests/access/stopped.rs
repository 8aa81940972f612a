//! Rights that are revoked from a connected client: its scripts stop half way. What they leave
//! behind is repaired.

use super::profiles::{Rule, profile};
use crate::support::{SOON, in_real_time, soon, until, wait_behind};
use fairlock::{Client, Config, Error, ErrorKind};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// The lease of holds that nobody can release: their remains end with it.
const LEASE: Duration = Duration::from_secs(2);

fn rules(raw: &mut Raw, user: &str, rules: &[&str]) {
    let reply = raw.call(&[&["ACL", "SETUSER", user], rules].concat());
    assert_eq!(reply, Value::Simple("OK".into()), "{user} {rules:?}");
}

/// Denied or done: a call whose script may not run a command has no other outcome.
fn known<T>(result: Result<T, Error>, context: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Denied, "{context}: {error}");
            None
        }
    }
}

/// One command is denied while a lock is released to a waiter, another one is acquired and a third
/// is given up; then the command is allowed again. All locks can be acquired again, and nothing
/// remains.
async fn taken_away(server: &Server, number: usize, all: &[Rule], rule: &Rule) -> Duration {
    let context = format!("without {}", rule.text);
    let user = format!("user{number}");
    let mut raw = server.client();
    let allowed: Vec<&str> = all.iter().map(|rule| rule.text.as_str()).collect();
    rules(&mut raw, &user, &[&["reset", "resetchannels", "on", ">pw"][..], &allowed].concat());
    let config = Config::tcp("127.0.0.1", server.port())
        .username(&user)
        .password("pw")
        .announce(false)
        .heartbeat(Duration::from_millis(300))
        .watchdog_lease(LEASE)
        .connect_timeout(SOON)
        .response_timeout(SOON);
    let connect = async || Client::with_config(config.clone()).await.unwrap();
    let (one, two) = (connect().await, connect().await);
    let name = |kind: &str| format!("billing:{number}:{kind}");
    let guard = one.fair_lock(name("handed")).lock().await.unwrap();
    let waiter = wait_behind(&two.fair_lock(name("handed")), 1).await;
    let plain = one.plain_lock(name("plain")).lock().await.unwrap();
    let simple = one.simple_lock(name("simple")).lock().await.unwrap();
    let token = guard.token();

    let deny = rule.text.replacen('+', "-", 1);
    rules(&mut raw, &user, &[&deny]);
    let _ = known(guard.release().await, &context);
    let _ = known(plain.release().await, &context);
    let _ = known(simple.release().await, &context);
    let taken = [
        one.fair_lock(name("taken")).try_lock().await,
        one.plain_lock(name("taken-plain")).try_lock().await,
        one.simple_lock(name("taken-simple")).try_lock().await,
    ];
    // Granted locks are released once the right is restored.
    let taken: Vec<_> =
        taken.into_iter().filter_map(|taken| known(taken, &context).flatten()).collect();
    rules(&mut raw, &user, &[&rule.text]);
    let restored = Instant::now();
    drop(taken);

    let other = Client::connect(&server.url()).await.unwrap();
    if rule.text == "+pexpireat" {
        // Without this command a hold has no TTL; a waiter gives it one of half a minute, which is
        // too long for a test.
        for kind in ["handed", "taken", "plain", "taken-plain"] {
            let lock = match kind.contains("plain") {
                true => other.plain_lock(name(kind)),
                false => other.fair_lock(name(kind)),
            };
            drop(lock.try_lock_for(Duration::from_millis(100)).await.unwrap());
            let ttl = raw.call(&["PTTL", &name(kind)]).int();
            assert!((-2..=30_000).contains(&ttl) && ttl != -1, "{context}: {kind}: {ttl}");
            lock.force_unlock().await.unwrap();
        }
    }
    if let Some(next) = known(soon(&context, waiter).await.unwrap(), &context) {
        assert!(next.token() > token, "{context}");
        drop(next);
    }
    // Everybody can acquire all of them now, whatever remains.
    for kind in ["handed", "taken"] {
        let lock = other.fair_lock(name(kind));
        let guard = tokio::time::timeout(4 * SOON, lock.lock()).await.expect(&context).unwrap();
        assert!(guard.token() > token, "{context}");
        drop(guard);
    }
    for kind in ["plain", "taken-plain"] {
        drop(
            tokio::time::timeout(4 * SOON, other.plain_lock(name(kind)).lock())
                .await
                .expect(&context),
        );
    }
    for kind in ["simple", "taken-simple"] {
        drop(
            tokio::time::timeout(4 * SOON, other.simple_lock(name(kind)).lock())
                .await
                .expect(&context),
        );
    }
    let mended = restored.elapsed();
    for client in [one, two, other] {
        client.shutdown().await;
    }
    // Queues and registries expire.
    until(&context, async || {
        let keys = raw.call(&["KEYS", &format!("*billing:{number}:*")]);
        keys.array().iter().all(|key| raw.call(&["PTTL", key.text()]).int() != -1)
    })
    .await;
    for kind in ["handed", "taken", "plain", "taken-plain", "simple", "taken-simple"] {
        let left = raw.call(&["EXISTS", &name(kind)]).int();
        assert_eq!(left, 0, "{context}: {kind} is still there");
    }
    mended
}

#[test]
fn what_a_stopped_script_leaves_is_mended() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let server = Arc::new(server);
        let all = profile("locks.acl");
        // Rules that connections need are checked when one is made.
        let scripts = all.iter().filter(|rule| rule.text.starts_with('+') && !rule.optional);
        let mut times = Vec::new();
        LocalSet::new()
            .run_until(async {
                let mut tasks = JoinSet::new();
                for (number, rule) in scripts.cloned().enumerate() {
                    let (all, server) = (all.clone(), Arc::clone(&server));
                    tasks.spawn_local(async move {
                        (taken_away(&server, number, &all, &rule).await, rule.text)
                    });
                }
                while let Some(done) = tasks.join_next().await {
                    times.push(done.unwrap());
                }
            })
            .await;
        times.sort();
        println!("measured: mended after {times:?}");
    });
}
