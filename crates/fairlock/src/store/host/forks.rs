//! SQLite does not survive a fork: the child has a copy of its lock tables, but not the locks.
//!
//! A connection that the child opens to the same file would take the parent's locks for its own,
//! and could write without holding any. Besides, a thread of the parent may have been inside SQLite
//! at the fork, holding a mutex that nobody will unlock. So a child whose parent had a file open at
//! the fork cannot open any. The check reads a single atomic: a mutex of ours could be locked
//! forever, too.

use crate::base::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that uses SQLite, and how many files it has open: id and count, 32 bits each.
static USERS: AtomicU64 = AtomicU64::new(0);

/// One open file of this process.
#[derive(Debug)]
pub(super) struct User(());

impl User {
    /// Registers one more file.
    ///
    /// # Errors
    /// This process is the child of one that had a file open when it forked.
    pub(super) fn new() -> Result<Self, Error> {
        let own = u64::from(std::process::id()) << 32;
        let more = |users: u64| {
            let (process, count) = (users >> 32 << 32, users & u64::from(u32::MAX));
            (count == 0 || process == own).then_some(own | (count + 1))
        };
        match USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(())),
            Err(_) => Err(Error::misuse(
                "this process was forked from one that has a host store open, and SQLite cannot be used \
                 after that; connect after fork() in both, or let the child exec",
            )),
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // A child drops nothing that belongs to its parent.
        USERS.fetch_sub(1, Ordering::Relaxed);
    }
}
