//! A lock's keys on the server as a [`Snapshot`], and back.

use super::super::keys::Keys;
use fairlock_core::Watch;
use fairlock_core::{
    ClientId, Leader, OwnerId, RequestId, SimpleValue, Snapshot, SnapshotRecord, SnapshotWaiter,
    Token,
};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use std::collections::{BTreeMap, BTreeSet};

const DUMP: &str = include_str!("dump.lua");
const LEADER: usize = 7;
const SHARED_KEYS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dump {
    /// As the core represents it; without the token if that is not a whole number.
    pub(super) snapshot: Snapshot,
    pub(super) leader: Option<Leader>,
    /// The content of the token key if it is not a whole number.
    pub(super) garbage: Option<Vec<u8>>,
}

/// Reads all keys of a lock. `burials` are the requests whose burial may be stored.
///
/// # Panics
/// If there is a key that no lock of ours owns, or a key's content cannot be parsed.
pub(super) fn read(raw: &mut Raw, keys: &Keys, now_ms: u64, burials: &BTreeSet<RequestId>) -> Dump {
    let mut named: Vec<Vec<u8>> = keys.all().to_vec();
    named.push(keys.leader());
    named.extend(burials.iter().map(|request| keys.buried(*request)));
    let mut command = vec![b"EVAL".to_vec(), DUMP.into(), named.len().to_string().into_bytes()];
    command.extend(named.iter().cloned());
    let reply = raw.call(&command);
    let Value::Array(parts) = &reply else { panic!("the dump failed: {reply:?}") };
    for key in parts[1].array() {
        let known = named.iter().any(|name| *name == bytes(key));
        assert!(known, "a key that belongs to nobody: {key:?}");
    }
    decode(parts[0].array(), now_ms, burials)
}

fn decode(found: &[Value], now_ms: u64, burials: &BTreeSet<RequestId>) -> Dump {
    let expires = |at: usize| match found[at].array()[0].int() {
        left if left < 0 => None,
        left => Some(now_ms + left as u64),
    };
    let content = |at: usize| &found[at].array()[1];
    let token = match content(3) {
        Value::Nil => None,
        value => Some(bytes(value)),
    };
    let number = token.as_deref().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let garbage = if number.is_some() { None } else { token };
    let nothing = Value::Array(Vec::new());
    let (hash, value) = match content(0) {
        Value::Bulk(bytes) => (&nothing, Some(SimpleValue::parse(bytes))),
        hash => (hash, None),
    };
    let mut snapshot = Snapshot {
        hold: pairs(hash).map(|(k, v)| (OwnerId::parse(&k), count(&v))).collect(),
        hold_expires: expires(0).filter(|_| value.is_none()),
        value_expires: expires(0).filter(|_| value.is_some()),
        value,
        token: number,
        token_expires: expires(3),
        queue: content(1).array().iter().map(|member| OwnerId::parse(&bytes(member))).collect(),
        queue_expires: expires(1),
        scores: pairs(content(2)).map(|(k, v)| (OwnerId::parse(&k), integer(&v))).collect(),
        scores_expires: expires(2),
        order: pairs(content(4)).map(|(k, v)| (OwnerId::parse(&k), unsigned(&v))).collect(),
        order_expires: expires(4),
        state_expires: expires(5),
        beats: pairs(content(6)).map(|(k, v)| (client(&k), unsigned(&v))).collect(),
        beats_expires: expires(6),
        ..Snapshot::default()
    };
    (snapshot.waiters, snapshot.record) = state(content(5));
    for (at, request) in burials.iter().enumerate() {
        if let Some(until) = expires(SHARED_KEYS + at) {
            snapshot.buried.insert(*request, until);
        }
    }
    let leader = leader(content(LEADER), expires(LEADER));
    Dump { snapshot, leader, garbage }
}

fn leader(fields: &Value, expires: Option<u64>) -> Option<Leader> {
    let fields: BTreeMap<_, _> = pairs(fields).collect();
    let owner = OwnerId::parse(fields.get(&b"owner"[..])?);
    let number = |name: &str| unsigned(&fields[name.as_bytes()]);
    let token = Token::new(number("token")).expect("a token");
    let (change, since_ms) = (number("change"), number("since"));
    let value = fields[&b"value"[..]].clone();
    let expires = expires.expect("an announcement has an end");
    Some(Leader { owner, token, change, since_ms, value, expires })
}

fn state(fields: &Value) -> (BTreeMap<OwnerId, SnapshotWaiter>, SnapshotRecord) {
    let mut waiters = BTreeMap::new();
    let mut record = SnapshotRecord::default();
    for (field, value) in pairs(fields) {
        let text = String::from_utf8_lossy(&value).into_owned();
        let words: Vec<&str> = text.split(' ').collect();
        let word = |at: usize| *words.get(at).unwrap_or(&"");
        let number = |at: usize| unsigned(word(at).as_bytes());
        let request = |at: usize| RequestId::parse(word(at).as_bytes()).expect("a request id");
        match field.as_slice() {
            b"grant" => record.grant = Some((number(0), request(1))),
            b"change" => record.change = Some((number(0), number(1))),
            b"amnesty" => record.amnesty = Some(number(0)),
            b"silence" => record.silence = Some(number(0)),
            b"gather" => record.gather = Some(number(0)),
            b"removed" => record.removed = Some(number(0)),
            b"given" => record.given = Some(number(0)),
            b"watch" => {
                let id = value.splitn(4, |byte| *byte == b' ').nth(3).expect("the watched id");
                let score = integer(word(2).as_bytes());
                let id = OwnerId::parse(id);
                record.watch = Some(Watch { id, score, since: number(0), pinged: number(1) });
            }
            owner => {
                let sure = word(2) == "1";
                let waiter = SnapshotWaiter { request: request(0), lease_ms: number(1), sure };
                waiters.insert(OwnerId::parse(owner), waiter);
            }
        }
    }
    (waiters, record)
}

/// Writes a lock's keys; the server must be empty.
pub(super) fn write(raw: &mut Raw, keys: &Keys, s: &Snapshot) {
    let [lock, queue, scores, token, order, state, beats] = keys.all();
    let mut batch = Batch::default();
    for (owner, count) in &s.hold {
        batch.add(&["HSET"], &lock, &[owner.to_bytes(), text(count)]);
    }
    for owner in &s.queue {
        batch.add(&["RPUSH"], &queue, &[owner.to_bytes()]);
    }
    for (owner, score) in &s.scores {
        batch.add(&["ZADD"], &scores, &[text(score), owner.to_bytes()]);
    }
    if let Some(number) = s.token {
        batch.add(&["SET"], &token, &[text(number)]);
    }
    for (owner, number) in &s.order {
        batch.add(&["ZADD"], &order, &[text(number), owner.to_bytes()]);
    }
    for (owner, w) in &s.waiters {
        let record = format!("{} {} {}", w.request, w.lease_ms, u8::from(w.sure));
        batch.add(&["HSET"], &state, &[owner.to_bytes(), record.into_bytes()]);
    }
    assert_eq!(s.value, None, "no starting state is a simple lock so far");
    let others = SnapshotRecord { given: None, ..s.record.clone() };
    assert_eq!(others, SnapshotRecord::default(), "no starting state needs more of it so far");
    if let Some(number) = s.record.given {
        batch.add(&["HSET"], &state, &[b"given".to_vec(), text(number)]);
    }
    for (client, beat) in &s.beats {
        batch.add(&["ZADD"], &beats, &[text(beat), text(client)]);
    }
    let ttls = [
        (&lock, s.hold_expires),
        (&queue, s.queue_expires),
        (&scores, s.scores_expires),
        (&token, s.token_expires),
        (&order, s.order_expires),
        (&state, s.state_expires),
        (&beats, s.beats_expires),
    ];
    for (key, at) in ttls {
        if let Some(at) = at {
            batch.add(&["PEXPIREAT"], key, &[text(at)]);
        }
    }
    batch.send(raw);
}

/// Commands that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    count: usize,
}

impl Batch {
    fn add(&mut self, command: &[&str], key: &[u8], args: &[Vec<u8>]) {
        let mut words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        words.push(key);
        words.extend(args.iter().map(Vec::as_slice));
        self.bytes.extend(fairlock_testkit::resp::encode(&words));
        self.count += 1;
    }

    fn send(self, raw: &mut Raw) {
        raw.send_bytes(&self.bytes).expect("the server reads");
        for _ in 0..self.count {
            let reply = raw.read().expect("the server answers");
            assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
        }
    }
}

fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes.clone(),
        other => panic!("expected a string, got {other:?}"),
    }
}

fn pairs(value: &Value) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    value.array().chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1])))
}

/// A whole number. Sorted sets show scores as doubles, on some servers with an exponent.
fn integer(text: &[u8]) -> i64 {
    let text = std::str::from_utf8(text).expect("a number in UTF-8");
    if let Ok(number) = text.parse() {
        return number;
    }
    let number: f64 = text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    assert!(number.fract() == 0.0 && number.abs() < 9e15, "{text} is no whole number");
    number as i64
}

/// A hold count. Text that the core does not accept as a number is 0, which is not a valid count
/// either.
fn count(text: &[u8]) -> i64 {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    number.filter(|number| number.to_string().as_bytes() == text).unwrap_or(0)
}

fn unsigned(text: &[u8]) -> u64 {
    u64::try_from(integer(text)).expect("a number that is not below zero")
}

fn client(text: &[u8]) -> ClientId {
    ClientId::parse(text).expect("the id of a client of ours")
}
