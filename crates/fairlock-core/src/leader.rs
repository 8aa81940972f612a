//! The announcement of a lock's holder, such as an election's leader. It ends and grants nothing,
//! so no other operation looks at it. It counts only as long as its owner holds the lock under its
//! token.

use crate::id::OwnerId;
use crate::rules::Token;

/// The announcement of a lock, as it is stored. Times are server milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// Who announced it.
    pub owner: OwnerId,
    /// Identifies the hold.
    pub token: Token,
    /// Number of the change.
    pub change: u64,
    /// When the hold was first announced.
    pub since_ms: u64,
    /// The announced value.
    pub value: Vec<u8>,
    /// TTL of the announcement.
    pub expires: u64,
}
