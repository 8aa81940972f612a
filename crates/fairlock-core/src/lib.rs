//! The pure state machine of fairlock.
//!
//! One lock is a small set of facts: who holds it and until when, who waits and in which order,
//! when each client last sent a heartbeat, and the last fencing token. [`LockState::apply`] moves
//! it from one state to the next: its inputs are an operation, the time, and a view of the outside
//! world; its outputs are a reply and messages to publish. Nothing here reads a clock, does I/O,
//! allocates ids or blocks.
//!
//! The same rules exist a second time as Lua for Redis. The embedded stores run this crate, and the
//! Lua is compared with it, operation by operation.
//!
//! ```text
//!             Acquire (queue empty)                Release, Leave, Force, lease over
//!   free ───────────────────────────▶ held by A ──────────────────────────────────┐
//!    ▲                                   │ Acquire by B: queued                    │
//!    │ nobody waits                      ▼                                         ▼
//!    └─────────────────────────── the first live waiter becomes the holder at once, and is told
//! ```
//!
//! The invariants C1 to C8 are listed in `invariant.rs` and checked after every operation in debug
//! builds. Locks that several owners may hold at once have their own rules, in `shares`, with the
//! invariants G1 to G8.

mod announce;
mod apply_latch;
pub mod client;
mod every_op;
mod foreign;
mod holds;
mod id;
mod invariant;
mod latch;
mod leader;
mod liveness;
mod lock;
mod model;
mod next;
mod not_a_lock;
mod of_hold;
mod op;
mod queue;
mod quiet;
mod rules;
#[cfg(feature = "serde")]
mod serialized;
mod share;
mod shares;
mod simple;
mod slot;
mod snapshot;
mod state;
mod value;

#[doc(hidden)]
pub use every_op::every_op;
pub use holds::{SharedHold, Shares};
pub use id::{
    ClientId, IdError, LockName, MAX_NAME_BYTES, MAX_OWNER_NUMBER, ONCE_NUMBER_MIN, OwnerId,
    RequestId, VALUE_SHOWN_BYTES, client_text,
};
pub use latch::{
    Counted as LatchCounted, LATCH_COUNT_MAX, LATCH_NOTE_MS, Latch, LatchFate, LatchNote, LatchOp,
    LatchRequest, LatchSeen, Opened, latch_fate,
};
pub use leader::Leader;
pub use model::Model;
pub use not_a_lock::NotALock;
pub use op::{
    Acquire, Announce, Announced, Answer, Body, Channel, CoreError, Effect, Fate, Grant, HeldBy,
    Inspection, Kind, Leadership, Mode, OfHold, Op, Payload, ShareAcquire, ShareHolder, SharesView,
    WaiterView, has_queue, is_share_of, is_shared, is_string, kind_label, kind_of_label,
};
pub use rules::{
    ANNOUNCED_BYTES_MAX, BEATS_KEPT_MS, GUEST_MS, HEAD_SCORE_MS, JAVA_HEAD_PATIENCE_MS,
    JAVA_PASSED_MS, JAVA_PING_MS, LOOKED_AT_MAX, MAX_HOLD_COUNT, MAX_LEASE_MS, MENDED_HOLD_MS,
    MENDED_MAX, QUEUE_TTL_MS, REGISTRY_TTL_MS, Rules, SILENT_REGISTRY_TTL_MS, TOKEN_LIMIT,
    TOKEN_TTL_MS, Token, WALKED_MAX, World,
};
#[cfg(feature = "serde")]
pub use serialized::Text;
pub use share::Share;
pub use slot::{SLOTS, slot, slot_tag};
pub use snapshot::{Snapshot, SnapshotRecord, SnapshotWaiter, Watch};
pub use state::LockState;
pub use value::SimpleValue;
