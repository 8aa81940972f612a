//! The wire codec of the simulated server: commands to operations, answers to replies. It is the
//! counterpart of `script.rs` and `reply.rs`, and shares only the texts of the scripts with them.

use super::super::keys::Keys;
use super::super::script;
use fairlock_core::{
    Acquire, Announce, Answer, Body, Channel, ClientId, Effect, Fate, Grant, Kind, LatchOp,
    LatchRequest, LockName, Mode, Op, OwnerId, Payload, RequestId, Rules, Share, Token,
};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The scripts, by hash and by text.
struct Scripts {
    by_hash: BTreeMap<String, &'static str>,
    by_text: BTreeMap<&'static [u8], &'static str>,
}

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let names = [
        "acquire",
        "announce",
        "beat",
        "force",
        "inspect",
        "latch_count_down",
        "latch_delete",
        "latch_look",
        "latch_set",
        "leader",
        "leave",
        "multi_try",
        "nudge",
        "place",
        "plain_acquire",
        "plain_leave",
        "plain_release",
        "reenter",
        "release",
        "renew",
        "share_acquire",
        "share_beat",
        "share_downgrade",
        "share_force",
        "share_leave",
        "share_nudge",
        "share_place",
        "share_reenter",
        "share_release",
        "share_renew",
        "simple_acquire",
        "simple_force",
        "simple_inspect",
        "simple_leave",
        "simple_release",
        "simple_renew",
    ];
    let text = |name| script::named(name, false);
    let hash = |name| redis::Script::new(text(name)).get_hash().to_owned();
    Scripts {
        by_hash: names.into_iter().map(|name| (hash(name), name)).collect(),
        by_text: names.into_iter().map(|name| (text(name).as_bytes(), name)).collect(),
    }
});

/// Our script with this hash.
pub(super) fn script_by_hash(hash: &[u8]) -> Option<&'static str> {
    SCRIPTS.by_hash.get(std::str::from_utf8(hash).ok()?).copied()
}

/// Our script with this text.
pub(super) fn script_by_text(text: &[u8]) -> Option<&'static str> {
    SCRIPTS.by_text.get(text).copied()
}

/// A decoded call of a script.
pub(super) struct Call {
    pub(super) name: LockName,
    pub(super) rules: Rules,
    pub(super) op: Op,
    base: Vec<u8>,
    leader: Vec<u8>,
    latch: Vec<u8>,
    inbox_prefix: Vec<u8>,
}

fn number(word: &[u8]) -> u64 {
    std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).expect("a number in a call")
}

impl Call {
    /// `words` follow the script: the number of keys, the keys, the arguments.
    pub(super) fn read(script: &str, words: &[Vec<u8>]) -> Self {
        let keys = number(&words[0]) as usize;
        let name = LockName::new(&words[1]).expect("a name");
        let [settings, own @ ..] = &words[1 + keys..] else {
            panic!("{script}: too few arguments");
        };
        let mut settings = settings.splitn(6, |byte| *byte == b' ');
        let mut setting = || settings.next().expect("six settings");
        let (flags, _, beat) = (setting(), setting(), setting());
        let (dead, fair_wait, inbox_prefix) = (setting(), setting(), setting());
        let mut rules = Rules {
            beat_ms: number(beat),
            dead_ms: number(dead),
            fair_wait_ms: number(fair_wait),
            java_fleet: flags.contains(&b'j'),
            presence: flags.contains(&b'p'),
            ..Rules::default()
        };
        if script.ends_with("leave") && number(&own[2]) > 0 {
            rules.bury_ms = number(&own[2]);
        }
        if script.starts_with("latch_") && own.len() > 1 {
            rules.bury_ms = number(&own[1]);
        }
        let (base, inbox_prefix) = (Keys::new(&name).base(), inbox_prefix.to_vec());
        let (leader, latch) = (Keys::new(&name).leader(), Keys::new(&name).latch_channel());
        // The line of a lock with shares tells its kind.
        let shared = match words.get(5) {
            Some(order) if order.starts_with(b"fairlock_rw_order") => Kind::ReadWrite,
            _ => Kind::Semaphore,
        };
        Self { name, rules, op: op(script, shared, own), base, leader, latch, inbox_prefix }
    }

    /// The calls for single locks that a call of `multi_try` stands for.
    pub(super) fn read_together(words: &[Vec<u8>]) -> Vec<Self> {
        let keys = number(&words[0]) as usize;
        let (keys, rest) = words[1..].split_at(keys);
        let [settings, own @ ..] = rest else { panic!("multi_try: too few arguments") };
        let groups = keys.chunks(8).zip(own.chunks(6));
        let one = |(keys, own): (&[Vec<u8>], &[Vec<u8>])| {
            let (share, acquire) = own.split_last().expect("six arguments");
            let (script, own) = match share.as_slice() {
                b"-" => ("acquire", acquire),
                _ => ("share_acquire", own),
            };
            Self::read(
                script,
                &[&[b"8".to_vec()], keys, std::slice::from_ref(settings), own].concat(),
            )
        };
        groups.map(one).collect()
    }

    /// The messages of an operation, in order. The grants of one client are one message, where several may
    /// hold the lock.
    pub(super) fn messages(&self, effects: &[Effect]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cohorts: Vec<(&Channel, u64, Vec<&Grant>)> = Vec::new();
        let mut others = Vec::new();
        for effect in effects {
            match &effect.payload {
                Payload::Grant { grant, at_ms } if self.op.is_shared() => {
                    match cohorts.iter_mut().find(|(to, ..)| *to == &effect.channel) {
                        Some((_, _, grants)) => grants.push(grant),
                        None => cohorts.push((&effect.channel, *at_ms, vec![grant])),
                    }
                }
                _ => others.push(self.message(effect)),
            }
        }
        let told = cohorts.into_iter().map(|(channel, at_ms, grants)| {
            if let [grant] = grants[..] {
                let payload = Payload::Grant { grant: grant.clone(), at_ms };
                return self.message(&Effect { channel: channel.clone(), payload });
            }
            let Channel::Inbox(client) = channel else { unreachable!("it goes to an inbox") };
            let one = |it: &&Grant| format!(" {} {} {}", it.request, it.token, it.ttl_ms);
            let grants: String = grants.iter().map(one).collect();
            (inbox(&self.inbox_prefix, *client), format!("g2 {at_ms}{grants}").into_bytes())
        });
        others.into_iter().chain(told).collect()
    }

    /// The channel and the text of a message.
    fn message(&self, effect: &Effect) -> (Vec<u8>, Vec<u8>) {
        let channel = match &effect.channel {
            Channel::Inbox(client) => inbox(&self.inbox_prefix, *client),
            Channel::Base => self.base.clone(),
            Channel::Waiter(owner) => self.waiter(owner),
            Channel::Latch => self.latch.clone(),
            Channel::Leader => self.leader.clone(),
        };
        let text = match (&effect.channel, &effect.payload) {
            (Channel::Inbox(client), Payload::Forced { number, token }) => {
                format!("f1 {client}:{number} {token}")
            }
            (_, Payload::Forced { .. }) => unreachable!("it goes to an inbox"),
            (_, Payload::Guests { request }) => format!("w1 {request}"),
            (_, Payload::Zero) => "0".into(),
            (_, Payload::One) => "1".into(),
            (_, Payload::Leader { owner, token, at_ms }) => format!("l1 {token} {at_ms} {owner}"),
            (_, Payload::Grant { grant, at_ms }) => {
                format!("g1 {} {} {at_ms} {}", grant.request, grant.token, grant.ttl_ms)
            }
        };
        (channel, text.into_bytes())
    }

    pub(super) fn inbox(&self, client: ClientId) -> Vec<u8> {
        inbox(&self.inbox_prefix, client)
    }

    pub(super) fn waiter(&self, owner: &OwnerId) -> Vec<u8> {
        [self.base.as_slice(), b":", &owner.to_bytes()].concat()
    }
}

fn inbox(prefix: &[u8], client: ClientId) -> Vec<u8> {
    [prefix, client.to_string().as_bytes()].concat()
}

/// The share that an argument names.
fn share(word: &[u8]) -> Share {
    match word {
        b"r" => Share::Read,
        b"w" => Share::Whole,
        permits => {
            let mut parts = permits.split(|byte| *byte == b'/').map(|part| number(part) as u32);
            let (n, limit) = (parts.next(), parts.next());
            Share::Permits { n: n.expect("permits"), limit: limit.expect("their limit") }
        }
    }
}

/// `shared`: the kind, if the script is for one that several may hold.
fn op(script: &str, shared: Kind, own: &[Vec<u8>]) -> Op {
    let (kind, what) = match script.split_once('_') {
        Some(("share", what)) => (shared, what),
        Some(("plain", what)) => (Kind::Plain, what),
        Some(("simple", what)) => (Kind::Simple, what),
        _ => (Kind::Fair, script),
    };
    let owner = |at: usize| OwnerId::parse(&own[at]);
    let token = |at: usize| Token::new(number(&own[at])).expect("a token");
    let request = |at: usize| RequestId::parse(&own[at]).expect("a request");
    if let Some(what) = script.strip_prefix("latch_") {
        let request = || LatchRequest { id: request(0), not_after_ms: number(&own[2]) };
        return Op::Latch(match what {
            "set" => LatchOp::Set { count: number(&own[3]), request: request() },
            "count_down" => LatchOp::CountDown { request: request() },
            "delete" => LatchOp::Delete { request: request() },
            _ => LatchOp::Look { waiting: own.first().map(|known| number(known)) },
        });
    }
    // An operation on the hold of a share names its request behind its token.
    let is_of_hold = script.starts_with("share_")
        && matches!(what, "downgrade" | "reenter" | "release" | "renew");
    let behind = if is_of_hold { 3 } else { 2 };
    let op = match what {
        "acquire" => {
            let acquire = Acquire {
                kind,
                owner: owner(0),
                request: request(1),
                lease_ms: number(&own[2]),
                mode: if own[4].starts_with(b"T") { Mode::Try } else { Mode::Wait },
                order: own[4].iter().position(u8::is_ascii_digit).map(|at| number(&own[4][at..])),
                not_after_ms: number(&own[3]),
                sure: own[4].contains(&b's'),
                shared_owner: own[4].contains(&b'o'),
            };
            Op::asks(acquire, own.get(5).map_or(Share::Whole, |word| share(word)))
        }
        "announce" => Op::Announce(Box::new(Announce {
            owner: owner(0),
            token: token(1),
            change: number(&own[2]),
            ttl_ms: number(&own[3]),
            value: own[4].clone(),
        })),
        "leader" => Op::Leader,
        "downgrade" => Op::Downgrade { owner: owner(0), token: token(1) },
        "reenter" => Op::Reenter {
            owner: owner(0),
            token: token(1),
            count: number(&own[behind]) as u32,
            change: number(&own[behind + 1]),
        },
        "release" => Op::Release {
            kind,
            owner: owner(0),
            token: token(1),
            keep: own.get(behind).map_or(0, |keep| number(keep) as u32),
            change: own.get(behind + 1).map_or(0, |change| number(change)),
        },
        "renew" => {
            let ttl_ms = number(&own[behind]);
            Op::Renew { kind, owner: owner(0), token: token(1), ttl_ms }
        }
        "leave" => Op::Leave {
            kind,
            owner: owner(0),
            request: request(1),
            bury: number(&own[2]) > 0,
            shared_owner: own[3] == b"1",
        },
        "beat" => Op::Beat {
            client: ClientId::parse(&own[0]).expect("a client"),
            waiters: own[1..].iter().map(|waiter| OwnerId::parse(waiter)).collect(),
        },
        "nudge" => Op::Nudge,
        "force" => Op::Force { kind },
        "place" => Op::Place { owner: owner(0) },
        "inspect" => Op::Inspect { kind, limit: number(&own[0]) as u32 },
        other => panic!("no script {other}"),
    };
    if is_of_hold {
        let not_after = own.last().filter(|_| matches!(what, "reenter" | "renew"));
        return op.of_hold(kind, request(2), not_after.map_or(0, |at| number(at)));
    }
    op.on(kind)
}

/// A reply under construction.
#[derive(Default)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    pub(super) fn array(mut self, length: usize) -> Self {
        self.0.extend_from_slice(format!("*{length}\r\n").as_bytes());
        self
    }

    pub(super) fn push(mut self, length: usize) -> Self {
        self.0.extend_from_slice(format!(">{length}\r\n").as_bytes());
        self
    }

    pub(super) fn map(mut self, pairs: &[(&str, &str)]) -> Self {
        self.0.extend_from_slice(format!("%{}\r\n", pairs.len()).as_bytes());
        pairs.iter().fold(self, |reply, (key, value)| reply.text(key).text(value))
    }

    pub(super) fn int(mut self, number: u64) -> Self {
        self.0.extend_from_slice(format!(":{number}\r\n").as_bytes());
        self
    }

    pub(super) fn bulk(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bulk(text.as_bytes())
    }

    /// A status (`+OK`) or an error (`-ERR ...`).
    pub(super) fn line(mut self, line: &str) -> Self {
        self.0.extend_from_slice(line.as_bytes());
        self.0.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The reply of the operation's script; of `is_shared`, if it is for a lock that several may hold.
pub(super) fn answer(answer: &Answer, is_shared: bool) -> Vec<u8> {
    let some =
        |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let flag = |flag: bool| u8::from(flag);
    let mut rest: Vec<Vec<u8>> = Vec::new();
    let words = match &answer.body {
        Body::Granted { token, ttl_ms } => format!("granted {token} {ttl_ms}"),
        Body::GrantedBefore(Grant { request, token, ttl_ms }) => {
            format!("granted {token} {ttl_ms} {request}")
        }
        Body::Queued { order, retry_ms, foreign, length } => {
            format!("queued {order} {} {} {length}", some(*retry_ms), flag(*foreign))
        }
        Body::Busy { ttl_ms } => format!("busy {}", some(*ttl_ms)),
        Body::Taken { ttl_ms, foreign } => format!("taken {} {}", some(*ttl_ms), flag(*foreign)),
        Body::HeldBySelf { count } => format!("self {count}"),
        Body::TooLate => "late".into(),
        Body::Buried => "buried".into(),
        Body::Released => "released".into(),
        Body::StillHeld { count } => format!("held {count}"),
        Body::Stale => "stale".into(),
        Body::NotHeld { holder } => {
            rest.extend(holder.as_ref().map(OwnerId::to_bytes));
            "nothold".into()
        }
        Body::Renewed => "renewed".into(),
        Body::Left => "left".into(),
        Body::Freed => "freed".into(),
        Body::Nothing => "nothing".into(),
        Body::Nudged => "nudged".into(),
        Body::Forced { holder, others } => {
            rest.extend(holder.as_ref().map(OwnerId::to_bytes));
            if is_shared { format!("ended {others}") } else { "forced".into() }
        }
        Body::Fates { fates, retry_ms, foreign } => {
            let fate = |fate: &Fate| match fate {
                Fate::Queued => "1".to_owned(),
                Fate::Granted(grant) => {
                    format!("{} {} {}", grant.request, grant.token, grant.ttl_ms)
                }
                Fate::Unknown => "0".to_owned(),
            };
            let beat = format!("fates {} {}", some(*retry_ms), flag(*foreign));
            fates.iter().fold(beat, |words, it| format!("{words} {}", fate(it)))
        }
        Body::Beaten { held, queued, retry_ms, foreign } => {
            let held = held.as_ref().map_or_else(
                || "- - -".to_owned(),
                |grant| format!("{} {} {}", grant.request, grant.token, grant.ttl_ms),
            );
            let beat = format!("beat {} {} {held}", some(*retry_ms), flag(*foreign));
            queued.iter().fold(beat, |words, queued| format!("{words} {}", flag(*queued)))
        }
        Body::Announced => "announced".into(),
        Body::Leader(seen) => {
            rest.extend(seen.holder.as_ref().map(OwnerId::to_bytes));
            let announced = seen.announced.as_ref();
            rest.extend(announced.map(|it| it.value.clone()));
            let token = some(seen.token.map(Token::get));
            let (change, since) = (announced.map(|it| it.change), announced.map(|it| it.since_ms));
            format!("leader {} {token} {} {}", some(seen.ttl_ms), some(change), some(since))
        }
        Body::Latch(seen) => {
            let (generation, opened) = (some(seen.generation), some(seen.opened));
            format!("latch {} {} {generation} {opened}", flag(seen.done), seen.count)
        }
        Body::Place { ahead } => format!("place {}", some(*ahead)),
        Body::Inspected(seen) => {
            let holder = seen.holder.as_ref();
            let token = seen.token.map(|token| token.get());
            let (count, ttl) = (some(holder.map(|held| held.count)), some(seen.ttl_ms));
            rest.extend(holder.map(|held| held.owner.to_bytes()));
            rest.extend(seen.queue.iter().map(|waiter| waiter.owner.to_bytes()));
            let words = format!("inspected {count} {ttl} {} {}", some(token), seen.queue_len);
            seen.queue.iter().fold(words, |words, waiter| {
                format!("{words} {} {}", some(waiter.beat_age_ms), some(waiter.order))
            })
        }
        other => panic!("no form for {other:?}"),
    };
    let more = u64::from(answer.removed) * 2
        + u64::from(answer.more)
        + u64::from(answer.other_limit) * 256;
    let text = format!("{} {more} {words}", answer.now_ms);
    if rest.is_empty() {
        return Reply::default().text(&text).bytes();
    }
    let reply = Reply::default().array(1 + rest.len()).text(&text);
    rest.iter().fold(reply, |reply, bytes| reply.bulk(bytes)).bytes()
}
