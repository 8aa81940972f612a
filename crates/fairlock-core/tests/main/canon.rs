//! When two situations are the same. What counts is the distance of every time from now, the rank
//! of tokens and order numbers among each other, and which requests are the same; the order of what
//! is in transit does not.
//!
//! The values of the client and the operations derive `Hash`. What a number stands for is seen from
//! its size: an exploration begins at [`T0`].

use crate::client::{About, Client, Eras};
use crate::sim::{Message, Reply, Sim};
use fairlock_core::{Body, Op, OwnerId, Payload, QUEUE_TTL_MS, Snapshot};
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// When explorations begin, in milliseconds.
pub(crate) const T0: u64 = 1_000_000_000;

/// Distances beyond these bounds (in milliseconds) make no difference.
const PAST: i64 = 64_000;

/// Explorations are shorter than this (in milliseconds).
const SPAN: u64 = 10_000_000;

const SECONDS: Range<u64> = (T0 - SPAN) / 1_000..(T0 + SPAN) / 1_000;
const MILLIS: Range<u64> = T0 - SPAN..T0 + SPAN;
/// Order numbers and tokens.
const MICROS: Range<u64> = (T0 - SPAN) * 1_000..(T0 + SPAN) * 1_000;
const NANOS: Range<u64> = (T0 - SPAN) * 1_000_000..(T0 + SPAN) * 1_000_000;

/// Requests have larger numbers than clients.
const FIRST_REQUEST: u128 = 1_000;

struct Canon {
    now: i64,
    server_now: i64,
    skew: i64,
    tokens: Vec<u64>,
    orders: Vec<u64>,
    /// The requests in the order in which they were met.
    requests: RefCell<Vec<u128>>,
    java: bool,
    /// The server's clock may go back.
    steps: bool,
}

/// A hasher for small numbers, three times as fast as the one of std.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(eight));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0.rotate_left(23) ^ n).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let wide = u128::from(mixed) * 0xd6e8_feb8_6659_fd93;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }
}

/// Hashes what is meant instead of the numbers.
struct Eye<'a> {
    canon: &'a Canon,
    hasher: Mixed,
    /// The nanoseconds of a duration follow, which do not count.
    skips: bool,
    /// New requests get the next number. Not where the order of things does not count.
    numbers: bool,
}

impl Hasher for Eye<'_> {
    fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    fn write_u8(&mut self, n: u8) {
        self.hasher.write_u8(n);
    }

    fn write_u32(&mut self, n: u32) {
        self.hasher.write_u32(if std::mem::take(&mut self.skips) { 0 } else { n });
    }

    fn write_u64(&mut self, n: u64) {
        let canon = self.canon;
        if NANOS.contains(&n) {
            let past = n as i64 - canon.now * 1_000_000;
            self.hasher.write_i64(past.max(-PAST * 1_000_000));
        } else if MICROS.contains(&n) {
            // A token may be equal to an order number.
            match (canon.tokens.binary_search(&n), canon.orders.binary_search(&n)) {
                (Err(token), Err(order)) => (2, token, order).hash(&mut self.hasher),
                (token, order) => (token.ok(), order.ok()).hash(&mut self.hasher),
            }
        } else if MILLIS.contains(&n) {
            self.hasher.write_i64(canon.at(n));
        } else if SECONDS.contains(&n) {
            let past = n as i64 - canon.now / 1_000;
            self.skips = past < 0;
            self.hasher.write_i64(past.max(-1));
        } else {
            self.hasher.write_u64(n);
        }
    }

    fn write_u128(&mut self, n: u128) {
        if n < FIRST_REQUEST {
            return self.hasher.write_u128(n);
        }
        let mut requests = self.canon.requests.borrow_mut();
        let place = requests.iter().position(|request| *request == n);
        let place = match place {
            None if self.numbers => {
                requests.push(n);
                requests.len() - 1
            }
            Some(place) => place,
            None => return self.hasher.write_u128(n),
        };
        self.hasher.write_usize(place);
    }
}

/// A fingerprint of the situation; `budget` holds the faults that are still possible.
pub(crate) fn fingerprint(sim: &Sim, budget: &impl Hash, java: bool) -> u64 {
    let canon = Canon {
        now: i64::try_from(sim.now).unwrap(),
        server_now: i64::try_from(sim.server_now()).unwrap(),
        skew: sim.skew,
        tokens: sorted(tokens_of(sim)),
        orders: sorted(orders_of(sim)),
        requests: RefCell::default(),
        java,
        steps: steps(sim),
    };
    let h = &mut canon.eye(true);
    budget.hash(h);
    for client in &sim.clients {
        canon.client(client, h);
        let held = client.held.iter().map(|held| held.rests_on);
        for eras in held.chain(client.attempts.iter().map(|a| a.rests_on())) {
            canon.trust(sim, eras, h);
        }
        canon.trust(sim, Eras(client.heard_in, client.heard_in), h);
        sim.ears.deaf.contains(&client.id).hash(h);
    }
    canon.lock(sim.lock.snapshot(), h);
    sim.lock.shares().hash(h);
    sim.newest.hash(h);
    sim.replica.is_some().hash(h);
    if let Some(replica) = &sim.replica {
        canon.lock(replica.snapshot(), h);
    }
    sim.turns.as_ref().map(|t| t.in_order(sim.lock.snapshot(), &sim.clients)).hash(h);
    if java {
        sim.java.hash(h);
        sim.java_listens().hash(h);
    }
    let calls = canon.heap(sim.calls.iter(), |call, h| {
        canon.call(call.from, call.sent, call.about, h);
        call.op.hash(h);
    });
    let replies = canon.heap(sim.replies.iter(), |reply, h| {
        canon.reply(reply, h);
        canon.trust(sim, Eras(reply.era, reply.era), h);
    });
    let messages = canon.heap(sim.messages.iter(), |message, h| {
        canon.message(message, h);
        canon.trust(sim, Eras(message.era, message.era), h);
    });
    (calls, replies, messages).hash(h);
    h.finish()
}

/// The state of the master and, while its link is cut, of the replica.
fn known_to_servers(sim: &Sim) -> impl Iterator<Item = &Snapshot> {
    [Some(&sim.lock), sim.replica.as_ref()].into_iter().flatten().map(|lock| lock.snapshot())
}

fn steps(sim: &Sim) -> bool {
    sim.clients.iter().any(|client| client.habits.servers_time)
}

/// Those known to clients were known to a server, or are in its reply. One that no server knows any
/// more ranks between the others.
fn orders_of(sim: &Sim) -> Vec<u64> {
    let mut orders: Vec<u64> =
        known_to_servers(sim).flat_map(|k| k.order.values().copied()).collect();
    orders.extend(known_to_servers(sim).filter_map(|k| k.record.given));
    orders.extend(sim.clients.iter().flat_map(|c| &c.attempts).filter_map(|a| a.order));
    for reply in &sim.replies {
        if let Body::Queued { order, .. } = reply.answer.body {
            orders.push(order);
        }
    }
    orders
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn tokens_of(sim: &Sim) -> Vec<u64> {
    let mut tokens = Vec::new();
    for k in known_to_servers(sim) {
        tokens.extend(k.token);
        tokens.extend(k.record.grant.map(|(token, _)| token));
    }
    tokens.extend(sim.newest.iter().map(|(token, _)| token.get()));
    let calls = sim.calls.iter().chain(sim.replies.iter().map(|reply| &reply.call));
    tokens.extend(calls.filter_map(|call| match &call.op {
        Op::Release { token, .. } | Op::Renew { token, .. } | Op::Downgrade { token, .. } => {
            Some(token.get())
        }
        _ => None,
    }));
    tokens.extend(sim.replies.iter().filter_map(|reply| match &reply.answer.body {
        Body::Granted { token, .. } => Some(token.get()),
        Body::Beaten { held, .. } => held.as_ref().map(|grant| grant.token.get()),
        _ => None,
    }));
    tokens.extend(sim.messages.iter().filter_map(|message| match &message.payload {
        Payload::Grant { grant, .. } => Some(grant.token.get()),
        _ => None,
    }));
    let shared = sim.lock.shares().into_iter().flat_map(|shares| shares.holds().values());
    tokens.extend(shared.map(|hold| hold.token.get()));
    let held = sim.clients.iter().flat_map(|client| &client.held);
    tokens.extend(held.map(|held| held.token.get()));
    tokens
}

fn is_orphan(k: &Snapshot, owner: &OwnerId) -> bool {
    owner.is_ours() && !(k.order.contains_key(owner) && k.waiters.contains_key(owner))
}

impl Canon {
    fn eye(&self, numbers: bool) -> Eye<'_> {
        Eye { canon: self, hasher: Mixed::default(), skips: false, numbers }
    }

    /// A hash that does not depend on the order of the items.
    fn heap<'a, T: 'a>(
        &self,
        items: impl Iterator<Item = &'a T>,
        hash: impl Fn(&T, &mut Eye<'_>),
    ) -> (usize, u64) {
        items.fold((0, 0), |(count, sum), item| {
            let mut h = self.eye(false);
            hash(item, &mut h);
            (count + 1, h.finish().wrapping_add(sum))
        })
    }

    /// By the clients' clock.
    fn at_client(&self, at: u64) -> i64 {
        (i64::try_from(at).unwrap() - self.now).max(-PAST)
    }

    /// By the server's clock.
    fn at(&self, at: u64) -> i64 {
        (i64::try_from(at).unwrap() - self.server_now).max(-PAST)
    }

    /// How far the server was ahead, relative to how far it is now. Only the difference is ever
    /// used.
    fn ahead(&self, server: u64, sent: u64) -> i64 {
        let ahead = i64::try_from(server).unwrap() - i64::try_from(sent).unwrap();
        (ahead - self.skew).clamp(-PAST, PAST)
    }

    /// What is, or may come to be, in doubt.
    fn trust(&self, sim: &Sim, Eras(told, clock): Eras, h: &mut Eye<'_>) {
        let lost_at_failover = sim.replica.is_some() && told == sim.era;
        (sim.is_doubted(told), sim.is_clock_doubted(clock), lost_at_failover).hash(h);
    }

    fn later(&self, at: Option<u64>) -> i64 {
        at.map_or(0, |at| self.at(at).max(0))
    }

    fn lock(&self, k: &Snapshot, h: &mut Eye<'_>) {
        k.hold.hash(h);
        k.hold_expires.hash(h);
        k.token.hash(h);
        k.queue.hash(h);
        for (owner, score) in &k.scores {
            // Scores matter to Java and to waiters without a record; ours only pass on the tail's.
            let counts = self.java || is_orphan(k, owner);
            (owner, counts.then(|| (score - self.server_now).max(-PAST))).hash(h);
        }
        if k.queue.iter().any(|owner| is_orphan(k, owner)) {
            k.queue_expires.map(|at| self.at(at.saturating_sub(QUEUE_TTL_MS))).hash(h);
        }
        k.order.hash(h);
        k.waiters.hash(h);
        let r = &k.record;
        r.grant.hash(h);
        (self.later(r.amnesty), self.later(r.gather), r.removed.is_some()).hash(h);
        (r.silence.is_some() && r.silence == k.beats.values().copied().max()).hash(h);
        if self.later(r.amnesty) > 0 {
            r.silence.hash(h);
        }
        // With a clock that never goes back, a last number that it has passed does not matter.
        let now_us = self.server_now * 1_000;
        let ahead = r.given.filter(|last| i64::try_from(*last).unwrap() >= now_us);
        (r.given.filter(|_| self.steps).or(ahead), ahead.is_some()).hash(h);
        if let Some(watch) = &r.watch {
            (&watch.id, watch.since, watch.pinged).hash(h);
        }
        k.beats.hash(h);
        k.buried.hash(h);
    }

    fn client(&self, client: &Client, h: &mut Eye<'_>) {
        (client.alive, client.connected).hash(h);
        if !client.alive {
            return;
        }
        client.heard.map(|(server, sent)| self.ahead(server, sent)).hash(h);
        (&client.attempts, &client.held, &client.debts, &client.undone).hash(h);
        (&client.machine, &client.renewals, &client.recent).hash(h);
        self.heap(client.waits.iter(), |about, h| about.hash(h)).hash(h);
        (client.beating, client.kicked, &client.listening).hash(h);
    }

    fn call(&self, from: usize, sent: u64, about: About, h: &mut Eye<'_>) {
        // Nobody counts from when it was sent.
        let sent = (about != About::Nobody).then(|| self.at_client(sent));
        (from, sent, about).hash(h);
    }

    fn reply(&self, reply: &Reply, h: &mut Eye<'_>) {
        let call = &reply.call;
        self.call(call.from, call.sent, call.about, h);
        call.op.hash(h);
        self.ahead(reply.answer.now_ms, call.sent).hash(h);
        match &reply.answer.body {
            Body::Granted { token, ttl_ms } => (0, token, ttl_ms).hash(h),
            Body::Queued { order, foreign, .. } => (1, order, foreign).hash(h),
            Body::Beaten { held, queued, foreign, .. } => (2, held, queued, foreign).hash(h),
            Body::Fates { fates, .. } => (3, fates).hash(h),
            body => std::mem::discriminant(body).hash(h),
        }
    }

    fn message(&self, message: &Message, h: &mut Eye<'_>) {
        message.to.hash(h);
        if let Payload::Grant { grant, at_ms } = &message.payload {
            (grant, at_ms).hash(h);
        }
    }
}
