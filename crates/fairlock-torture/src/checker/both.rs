//! Invariants between what clients saw and what the server did.
//!
//! - **A guard has a grant** (A3): its token is in the log, under its owner.
//! - **Conservative clients** (I13): a guard is valid no longer than the server keeps the hold.
//! - **Owners alone** (I8): a hold that ends early was released by its owner or taken by a fault.
//! - **Losses are seen** (I14): a hold that was taken away is believed in no longer than until its
//!   next renewal.
//! - **Honest results** (I16, L7): an owner that has left is in no queue and holds nothing.
//!
//! A note is checked some seconds after it was made, when the log has been read far beyond it.

use super::clients::Clients;
use super::server::Server;
use super::window::Excuse;
use super::{Found, ns};
use crate::log::note::{End, Note};
use crate::log::tail::wall_us;
use fairlock_testkit::history::now_ns;
use std::time::Duration;

/// The server's log has millisecond resolution.
const ROUNDING_US: i64 = 2_000;

/// How late the log may be read on a shared machine.
const READ_WITHIN: Duration = Duration::from_secs(3);

/// A renewal is due after a third of at most this lease, and its answer follows shortly after.
const NOTICED: Duration = Duration::from_secs(5);

pub(super) fn look(note: &Note, server: &Server, clients: &Clients, found: &mut Found) {
    match note {
        Note::Granted { at, lock, owner, token, valid_until, .. } => {
            let Some(hold) = server.hold(lock, owner, *token) else {
                let what = format!(
                    "lock {lock}: {owner} has a guard since {at} whose token {token} the server never gave"
                );
                return found.violation(what);
            };
            if hold.owner != *owner {
                let what = format!("lock {lock}: {owner} has the token {token} of {}", hold.owner);
                found.violation(what);
            }
            // A guard that arrived too late and reports so has no time left.
            if valid_until > at && on_wall(*valid_until) > hold.longest_us + ROUNDING_US {
                let beyond = (on_wall(*valid_until) - hold.longest_us) / 1_000;
                let what = format!(
                    "lock {lock}: the guard of {owner} is valid for {beyond} ms longer than the hold"
                );
                found.suspect(Excuse::StateLoss, *at, *valid_until, what);
            }
        }
        Note::Ended { at, lock, owner, end } if *end != End::GaveUp => {
            let Some(hold) = server.hold_of(lock, owner) else { return };
            let granted = clients.granted(lock, owner).unwrap_or(*at);
            // Such a guard was never seen valid.
            let came_too_late = *end == End::Lost && *at == granted;
            if !came_too_late && on_wall(*at) > hold.longest_us + ROUNDING_US {
                let beyond = (on_wall(*at) - hold.longest_us) / 1_000;
                let what = format!(
                    "lock {lock}: {owner} saw its guard valid {beyond} ms after the hold was over"
                );
                found.suspect(Excuse::StateLoss, granted, *at, what);
            }
            if let Some(over) = hold.over
                && over.early
                && over.read_us < on_wall(*at)
            {
                let taken = on_boot(over.read_us);
                let what = format!(
                    "lock {lock}: the hold of {owner} was ended at {taken}, and it let go at {at}"
                );
                found.suspect(
                    Excuse::StateLoss,
                    taken.saturating_sub(ns(READ_WITHIN)),
                    taken,
                    what,
                );
                if *at > taken + ns(NOTICED) {
                    let what = format!("lock {lock}: {owner} noticed nothing of that until {at}");
                    found.suspect(Excuse::MayLose, taken + ns(READ_WITHIN), *at, what);
                }
            }
        }
        Note::Left { at, lock, owner } if server.has(lock, owner) => {
            let what = format!("lock {lock}: {owner} had left at {at}, and is still there");
            found.suspect(Excuse::StateLoss, *at, *at + ns(READ_WITHIN), what);
        }
        _ => {}
    }
}

/// Converts a time of the shared monotonic clock to the wall clock, in microseconds.
fn on_wall(at: u64) -> i64 {
    wall_us() + (signed(at) - signed(now_ns())) / 1_000
}

/// The inverse of [`on_wall`].
pub(super) fn on_boot(wall: i64) -> u64 {
    let at = signed(now_ns()) + (wall - wall_us()) * 1_000;
    u64::try_from(at).unwrap_or(0)
}

fn signed(at: u64) -> i64 {
    i64::try_from(at).expect("less than 292 years")
}
