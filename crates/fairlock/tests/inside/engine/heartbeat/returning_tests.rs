//! What the reply to a waiter's return to its place says about when to look again.

use crate::state::waiters::Outcome;
use crate::{Client, Config};
use fairlock_core::client::{Acquisition, Outlook};
use fairlock_core::{Kind, LockName, Mode};
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
    // It was in the queue once, by its own account; the store knows nothing of it.
    let (owner, request) = (context.new_owner(), context.new_request());
    let (owner, request) = (owner.expect("a number"), request.expect("random"));
    let mut acquisition = Acquisition::new(Kind::Fair, owner, Mode::Wait, 30_000, false, request);
    acquisition.queued(7);
    let (waiter, outcome) = context.waiters.enter(name.clone(), acquisition);
    let period = context.beat_every(&name);
    assert!(period >= Duration::from_secs(10));
    let heartbeat = context.waiters.queued(&name, waiter, 7, Outlook::default(), period);
    let heartbeat = heartbeat.expect("the first waiter");
    heartbeat.kick.notify_one();
    super::begin(context, heartbeat);
    let outcome = tokio::time::timeout(Duration::from_secs(8), outcome).await;
    assert!(matches!(outcome, Ok(Ok(Outcome::Granted { .. }))), "{outcome:?}");
}
