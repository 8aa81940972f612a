//! Each invariant has one history that breaks it and one that does not.

mod clients;
mod dates;
mod server;
mod shares;

use super::*;
use crate::log::note::End;
use crate::nemesis::Kind;
use fairlock::Share;

const MS: u64 = 1_000_000;

/// The lease to which holds are renewed here.
const LEASE: Duration = Duration::from_secs(3);

/// The input of a checker as a test writes it. Times are in milliseconds.
#[derive(Default)]
struct History {
    inputs: Vec<Input>,
    has_log: bool,
    faults: usize,
}

impl History {
    fn of(notes: &[Note]) -> Self {
        let mut history = Self::default();
        for note in notes {
            history.inputs.push(Input::Note { worker: 1, note: note.clone() });
        }
        history
    }

    fn fault(mut self, kind: Kind, from: u64, until: u64) -> Self {
        let id = self.faults;
        self.faults += 1;
        self.inputs.push(Input::Fault { id, kind, from: from * MS });
        self.inputs.push(Input::Over { id, until: until * MS });
        self
    }

    fn checked(self) -> Findings {
        let mut checker = Checker::new(LEASE, self.has_log);
        for input in self.inputs {
            checker.hear(input);
        }
        checker.hear(Input::Note { worker: 1, note: Note::Done });
        checker.hear(Input::Gone { worker: 1 });
        checker.finish()
    }

    /// Asserts that there is one violation for each text, containing it, and no other.
    #[track_caller]
    fn finds(self, wanted: &[&str]) -> Findings {
        let found = self.checked();
        assert_eq!(found.violations.len(), wanted.len(), "{:#?}", found.violations);
        for (violation, part) in found.violations.iter().zip(wanted) {
            assert!(violation.contains(part), "{violation}");
        }
        found
    }
}

fn granted(at: u64, owner: &str, token: u64) -> Note {
    asked_and_granted(at - 1, at, owner, token)
}

fn asked_and_granted(asked: u64, at: u64, owner: &str, token: u64) -> Note {
    let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
    let (at, asked) = (at * MS, asked * MS);
    Note::Granted { at, asked, lock, owner, token, valid_until: at, share: Share::Whole }
}

fn placed(at: u64, owner: &str) -> Note {
    let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
    Note::Placed { at: at * MS, asked: (at - 1) * MS, lock, owner, share: Share::Whole }
}

fn ended(at: u64, owner: &str, end: End) -> Note {
    Note::Ended { at: at * MS, lock: "fair-0".into(), owner: owner.into(), end }
}
