//! The names that Redisson gives the keys and channels of a fair lock. The lock itself is a hash
//! under the lock's own name.

/// The queue: a list of owner ids, head first.
pub fn queue_key(lock: &str) -> String {
    prefixed("redisson_lock_queue", lock)
}

/// The sorted set of the times at which waiters count as dead, in milliseconds of their client's
/// clock.
pub fn timeout_key(lock: &str) -> String {
    prefixed("redisson_lock_timeout", lock)
}

/// The last token of a fenced lock.
pub fn token_key(lock: &str) -> String {
    prefixed("redisson_lock_token", lock)
}

/// The channel of a lock; for fair locks only the prefix of [`channel_of`].
pub fn channel(lock: &str) -> String {
    prefixed("redisson_lock__channel", lock)
}

/// The channel on which one waiter is woken.
pub fn channel_of(lock: &str, owner: &str) -> String {
    format!("{}:{owner}", channel(lock))
}

/// The key that remembers the answer to one unlock request.
pub(super) fn latch_key(lock: &str, request_id: &str) -> String {
    format!("{}:{request_id}", prefixed("redisson_unlock_latch", lock))
}

/// A name that contains a brace already determines its slot in a Cluster.
pub(super) fn prefixed(prefix: &str, lock: &str) -> String {
    if lock.contains('{') { format!("{prefix}:{lock}") } else { format!("{prefix}:{{{lock}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_redissons() {
        assert_eq!(queue_key("a"), "redisson_lock_queue:{a}");
        assert_eq!(timeout_key("x{a}y"), "redisson_lock_timeout:x{a}y");
        assert_eq!(channel_of("a", "u:1"), "redisson_lock__channel:{a}:u:1");
        assert_eq!(latch_key("a", "0f"), "redisson_unlock_latch:{a}:0f");
    }
}
