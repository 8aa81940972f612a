//! Finds clients that poll in a tight loop (L10), by comparing the server's call count with what
//! the clients did.
//!
//! A waiter sends two heartbeats a second for each lock, and a few more calls when it is notified.
//! A turn costs a few calls and wakes the waiters of a plain lock. Any calls beyond that come from
//! a client that keeps asking. Reconnects and returns to a place in the queue also cost calls, so
//! disturbances are excluded.

use super::window::Excuse;
use super::{Found, ns};
use crate::log::note::{End, Note};
use std::collections::BTreeMap;
use std::time::Duration;

/// Calls that one turn or attempt may cost all clients together: its own, and one from each client
/// that it wakes.
pub(super) const A_TURN: u64 = 20;

/// Calls per second of all clients for waiting alone: each serves a dozen locks and limits itself
/// to 20 a second for each if there is a reason (F07, F59, F86).
pub(super) const WAITING: u64 = 1_500;

/// Largest distance between a call and the note about its turn.
const NEAR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Turns noted in each tenth of a second.
    turns: BTreeMap<u64, u64>,
    asked: Vec<(u64, u64, u64)>,
}

const TENTH: u64 = 100_000_000;

impl Calls {
    pub(super) fn look(&mut self, note: &Note) {
        let counts = match note {
            Note::Granted { .. } | Note::Placed { .. } | Note::Missed { .. } => true,
            Note::Ended { end, .. } => *end == End::GaveUp,
            _ => false,
        };
        if counts {
            *self.turns.entry(note.at() / TENTH).or_default() += 1;
        }
    }

    /// The server was called for this many scripts in this interval.
    pub(super) fn asked(&mut self, from: u64, until: u64, scripts: u64) {
        self.asked.push((from, until, scripts));
    }

    pub(super) fn finish(&self, found: &mut Found) {
        for &(from, until, scripts) in &self.asked {
            let near = from.saturating_sub(ns(NEAR)) / TENTH..=(until + ns(NEAR)) / TENTH;
            let turns: u64 = self.turns.range(near).map(|(_, turns)| turns).sum();
            let waiting = WAITING * (until - from) / 1_000_000_000;
            let a_second = scripts * 1_000_000_000 / (until - from).max(1);
            if !found.windows.disturbed(from, until) {
                found.result.calls_checked += 1;
                found.result.calls_a_second = found.result.calls_a_second.max(a_second);
            }
            if scripts > waiting + A_TURN * turns {
                let what = format!(
                    "from {from} to {until} the server was asked {scripts} times, for {turns} turns"
                );
                found.suspect(Excuse::Disturbed, from, until, what);
            }
        }
    }
}
