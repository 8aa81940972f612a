//! When two situations are the same. What counts is the distance of every time from now and the
//! rank of tokens and order numbers among each other; the order of what is in transit does not.

use crate::client::{Call, Client, Stage};
use crate::sim::{Message, Reply, Sim};
use fairlock_core::{Body, Op, OwnerId, Payload, QUEUE_TTL_MS, Snapshot};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Distances beyond these bounds (in milliseconds) make no difference.
const PAST: i64 = 64;

struct Canon {
    now: i64,
    server_now: i64,
    skew: i64,
    tokens: Vec<u64>,
    orders: Vec<u64>,
    java: bool,
    /// The server's clock may go back.
    steps: bool,
}

/// A fingerprint of the situation; `budget` holds the faults that are still possible.
pub(crate) fn fingerprint(sim: &Sim, budget: &impl Hash, java: bool) -> u64 {
    let canon = Canon {
        now: i64::try_from(sim.now).unwrap(),
        server_now: i64::try_from(sim.server_now()).unwrap(),
        skew: sim.skew,
        tokens: sorted(tokens_of(sim)),
        orders: sorted(orders_of(sim)),
        java,
        steps: steps(sim),
    };
    let mut h = DefaultHasher::new();
    budget.hash(&mut h);
    canon.lock(sim.lock.snapshot(), &mut h);
    sim.newest.as_ref().map(|(token, of)| (canon.token(token.get()), of)).hash(&mut h);
    sim.replica.is_some().hash(&mut h);
    if let Some(replica) = &sim.replica {
        canon.lock(replica.snapshot(), &mut h);
    }
    sim.turns.as_ref().map(|t| t.in_order(sim.lock.snapshot(), &sim.clients)).hash(&mut h);
    for client in &sim.clients {
        canon.client(client, &mut h);
        canon.trust(sim, client.rests_on, &mut h);
        canon.trust(sim, (client.heard_in, client.heard_in), &mut h);
        sim.ears.deaf.contains(&client.id).hash(&mut h);
    }
    if java {
        sim.java.hash(&mut h);
        sim.java_listens().hash(&mut h);
    }
    heap(sim.calls.iter(), |call, h| canon.call(call, h)).hash(&mut h);
    let replies = heap(sim.replies.iter(), |reply, h| {
        canon.reply(reply, h);
        canon.trust(sim, (reply.era, reply.era), h);
    });
    let messages = heap(sim.messages.iter(), |message, h| {
        canon.message(message, h);
        canon.trust(sim, (message.era, message.era), h);
    });
    (replies, messages).hash(&mut h);
    h.finish()
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// A hash that does not depend on the order of the items.
fn heap<'a, T: 'a>(
    items: impl Iterator<Item = &'a T>,
    hash: impl Fn(&T, &mut DefaultHasher),
) -> (usize, u64) {
    items.fold((0, 0), |(count, sum), item| {
        let mut h = DefaultHasher::new();
        hash(item, &mut h);
        (count + 1, h.finish().wrapping_add(sum))
    })
}

fn tokens_of(sim: &Sim) -> Vec<u64> {
    let mut tokens = Vec::new();
    for k in known_to_servers(sim) {
        tokens.extend(k.token);
        tokens.extend(k.record.grant.map(|(token, _)| token));
    }
    tokens.extend(sim.newest.iter().map(|(token, _)| token.get()));
    let ops = sim.calls.iter().chain(sim.replies.iter().map(|reply| &reply.call)).map(|c| &c.op);
    tokens.extend(
        ops.chain(sim.clients.iter().flat_map(|c| c.debts.iter().chain(&c.lately)))
            .filter_map(token_of),
    );
    for reply in &sim.replies {
        match &reply.answer.body {
            Body::Granted { token, .. } => tokens.push(token.get()),
            Body::Beaten { held: Some(grant), .. } => tokens.push(grant.token.get()),
            _ => {}
        }
    }
    for message in &sim.messages {
        if let Payload::Grant { grant, .. } = &message.payload {
            tokens.push(grant.token.get());
        }
    }
    for client in &sim.clients {
        if let Some(Stage::Holding { token, .. }) = client.current.as_ref().map(|a| &a.stage) {
            tokens.push(token.get());
        }
    }
    tokens
}

/// The state of the master and, while its link is cut, of the replica.
fn known_to_servers(sim: &Sim) -> impl Iterator<Item = &Snapshot> {
    [Some(&sim.lock), sim.replica.as_ref()].into_iter().flatten().map(|lock| lock.snapshot())
}

fn token_of(op: &Op) -> Option<u64> {
    match op {
        Op::Release { token, .. } | Op::Renew { token, .. } => Some(token.get()),
        _ => None,
    }
}

fn steps(sim: &Sim) -> bool {
    sim.clients.iter().any(|client| client.habits.servers_time)
}

fn orders_of(sim: &Sim) -> Vec<u64> {
    let mut orders: Vec<u64> =
        known_to_servers(sim).flat_map(|k| k.order.values().copied()).collect();
    orders.extend(known_to_servers(sim).filter_map(|k| k.record.given));
    orders.extend(sim.clients.iter().filter_map(|c| c.current.as_ref()?.order));
    for reply in &sim.replies {
        if let Body::Queued { order, .. } = reply.answer.body {
            orders.push(order);
        }
    }
    let calls = sim.calls.iter().chain(sim.replies.iter().map(|reply| &reply.call));
    orders.extend(calls.filter_map(|call| match &call.op {
        Op::Acquire(a) => a.order,
        _ => None,
    }));
    orders
}

fn is_orphan(k: &Snapshot, owner: &OwnerId) -> bool {
    owner.is_ours() && !(k.order.contains_key(owner) && k.waiters.contains_key(owner))
}

impl Canon {
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
    fn trust(&self, sim: &Sim, (told, clock): (u8, u8), h: &mut DefaultHasher) {
        let lost_at_failover = sim.replica.is_some() && told == sim.era;
        (sim.is_doubted(told), sim.is_clock_doubted(clock), lost_at_failover).hash(h);
    }

    fn later(&self, at: Option<u64>) -> i64 {
        at.map_or(0, |at| self.at(at).max(0))
    }

    fn token(&self, token: u64) -> usize {
        self.tokens.binary_search(&token).unwrap()
    }

    fn order(&self, order: Option<u64>) -> Option<usize> {
        order.map(|order| self.orders.binary_search(&order).unwrap())
    }

    fn lock(&self, k: &Snapshot, h: &mut DefaultHasher) {
        k.hold.hash(h);
        k.hold_expires.map(|at| self.at(at)).hash(h);
        k.token.map(|token| self.token(token)).hash(h);
        k.queue.hash(h);
        for (owner, score) in &k.scores {
            // Scores matter to Java and to waiters without a record; ours only pass on the tail's.
            let counts = self.java || is_orphan(k, owner);
            (owner, counts.then(|| (score - self.server_now).max(-PAST))).hash(h);
        }
        if k.queue.iter().any(|owner| is_orphan(k, owner)) {
            k.queue_expires.map(|at| self.at(at.saturating_sub(QUEUE_TTL_MS))).hash(h);
        }
        for (owner, order) in &k.order {
            (owner, self.order(Some(*order))).hash(h);
        }
        k.waiters.hash(h);
        let r = &k.record;
        r.grant.map(|(token, request)| (self.token(token), request)).hash(h);
        (self.later(r.amnesty), self.later(r.gather), r.removed.is_some()).hash(h);
        (r.silence.is_some() && r.silence == k.beats.values().copied().max()).hash(h);
        if self.later(r.amnesty) > 0 {
            r.silence.map(|at| self.at(at)).hash(h);
        }
        // With a clock that never goes back, a last number that it has passed does not matter.
        let now_us = self.server_now * 1_000;
        let ahead = r.given.filter(|last| i64::try_from(*last).unwrap() >= now_us);
        (self.order(r.given.filter(|_| self.steps).or(ahead)), ahead.is_some()).hash(h);
        if let Some(watch) = &r.watch {
            (&watch.id, self.at(watch.since), self.at(watch.pinged)).hash(h);
        }
        for (client, beat) in &k.beats {
            (client, self.at(*beat)).hash(h);
        }
        for (request, until) in &k.buried {
            (request, self.at(*until)).hash(h);
        }
    }

    fn client(&self, client: &Client, h: &mut DefaultHasher) {
        (client.alive, client.beats_out, client.renewals_out).hash(h);
        let (server, sent) = client.heard;
        self.ahead(server, sent).hash(h);
        for debt in &client.debts {
            self.op(debt, h);
        }
        client.lately.len().hash(h);
        for op in &client.lately {
            self.op(op, h);
        }
        if let Some(attempt) = &client.current {
            (&attempt.owner, attempt.request, self.order(attempt.order)).hash(h);
            attempt.former.hash(h);
            attempt.unanswered.hash(h);
            match attempt.stage {
                Stage::Asking => 0.hash(h),
                Stage::Waiting => 1.hash(h),
                Stage::Holding { token, until } => {
                    (2, self.token(token.get()), self.at_client(until).max(0)).hash(h);
                }
            }
        }
    }

    fn op(&self, op: &Op, h: &mut DefaultHasher) {
        match op {
            Op::Acquire(a) => {
                let late = self.at(a.not_after_ms).max(-1);
                (0, &a.owner, a.request, self.order(a.order), late).hash(h);
            }
            Op::Release { owner, token, .. } => (1, owner, self.token(token.get())).hash(h),
            Op::Renew { owner, token, .. } => (2, owner, self.token(token.get())).hash(h),
            op => (3, op).hash(h),
        }
    }

    fn call(&self, call: &Call, h: &mut DefaultHasher) {
        (call.from, self.at_client(call.sent), call.about).hash(h);
        self.op(&call.op, h);
    }

    fn reply(&self, reply: &Reply, h: &mut DefaultHasher) {
        self.call(&reply.call, h);
        self.ahead(reply.answer.now_ms, reply.call.sent).hash(h);
        match &reply.answer.body {
            Body::Granted { token, ttl_ms } => (0, self.token(token.get()), ttl_ms).hash(h),
            Body::Queued { order, .. } => (1, self.order(Some(*order))).hash(h),
            Body::Beaten { held, queued, .. } => {
                let held = held.as_ref().map(|g| (g.request, self.token(g.token.get()), g.ttl_ms));
                (2, held, queued).hash(h);
            }
            body => std::mem::discriminant(body).hash(h),
        }
    }

    fn message(&self, message: &Message, h: &mut DefaultHasher) {
        message.to.hash(h);
        if let Payload::Grant { grant, at_ms } = &message.payload {
            let token = self.token(grant.token.get());
            (grant.request, token, grant.ttl_ms, self.at(*at_ms)).hash(h);
        }
    }
}
