//! What a run holds: one lock of any kind, several, or an election's.

use std::time::Duration;

use fairlock::{Error, ErrorKind, Guard, GuardState, LostReason, MultiGuard, Release, Term};

/// The guard of a run.
#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    Several(MultiGuard),
    /// One whose holder announces something.
    Leads(Term),
}

impl Held {
    /// The guards of the locks, in the order in which these were named.
    pub(crate) fn guards(&self) -> Vec<&Guard> {
        match self {
            Self::One(guard) => vec![guard],
            Self::Leads(term) => vec![term],
            Self::Several(guards) => guards.guards().collect(),
        }
    }

    pub(crate) fn state(&self) -> GuardState {
        match self {
            Self::One(guard) => guard.state(),
            Self::Leads(term) => term.state(),
            Self::Several(guards) => guards.state(),
        }
    }

    pub(crate) async fn state_changed(&self, from: GuardState) -> GuardState {
        match self {
            Self::One(guard) => guard.state_changed(from).await,
            Self::Leads(term) => term.state_changed(from).await,
            Self::Several(guards) => guards.state_changed(from).await,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::One(guard) => guard.remaining(),
            Self::Leads(term) => term.remaining(),
            Self::Several(guards) => guards.remaining(),
        }
    }

    /// The shortest of them: all have the same but for the limits of their time.
    pub(crate) fn lease(&self) -> Duration {
        self.guards().iter().map(|guard| guard.lease()).min().unwrap_or_default()
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        match self {
            Self::One(guard) => guard.lost_reason(),
            Self::Leads(term) => term.lost_reason(),
            Self::Several(guards) => guards.lost_reason(),
        }
    }

    /// What the store says instead of renewing it; `None` if it renews it, or says nothing.
    pub(crate) fn refusal(&self) -> Option<String> {
        let errors = self.guards().into_iter().filter_map(Guard::renewal_error);
        errors.map(|error| (error.kind(), error.to_string())).find_map(|(kind, text)| {
            // Of a server that is not there, the reason is the network's, and changes with each try. A file says what
            // is wrong with it.
            let spoke = kind != ErrorKind::Unavailable
                || text.contains("the server ")
                || text.contains("the file ")
                || text.contains("of the file was removed or replaced");
            spoke.then_some(text)
        })
    }

    pub(crate) async fn release(self) -> Result<Release, Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Leads(term) => term.resign().await,
            Self::Several(guards) => guards.release().await,
        }
    }
}
