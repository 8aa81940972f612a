//! What the protected resource saw: I3.
//!
//! No token is accepted from two owners; the resource itself refuses smaller tokens than it has
//! seen. A write with a lost guard may be refused, one with a valid guard only after a loss of
//! state.

use super::clients::Clients;
use super::window::Excuse;
use super::{Found, ns};
use crate::log::note::Note;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How long a token is remembered after its use: longer than any process is stopped.
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Fencing {
    /// The accepted writes of each lock, the latest last: when, token, owner.
    accepted: HashMap<String, VecDeque<(u64, u64, String)>>,
}

impl Fencing {
    pub(super) fn look(&mut self, note: &Note, clients: &Clients, found: &mut Found) {
        let Note::Wrote { at, lock, owner, token, accepted, valid } = note else { return };
        if !accepted {
            found.result.fenced_off += 1;
            if *valid {
                let granted = clients.granted(lock, owner).unwrap_or(*at);
                let what = format!("lock {lock}: {owner} was refused at {at}, and its guard valid");
                found.suspect(Excuse::StateLoss, granted, *at, what);
            }
            return;
        }
        let lately = self.accepted.entry(lock.clone()).or_default();
        while lately.front().is_some_and(|(then, ..)| then + ns(REMEMBERED) < *at) {
            lately.pop_front();
        }
        for (_, other, first) in lately.iter() {
            if other == token && first != owner {
                found
                    .violation(format!("lock {lock}: {first} and {owner} both have token {token}"));
            }
        }
        lately.push_back((*at, *token, owner.clone()));
    }
}
