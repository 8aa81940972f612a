//! The state of a lock with shares as reconstructed from the log: its keys after each command.

use super::Command;
use super::observer::{Key, keys, number, text};
use crate::wanted::LIMIT;
use fairlock::Share;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The keys that only fairlock uses, with a TTL.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Part {
    Leases,
    Holds,
    Order,
    State,
    Beats,
}

const PARTS: [(&str, Part); 5] = [
    ("leases", Part::Leases),
    ("holds", Part::Holds),
    ("order", Part::Order),
    ("state", Part::State),
    ("beats", Part::Beats),
];

/// The part and the lock of a key of ours.
pub(super) fn part_of(key: &str) -> Option<(Part, &str)> {
    let key = key.strip_prefix("fairlock_rw_").or_else(|| key.strip_prefix("fairlock_sem_"))?;
    let (part, name) = key.split_once(':')?;
    let (_, part) = PARTS.iter().find(|(known, _)| *known == part)?;
    Some((*part, name.strip_prefix('{')?.strip_suffix('}')?))
}

/// The lock and the owner of a key by which Java believes in a reader.
pub(super) fn timeout_of(key: &str) -> Option<(&str, &str)> {
    key.strip_suffix(":rwlock_timeout:1")?.strip_prefix('{')?.split_once("}:")
}

/// Whether the share may be taken beside what is held.
fn fits(share: Share, mut held: impl Iterator<Item = Share>) -> bool {
    match share {
        Share::Read => held.all(|other| other == Share::Read),
        Share::Permits { n, limit } => permits(held) + n <= limit,
        _ => held.next().is_none(),
    }
}

fn permits(held: impl Iterator<Item = Share>) -> u32 {
    held.map(|share| if let Share::Permits { n, .. } = share { n } else { 0 }).sum()
}

fn parse(share: &str) -> Option<Share> {
    match share {
        "r" => Some(Share::Read),
        "w" => Some(Share::Whole),
        permits => {
            let (n, limit) = permits.split_once('/')?;
            Some(Share::Permits { n: n.parse().ok()?, limit: limit.parse().ok()? })
        }
    }
}

/// What our record says of a holder.
#[derive(Clone, Copy, Debug)]
struct Record {
    token: u64,
    share: Share,
}

impl Record {
    /// `<request> <token> <change> <count> <share>`
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        let [_, token, _, _, share] = words[..] else { return None };
        Some(Self { token: number(token)?, share: parse(share)? })
    }
}

#[derive(Debug, Default)]
pub(super) struct Line {
    mode: Option<String>,
    /// The holders, by the fields of the lock.
    held: BTreeMap<String, Share>,
    ends_ms: Option<i64>,
    /// An operator removed the TTL.
    persisted: bool,
    leases: HashMap<String, i64>,
    records: HashMap<String, Record>,
    used: Option<u32>,
    timeouts: HashMap<String, i64>,
    numbers: HashMap<String, u64>,
    wants: HashMap<String, Share>,
    /// Records and notes.
    state: HashSet<String>,
    beats: HashMap<String, i64>,
    with_ttl: HashSet<Part>,
    /// A part was taken away, and the rest is not consistent again yet.
    pub(super) mending: bool,
}

/// A share that was given.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) owner: String,
    pub(super) share: Share,
    pub(super) token: Option<u64>,
    pub(super) ends_ms: Option<i64>,
    /// Its number, if it stood in the line.
    pub(super) number: Option<u64>,
    /// Others read at that moment.
    pub(super) joins: bool,
}

/// A share that its owner has no more.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) owner: String,
    pub(super) ends_ms: Option<i64>,
}

/// What a group of commands did.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) granted: Vec<Granted>,
    pub(super) ended: Vec<Ended>,
    pub(super) renewed: Vec<(String, i64)>,
    /// Leases that were taken away, before the fields were.
    removed: Vec<(String, i64)>,
    pub(super) minted: Option<u64>,
    pub(super) lost_token: bool,
    /// Nothing but keys that went, or whose life or type was changed: by an operator, or because it
    /// was over.
    pub(super) taken: bool,
    /// The server's time, if waiters were removed as dead.
    pub(super) removed_at: Option<i64>,
    pub(super) wrong: Vec<String>,
}

impl Line {
    pub(super) fn has(&self, owner: &str) -> bool {
        self.held.contains_key(owner) || self.numbers.contains_key(owner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
            && self.leases.is_empty()
            && self.records.is_empty()
            && self.numbers.is_empty()
            && self.state.is_empty()
            && self.beats.is_empty()
            && self.timeouts.is_empty()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &String> {
        self.held.keys()
    }

    /// Those who wait, with the last beats of their clients.
    pub(super) fn beats_of_waiters(&self) -> Vec<(String, i64)> {
        let beat_of = |owner: &String| {
            let client = owner.split(':').next()?;
            Some((owner.clone(), *self.beats.get(client)?))
        };
        self.numbers.keys().filter_map(beat_of).collect()
    }

    /// Those who stand in the line before this number; all of them for one who does not stand there.
    pub(super) fn before(&self, number: Option<u64>) -> Vec<&String> {
        let before = |its: &u64| number.is_none_or(|number| *its < number);
        let line = self.numbers.iter().filter(|(_, its)| before(its));
        line.map(|(owner, _)| owner).collect()
    }

    /// Whether the first of the line could have what it wants.
    pub(super) fn could_serve(&self) -> bool {
        let head = self.numbers.iter().min_by_key(|(_, number)| **number);
        let Some(wants) = head.and_then(|(owner, _)| self.wants.get(owner)) else { return false };
        fits(*wants, self.held.values().copied())
    }

    /// What a field of the lock says.
    fn share_of(&self, field: &str, count: u32) -> Share {
        match self.mode.as_deref() {
            _ if field.ends_with(":write") => Share::Whole,
            Some("permits") => Share::Permits { n: count, limit: LIMIT },
            _ => Share::Read,
        }
    }

    pub(super) fn apply(&mut self, name: &str, group: &[Command]) -> Changes {
        let takes = |command: &Command| {
            let name = command[0].to_ascii_uppercase();
            matches!(name.as_slice(), b"PEXPIREAT" | b"PERSIST" | b"RPUSH")
                || (matches!(name.as_slice(), b"DEL" | b"UNLINK") && command.len() == 2)
        };
        let mut changes = Changes { taken: group.iter().all(takes), ..Changes::default() };
        let mut numbers = self.numbers.clone();
        for command in group {
            for key in keys(command) {
                match key {
                    Key::Lock(lock) if lock == name => self.lock(command, &mut changes),
                    Key::OfShares(part, lock) if lock == name => {
                        self.part(part, command, &mut changes);
                        numbers.extend(self.numbers.iter().map(|(o, n)| (o.clone(), *n)));
                    }
                    Key::Timeout(lock, owner) if lock == name => self.timeout(owner, command),
                    Key::Part(super::observer::Part::Token, lock) if lock == name => {
                        match command[0].to_ascii_uppercase().as_slice() {
                            b"SET" => changes.minted = number(&text(&command[2])),
                            b"DEL" | b"UNLINK" => changes.lost_token = true,
                            _ => {}
                        }
                    }
                    _ => {}
                }
            }
        }
        self.describe(&mut changes);
        for granted in &mut changes.granted {
            granted.number = numbers.get(&granted.owner).copied();
        }
        changes
    }

    /// What the parts say of those who were given a share, unless a part has gone since.
    fn describe(&self, changes: &mut Changes) {
        for granted in &mut changes.granted {
            if let Some(record) = self.records.get(&granted.owner) {
                (granted.token, granted.share) = (Some(record.token), record.share);
            }
            granted.ends_ms = self.leases.get(&granted.owner).copied().or(granted.ends_ms);
        }
    }

    fn lock(&mut self, command: &Command, changes: &mut Changes) {
        let words: Vec<_> = command.iter().map(|word| text(word)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words[0].to_ascii_uppercase().as_str() {
            "DEL" | "UNLINK" => {
                // Scripts take holders out before, or all parts at once: else it has ended, perhaps in the middle of a
                // script in which the clock jumped.
                changes.taken |= words.len() == 2 && !self.held.is_empty();
                self.describe(changes);
                for owner in std::mem::take(&mut self.held).into_keys() {
                    self.end(owner, changes);
                }
                (self.mode, self.ends_ms, self.persisted) = (None, None, false);
            }
            "HSET" => {
                let pairs = || words[2..].chunks(2).filter(|pair| pair.len() == 2);
                if let Some(pair) = pairs().find(|pair| pair[0] == "mode") {
                    self.mode = Some(pair[1].to_owned());
                }
                // What makes a table of a list has no value, and goes in the same script (share_wide.lua).
                for pair in pairs().filter(|pair| pair[0] != "mode" && !pair[1].is_empty()) {
                    self.hold(pair[0], number(pair[1]).unwrap_or(0), changes);
                }
            }
            "HDEL" => {
                for field in &words[2..] {
                    let owner = field.strip_suffix(":write").unwrap_or(field);
                    if self.held.remove(owner).is_some() {
                        self.end(owner.to_owned(), changes);
                    }
                }
            }
            "PEXPIREAT" => (self.ends_ms, self.persisted) = (number(words[2]), false),
            "PERSIST" => (self.ends_ms, self.persisted) = (None, true),
            _ => {}
        }
    }

    fn end(&mut self, owner: String, changes: &mut Changes) {
        let ends_ms = self.leases.get(&owner).copied();
        // A script takes the lease away first.
        let ends_ms = ends_ms.or_else(|| changes.lease_before(&owner));
        changes.ended.push(Ended { owner, ends_ms });
    }

    /// The field of a holder; that of one who holds already changes nothing but its count.
    fn hold(&mut self, field: &str, count: u32, changes: &mut Changes) {
        let owner = field.strip_suffix(":write").unwrap_or(field).to_owned();
        if self.held.contains_key(&owner) {
            return;
        }
        let share = self.share_of(field, count);
        if !fits(share, self.held.values().copied()) {
            let holders: Vec<_> = self.held.keys().map(String::as_str).collect();
            let what = format!("{owner} was granted {share:?} beside {}", holders.join(", "));
            changes.wrong.push(what);
        }
        let joins = !self.held.is_empty();
        self.held.insert(owner.clone(), share);
        let granted = Granted { owner, share, token: None, ends_ms: None, number: None, joins };
        changes.granted.push(granted);
    }

    fn timeout(&mut self, owner: String, command: &Command) {
        let words: Vec<_> = command.iter().map(|word| text(word)).collect();
        match words[0].to_ascii_uppercase().as_str() {
            "SET" => {
                let at = words.iter().position(|word| word.eq_ignore_ascii_case("PXAT"));
                let ends = at.and_then(|at| number(words.get(at + 1)?));
                self.timeouts.insert(owner, ends.unwrap_or(i64::MAX));
            }
            "DEL" | "UNLINK" => {
                self.timeouts.remove(&owner);
            }
            _ => {}
        }
    }

    fn part(&mut self, part: Part, command: &Command, changes: &mut Changes) {
        let words: Vec<_> = command.iter().map(|word| text(word)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words[0].to_ascii_uppercase().as_str() {
            "DEL" | "UNLINK" => {
                // No script deletes one of these keys alone: it has ended, and others may have that nobody has looked at
                // since, as after a jump of the clock.
                changes.taken |= words.len() == 2 && !self.part_is_empty(part);
                self.describe(changes);
                self.clear(part);
            }
            "PEXPIREAT" => {
                self.with_ttl.insert(part);
            }
            "PERSIST" => {
                self.with_ttl.remove(&part);
            }
            "ZADD" => self.add(part, &words, changes),
            "ZREM" => {
                for member in &words[2..] {
                    self.remove(part, member, changes);
                }
            }
            "ZREMRANGEBYSCORE" if part == Part::Beats => {
                let most = number::<i64>(words[3].trim_start_matches('(')).unwrap_or(i64::MIN);
                let open = words[3].starts_with('(');
                self.beats.retain(|_, beat| if open { *beat >= most } else { *beat > most });
            }
            "HSET" => {
                for pair in words[2..].chunks(2).filter(|pair| pair.len() == 2) {
                    self.set(part, pair[0], pair[1], changes);
                }
            }
            "HDEL" => {
                for field in &words[2..] {
                    self.remove(part, field, changes);
                }
            }
            _ => {}
        }
        if self.part_is_empty(part) {
            self.with_ttl.remove(&part);
        }
    }

    fn set(&mut self, part: Part, field: &str, value: &str, changes: &mut Changes) {
        if part == Part::Holds {
            match (field, Record::parse(value)) {
                (owner, Some(record)) => {
                    self.records.insert(owner.to_owned(), record);
                }
                ("used", None) => self.used = number(value),
                _ => {}
            }
            return;
        }
        self.state.insert(field.to_owned());
        if field == "removed" {
            changes.removed_at = number(value);
        }
        // `<request> <lease> <sure> <share>`
        if let Some((_, share)) = value.rsplit_once(' ')
            && let Some(share) = parse(share)
        {
            self.wants.insert(field.to_owned(), share);
        }
    }

    fn add(&mut self, part: Part, words: &[&str], changes: &mut Changes) {
        let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
        let only_new = words.iter().any(|word| word.eq_ignore_ascii_case("NX"));
        let pairs: Vec<_> = words[2..].iter().skip_while(|word| options.contains(word)).collect();
        for pair in pairs.chunks(2) {
            let [score, member] = pair else { continue };
            let (score, member) = (number::<f64>(score).unwrap_or(0.0), (**member).to_owned());
            match part {
                Part::Leases if !only_new || !self.leases.contains_key(&member) => {
                    self.leases.insert(member.clone(), score as i64);
                    let is_new = changes.granted.iter().any(|granted| granted.owner == member);
                    if !is_new && self.held.contains_key(&member) {
                        changes.renewed.push((member, score as i64));
                    }
                }
                Part::Order => {
                    self.numbers.insert(member, score as u64);
                }
                Part::Beats => {
                    self.beats.insert(member, score as i64);
                }
                _ => {}
            }
        }
    }

    fn remove(&mut self, part: Part, member: &str, changes: &mut Changes) {
        match part {
            Part::Leases => {
                if let Some(ends) = self.leases.remove(member) {
                    changes.removed.push((member.to_owned(), ends));
                }
            }
            Part::Holds => {
                self.records.remove(member);
                if member == "used" {
                    self.used = None;
                }
            }
            Part::Order => {
                self.numbers.remove(member);
            }
            Part::State => {
                self.state.remove(member);
                self.wants.remove(member);
            }
            Part::Beats => {
                self.beats.remove(member);
            }
        }
    }

    fn clear(&mut self, part: Part) {
        match part {
            Part::Leases => self.leases.clear(),
            Part::Holds => {
                self.records.clear();
                self.used = None;
            }
            Part::Order => self.numbers.clear(),
            Part::State => {
                self.state.clear();
                self.wants.clear();
            }
            Part::Beats => self.beats.clear(),
        }
    }

    fn part_is_empty(&self, part: Part) -> bool {
        match part {
            Part::Leases => self.leases.is_empty(),
            Part::Holds => self.records.is_empty(),
            Part::Order => self.numbers.is_empty(),
            Part::State => self.state.is_empty(),
            Part::Beats => self.beats.is_empty(),
        }
    }

    /// Returns the inconsistencies, as they are at this time of the server or later. `taken`:
    /// [`Changes::taken`].
    pub(super) fn inconsistent(&mut self, taken: bool, now_ms: i64) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.held.is_empty() && self.ends_ms.is_none() && !self.persisted {
            wrong.push("it is held without a TTL".to_owned());
        }
        for (_, part) in PARTS {
            if !self.part_is_empty(part) && !self.with_ttl.contains(&part) {
                wrong.push(format!("{part:?} has no TTL"));
            }
        }
        match self.parts_disagree(now_ms) {
            None => self.mending = false,
            Some(_) if self.mending => {}
            Some(_) if taken => self.mending = true,
            Some(what) => wrong.push(what),
        }
        wrong
    }

    fn parts_disagree(&self, now_ms: i64) -> Option<String> {
        if self.held.is_empty() != self.mode.is_none() {
            return Some(format!("mode {:?} of {} holders", self.mode, self.held.len()));
        }
        for (owner, share) in &self.held {
            let Some(ends) = self.leases.get(owner) else {
                return Some(format!("{owner} holds it without a lease"));
            };
            if !self.records.contains_key(owner) {
                return Some(format!("{owner} holds it without a record"));
            }
            if self.numbers.contains_key(owner) {
                return Some(format!("{owner} holds it and stands in the line"));
            }
            if !self.persisted && self.ends_ms.is_none_or(|at| at < *ends) {
                return Some(format!("it ends at {:?}, before the lease of {owner}", self.ends_ms));
            }
            // The key ends by itself when the lease is over.
            let timeout = self.timeouts.get(owner);
            if *share == Share::Read && *ends > now_ms && timeout != Some(ends) {
                return Some(format!("{owner} reads until {ends}, for Java until {timeout:?}"));
            }
        }
        if self.leases.len() != self.held.len() || self.records.len() != self.held.len() {
            let (leases, records) = (self.leases.len(), self.records.len());
            let holders = self.held.len();
            return Some(format!("{leases} leases and {records} records of {holders} holders"));
        }
        let used = permits(self.held.values().copied());
        if self.mode.as_deref() == Some("permits") && self.used != Some(used) {
            return Some(format!("{used} permits in use, and {:?} are counted", self.used));
        }
        let unknown = self.numbers.keys().find(|owner| !self.wants.contains_key(*owner));
        if let Some(owner) = unknown {
            return Some(format!("{owner} stands in the line without a record"));
        }
        if self.wants.len() != self.numbers.len() {
            return Some("a record has no place in the line".to_owned());
        }
        None
    }
}

impl Changes {
    fn lease_before(&self, owner: &str) -> Option<i64> {
        let removed = self.removed.iter().rev().find(|(known, _)| known == owner);
        removed.map(|(_, ends)| *ends)
    }
}
