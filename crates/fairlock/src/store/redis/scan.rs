//! Finds the locks of a server: searches all its keys, a bounded number at a time.
//!
//! A lock's own key has the bare name that its user chose, and shows only that it is a hash or a
//! string. So locks are found by the keys that nothing else has: the token, which every grant of
//! ours leaves for a day, and the queue.

use super::classify::classify;
use super::dial::Connection;
use super::keys::{self, Family};
use super::slots;
use super::wire::{self, CallError, Pipeline, Value};
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use crate::store::entry::LockEntry;
use fairlock_core::{Kind, LockName};
use std::collections::BTreeSet;

/// How many locks one pipeline asks about, with three commands each: the server carries out
/// everything that has arrived from one client before it looks at the next.
const ASKED_MAX: usize = 100;

/// Why there is no page.
pub(crate) enum Failed {
    /// The call did not succeed.
    Call(CallError),
    /// The answer is not a reply to the call.
    Reply(&'static str),
}

impl Failed {
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Call(error) => classify(&error),
            Self::Reply(what) => {
                let message = format!("the server's reply to {what} has another form");
                StoreError::refused(Error::new(ErrorKind::Protocol, message))
            }
        }
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// One step: a `SCAN` of about `keys` keys, and a look at what it found. Returns the locks, where
/// to continue (0 at the end), and how many keys were examined.
pub(crate) async fn page(
    conn: &mut Connection,
    from: u64,
    keys: u32,
    of_cluster: bool,
) -> Result<(Vec<LockEntry>, u64, u32), Failed> {
    let mut scan = wire::cmd("SCAN");
    scan.arg(from).arg("MATCH").arg(keys::LISTED).arg("COUNT").arg(keys);
    let reply = conn.call(&scan).await?.extract_error()?;
    let (next, found) = decode_scan(reply).ok_or(Failed::Reply("SCAN"))?;
    // Queue and token of one lock may come in one step.
    let found: BTreeSet<_> = found.iter().filter_map(|key| keys::locks_of(key)).collect();
    // Locks whose keys are in different slots cannot be used, and their other keys are not here.
    let usable = |family: &Family| !of_cluster || slots::slot_of(&family.name).is_ok();
    let found: Vec<_> = found.into_iter().filter(usable).collect();
    let mut entries = Vec::with_capacity(found.len());
    let mut looked_at = keys;
    for families in found.chunks(ASKED_MAX) {
        let (ask, replies) = questions(families);
        looked_at = looked_at.saturating_add(u32::try_from(replies).unwrap_or(u32::MAX));
        let mut answers = conn.call_all(&ask).await?.into_iter();
        for family in families {
            entries.extend(read(family, &mut answers)?);
        }
    }
    Ok((entries, next, looked_at))
}

/// Strict: `[cursor, [key, ...]]`.
pub(super) fn decode_scan(reply: Value) -> Option<(u64, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(cursor), Value::Array(keys)] = <[Value; 2]>::try_from(parts).ok()?
    else {
        return None;
    };
    let cursor = std::str::from_utf8(&cursor).ok()?.parse().ok()?;
    let bytes = |key| match key {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    Some((cursor, keys.into_iter().map(bytes).collect::<Option<_>>()?))
}

/// Asks for the length of each family's queue, and what is stored under each name.
fn questions(families: &[Family]) -> (Pipeline, usize) {
    let mut pipeline = Pipeline::with_capacity(3 * families.len());
    let mut replies = 0;
    for family in families {
        pipeline.cmd("LLEN").arg(family.queue());
        pipeline.cmd("TYPE").arg(family.name.as_bytes());
        replies += 2;
        if let Some(twin) = &family.twin {
            pipeline.cmd("TYPE").arg(twin.as_bytes());
            replies += 1;
        }
    }
    (pipeline, replies)
}

fn read(
    family: &Family,
    answers: &mut impl Iterator<Item = Value>,
) -> Result<Vec<LockEntry>, Failed> {
    let mut answer = || answers.next().ok_or(Failed::Reply("a pipeline"));
    let queue = answer()?;
    let own = answer()?;
    let twins = family.twin.as_ref().map(|_| answer()).transpose()?;
    let waiting = match allowed(queue)? {
        Some(Value::Int(length)) => usize::try_from(length).unwrap_or(0),
        // Somebody stores something else there; inspecting the lock shows that.
        Some(Value::ServerError(_)) => 0,
        Some(_) => return Err(Failed::Reply("LLEN")),
        // Names that this user may not look at are not listed.
        None => return Ok(Vec::new()),
    };
    let own = entry(&family.name, own, waiting)?;
    let twin = match (&family.twin, twins) {
        (Some(name), Some(found)) => entry(name, found, waiting)?,
        _ => None,
    };
    // While neither is held, the plainer name is most likely the one in use.
    let twin = twin.filter(|twin| twin.held);
    let own = own.filter(|own| own.held || twin.is_none());
    Ok(own.into_iter().chain(twin).collect())
}

fn entry(name: &LockName, found: Value, waiting: usize) -> Result<Option<LockEntry>, Failed> {
    let found = match allowed(found)? {
        Some(Value::SimpleString(found)) => found,
        Some(_) => return Err(Failed::Reply("TYPE")),
        None => return Ok(None),
    };
    let kind = match found.as_str() {
        "string" => Some(Kind::Simple),
        "hash" if waiting > 0 => Some(Kind::Fair),
        _ => None,
    };
    let held = matches!(found.as_str(), "hash" | "string");
    Ok(Some(LockEntry { name: name.clone(), kind, held, waiting }))
}

/// The answer about one key; `None` if the user may not look at that key. (A user that may not use
/// the command at all gets an error.)
fn allowed(answer: Value) -> Result<Option<Value>, Failed> {
    let Value::ServerError(error) = &answer else { return Ok(Some(answer)) };
    match error.code() {
        "WRONGTYPE" => Ok(Some(answer)),
        "NOPERM" if error.detail().is_some_and(|text| text.contains("key")) => Ok(None),
        // The key has moved meanwhile.
        "MOVED" | "ASK" | "TRYAGAIN" => Ok(None),
        _ => Err(Failed::Call(CallError::Server(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_to_scan_are_read_strictly() {
        let reply = |cursor, keys| Value::Array(vec![cursor, keys]);
        let keys = || Value::Array(vec![bulk("a"), bulk("b")]);
        let (cursor, found) = decode_scan(reply(bulk("18446744073709551615"), keys())).unwrap();
        assert_eq!((cursor, found), (u64::MAX, vec![b"a".to_vec(), b"b".to_vec()]));
        for odd in [
            reply(bulk("-1"), keys()),
            reply(bulk(""), keys()),
            reply(Value::Int(1), keys()),
            reply(bulk("0"), Value::Nil),
            reply(bulk("0"), Value::Array(vec![Value::Int(1)])),
            Value::Array(vec![bulk("0")]),
            Value::Nil,
        ] {
            assert_eq!(decode_scan(odd.clone()), None, "{odd:?}");
        }
    }

    /// `x` and `{x}` share queue and token. What is held is listed under its own name.
    #[test]
    fn twins_are_told_apart_by_what_is_held() {
        let family = keys::locks_of(b"redisson_lock_token:{x}").unwrap();
        let listed = |own: &str, twin: &str, waiting| {
            let kind = |kind: &str| Value::SimpleString(kind.into());
            let answers = [Value::Int(waiting), kind(own), kind(twin)];
            let entries = read(&family, &mut answers.into_iter()).ok().unwrap();
            let show = |entry: LockEntry| (entry.name.to_string(), entry.held, entry.kind);
            entries.into_iter().map(show).collect::<Vec<_>>()
        };
        let (x, twin) = (|| "x".to_owned(), || "{x}".to_owned());
        assert_eq!(listed("none", "none", 0), [(x(), false, None)]);
        assert_eq!(listed("hash", "none", 0), [(x(), true, None)]);
        assert_eq!(listed("none", "string", 0), [(twin(), true, Some(Kind::Simple))]);
        assert_eq!(
            listed("hash", "hash", 2),
            [(x(), true, Some(Kind::Fair)), (twin(), true, Some(Kind::Fair))]
        );
        // A list under the lock's name is not a hold.
        assert_eq!(listed("list", "none", 1), [(x(), false, None)]);
    }
}
