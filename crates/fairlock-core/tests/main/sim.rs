//! One lock, some clients of ours, one Java client and the network between them. Nothing moves by
//! itself: the test decides what is executed, heard and read next, and when time passes. A lost
//! call, reply or message is one that is never chosen.

use crate::client::{About, Call, Client, Eras, Habits, Shared};
use crate::explore::TICK;
use crate::java::{self, Clocks};
use crate::support::{Ears, java as java_owner};
use crate::turns::Turns;
use fairlock_core::{
    Answer, Body, Channel, Effect, LockState, Op, OwnerId, Payload, Rules, Share, Shares, Token,
};
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) call: Call,
    pub(crate) answer: Answer,
    /// The era in which it was given.
    pub(crate) era: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) to: usize,
    pub(crate) payload: Payload,
    /// The era in which it was sent.
    pub(crate) era: u8,
}

/// A thread of a JVM that waits without limit, or gives up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JavaThread {
    pub(crate) id: OwnerId,
    pub(crate) wants: bool,
    pub(crate) holds: bool,
    pub(crate) alive: bool,
    pub(crate) told: u8,
    /// How far its clock is ahead of the server's, in milliseconds.
    pub(crate) ahead: i64,
    pub(crate) wait: i64,
    pub(crate) lease: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Sim {
    /// The clock of all clients.
    pub(crate) now: u64,
    /// How far the server's clock is ahead of it.
    pub(crate) skew: i64,
    /// Counts the faults after which a guard may be in doubt without its client knowing.
    pub(crate) era: u8,
    /// The eras whose answers and messages no longer count.
    pub(crate) doubted: u32,
    /// The eras whose server time no longer counts.
    pub(crate) doubted_clocks: u32,
    /// The replica's state, once its link is cut.
    pub(crate) replica: Option<Rc<LockState>>,
    /// Whose turn it is, if order is checked.
    pub(crate) turns: Option<Turns>,
    pub(crate) rules: Rc<Rules>,
    pub(crate) lock: Rc<LockState>,
    pub(crate) ears: Rc<Ears>,
    pub(crate) clients: Vec<Shared>,
    pub(crate) java: JavaThread,
    pub(crate) calls: Vec<Call>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) messages: Vec<Message>,
    /// The newest token and its owner.
    pub(crate) newest: Option<(Token, OwnerId)>,
    /// The first thing found wrong while an operation ran.
    pub(crate) wrong: Option<String>,
}

/// Whether an operation on one hold changes a hold of another name, whose lease goes on.
fn changes_another(op: &Op, before: &Shares, after: &LockState, now_ms: u64) -> bool {
    let Some(of) = op.hold() else { return false };
    let mut others = before.holds().iter().filter(|(_, hold)| hold.request != of.request);
    let now = |owner| after.shares().and_then(|shares| shares.holds().get(owner));
    others.any(|(owner, hold)| hold.ends_ms >= now_ms && now(owner) != Some(hold))
}

impl Sim {
    pub(crate) fn new(rules: Rules, habits: &[Habits], now: u64) -> Self {
        let java = JavaThread {
            id: java_owner(1),
            wants: false,
            holds: false,
            alive: true,
            told: 0,
            ahead: 0,
            wait: i64::try_from(rules.fair_wait_ms).unwrap(),
            lease: 30_000,
        };
        Self {
            now,
            skew: 0,
            era: 0,
            doubted: 0,
            doubted_clocks: 0,
            replica: None,
            turns: None,
            rules: Rc::new(rules),
            lock: Rc::new(LockState::default()),
            ears: Rc::new(Ears::default()),
            clients: habits
                .iter()
                .enumerate()
                .map(|(i, h)| Client::new(i, *h, now).into())
                .collect(),
            java,
            calls: Vec::new(),
            replies: Vec::new(),
            messages: Vec::new(),
            newest: None,
            wrong: None,
        }
    }

    /// Sets whether the server sees a subscriber on the Java thread's own channel.
    pub(crate) fn subscribe_java(&mut self, on: bool) {
        let ears = Rc::make_mut(&mut self.ears);
        if on {
            ears.java.insert(self.java.id.clone());
        } else {
            ears.java.remove(&self.java.id);
        }
    }

    /// Sets whether the server sees a subscriber on the inbox of a client.
    pub(crate) fn subscribe(&mut self, place: usize, on: bool) {
        let ears = Rc::make_mut(&mut self.ears);
        if on {
            ears.deaf.remove(&self.clients[place].id);
            // It catches up on what it may have missed.
            let client = &mut self.clients[place];
            client.kicked |= client.beating;
        } else {
            ears.deaf.insert(self.clients[place].id);
        }
    }

    pub(crate) fn java_listens(&self) -> bool {
        self.ears.java.contains(&self.java.id)
    }

    pub(crate) fn server_now(&self) -> u64 {
        self.now.checked_add_signed(self.skew).expect("a clock after 1970")
    }

    /// The server's clock steps. If it steps forward, what ends by it ends early: no guard is
    /// promised then until the next answer.
    pub(crate) fn step_clock(&mut self, by: i64) {
        self.skew += by;
        if by > 0 {
            self.begin_era(u32::MAX, u32::MAX);
        }
    }

    /// From here on the replica receives nothing more.
    pub(crate) fn cut_replica(&mut self) {
        self.replica = Some(self.lock.clone());
        self.begin_era(0, 0);
    }

    /// The replica becomes the master, and all clients are connected to it: everything since the
    /// cut is lost, and so is what was in transit on the old connections. Messages that have
    /// arrived may still be read.
    pub(crate) fn fail_over(&mut self) {
        let Some(replica) = self.replica.take() else { return };
        self.lock = replica;
        self.calls.clear();
        self.replies.clear();
        self.now += 1;
        self.begin_era(1 << self.era, 0);
        for place in 0..self.clients.len() {
            if self.clients[place].alive {
                self.disconnect(place);
                self.connect(place);
            }
        }
    }

    /// A client loses its connection; what is in transit to the server may still arrive.
    pub(crate) fn disconnect(&mut self, place: usize) {
        self.input(place, Client::disconnect);
    }

    pub(crate) fn connect(&mut self, place: usize) {
        self.input(place, Client::connect);
    }

    /// Whether a call that a client waits for has not been executed.
    pub(crate) fn is_under_way(&self, place: usize, call: usize) -> bool {
        let about = self.clients[place].waits[call];
        self.calls.iter().any(|call| call.from == place && call.about == about)
    }

    /// A call surely does not reach the server, and the client notices.
    pub(crate) fn refuse(&mut self, place: usize, call: usize) {
        let about = self.clients[place].waits[call];
        self.calls.retain(|call| call.from != place || call.about != about);
        self.input(place, |client, now| client.fail(now, about, false));
    }

    /// Gives an input to a client. What it no longer waits for does not arrive.
    pub(crate) fn input(
        &mut self,
        place: usize,
        input: impl FnOnce(&mut Client, u64) -> Vec<Call>,
    ) {
        let client = &mut self.clients[place];
        let calls = input(client, self.now);
        self.calls.extend(calls);
        let waits = |call: &Call| call.from != place || client.waits.contains(&call.about);
        self.replies.retain(|reply| waits(&reply.call));
        for call in &mut self.calls {
            if !waits(call) {
                call.about = About::Nobody;
            }
        }
    }

    fn begin_era(&mut self, doubted: u32, doubted_clocks: u32) {
        let before = (2 << self.era) - 1;
        self.doubted |= doubted & before;
        self.doubted_clocks |= doubted_clocks & before;
        self.era += 1;
    }

    /// Whether the guarantees do not cover this client's guard: it rests on what was lost, or on
    /// TTLs that ended early.
    pub(crate) fn doubts(&self, client: &Client) -> bool {
        client.guarding().is_none_or(|held| self.is_in_doubt(held.rests_on))
    }

    fn is_in_doubt(&self, Eras(told, clock): Eras) -> bool {
        self.is_doubted(told) || self.is_clock_doubted(clock)
    }

    pub(crate) fn is_doubted(&self, era: u8) -> bool {
        self.doubted & (1 << era) != 0
    }

    pub(crate) fn is_clock_doubted(&self, era: u8) -> bool {
        self.doubted_clocks & (1 << era) != 0
    }

    /// The server executes a call; the reply is in transit.
    pub(crate) fn execute(&mut self, place: usize) -> Answer {
        let call = self.calls.remove(place);
        let answer = self.run(&call);
        if call.about != About::Nobody {
            self.replies.push(Reply { call, answer: answer.clone(), era: self.era });
        }
        answer
    }

    pub(crate) fn run(&mut self, call: &Call) -> Answer {
        let now_us = self.server_now() * 1_000;
        let lock = Rc::make_mut(&mut self.lock);
        let before = lock.snapshot().token;
        let held = lock.shares().cloned();
        let (answer, effects) = lock.apply(now_us, &call.op, &self.rules, &*self.ears).unwrap();
        let minted = lock.snapshot().token != before;
        let changes =
            held.is_some_and(|held| changes_another(&call.op, &held, lock, now_us / 1_000));
        if let (Op::Acquire(a), Body::Granted { token, .. }) = (&call.op, &answer.body)
            // After a failover an older hold may be current again.
            && (minted || self.doubted == 0)
        {
            self.note_grant(*token, &a.owner);
        }
        if let Some(turns) = &mut self.turns
            && let Err(what) = turns.note(self.lock.snapshot(), minted)
        {
            self.find_wrong(what);
        }
        if changes {
            self.find_wrong(format!("another hold was changed by {:?}", call.op));
        }
        for effect in effects {
            self.publish(effect);
        }
        answer
    }

    /// The server executes a call, and a copy of it is still under way.
    pub(crate) fn execute_copy(&mut self, place: usize) {
        self.calls.push(Call { about: About::Nobody, ..self.calls[place].clone() });
        self.execute(place);
    }

    fn publish(&mut self, effect: Effect) {
        if let Payload::Grant { grant, .. } = &effect.payload
            && self.lock.shares().is_none()
        {
            let holder = self.lock.snapshot().hold.keys().next().cloned();
            match holder {
                Some(holder) => self.note_grant(grant.token, &holder),
                None => self.find_wrong("a grant went out and nobody holds the lock".to_owned()),
            }
        }
        match effect.channel {
            Channel::Inbox(id) => {
                let to = self.clients.iter().position(|c| c.id == id);
                let payload = effect.payload;
                let era = self.era;
                self.messages.extend(to.map(|to| Message { to, payload, era }));
            }
            Channel::Waiter(owner) if owner == self.java.id && self.java_listens() => {
                self.java.told = self.java.told.saturating_add(1);
            }
            Channel::Waiter(_) | Channel::Base | Channel::Latch | Channel::Leader => {}
        }
    }

    fn note_grant(&mut self, token: Token, owner: &OwnerId) {
        if let Some((newest, of)) = &self.newest
            && (token < *newest || (token == *newest && of != owner))
        {
            self.find_wrong(format!("token {token} for {owner} after {newest} for {of}"));
        }
        self.newest = Some((token, owner.clone()));
    }

    fn find_wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A client gets a reply.
    pub(crate) fn hear(&mut self, place: usize) {
        let Reply { call, answer, era } = self.replies.remove(place);
        let client = &mut self.clients[call.from];
        if client.alive {
            client.hearing = era;
            self.input(call.from, |client, now| client.on_reply(&call, &answer, now));
            if let Some(turns) = &mut self.turns {
                turns.heard(&self.clients[call.from]);
            }
        }
    }

    /// A client reads a message.
    pub(crate) fn read(&mut self, place: usize) {
        let message = self.messages.remove(place);
        self.read_copy_of(&message);
    }

    pub(crate) fn read_copy_of(&mut self, message: &Message) {
        let client = &mut self.clients[message.to];
        if client.alive {
            client.hearing = message.era;
            self.input(message.to, |client, now| client.on_message(&message.payload, now));
        }
    }

    fn clocks(&self) -> Clocks {
        let server = self.server_now();
        Clocks { server, caller: i64::try_from(server).unwrap() + self.java.ahead }
    }

    fn change_keys<T>(&mut self, change: impl FnOnce(&mut fairlock_core::Snapshot) -> T) -> T {
        let mut keys = self.lock.snapshot().clone();
        let result = change(&mut keys);
        self.lock = Rc::new(LockState::from_snapshot(keys));
        result
    }

    /// The Java thread asks for the lock: for the first time, when woken, or by polling.
    pub(crate) fn java_acquires(&mut self) -> java::Reply {
        let (clocks, j) = (self.clocks(), self.java.clone());
        let reply = self.change_keys(|k| java::acquire(k, clocks, &j.id, j.wait, j.lease));
        self.java.holds = reply == java::Reply::Acquired;
        self.java.wants = !self.java.holds;
        self.java.told = 0;
        if self.java.holds {
            self.subscribe_java(false);
        }
        reply
    }

    pub(crate) fn java_unlocks(&mut self) -> java::Unlocked {
        let (clocks, j) = (self.clocks(), self.java.clone());
        let unlocked = self.change_keys(|k| java::unlock(k, clocks, &j.id, j.lease));
        self.java.holds = false;
        let told =
            |client: &Shared| client.listening.is_some() && client.listening == unlocked.told;
        if let Some(to) = self.clients.iter().position(told) {
            self.messages.push(Message { to, payload: Payload::Zero, era: self.era });
        }
        unlocked
    }

    pub(crate) fn java_leaves(&mut self) {
        let (clocks, j) = (self.clocks(), self.java.clone());
        self.change_keys(|k| java::leave(k, clocks, &j.id, j.wait));
        self.java.wants = false;
        self.java.told = 0;
        self.subscribe_java(false);
    }

    /// What must hold in every state, whatever happened.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        if let Some(shares) = self.lock.shares() {
            return self.check_shares(shares);
        }
        let k = self.lock.snapshot();
        let held = k.hold_expires.is_some_and(|at| self.server_now() <= at);
        let mut guards = 0;
        for client in &self.clients {
            let Some(token) = client.guard(self.now) else { continue };
            if self.doubts(client) {
                continue;
            }
            guards += 1;
            let owner = client.guarding().map(|held| &held.owner);
            let holder = k.hold.keys().next().filter(|_| held);
            if holder != owner || k.token != Some(token.get()) {
                return Err(format!("client {} has a guard but not the lock", client.place + 1));
            }
        }
        if guards > 1 {
            return Err("two guards are valid at once".to_owned());
        }
        if k.hold.len() > 1 {
            return Err("two holders".to_owned());
        }
        if k.hold.get(&self.java.id).is_some_and(|count| *count != 1) {
            return Err("the Java thread was counted twice".to_owned());
        }
        if self.is_quiet() { self.check_quiet(held) } else { Ok(()) }
    }

    /// Each valid guard stands for a share that the lock knows. These fit together: the core checks that.
    fn check_shares(&self, shares: &Shares) -> Result<(), String> {
        let now = self.server_now();
        for client in &self.clients {
            let Some(token) = client.guard(self.now).filter(|_| !self.doubts(client)) else {
                continue;
            };
            let Some(held) = client.guarding() else { continue };
            let known = shares.holds().get(&held.owner);
            let known = known.filter(|hold| hold.token == token && now <= hold.ends_ms);
            // While a writer's hold becomes a reader's, its client is the first to know.
            let writes = client.habits.share == Some(Share::Whole) && !held.hold.reads();
            if known.is_none_or(|hold| writes && hold.share != Share::Whole) {
                return Err(format!("client {} has a guard but no share", client.place + 1));
            }
        }
        if !self.is_quiet() {
            return Ok(());
        }
        let k = self.lock.snapshot();
        let holds = shares.holds().iter().filter(|(_, hold)| now <= hold.ends_ms);
        let holds = holds.map(|(owner, hold)| (owner, hold.request));
        let waits = k.waiters.iter().map(|(owner, waiter)| (owner, waiter.request));
        for (owner, request) in holds.chain(waits) {
            let mut living = self.clients.iter().filter(|c| Some(c.id) == owner.client());
            if living.any(|client| client.alive && !client.wants(owner, Some(request))) {
                return Err(format!("left behind: {owner} {request:?}"));
            }
        }
        Ok(())
    }

    /// Whether nothing is in transit and no client owes anything.
    fn is_quiet(&self) -> bool {
        self.calls.is_empty()
            && self.replies.is_empty()
            && self.clients.iter().all(|client| !client.alive || client.is_quiet())
    }

    /// Nothing is left behind: the lock and the queue belong to attempts that are still under way.
    fn check_quiet(&self, held: bool) -> Result<(), String> {
        let k = self.lock.snapshot();
        let request_held = k.record.grant.filter(|(token, _)| k.token == Some(*token));
        // A guard that rests on a lost grant does not take the same grant again, so the claim that
        // comes with it runs out: after a death's time at most.
        let claim = self.server_now() + self.rules.dead_ms;
        let runs_out = self.doubted != 0 && k.hold_expires.is_some_and(|at| at <= claim);
        let holder = k
            .hold
            .keys()
            .next()
            .filter(|_| held && !runs_out)
            .map(|o| (o, request_held.map(|g| g.1)));
        // Without an order number, which was lost, it is removed at its turn.
        let known = k.waiters.iter().filter(|(owner, _)| k.order.contains_key(*owner));
        let queued = known.map(|(owner, waiter)| (owner, Some(waiter.request)));
        for (owner, request) in holder.into_iter().chain(queued) {
            let mut living = self.clients.iter().filter(|c| Some(c.id) == owner.client());
            let Some(client) = living.find(|c| c.alive) else { continue };
            let wanted = client.wants(owner, request);
            if !wanted {
                return Err(format!("left behind: {owner} {request:?}"));
            }
        }
        Ok(())
    }

    /// Executes, delivers and reads until nothing is in transit.
    pub(crate) fn settle(&mut self) {
        for place in 0..self.clients.len() {
            self.catch_up(place);
        }
        for round in 0.. {
            assert!(round < 10_000, "it never becomes quiet: {:#?}", self.clients);
            if self.calls.is_empty() && self.replies.is_empty() && self.messages.is_empty() {
                break;
            }
            if !self.calls.is_empty() {
                self.execute(0);
            } else if !self.replies.is_empty() {
                self.hear(0);
            } else {
                self.read(0);
            }
            for place in 0..self.clients.len() {
                self.catch_up(place);
            }
        }
    }

    /// Executes and answers what is in transit; messages stay.
    pub(crate) fn hear_all(&mut self) {
        while !(self.calls.is_empty() && self.replies.is_empty()) {
            if self.calls.is_empty() { self.hear(0) } else { drop(self.execute(0)) }
        }
    }

    /// Everything in transit is lost, and the clients notice.
    pub(crate) fn lose_all(&mut self) {
        self.calls.clear();
        self.replies.clear();
        self.messages.clear();
        for place in 0..self.clients.len() {
            for about in self.clients[place].waits.clone() {
                self.input(place, |client, now| client.fail(now, about, true));
            }
        }
    }

    /// No more faults; every live client listens again.
    pub(crate) fn end_faults(&mut self, lose: bool) {
        for place in 0..self.clients.len() {
            if self.clients[place].alive {
                self.subscribe(place, true);
            }
        }
        self.fail_over();
        if lose {
            self.lose_all();
        }
        for place in 0..self.clients.len() {
            if self.clients[place].alive && !self.clients[place].connected {
                self.connect(place);
            }
            self.catch_up(place);
        }
    }

    /// A slow client carries out what it has to do.
    fn catch_up(&mut self, place: usize) {
        while self.clients[place].has_todo(self.now) {
            self.input(place, Client::carry_out);
        }
    }

    /// No live client waits, holds or owes anything.
    pub(crate) fn is_served(&self) -> bool {
        let done = |c: &Client| c.attempts.is_empty() && c.held.is_empty() && c.debts.is_empty();
        self.clients.iter().all(|client| !client.alive || done(client))
    }

    /// Everybody is served, and time passes: K1.
    pub(crate) fn nothing_remains(mut self) -> Result<(), String> {
        self.check()?;
        for _ in 0..4 {
            self.now += TICK;
            self.calm_round(false);
            self.check()?;
        }
        self.clients.iter().filter(|client| client.alive).try_for_each(|c| c.leftovers())
    }

    /// One round without faults: every client that can act does, and guards are released at once.
    pub(crate) fn calm_round(&mut self, last_first: bool) {
        for turn in 0..self.clients.len() {
            let place = if last_first { self.clients.len() - 1 - turn } else { turn };
            if self.clients[place].alive {
                self.calm_turn(place);
            }
        }
        if self.java.alive && self.java.holds {
            self.java_unlocks();
        } else if self.java.alive && self.java.wants {
            self.java_acquires();
        }
    }

    fn calm_turn(&mut self, place: usize) {
        self.catch_up(place);
        self.input(place, Client::owe_again);
        self.input(place, Client::late);
        self.input(place, Client::rested);
        self.settle();
        if self.clients[place].must_watch(self.now) {
            self.input(place, Client::watch);
        }
        if self.clients[place].must_beat(self.now) {
            self.input(place, Client::beat);
        }
        self.settle();
        if self.clients[place].guarding().is_some() {
            self.input(place, Client::release);
        }
        self.settle();
    }
}
