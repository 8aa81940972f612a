//! The only place where a key or a channel gets its name (docs/protocol.md, "Keys and channels").

use super::reply;
use super::slots;
use crate::store::{Event, Topic};
use fairlock_core::{ClientId, Kind, LockName, Op, OwnerId, RequestId};

/// Prefix of the inbox channels of our clients; the client id follows.
pub(crate) const INBOX_PREFIX: &str = "fairlock_inbox:";

/// Prefix of the channel of a latch.
const LATCH_CHANNEL: &[u8] = b"redisson_countdownlatch__channel__";
/// Prefix of the key of an announcement, and of the channel of the same name.
const LEADER: &str = "fairlock_leader";

/// How the messages of a script are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publishing {
    /// To all listeners, in a Cluster on any node.
    Whole,
    /// To listeners on a node of the lock's slot.
    Sharded,
}

impl Publishing {
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Whole => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }

    /// The prefix of inbox channels for grants of this lock.
    pub(crate) fn inbox_prefix(self, name: &LockName) -> Vec<u8> {
        self.inbox_prefix_parts(name).concat()
    }

    /// The same in parts.
    pub(crate) fn inbox_prefix_parts(self, name: &LockName) -> Parts<'_> {
        let prefix = INBOX_PREFIX.as_bytes();
        match self {
            Self::Whole => [prefix, b"", b"", b""],
            Self::Sharded => [prefix, b"{", slots::tag(name.as_bytes()), b"}:"],
        }
    }
}

/// The parts of a key or a channel. A call is encoded from them, so that its keys cost no
/// allocations.
pub(crate) type Parts<'a> = [&'a [u8]; 4];

/// Prefixes of the keys of read-write locks: leases, holds, order, state, beats.
const READ_WRITE: [&str; 5] = [
    "fairlock_rw_leases",
    "fairlock_rw_holds",
    "fairlock_rw_order",
    "fairlock_rw_state",
    "fairlock_rw_beats",
];

/// The same for semaphores.
const SEMAPHORE: [&str; 5] = [
    "fairlock_sem_leases",
    "fairlock_sem_holds",
    "fairlock_sem_order",
    "fairlock_sem_state",
    "fairlock_sem_beats",
];

/// The seven keys of a lock, in the order in which every script takes them.
pub(crate) struct Keys {
    name: LockName,
    /// Derived keys have the name in braces, unless it has its own.
    is_wrapped: bool,
}

impl Keys {
    pub(crate) fn new(name: &LockName) -> Self {
        Self { name: name.clone(), is_wrapped: !name.as_bytes().contains(&b'{') }
    }

    fn with<'a>(&'a self, prefix: &'static str) -> Parts<'a> {
        match self.is_wrapped {
            true => [prefix.as_bytes(), b":{", self.name.as_bytes(), b"}"],
            false => [prefix.as_bytes(), b":", self.name.as_bytes(), b""],
        }
    }

    /// A key of ours. Redisson derives the same keys for the locks `a` and `{a}`. Ours differ, so
    /// that no hand-over of one goes to a waiter of the other, which has no record there.
    fn with_ours<'a>(&'a self, prefix: &'static str) -> Parts<'a> {
        match self.is_wrapped {
            true => self.with(prefix),
            false => [prefix.as_bytes(), b"::", self.name.as_bytes(), b""],
        }
    }

    /// All keys of a lock, in parts.
    pub(crate) fn all_parts(&self) -> [Parts<'_>; 7] {
        [
            [self.name.as_bytes(), b"", b"", b""],
            self.with("redisson_lock_queue"),
            self.with("redisson_lock_timeout"),
            self.with("redisson_lock_token"),
            self.with_ours("fairlock_order"),
            self.with_ours("fairlock_state"),
            self.with_ours("fairlock_beats"),
        ]
    }

    /// The same for an operation: the kinds that several may hold at once have keys of their own.
    pub(crate) fn parts_of(&self, op: &Op) -> [Parts<'_>; 7] {
        if matches!(op, Op::Latch(_)) {
            let [name, _, rest @ ..] = self.all_parts();
            let [a, b, c, d, e] = rest;
            return [name, self.with_ours("fairlock_latch"), a, b, c, d, e];
        }
        match op.kind() {
            Some(Kind::ReadWrite) => self.parts_with(&READ_WRITE),
            Some(Kind::Semaphore) => self.parts_with(&SEMAPHORE),
            _ => self.all_parts(),
        }
    }

    fn parts_with(&self, prefixes: &[&'static str; 5]) -> [Parts<'_>; 7] {
        let [leases, holds, order, state, beats] = prefixes.map(|prefix| self.with_ours(prefix));
        let (name, token) =
            ([self.name.as_bytes(), b"", b"", b""], self.with("redisson_lock_token"));
        [name, leases, holds, token, order, state, beats]
    }

    /// Further keys that the operation names: the queues of other kinds of locks, if it may make an owner wait for a
    /// share; the announcement, if it is about that.
    pub(crate) fn others_parts(&self, op: &Op) -> Vec<Parts<'_>> {
        let ask = match op {
            Op::AcquireShare(ask) => ask,
            Op::Announce(_) | Op::Leader => return vec![self.with_ours(LEADER)],
            _ => return Vec::new(),
        };
        let other = match ask.acquire.kind {
            Kind::Semaphore => READ_WRITE,
            _ => SEMAPHORE,
        };
        vec![self.with("redisson_lock_queue"), self.with_ours(other[2])]
    }

    /// The key that tells Redisson how long a reader of ours lives, for an owner that does not exist: with it, the
    /// permission to write such keys is tried. Scripts make the names of the real ones themselves.
    pub(crate) fn reader_timeout(&self) -> Vec<u8> {
        let [_, _, name, _] = self.with("");
        let (open, close): (&[u8], &[u8]) = if self.is_wrapped { (b"{", b"}") } else { (b"", b"") };
        [open, name, close, b":00000000-0000-0000-0000-000000000000:1:rwlock_timeout:1"].concat()
    }

    /// Marks a request that was given up while a copy of it was under way.
    #[cfg_attr(not(test), allow(dead_code, reason = "calls are encoded from parts"))]
    pub(crate) fn buried(&self, request: RequestId) -> Vec<u8> {
        self.buried_parts(&request.to_text()).concat()
    }

    /// The same in parts; `request` is the text of its id.
    pub(crate) fn buried_parts<'a>(&'a self, request: &'a [u8]) -> [&'a [u8]; 6] {
        let [prefix, between, name, end] = self.with_ours("fairlock_buried");
        [prefix, between, name, end, b":", request]
    }

    /// The key of the request that an operation names.
    pub(crate) fn request_parts<'a>(&'a self, op: &Op, request: &'a [u8]) -> [&'a [u8]; 6] {
        let mut parts = self.buried_parts(request);
        if matches!(op, Op::Latch(_)) {
            parts[0] = b"fairlock_counted";
        }
        parts
    }

    /// The channel of a latch of this name. Redisson adds braces always, also around a name with
    /// braces.
    pub(crate) fn latch_channel(&self) -> Vec<u8> {
        [LATCH_CHANNEL, b"{", self.name.as_bytes(), b"}"].concat()
    }

    /// Written and removed, so that there is something for replicas to acknowledge.
    pub(crate) fn replicated(&self) -> Vec<u8> {
        self.with_ours("fairlock_replicated").concat()
    }

    /// The holder's announcement, and the channel on which it is published.
    pub(crate) fn leader(&self) -> Vec<u8> {
        self.with_ours(LEADER).concat()
    }

    /// The kind as which the lock was last granted.
    pub(crate) fn kind(&self) -> Vec<u8> {
        self.with_ours("fairlock_kind").concat()
    }

    /// The base channel.
    pub(crate) fn base(&self) -> Vec<u8> {
        self.with("redisson_lock__channel").concat()
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

/// The channel of a client's grants of a lock, and of all others with its tag, if channels have
/// slots.
pub(crate) fn sharded_inbox(name: &LockName, client: ClientId) -> Vec<u8> {
    let mut channel = Publishing::Sharded.inbox_prefix(name);
    channel.extend_from_slice(client.to_string().as_bytes());
    channel
}

/// A channel of the same form that belongs to no lock.
pub(crate) fn own_inbox(client: ClientId) -> Vec<u8> {
    format!("{INBOX_PREFIX}{{{client}}}:{client}").into_bytes()
}

/// The record of a client. It belongs to no lock, and no lock's name begins like it.
pub(crate) fn client(client: ClientId) -> Vec<u8> {
    format!("fairlock_client:{client}").into_bytes()
}

/// The line of those who wait for a share of the lock, as a read-write lock or as a semaphore.
pub(crate) fn line(name: &LockName, kind: Kind) -> Vec<u8> {
    let prefixes = if kind == Kind::Semaphore { SEMAPHORE } else { READ_WRITE };
    Keys::new(name).with_ours(prefixes[2]).concat()
}

/// Matches every key that [`locks_of`] turns into a name, in the server's pattern language.
pub(crate) const LISTED: &str = "redisson_lock_*";

/// The locks that `key` may belong to, if it is a queue or a token. Every lock that we granted has
/// a token, and every lock with waiters, Java's included, has a queue. `x` and `{x}` share theirs.
pub(crate) fn locks_of(key: &[u8]) -> Option<Family> {
    let prefixes = ["redisson_lock_token:", "redisson_lock_queue:"];
    let tagged = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix.as_bytes()))?;
    let own = tagged.contains(&b'{').then(|| LockName::new(tagged).ok()).flatten();
    let inner = tagged.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    let inner = inner.filter(|name| !name.contains(&b'{'));
    let inner = inner.and_then(|name| LockName::new(name).ok());
    let (name, twin) = match inner {
        Some(inner) => (inner, own),
        None => (own?, None),
    };
    Some(Family { name, twin })
}

/// A lock, and the other one, if any, that has the same queue and token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Family {
    pub(crate) name: LockName,
    pub(crate) twin: Option<LockName>,
}

impl Family {
    /// The key of their queue.
    pub(crate) fn queue(&self) -> Vec<u8> {
        Keys::new(&self.name).with("redisson_lock_queue").concat()
    }
}

/// The event of a message on a topic: Java's clients report that a lock was released, ours that
/// they lead.
pub(crate) fn woken(topic: Topic, payload: &[u8]) -> Event {
    match (&topic, payload) {
        (Topic::Latch(name), b"0") => Event::CountedDown(name.clone()),
        (Topic::Leader(_), payload) if reply::is_leader_message(payload) => Event::Wake(topic),
        (Topic::Leader(_), _) => Event::Invalid,
        (_, b"0") => Event::Wake(topic),
        // A latch was set or deleted.
        (Topic::Latch(_), b"1") => Event::Wake(topic),
        // A writer has ended, and readers may follow.
        (Topic::ReadWrite(_), b"1") => Event::Wake(topic),
        _ => Event::Invalid,
    }
}

/// The channel behind a topic.
pub(crate) fn topic(topic: &Topic) -> Vec<u8> {
    match topic {
        Topic::Base(name) => Keys::new(name).base(),
        Topic::Waiter(name, owner) => Keys::new(name).waiter(owner),
        Topic::ReadWrite(name) => Keys::new(name).with("redisson_rwlock").concat(),
        Topic::Latch(name) => Keys::new(name).latch_channel(),
        Topic::Leader(name) => Keys::new(name).leader(),
        // One for all locks; for one per slot, see `sharded_inbox`.
        Topic::Inbox(_) => INBOX_PREFIX.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keys {
        pub(crate) fn all(&self) -> [Vec<u8>; 7] {
            self.all_parts().map(|parts| parts.concat())
        }
    }

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

    /// A listing turns the keys that it finds back into names.
    #[test]
    fn keys_lead_back_to_their_locks() {
        let of = |key: &str| {
            let family = locks_of(key.as_bytes());
            family.map(|f| (f.name.to_string(), f.twin.map(|twin| twin.to_string())))
        };
        let one = |name: &str| Some((name.to_owned(), None));
        let two = |name: &str, twin: &str| Some((name.to_owned(), Some(twin.to_owned())));
        for (tagged, expected) in [
            ("{job}", two("job", "{job}")),
            ("a{b}c", one("a{b}c")),
            ("a{b", one("a{b")),
            ("{a}b}", two("a}b", "{a}b}")),
            ("{{a}}", one("{{a}}")),
            // `{}` is a name; the empty text is not.
            ("{}", one("{}")),
            ("{redisson_lock_queue:x}", one("{redisson_lock_queue:x}")),
            ("bare", None),
            ("", None),
        ] {
            for kind in ["token", "queue"] {
                assert_eq!(of(&format!("redisson_lock_{kind}:{tagged}")), expected, "{tagged}");
            }
        }
        for key in
            ["redisson_lock_timeout:{job}", "redisson_lock_token", "fairlock_state:{job}", "job"]
        {
            assert_eq!(of(key), None, "{key}");
        }
        for name in ["job", "{job}", "a{b}c", "a{b", "a}b", "{", "}", "{}", "}{", "{a}{b}", "{{x}}"]
        {
            let name = LockName::new(name.as_bytes()).unwrap();
            let all = Keys::new(&name).all();
            for key in [&all[1], &all[3]] {
                assert!(key.starts_with(LISTED.trim_end_matches('*').as_bytes()));
                let family = locks_of(key).unwrap();
                assert!(family.name == name || family.twin == Some(name.clone()), "{name}");
                assert_eq!(family.queue(), all[1], "{name}");
            }
        }
    }
}
