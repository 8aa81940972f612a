//! What the reply to a waiter's return to its place says about when to look again.

use crate::engine::machine::tests::Asks;
use crate::{Client, Config};
use fairlock_core::{Body, LockName};
use fairlock_testkit::tempdir::TempDir;
use std::time::Duration;

/// A process that was stopped through its turn returned to its place alone, was told to look again after 2 s, and looked
/// with its next heartbeat, which this store sends after 10 to 20 s: the free lock stood idle. Seen beside other load,
/// where nothing else woke the waiter meanwhile.
#[tokio::test]
async fn a_waiter_that_returned_looks_again_when_it_was_told_to() {
    let dir = TempDir::new();
    let file = dir.path().join("locks.db");
    let client = Client::with_config(Config::host(&file)).await.expect("a new file");
    let context = client.context();
    let name = LockName::new(b"job").expect("a name");
    assert!(context.beat_every(&name) >= Duration::from_secs(10));
    // It is in the queue by its own account; the store knows nothing of it.
    let (asks, _) = Asks::begin(context, &name);
    asks.answered(Body::Queued { order: 7, retry_ms: Some(1), foreign: false, length: 1 });
    assert!(asks.is_held_within(Duration::from_secs(8)).await);
}
