//! Warns once if a lock was last used as another kind. A run whose stderr is a log warns as well: two entries of a crontab
//! may use one name as two kinds for months before they run at the same time.

use fairlock::{Check, Client};

use super::args::Run;
use crate::base::message;

/// The warning of one run.
#[derive(Debug)]
pub(super) struct KindNotice {
    client: Client,
    told: bool,
}

impl KindNotice {
    pub(super) fn new(client: Client, args: &Run) -> Self {
        Self { client, told: args.quiet }
    }

    /// Writes what the client has found since.
    pub(super) fn look(&mut self) {
        if self.told {
            return;
        }
        for warning in self.client.warnings().iter().filter(|it| it.check() == Check::Kind) {
            self.told = true;
            message::report(&format!("warning: {warning}"));
        }
    }
}
