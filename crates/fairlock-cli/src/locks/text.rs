//! A lock, its holders and its clients as text. The kind tells a writer from the holder of a whole lock.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock::{ClientInfo, Holder, Kind, LockStatus, OwnerId, Share};

use super::java;
use crate::base::duration;
use crate::base::utc;

/// What follows when a lock is taken away by force.
pub(crate) const FORCED: [&str; 4] = [
    "Its holder is told at once, and `fairlock run` ends its command;",
    "one that the message does not reach learns of it at its next renewal,",
    "and one that stands still works on until its lease would have ended.",
    "Until then two may be at work. Only what checks tokens is safe.",
];

/// How many of several holders have a line of their own.
const LINES_MAX: usize = 64;

/// The holders, each with its client if that publishes who it is; `None` if the lock is free. One holder is in the first
/// line; several have a line each. Since when each of several readers reads is not known, only since when somebody does.
pub(crate) fn holders(kind: Option<Kind>, status: &LockStatus) -> Option<String> {
    let holder = status.holder.as_ref()?;
    if let Some(instead) = done(status).or_else(|| number(kind, status)) {
        return Some(instead);
    }
    let mut text = held(kind, status).to_owned();
    // Writing to a string cannot fail.
    if status.holding < 2 {
        let _ = match holder.ours {
            true => write!(text, " by {}", holder.owner),
            false => write!(text, " by {}", owner(status, &holder.owner)),
        };
    } else {
        let _ = write!(text, " by {}", status.holding);
    }
    if let Some(usage) = usage(status) {
        let _ = write!(text, ", {usage}");
    }
    if status.holding < 2 {
        let client = status.client(&holder.owner).map(who);
        text.push_str(&times(status, holder, true));
        let _ = client.map(|client| write!(text, "\n  {client}"));
        return Some(text);
    }
    let reads = holder.share == Share::Read;
    if let Some(age) = age(status, holder.since).filter(|_| reads) {
        let _ = write!(text, ", for {age}");
    }
    let listed = &status.holders[..status.holders.len().min(LINES_MAX)];
    for holder in listed {
        let _ = write!(text, "\n  {}", holder.owner);
        if let Some(permits) = permits(holder.share) {
            let _ = write!(text, ", {permits}");
        }
        text.push_str(&times(status, holder, !reads));
        let _ = status.client(&holder.owner).map(|client| write!(text, ", {}", who(client)));
    }
    let unlisted = status.holding.saturating_sub(listed.len());
    if unlisted > 0 {
        let _ = write!(text, "\n  and {unlisted} more that hold it");
    }
    Some(text)
}

/// The holders in a part of a line: `held by ann@web-1, pid 42, backup.sh, for 3m10s`, `held to read by ..., and 2 others`,
/// or that the run is done; `None` if the lock is free.
pub(crate) fn in_line(kind: Option<Kind>, status: &LockStatus) -> Option<String> {
    let holder = status.holder.as_ref()?;
    if let Some(instead) = done(status).or_else(|| number(kind, status)) {
        return Some(instead);
    }
    let mut text = format!("{} by {}", held(kind, status), owner(status, &holder.owner));
    if let Some(age) = age(status, holder.since) {
        text.push_str(&format!(", for {age}"));
    }
    text.push_str(&others(status));
    if let Some(usage) = usage(status) {
        text.push_str(&format!(", {usage}"));
    }
    text.extend(remarks(status).map(|remark| format!(", {remark}")));
    Some(text)
}

/// As [`in_line`], in parts for a narrow line, what tells most first: `held by backup.sh for 3m10s`, `ann@web-1, pid 42`.
pub(crate) fn in_short(kind: Option<Kind>, status: &LockStatus) -> Vec<String> {
    let client = status.holder.as_ref().and_then(|holder| status.client(&holder.owner));
    let Some((client, label)) = client.and_then(|client| Some((client, client.label.as_ref()?)))
    else {
        return in_line(kind, status).into_iter().collect();
    };
    if let Some(done) = done(status) {
        return vec![done];
    }
    let mut text = format!("{} by {label}", held(kind, status));
    if let Some(age) = age(status, status.holder.as_ref().and_then(|holder| holder.since)) {
        text.push_str(&format!(" for {age}"));
    }
    text.push_str(&others(status));
    let mut parts = vec![text];
    parts.extend(remarks(status));
    parts.extend(usage(status));
    parts.push(user(client));
    parts
}

/// What the owner's client publishes about itself, else its id.
pub(crate) fn owner(status: &LockStatus, owner: &OwnerId) -> String {
    match status.client(owner) {
        Some(client) => who(client),
        None if owner.is_ours() => owner.to_string(),
        None if java::is_java(&owner.to_string()) => format!("a Java client ({owner})"),
        None => format!("another program ({owner})"),
    }
}

/// The holders in a cell of a table: `ann@web-1, pid 42, nightly`, `read by ann@web-1, pid 42, report, and 2 others`,
/// `5 of 6 permits, ann@web-1, pid 42, fetch, and 2 others`; `None` if the lock is free.
pub(crate) fn cell(kind: Option<Kind>, status: &LockStatus) -> Option<String> {
    let holder = status.holder.as_ref()?;
    if let Some(instead) = done(status).or_else(|| number(kind, status)) {
        return Some(instead);
    }
    let mut text = match (kind, holder.share, held_limits(status)) {
        (_, Share::Read, _) => "read by ".to_owned(),
        (_, _, Some((least, most))) if least == most => {
            format!("{} of {most} permits, ", status.used)
        }
        (_, _, Some((least, most))) => format!("{} of {least}-{most} permits, ", status.used),
        (Some(Kind::ReadWrite), ..) => "written by ".to_owned(),
        _ => String::new(),
    };
    match status.client(&holder.owner) {
        Some(client) => text.push_str(&who(client)),
        None => text.push_str(&holder.owner.to_string()),
    }
    text.push_str(&others(status));
    text.extend(remarks(status).map(|remark| format!(", {remark}")));
    Some(text)
}

/// What is wrong with a hold: `renewal overdue by 13s`, or that a hold of ours has no TTL.
fn remarks(status: &LockStatus) -> impl Iterator<Item = String> {
    let most = status.holders.iter().filter_map(|holder| status.renewal_overdue(holder)).max();
    let lacks_ttl = status.holders.iter().any(|holder| holder.ours && holder.ttl.is_none());
    most.map(overdue).into_iter().chain(lacks_ttl.then(|| "no TTL".to_owned()))
}

fn overdue(by: Duration) -> String {
    format!("renewal overdue by {}", duration::human(by))
}

/// `held`, or what a read-write lock is held for.
pub(crate) fn held(kind: Option<Kind>, status: &LockStatus) -> &'static str {
    match (kind, status.holder.as_ref().map(|holder| holder.share)) {
        (_, Some(Share::Read)) => "held to read",
        (Some(Kind::ReadWrite), _) => "held to write",
        _ => "held",
    }
}

/// `, and 2 others`: those who hold it beside the first.
pub(crate) fn others(status: &LockStatus) -> String {
    match status.holding {
        0 | 1 => String::new(),
        2 => ", and another".to_owned(),
        more => format!(", and {} others", more - 1),
    }
}

/// The smallest and the largest limit of the holders of permits: that of a waiter bounds nothing yet.
fn held_limits(status: &LockStatus) -> Option<(u32, u32)> {
    let limits = status.holders.iter().filter_map(|holder| match holder.share {
        Share::Permits { limit, .. } => Some(limit),
        _ => None,
    });
    limits.clone().min().zip(limits.max())
}

/// `5 of 6 permits in use`; of a semaphore that somebody holds.
pub(crate) fn usage(status: &LockStatus) -> Option<String> {
    let (_, most) = held_limits(status)?;
    Some(format!("{} of {most} permits in use", status.used))
}

/// `limits from 4 to 6`, if those who hold or wait name different ones.
pub(crate) fn limits(status: &LockStatus) -> Option<String> {
    let (least, most) = status.limits.filter(|(least, most)| least != most)?;
    Some(format!("limits from {least} to {most}"))
}

/// What a waiter wants of a lock that several may hold: `to read`, `to write`, `2 permits`.
pub(crate) fn want(kind: Option<Kind>, share: Share) -> Option<String> {
    match (kind, share) {
        (_, Share::Read) => Some("to read".to_owned()),
        (Some(Kind::ReadWrite), _) => Some("to write".to_owned()),
        _ => permits(share),
    }
}

/// `2 permits`.
pub(crate) fn permits(share: Share) -> Option<String> {
    match share {
        Share::Permits { n: 1, .. } => Some("1 permit".to_owned()),
        Share::Permits { n, .. } => Some(format!("{n} permits")),
        _ => None,
    }
}

fn times(status: &LockStatus, holder: &Holder, since: bool) -> String {
    let mut text = String::new();
    if holder.count != 1 {
        let _ = write!(text, ", {} holds", holder.count);
    }
    if let Some(age) = age(status, holder.since).filter(|_| since) {
        let _ = write!(text, ", for {age}");
    }
    text.push_str(&lasts(status, holder));
    text
}

/// `, runs out in 7s unless renewed, renewal overdue by 13s`.
pub(crate) fn lasts(status: &LockStatus, holder: &Holder) -> String {
    let Some(ttl) = holder.ttl else {
        let until = if holder.ours { " until it is renewed or waited for" } else { "" };
        return format!(", never runs out (no TTL){until}");
    };
    let mut text = format!(", runs out in {} unless renewed", duration::human(ttl));
    text.extend(status.renewal_overdue(holder).map(|by| format!(", {}", overdue(by))));
    text
}

/// What a number without an end under a simple lock's name is; `None` for anything else.
fn number(kind: Option<Kind>, status: &LockStatus) -> Option<String> {
    let holder =
        status.holder.as_ref().filter(|holder| kind == Some(Kind::Simple) && !holder.ours)?;
    let value = holder.owner.to_string();
    let counts =
        holder.ttl.is_none() && !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    counts.then(|| {
        format!("{value}, a number without a TTL: a latch (`fairlock latch --show`) or a counter, not a lock")
    })
}

/// Whether the token is that of the holders. Java's fair and plain locks mint none: beside such a holder it is that of an
/// earlier hold.
pub(crate) fn is_token_of_holders(status: &LockStatus) -> bool {
    status.holders.iter().any(|holder| holder.ours)
}

/// When the last token was minted, if it tells: `2026-11-26T15:49:59Z, 18m02s ago`. Tokens are the microseconds of the
/// store's clock, unless that is behind an earlier token; those of Java alone count from 1.
pub(crate) fn minted(status: &LockStatus) -> Option<String> {
    const SINCE_2001: Duration = Duration::from_secs(1_000_000_000);
    let since = Duration::from_micros(status.token?.get());
    let time = UNIX_EPOCH + since;
    let ago = status.at.duration_since(time).ok().filter(|_| since > SINCE_2001)?;
    Some(format!("{}, {} ago", utc::rfc3339(time), duration::human(ago)))
}

/// `done, next start in 43m00s`; `None` if the lock is free or in use.
pub(crate) fn done(status: &LockStatus) -> Option<String> {
    let left = status.ttl.filter(|_| status.is_done())?;
    Some(format!("done, next start in {}", duration::human(left)))
}

/// How long ago, by the store's clock.
pub(crate) fn age(status: &LockStatus, since: Option<SystemTime>) -> Option<String> {
    status.at.duration_since(since?).ok().map(duration::human)
}

/// `ann@web-1, pid 42, nightly`: the label comes last, because it may be anything.
pub(crate) fn who(client: &ClientInfo) -> String {
    let mut text = user(client);
    if let Some(label) = &client.label {
        let _ = write!(text, ", {label}");
    }
    text
}

fn user(client: &ClientInfo) -> String {
    let user = client.user.as_deref().unwrap_or("?");
    let host = client.host.as_deref().unwrap_or("?");
    format!("{user}@{host}, pid {}", client.pid)
}

#[cfg(test)]
mod tests {
    use fairlock::{Client, Config, Error};

    use super::*;

    /// A client that announces nothing, so that texts have ids.
    async fn client() -> Client {
        Client::with_config(Config::memory().announce(false)).await.expect("it is in this process")
    }

    /// The text with ids and times replaced.
    fn neutral(text: &str, owners: &[(&fairlock::Guard, &str)]) -> String {
        let text = owners.iter().fold(text.to_owned(), |text, (guard, name)| {
            text.replace(&guard.owner().to_string(), name)
        });
        let mut neutral = Vec::new();
        for part in text.split(", for ") {
            let after = part.find([',', '\n']).filter(|_| !neutral.is_empty());
            neutral.push(match (neutral.is_empty(), after) {
                (true, _) => part.to_owned(),
                (false, Some(at)) => format!("TIME{}", &part[at..]),
                (false, None) => "TIME".to_owned(),
            });
        }
        neutral.join(", for ")
    }

    #[tokio::test]
    async fn readers_and_a_writer() -> Result<(), Error> {
        let client = client().await;
        let catalogue = client.rw_lock("catalogue").lease(Duration::from_secs(90));
        let kind = Some(Kind::ReadWrite);
        assert_eq!(holders(kind, &catalogue.inspect().await?), None);
        let writing = catalogue.write().await?;
        let seen = catalogue.inspect().await?;
        let says = neutral(&holders(kind, &seen).unwrap(), &[(&writing, "W")]);
        assert!(says.starts_with("held to write by W, for TIME, runs out in 1m"), "{says}");
        assert_eq!(neutral(&cell(kind, &seen).unwrap(), &[(&writing, "W")]), "written by W");
        let one = writing.downgrade().await?;
        let seen = catalogue.inspect().await?;
        let says = neutral(&holders(kind, &seen).unwrap(), &[(&one, "R")]);
        assert!(says.starts_with("held to read by R, for TIME, runs out in 1m"), "{says}");
        let two = catalogue.read().await?;
        let waits = catalogue.enqueue_write().await?;
        let seen = catalogue.inspect().await?;
        let says = neutral(&holders(kind, &seen).unwrap(), &[(&one, "R"), (&two, "R")]);
        let lines: Vec<_> = says.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "held to read by 2, for TIME"), "{says}");
        for line in &lines[1..] {
            assert!(line.starts_with("  R, runs out in 1m"), "{says}");
        }
        let row = neutral(&cell(kind, &seen).unwrap(), &[(&one, "R"), (&two, "R")]);
        assert_eq!(row, "read by R, and another");
        assert_eq!(want(kind, seen.queue[0].share).as_deref(), Some("to write"));
        assert_eq!(want(kind, Share::Read).as_deref(), Some("to read"));
        assert_eq!(want(Some(Kind::Fair), Share::Whole), None);
        drop((two, waits));
        Ok(())
    }

    #[tokio::test]
    async fn permits_and_limits_that_differ() -> Result<(), Error> {
        let client = client().await;
        let kind = Some(Kind::Semaphore);
        let three = client.semaphore("fetch", 3);
        let two = three.acquire_many(2).await?;
        let seen = three.inspect().await?;
        let says = neutral(&holders(kind, &seen).unwrap(), &[(&two, "A")]);
        assert!(says.starts_with("held by A, 2 of 3 permits in use, for TIME"), "{says}");
        assert_eq!(neutral(&cell(kind, &seen).unwrap(), &[(&two, "A")]), "2 of 3 permits, A");
        assert_eq!(limits(&seen), None);

        let one = client.semaphore("fetch", 5).acquire().await?;
        let seen = three.inspect().await?;
        let owners: [(&fairlock::Guard, _); 2] = [(&two, "A"), (&one, "B")];
        let says = neutral(&holders(kind, &seen).unwrap(), &owners);
        let mut lines: Vec<_> = says.lines().collect();
        assert_eq!(lines.remove(0), "held by 2, 3 of 5 permits in use");
        lines.sort_unstable();
        assert!(lines[0].starts_with("  A, 2 permits, for TIME"), "{says}");
        assert!(lines[1].starts_with("  B, 1 permit, for TIME"), "{says}");
        assert_eq!(limits(&seen).as_deref(), Some("limits from 3 to 5"));
        let row = cell(kind, &seen).unwrap();
        assert!(row.starts_with("3 of 3-5 permits, ") && row.ends_with(", and another"), "{row}");
        drop((two, one));
        Ok(())
    }

    /// More than are listed.
    #[tokio::test]
    async fn a_crowd_is_counted() -> Result<(), Error> {
        let client = client().await;
        let crowd = client.rw_lock("crowd");
        let mut readers = Vec::new();
        for _ in 0..100 {
            readers.push(crowd.read().await?);
        }
        let seen = crowd.inspect().await?;
        let says = holders(Some(Kind::ReadWrite), &seen).unwrap();
        assert!(says.starts_with("held to read by 100, for "), "{says}");
        assert!(says.ends_with("\n  and 36 more that hold it"), "{says}");
        assert!(cell(Some(Kind::ReadWrite), &seen).unwrap().ends_with(", and 99 others"));
        Ok(())
    }
}
