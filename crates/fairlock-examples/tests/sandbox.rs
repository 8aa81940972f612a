//! An adopter's own test: hours of leases and waits in milliseconds.

use fairlock::test_util::Sandbox;
use fairlock::{ErrorKind, Lock};
use std::time::Duration;

/// The code under test: an hour of work while it holds the lock.
async fn nightly(lock: Lock) -> &'static str {
    match lock.try_lock_for(Duration::from_secs(60)).await {
        Ok(Some(guard)) => tokio::select! {
            () = guard.lost() => "stopped",
            () = tokio::time::sleep(Duration::from_secs(3_600)) => "done",
        },
        Ok(None) => "somebody else is at it",
        Err(error) if error.kind() == ErrorKind::Unavailable => "no store",
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time() {
    let sandbox = Sandbox::new();
    let (one, two) = (sandbox.client(), sandbox.client()); // as two processes would have
    let first = tokio::spawn(nightly(one.fair_lock("nightly")));
    tokio::task::yield_now().await;
    assert_eq!(nightly(two.fair_lock("nightly")).await, "somebody else is at it");
    assert_eq!(first.await.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_the_lock_is_lost() {
    let sandbox = Sandbox::new();
    let job = tokio::spawn(nightly(sandbox.client().fair_lock("nightly")));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(sandbox.lose("nightly"));
    assert_eq!(job.await.unwrap(), "stopped");
}

#[tokio::test(start_paused = true)]
async fn it_says_that_there_is_no_store() {
    let sandbox = Sandbox::new();
    let client = sandbox.client();
    sandbox.cut_off(&client);
    assert_eq!(nightly(client.fair_lock("nightly")).await, "no store");
    sandbox.restore(&client);
    assert_eq!(nightly(client.fair_lock("nightly")).await, "done");
}
