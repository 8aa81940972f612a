//! `--once-per DURATION`: at most one run in a time, however many hosts start it.
//!
//! The lock is held and renewed while the command runs; a crash costs no more than a lease. After a success the hold
//! stays in the store for the rest of the time, and the owner's number says that this is on purpose. A run that starts
//! meanwhile finds the lock held and skips.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use fairlock::{Client, Share};

use super::args::Run;
use super::release::{Outcome, leave};
use crate::base::clock;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::locks::handle::Handle;
use crate::locks::held::Held;

/// A shorter rest of the time is ignored: the store accepts none.
const REST_MIN: Duration = Duration::from_millis(100);

/// Settles, from the command line and the configuration, how often this run may begin, and that it does not wait.
pub(super) fn settle(
    args: &mut Run,
    share: Share,
    configured: Option<Duration>,
) -> Result<(), Failure> {
    let is_configured = args.once_per.is_none();
    // A hold without a command cannot succeed.
    let configured = configured.filter(|_| !args.command.is_empty());
    args.once_per = args.once_per.or(configured).filter(|time| !time.is_zero());
    if args.once_per.is_none() {
        return Ok(());
    }
    let wrong = |what: &str, option: &str| {
        let (by, remedy) = match is_configured {
            true => (
                "`once-per` in the configuration",
                format!("leave {option} out, or say --once-per 0"),
            ),
            false => ("--once-per", "leave one of them out".to_owned()),
        };
        let name = message::printable(&args.name);
        Failure::usage(format!("{name}: under {by} {what}, so {option} means nothing; {remedy}"))
    };
    if args.names.len() > 1 {
        return Err(wrong("one lock tells whether a run is due", "a second name"));
    }
    match share {
        Share::Read => return Err(wrong("one run at a time starts", "--shared")),
        Share::Permits { .. } => return Err(wrong("one run at a time starts", "--permits")),
        _ => {}
    }
    if args.wait.is_some_and(|wait| !wait.is_zero()) {
        return Err(wrong("a run never waits", "--wait"));
    }
    args.wait = Some(Duration::ZERO);
    Ok(())
}

/// The lock with the owner of such a run.
pub(super) fn owned(lock: Handle, client: &Client, args: &Run) -> Handle {
    if args.once_per.is_some() { lock.owned_by(&client.once_owner()) } else { lock }
}

/// The end of a run within the time of another one; silent for scripts.
pub(super) fn skipped(args: &Run, holder: Option<String>) -> Failure {
    if args.quiet || !(args.verbose || io::stderr().is_terminal()) {
        return Failure::silent(args.conflict_exit_code);
    }
    let holder = holder.unwrap_or_else(|| "held by another".to_owned());
    let name = message::printable(&args.name);
    Failure::new(args.conflict_exit_code, format!("{name}: skipped: {holder}"))
}

/// Leaves the hold in the store if the command has succeeded and some of the time is left; otherwise returns the
/// guard. `began`: when it was acquired, by [`clock::now`].
pub(super) async fn keep(
    args: &Run,
    guard: Held,
    code: Code,
    began: Duration,
) -> Result<Outcome, Held> {
    let counts = args.once_per.filter(|_| code == Code::OK);
    let rest = counts.map(|time| time.saturating_sub(clock::now() - began));
    match (rest, guard) {
        (Some(rest), Held::One(guard)) if rest >= REST_MIN => Ok(leave(guard, rest).await),
        (_, guard) => Err(guard),
    }
}
