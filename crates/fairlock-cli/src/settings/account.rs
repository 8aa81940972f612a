//! Who runs this program, by the system's user database.
//!
//! Not by the environment: `HOME` differs between a login shell, cron, `sudo` and `env -i`, and two
//! runs of one user that look for their locks in different folders do not exclude each other.

use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{Uid, User};

use crate::base::exit::{Code, Failure};

/// The effective user: files that are created belong to it.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) uid: u32,
    /// Its name; a container may run under a number that has none.
    pub(super) name: Option<String>,
    /// Its home as the database has it; whether it exists is another question.
    pub(super) home: Option<PathBuf>,
}

impl Account {
    /// Asks the database. A database that fails (a directory server that does not answer) is an
    /// error: a guess could be another store than the one of the next run.
    pub(super) fn current() -> Result<Self, Failure> {
        let uid = Uid::effective();
        let entry = match User::from_uid(uid) {
            Ok(entry) => entry,
            // How some of them say "nobody of that number".
            Err(Errno::ENOENT | Errno::ESRCH) => None,
            Err(error) => {
                let reason = format!("the user database says nothing of user {uid}: {error}");
                return Err(Failure::new(Code::UNAVAILABLE, reason));
            }
        };
        Ok(Self {
            uid: uid.as_raw(),
            name: entry.as_ref().map(|entry| entry.name.clone()),
            home: entry.map(|entry| entry.dir).filter(|dir| dir.is_absolute()),
        })
    }

    /// For people: name and number.
    pub(super) fn describe(&self) -> String {
        match &self.name {
            Some(name) => format!("user {name} ({})", self.uid),
            None => format!("user {} (without a name)", self.uid),
        }
    }
}
