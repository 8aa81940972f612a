//! The steps of a run and how they are drawn. A step names owners, requests and tokens by their
//! role at that moment, so that it still means something when earlier steps are left out.

use super::rng::Rng;
use fairlock_core::{Kind, MAX_HOLD_COUNT, MAX_LEASE_MS, Mode, Rules};

/// Clients of ours, and owners: two per client.
pub(super) const CLIENTS: u64 = 3;
pub(super) const OWNERS: u64 = 6;
/// Java waiters: two threads of each of two clients.
pub(super) const JAVA_OWNERS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Owner(u64),
    /// The holder; owner 0 if none of ours holds the lock.
    Holder,
}

/// The order number that a returning entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    New,
    /// The last one that this owner was told.
    Old,
    /// A time this many microseconds ago.
    Ago(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Last,
    Earlier,
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JavaAct {
    Acquire { wait_ms: i64, lease_ms: i64 },
    Try,
    Unlock,
    Leave { wait_ms: i64 },
    Force,
    Renew,
}

/// What an operator, or a bug, does to the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Delete(usize),
    Persist(usize),
    ShortenTo(usize, u64),
    ListTwice(Member, End),
    ListOnly(Member, End),
    ScoreOnly(Member),
    ScoreAt(Member, i64),
    OrderOnly(u64),
    OrderGone(u64),
    RecordGone(u64),
    BeatAt(u64, i64),
    HolderQueued,
    /// Puts this many waiters of a dead client of ours in front of everybody.
    Crowd(u64),
    Count(i64),
    /// A foreign hash under the lock's name, with a TTL in ms or without one.
    Hash(Fields, Option<u64>),
    TokenBack(u64),
    TokenAhead(u64),
    TokenIs(&'static str),
    /// Writes a foreign value into the lock's key, with a TTL in ms or without one.
    Value(Written, Option<u64>),
}

/// Fields and values.
pub(super) type Fields = &'static [(&'static str, &'static str)];

/// Foreign holds, and hashes that differ from one only in a detail.
pub(super) const HASHES: [Fields; 12] = [
    &[("5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:77", "1")],
    &[("5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:77", "2147483647")],
    &[("", "3")],
    &[("Mode", "1")],
    &[("5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:77", "2147483648")],
    &[("name", "bob")],
    &[("visits", "0")],
    &[("visits", "01")],
    &[("mode", "1")],
    &[("mode", "read"), ("5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:77", "1")],
    &[("name", "bob"), ("mail", "b@x")],
    &[("00000001-0000-8000-8000-000000000000:1", "1"), ("visits", "1")],
];

/// Values that others put into the lock's key as a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// What foreign clients write, and worse.
    Text(&'static str),
    /// This many equal bytes.
    Long(usize),
    /// As an owner of ours writes it, with the token last.
    Ours(u64, &'static str),
}

/// A member of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Ours(u64),
    Java(u64),
    /// Neither ours nor Redisson's.
    Odd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Head,
    Tail,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Acquire {
        kind: Kind,
        owner: u64,
        request: u64,
        lease_ms: u64,
        mode: Mode,
        place: Place,
        late: bool,
        sure: bool,
        shared: bool,
    },
    Reenter {
        who: Who,
        token: Named,
        count: u32,
        change: u64,
    },
    Release {
        kind: Kind,
        who: Who,
        token: Named,
        keep: u32,
        change: u64,
    },
    Announce {
        who: Who,
        token: Named,
        change: u64,
        ttl_ms: u64,
    },
    Leader,
    Renew {
        kind: Kind,
        who: Who,
        token: Named,
        ttl_ms: u64,
    },
    Leave {
        kind: Kind,
        who: Who,
        request: u64,
        bury: bool,
        shared: bool,
    },
    Beat {
        client: u64,
        waiters: Vec<u64>,
    },
    Nudge,
    Force {
        kind: Kind,
    },
    Place {
        member: Member,
    },
    Inspect {
        kind: Kind,
        limit: u32,
    },
    /// Moves the server's clock by this many microseconds.
    Time(i64),
    /// Moves it forward to the next multiple of this many microseconds.
    RoundTime(u64),
    Inbox {
        client: u64,
        on: bool,
    },
    JavaListens {
        waiter: u64,
        on: bool,
    },
    Java {
        waiter: u64,
        act: JavaAct,
    },
    Meddle(Fault),
}

impl Step {
    /// A first request of an owner for the fair lock.
    pub(super) fn acquire(owner: u64, mode: Mode, place: Place, sure: bool) -> Self {
        Self::Acquire {
            kind: Kind::Fair,
            owner,
            request: 0,
            lease_ms: 30_000,
            mode,
            place,
            late: false,
            sure,
            shared: false,
        }
    }

    /// Whether it is one of our operations, which both sides carry out.
    pub(super) fn is_operation(&self) -> bool {
        !matches!(
            self,
            Self::Time(_)
                | Self::RoundTime(_)
                | Self::Inbox { .. }
                | Self::JavaListens { .. }
                | Self::Java { .. }
                | Self::Meddle(_)
        )
    }
}

const MS: i64 = 1_000;
const HOUR: i64 = 3_600_000 * MS;

/// Time steps in microseconds: around every time constant of the protocol, and backwards.
const TIMES_US: [i64; 35] = [
    1,
    400,
    999,
    MS,
    3 * MS,
    40 * MS,
    700 * MS,
    999 * MS,
    1_000 * MS,
    1_001 * MS,
    2_000 * MS,
    2_001 * MS,
    4_000 * MS,
    4_001 * MS,
    5_999 * MS,
    6_000 * MS,
    6_001 * MS,
    7_999 * MS,
    8_000 * MS,
    30_000 * MS,
    30_001 * MS,
    36_001 * MS,
    60_000 * MS,
    60_001 * MS,
    68_000 * MS,
    300_001 * MS,
    HOUR,
    12 * HOUR + MS,
    24 * HOUR + MS,
    7 * 24 * HOUR + MS,
    -1,
    -5 * MS,
    -2_500 * MS,
    -7_000 * MS,
    -HOUR,
];

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rules: Rules,
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// Draws a run of about a hundred steps.
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let defaults = Rules::default();
        // Rare heartbeats make our own keys live longer.
        let beat_ms = rng.pick(&[defaults.beat_ms, defaults.beat_ms, defaults.beat_ms, 60_000]);
        let rules = Rules {
            beat_ms,
            dead_ms: 3 * beat_ms,
            java_fleet: rng.chance(15),
            presence: !rng.chance(20),
            // Settings other than the defaults must reach the scripts as well.
            fair_wait_ms: rng.pick(&[defaults.fair_wait_ms, 10_000]),
            ..defaults
        };
        // Some runs have no Java, some no faults: rare events on top of plain histories.
        let mix = Mix {
            java: rng.pick(&[0, 0, 10, 20]),
            faults: rng.pick(&[0, 0, 2, 8]),
            plain: rng.pick(&[0, 0, 0, 10, 100]),
            simple: rng.pick(&[0, 0, 0, 5, 100]),
            owners: rng.pick(&[2, 4, OWNERS]),
        };
        let mut steps = Vec::new();
        for client in 0..CLIENTS {
            if !rng.chance(10) {
                steps.push(Step::Inbox { client, on: true });
            }
        }
        let length = 20 + rng.below(120);
        for _ in 0..length {
            steps.push(draw(&mut rng, &mix));
        }
        Self { rules, steps }
    }
}

/// How often each kind of step occurs, in per cent.
struct Mix {
    java: u64,
    faults: u64,
    plain: u64,
    simple: u64,
    owners: u64,
}

fn draw(rng: &mut Rng, mix: &Mix) -> Step {
    // Foreign clients of a simple lock are not faults, and occur more often.
    if rng.chance(mix.faults.max(mix.simple / 8)) {
        return Step::Meddle(if rng.chance(mix.simple) { written(rng) } else { fault(rng) });
    }
    if rng.chance(mix.java) {
        return java(rng);
    }
    match rng.below(100) {
        0..14 => time(rng),
        14..18 => Step::Inbox { client: rng.below(CLIENTS), on: rng.chance(60) },
        18 => Step::RoundTime(rng.pick(&[1_000_000, 1_000_000_000, 1_000_000_000_000])),
        _ => operation(rng, mix),
    }
}

fn time(rng: &mut Rng) -> Step {
    // Mostly short: a long jump ends everything that is going on.
    let span = if rng.chance(70) { 17 } else { TIMES_US.len() as u64 };
    Step::Time(TIMES_US[rng.below(span) as usize])
}

fn operation(rng: &mut Rng, mix: &Mix) -> Step {
    let kind = if rng.chance(mix.simple) {
        Kind::Simple
    } else if rng.chance(mix.plain) {
        Kind::Plain
    } else {
        Kind::Fair
    };
    let who = if rng.chance(85) { Who::Holder } else { Who::Owner(rng.below(mix.owners)) };
    let token =
        if rng.chance(80) { Named::Last } else { rng.pick(&[Named::Earlier, Named::Later]) };
    let change = rng.below(4);
    match rng.below(100) {
        0..38 => Step::Acquire {
            kind,
            owner: rng.below(mix.owners),
            request: rng.pick(&[0, 0, 0, 1, 2]),
            lease_ms: rng.pick(&[
                1,
                50,
                1_500,
                5_000,
                30_000,
                30_000,
                30_000,
                100_000,
                MAX_LEASE_MS,
            ]),
            mode: if rng.chance(80) { Mode::Wait } else { Mode::Try },
            place: rng.pick(&[
                Place::New,
                Place::New,
                Place::New,
                Place::Old,
                Place::Old,
                Place::Ago(5_000_000),
            ]),
            late: rng.chance(3),
            sure: rng.chance(30),
            shared: rng.chance(25),
        },
        38..60 => Step::Release { kind, who, token, keep: rng.pick(&[0, 0, 0, 0, 1, 2]), change },
        60..63 if rng.chance(50) => {
            let ttl_ms = rng.pick(&[1, 5_000, 60_000, MAX_LEASE_MS]);
            Step::Announce { who, token, change, ttl_ms }
        }
        63..65 if rng.chance(50) => Step::Leader,
        60..65 => Step::Reenter { who, token, count: rng.pick(&[1, 2, 3, MAX_HOLD_COUNT]), change },
        65..71 => {
            Step::Renew { kind, who, token, ttl_ms: rng.pick(&[1, 2_000, 30_000, MAX_LEASE_MS]) }
        }
        71..80 => Step::Leave {
            kind,
            who: if rng.chance(60) { Who::Owner(rng.below(mix.owners)) } else { who },
            request: rng.pick(&[0, 0, 0, 1, 2]),
            bury: rng.chance(30),
            shared: rng.chance(25),
        },
        80..92 => {
            let waiters = (0..rng.below(4)).map(|_| rng.below(mix.owners)).collect();
            Step::Beat { client: rng.below(CLIENTS), waiters }
        }
        92..95 => Step::Nudge,
        95..97 => Step::Force { kind },
        97 => Step::Place { member: member(rng) },
        _ => Step::Inspect { kind, limit: rng.pick(&[0, 1, 3, 100]) },
    }
}

fn java(rng: &mut Rng) -> Step {
    let waiter = rng.below(JAVA_OWNERS);
    let wait_ms = rng.pick(&[300_000, 300_000, 10_000, 30]);
    let act = match rng.below(100) {
        0..15 => return Step::JavaListens { waiter, on: rng.chance(60) },
        15..60 => JavaAct::Acquire { wait_ms, lease_ms: rng.pick(&[30_000, 2_000]) },
        60..65 => JavaAct::Try,
        65..85 => JavaAct::Unlock,
        85..93 => JavaAct::Leave { wait_ms },
        93..96 => JavaAct::Force,
        _ => JavaAct::Renew,
    };
    Step::Java { waiter, act }
}

fn member(rng: &mut Rng) -> Member {
    match rng.below(10) {
        0..5 => Member::Ours(rng.below(OWNERS)),
        5..9 => Member::Java(rng.below(JAVA_OWNERS)),
        _ => Member::Odd,
    }
}

/// A foreign write to the key of a simple lock.
fn written(rng: &mut Rng) -> Fault {
    /// Values that differ from our own by one letter or in length, and values that others write.
    const TEXTS: [&str; 9] = [
        "",
        "5f3c1a520f4e4a1b9c3d1234567890ab",
        "a value: \0\r\n\u{ff}%s",
        "00000001-0000-8000-8000-000000000000:1",
        "00000001-0000-8000-8000-000000000000:1:00000000000000000000000000000000",
        "00000001-0000-8000-8000-000000000000:1:0000000000000000000000000000000A:5",
        "00000001-0000-8000-8000-000000000000:1:000000000000000000000000000000000:5",
        "00000001-0000-4000-8000-000000000000:1:00000000000000000000000000000000:5",
        "00000001-0000-8000-8000-000000000000:1000000000000000:00000000000000000000000000000000:5",
    ];
    const TOKENS: [&str; 7] =
        ["5", "0", "05", "9007199254740991", "9007199254740992", "12345678901234567", "5 "];
    match rng.below(10) {
        0..2 => return Fault::Delete(0),
        2..4 => return Fault::Persist(0),
        4 => return Fault::ShortenTo(0, rng.pick(&[1, 500, 5_000, 600_000])),
        5 => return fault(rng),
        _ => {}
    }
    let value = match rng.below(10) {
        0..6 => Written::Text(rng.pick(&TEXTS)),
        6 => Written::Long(rng.pick(&[255, 256, 257, 100_000])),
        _ => Written::Ours(rng.below(OWNERS), rng.pick(&TOKENS)),
    };
    Fault::Value(value, rng.pick(&[None, Some(30_000), Some(700)]))
}

fn fault(rng: &mut Rng) -> Fault {
    let key = rng.below(7) as usize;
    let client = rng.below(CLIENTS);
    let owner = rng.below(OWNERS);
    let member = member(rng);
    let end = rng.pick(&[End::Head, End::Tail]);
    match rng.below(35) {
        0..8 => Fault::Delete(key),
        8..11 => Fault::Persist(key),
        11..14 => Fault::ShortenTo(key, rng.pick(&[1, 500, 5_000, 600_000])),
        14..16 => Fault::ListTwice(member, end),
        16..18 => Fault::ListOnly(member, end),
        18..20 => Fault::ScoreOnly(member),
        20 => Fault::ScoreAt(
            member,
            rng.pick(&[-300_000_000, -1, 0, 1, 5_000, 90_000_000, 9_003_000_000_000_000]),
        ),
        21 => Fault::OrderOnly(owner),
        22 => Fault::OrderGone(owner),
        23 => Fault::RecordGone(owner),
        24..26 => Fault::BeatAt(client, rng.pick(&[-70_000, -6_001, -6_000, 1, 100_000])),
        26 => Fault::HolderQueued,
        27 if rng.chance(50) => Fault::Hash(
            rng.pick(&HASHES),
            rng.pick(&[
                None,
                Some(700),
                Some(5_000),
                // Above 2^53 the test itself reads a TTL inexactly.
                Some(7_730_941_129_200_000),
            ]),
        ),
        27 => Fault::Count(rng.pick(&[0, -1, 1, 2_147_483_647, 4_294_967_296])),
        28 => Fault::TokenBack(rng.pick(&[1, 1_000_000, 1_999_999_999_999_999])),
        32..35 => Fault::Crowd(rng.pick(&[63, 64, 65, 130])),
        29 => Fault::TokenAhead(rng.pick(&[1, 1_000_000_000])),
        _ => Fault::TokenIs(rng.pick(&[
            "0",
            "abc",
            "",
            "-5",
            "1.5",
            "1e3",
            " 7",
            "9007199254740989",
            "9007199254740990",
            "9007199254740991",
            "9007199254740992",
            "99999999999999999999",
        ])),
    }
}
