//! One line if a lock was last used as another kind. Also in logs: the runs of a crontab are those that meet in one night,
//! and after one run as each kind the line is not written again unless both are in use.

use fairlock::{Check, Client};

use super::args::Run;
use crate::base::message;

/// Whether it was written.
#[derive(Debug)]
pub(super) struct KindNotice {
    told: bool,
}

impl KindNotice {
    pub(super) fn new(args: &Run) -> Self {
        Self { told: args.quiet }
    }

    /// Writes what the client has found since.
    pub(super) fn look(&mut self, client: &Client) {
        if self.told {
            return;
        }
        for warning in client.warnings().iter().filter(|it| it.check() == Check::Kind) {
            self.told = true;
            message::report(&format!("warning: {warning}"));
        }
    }
}
