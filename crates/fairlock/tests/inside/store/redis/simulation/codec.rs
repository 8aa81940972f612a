//! The wire codec of the simulated server: commands to operations, answers to replies. It is the
//! counterpart of `script.rs` and `reply.rs`, and shares only the texts of the scripts with them.

use super::super::script;
use fairlock_core::{
    Acquire, Answer, Body, Channel, ClientId, Effect, Inspection, Kind, LockName, Mode, Op,
    OwnerId, Payload, RequestId, Rules, Token,
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
        "beat",
        "force",
        "inspect",
        "leave",
        "nudge",
        "place",
        "plain_acquire",
        "plain_leave",
        "plain_release",
        "reenter",
        "release",
        "renew",
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
        let [_, base, inbox_prefix, beat, dead, fair_wait, flags, own @ ..] = &words[1 + keys..]
        else {
            panic!("{script}: too few arguments");
        };
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
        let (base, inbox_prefix) = (base.clone(), inbox_prefix.clone());
        Self { name, rules, op: op(script, own), base, inbox_prefix }
    }

    /// The channel and the text of a message.
    pub(super) fn message(&self, effect: &Effect) -> (Vec<u8>, Vec<u8>) {
        let channel = match &effect.channel {
            Channel::Inbox(client) => inbox(&self.inbox_prefix, *client),
            Channel::Base => self.base.clone(),
            Channel::Waiter(owner) => self.waiter(owner),
        };
        let text = match (&effect.channel, &effect.payload) {
            (Channel::Inbox(client), Payload::Forced { number, token }) => {
                format!("f1 {client}:{number} {token}")
            }
            (_, Payload::Forced { .. }) => unreachable!("it goes to an inbox"),
            (_, Payload::Zero) => "0".into(),
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

fn op(script: &str, own: &[Vec<u8>]) -> Op {
    let (kind, what) = match script.split_once('_') {
        Some(("plain", what)) => (Kind::Plain, what),
        Some(("simple", what)) => (Kind::Simple, what),
        _ => (Kind::Fair, script),
    };
    let owner = |at: usize| OwnerId::parse(&own[at]);
    let token = |at: usize| Token::new(number(&own[at])).expect("a token");
    let request = |at: usize| RequestId::parse(&own[at]).expect("a request");
    match what {
        "acquire" => Op::Acquire(Acquire {
            kind,
            owner: owner(0),
            request: request(1),
            lease_ms: number(&own[2]),
            mode: if own[3] == b"T" { Mode::Try } else { Mode::Wait },
            order: Some(number(&own[4])).filter(|order| *order > 0),
            not_after_ms: number(&own[5]),
            sure: own[6] == b"1",
            shared_owner: own[7] == b"1",
        }),
        "reenter" => Op::Reenter {
            owner: owner(0),
            token: token(1),
            count: number(&own[2]) as u32,
            change: number(&own[3]),
        },
        "release" => Op::Release {
            kind,
            owner: owner(0),
            token: token(1),
            keep: number(&own[2]) as u32,
            change: number(&own[3]),
        },
        "renew" => Op::Renew { kind, owner: owner(0), token: token(1), ttl_ms: number(&own[2]) },
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
    }
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

    pub(super) fn nil(mut self) -> Self {
        self.0.extend_from_slice(b"_\r\n");
        self
    }

    /// A status (`+OK`) or an error (`-ERR ...`).
    pub(super) fn line(mut self, line: &str) -> Self {
        self.0.extend_from_slice(line.as_bytes());
        self.0.extend_from_slice(b"\r\n");
        self
    }

    fn maybe_int(self, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.int(number),
            None => self.nil(),
        }
    }

    fn maybe_owner(self, owner: Option<&OwnerId>) -> Self {
        match owner {
            Some(owner) => self.bulk(&owner.to_bytes()),
            None => self.nil(),
        }
    }

    fn flag(self, flag: bool) -> Self {
        self.int(u64::from(flag))
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The reply of the operation's script.
pub(super) fn answer(answer: &Answer) -> Vec<u8> {
    let head = |length: usize, tag: &str| {
        let removed = u64::from(answer.removed) * 2 + u64::from(answer.more);
        Reply::default().array(3 + length).int(answer.now_ms).int(removed).text(tag)
    };
    let reply = match &answer.body {
        Body::Granted { token, ttl_ms } => head(2, "granted").text(&token.to_string()).int(*ttl_ms),
        Body::Queued { order, retry_ms, foreign, length } => head(4, "queued")
            .text(&order.to_string())
            .maybe_int(*retry_ms)
            .flag(*foreign)
            .int(*length),
        Body::Busy { ttl_ms } => head(1, "busy").maybe_int(*ttl_ms),
        Body::Taken { ttl_ms, foreign } => head(2, "taken").maybe_int(*ttl_ms).flag(*foreign),
        Body::HeldBySelf { count } => head(1, "self").int((*count).into()),
        Body::TooLate => head(0, "late"),
        Body::Buried => head(0, "buried"),
        Body::Released => head(0, "released"),
        Body::StillHeld { count } => head(1, "held").int((*count).into()),
        Body::Stale => head(0, "stale"),
        Body::NotHeld { holder } => head(1, "nothold").maybe_owner(holder.as_ref()),
        Body::Renewed => head(0, "renewed"),
        Body::Left => head(0, "left"),
        Body::Freed => head(0, "freed"),
        Body::Nothing => head(0, "nothing"),
        Body::Nudged => head(0, "nudged"),
        Body::Forced { holder } => head(1, "forced").maybe_owner(holder.as_ref()),
        Body::Beaten { held, queued, retry_ms, foreign } => {
            let reply = head(5 + queued.len(), "beat").maybe_int(*retry_ms).flag(*foreign);
            let reply = match held {
                Some(grant) => reply
                    .text(&grant.request.to_string())
                    .text(&grant.token.to_string())
                    .int(grant.ttl_ms),
                None => reply.nil().nil().nil(),
            };
            queued.iter().fold(reply, |reply, queued| reply.flag(*queued))
        }
        Body::Place { ahead } => head(1, "place").maybe_int(*ahead),
        Body::Inspected(seen) => inspected(head(6, "inspected"), seen),
        other => panic!("no form for {other:?}"),
    };
    reply.bytes()
}

fn inspected(reply: Reply, seen: &Inspection) -> Reply {
    let holder = seen.holder.as_ref();
    let reply = reply
        .maybe_owner(holder.map(|held| &held.owner))
        .maybe_int(holder.map(|held| held.count))
        .maybe_int(seen.ttl_ms);
    let reply = match seen.token {
        Some(token) => reply.text(&token.to_string()),
        None => reply.nil(),
    };
    let reply = reply.int(seen.queue_len).array(seen.queue.len());
    seen.queue.iter().fold(reply, |reply, waiter| {
        let reply = reply.array(3).bulk(&waiter.owner.to_bytes()).maybe_int(waiter.beat_age_ms);
        match waiter.order {
            Some(order) => reply.text(&order.to_string()),
            None => reply.nil(),
        }
    })
}
