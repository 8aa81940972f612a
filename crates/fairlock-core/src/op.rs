//! The vocabulary that every store speaks: operations, replies and effects.

use crate::id::{ClientId, OwnerId, RequestId};
use crate::latch::{LatchOp, LatchSeen};
use crate::not_a_lock::NotALock;
use crate::rules::Token;
use crate::share::Share;
use std::fmt;

/// The kind of a lock. Fair and plain locks use the same hash, a simple lock uses a string instead;
/// all use the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Kind {
    /// First in, first out; Redisson's `RFairLock`.
    Fair,
    /// No order; Redisson's `RLock`.
    Plain,
    /// No order; one string, like the lock of every client that uses `SET key value NX PX`.
    Simple,
    /// First in, first out: one writer, or any number of readers.
    ReadWrite,
    /// First in, first out: as many holders as there are permits.
    Semaphore,
}

// The other crates of this workspace ask these instead of matching, because there a new kind would be a `_`. Functions,
// not methods: `Kind` is a part of the library's API.

/// Returns whether waiters for a lock of this kind stand in a queue, in order of arrival.
pub const fn has_queue(kind: Kind) -> bool {
    match kind {
        Kind::Fair | Kind::ReadWrite | Kind::Semaphore => true,
        Kind::Plain | Kind::Simple => false,
    }
}

/// Returns whether a lock of this kind can have such a share, with as many permits. Not a method, because [`Share`] is
/// part of the library's API.
pub const fn is_share_of(kind: Kind, share: Share) -> bool {
    match (kind, share) {
        (Kind::Semaphore, Share::Permits { n, limit }) => 0 < n && n <= limit,
        (Kind::ReadWrite, Share::Whole | Share::Read)
        | (Kind::Fair | Kind::Plain | Kind::Simple, Share::Whole) => true,
        _ => false,
    }
}

/// Returns whether several may hold a lock of this kind at once, each with a [`Share`].
pub const fn is_shared(kind: Kind) -> bool {
    match kind {
        Kind::ReadWrite | Kind::Semaphore => true,
        Kind::Fair | Kind::Plain | Kind::Simple => false,
    }
}

/// Returns whether a lock of this kind is a string, which has no hold count, instead of a hash.
pub const fn is_string(kind: Kind) -> bool {
    match kind {
        Kind::Simple => true,
        Kind::Fair | Kind::Plain | Kind::ReadWrite | Kind::Semaphore => false,
    }
}

/// Returns the name of a kind in metrics and events: `fair`, `plain`, `simple`, `rw`, `semaphore`.
pub const fn kind_label(kind: Kind) -> &'static str {
    match kind {
        Kind::Fair => "fair",
        Kind::Plain => "plain",
        Kind::Simple => "simple",
        Kind::ReadWrite => "rw",
        Kind::Semaphore => "semaphore",
    }
}

/// Returns the kind with this [label](kind_label).
pub fn kind_of_label(label: &[u8]) -> Option<Kind> {
    let kinds = [Kind::Fair, Kind::Plain, Kind::Simple, Kind::ReadWrite, Kind::Semaphore];
    kinds.into_iter().find(|kind| kind_label(*kind).as_bytes() == label)
}

/// Whether an acquisition waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Take the lock now or leave nothing behind.
    Try,
    /// Join the queue (for a plain lock, which has none, the reply contains when to look again).
    Wait,
}

/// An attempt to get the lock, or to return to its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The lock's kind.
    pub kind: Kind,
    /// Who wants it.
    pub owner: OwnerId,
    /// This attempt; the same in every copy of it that is sent.
    pub request: RequestId,
    /// The TTL of the hold, in milliseconds.
    pub lease_ms: u64,
    /// Whether it waits.
    pub mode: Mode,
    /// The order number of an entry that was removed and now returns; `None` for a new one.
    pub order: Option<u64>,
    /// Refused if executed later than this server time (milliseconds since 1970).
    pub not_after_ms: u64,
    /// Count this waiter as reachable without checking that its inbox has a subscriber.
    pub sure: bool,
    /// The owner is used by more than one request, so the grant must be recorded even if nobody
    /// waits.
    pub shared_owner: bool,
}

/// An attempt to get a share of a lock, or to return to its line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShareAcquire {
    /// The attempt.
    pub acquire: Acquire,
    /// The share that it wants.
    pub share: Share,
}

/// The announcement of a fair lock's holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announce {
    /// The holder.
    pub owner: OwnerId,
    /// Identifies the hold.
    pub token: Token,
    /// Number of this change of the announcement, rising; a delayed copy of an older change is refused.
    pub change: u64,
    /// For how long it is kept, in milliseconds from now.
    pub ttl_ms: u64,
    /// At most [`ANNOUNCED_BYTES_MAX`](crate::ANNOUNCED_BYTES_MAX).
    pub value: Vec<u8>,
}

/// An operation on the hold of a share. Readers at the same time have one token, and an owner may be used again, so
/// owner and token do not identify the hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OfHold {
    /// The lock's kind.
    pub kind: Kind,
    /// The request that got the hold.
    pub request: RequestId,
    /// A store that has lost the hold's record takes the request of a renewal or a re-entry that it executes up to this
    /// server time, in milliseconds since 1970.
    pub not_after_ms: u64,
    /// A release, renewal, re-entry or downgrade.
    pub op: Op,
}

/// One operation on one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Takes the lock or joins its queue.
    Acquire(Acquire),
    /// Takes a share of the lock or joins its line. Boxed, so that it does not make the other operations larger.
    AcquireShare(Box<ShareAcquire>),
    /// Turns a writer into a reader. Readers that are next in the line enter with it.
    Downgrade {
        /// The writer.
        owner: OwnerId,
        /// Identifies the hold, and stays the same.
        token: Token,
    },
    /// The holder enters once more: the hold count becomes `count`.
    Reenter {
        /// The holder.
        owner: OwnerId,
        /// Identifies the hold.
        token: Token,
        /// The absolute count afterwards.
        count: u32,
        /// Number of this change of the hold, rising; a delayed copy of an older change is refused.
        change: u64,
    },
    /// The holder releases everything (`keep` = 0), or all but `keep` holds.
    Release {
        /// The lock's kind.
        kind: Kind,
        /// The holder.
        owner: OwnerId,
        /// Identifies the hold.
        token: Token,
        /// The absolute count afterwards.
        keep: u32,
        /// Number of this change of the hold.
        change: u64,
    },
    /// Sets the TTL of the hold to `ttl_ms` from now.
    Renew {
        /// The lock's kind.
        kind: Kind,
        /// The holder.
        owner: OwnerId,
        /// Identifies the hold.
        token: Token,
        /// Milliseconds from now.
        ttl_ms: u64,
    },
    /// Takes back an attempt that was given up: removes its queue entry, or the hold that it got.
    Leave {
        /// The lock's kind.
        kind: Kind,
        /// Who wanted it.
        owner: OwnerId,
        /// The attempt.
        request: RequestId,
        /// A copy of the attempt may still be under way and must be refused when it arrives.
        bury: bool,
        /// As in [`Acquire::shared_owner`].
        shared_owner: bool,
    },
    /// The heartbeat of a client that waits; asks about `waiters`, the oldest first.
    Beat {
        /// The client.
        client: ClientId,
        /// The waiters asked about; usually the oldest alone.
        waiters: Vec<OwnerId>,
    },
    /// Does only the hand-over with which other operations end; sent after a reply with MORE.
    Nudge,
    /// An operator takes the lock away from its holder.
    Force {
        /// The lock's kind: simple or not.
        kind: Kind,
    },
    /// Looks up the place of a waiter; changes nothing.
    Place {
        /// The waiter.
        owner: OwnerId,
    },
    /// Inspects the lock and changes nothing; at most `limit` waiters are listed.
    Inspect {
        /// The lock's kind: simple or not.
        kind: Kind,
        /// How many waiters to list.
        limit: u32,
    },
    /// Announces a value of the holder to everybody.
    Announce(Box<Announce>),
    /// Looks up who holds the lock, and its announcement; changes nothing.
    Leader,
    /// An operation that does not name the kind of its lock, together with the kind, if several may
    /// hold such a lock at once. For a store that keeps each of these kinds under keys of its own;
    /// see [`Op::on`].
    OfShares(Box<(Kind, Self)>),
    /// An operation on the hold of a share, with the request that got it; see [`Op::of_hold`].
    OfHold(Box<OfHold>),
    /// An operation on a latch, which is not a lock.
    Latch(LatchOp),
}

// No operation is larger because several may hold a lock.
const _: () = assert!(size_of::<Op>() <= 96);

impl Op {
    /// Returns the operation that asks for this share of a lock.
    pub fn asks(acquire: Acquire, share: Share) -> Self {
        match is_shared(acquire.kind) {
            true => Self::AcquireShare(Box::new(ShareAcquire { acquire, share })),
            false => Self::Acquire(acquire),
        }
    }

    /// Returns this operation on a lock of this kind.
    #[must_use]
    pub fn on(self, kind: Kind) -> Self {
        match is_shared(kind) && self.kind().is_none() {
            true => Self::OfShares(Box::new((kind, self))),
            false => self,
        }
    }

    /// Returns the kind of the operation's lock, if it names one.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Acquire(acquire) => Some(acquire.kind),
            Self::AcquireShare(ask) => Some(ask.acquire.kind),
            Self::Downgrade { .. } => Some(Kind::ReadWrite),
            Self::OfShares(of) => Some(of.0),
            Self::OfHold(of) => Some(of.kind),
            Self::Release { kind, .. }
            | Self::Renew { kind, .. }
            | Self::Leave { kind, .. }
            | Self::Force { kind }
            | Self::Inspect { kind, .. } => Some(*kind),
            // An election is a fair lock.
            Self::Announce(_) | Self::Leader => Some(Kind::Fair),
            Self::Reenter { .. }
            | Self::Beat { .. }
            | Self::Nudge
            | Self::Place { .. }
            | Self::Latch(_) => None,
        }
    }

    /// Returns whether the operation is for a simple lock, whose key is a string.
    pub fn is_simple(&self) -> bool {
        self.kind().is_some_and(is_string)
    }

    /// Returns whether the operation names a kind of lock that several may hold at once.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::AcquireShare(_) => true,
            Self::Acquire(acquire) => is_shared(acquire.kind),
            op => op.kind().is_some_and(is_shared),
        }
    }
}

/// A reply: the server's clock and the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Server time of the execution, in milliseconds since 1970.
    pub now_ms: u64,
    /// Dead waiters remain at the front: send [`Op::Nudge`] at once.
    pub more: bool,
    /// Dead waiters of ours that the operation removed.
    pub removed: u32,
    /// The operation got permits, or a place in the line for permits, and somebody holds permits
    /// under another limit.
    pub other_limit: bool,
    /// The result.
    pub body: Body,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// The caller holds the lock.
    Granted {
        /// The hold's token.
        token: Token,
        /// The hold's TTL in milliseconds.
        ttl_ms: u64,
    },
    /// The caller holds a share of the lock, through an earlier request of the same acquisition.
    GrantedBefore(Grant),
    /// The caller is in the queue.
    Queued {
        /// Its order number.
        order: u64,
        /// After this many milliseconds, something may change without a call.
        retry_ms: Option<u64>,
        /// A foreign client holds the lock or waits.
        foreign: bool,
        /// How many waited right after the caller entered, itself included.
        length: u64,
    },
    /// Somebody else holds the lock; the caller was not queued.
    Busy {
        /// Remaining TTL of the holder in milliseconds, if there is a holder with a TTL.
        ttl_ms: Option<u64>,
    },
    /// Somebody else holds the simple lock.
    Taken {
        /// As in [`Body::Busy`].
        ttl_ms: Option<u64>,
        /// The holder is a foreign client, which notifies nobody when it releases the lock.
        foreign: bool,
    },
    /// The owner already holds the lock through another request.
    HeldBySelf {
        /// The hold's count.
        count: u32,
    },
    /// Executed after its `not_after_ms`; nothing was done.
    TooLate,
    /// The request was given up before; nothing was done.
    Buried,
    /// The hold has ended.
    Released,
    /// The hold continues with this count.
    StillHeld {
        /// The absolute count.
        count: u32,
    },
    /// A delayed copy of an older change of the hold; nothing was done.
    Stale,
    /// The caller does not hold the lock under that token.
    NotHeld {
        /// The present holder, if any.
        holder: Option<OwnerId>,
    },
    /// The hold was renewed.
    Renewed,
    /// The queue entry was removed.
    Left,
    /// The hold that the request had got has ended.
    Freed,
    /// Nothing of that request existed.
    Nothing,
    /// Reply to a heartbeat.
    Beaten {
        /// The hold, if an owner of this client holds the lock under a request that is on record.
        held: Option<Grant>,
        /// For each waiter asked about: whether it is in the queue.
        queued: Vec<bool>,
        /// As in [`Body::Queued`].
        retry_ms: Option<u64>,
        /// As in [`Body::Queued`].
        foreign: bool,
    },
    /// Reply to a heartbeat of waiters for shares.
    Fates {
        /// The fate of each waiter asked about.
        fates: Vec<Fate>,
        /// As in [`Body::Queued`].
        retry_ms: Option<u64>,
        /// As in [`Body::Queued`].
        foreign: bool,
    },
    /// Reply to [`Op::Nudge`].
    Nudged,
    /// Reply to [`Op::Force`]: who held the lock.
    Forced {
        /// The former holder; the first of them, if several held it.
        holder: Option<OwnerId>,
        /// How many others held it.
        others: u32,
    },
    /// Reply to [`Op::Place`].
    Place {
        /// How many members, foreign ones included, are before the waiter; `None` if it is not in
        /// the queue.
        ahead: Option<u64>,
    },
    /// Reply to [`Op::Inspect`].
    Inspected(Box<Inspection>),
    /// The value is announced.
    Announced,
    /// Reply to [`Op::Leader`].
    Leader(Box<Leadership>),
    /// Reply to [`Op::Latch`].
    Latch(LatchSeen),
}

/// The present state of a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It waits in its place.
    Queued,
    /// It has the share that it wanted.
    Granted(Grant),
    /// The store does not know it.
    Unknown,
}

/// A grant: the request that got the lock, the token, and the TTL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The attempt that got the lock.
    pub request: RequestId,
    /// The hold's token.
    pub token: Token,
    /// The hold's TTL in milliseconds, counted from the reply's or message's server time.
    pub ttl_ms: u64,
}

/// The holder, as inspection shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// The owner id.
    pub owner: OwnerId,
    /// The hold count.
    pub count: u64,
}

/// Who holds a share, as inspection shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareHolder {
    /// The owner id.
    pub owner: OwnerId,
    /// What it has.
    pub share: Share,
    /// The hold count.
    pub count: u32,
    /// Its token.
    pub token: Token,
    /// Remaining TTL in milliseconds.
    pub ttl_ms: u64,
}

/// The shares of a lock, as inspection shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharesView {
    /// The first holders, by their ids.
    pub holders: Vec<ShareHolder>,
    /// The number of holders.
    pub holding: u64,
    /// The permits in use.
    pub used: u64,
    /// The smallest and the largest limit of all holders and waiters, if any names one.
    pub limits: Option<(u32, u32)>,
    /// What the listed waiters want, in their order.
    pub wants: Vec<Share>,
    /// No client of ours holds the lock, and the foreign holder that is named instead is a reader.
    pub stranger_reads: bool,
}

/// A waiter, as inspection shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// The owner id.
    pub owner: OwnerId,
    /// Milliseconds since its client's last beat; `None` for foreign waiters and lost records. If
    /// the age of beats does not count ([`Rules::ages`](crate::Rules::ages)): 0 unless the client
    /// is gone.
    pub beat_age_ms: Option<u64>,
    /// Its order number, server microseconds of its first entry unless the series ran ahead of
    /// the clock; `None` for foreign waiters and lost records.
    pub order: Option<u64>,
}

/// The result of inspecting a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The holder.
    pub holder: Option<HeldBy>,
    /// Remaining TTL in milliseconds; `None` when free or without a TTL.
    pub ttl_ms: Option<u64>,
    /// The last token.
    pub token: Option<Token>,
    /// The number of waiters.
    pub queue_len: u64,
    /// The first waiters, in order.
    pub queue: Vec<WaiterView>,
    /// All holders, and the shares that the listed waiters want, if several may hold the lock.
    pub shares: Option<Box<SharesView>>,
}

/// The leader: the holder of a fair lock, with its announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The holder.
    pub holder: Option<OwnerId>,
    /// The token of its hold; for a foreign holder the last token, which is not its own.
    pub token: Option<Token>,
    /// Remaining TTL of the hold in milliseconds; `None` when free or without a TTL.
    pub ttl_ms: Option<u64>,
    /// The announcement of this holder under this token.
    pub announced: Option<Announced>,
}

/// The announcement of a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Number of the change.
    pub change: u64,
    /// When the hold was first announced, in milliseconds since 1970.
    pub since_ms: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The channel to publish on.
    pub channel: Channel,
    /// The content.
    pub payload: Payload,
}

/// A channel on which messages are published.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The inbox of a client of ours.
    Inbox(ClientId),
    /// The lock's base channel, on which plain waiters listen.
    Base,
    /// The channel of one waiter, as in Redisson.
    Waiter(OwnerId),
    /// The lock's channel for those who observe its holder.
    Leader,
    /// The channel of the latch of this name, as in Redisson.
    Latch,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Payload {
    /// `0`: look again. For a latch: it was counted down to 0.
    Zero,
    /// `1`: a latch was set, or deleted.
    One,
    /// The recipient holds the lock.
    Grant {
        /// The grant.
        grant: Grant,
        /// Server time of the grant in milliseconds since 1970.
        at_ms: u64,
    },
    /// Somebody took this hold away by force. The recipient asks the store whether that is true.
    /// Sent to the inbox of the client that held the lock.
    Forced {
        /// The number of the former holder, an owner of that client.
        number: u64,
        /// Identifies the hold.
        token: Token,
    },
    /// The free lock is left to foreign waiters for [`GUEST_MS`](crate::GUEST_MS). After that, the
    /// client of the head of the line looks; if the message is lost, any heartbeat does.
    Guests {
        /// The head's request.
        request: RequestId,
    },
    /// The holder's announcement has changed.
    Leader {
        /// The holder.
        owner: OwnerId,
        /// Identifies the hold.
        token: Token,
        /// Server time in milliseconds since 1970.
        at_ms: u64,
    },
}

/// The operation could not be executed; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoreError {
    /// The next token would not be exact in a double.
    TokenExhausted,
    /// The lock is held as another kind: a string where a hash belongs, or the other way round.
    WrongType,
    /// The name is in use for a lock of this kind. A plain lock looks like a fair one.
    InUse(Kind),
    /// The value under the name is clearly not a lock.
    NotALock(NotALock),
    /// The value under the name is clearly not a latch.
    NotALatch,
    /// A lock of this kind has no such share, or never that many permits.
    NoSuchShare,
}

impl fmt::Display for CoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenExhausted => write!(
                f,
                "the lock's tokens have reached 2^53, and there are none above; use another name, or \
                 remove the token key"
            ),
            Self::WrongType => write!(
                f,
                "the name is in use for a lock of another kind (simple or shared, or fair or plain), or \
                 for a latch (`fairlock latch`; `latch`); all users of a lock must name the same kind (`--kind`; `simple_lock`, `fair_lock`, \
                 `plain_lock`, `rw_lock`, `semaphore`)"
            ),
            Self::InUse(kind) => {
                let present = match kind {
                    Kind::ReadWrite => "a read-write lock (`--shared`, `--kind rw`; `rw_lock`)",
                    Kind::Semaphore => "a semaphore (`--permits`; `semaphore`)",
                    Kind::Simple => "a simple lock (`--kind simple`; `simple_lock`)",
                    Kind::Fair | Kind::Plain => {
                        "a fair or plain lock (`--kind fair` or `plain`; `fair_lock`, `plain_lock`)"
                    }
                };
                write!(
                    f,
                    "the name is in use for {present}; all users of a name must name the same kind: \
                     name that one, or use another name"
                )
            }
            Self::NoSuchShare => write!(
                f,
                "a lock of this kind has no such share: ask for at least one permit, and for no more \
                 than the limit"
            ),
            Self::NotALatch => write!(
                f,
                "the name stands for a simple lock, or for what is no whole number above 0, not a \
                 latch; use another name"
            ),
            Self::NotALock(found) => write!(
                f,
                "the name stands for {found}; another program uses it: use another name, or remove \
                 what stands there if nobody needs it"
            ),
        }
    }
}

impl std::error::Error for CoreError {}
