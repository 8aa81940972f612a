//! Waiting for one's turn.

use std::ffi::OsStr;
use std::time::Duration;

use fairlock::{Guard, Lock};
use tokio::time;

use crate::args::Run;
use crate::clock;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::message;
use crate::progress;
use crate::signal::Signals;

/// Who does not wait hears of a store that does not answer after this time, as long as one attempt to connect.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What is left of a wait at least: whoever has spent it on the connection still looks once.
const LEAST: Duration = Duration::from_millis(1);

/// Acquires the lock, or says why not; the wait counts from `began`. A signal, like every other early end,
/// drops the wait, and that leaves the queue.
pub(crate) async fn acquire(
    lock: &Lock,
    args: &Run,
    began: Duration,
    signals: &mut Signals,
) -> Result<Guard, Failure> {
    let guard = tokio::select! {
        // A signal goes first: a lock that arrives together with it must not start the command.
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        guard = attempt(lock, args, began) => guard?,
        never = progress::show(lock, &args.name), if !args.quiet => match never {},
    };
    guard.ok_or_else(|| match args.conflict_exit_code {
        code if args.quiet || code == Code::OK => Failure::silent(code),
        code => Failure::new(code, conflict_message(&args.name, args.wait)),
    })
}

async fn attempt(lock: &Lock, args: &Run, began: Duration) -> Result<Option<Guard>, Failure> {
    let got = match args.wait {
        None => lock.lock().await.map(Some),
        Some(Duration::ZERO) => match time::timeout(SILENCE_MAX, lock.try_lock()).await {
            Ok(got) => got,
            Err(_) => {
                let name = message::printable(&args.name);
                let text = format!("{name}: the store does not answer; the command was not run");
                return Err(Failure::new(Code::UNAVAILABLE, text));
            }
        },
        Some(wait) => {
            let left = (began + wait).saturating_sub(clock::now());
            lock.try_lock_for(left.max(LEAST)).await
        }
    };
    Ok(got?)
}

fn conflict_message(name: &OsStr, wait: Option<Duration>) -> String {
    let name = message::printable(name);
    match wait {
        None | Some(Duration::ZERO) => format!("{name}: held by another"),
        Some(wait) => format!("{name}: not acquired within {}", duration::human(wait)),
    }
}
