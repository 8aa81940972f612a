//! Which kind of lock a run asks for, and which share of it.

use fairlock::Share;

use super::args::Run;
use crate::base::exit::Failure;
use crate::base::message;
use crate::settings::options::Kind;

/// The kind and the share that the options name. Options that contradict each other are wrong usage, before anything is
/// read or written.
pub(super) fn of(args: &Run) -> Result<(fairlock::Kind, Share), Failure> {
    let n = args.take.unwrap_or(1);
    let wrong =
        |what: String| Err(Failure::usage(format!("{}: {what}", message::printable(&args.name))));
    if let (Some(n), None) = (args.take, args.permits) {
        return wrong(match args.kind {
            None | Some(Kind::Semaphore) => {
                format!("--take {n} needs --permits N, the most that may be in use")
            }
            Some(_) => "--take is for semaphores (--permits N); leave it or --kind out".to_owned(),
        });
    }
    let (kind, share) = match (args.kind, args.shared, args.permits) {
        (None | Some(Kind::Rw), true, _) => (Kind::Rw, Share::Read),
        (None | Some(Kind::Semaphore), _, Some(limit)) => {
            if n > limit {
                return wrong(format!(
                    "--take {n} is more than --permits {limit}, so it would never start; take fewer, or name more"
                ));
            }
            (Kind::Semaphore, Share::Permits { n, limit })
        }
        (Some(_), true, _) => {
            return wrong(
                "--shared is for locks of --kind rw; leave one of the two out".to_owned(),
            );
        }
        (Some(Kind::Semaphore), false, None) => {
            return wrong(
                "--kind semaphore needs --permits N, the most that may be in use".to_owned(),
            );
        }
        (Some(_), _, Some(_)) => {
            return wrong(
                "--permits is for locks of --kind semaphore; leave one of the two out".to_owned(),
            );
        }
        (kind, false, None) => (kind.unwrap_or(Kind::Fair), Share::Whole),
    };
    Ok((kind.into(), share))
}
