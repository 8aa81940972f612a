//! The state of one lock as reconstructed from the log: its keys after each command.

use super::{Command, line, twice};
use std::collections::{HashMap, HashSet, VecDeque};

/// What a key belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Key {
    Lock(String),
    Part(Part, String),
    /// Of a lock with shares.
    OfShares(line::Part, String),
    /// By which Java believes in a reader, the owner.
    Timeout(String, String),
    /// Belongs to no lock, or to a single request.
    Other,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Part {
    Queue,
    Scores,
    Token,
    Order,
    State,
    Beats,
}

const PARTS: [(&str, Part); 6] = [
    ("redisson_lock_queue:", Part::Queue),
    ("redisson_lock_timeout:", Part::Scores),
    ("redisson_lock_token:", Part::Token),
    ("fairlock_order:", Part::Order),
    ("fairlock_state:", Part::State),
    ("fairlock_beats:", Part::Beats),
];

/// Keys that only fairlock uses, with a TTL.
const OURS: [Part; 3] = [Part::Order, Part::State, Part::Beats];

/// The holder of the lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Holder {
    pub(super) owner: String,
    pub(super) token: u64,
    count: u64,
    pub(super) expire_ms: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Observer {
    pub(super) holder: Option<Holder>,
    /// An operator removed the TTL.
    persisted: bool,
    list: VecDeque<String>,
    scores: HashSet<String>,
    numbers: HashMap<String, u64>,
    state: HashSet<String>,
    beats: HashMap<String, i64>,
    with_ttl: HashSet<Part>,
    /// A part was taken away, and the rest is not consistent again yet.
    pub(super) mending: bool,
}

/// What a group of commands did.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The previous hold ended.
    pub(super) ended: bool,
    pub(super) granted: Option<String>,
    /// The number of the granted owner, if it was in the queue.
    pub(super) number: Option<u64>,
    /// Who was before it in the queue at that time.
    pub(super) early: Vec<String>,
    pub(super) minted: Option<u64>,
    pub(super) lost_token: bool,
    /// One part alone is gone: an operator deleted it, or it expired. Scripts delete all parts
    /// together.
    pub(super) taken: bool,
    /// The server's time, if waiters were removed as dead.
    pub(super) removed_at: Option<i64>,
    pub(super) wrong: Vec<String>,
}

/// State before a group of commands.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) beats_of_waiters: Vec<(String, i64)>,
}

/// The keys that a command writes.
pub(super) fn keys(command: &Command) -> Vec<Key> {
    let all = matches!(command[0].to_ascii_uppercase().as_slice(), b"DEL" | b"UNLINK");
    let keys = command.iter().skip(1).take(if all { usize::MAX } else { 1 });
    keys.map(|key| key_of(key)).collect()
}

fn key_of(key: &[u8]) -> Key {
    let key = text(key);
    for (prefix, part) in PARTS {
        if let Some(name) = key.strip_prefix(prefix) {
            let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            return name.map_or(Key::Other, |name| Key::Part(part, name.to_owned()));
        }
    }
    if let Some((part, name)) = line::part_of(&key) {
        return Key::OfShares(part, name.to_owned());
    }
    if let Some((name, owner)) = line::timeout_of(&key) {
        return Key::Timeout(name.to_owned(), owner.to_owned());
    }
    if key.starts_with("fairlock_") { Key::Other } else { Key::Lock(key) }
}

pub(super) fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

pub(super) fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

impl Observer {
    pub(super) fn has(&self, owner: &str) -> bool {
        self.list.iter().any(|member| member == owner)
            || self.holder.as_ref().is_some_and(|holder| holder.owner == owner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none()
            && self.list.is_empty()
            && self.scores.is_empty()
            && self.numbers.is_empty()
            && self.state.is_empty()
            && self.beats.is_empty()
    }

    pub(super) fn before(&self) -> Before {
        let beat_of = |owner: &String| {
            let client = owner.split(':').next()?;
            Some((owner.clone(), *self.beats.get(client)?))
        };
        let beats_of_waiters = self.list.iter().filter_map(beat_of).collect();
        Before { beats_of_waiters }
    }

    /// The owners before this one: in the queue, or by number if it has just returned to its place.
    fn early(&self, owner: &str) -> Vec<String> {
        let place = self.list.iter().position(|member| member == owner).unwrap_or(usize::MAX);
        let number = self.numbers.get(owner);
        let has_smaller =
            |member| number.zip(self.numbers.get(member)).is_some_and(|(own, other)| other < own);
        let line = self.list.iter().enumerate().filter(|(_, member)| *member != owner);
        let early = line.filter(|(at, member)| *at < place || has_smaller(*member));
        early.map(|(_, member)| member.clone()).collect()
    }

    pub(super) fn apply(&mut self, name: &str, group: &[Command]) -> Changes {
        let mut changes = Changes::default();
        let numbers = self.numbers.clone();
        for command in group {
            for key in keys(command) {
                match key {
                    Key::Lock(lock) if lock == name => self.lock(command, &mut changes),
                    Key::Part(part, lock) if lock == name => {
                        self.part(part, command, &mut changes);
                    }
                    _ => {}
                }
            }
        }
        changes.number = changes.granted.as_ref().and_then(|owner| numbers.get(owner)).copied();
        changes
    }

    fn lock(&mut self, command: &Command, changes: &mut Changes) {
        let words: Vec<_> = command.iter().map(|word| text(word)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words[0].to_ascii_uppercase().as_str() {
            "DEL" | "UNLINK" => {
                // A grant still counts: it ended at once if the clock jumped in the middle of it.
                changes.ended |= self.holder.take().is_some();
            }
            "HSET" => {
                if let [_, _, owner, count] = words[..] {
                    self.hold(owner, number(count).unwrap_or(0), changes);
                }
            }
            "SET" => {
                // The value of a simple lock: client:number:request:token.
                let mut parts = words[2].rsplitn(3, ':');
                let (token, _, owner) = (parts.next(), parts.next(), parts.next());
                let owner = owner.unwrap_or(words[2]);
                changes.minted = token.and_then(number);
                self.hold(owner, 1, changes);
                self.expire(option(&words, "PXAT"));
            }
            "PEXPIREAT" => self.expire(number(words[2])),
            "PERSIST" => {
                self.persisted = true;
                self.expire(None);
            }
            _ => {}
        }
    }

    fn expire(&mut self, at: Option<i64>) {
        self.persisted &= at.is_none();
        if let Some(holder) = &mut self.holder {
            holder.expire_ms = at;
        }
    }

    fn hold(&mut self, owner: &str, count: u64, changes: &mut Changes) {
        if let Some(holder) = &mut self.holder {
            if holder.owner != owner {
                changes
                    .wrong
                    .push(format!("{owner} was granted it while {} held it", holder.owner));
            } else {
                // The same count again is a copy of a request whose reply was lost.
                if holder.count.abs_diff(count) > 1 {
                    let before = holder.count;
                    changes
                        .wrong
                        .push(format!("{owner} had it {before} times, then {count} times"));
                }
                holder.count = count;
                return;
            }
        }
        if count != 1 {
            changes.wrong.push(format!("{owner} was granted it {count} times at once"));
        }
        self.persisted = false;
        self.holder = Some(Holder { owner: owner.to_owned(), token: 0, count, expire_ms: None });
        changes.granted = Some(owner.to_owned());
        // Computed now rather than before the group: a waiter that returns to its place may find
        // the lock free, and the same script puts it back into the queue and removes it again.
        changes.early = self.early(owner);
    }

    fn part(&mut self, part: Part, command: &Command, changes: &mut Changes) {
        let words: Vec<_> = command.iter().map(|word| text(word)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words[0].to_ascii_uppercase().as_str() {
            "DEL" | "UNLINK" => {
                changes.lost_token |= part == Part::Token;
                changes.taken |= part != Part::Token && words.len() == 2;
                self.clear(part);
            }
            "PEXPIREAT" => {
                self.with_ttl.insert(part);
            }
            "PERSIST" => {
                self.with_ttl.remove(&part);
            }
            "SET" if part == Part::Token => changes.minted = number(words[2]),
            "RPUSH" => self.list.extend(words[2..].iter().map(|word| (*word).to_owned())),
            "LPUSH" => words[2..].iter().for_each(|word| self.list.push_front((*word).to_owned())),
            "LINSERT" => self.insert(words[2], words[3], words[4]),
            "LPOP" => {
                let count = words.get(2).and_then(|word| number(word)).unwrap_or(1);
                self.list.drain(..count.min(self.list.len()));
            }
            "LREM" => self.remove(number(words[2]).unwrap_or(0), words[3]),
            "ZADD" => self.add_scores(part, &words),
            "ZREM" => {
                for member in &words[2..] {
                    match part {
                        Part::Scores => {
                            self.scores.remove(*member);
                        }
                        Part::Order => {
                            self.numbers.remove(*member);
                        }
                        _ => {
                            self.beats.remove(*member);
                        }
                    }
                }
            }
            "ZREMRANGEBYSCORE" if part == Part::Beats => {
                let most = number::<i64>(words[3].trim_start_matches('(')).unwrap_or(i64::MIN);
                let open = words[3].starts_with('(');
                self.beats.retain(|_, beat| if open { *beat >= most } else { *beat > most });
            }
            "HSET" => {
                for pair in words[2..].chunks(2) {
                    self.state.insert(pair[0].to_owned());
                    if pair[0] == "removed" {
                        changes.removed_at = number(pair[1]);
                    }
                }
            }
            "HDEL" => {
                for field in &words[2..] {
                    self.state.remove(*field);
                }
            }
            _ => {}
        }
        if self.part_is_empty(part) {
            self.with_ttl.remove(&part);
        }
    }

    fn clear(&mut self, part: Part) {
        match part {
            Part::Queue => self.list.clear(),
            Part::Scores => self.scores.clear(),
            Part::Token => {}
            Part::Order => self.numbers.clear(),
            Part::State => self.state.clear(),
            Part::Beats => self.beats.clear(),
        }
    }

    fn part_is_empty(&self, part: Part) -> bool {
        match part {
            Part::Queue => self.list.is_empty(),
            Part::Scores => self.scores.is_empty(),
            Part::Token => false,
            Part::Order => self.numbers.is_empty(),
            Part::State => self.state.is_empty(),
            Part::Beats => self.beats.is_empty(),
        }
    }

    fn insert(&mut self, side: &str, pivot: &str, member: &str) {
        let Some(at) = self.list.iter().position(|known| known == pivot) else { return };
        let at = if side.eq_ignore_ascii_case("AFTER") { at + 1 } else { at };
        self.list.insert(at, member.to_owned());
    }

    fn remove(&mut self, count: i64, member: &str) {
        let mut left = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
        let mut kept: VecDeque<String> = VecDeque::with_capacity(self.list.len());
        let backwards = count < 0;
        while let Some(one) = if backwards { self.list.pop_back() } else { self.list.pop_front() } {
            if one == member && left > 0 {
                left -= 1;
            } else if backwards {
                kept.push_front(one);
            } else {
                kept.push_back(one);
            }
        }
        self.list = kept;
    }

    fn add_scores(&mut self, part: Part, words: &[&str]) {
        let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
        let only_new = words.iter().any(|word| word.eq_ignore_ascii_case("NX"));
        let pairs: Vec<_> = words[2..].iter().skip_while(|word| options.contains(word)).collect();
        for pair in pairs.chunks(2) {
            let [score, member] = pair else { continue };
            let score: f64 = number(score).unwrap_or(0.0);
            match part {
                Part::Scores => {
                    self.scores.insert((**member).to_owned());
                }
                Part::Order if !only_new || !self.numbers.contains_key(**member) => {
                    self.numbers.insert((**member).to_owned(), score as u64);
                }
                Part::Beats => {
                    self.beats.insert((**member).to_owned(), score as i64);
                }
                _ => {}
            }
        }
    }

    /// Returns the inconsistencies. `taken`: [`Changes::taken`].
    pub(super) fn inconsistent(&mut self, taken: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(holder) = &self.holder
            && holder.expire_ms.is_none()
            && !self.persisted
        {
            wrong.push(format!("{} holds it without a TTL", holder.owner));
        }
        for part in OURS {
            if !self.part_is_empty(part) && !self.with_ttl.contains(&part) {
                wrong.push(format!("{part:?} has no TTL"));
            }
        }
        let queue = self.queue_is_wrong();
        match queue {
            None => self.mending = false,
            Some(_) if self.mending => {}
            Some(_) if taken => self.mending = true,
            Some(what) => wrong.push(what),
        }
        wrong
    }

    fn queue_is_wrong(&self) -> Option<String> {
        if let Some(member) = twice(&self.list) {
            return Some(format!("{member} stands in the queue twice"));
        }
        if let Some(member) = self.list.iter().find(|member| !self.scores.contains(*member)) {
            return Some(format!("{member} stands in the queue without a score"));
        }
        if self.scores.len() != self.list.len() {
            return Some("a score has no place in the queue".to_owned());
        }
        if let Some(holder) = &self.holder
            && self.list.contains(&holder.owner)
        {
            return Some(format!("{} holds it and stands in the queue", holder.owner));
        }
        if self.numbers.keys().any(|owner| !self.scores.contains(owner)) {
            return Some("a number has no place in the queue".to_owned());
        }
        if self.numbers.len() != self.list.len() {
            return Some("a waiter has no number".to_owned());
        }
        let mut last = 0;
        for (owner, its) in self.list.iter().filter_map(|o| Some((o, *self.numbers.get(o)?))) {
            if its < last {
                return Some(format!("{owner} with number {its} stands behind number {last}"));
            }
            last = its;
        }
        None
    }
}

/// The number that follows this option.
fn option(words: &[&str], name: &str) -> Option<i64> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(name))?;
    number(words.get(at + 1)?)
}
