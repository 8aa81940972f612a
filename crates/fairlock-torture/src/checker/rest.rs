//! What is left when everybody has gone (H1): no hold, nobody in a queue but the killed, and nothing for ever.

use std::time::Duration;

/// A key that is left, and for how long; no time: for ever.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) key: String,
    pub(crate) ttl: Option<Duration>,
}

const TOKEN: &str = "redisson_lock_token:";

/// Keys that may be left for a while: tokens for a day, the rest of a queue whose last waiter was killed
/// for one, burials and records of clients for a minute or two.
const MAY: [(&str, Duration); 4] = [
    (TOKEN, Duration::from_secs(7 * 24 * 3600)),
    ("redisson_lock_queue:", Duration::from_secs(24 * 3600)),
    ("redisson_lock_timeout:", Duration::from_secs(24 * 3600)),
    ("fairlock_", Duration::from_secs(120)),
];

/// What is wrong with it. Asked when the longest lease is over. `lost_registry`: order or records of a queue were
/// lost in the run. Dead waiters without them look like Java's, and a series beside those has no end.
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
