//! Observability: metrics and tracing. A binary of its own, because recorder and subscriber belong
//! to a whole process.
//!
//! - `recorder`, `subscriber`: the receiving ends
//! - `table`: every metric is provoked, and matches its documentation
//! - `alerts`: alert rules and dashboard in `docs` ask for what that table has
//! - `events`: which events are emitted, and what none of them may contain

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod alerts;
mod events;
mod recorder;
mod subscriber;
mod table;

use fairlock_testkit::wait;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The bound for what takes milliseconds: the machine may be busy.
const SOON: Duration = Duration::from_secs(20);

/// The tests of this binary share one recorder and one subscriber, so they run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    recorder::install();
    subscriber::install();
    turn
}

/// Waits until `condition` holds.
#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = Duration> {
    wait::until_async(what, SOON, async move || condition())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
