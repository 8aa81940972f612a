//! The kinds of fault, and how each is played: one file for each family.
//!
//! A fault counts as effective only if its effect was observed: connections existed, keys were
//! changed, replies were lost, a clock was read. Each function here therefore returns whether it
//! was.
//!
//! A new kind is a variant of [`Kind`], a row of [`ROWS`], and a branch where its family is played.

pub(crate) mod clocks;
pub(crate) mod network;
pub(crate) mod operator;
pub(crate) mod process;
pub(crate) mod server;

use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use std::time::Duration;

/// What docs/guarantees.md says about exclusion and holds under a fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// Only delay. A hold is lost only if the delay outlasts its grant.
    Delay,
    /// Writes may be lost, or leases may end early: "exclusion broken until the old holder's next
    /// answer". The order of waiters and rising tokens are kept.
    StateLoss,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    WorkerKilled,
    WorkerStopped,
    WorkerFrozen,
    WorkerSpun,
    WorkerBlocked,
    ConnectionsKilled,
    InboxesKilled,
    Paused,
    WritesPaused,
    ScriptsFlushed,
    BusyScript,
    ServerStopped,
    ServerSlept,
    Restarted,
    RestartedEmpty,
    Flushed,
    OutOfMemory,
    ClockForward,
    ClockBackward,
    ClockSlow,
    ClockFast,
    LockDeleted,
    LockPersisted,
    LockExpired,
    LockOverwritten,
    QueueDeleted,
    ScoresDeleted,
    RegistryDeleted,
    TokenDeleted,
    ForceUnlocked,
    RepliesDelayed,
    RequestCut,
    AllCut,
    ToServerLost,
    ToClientLost,
    PushesSwallowed,
    PushesDuplicated,
    PushesDelayed,
    ReplyLost,
    ReplyLostInSilence,
    ByteByByte,
    Refused,
    Silenced,
    InboxesSilenced,
    RequestsLate,
    RequestsReplayed,
    /// The old master continues until it learns of the new one.
    OrderedFailover,
    /// The old master stops, and the new one continues from its last write.
    AgreedFailover,
    MasterKilled,
    TailLost,
    SentinelKilled,
    SlotMoved,
    DiskFull,
    FileLocked,
}

/// A kind, its name, and what is promised under it.
struct Row(Kind, &'static str, Effect);

use Effect::{Delay, StateLoss};

const ROWS: [Row; 54] = [
    Row(Kind::WorkerKilled, "worker process killed", Delay),
    Row(Kind::WorkerStopped, "worker process stopped for a moment", Delay),
    Row(Kind::WorkerFrozen, "worker process stopped for longer than its leases", Delay),
    Row(Kind::WorkerSpun, "worker takes all processors and much memory", Delay),
    Row(Kind::WorkerBlocked, "worker's tasks block their runtime", Delay),
    Row(Kind::ConnectionsKilled, "connections killed", Delay),
    Row(Kind::InboxesKilled, "inboxes killed", Delay),
    Row(Kind::Paused, "clients paused", Delay),
    Row(Kind::WritesPaused, "writes paused", Delay),
    Row(Kind::ScriptsFlushed, "scripts flushed", Delay),
    Row(Kind::BusyScript, "script that does not end, killed", Delay),
    Row(Kind::ServerStopped, "server stopped for a moment", Delay),
    Row(Kind::ServerSlept, "server busy with one command", Delay),
    Row(Kind::Restarted, "server killed and restarted with its log", Delay),
    Row(Kind::RestartedEmpty, "server killed and restarted empty", StateLoss),
    Row(Kind::Flushed, "all data flushed", StateLoss),
    Row(Kind::OutOfMemory, "server out of memory", Delay),
    Row(Kind::ClockForward, "server's clock jumps forwards, and back", StateLoss),
    Row(Kind::ClockBackward, "server's clock jumps backwards, and back", StateLoss),
    Row(Kind::ClockSlow, "server's clock is slow", Delay),
    Row(Kind::ClockFast, "server's clock is fast", Delay),
    Row(Kind::LockDeleted, "operator deletes a lock", StateLoss),
    Row(Kind::LockPersisted, "operator takes a lock's TTL away", Delay),
    Row(Kind::LockExpired, "operator lets a lock expire", StateLoss),
    Row(Kind::LockOverwritten, "operator gives a lock another type", StateLoss),
    Row(Kind::QueueDeleted, "operator deletes a queue", Delay),
    Row(Kind::ScoresDeleted, "operator deletes a queue's scores", Delay),
    Row(Kind::RegistryDeleted, "operator deletes a queue's registry", Delay),
    Row(Kind::TokenDeleted, "operator deletes a token", Delay),
    Row(Kind::ForceUnlocked, "lock forced open", StateLoss),
    Row(Kind::RepliesDelayed, "replies delayed", Delay),
    Row(Kind::RequestCut, "connection cut in a request", Delay),
    Row(Kind::AllCut, "all connections cut by the network", Delay),
    Row(Kind::ToServerLost, "nothing reaches the server", Delay),
    Row(Kind::ToClientLost, "nothing reaches the clients", Delay),
    Row(Kind::PushesSwallowed, "messages lost", Delay),
    Row(Kind::PushesDuplicated, "messages duplicated", Delay),
    Row(Kind::PushesDelayed, "messages late", Delay),
    Row(Kind::ReplyLost, "replies lost after execution, and cut", Delay),
    Row(Kind::ReplyLostInSilence, "replies lost after execution, in silence", Delay),
    Row(Kind::ByteByByte, "link byte by byte", Delay),
    Row(Kind::Refused, "connections refused", Delay),
    Row(Kind::Silenced, "connections forgotten by the network", Delay),
    Row(Kind::InboxesSilenced, "inboxes forgotten by the network", Delay),
    Row(Kind::RequestsLate, "requests of closed connections late", Delay),
    Row(Kind::RequestsReplayed, "old requests once more", Delay),
    Row(Kind::OrderedFailover, "failover ordered", StateLoss),
    Row(Kind::AgreedFailover, "failover agreed on", Delay),
    Row(Kind::MasterKilled, "master killed", StateLoss),
    Row(Kind::TailLost, "master killed, replication cut before", StateLoss),
    Row(Kind::SentinelKilled, "Sentinel killed", Delay),
    Row(Kind::SlotMoved, "slot moved and moved back", Delay),
    Row(Kind::DiskFull, "disk full", Delay),
    Row(Kind::FileLocked, "file locked by another program", Delay),
];

impl Kind {
    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.0 == self).expect("a row of each kind; a test looks")
    }

    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    pub(crate) fn effect(self) -> Effect {
        self.row().2
    }

    pub(crate) fn is_failover(self) -> bool {
        use Kind::{AgreedFailover, MasterKilled, OrderedFailover, TailLost};
        matches!(self, OrderedFailover | AgreedFailover | MasterKilled | TailLost)
    }

    /// Whether order or records of a queue may be lost but not the queue itself. A clock that was
    /// set back lets them expire early once it is right again.
    pub(crate) fn loses_a_registry(self) -> bool {
        matches!(self, Self::RegistryDeleted | Self::ClockBackward)
    }

    /// Whether it deletes tokens: if a clock was set back before, they may then fall.
    pub(crate) fn loses_tokens(self) -> bool {
        matches!(self, Self::Flushed | Self::RestartedEmpty | Self::TokenDeleted)
    }
}

/// Sleeps for the duration of a fault that is a state.
pub(crate) fn last(millis: u64) {
    // The duration is the fault itself.
    std::thread::sleep(Duration::from_millis(millis));
}

/// Whether the server replied OK.
pub(crate) fn ok(reply: &Value) -> bool {
    *reply == Value::Simple("OK".into())
}

/// Kills connections of a type. Returns whether there were any.
pub(crate) fn kill_connections(raw: &mut Raw, kind: &str) -> bool {
    raw.call(&["CLIENT", "KILL", "TYPE", kind]).int() > 0
}

/// The number after `field:` in `INFO section`, or after `field:...=`.
pub(crate) fn info(raw: &mut Raw, section: &str, field: &str) -> u64 {
    let info = raw.call(&["INFO", section]);
    let line = info.text().lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let digits = line.map(|value| value.rsplit('=').next().unwrap_or(value));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_one_row_and_a_name_of_its_own() {
        let kinds: BTreeSet<_> = ROWS.iter().map(|row| row.0).collect();
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.1).collect();
        assert_eq!((kinds.len(), names.len()), (ROWS.len(), ROWS.len()));
        // The last variant, whose discriminant gives their number.
        assert_eq!(Kind::FileLocked as usize + 1, ROWS.len());
    }
}
