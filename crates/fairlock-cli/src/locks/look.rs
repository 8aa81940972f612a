//! Looks at many locks at once, of any kind.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use fairlock::{Client, Error, ErrorKind, Kind, LockEntry, LockStatus};
use tokio::task::JoinSet;

use super::handle::Handle;
use crate::base::message;

/// Looks under way at a time. They share a connection, so this is a pipeline.
pub(crate) const AT_ONCE_MAX: usize = 100;

/// A lock to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: Name,
    /// `None` if unknown: the look finds out.
    pub(crate) kind: Option<Kind>,
}

/// The bytes of a lock's name. They need not be a legal name; the look reports that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(Arc<[u8]>);

impl Name {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The name made printable.
    pub(crate) fn printable(&self) -> String {
        message::printable(self.as_os_str())
    }
}

/// Says that a name is no pattern here, also in a script: it would take `free` for all that the pattern means.
pub(crate) fn note_patterns<'a>(names: impl IntoIterator<Item = &'a OsString>) {
    for name in names.into_iter().filter(|name| name.as_bytes().ends_with(b"*")) {
        let name = message::printable(name);
        message::report(&format!(
            "{name}: `*` is part of the name here; `fairlock list '{name}'` looks for names"
        ));
    }
}

/// How many waiters of one lock are looked at where all matter.
pub(crate) const WAITERS_MAX: usize = 1_000;

/// The result of a look.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: Name,
    /// The kind, as far as it can be determined.
    pub(crate) kind: Option<Kind>,
    pub(crate) status: LockStatus,
}

impl From<&LockEntry> for Target {
    fn from(entry: &LockEntry) -> Self {
        Self { name: Name::new(entry.name.as_bytes()), kind: entry.kind }
    }
}

/// The kinds of a name when none is given. Not simple: that is a string, which may be another program's.
const HASHES: [Kind; 3] = [Kind::Fair, Kind::ReadWrite, Kind::Semaphore];

/// The kinds that have a line of waiters, in the order in which a search asks for them.
const LINES: [Kind; 3] = [Kind::ReadWrite, Kind::Semaphore, Kind::Fair];

/// The kinds as which a name may be in use: the one that is given, or those that cannot be another program's data.
pub(crate) fn kinds(given: Option<Kind>) -> Vec<Kind> {
    given.map_or_else(|| HASHES.to_vec(), |kind| vec![kind])
}

/// Looks at one lock, and lists at most `waiters` of its queue. A kind that is known, because somebody named it or it was
/// found so, comes first.
pub(crate) async fn look(client: &Client, target: Target, waiters: usize) -> Result<Seen, Error> {
    /// A plain lock is looked at as a fair one: they share the hash, and the queue of a plain lock is empty.
    const ALL: [Kind; 4] = [Kind::Fair, Kind::Simple, Kind::ReadWrite, Kind::Semaphore];
    let known = target.kind.filter(|kind| *kind != Kind::Plain);
    let others = ALL.into_iter().filter(|kind| Some(*kind) != known);
    let kinds: Vec<_> = known.into_iter().chain(others).collect();
    look_as(client, target, &kinds, waiters).await
}

/// As [`look`], as the first of these kinds that is in use under the name.
pub(crate) async fn look_as(
    client: &Client,
    Target { name, kind: known }: Target,
    kinds: &[Kind],
    waiters: usize,
) -> Result<Seen, Error> {
    let mut refusal = None;
    for kind in kinds {
        let handle = Handle::of_kind(client, *kind, name.as_bytes());
        match handle.inspect_first(waiters).await {
            Ok(status) => {
                let kind = seen_as(*kind, known, &status);
                return Ok(Seen { name, kind, status });
            }
            Err(error) if is_of_another_kind(&error) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.expect("at least one kind"))
}

/// Looks once more at a lock that nobody holds: as the first kind that somebody waits for it as. Warns if there are
/// several.
pub(crate) async fn look_at_lines(client: &Client, seen: &mut Seen, waiters: usize) {
    if seen.status.holder.is_some() {
        return;
    }
    let lines = lines(client, &seen.name, waiters).await;
    if lines.len() > 1 {
        let kinds: Vec<_> = lines.iter().filter_map(|line| line.kind).collect();
        message::report(&kinds_meet(&seen.name, None, &kinds));
    }
    if let Some(first) = lines.into_iter().next() {
        *seen = first;
    }
}

/// Looks at a lock that nobody holds as each kind that somebody waits for it as. On a server that may be several: kinds
/// have lines of their own. What cannot be looked at is left out.
async fn lines(client: &Client, name: &Name, waiters: usize) -> Vec<Seen> {
    let mut lines = Vec::new();
    for kind in LINES {
        let handle = Handle::of_kind(client, kind, name.as_bytes());
        if let Ok(status) = handle.inspect_first(waiters).await
            && status.queue_len > 0
        {
            lines.push(Seen { name: name.clone(), kind: Some(kind), status });
        }
    }
    lines
}

/// The warning about a name that is used for several kinds. `held`: as what it is held, if that is known.
pub(crate) fn kinds_meet(name: &Name, held: Option<Kind>, waited_for: &[Kind]) -> String {
    let waited_for = HASHES.into_iter().filter(|kind| waited_for.contains(kind));
    let nouns: Vec<_> = waited_for.map(|kind| format!("as {}", noun(kind))).collect();
    let (nouns, name) = (nouns.join(" and "), name.printable());
    let advice = "use one kind for a name";
    match held {
        Some(kind) => {
            format!("{name}: in use as {}, and waited for {nouns} too: {advice}", noun(kind))
        }
        None => format!("{name}: waited for {nouns}: {advice}"),
    }
}

fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain => "a plain lock",
        Kind::Simple => "a simple lock",
        Kind::ReadWrite => "a read-write lock",
        Kind::Semaphore => "a semaphore",
        _ => "a fair lock",
    }
}

/// Takes a lock away from all who hold it, as the first of these kinds that is in use under the name; returns how many
/// that were. A refusal changes nothing.
pub(crate) async fn force_as(client: &Client, name: &[u8], kinds: &[Kind]) -> Result<usize, Error> {
    let mut refusal = None;
    for kind in kinds {
        match Handle::of_kind(client, *kind, name).force_unlock().await {
            Err(error) if is_of_another_kind(&error) => {
                refusal.get_or_insert(error);
            }
            done => return done,
        }
    }
    Err(refusal.expect("at least one kind"))
}

/// Whether the name is in use as another kind.
fn is_of_another_kind(error: &Error) -> bool {
    error.kind() == ErrorKind::WrongType
}

/// The kind of a lock, as far as it can be determined. `known`: what it was before.
fn seen_as(looked: Kind, known: Option<Kind>, status: &LockStatus) -> Option<Kind> {
    match (looked, known) {
        (Kind::Fair, Some(Kind::Fair | Kind::Plain)) => known,
        (Kind::Fair, _) => (status.queue_len > 0).then_some(Kind::Fair),
        _ => Some(looked),
    }
}

/// Looks at all targets; the results are in their order.
pub(crate) async fn look_all(
    client: &Client,
    targets: &[Target],
    waiters: usize,
) -> Vec<Result<Seen, Error>> {
    let mut results = Vec::with_capacity(targets.len());
    for some in targets.chunks(AT_ONCE_MAX) {
        let mut looks = JoinSet::new();
        for (at, target) in some.iter().cloned().enumerate() {
            let client = client.clone();
            looks.spawn(async move { (at, look(&client, target, waiters).await) });
        }
        let mut done = looks.join_all().await;
        done.sort_unstable_by_key(|(at, _)| *at);
        results.extend(done.into_iter().map(|(_, result)| result));
    }
    results
}

/// The word for a kind, or for an unknown one.
pub(crate) fn kind_word(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::Fair) => "fair",
        Some(Kind::Plain) => "plain",
        Some(Kind::Simple) => "simple",
        Some(Kind::ReadWrite) => "rw",
        Some(Kind::Semaphore) => "semaphore",
        _ => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::held::Held;

    async fn seen(client: &Client, name: &str, kind: Option<Kind>) -> Option<Kind> {
        let target = Target { name: Name::new(name.as_bytes()), kind };
        look(client, target, 0).await.expect("it is of some kind").kind
    }

    /// A lock in use is found whatever it was before, and one that is free is of any kind.
    #[tokio::test]
    async fn the_kind_is_found() -> Result<(), Error> {
        let client = Client::connect("memory:").await?;
        let everything = [Kind::Fair, Kind::Plain, Kind::Simple, Kind::ReadWrite, Kind::Semaphore];
        for (at, kind) in everything.into_iter().enumerate() {
            let name = format!("lock {at}");
            assert_eq!(seen(&client, &name, None).await, None);
            let guard = match kind {
                // Of which the permits are not all of it.
                Kind::Semaphore => {
                    Held::One(client.semaphore(&name, 3).acquire().await?.into_guard())
                }
                kind => Handle::of_kind(&client, kind, name.as_bytes()).lock().await?,
            };
            for before in everything.into_iter().map(Some).chain([None]) {
                let found = seen(&client, &name, before).await;
                let looks_plain = matches!(kind, Kind::Fair | Kind::Plain);
                let like_before = before.filter(|it| matches!(it, Kind::Fair | Kind::Plain));
                let expected = if looks_plain { like_before } else { Some(kind) };
                assert_eq!(found, expected, "{kind:?}, before {before:?}");
            }
            let _ = guard.release().await?;
        }
        Ok(())
    }

    /// Whoever does not name a kind takes a shared lock away as well, and never a string.
    #[tokio::test]
    async fn a_lock_is_taken_away_as_what_it_is() -> Result<(), Error> {
        let client = Client::connect("memory:").await?;
        let force = |kind| {
            let client = client.clone();
            async move { force_as(&client, b"x", &kinds(kind)).await }
        };
        assert_eq!(force(None).await?, 0);
        let lock = client.rw_lock("x");
        let held = [lock.read().await?, lock.read().await?, lock.read().await?];
        for wrong in [Kind::Fair, Kind::Simple, Kind::Semaphore] {
            assert_eq!(force(Some(wrong)).await.unwrap_err().kind(), ErrorKind::WrongType);
        }
        assert_eq!(force(None).await?, 3);
        drop(held);
        let permit = client.semaphore("x", 2).acquire().await?;
        assert_eq!(force(None).await?, 1);
        drop(permit);
        let simple = client.simple_lock("x").lock().await?;
        assert_eq!(force(None).await.unwrap_err().kind(), ErrorKind::WrongType);
        assert_eq!(force(Some(Kind::Simple)).await?, 1);
        drop(simple);
        Ok(())
    }
}
