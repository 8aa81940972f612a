//! The user who runs this program, as the system's user database has it.
//!
//! The environment is not used: `HOME` differs between a login shell, cron, `sudo` and `env -i`, and
//! two runs of one user that use locks in different folders do not exclude each other.

use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{Uid, User};

use crate::base::exit::{Code, Failure};

/// The effective user, who owns the files that this process creates.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) uid: u32,
    /// The name; a container may run under a number without one.
    pub(super) name: Option<String>,
    /// The home according to the database. It need not exist.
    pub(super) home: Option<PathBuf>,
}

impl Account {
    /// Queries the database. A failure (a directory server that does not answer) is an error: a guess
    /// could lead to another store than that of the next run.
    pub(super) fn current() -> Result<Self, Failure> {
        let uid = Uid::effective();
        let entry = match User::from_uid(uid) {
            Ok(entry) => entry,
            // Some databases report an unknown number this way.
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

    /// Name and number, for people.
    pub(super) fn describe(&self) -> String {
        match &self.name {
            Some(name) => format!("user {name} ({})", self.uid),
            None => format!("user {} (without a name)", self.uid),
        }
    }
}
