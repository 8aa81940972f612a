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
use crate::store::entry::LockEntry;
use crate::store::{Page, StoreError};
use fairlock_core::{Kind, LockName, is_shared};
use std::collections::BTreeSet;

/// How many locks one pipeline asks about, with up to six commands each: the server carries out
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

/// One step: a `SCAN` of about `keys` keys, and a look at what it found. Returns where to continue
/// (0 at the end), which the page does not say.
pub(crate) async fn page(
    conn: &mut Connection,
    from: u64,
    keys: u32,
    of_cluster: bool,
) -> Result<(Page, u64), Failed> {
    let mut scan = wire::cmd("SCAN");
    scan.arg(from).arg("MATCH").arg(keys::LISTED).arg("COUNT").arg(keys);
    let reply = conn.call(&scan).await?.extract_error()?;
    let (next, found) = decode_scan(reply).ok_or(Failed::Reply("SCAN"))?;
    // Queue and token of one lock may come in one step.
    let found: BTreeSet<_> = found.iter().filter_map(|key| keys::locks_of(key)).collect();
    // Locks whose keys are in different slots cannot be used, and their other keys are not here.
    let usable = |family: &Family| !of_cluster || slots::slot_of(&family.name).is_ok();
    let found: Vec<_> = found.into_iter().filter(usable).collect();
    let (mut entries, mut denied) = (Vec::with_capacity(found.len()), Vec::new());
    let mut looked_at = keys;
    for families in found.chunks(ASKED_MAX) {
        let (ask, replies) = questions(families);
        looked_at = looked_at.saturating_add(u32::try_from(replies).unwrap_or(u32::MAX));
        let mut answers = conn.call_all(&ask).await?.into_iter();
        let mut seen = Vec::with_capacity(families.len());
        for family in families {
            seen.extend(read(family, &mut answers, &mut denied)?);
        }
        let mut more = Pipeline::with_capacity(3 * seen.len());
        let asked: usize = seen.iter().map(|seen| seen.questions(&mut more)).sum();
        let mut answers = match asked {
            0 => Vec::new(),
            _ => conn.call_all(&more).await?,
        }
        .into_iter();
        looked_at = looked_at.saturating_add(u32::try_from(asked).unwrap_or(u32::MAX));
        for seen in seen {
            entries.extend(seen.entries(&mut answers)?);
        }
    }
    Ok((Page { entries, denied, next: None, looked_at }, next))
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

/// The result of a first look at the keys of a family.
struct Seen<'a> {
    /// How many stand in their queue.
    queue: usize,
    /// Whether somebody waits for a share of one of them.
    has_lines: bool,
    /// The names that the user may read, and the values there.
    names: Vec<(&'a LockName, String)>,
}

/// The questions about a name where shares may be in use: its mode, and who waits for a share as
/// which kind.
#[derive(Default)]
struct Shares {
    mode: Option<Vec<u8>>,
    lines: Vec<(Kind, usize)>,
}

const SHARED: [Kind; 2] = [Kind::ReadWrite, Kind::Semaphore];

impl Family {
    fn names(&self) -> impl Iterator<Item = &LockName> {
        [Some(&self.name), self.twin.as_ref()].into_iter().flatten()
    }
}

/// Asks for the length of each family's queue, whether anybody waits for a share, and what is stored under each name.
fn questions(families: &[Family]) -> (Pipeline, usize) {
    let mut pipeline = Pipeline::with_capacity(4 * families.len());
    let mut replies = 0;
    for family in families {
        pipeline.cmd("LLEN").arg(family.queue());
        let lines = pipeline.cmd("EXISTS");
        for name in family.names() {
            for kind in SHARED {
                lines.arg(keys::line(name, kind));
            }
        }
        replies += 2;
        for name in family.names() {
            pipeline.cmd("TYPE").arg(name.as_bytes());
            replies += 1;
        }
    }
    (pipeline, replies)
}

/// The answers about one family; `None` if the user may not look at it, which `denied` then names.
fn read<'a>(
    family: &'a Family,
    answers: &mut impl Iterator<Item = Value>,
    denied: &mut Vec<LockName>,
) -> Result<Option<Seen<'a>>, Failed> {
    let mut is_denied = false;
    let mut answer = || -> Result<Value, Failed> {
        let answer = answers.next().ok_or(Failed::Reply("a pipeline"))?;
        is_denied |= matches!(&answer, Value::ServerError(error) if error.code() == "NOPERM");
        Ok(answer)
    };
    let (queue, lines) = (answer()?, answer()?);
    let mut names = Vec::new();
    for name in family.names() {
        match allowed(answer()?)? {
            Some(Value::SimpleString(found)) => names.push((name, found)),
            Some(_) => return Err(Failed::Reply("TYPE")),
            None => {}
        }
    }
    // Otherwise the key has moved meanwhile.
    let is_denied = is_denied;
    let Some(queue) = count(queue, "LLEN")?.filter(|_| !names.is_empty()) else {
        denied.extend(is_denied.then(|| family.name.clone()));
        return Ok(None);
    };
    let has_lines = count(lines, "EXISTS")?.is_some_and(|lines| lines > 0);
    Ok(Some(Seen { queue, has_lines, names }))
}

/// A number; `None` if the user may not read it. If something else is stored there, inspecting the
/// lock shows that.
fn count(answer: Value, command: &'static str) -> Result<Option<usize>, Failed> {
    match allowed(answer)? {
        Some(Value::Int(length)) => Ok(Some(usize::try_from(length).unwrap_or(0))),
        Some(Value::ServerError(_)) => Ok(Some(0)),
        Some(_) => Err(Failed::Reply(command)),
        None => Ok(None),
    }
}

impl Seen<'_> {
    /// Whether there is more to ask about a name.
    fn may_have_shares(&self, found: &str) -> bool {
        self.has_lines || found == "hash"
    }

    /// Asks about the names that may have shares.
    fn questions(&self, pipeline: &mut Pipeline) -> usize {
        let mut replies = 0;
        for (name, _) in self.names.iter().filter(|(_, found)| self.may_have_shares(found)) {
            pipeline.cmd("HGET").arg(name.as_bytes()).arg("mode");
            for kind in SHARED {
                pipeline.cmd("ZCARD").arg(keys::line(name, kind));
            }
            replies += 1 + SHARED.len();
        }
        replies
    }

    /// The entries, with the answers to [`questions`](Self::questions).
    fn entries(&self, answers: &mut impl Iterator<Item = Value>) -> Result<Vec<LockEntry>, Failed> {
        let mut entries = Vec::new();
        for (name, found) in &self.names {
            let mut shares = Shares::default();
            if self.may_have_shares(found) {
                let mut answer = || answers.next().ok_or(Failed::Reply("a pipeline"));
                shares.mode = match allowed(answer()?)? {
                    Some(Value::BulkString(mode)) => Some(mode),
                    Some(Value::Nil | Value::ServerError(_)) | None => None,
                    Some(_) => return Err(Failed::Reply("HGET")),
                };
                for kind in SHARED {
                    shares.lines.push((kind, count(answer()?, "ZCARD")?.unwrap_or(0)));
                }
            }
            entries.push(entry(name, found, self.queue, &shares));
        }
        let in_use = |entry: &LockEntry| entry.held || entry.kind.is_some_and(is_shared);
        // If neither is in use, the plainer name is most likely the one that is used.
        match entries.iter().any(in_use) {
            true => entries.retain(in_use),
            false => entries.truncate(1),
        }
        Ok(entries)
    }
}

fn entry(name: &LockName, found: &str, queue: usize, shares: &Shares) -> LockEntry {
    let held = matches!(found, "hash" | "string");
    let waits = shares.lines.iter().find(|(_, waiting)| *waiting > 0).map(|(kind, _)| *kind);
    let kind = match (found, shares.mode.as_deref()) {
        ("string", _) => Some(Kind::Simple),
        ("hash", Some(b"read" | b"write")) => Some(Kind::ReadWrite),
        ("hash", Some(b"permits")) => Some(Kind::Semaphore),
        ("hash", None) if queue > 0 => Some(Kind::Fair),
        ("none", _) => waits,
        _ => None,
    };
    let lines = || shares.lines.iter().copied().filter(|(_, waiting)| *waiting > 0);
    let own = lines().find(|(of, _)| kind == Some(*of));
    let waiting = match kind {
        Some(kind) if is_shared(kind) => own.map_or(0, |(_, waiting)| waiting),
        _ => queue,
    };
    let of_queue = (queue > 0 && kind.is_some_and(|kind| kind != Kind::Fair)).then_some(Kind::Fair);
    let others = lines().map(|(of, _)| of).filter(|of| kind != Some(*of));
    let beside = of_queue.into_iter().chain(others).collect();
    LockEntry { name: name.clone(), kind, held, waiting, beside }
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
            let answers = [Value::Int(waiting), Value::Int(0), kind(own), kind(twin)];
            let seen = read(&family, &mut answers.into_iter(), &mut Vec::new()).ok();
            let seen = seen.unwrap().unwrap();
            let mut more = Pipeline::with_capacity(6);
            let replies = (0..seen.questions(&mut more)).map(|at| match at % 3 {
                0 => Value::Nil,
                _ => Value::Int(0),
            });
            let entries = seen.entries(&mut replies.into_iter()).ok().unwrap();
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

    /// A mode shows the kind of the held lock; lines of other kinds beside it are named.
    #[test]
    fn shares_are_told_by_the_mode_and_by_their_lines() {
        let seen = |found: &str, queue, mode: Option<&str>, [readers, takers]: [usize; 2]| {
            let lines = vec![(Kind::ReadWrite, readers), (Kind::Semaphore, takers)];
            let shares = Shares { mode: mode.map(|mode| mode.as_bytes().to_vec()), lines };
            let entry = entry(&LockName::new(b"x").unwrap(), found, queue, &shares);
            (entry.kind, entry.held, entry.waiting, entry.beside)
        };
        let (rw, pool, fair) = (Kind::ReadWrite, Kind::Semaphore, Kind::Fair);
        assert_eq!(seen("hash", 0, Some("read"), [2, 0]), (Some(rw), true, 2, vec![]));
        assert_eq!(seen("hash", 0, Some("write"), [0, 0]), (Some(rw), true, 0, vec![]));
        assert_eq!(seen("hash", 1, Some("permits"), [2, 3]), (Some(pool), true, 3, vec![fair, rw]));
        assert_eq!(seen("hash", 0, Some("other"), [0, 0]), (None, true, 0, vec![]));
        assert_eq!(seen("none", 0, None, [0, 1]), (Some(pool), false, 1, vec![]));
        assert_eq!(seen("none", 4, None, [1, 0]), (Some(rw), false, 1, vec![fair]));
        assert_eq!(seen("hash", 4, None, [1, 0]), (Some(fair), true, 4, vec![rw]));
        assert_eq!(seen("string", 0, None, [1, 0]), (Some(Kind::Simple), true, 0, vec![rw]));
        assert_eq!(seen("hash", 0, None, [0, 0]), (None, true, 0, vec![]));
    }
}
