//! A lock with shares on the server as a state, and back.

use super::super::super::keys::Keys;
use fairlock_core::{
    ClientId, Kind, LockState, Op, OwnerId, RequestId, Share, SharedHold, Shares, Snapshot,
    SnapshotRecord, SnapshotWaiter, Token,
};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use std::collections::{BTreeMap, BTreeSet};

/// When the records of the holders end whose last lease ends at `last_ms`: D later, rounded up.
pub(super) fn kept_until(last_ms: u64) -> u64 {
    const STEP_MS: u64 = 8_192;
    ((last_ms + 6_000) / STEP_MS + 1) * STEP_MS
}

const DUMP: &str = "
local readers = { { 'HGETALL' }, { 'ZRANGE', 0, -1, 'WITHSCORES' }, { 'HGETALL' }, { 'GET' },
  { 'ZRANGE', 0, -1, 'WITHSCORES' }, { 'HGETALL' }, { 'ZRANGE', 0, -1, 'WITHSCORES' } }
local found = {}
for i, key in ipairs(KEYS) do
  local left, reader = redis.call('PTTL', key), readers[i]
  found[i] = { left, reader and redis.call(reader[1], key, unpack(reader, 2)) or false }
end
local others = {}
for _, key in ipairs(redis.call('KEYS', '*')) do others[#others + 1] = { key, redis.call('PTTL', key) } end
return { found, others }
";

/// What the server keeps of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dump {
    pub(super) snapshot: Snapshot,
    /// The holds whose leases run.
    pub(super) holds: BTreeMap<OwnerId, SharedHold>,
    /// Those whose leases are over, as long as nobody has ended them.
    pub(super) over: BTreeMap<OwnerId, SharedHold>,
    pub(super) wants: BTreeMap<OwnerId, Share>,
    /// The field `mode`.
    pub(super) mode: Option<String>,
    /// What a client of Redisson would not understand, or what would stay for ever.
    pub(super) wrong: Vec<String>,
    /// Timeout keys of nobody who holds.
    pub(super) left: Vec<Vec<u8>>,
}

impl Dump {
    /// A lock that knows this and nothing else.
    pub(super) fn lock(&self, kind: Kind) -> LockState {
        let mut wants = self.wants.clone();
        // The record of one that lost its place does not stand in the line.
        wants.retain(|owner, _| self.snapshot.order.contains_key(owner));
        let mut holds = self.holds.clone();
        holds.extend(self.over.clone());
        let shares = Shares::restored(kind, holds, wants);
        LockState::restored(self.snapshot.clone(), Some(shares))
    }
}

/// The keys of the lock that the scripts take, without those of other kinds.
pub(super) fn keys_of(keys: &Keys, kind: Kind) -> [Vec<u8>; 7] {
    keys.parts_of(&Op::Nudge.on(kind)).map(|parts| parts.concat())
}

pub(super) fn read(
    raw: &mut Raw,
    keys: &Keys,
    kind: Kind,
    (now_ms, latest_ms): (u64, u64),
    burials: &BTreeSet<RequestId>,
) -> Dump {
    let mut named = keys_of(keys, kind).to_vec();
    named.extend(burials.iter().map(|request| keys.buried(*request)));
    let mut command = vec![b"EVAL".to_vec(), DUMP.into(), named.len().to_string().into_bytes()];
    command.extend(named.iter().cloned());
    let reply = raw.call(&command);
    let Value::Array(parts) = &reply else { panic!("the dump failed: {reply:?}") };
    let found = parts[0].array();
    let expires = |at: usize| match found[at].array()[0].int() {
        left if left < 0 => None,
        left => Some(now_ms + left as u64),
    };
    let content = |at: usize| &found[at].array()[1];
    let mut snapshot = Snapshot {
        token: match content(3) {
            Value::Bulk(text) => Some(number(text)),
            _ => None,
        },
        token_expires: expires(3),
        order: pairs(content(4)).map(|(owner, n)| (OwnerId::parse(&owner), number(&n))).collect(),
        order_expires: expires(4),
        state_expires: expires(5),
        beats: pairs(content(6))
            .map(|(id, n)| (ClientId::parse(&id).expect("a client"), number(&n)))
            .collect(),
        beats_expires: expires(6),
        ..Snapshot::default()
    };
    let mut wants = BTreeMap::new();
    for (field, value) in pairs(content(5)) {
        let (text, record) = (String::from_utf8(value).expect("text"), &mut snapshot.record);
        let n = || Some(number(text.as_bytes()));
        match field.as_slice() {
            b"amnesty" => record.amnesty = n(),
            b"silence" => record.silence = n(),
            b"gather" => record.gather = n(),
            b"guest" => record.guest = n(),
            b"removed" => record.removed = n(),
            b"given" => record.given = n(),
            owner => {
                let words: Vec<&str> = text.split(' ').collect();
                let [request, lease, sure, share] = words[..] else { panic!("no record: {text}") };
                let waiter = SnapshotWaiter {
                    request: RequestId::parse(request.as_bytes()).expect("a request"),
                    lease_ms: number(lease.as_bytes()),
                    sure: sure == "1",
                };
                snapshot.waiters.insert(OwnerId::parse(owner), waiter);
                wants.insert(OwnerId::parse(owner), share_of(share));
            }
        }
    }
    for (at, request) in burials.iter().enumerate() {
        if let Some(until) = expires(7 + at) {
            snapshot.buried.insert(*request, until);
        }
    }
    let lock: BTreeMap<Vec<u8>, Vec<u8>> = pairs(content(0)).collect();
    let mode = lock.get(&b"mode"[..]).map(|mode| String::from_utf8(mode.clone()).expect("text"));
    let ends: BTreeMap<_, _> =
        pairs(content(1)).map(|(owner, end)| (owner, number(&end))).collect();
    let (mut holds, mut over) = (BTreeMap::new(), BTreeMap::new());
    let mut wrong = Vec::new();
    let (mut fields, mut timeouts, mut used) = (1, BTreeMap::new(), 0);
    for (owner, text) in pairs(content(2)).filter(|(owner, _)| owner.contains(&b'-')) {
        let text = String::from_utf8(text).expect("text");
        let hold = hold_of(&text, ends.get(&owner).copied().unwrap_or(0));
        // Whoever is not in the lock holds nothing.
        let field = [&owner[..], if hold.share == Share::Whole { b":write" } else { b"" }].concat();
        let value = lock.get(&field);
        if hold.ends_ms < now_ms {
            if value.is_some() {
                over.insert(OwnerId::parse(&owner), hold);
            }
        } else {
            let Some(value) = value else { continue };
            let said = match hold.share {
                Share::Permits { n, .. } => n,
                Share::Whole => hold.count,
                // Of a reader 1: Redisson 3.52 would want a timeout key for each.
                _ => 1,
            };
            if number(value) != u64::from(said) {
                wrong.push(format!("{} is {said}", value.escape_ascii()));
            }
            holds.insert(OwnerId::parse(&owner), hold);
        }
        fields += 1;
        if hold.share == Share::Read && hold.ends_ms >= now_ms {
            let key = [b"{job}:", &owner[..], b":rwlock_timeout:1"].concat();
            timeouts.insert(key, hold.ends_ms);
        }
        if let Share::Permits { n, .. } = hold.share {
            used += u64::from(n);
        }
    }
    if let Some(mode) = &mode {
        let first = holds.values().next().map(|hold| hold.share);
        let fits = match first {
            Some(Share::Whole) => mode == "write",
            Some(Share::Read) => mode == "read",
            Some(_) => mode == "permits",
            None => true,
        };
        let last = ends.values().max().copied();
        if !fits || lock.len() != fields || ends.len() + 1 != fields {
            wrong.push(format!("{lock:?} with {ends:?}"));
        }
        // One that ends now is kept until now is over.
        if expires(0) != last && expires(0) != last.map(|at| at + 1) {
            wrong.push(format!("the lock ends at {:?} and not at {last:?}", expires(0)));
        }
        if [expires(1), expires(2)] != [last.map(kept_until); 2] {
            wrong.push("the leases end early or late".into());
        }
        let told =
            pairs(content(2)).find(|(field, _)| field == b"used").map_or(0, |(_, n)| number(&n));
        if told != used {
            wrong.push(format!("{told} permits for {used}"));
        }
    }
    let mut strays = Vec::new();
    for other in parts[1].array() {
        let [key, left] = other.array() else { panic!("{other:?}") };
        let (key, left) = (bytes(key), left.int());
        if named.contains(&key) {
            if left < 0 && key != named[3] {
                wrong.push(format!("{} stays for ever", key.escape_ascii()));
            }
            continue;
        }
        match timeouts.remove(&key) {
            Some(end) if left >= 0 && end == now_ms + left as u64 => {}
            None if left >= 0 && key.ends_with(b":rwlock_timeout:1") => strays.push(key),
            known => wrong.push(format!("{}: {left}, not {known:?}", key.escape_ascii())),
        }
    }
    // Valkey does not keep a key that is written to end in this very millisecond.
    timeouts.retain(|_, end| *end > latest_ms);
    if !timeouts.is_empty() {
        wrong.push(format!("no timeout keys: {timeouts:?}"));
    }
    Dump { snapshot, holds, over, wants, mode, wrong, left: strays }
}

fn hold_of(text: &str, ends_ms: u64) -> SharedHold {
    let words: Vec<&str> = text.split(' ').collect();
    let [request, token, change, count, share] = words[..] else { panic!("no hold: {text}") };
    SharedHold {
        request: RequestId::parse(request.as_bytes()).expect("a request"),
        token: Token::new(number(token.as_bytes())).expect("a token"),
        share: share_of(share),
        count: number(count.as_bytes()) as u32,
        change: number(change.as_bytes()),
        ends_ms,
    }
}

pub(super) fn share_of(text: &str) -> Share {
    match text.split_once('/') {
        Some((n, limit)) => {
            Share::Permits { n: n.parse().expect("n"), limit: limit.parse().expect("a limit") }
        }
        None if text == "r" => Share::Read,
        None => Share::Whole,
    }
}

pub(super) fn share_text(share: Share) -> String {
    match share {
        Share::Permits { n, limit } => format!("{n}/{limit}"),
        Share::Read => "r".into(),
        _ => "w".into(),
    }
}

/// Writes a lock; the server must be empty.
pub(super) fn write(raw: &mut Raw, keys: &Keys, kind: Kind, dump: &Dump) {
    let [lock, leases, holds, token, order, state, beats] = keys_of(keys, kind);
    let mut all: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut add = |command: &str, key: &[u8], args: &[Vec<u8>]| {
        all.push([&[command.into(), key.to_vec()][..], args].concat());
    };
    let text = |value: &dyn ToString| value.to_string().into_bytes();
    let s = &dump.snapshot;
    let mut used = 0;
    for (owner, hold) in &dump.holds {
        let (id, record) = (owner.to_bytes(), hold);
        let (mode, field, value) = match hold.share {
            Share::Whole => ("write", [&id[..], b":write"].concat(), hold.count),
            Share::Read => ("read", id.to_vec(), hold.count),
            Share::Permits { n, .. } => ("permits", id.to_vec(), n),
            share => panic!("{share:?} is new"),
        };
        add("HSET", &lock, &[b"mode".to_vec(), text(&mode), field, text(&value)]);
        add("ZADD", &leases, &[text(&hold.ends_ms), id.to_vec()]);
        let share = share_text(hold.share);
        let line = format!(
            "{} {} {} {} {share}",
            record.request, record.token, record.change, record.count
        );
        add("HSET", &holds, &[id.to_vec(), line.into_bytes()]);
        match hold.share {
            Share::Read => {
                let key = [b"{job}:", &id[..], b":rwlock_timeout:1"].concat();
                add("SET", &key, &[b"1".to_vec(), b"PXAT".to_vec(), text(&hold.ends_ms)]);
                add("HSET", &holds, &[b"phase".to_vec(), text(&hold.token)]);
            }
            Share::Permits { n, limit } => {
                used += n;
                let named = |of: &SharedHold| matches!(of.share, Share::Permits { limit: l, .. } if l == limit);
                let count = dump.holds.values().filter(|of| named(of)).count();
                let field = format!("limit:{limit}").into_bytes();
                add("HSET", &holds, &[b"used".to_vec(), text(&used), field, text(&count)]);
            }
            _ => {}
        }
    }
    if let Some(last) = dump.holds.values().map(|hold| hold.ends_ms).max() {
        add("PEXPIREAT", &lock, &[text(&last)]);
        for key in [&leases, &holds] {
            add("PEXPIREAT", key, &[text(&kept_until(last))]);
        }
    }
    for (owner, number) in &s.order {
        add("ZADD", &order, &[text(number), owner.to_bytes().to_vec()]);
    }
    for (owner, w) in &s.waiters {
        let share = share_text(dump.wants[owner]);
        let record = format!("{} {} {} {share}", w.request, w.lease_ms, u8::from(w.sure));
        add("HSET", &state, &[owner.to_bytes().to_vec(), record.into_bytes()]);
    }
    assert_eq!(SnapshotRecord { given: None, ..s.record.clone() }, SnapshotRecord::default());
    if let Some(given) = s.record.given {
        add("HSET", &state, &[b"given".to_vec(), text(&given)]);
    }
    for (client, beat) in &s.beats {
        add("ZADD", &beats, &[text(beat), text(client)]);
    }
    if let Some(last) = s.token {
        add("SET", &token, &[text(&last)]);
    }
    let ends = [&token, &order, &state, &beats].into_iter().zip([
        s.token_expires,
        s.order_expires,
        s.state_expires,
        s.beats_expires,
    ]);
    for (key, at) in ends {
        if let Some(at) = at {
            add("PEXPIREAT", key, &[text(&at)]);
        }
    }
    let bytes: Vec<u8> =
        all.iter().flat_map(|command| fairlock_testkit::resp::encode(command)).collect();
    raw.send_bytes(&bytes).expect("the server reads");
    for command in &all {
        let reply = raw.read().expect("the server answers");
        assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
    }
}

fn pairs(value: &Value) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    value.array().chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1])))
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes.clone(),
        other => panic!("expected a string, got {other:?}"),
    }
}

/// A whole number. Sorted sets show scores as doubles, on some servers with an exponent.
fn number(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).expect("a number in UTF-8");
    if let Ok(number) = text.parse() {
        return number;
    }
    let number: f64 = text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    assert!(number.fract() == 0.0 && (0.0..9e15).contains(&number), "{text} is no whole number");
    number as u64
}
