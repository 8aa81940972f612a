//! Why a lock was lost, and how soon its holder learns of a forced release (D15).

use crate::support::{run_paused, runtime, soon};
use fairlock::test_util::Sandbox;
use fairlock::{Client, Config, ErrorKind, Guard, GuardState, LostReason};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

fn reason(guard: &Guard) -> LostReason {
    assert_eq!(guard.state(), GuardState::Lost);
    let reason = guard.lost_reason().expect("it is lost");
    let error = guard.ensure_valid().unwrap_err();
    assert_eq!(error.lost_reason(), Some(reason));
    assert!(error.to_string().contains(&reason.to_string()), "{error}");
    reason
}

/// D15: the same message for every loss gave no advice.
#[test]
fn d15_a_guard_says_why_it_was_lost() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (client, other) = (sandbox.client(), sandbox.client());
        let second = Duration::from_secs(1);

        let guard = client.fair_lock("explicit").lease(second).lock().await.unwrap();
        guard.lost().await;
        assert_eq!(reason(&guard), LostReason::Expired);

        let guard = client.fair_lock("bounded").max_hold(90 * second).lock().await.unwrap();
        guard.lost().await;
        assert_eq!(reason(&guard), LostReason::MaxHold);
        let guard = client.plain_lock("bounded").max_hold(second).lock().await.unwrap();
        guard.lost().await;
        assert_eq!(reason(&guard), LostReason::MaxHold);

        let guard = client.fair_lock("forced").lock().await.unwrap();
        assert!(other.fair_lock("forced").force_unlock().await.unwrap());
        guard.lost().await;
        assert_eq!(reason(&guard), LostReason::Forced);
        // Later events do not change the reason.
        tokio::time::sleep(100 * second).await;
        assert_eq!(reason(&guard), LostReason::Forced);

        let guard = client.simple_lock("cut off").lock().await.unwrap();
        sandbox.cut_off(&client);
        guard.lost().await;
        assert_eq!(reason(&guard), LostReason::Unreachable);
        sandbox.restore(&client);

        let lock = client.fair_lock("closure");
        let work =
            tokio::spawn(
                async move { lock.with(async |_| std::future::pending::<()>().await).await },
            );
        tokio::time::sleep(second).await;
        assert!(other.fair_lock("closure").force_unlock().await.unwrap());
        let error = work.await.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.lost_reason()),
            (ErrorKind::Lost, Some(LostReason::Forced))
        );
        assert_eq!(other.fair_lock("").lock().await.unwrap_err().lost_reason(), None);
    });
}

/// Foreign changes of the keys are noticed at the next renewal, as are a forced release whose
/// message was lost, and Java's.
#[test]
fn d15_what_nobody_tells_is_found_at_the_next_renewal() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(async {
        let config =
            Config::from_url(&server.url()).unwrap().watchdog_lease(Duration::from_secs(3));
        let client = Client::with_config(config).await.unwrap();
        let mut raw = server.client();
        let guard = client.fair_lock("gone").lock().await.unwrap();
        raw.call(&["DEL", "gone"]);
        soon("the loss", guard.lost()).await;
        assert_eq!(reason(&guard), LostReason::DataLost);

        let guard = client.fair_lock("taken").lock().await.unwrap();
        raw.call(&["DEL", "taken"]);
        raw.call(&["HSET", "taken", "somebody", "1"]);
        soon("the loss", guard.lost()).await;
        assert_eq!(reason(&guard), LostReason::Replaced);
        assert!(guard.ensure_valid().unwrap_err().holder().is_some());
    });
}

/// The message only triggers a look: a forged one costs a renewal and no more.
#[test]
fn d15_a_forged_message_of_force_loses_nothing() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let guard = client.fair_lock("job").lock().await.unwrap();
        let mut raw = server.client();
        let text = format!("f1 {} {}", guard.owner(), guard.token());
        let renewals = |raw: &mut Raw| raw.call(&["PTTL", "job"]).int();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = renewals(&mut raw);
        assert_eq!(
            raw.call(&["PUBLISH", &format!("fairlock_inbox:{}", client.id()), &text]).int(),
            1
        );
        let began = Instant::now();
        while renewals(&mut raw) <= before {
            assert!(began.elapsed() < Duration::from_secs(5), "it did not look");
        }
        assert_eq!((guard.state(), guard.lost_reason()), (GuardState::Held, None));
        // A message about a hold that is over or never existed.
        let odd = client.dropped_messages();
        let other = format!("f1 {} 1", guard.owner());
        raw.call(&["PUBLISH", &format!("fairlock_inbox:{}", client.id()), &other]);
        while client.dropped_messages() == odd {
            assert!(began.elapsed() < Duration::from_secs(5), "it was not counted");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(guard.state(), GuardState::Held);
    });
}

/// The promise is for an idle machine; the bound here allows for a busy one.
#[test]
fn d15_how_soon_a_holder_hears_of_force() {
    const BUSY: Duration = Duration::from_secs(2);
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(async {
        let holder = Client::connect(&server.url()).await.unwrap();
        let operator = Client::connect(&server.url()).await.unwrap();
        let mut took = Vec::new();
        for _ in 0..200 {
            let guard = holder.fair_lock("job").lock().await.unwrap();
            let began = Instant::now();
            operator.fair_lock("job").force_unlock().await.unwrap();
            soon("the loss", guard.lost()).await;
            took.push(began.elapsed());
        }
        took.sort();
        println!("measured: d15 told of force: p50 {:?}, p99 {:?}", took[100], took[197]);
        assert!(took[197] < BUSY, "{:?}", took[197]);
    });
}
