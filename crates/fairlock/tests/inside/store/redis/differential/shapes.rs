//! Each key of each kind with one thing wrong, for every operation (D47, D61): an operation succeeds, or is refused with an
//! error of ours and changes nothing. A lock that contains what no lock of its kind can have is always refused.

use super::fixture::Fixture;
use super::run::{START_US, owner, request};
use super::wrong_type::ALL;
use fairlock_core::{Acquire, Body, Kind, Mode, Op, Rules, Share, ShareAcquire, Token, every_op};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    NoTtl,
    NoHolder,
    FieldTooMany,
    FieldsTooMany,
    Infinite,
    MinusInfinite,
    Huge,
    Fraction,
    /// A TTL, or a score, that Lua shortens in a text.
    Long(u64),
}

/// The shortest of them, two of Java's `lock(Integer.MAX_VALUE, ...)`, and the largest whole number of Lua.
const LONG: [u64; 4] =
    [100_000_000_000_000, 7_730_941_129_200_000, 185_542_587_100_800_000, 9_007_199_254_740_991];

impl Wrong {
    /// A new variant does not compile until it is in this list.
    fn after(this: Option<Self>) -> Option<Self> {
        Some(match this {
            None => Self::NoTtl,
            Some(Self::NoTtl) => Self::NoHolder,
            Some(Self::NoHolder) => Self::FieldTooMany,
            Some(Self::FieldTooMany) => Self::FieldsTooMany,
            Some(Self::FieldsTooMany) => Self::Infinite,
            Some(Self::Infinite) => Self::MinusInfinite,
            Some(Self::MinusInfinite) => Self::Huge,
            Some(Self::Huge) => Self::Fraction,
            Some(Self::Fraction) => Self::Long(LONG[0]),
            Some(Self::Long(ms)) => {
                let at = LONG.iter().position(|long| *long == ms)?;
                Self::Long(*LONG.get(at + 1)?)
            }
        })
    }

    /// Makes it wrong. Returns whether that is possible with this key.
    fn make(self, fixture: &mut Fixture, key: &[u8]) -> bool {
        let kind = fixture.raw.call(&[b"TYPE", key]);
        if let Self::Long(ms) = self {
            // The score of a lease is a time: the largest is that number itself.
            if kind.text() == "zset" {
                let members = fixture.raw.call(&[b"ZRANGE", key, b"0", b"-1"]);
                for member in members.array() {
                    let score = ms.min(LONG[3]).to_string();
                    fixture.raw.call(&[b"ZADD", key, score.as_bytes(), member.text().as_bytes()]);
                }
            }
            return fixture.raw.call(&[b"PEXPIRE", key, ms.to_string().as_bytes()]).int() == 1;
        }
        let hash = match self {
            Self::NoTtl => return fixture.raw.call(&[b"PERSIST", key]).int() == 1,
            Self::NoHolder | Self::FieldTooMany | Self::FieldsTooMany => true,
            Self::Infinite | Self::MinusInfinite | Self::Huge | Self::Fraction => false,
            Self::Long(_) => unreachable!("done"),
        };
        if kind.text() != if hash { "hash" } else { "zset" } {
            return false;
        }
        let members: Vec<Vec<u8>> = match hash {
            true => fixture.raw.call(&[b"HKEYS", key]),
            false => fixture.raw.call(&[b"ZRANGE", key, b"0", b"-1"]),
        }
        .array()
        .iter()
        .map(|member| member.text().as_bytes().to_vec())
        .collect();
        let score = match self {
            Self::Infinite => "inf",
            Self::MinusInfinite => "-inf",
            Self::Huge => "1e308",
            _ => "2000000030000.5",
        };
        let mut command =
            vec![if hash { b"HSET".to_vec() } else { b"ZADD".to_vec() }, key.to_vec()];
        match self {
            Self::NoHolder => {
                command[0] = b"HDEL".to_vec();
                command.extend(members.into_iter().filter(|member| member != b"mode"));
            }
            Self::FieldTooMany => command.extend([b"volume".to_vec(), b"5".to_vec()]),
            Self::FieldsTooMany => command
                .extend((0..1_100).flat_map(|n| [format!("f{n}").into_bytes(), b"1".to_vec()])),
            _ => command.extend(members.into_iter().flat_map(|member| [score.into(), member])),
        }
        fixture.raw.call(&command);
        fixture.raw.call(&[b"EXISTS", key]).int() == 1
    }

    /// Whether no lock can be like this, if the lock's own key is.
    fn is_no_lock(self) -> bool {
        matches!(self, Self::NoHolder | Self::FieldTooMany | Self::FieldsTooMany)
    }
}

fn everything(fixture: &mut Fixture) -> Value {
    fixture.raw.call(&["EVAL", ALL, "0"])
}

fn ask(kind: Kind, n: u64, share: Share, mode: Mode) -> ShareAcquire {
    let acquire = Acquire {
        kind,
        owner: owner(n),
        request: request(n, 1),
        lease_ms: 30_000,
        mode,
        order: None,
        not_after_ms: START_US / 1_000 + 60_000,
        sure: true,
        shared_owner: false,
    };
    ShareAcquire { acquire, share }
}

/// Two hold a share where two can, and one waits. Returns the token of the first holder.
fn scene(fixture: &mut Fixture, kind: Kind, share: Share) -> Token {
    fixture.reset(START_US);
    let mut token = None;
    for n in 0..3 {
        let ShareAcquire { acquire, .. } = ask(kind, n, share, Mode::Wait);
        // A third one wants all of it.
        let wants = match share {
            Share::Read if n == 2 => Share::Whole,
            other => other,
        };
        let answer = fixture.call(&Rules::default(), &Op::asks(acquire, wants)).expect("a lock");
        if let Body::Granted { token: got, .. } = answer.body
            && n == 0
        {
            token = Some(got);
        }
    }
    fixture.messages();
    token.expect("the first one holds it")
}

/// All kinds, with the share that two can have of it at once, if there is one.
const KINDS: [(Kind, Share); 6] = [
    (Kind::Fair, Share::Whole),
    (Kind::Plain, Share::Whole),
    (Kind::Simple, Share::Whole),
    (Kind::ReadWrite, Share::Whole),
    (Kind::ReadWrite, Share::Read),
    (Kind::Semaphore, Share::Permits { n: 1, limit: 2 }),
];

/// D47: a hash of an application with a field `mode` got a TTL, or was deleted. D61: a lease beyond 64 bits ended in an error
/// of `PEXPIREAT`, after the first writes. Later: a TTL from 10^14 ms on, as Java's longest leases have, or a lease that
/// ends as late, was shortened in replies, which then fitted no form.
#[test]
fn a_key_with_one_thing_wrong_is_refused_without_a_trace_or_harmless() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    // Small hashes keep the order of their fields; a hash table may change it without any write.
    for (name, value) in [("hash-max-ziplist-value", "4096"), ("hash-max-ziplist-entries", "4096")]
    {
        assert_eq!(fixture.raw.call(&["CONFIG", "SET", name, value]).text(), "OK");
    }
    let (mut refused, mut done) = (0, 0);
    for (kind, share) in KINDS {
        for key in 0..7 {
            let (mut next, mut lonely) = (Wrong::after(None), false);
            while let Some(wrong) = next {
                // Once with all that belongs to a lock, and once with its own key alone, as another program writes it.
                for by in [0, 2, 3] {
                    let ops =
                        every_op(&ask(kind, by, share, Mode::Try), Token::new(1).expect("1")).len();
                    for at in 0..ops {
                        let token = scene(&mut fixture, kind, share);
                        let mode = if at % 2 == 0 { Mode::Wait } else { Mode::Try };
                        let op = every_op(&ask(kind, by, share, mode), token).swap_remove(at);
                        let keys = fixture.keys.parts_of(&op).map(|parts| parts.concat());
                        if lonely {
                            for other in &keys[1..] {
                                fixture.raw.call(&[b"DEL".as_slice(), other]);
                            }
                        }
                        if !wrong.make(&mut fixture, &keys[key]) {
                            continue;
                        }
                        fixture.long_way = (at + by as usize).is_multiple_of(2);
                        let before = everything(&mut fixture);
                        let found = fixture.call(&Rules::default(), &op);
                        let after = everything(&mut fixture);
                        let story = format!(
                            "{kind:?} {share:?}, key {key} {wrong:?}, alone {lonely}, {op:?}: {found:?}"
                        );
                        if let Err(error) = &found {
                            assert!(
                                error.contains("FAIRLOCK_") || error.contains("WRONGTYPE"),
                                "{story}"
                            );
                            assert_eq!(before, after, "refused, but changed: {story}");
                            assert!(fixture.published().is_empty(), "refused, but told: {story}");
                            refused += 1;
                        } else {
                            assert!(key > 0 || !wrong.is_no_lock(), "not refused: {story}");
                            done += 1;
                        }
                        fixture.published();
                    }
                }
                if key == 0 && !lonely && wrong.is_no_lock() {
                    lonely = true;
                } else {
                    (next, lonely) = (Wrong::after(Some(wrong)), false);
                }
            }
        }
    }
    println!("{refused} refused, {done} done");
    assert!(refused > 500 && done > 500, "{refused} refused, {done} done");
}

/// What is not ours is refused at any size, and 1 100 readers of ours are not.
#[test]
fn more_readers_than_are_mended_hold_a_lock() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    fixture.reset(START_US);
    for n in 0..1_100 {
        let op = Op::AcquireShare(Box::new(ask(Kind::ReadWrite, n, Share::Read, Mode::Try)));
        assert!(matches!(
            fixture.call(&Rules::default(), &op).expect("a lock").body,
            Body::Granted { .. }
        ));
    }
    let java = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";
    fixture.raw.call(&["HSET", "job", java, "1"]);
    let op = Op::AcquireShare(Box::new(ask(Kind::ReadWrite, 1_100, Share::Read, Mode::Try)));
    assert!(matches!(
        fixture.call(&Rules::default(), &op).expect("Java's").body,
        Body::Granted { .. }
    ));
    fixture.raw.call(&["HSET", "job", "volume", "5"]);
    let refused = fixture.call(&Rules::default(), &Op::Force { kind: Kind::ReadWrite });
    assert!(refused.expect_err("not a lock").contains("are no holders"));
    assert_eq!(fixture.raw.call(&["HLEN", "job"]).int(), 1_104);
}
