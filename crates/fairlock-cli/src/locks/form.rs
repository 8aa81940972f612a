//! The JSON form of a lock. It is a contract: fields are added, never renamed or removed.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock::{ClientInfo, Holder, Kind, LockStatus, OwnerId, Share};
use serde_json::{Value, json};

use super::look::kind_word;

/// The fields from `schema` to `queue_len`, as described in the help of `fairlock status`.
pub(crate) fn of(name: &OsStr, kind: Option<Kind>, status: &LockStatus) -> Value {
    let client = |owner: &OwnerId| status.client(owner).map(client_form);
    let holder = |holder: &Holder| {
        let mut form = json!({
            "owner": holder.owner.to_string(),
            "ours": holder.ours,
            "count": holder.count,
            "since_ms": holder.since.map(epoch_ms),
            "ttl_ms": holder.ttl.map(millis),
            "overdue_ms": status.renewal_overdue(holder).map(millis),
            "client": client(&holder.owner),
        });
        add_share(&mut form, holder.share);
        form
    };
    let queue = status.queue.iter().map(|waiter| {
        let mut form = json!({
            "place": waiter.place,
            "owner": waiter.owner.to_string(),
            "ours": waiter.ours,
            "alive": waiter.alive,
            "since_ms": waiter.since.map(epoch_ms),
            "client": client(&waiter.owner),
        });
        add_share(&mut form, waiter.share);
        form
    });
    json!({
        "schema": 1,
        "name": name.to_string_lossy(),
        "name_hex": name.to_str().is_none().then(|| hex(name.as_bytes())),
        "kind": kind.map(|kind| kind_word(Some(kind))),
        "at_ms": epoch_ms(status.at),
        "held": status.holder.is_some(),
        "done": status.is_done(),
        "holder": status.holder.as_ref().map(holder),
        "holders": status.holders.iter().map(holder).collect::<Vec<_>>(),
        "holding": status.holding,
        "used": status.used,
        "limits": status.limits.map(|(least, most)| [least, most]),
        "ttl_ms": status.ttl.map(millis),
        // Below 2^53, so that every JSON reader gets it exactly.
        "token": status.token.as_ref().map(|token| token.get()),
        "queue": queue.collect::<Vec<_>>(),
        "queue_len": status.queue_len,
    })
}

/// Adds `share`, and `permits` and `limit`, which are null for everything but permits.
fn add_share(form: &mut Value, share: Share) {
    let (word, permits) = match share {
        Share::Read => ("read", None),
        Share::Permits { n, limit } => ("permits", Some((n, limit))),
        _ => ("whole", None),
    };
    form["share"] = word.into();
    form["permits"] = permits.map(|(n, _)| n).into();
    form["limit"] = permits.map(|(_, limit)| limit).into();
}

pub(crate) fn client_form(client: &ClientInfo) -> Value {
    json!({
        "host": client.host,
        "pid": client.pid,
        "user": client.user,
        "label": client.label,
        "version": client.version,
        "since_ms": epoch_ms(client.since),
        "lease_ms": client.lease.map(millis),
    })
}

fn epoch_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes in hexadecimal, which loses none.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
