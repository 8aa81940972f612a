//! Data of others under the names of a lock's keys (D1): every type and shape, under every key, for
//! every operation of every kind. Either the operation is refused with a typed error and nothing
//! changes, or the data is a foreign hold and stays as it is, byte for byte and to the last
//! millisecond of its TTL.

use super::fixture::Fixture;
use super::run::{START_US, owner, request};
use super::step::HASHES;
use super::wrong_type::ALL;
use fairlock_core::{Acquire, Kind, Mode, Op, Rules, Token};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;

/// The result of an operation on a fair or plain lock, or on a simple one, that finds the data
/// under the lock's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// Refused: certainly not a lock.
    NoLock,
    /// Refused: wrong type.
    OtherType,
    /// A foreign hold: waited for, and removed only by `force`.
    Hold,
    /// The same, but while it has no TTL not even `force` removes it.
    Counter,
}

/// The command that writes the data, and how a lock stored as a hash and one stored as a string
/// treat it.
struct Shape {
    write: Vec<Vec<u8>>,
    hashes: Is,
    strings: Is,
}

fn shapes() -> Vec<Shape> {
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let hash = |fields: &[(&str, &str)], hashes| {
        let mut write = vec!["HSET", "K"];
        write.extend(fields.iter().flat_map(|(field, value)| [*field, *value]));
        Shape { write: words(&write), hashes, strings: Is::OtherType }
    };
    let other = |write: &[&str]| Shape {
        write: words(write),
        hashes: Is::OtherType,
        strings: Is::OtherType,
    };
    let string = |text: &str, strings| Shape {
        write: words(&["SET", "K", text]),
        hashes: Is::OtherType,
        strings,
    };
    let mut shapes = vec![
        other(&["RPUSH", "K", "x", "y"]),
        other(&["SADD", "K", "x"]),
        other(&["ZADD", "K", "1", "x"]),
        other(&["XADD", "K", "1-1", "a", "1"]),
        string("", Is::Hold),
        string("theirs", Is::Hold),
        string("1.5", Is::Hold),
        string("-", Is::Hold),
        string("5f3c1a520f4e4a1b9c3d1234567890ab", Is::Hold),
        string("123456789012345678901", Is::Hold),
        string("0", Is::Counter),
        string("5", Is::Counter),
        string("-9223372036854775808", Is::Counter),
    ];
    for (at, fields) in HASHES.iter().enumerate() {
        shapes.push(hash(fields, if at < 4 { Is::Hold } else { Is::NoLock }));
    }
    for text in
        ["-1", "1.5", "1e3", " 1", "1 ", "+1", "0x1", "", "nan", "inf", "9223372036854775808"]
    {
        shapes.push(hash(&[("visits", text)], Is::NoLock));
    }
    let huge = "7".repeat(100_000);
    shapes.push(hash(&[("visits", &huge)], Is::NoLock));
    let many: Vec<_> = (0..2_000).map(|number| (format!("field{number}"), "1")).collect();
    let many: Vec<_> = many.iter().map(|(field, value)| (field.as_str(), *value)).collect();
    shapes.push(hash(&many, Is::NoLock));
    shapes
}

/// Every operation of every kind, from an owner that holds nothing.
fn operations() -> Vec<Op> {
    let (owner, token) = (owner(0), Token::new(5).expect("5 is a token"));
    let client = owner.client().expect("one of ours");
    let mut all = vec![
        Op::Reenter { owner: owner.clone(), token, count: 2, change: 1 },
        Op::Beat { client, waiters: vec![owner.clone()] },
        Op::Nudge,
        Op::Place { owner: owner.clone() },
    ];
    for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
        for (mode, shared_owner) in [(Mode::Wait, false), (Mode::Try, false), (Mode::Wait, true)] {
            for order in [None, Some(START_US - 5_000_000)] {
                all.push(Op::Acquire(Acquire {
                    kind,
                    owner: owner.clone(),
                    request: request(0, 0),
                    lease_ms: 1_000,
                    mode,
                    order: order.filter(|_| kind == Kind::Fair),
                    not_after_ms: START_US / 1_000,
                    sure: true,
                    shared_owner,
                }));
            }
        }
        for keep in [0, 1] {
            all.push(Op::Release { kind, owner: owner.clone(), token, keep, change: 1 });
        }
        for bury in [false, true] {
            let (owner, request) = (owner.clone(), request(0, 0));
            all.push(Op::Leave { kind, owner, request, bury, shared_owner: false });
        }
        all.push(Op::Renew { kind, owner: owner.clone(), token, ttl_ms: 5 });
        all.push(Op::Force { kind });
        all.push(Op::Inspect { kind, limit: 5 });
    }
    all
}

fn put(fixture: &mut Fixture, shape: &Shape, key: &[u8], ttl: Option<u64>) {
    let write: Vec<_> = shape
        .write
        .iter()
        .map(|word| if word == b"K" { key.to_vec() } else { word.clone() })
        .collect();
    fixture.raw.call(&write);
    if let Some(ms) = ttl {
        let at = (START_US / 1_000 + ms).to_string();
        assert_eq!(fixture.raw.call(&[b"PEXPIREAT".as_slice(), key, at.as_bytes()]).int(), 1);
    }
}

fn everything(fixture: &mut Fixture) -> Value {
    fixture.raw.call(&["EVAL", ALL, "0"])
}

fn entry(all: &Value, key: &[u8]) -> Option<Value> {
    all.array().iter().find(|found| found.array()[0] == Value::Bulk(key.to_vec())).cloned()
}

/// The long ones are Java's `lock(Integer.MAX_VALUE, ...)` with minutes, hours and days.
const TTLS: [Option<u64>; 5] = [
    None,
    Some(60_000),
    Some(128_849_018_820_000),
    Some(7_730_941_129_200_000),
    Some(185_542_587_100_800_000),
];

/// D1: a wait for a fair or plain lock gave any hash of that name a TTL of 30 s, and `force`
/// deleted it.
#[test]
fn d01_data_of_others_under_the_locks_name_stays_as_it_is() {
    for generation in Generation::few() {
        let Some(mut fixture) = Fixture::start(generation) else { continue };
        let key = fixture.keys.all()[0].clone();
        for shape in shapes() {
            for (number, op) in operations().iter().enumerate() {
                for ttl in TTLS {
                    fixture.long_way = number % 2 == 0;
                    fixture.reset(START_US);
                    put(&mut fixture, &shape, &key, ttl);
                    let before = everything(&mut fixture);
                    let found = fixture.call(&Rules::default(), op);
                    let after = everything(&mut fixture);
                    let is = if op.is_simple() { shape.strings } else { shape.hashes };
                    let story = || {
                        let words = String::from_utf8_lossy(&shape.write.join(&b' ')).into_owned();
                        format!("{words:.80} with {ttl:?}, {op:?}: {found:?}\n{after:?}")
                    };
                    let forced = matches!(op, Op::Force { .. });
                    let refused = match is {
                        Is::NoLock => Some("FAIRLOCK_KIND"),
                        Is::OtherType => Some("WRONGTYPE"),
                        Is::Counter if forced && ttl.is_none() => Some("FAIRLOCK_KIND"),
                        Is::Hold | Is::Counter => None,
                    };
                    if let Some(code) = refused {
                        let named = found.as_ref().is_err_and(|error| error.contains(code));
                        assert!(named, "not {code}: {}", story());
                        assert_eq!(before, after, "refused, but changed: {}", story());
                        assert_eq!(fixture.messages(), [], "refused, but told: {}", story());
                        continue;
                    }
                    assert!(found.is_ok(), "{}", story());
                    let left = entry(&after, &key);
                    if forced {
                        assert_eq!(left, None, "not taken by force: {}", story());
                    } else {
                        assert_eq!(left, entry(&before, &key), "changed: {}", story());
                    }
                }
            }
        }
    }
}

/// D1: an expired value keeps nobody out, whatever it was.
#[test]
fn d01_data_of_others_that_has_expired_is_nothing() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let key = fixture.keys.all()[0].clone();
    for shape in shapes() {
        for op in operations() {
            fixture.reset(START_US);
            put(&mut fixture, &shape, &key, Some(1));
            fixture.set_now(START_US + 2_000);
            let found = fixture.call(&Rules::default(), &op);
            assert!(found.is_ok(), "{op:?}: {found:?}");
        }
    }
}

/// D1: the same under the names of the other keys. Data of the wrong type is either refused with an
/// error that says so, or not read at all; it is never changed.
#[test]
fn d01_data_of_others_under_the_other_keys_stays_as_it_is() {
    for generation in Generation::few() {
        let Some(mut fixture) = Fixture::start(generation) else { continue };
        // Queue, scores, token, order, state, beats.
        let right =
            [None, Some("RPUSH"), Some("ZADD"), None, Some("ZADD"), Some("HSET"), Some("ZADD")];
        for (at, right) in right.into_iter().enumerate().skip(1) {
            let key = fixture.keys.all()[at].clone();
            for shape in shapes() {
                let command = std::str::from_utf8(&shape.write[0]).expect("a command");
                // A series that Java has started: a number is a token.
                let token = at == 3 && command == "SET" && {
                    let text = &shape.write[2];
                    (1..=16).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
                };
                if token || right == Some(command) {
                    continue;
                }
                for (number, op) in operations().iter().enumerate() {
                    fixture.long_way = number % 2 == 0;
                    let ttl = TTLS[number % TTLS.len()];
                    fixture.reset(START_US);
                    put(&mut fixture, &shape, &key, ttl);
                    let before = everything(&mut fixture);
                    let found = fixture.call(&Rules::default(), op);
                    let after = everything(&mut fixture);
                    let story = format!("key {at}, {command}, {ttl:?}, {op:?}: {found:?}");
                    if let Err(error) = &found {
                        let typed = error.contains("WRONGTYPE")
                            || at == 3 && error.contains("FAIRLOCK_TOKEN");
                        assert!(typed, "{story}");
                        assert_eq!(before, after, "{story}");
                        assert_eq!(fixture.messages(), [], "{story}");
                    } else {
                        assert_ne!(at, 3, "the token is always looked at: {story}");
                        assert_eq!(entry(&before, &key), entry(&after, &key), "{story}");
                    }
                }
            }
        }
    }
}

/// An owner of 300 kB, which others may have written, came back in each reply that named it; of 17 MB, no reply could
/// be read.
#[test]
fn long_owners_and_values_of_others_are_cut() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let long = "x".repeat(300_000);
    let (owner, token) = (owner(0), Token::new(5).expect("5 is a token"));
    for (kind, write) in [
        (Kind::Fair, ["HSET", "job", &long, "1"].as_slice()),
        (Kind::Plain, ["HSET", "job", &long, "1"].as_slice()),
        (Kind::Simple, ["SET", "job", &long].as_slice()),
        (Kind::ReadWrite, ["HSET", "job", "mode", "read"].as_slice()),
    ] {
        let hold = |op: Op| op.of_hold(kind, request(0, 0), START_US / 1_000);
        let release = Op::Release { kind, owner: owner.clone(), token, keep: 0, change: 1 };
        let renew = Op::Renew { kind, owner: owner.clone(), token, ttl_ms: 5 };
        for op in [
            hold(release),
            hold(renew),
            Op::Inspect { kind, limit: 9 },
            Op::Leader,
            Op::Force { kind },
        ] {
            if op == Op::Leader && kind != Kind::Fair {
                continue;
            }
            fixture.reset(START_US);
            fixture.raw.call(write);
            if kind == Kind::ReadWrite {
                // Of the form of Java's holders.
                let java = format!("5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:{}", "7".repeat(300_000));
                fixture.raw.call(&["HSET", "job", &java, "1"]);
            } else {
                fixture.raw.call(&["RPUSH", "redisson_lock_queue:{job}", &long]);
                fixture.raw.call(&["ZADD", "redisson_lock_timeout:{job}", "9e12", &long]);
            }
            let found = fixture
                .call(&Rules::default(), &op)
                .unwrap_or_else(|error| panic!("{op:?}: {error}"));
            fixture.published();
            let shown = format!("{:?}", found.body);
            assert!(shown.len() < 2_000, "{kind:?} {op:?}: {} bytes", shown.len());
        }
    }
    // A value that no leader of ours can have announced.
    fixture.reset(START_US);
    let id = owner.to_string();
    let leader = String::from_utf8(fixture.keys.leader()).expect("a text");
    fixture.raw.call(&["HSET", "job", &id, "1"]);
    for value in [&long[..1_024], &long] {
        fixture.raw.call(&[
            "HSET", &leader, "owner", &id, "token", "5", "change", "1", "since", "7", "value",
            value,
        ]);
        let found = fixture.call(&Rules::default(), &Op::Leader).expect("a lock");
        let fairlock_core::Body::Leader(seen) = found.body else { panic!("not a leader") };
        assert_eq!(seen.announced.is_some(), value.len() == 1_024);
    }
}
