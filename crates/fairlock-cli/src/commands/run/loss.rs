//! Messages about a lock that was lost or is about to be, one for each reason.

use std::time::Duration;

use fairlock::LostReason;

use super::args::Run;
use crate::base::duration;
use crate::base::exit::Failure;
use crate::base::message;
use crate::locks::held::Held;

/// Why the command must end now, as the end of a sentence about the lock.
pub(super) fn why(guard: &Held, args: &Run) -> String {
    match guard.lost_reason() {
        Some(reason) => match guard.refusal().filter(|_| reason == LostReason::Unreachable) {
            Some(refusal) => format!(
                "the lock was lost: its lease ran out, and the store did not renew it ({refusal})"
            ),
            None => format!("the lock was lost: {}", because(reason, args.lease)),
        },
        None => {
            let why = match args.lease {
                Some(lease) => format!("its --lease of {} is over", duration::human(lease)),
                None => format!("{}, and its lease runs out", silence(guard)),
            };
            format!("the lock was about to be lost: {why}")
        }
    }
}

/// Why the guardian has ended the command.
pub(super) fn why_guardian(guard: &Held, args: &Run) -> String {
    match guard.lost_reason() {
        Some(_) => why(guard, args),
        None => "the lock was about to be lost: this process, or the machine, stood still until its lease had almost \
                 run out"
            .to_owned(),
    }
}

/// Why a lock is in doubt: the store does not answer, or refuses to renew it.
pub(super) fn silence(guard: &Held) -> String {
    match guard.refusal() {
        Some(refusal) => format!("the store does not renew it ({refusal})"),
        None => "the store does not answer".to_owned(),
    }
}

/// As [`why`], for a lock whose loss was found at its release.
pub(super) fn while_it_ran(found_before: Option<LostReason>, args: &Run) -> String {
    match found_before {
        Some(reason) => {
            format!("the lock was lost while the command ran: {}", because(reason, args.lease))
        }
        None => "the lock was lost while the command ran: when it was to be given back, it was gone, or \
                 somebody else's"
            .to_owned(),
    }
}

pub(super) fn failure(args: &Run, what: impl std::fmt::Display) -> Failure {
    let name = message::printable(&args.name);
    Failure::new(args.lost_exit_code, format!("{name}: {what}"))
}

fn because(reason: LostReason, lease: Option<Duration>) -> String {
    let text = match (reason, lease) {
        (LostReason::Expired, Some(lease)) => {
            return format!("its --lease of {} is over", duration::human(lease));
        }
        (LostReason::Expired, None) => {
            "its lease ran out while this process, or the machine, stood still"
        }
        (LostReason::Forced, _) => "it was taken away by force (`fairlock unlock --force`)",
        (LostReason::Replaced, _) => {
            "somebody else has it: it was taken away (Java's forceUnlock, DEL), or the store has \
             lost it"
        }
        (LostReason::DataLost, _) => {
            "the store knows nothing of it: its data were lost, or somebody deleted it (Java's \
             forceUnlock, DEL)"
        }
        (reason, _) => return reason.to_string(),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages distinguish all reasons.
    #[test]
    fn each_reason_has_a_message_of_its_own() {
        let lease = Some(Duration::from_secs(3_600));
        let mut all: Vec<_> = [
            LostReason::Expired,
            LostReason::Unreachable,
            LostReason::MaxHold,
            LostReason::Forced,
            LostReason::Replaced,
            LostReason::DataLost,
        ]
        .map(|reason| because(reason, None))
        .into();
        all.push(because(LostReason::Expired, lease));
        assert!(all.last().unwrap().contains("its --lease of 1h00m is over"), "{all:?}");
        let number = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), number, "{all:?}");
    }
}
