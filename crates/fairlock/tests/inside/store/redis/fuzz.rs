//! Whatever a server sends, and whatever a name may be: nothing panics, malformed input is refused,
//! and values are read as they were written. `scripts/fuzz` runs for longer.

use super::keys::{self, Keys};
use super::limits::Heard;
use super::reply::{answer, grant_message};
use super::slots::{Addr, SlotMap, slot, slot_of};
use super::{confirm, handshake, record, scan, sentinels};
use fairlock_core::{Answer, Body, Grant, LockName, OwnerId, RequestId, Token};
use fairlock_testkit::fuzz::{cases, corpus, input, noise};
use fairlock_testkit::rng::Rng;
use redis::Value;

/// Replies as servers send them.
const REPLIES: [&str; 22] = [
    "*5\r\n:1763759000123\r\n:0\r\n$7\r\ngranted\r\n$2\r\n41\r\n:30000\r\n",
    "*7\r\n:1763759000123\r\n:1\r\n$6\r\nqueued\r\n$1\r\n7\r\n:1500\r\n:0\r\n:3\r\n",
    "*4\r\n:1763759000123\r\n:2\r\n$4\r\nbusy\r\n_\r\n",
    "*5\r\n:1763759000123\r\n:0\r\n$5\r\ntaken\r\n:12\r\n:1\r\n",
    "*4\r\n:1763759000123\r\n:0\r\n$4\r\nself\r\n:2\r\n",
    "*3\r\n:1763759000123\r\n:0\r\n$8\r\nreleased\r\n",
    "*4\r\n:1763759000123\r\n:0\r\n$7\r\nnothold\r\n$39\r\n5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51\r\n",
    "*10\r\n:1763759000123\r\n:0\r\n$4\r\nbeat\r\n:1500\r\n:0\r\n$32\r\n0123456789abcdef0123456789abcdef\r\n$1\r\n5\r\n:6000\r\n:1\r\n:0\r\n",
    "*4\r\n:1763759000123\r\n:0\r\n$5\r\nplace\r\n:3\r\n",
    "*9\r\n:1763759000123\r\n:0\r\n$9\r\ninspected\r\n$39\r\n5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51\r\n:1\r\n:29000\r\n$2\r\n41\r\n:1\r\n*1\r\n*3\r\n$39\r\n5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:52\r\n:120\r\n$1\r\n1\r\n",
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

/// What redis-rs makes of the first value, and whether the value is complete.
fn parsed(bytes: &[u8]) -> (Option<Value>, bool) {
    match redis::parse_redis_value(bytes) {
        Ok(value) => (Some(value), true),
        Err(error) => (None, !error.is_io_error()),
    }
}

/// Where the first value ends, unless it is refused or incomplete.
fn end(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut heard = Heard::default();
    for (at, byte) in bytes.iter().enumerate() {
        heard.hear(std::slice::from_ref(byte))?;
        if heard.is_at_rest() {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
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
    if let Value::Array(items) | Value::Push { data: items, .. } = value {
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

#[test]
fn replies() {
    let corpus = corpus(&REPLIES);
    let real: Vec<Value> = corpus.iter().filter_map(|bytes| parsed(bytes).0).collect();
    assert_eq!(real.len(), corpus.len(), "the corpus is whole");
    cases("replies", 2_000, |rng| {
        let bytes = input(rng, &corpus);
        let (value, is_whole) = parsed(&bytes);
        match end(&bytes) {
            Ok(Some(end)) => {
                let (first, is_whole) = parsed(&bytes[..end]);
                assert!(is_whole && first == value, "{}: {value:?}", bytes.escape_ascii());
            }
            // Refused before it ends: only values that are too large.
            Err(_) => {}
            Ok(None) => assert!(value.is_none() || !is_whole, "{}", bytes.escape_ascii()),
        }
        if let Some(value) = &value {
            read(value);
        }
        let mut value = rng.pick(&real);
        for _ in 0..=rng.below(3) {
            disturb(rng, &mut value);
        }
        read(&value);
    });
}

/// Answers of the scripts are read as they were written.
#[test]
fn answers_round_trip() {
    const NUMBER_MAX: u64 = 9_007_199_254_740_991;
    cases("answers", 10_000, |rng| {
        let bulk = |text: String| Value::BulkString(text.into_bytes());
        let int = |n: u64| Value::Int(n as i64);
        let number = |rng: &mut Rng| rng.pick(&[0, 1, 6_000, NUMBER_MAX]);
        let (now_ms, removed, more) = (number(rng), rng.below(65) as u32, rng.chance(50));
        let token = Token::new(1 + rng.below(NUMBER_MAX)).expect("below the limit");
        let request = RequestId::from_random(u128::from(rng.below(u64::MAX)));
        let maybe = rng.chance(50).then(|| number(rng));
        let ttl_ms = number(rng);
        let shown = maybe.map_or(Value::Nil, int);
        let (tag, mut rest, body) = match rng.below(4) {
            0 => {
                let words = vec![bulk(token.to_string()), int(ttl_ms)];
                ("granted", words, Body::Granted { token, ttl_ms })
            }
            1 => {
                let (order, length, foreign) = (number(rng), number(rng), rng.chance(50));
                let words = vec![bulk(order.to_string()), shown, int(foreign.into()), int(length)];
                ("queued", words, Body::Queued { order, retry_ms: maybe, foreign, length })
            }
            2 => ("busy", vec![shown], Body::Busy { ttl_ms: maybe }),
            _ => {
                let queued: Vec<bool> = (0..rng.below(70)).map(|_| rng.chance(50)).collect();
                let held = rng.chance(50).then_some(Grant { request, token, ttl_ms });
                let mut words = vec![shown, int(0)];
                words.extend(match held {
                    None => vec![Value::Nil, Value::Nil, Value::Nil],
                    Some(_) => {
                        vec![bulk(request.to_string()), bulk(token.to_string()), int(ttl_ms)]
                    }
                });
                words.extend(queued.iter().map(|stands| int((*stands).into())));
                ("beat", words, Body::Beaten { held, queued, retry_ms: maybe, foreign: false })
            }
        };
        let number = u64::from(removed) * 2 + u64::from(more);
        let mut items = vec![int(now_ms), int(number), bulk(tag.to_owned())];
        items.append(&mut rest);
        assert_eq!(answer(Value::Array(items)), Ok(Answer { now_ms, more, removed, body }));
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
