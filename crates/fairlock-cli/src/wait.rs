//! Waiting for one's turn.

use std::ffi::OsStr;
use std::time::Duration;

use fairlock::{Guard, Lock};

use crate::args::Run;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::message;
use crate::progress;
use crate::signal::Signals;

/// Acquires the lock, or says why not. A signal, like every other early end, drops the wait, and
/// that leaves the queue.
pub(crate) async fn acquire(
    lock: &Lock,
    args: &Run,
    signals: &mut Signals,
) -> Result<Guard, Failure> {
    let guard = tokio::select! {
        // A signal goes first: a lock that arrives together with it must not start the command.
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        guard = attempt(lock, args.wait) => guard?,
        never = progress::show(lock, &args.name), if !args.quiet => match never {},
    };
    guard.ok_or_else(|| match args.conflict_exit_code {
        code if args.quiet || code == Code::OK => Failure::silent(code),
        code => Failure::new(code, conflict_message(&args.name, args.wait)),
    })
}

async fn attempt(lock: &Lock, wait: Option<Duration>) -> Result<Option<Guard>, fairlock::Error> {
    match wait {
        None => lock.lock().await.map(Some),
        Some(Duration::ZERO) => lock.try_lock().await,
        Some(wait) => lock.try_lock_for(wait).await,
    }
}

fn conflict_message(name: &OsStr, wait: Option<Duration>) -> String {
    let name = message::printable(name);
    match wait {
        None | Some(Duration::ZERO) => format!("{name}: held by another"),
        Some(wait) => format!("{name}: not acquired within {}", duration::human(wait)),
    }
}
