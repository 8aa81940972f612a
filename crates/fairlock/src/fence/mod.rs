//! Exclusion inside a database: two SQL statements that refuse a holder after a later one has begun to work, without
//! trusting a clock or a lease.
//!
//! A holder that is paused beyond its lease writes on when it wakes up, and a lock store that loses its data grants a lock
//! twice. Tokens keep rising in both cases. If the resource is a SQL database, two functions in *that* database compare
//! them:
//!
//! 1. **take**: once for each hold, in a transaction of its own, before the first work. Raises the token of the name, and
//!    waits until open transactions of former holders have ended.
//! 2. **fence**: the first statement of each transaction. Fails if a later holder has taken the fence; until the
//!    transaction ends, no later holder can.
//!
//! [`postgres::install`] returns the script that creates both, which `fairlock fence-sql` prints. A transaction under the
//! lock `invoices`, with any driver:
//!
//! ```sql
//! SELECT fairlock.fairlock_take('invoices', 1795983983919892, 'production');
//!
//! BEGIN;
//! SELECT fairlock.fairlock_fence('invoices', 1795983983919892);
//! UPDATE invoice SET paid = true WHERE id = 42;
//! COMMIT;
//! ```
//!
//! If one of them fails, [`refused`] tells why:
//!
//! ```
//! # use fairlock::fence::{self, Refusal};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fairlock::Error> {
//! # let client = fairlock::Client::connect("memory:").await?;
//! let guard = client.fair_lock("invoices").lock().await?;
//! // From the driver's error; with tokio-postgres, `error.code().map(|state| state.code())`.
//! let sqlstate = "LK001";
//! assert_eq!(fence::refused(guard.token(), sqlstate), Some(Refusal::Lost));
//! # Ok(())
//! # }
//! ```
//!
//! The token is [`Guard::token`](crate::Guard::token), also of an election's [`Term`](crate::Term). Readers
//! that read at the same time share a token and pass together. Permits of a semaphore have different tokens, so a fence
//! would let only the newest of them pass: do not use one. Several names need a fence each.
//!
//! The store is any text that names the lock store, the same in all programs that use the fence: tokens of two stores are
//! not ordered, so a name belongs to the store that took it first.

pub mod postgres;
pub mod sqlite;

use crate::observe;
use fairlock_core::Token;
use std::fmt;

/// Why the database refused a take or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// A later holder has taken the fence. Stop this work and acquire the lock again.
    Lost,
    /// This token was not taken, or the database failed over and lost the take. Take the fence, then repeat the
    /// transaction.
    NotTaken,
    /// The name belongs to another lock store.
    OtherStore,
    /// The call is wrong: take and fence in one transaction, or a value out of range.
    Misused,
    /// A transaction of a former holder, or a take, is still open. Repeat the call while the guard is valid.
    Blocked,
}

impl Refusal {
    /// Recognizes a refusal by its SQLSTATE; `None` for other errors of the database.
    ///
    /// A transaction that fails with `40001` (serialization failure) may have met a later holder, too: it tells when the
    /// transaction is repeated.
    pub fn from_sqlstate(sqlstate: &str) -> Option<Self> {
        Some(match sqlstate {
            "LK001" => Self::Lost,
            "LK002" => Self::NotTaken,
            "LK003" => Self::OtherStore,
            "LK004" => Self::Misused,
            // lock_not_available: the lock_timeout of a take.
            "55P03" => Self::Blocked,
            _ => return None,
        })
    }

    /// Its name in metrics and logs.
    fn label(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NotTaken => "not_taken",
            Self::OtherStore => "other_store",
            Self::Misused => "misused",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "a later holder has taken the fence: stop and acquire the lock again",
            Self::NotTaken => {
                "the token was not taken: take the fence, then repeat the transaction"
            }
            Self::OtherStore => "the fence belongs to another lock store",
            Self::Misused => "the fence was used in a wrong way",
            Self::Blocked => "another transaction of the fence is still open: repeat the call",
        })
    }
}

impl std::error::Error for Refusal {}

/// As [`Refusal::from_sqlstate`], for errors of take and fence only. Counts the refusal in the metric
/// `fairlock_fence_refusals_total`, and logs [`Refusal::Lost`] as a warning, with the token.
pub fn refused(token: Token, sqlstate: &str) -> Option<Refusal> {
    let refusal = Refusal::from_sqlstate(sqlstate)?;
    observe::fence_refused(refusal.label(), token, refusal == Refusal::Lost);
    Some(refusal)
}
