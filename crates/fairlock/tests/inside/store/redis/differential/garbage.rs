//! Content that no client following the protocol writes, in our own keys and in the queue: it makes
//! no operation fail, and every waiter gets the lock.

use super::fixture::Fixture;
use super::run::{START_US, client, owner, request};
use fairlock_core::{Acquire, Body, Grant, Kind, Mode, Op, RequestId, Rules, Token};
use fairlock_testkit::server::Generation;

/// The holder, the waiters in the queue, and the owner that arrives.
const HOLDS: u64 = 0;
const WAITS: [u64; 2] = [1, 2];
const COMES: u64 = 3;

/// Heartbeat rounds until both waiters must have had the lock: twice the patience with an apparent
/// Java head, plus D.
const ROUNDS: u32 = 3 * 4 + 3;

/// Not valid in any field.
const VALUES: [&str; 13] = [
    "",
    "garbage",
    "inf",
    "nan",
    "-1",
    "1.5",
    "99999999999999999999",
    "9007199254740991999 9 9 9",
    "1 2 3 4 5",
    "00000000000000000000000000000001 30000",
    "00000000000000000000000000000001 99999999999999999999 0",
    "0000000000000000000000000000000A 30000 0",
    "00000000000000000000000000000001 0 2",
];

const SCORES: [&str; 6] = ["inf", "-inf", "1e300", "9007199254740992", "0.5", "-7"];

/// A command to run on the key with this index; its arguments follow the key's name.
type Garbage = (usize, Vec<String>, String);

fn garbage() -> Vec<Garbage> {
    let mut all: Vec<Garbage> = Vec::new();
    let mut add = |key: usize, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let what = format!("key {key}: {words:?}");
        all.push((key, words, what));
    };
    let owners = WAITS.map(|number| owner(number).to_string());
    let clients = WAITS.map(|number| client(number).to_string());
    let notes =
        ["watch", "grant", "change", "amnesty", "silence", "gather", "removed", "given", "", "x"];
    let java = "00000001-0000-4000-8000-000000000000:1";
    for field in owners.iter().map(String::as_str).chain(notes).chain([java]) {
        for value in VALUES {
            add(5, &["HSET", field, value]);
        }
    }
    for score in SCORES {
        for member in &owners {
            add(4, &["ZADD", score, member]);
            add(2, &["ZADD", score, member]);
        }
        for member in clients.iter().map(String::as_str).chain(["garbage"]) {
            add(6, &["ZADD", score, member]);
        }
    }
    let nobody = "00000000-0000-8000-8000-000000000000:1";
    for member in ["", "garbage", java, nobody, &owners[1]] {
        for push in ["LPUSH", "RPUSH"] {
            add(1, &[push, member]);
        }
    }
    all
}

/// A live waiter that follows the protocol.
struct Waiter {
    number: u64,
    request: RequestId,
    order: u64,
}

struct Scene<'a> {
    fixture: &'a mut Fixture,
    rules: Rules,
    waiters: Vec<Waiter>,
    token: Token,
    requests: u64,
}

impl<'a> Scene<'a> {
    /// One owner holds, two wait.
    fn new(fixture: &'a mut Fixture) -> Self {
        fixture.reset(START_US);
        for number in 0..=COMES {
            fixture.inbox(client(number), true);
        }
        let token = Token::new(1).expect("a token");
        let mut scene =
            Self { fixture, rules: Rules::default(), waiters: Vec::new(), token, requests: 9 };
        let Body::Granted { token, .. } = scene.call(&wants(HOLDS, request(HOLDS, 0), None)) else {
            panic!("nobody has it")
        };
        scene.token = token;
        for number in WAITS {
            let Body::Queued { order, .. } = scene.call(&wants(number, request(number, 0), None))
            else {
                panic!("it is held")
            };
            scene.waiters.push(Waiter { number, request: request(number, 0), order });
        }
        scene
    }

    #[track_caller]
    fn call(&mut self, op: &Op) -> Body {
        match self.fixture.call(&self.rules, op) {
            Ok(answer) => answer.body,
            Err(error) => panic!("{op:?}: {error}"),
        }
    }

    fn write(&mut self, (key, words, _): &Garbage) {
        let mut command =
            vec![words[0].clone().into_bytes(), self.fixture.keys.all()[*key].clone()];
        command.extend(words[1..].iter().map(|word| word.clone().into_bytes()));
        self.fixture.raw.call(&command);
    }

    /// Sends heartbeats, returns and releases until nobody waits.
    fn serve(&mut self, what: &str) {
        let release = |number, token| Op::Release {
            kind: Kind::Fair,
            owner: owner(number),
            token,
            keep: 0,
            change: 9,
        };
        self.call(&release(HOLDS, self.token));
        for _ in 0..ROUNDS {
            for mut waiter in std::mem::take(&mut self.waiters) {
                let waiters = vec![owner(waiter.number)];
                let body = self.call(&Op::Beat { client: client(waiter.number), waiters });
                let Body::Beaten { held, queued, .. } = body else { panic!("{body:?}") };
                if let Some(Grant { token, request, .. }) = held
                    && request == waiter.request
                {
                    self.call(&release(waiter.number, token));
                    continue;
                }
                if queued == [false] {
                    self.requests += 1;
                    waiter.request = request(waiter.number, self.requests);
                    match self.call(&wants(waiter.number, waiter.request, Some(waiter.order))) {
                        Body::Granted { token, .. } => {
                            self.call(&release(waiter.number, token));
                            continue;
                        }
                        Body::Queued { .. } => {}
                        other => panic!("{what}: {other:?}"),
                    }
                }
                self.waiters.push(waiter);
            }
            if self.waiters.is_empty() {
                return;
            }
            let now = self.fixture.now_us();
            self.fixture.set_now(now + 2_000_000);
        }
        let left: Vec<_> = self.waiters.iter().map(|waiter| waiter.number).collect();
        panic!("{what}: {left:?} were not served");
    }
}

fn wants(number: u64, request: RequestId, order: Option<u64>) -> Op {
    Op::Acquire(Acquire {
        kind: Kind::Fair,
        owner: owner(number),
        request,
        lease_ms: 30_000,
        mode: Mode::Wait,
        order,
        not_after_ms: u64::MAX >> 11,
        sure: false,
        shared_owner: false,
    })
}

/// The operations that may be the first to meet the garbage.
fn firsts(token: Token) -> Vec<Op> {
    let kind = Kind::Fair;
    let leave = |number| Op::Leave {
        kind,
        owner: owner(number),
        request: request(number, 0),
        bury: false,
        shared_owner: true,
    };
    let tries = match wants(COMES, request(COMES, 0), None) {
        Op::Acquire(a) => Op::Acquire(Acquire { mode: Mode::Try, ..a }),
        _ => unreachable!("it is an acquisition"),
    };
    let held = owner(HOLDS);
    vec![
        tries,
        wants(COMES, request(COMES, 0), None),
        wants(WAITS[0], request(WAITS[0], 0), None),
        Op::Beat { client: client(WAITS[0]), waiters: vec![owner(WAITS[0])] },
        Op::Beat { client: client(WAITS[1]), waiters: vec![owner(WAITS[1])] },
        Op::Beat { client: client(HOLDS), waiters: vec![] },
        Op::Release { kind, owner: held.clone(), token, keep: 0, change: 2 },
        Op::Release { kind, owner: held.clone(), token, keep: 1, change: 2 },
        Op::Reenter { owner: held.clone(), token, count: 2, change: 2 },
        Op::Renew { kind, owner: held, token, ttl_ms: 30_000 },
        leave(COMES),
        leave(HOLDS),
        Op::Force { kind },
        Op::Nudge,
        Op::Inspect { kind, limit: 100 },
        Op::Place { owner: owner(WAITS[1]) },
    ]
}

/// D13: one record that could not be parsed blocked the lock for everybody with a Lua error, and
/// heartbeats kept the record alive. In the same way, odd numbers in the state blocked waiters, and
/// an infinite order number blocked newcomers. An entry of ours without a score was never removed.
#[test]
fn d13_garbage_stops_nobody() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let ops = firsts(Token::new(1).expect("a token")).len();
    for garbage in garbage() {
        for at in 0..ops {
            let mut scene = Scene::new(&mut fixture);
            scene.write(&garbage);
            let op = firsts(scene.token).swap_remove(at);
            let what = format!("{}, first {op:?}", garbage.2);
            println!("{what}");
            let answer = scene.call(&op);
            if matches!((&op, &answer), (Op::Acquire(a), Body::Queued { .. }) if a.owner == owner(COMES))
            {
                let Op::Acquire(a) = op else { unreachable!("it matched") };
                let Body::Queued { order, .. } = answer else { unreachable!("it matched") };
                scene.waiters.push(Waiter { number: COMES, request: a.request, order });
            }
            scene.serve(&what);
        }
    }
}
