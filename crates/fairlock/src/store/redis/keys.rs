//! The only place where a key or a channel gets its name (docs/protocol.md, "Keys and channels").

use crate::store::Topic;
use fairlock_core::{ClientId, LockName, OwnerId, RequestId};

/// Prefix of the inbox channels of our clients; the client id follows.
pub(crate) const INBOX_PREFIX: &str = "fairlock_inbox:";

/// The seven keys of a lock, in the order in which every script takes them.
pub(crate) struct Keys {
    name: LockName,
    /// The name as it stands inside derived keys: in braces, unless it brings its own.
    tagged: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(name: &LockName) -> Self {
        let bytes = name.as_bytes();
        let mut tagged = Vec::with_capacity(bytes.len() + 2);
        if bytes.contains(&b'{') {
            tagged.extend_from_slice(bytes);
        } else {
            tagged.push(b'{');
            tagged.extend_from_slice(bytes);
            tagged.push(b'}');
        }
        Self { name: name.clone(), tagged }
    }

    fn with(&self, prefix: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(prefix.len() + 1 + self.tagged.len());
        key.extend_from_slice(prefix.as_bytes());
        key.push(b':');
        key.extend_from_slice(&self.tagged);
        key
    }

    /// A key of ours. Redisson derives the same keys for the locks `a` and `{a}`; ours differ, so
    /// that no hand-over of the one goes to a waiter of the other: it stands there without a
    /// record.
    fn with_ours(&self, prefix: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(prefix.len() + 2 + self.tagged.len());
        key.extend_from_slice(prefix.as_bytes());
        key.push(b':');
        if self.tagged == self.name.as_bytes() {
            key.push(b':');
        }
        key.extend_from_slice(&self.tagged);
        key
    }

    pub(crate) fn all(&self) -> [Vec<u8>; 7] {
        [
            self.name.as_bytes().to_vec(),
            self.with("redisson_lock_queue"),
            self.with("redisson_lock_timeout"),
            self.with("redisson_lock_token"),
            self.with_ours("fairlock_order"),
            self.with_ours("fairlock_state"),
            self.with_ours("fairlock_beats"),
        ]
    }

    /// Marks a request that was given up while a copy of it was under way.
    pub(crate) fn buried(&self, request: RequestId) -> Vec<u8> {
        let mut key = self.with_ours("fairlock_buried");
        key.extend_from_slice(format!(":{request}").as_bytes());
        key
    }

    /// The base channel.
    pub(crate) fn base(&self) -> Vec<u8> {
        self.with("redisson_lock__channel")
    }

    /// The channel of one waiter.
    fn waiter(&self, owner: &OwnerId) -> Vec<u8> {
        let mut channel = self.base();
        channel.push(b':');
        channel.extend_from_slice(&owner.to_bytes());
        channel
    }
}

/// The channel of a client's grants.
pub(crate) fn inbox(client: ClientId) -> Vec<u8> {
    format!("{INBOX_PREFIX}{client}").into_bytes()
}

/// The record of a client: it is of no lock, and no lock's name begins like it.
pub(crate) fn client(client: ClientId) -> Vec<u8> {
    format!("fairlock_client:{client}").into_bytes()
}

/// The channel behind a topic.
pub(crate) fn topic(topic: &Topic) -> Vec<u8> {
    match topic {
        Topic::Base(name) => Keys::new(name).base(),
        Topic::Waiter(name, owner) => Keys::new(name).waiter(owner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_redissons() {
        let table: [(&str, &str, &str); 4] = [
            ("job", "redisson_lock_queue:{job}", "redisson_lock__channel:{job}"),
            ("a{b}c", "redisson_lock_queue:a{b}c", "redisson_lock__channel:a{b}c"),
            ("a{b", "redisson_lock_queue:a{b", "redisson_lock__channel:a{b"),
            ("a}b", "redisson_lock_queue:{a}b}", "redisson_lock__channel:{a}b}"),
        ];
        for (name, queue, base) in table {
            let keys = Keys::new(&LockName::new(name.as_bytes()).unwrap());
            assert_eq!(keys.all()[0], name.as_bytes());
            assert_eq!(keys.all()[1], queue.as_bytes());
            assert_eq!(keys.base(), base.as_bytes());
        }
        let name = LockName::new(b"job").unwrap();
        let owner = OwnerId::parse(b"5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51");
        assert_eq!(
            topic(&Topic::Waiter(name.clone(), owner)),
            b"redisson_lock__channel:{job}:5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51"
        );
        let all = Keys::new(&name).all();
        let rest: Vec<_> = all[2..].iter().map(|k| String::from_utf8_lossy(k)).collect();
        assert_eq!(
            rest,
            [
                "redisson_lock_timeout:{job}",
                "redisson_lock_token:{job}",
                "fairlock_order:{job}",
                "fairlock_state:{job}",
                "fairlock_beats:{job}",
            ]
        );
        let twin = Keys::new(&LockName::new(b"{job}").unwrap()).all();
        let rest: Vec<_> = twin[1..].iter().map(|k| String::from_utf8_lossy(k)).collect();
        assert_eq!(
            rest,
            [
                "redisson_lock_queue:{job}",
                "redisson_lock_timeout:{job}",
                "redisson_lock_token:{job}",
                "fairlock_order::{job}",
                "fairlock_state::{job}",
                "fairlock_beats::{job}",
            ]
        );
        let request = RequestId::from_random(1);
        assert_eq!(
            Keys::new(&name).buried(request),
            format!("fairlock_buried:{{job}}:{request}").into_bytes()
        );
    }
}
