//! Redisson's clients in Java among the owners of other programs.

use fairlock::LockStatus;

/// Length of a UUID, in bytes.
const UUID: usize = 36;

/// Where a UUID has its version.
const VERSION: usize = 14;

/// Whether the owner's id is one of Redisson's: a UUID of version 4, a colon, and more. Ours are of version 8.
pub(crate) fn is_java(owner: &str) -> bool {
    let bytes = owner.as_bytes();
    let is_of_uuid = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        VERSION => *byte == b'4',
        _ => byte.is_ascii_hexdigit(),
    };
    bytes.len() > UUID + 1
        && bytes[UUID] == b':'
        && bytes[..UUID].iter().enumerate().all(is_of_uuid)
}

/// Whether a Java client is among the holders.
pub(crate) fn holds(status: &LockStatus) -> bool {
    status.holders.iter().any(|holder| is_java(&holder.owner.to_string()))
}

/// What is shown of a waiter of another program, which sends no heartbeats.
pub(crate) fn not_known_whether_alive(waiter: &str) -> &'static str {
    if is_java(waiter) { "Java: not known whether alive" } else { "not known whether alive" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_is_told_from_ours_and_from_others() {
        for java in [
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51",
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:-7",
            // In a transaction.
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51:5f3c1a52",
        ] {
            assert!(is_java(java), "{java}");
        }
        for other in [
            "",
            "theirs",
            "5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51",
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab",
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:",
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890abc:51",
            "5f3c1a5200f4e-4a1b-9c3d-1234567890ab:51",
            "5f3c1a5x-0f4e-4a1b-9c3d-1234567890ab:51",
        ] {
            assert!(!is_java(other), "{other}");
        }
    }
}
