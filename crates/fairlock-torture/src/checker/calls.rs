//! Whether anybody asks in a circle (L10): what the server was asked for, beside what the clients did.
//!
//! Who waits sends two heartbeats a second for each lock, and a few more when it is told something; a turn costs a
//! few calls, and wakes those who wait for a plain lock. What is beyond that is somebody who asks again and
//! again. Checked outside of disturbances: reconnects and places that are returned to cost calls.

use super::window::Excuse;
use super::{Found, ns};
use crate::log::note::{End, Note};
use std::collections::BTreeMap;
use std::time::Duration;

/// Calls that a turn, or an attempt, may cost all clients together: the turn's own, and one of each client that
/// is woken by it.
pub(super) const A_TURN: u64 = 20;

/// Calls a second of all clients for waiting alone: each looks after a dozen locks, and paces itself at 20 a second
/// for each if there is a reason (F07, F59, F86).
pub(super) const WAITING: u64 = 1_500;

/// A call may be made so much before or after its turn is told.
const NEAR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Turns that were told in each tenth of a second.
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

    /// The server was asked for so many scripts in this time.
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
