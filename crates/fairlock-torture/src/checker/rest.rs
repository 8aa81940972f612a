//! What remains when all clients have left (H1): no hold, no waiters except killed ones, and no key
//! without a TTL.

use std::time::Duration;

/// A remaining key and its TTL; `None` means that it never expires.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) key: String,
    pub(crate) ttl: Option<Duration>,
}

const TOKEN: &str = "redisson_lock_token:";

/// Keys that may remain for a while: tokens and kinds, the queue whose last waiter was killed, and burials
/// and client records.
const MAY: [(&str, Duration); 5] = [
    (TOKEN, Duration::from_secs(7 * 24 * 3600)),
    ("redisson_lock_queue:", Duration::from_secs(24 * 3600)),
    ("redisson_lock_timeout:", Duration::from_secs(24 * 3600)),
    ("fairlock_kind:", Duration::from_secs(24 * 3600)),
    ("fairlock_", Duration::from_secs(120)),
];

/// Returns what is wrong with the remaining keys, once the longest lease has expired.
/// `lost_registry`: order or records of a queue were lost in the run; dead waiters without these
/// look like Redisson's, and a token series next to Redisson's waiters does not expire.
pub(crate) fn check(left: &[Left], lost_registry: bool) -> Vec<String> {
    let wrong = |Left { key, ttl }: &Left| {
        let Some(ttl) = ttl else {
            let may = lost_registry && key.starts_with(TOKEN);
            return (!may).then(|| format!("{key} is left for ever"));
        };
        match MAY.iter().find(|(prefix, _)| key.starts_with(prefix)) {
            None => Some(format!("{key} is still held, for {} ms", ttl.as_millis())),
            Some((_, longest)) if ttl > longest => {
                Some(format!("{key} is left for {} s", ttl.as_secs()))
            }
            Some(_) => None,
        }
    };
    left.iter().filter_map(wrong).collect()
}
