//! `fairlock run NAME` without a command: the lock is held until a signal.

use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use fairlock::{Client, GuardState};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use super::args::Run;
use super::doubt::Doubt;
use super::kinds::KindNotice;
use super::loss;
use super::release::{Outcome, in_doubt, release};
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::locks::form;
use crate::locks::held::Held;
use crate::process::signal::Signals;

/// Longest time between two looks at the guard: timers stand still while the machine sleeps, leases do not.
const TICK: Duration = Duration::from_millis(500);

/// Holds the lock until a signal or its loss. A signal is the ordinary end, with the code that it has
/// everywhere: its sender knows what 143 means, and nobody mistakes an early end for a success.
pub(super) async fn hold(
    client: &Client,
    args: &Run,
    guard: Held,
    (signals, kinds): (&mut Signals, &mut KindNotice),
) -> Failure {
    let name = message::printable(&args.name);
    if let Err(error) = output::line(&line(args, &guard)) {
        // Without the line nobody knows that the lock is held.
        drop(release(guard).await);
        if error.kind() != io::ErrorKind::BrokenPipe {
            let reason = format!("{name}: released at once: stdout: {error}");
            return Failure::new(Code::INTERNAL, reason);
        }
        // As shells report a program without a reader.
        let reason = format!("{name}: released at once: nobody reads stdout");
        return Failure::new(Code::signal(Signal::PIPE.as_raw()), reason);
    }
    if !args.quiet && io::stderr().is_terminal() {
        message::report(&format!(
            "{name}: no command was given: held until a signal, such as Ctrl-C"
        ));
    }
    let mut doubt = Doubt::new(args);
    let signal = loop {
        let state = guard.state();
        kinds.look();
        doubt.look(&guard, state, Some(("the lock is lost", guard.remaining())));
        if state == GuardState::Lost {
            return loss::failure(args, loss::why(&guard, args));
        }
        tokio::select! {
            biased;
            signal = signals.recv() => break signal,
            _ = guard.state_changed(state) => {}
            () = time::sleep(TICK) => {}
        }
    };
    match release(guard).await {
        Outcome::Released => Failure::signal(signal),
        Outcome::Lost => loss::failure(args, "the lock was lost before it was to be given back"),
        Outcome::Unknown(reason) => loss::failure(args, in_doubt(client, &reason)),
    }
}

fn line(args: &Run, guard: &Held) -> Value {
    // Several names need a command.
    let guard = guard.guards()[0];
    json!({
        "schema": 1,
        "event": "acquired",
        "name": args.name.to_string_lossy(),
        "name_hex": args.name.to_str().is_none().then(|| form::hex(args.name.as_bytes())),
        "owner": guard.owner().to_string(),
        "token": guard.token().get(),
    })
}
