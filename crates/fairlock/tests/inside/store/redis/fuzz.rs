//! Whatever a server sends, and whatever a name may be: nothing panics, malformed input is refused,
//! and values are read as they were written. `scripts/fuzz` runs for longer.

use super::keys::{self, Keys};
use super::reply::{answer, grant_message};
use super::slots::{Addr, SlotMap, slot, slot_of};
use super::wire::{CallError, Parser, Push, PushKind, Value};
use super::{confirm, handshake, record, scan, sentinels};
use fairlock_core::{Answer, Body, Grant, LockName, OwnerId, RequestId, Token};
use fairlock_testkit::fuzz::{cases, corpus, input, noise};
use fairlock_testkit::rng::Rng;

/// Replies as servers send them.
const REPLIES: [&str; 22] = [
    "$32\r\n1763759000123 0 granted 41 30000\r\n",
    "$33\r\n1763759000123 1 queued 7 1500 0 3\r\n",
    "$22\r\n1763759000123 2 busy -\r\n",
    "$26\r\n1763759000123 0 taken 12 1\r\n",
    "$22\r\n1763759000123 0 self 2\r\n",
    "$24\r\n1763759000123 0 released\r\n",
    "*2\r\n$23\r\n1763759000123 0 nothold\r\n$39\r\n5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51\r\n",
    "$71\r\n1763759000123 0 beat 1500 0 0123456789abcdef0123456789abcdef 5 6000 1 0\r\n",
    "$23\r\n1763759000123 0 place 3\r\n",
    "*3\r\n$44\r\n1763759000123 0 inspected 1 29000 41 1 120 1\r\n$39\r\n5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51\r\n$39\r\n5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:52\r\n",
    "*2\r\n$3\r\n176\r\n*2\r\n$25\r\nredisson_lock_token:{job}\r\n$25\r\nredisson_lock_queue:{job}\r\n",
    "*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$9\r\n127.0.0.1\r\n:7000\r\n$40\r\n07c37dfeb235213a872192d90877d0cd55635b91\r\n*0\r\n*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$1\r\nx\r\n*3\r\n:8192\r\n:16383\r\n*3\r\n_\r\n:7001\r\n$1\r\ny\r\n",
    "*4\r\n$4\r\nname\r\n$2\r\nm1\r\n$12\r\nconfig-epoch\r\n$1\r\n3\r\n",
    "%2\r\n$4\r\nname\r\n$2\r\nm1\r\n$12\r\nconfig-epoch\r\n$1\r\n3\r\n",
    "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n",
    "*3\r\n$6\r\nmaster\r\n:3129659\r\n*2\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9001\r\n$7\r\n3129242\r\n*0\r\n",
    "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:10\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
    "=60\r\ntxt:# Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n\r\n",
    "*6\r\n$4\r\nhost\r\n$3\r\n123\r\n$3\r\nann\r\n_\r\n$5\r\n0.1.0\r\n$13\r\n1763759000123\r\n",
    ">3\r\n$7\r\nmessage\r\n$14\r\nfairlock_inbox\r\n$56\r\ng1 0123456789abcdef0123456789abcdef 5 1763759000123 6000\r\n",
    "-MOVED 3999 127.0.0.1:6381\r\n",
    "|1\r\n+ttl\r\n:3600\r\n*2\r\n#t\r\n,1.5\r\n",
];

/// The first value and its end; `None` if it is incomplete.
fn first(bytes: &[u8]) -> Result<Option<(Value, usize)>, CallError> {
    let (mut parser, mut values) = (Parser::default(), Vec::new());
    for (at, byte) in bytes.iter().enumerate() {
        parser.feed(std::slice::from_ref(byte), &mut values)?;
        if let Some(value) = values.pop() {
            assert!(parser.is_at_rest(), "{}", bytes.escape_ascii());
            return Ok(Some((value, at + 1)));
        }
    }
    assert!(bytes.is_empty() || !parser.is_at_rest(), "{}", bytes.escape_ascii());
    Ok(None)
}

/// All values, read in pieces of random length, and how that ends.
fn in_pieces(rng: &mut Rng, mut bytes: &[u8]) -> (Vec<Value>, Option<String>) {
    let (mut parser, mut values) = (Parser::default(), Vec::new());
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(1 + rng.below(bytes.len() as u64) as usize);
        if let Err(refused) = parser.feed(piece, &mut values) {
            return (values, Some(refused.to_string()));
        }
        bytes = rest;
    }
    (values, None)
}

/// Whether both are the same. Redis-rs tells more kinds apart.
fn is_same(ours: &Value, theirs: &redis::Value) -> bool {
    use redis::Value as Theirs;
    let all = |ours: &[Value], theirs: &[Theirs]| {
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| is_same(a, b))
    };
    match (ours, theirs) {
        (Value::Nil, Theirs::Nil) => true,
        (Value::Int(a), Theirs::Int(b)) => a == b,
        (Value::BulkString(a), Theirs::BulkString(b)) => a == b,
        (Value::SimpleString(a), Theirs::SimpleString(b)) => a == b,
        (Value::SimpleString(a), Theirs::Okay) => a == "OK",
        (Value::VerbatimString(a), Theirs::VerbatimString { text, .. }) => a == text,
        (Value::Array(a), Theirs::Array(b)) => all(a, b),
        (Value::Map(a), Theirs::Map(b)) => {
            let same = |(a, b): (&(Value, Value), &(Theirs, Theirs))| {
                is_same(&a.0, &b.0) && is_same(&a.1, &b.1)
            };
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (Value::Push(Push { kind, data }), Theirs::Push { kind: theirs, data: others }) => {
            let is_kind = match theirs {
                redis::PushKind::Message => *kind == PushKind::Message,
                redis::PushKind::SMessage => *kind == PushKind::SMessage,
                redis::PushKind::Subscribe => *kind == PushKind::Subscribe,
                redis::PushKind::Unsubscribe => *kind == PushKind::Unsubscribe,
                redis::PushKind::SSubscribe => *kind == PushKind::SSubscribe,
                redis::PushKind::SUnsubscribe => *kind == PushKind::SUnsubscribe,
                _ => *kind == PushKind::Other,
            };
            is_kind && all(data, others)
        }
        (Value::ServerError(a), Theirs::ServerError(b)) => {
            a.code() == b.code() && a.detail() == b.details() && a.to_string() == b.to_string()
        }
        (
            Value::Other,
            Theirs::Set(_) | Theirs::Double(_) | Theirs::Boolean(_) | Theirs::BigNumber(_),
        ) => true,
        (ours, Theirs::Attribute { data, .. }) => is_same(ours, data),
        _ => false,
    }
}

/// Passes the value to everything that reads replies of the server.
fn read(value: &Value) {
    let _ = answer(value.clone());
    let _ = scan::decode_scan(value.clone());
    let asked = Addr::new("127.0.0.1", 7000);
    if let Some(map) = SlotMap::read(value, &asked) {
        assert!(map.missing() <= 16_384 && map.masters().len() <= 16_384);
    }
    let _ = (sentinels::epoch(value), sentinels::address(value));
    let _ = handshake::field(value, "version").map(handshake::is_old);
    let _ = handshake::of_memory(value.clone());
    let _ = (confirm::connected(value), record::decode(value.clone()));
    if let Value::Array(items) | Value::Push(Push { data: items, .. }) = value {
        let _ = sentinels::announced(items, "m1");
        for item in items {
            if let Value::BulkString(bytes) = item {
                let _ = grant_message(bytes);
            }
        }
    }
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.below(6) {
        0 => Value::Nil,
        1 => Value::Int(rng.pick(&[0, 1, -1, 2, 16_384, i64::MAX, i64::MIN, 1 << 53])),
        2 => Value::Array(vec![]),
        3 => Value::SimpleString("x".into()),
        4 => Value::Map(vec![(Value::Nil, Value::Int(1))]),
        _ => Value::BulkString(noise(rng, 40)),
    }
}

/// Replaces one part of the value.
fn disturb(rng: &mut Rng, value: &mut Value) {
    if let Value::Array(items) = value
        && !items.is_empty()
        && rng.chance(85)
    {
        let at = rng.below(items.len() as u64) as usize;
        match rng.below(8) {
            0 => drop(items.remove(at)),
            1 => items.insert(at, scalar(rng)),
            _ => disturb(rng, &mut items[at]),
        }
    } else {
        *value = scalar(rng);
    }
}

/// Any bytes are the same values for our parser and that of redis-rs, whatever pieces they come in.
#[test]
fn replies() {
    let corpus = corpus(&REPLIES);
    let whole = |bytes: &Vec<u8>| first(bytes).unwrap().expect("the corpus is whole").0;
    let real: Vec<Value> = corpus.iter().map(whole).collect();
    let mut values = 0;
    cases("replies", 2_000, |rng| {
        let bytes = input(rng, &corpus);
        let shown = bytes.escape_ascii();
        let ours = first(&bytes);
        match (&ours, redis::parse_redis_value(&bytes)) {
            (Ok(Some((value, end))), Ok(theirs)) => {
                values += 1;
                assert!(is_same(value, &theirs), "{shown}: {value:?}, {theirs:?}");
                let theirs = redis::parse_redis_value(&bytes[..*end]);
                assert!(theirs.is_ok_and(|theirs| is_same(value, &theirs)), "{shown}: {end}");
                assert!(redis::parse_redis_value(&bytes[..end - 1]).is_err(), "{shown}: {end}");
            }
            (Ok(None), Err(error)) => assert!(error.is_io_error(), "{shown}: {error}"),
            // Redis-rs may wait for more first.
            (Err(CallError::Parse(_)), Err(_)) => {}
            // Too large for us.
            (Err(CallError::Io(_)), _) => {}
            (ours, theirs) => panic!("{shown}: {ours:?}, {theirs:?}"),
        }
        let (one, other) = (in_pieces(rng, &bytes), in_pieces(rng, &bytes));
        assert_eq!(one, other, "{shown}");
        if let Ok(Some((value, _))) = ours {
            assert_eq!(one.0.first(), Some(&value), "{shown}");
            read(&value);
        }
        let mut value = rng.pick(&real);
        for _ in 0..=rng.below(3) {
            disturb(rng, &mut value);
        }
        read(&value);
    });
    assert!(values > 200, "{values} values were compared");
}

/// Answers of the scripts are read as they were written.
#[test]
fn answers_round_trip() {
    const NUMBER_MAX: u64 = 9_007_199_254_740_991;
    cases("answers", 10_000, |rng| {
        let number = |rng: &mut Rng| rng.pick(&[0, 1, 6_000, NUMBER_MAX]);
        let (now_ms, removed, more) = (number(rng), rng.below(65) as u32, rng.chance(50));
        let token = Token::new(1 + rng.below(NUMBER_MAX)).expect("below the limit");
        let request = RequestId::from_random(u128::from(rng.below(u64::MAX)));
        let maybe = rng.chance(50).then(|| number(rng));
        let ttl_ms = number(rng);
        let shown = maybe.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let (words, body) = match rng.below(4) {
            0 => (format!("granted {token} {ttl_ms}"), Body::Granted { token, ttl_ms }),
            1 => {
                let (order, length, foreign) = (number(rng), number(rng), rng.chance(50));
                let words = format!("queued {order} {shown} {} {length}", u8::from(foreign));
                (words, Body::Queued { order, retry_ms: maybe, foreign, length })
            }
            2 => (format!("busy {shown}"), Body::Busy { ttl_ms: maybe }),
            _ => {
                let queued: Vec<bool> = (0..rng.below(70)).map(|_| rng.chance(50)).collect();
                let held = rng.chance(50).then_some(Grant { request, token, ttl_ms });
                let mut words = format!("beat {shown} 0 ");
                words += &held
                    .as_ref()
                    .map_or_else(|| "- - -".to_owned(), |_| format!("{request} {token} {ttl_ms}"));
                words.extend(queued.iter().map(|stands| if *stands { " 1" } else { " 0" }));
                (words, Body::Beaten { held, queued, retry_ms: maybe, foreign: false })
            }
        };
        let number = u64::from(removed) * 2 + u64::from(more);
        let text = format!("{now_ms} {number} {words}").into_bytes();
        let expected = Answer { now_ms, more, removed, other_limit: false, body };
        assert_eq!(answer(Value::BulkString(text)), Ok(expected));
    });
}

#[test]
fn messages() {
    let real = b"g1 0123456789abcdef0123456789abcdef 5 1763759000123 6000".to_vec();
    let others = [b"0".to_vec(), b"g1 ".to_vec(), b"9007199254740992".to_vec()];
    let corpus = [vec![real], others.to_vec()].concat();
    cases("messages", 20_000, |rng| {
        let bytes = input(rng, &corpus);
        if let Some((grant, at_ms)) = grant_message(&bytes) {
            let Grant { request, token, ttl_ms } = &grant;
            let again = format!("g1 {request} {token} {at_ms} {ttl_ms}");
            assert_eq!(grant_message(again.as_bytes()), Some((grant, at_ms)));
        }
    });
}

/// From a name to keys, slots and back.
#[test]
fn names() {
    let corpus =
        corpus(&["job", "{job}", "a{b}c", "}{", "{}x", "{{a}}", "a}b", "fairlock:client:1"]);
    cases("names", 10_000, |rng| {
        let bytes = input(rng, &corpus);
        let Ok(name) = LockName::new(&bytes) else { return };
        assert_eq!(name.as_bytes(), bytes);
        let all = Keys::new(&name).all();
        for key in [&all[1], &all[3]] {
            let family = keys::locks_of(key).expect("a lock's own key leads to it");
            assert!(family.name == name || family.twin.as_ref() == Some(&name), "{name}");
            assert_eq!(family.queue(), all[1], "{name}");
        }
        if let Ok(own) = slot_of(&name) {
            assert!(own < 16_384 && all.iter().all(|key| slot(key) == own), "{name}");
        }
    });
}

/// Names of owners, whoever wrote them, and keys that none of our clients made.
#[test]
fn ids_and_foreign_keys() {
    let corpus = corpus(&[
        "5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51",
        "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:1",
        "redisson_lock_queue:{job}",
        "redisson_lock_token:{a}b}",
        "127.0.0.1:6379",
        "[::1]:7000",
    ]);
    let by = Addr::new("h", 1);
    cases("ids", 20_000, |rng| {
        let bytes = input(rng, &corpus);
        let owner = OwnerId::parse(&bytes);
        assert_eq!(owner.to_bytes(), bytes);
        let _ = (keys::locks_of(&bytes), RequestId::parse(&bytes), slot(&bytes));
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Some(addr) = Addr::redirected(text, &by)
        {
            assert_eq!(Addr::redirected(&addr.to_string(), &by), Some(addr));
        }
    });
}
