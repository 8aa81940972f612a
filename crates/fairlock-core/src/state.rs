//! The facts about one lock, and the bookkeeping that keeps them consistent.

use crate::holds::Shares;
use crate::id::{ClientId, OwnerId};
use crate::latch::Latch;
use crate::leader::Leader;
use crate::op::{Effect, Mode, Op};
use crate::rules::{Rules, TOKEN_LIMIT, Token, World, left_ms};
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;

/// One lock: holder, queue, registry of waiters and clients, token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The facts, one field for each key that the Redis store keeps.
    pub(crate) keys: Snapshot,
    /// `keys.order` inverted: finds the first of ours without a walk over the queue.
    pub(crate) by_order: BTreeSet<(u64, OwnerId)>,
    /// The holders, if several may hold the lock. The waiters are in `keys` and `by_order`, without a queue and scores.
    pub(crate) shares: Option<Box<Shares>>,
    /// The record of a latch of this name, besides its count.
    pub(crate) latch: Option<Box<Latch>>,
    /// The holder's announcement.
    pub(crate) leader: Option<Box<Leader>>,
}

/// The inputs of one operation, and what it collects while it runs.
pub(crate) struct Cx<'a> {
    pub(crate) now_us: u64,
    pub(crate) now_ms: u64,
    pub(crate) op: &'a Op,
    pub(crate) rules: &'a Rules,
    pub(crate) world: &'a dyn World,
    /// The owner whose own call this is: a grant to it goes into the reply, not into its inbox.
    pub(crate) caller: Option<OwnerId>,
    /// The client whose own call this is: it learns of a grant from the reply, with or without an
    /// inbox.
    pub(crate) calling: Option<ClientId>,
    /// This call freed the lock: a Java head must be notified at once.
    pub(crate) freed: bool,
    pub(crate) more: bool,
    /// Waiters of ours found dead and removed.
    pub(crate) removed: u32,
    pub(crate) effects: Vec<Effect>,
}

impl<'a> Cx<'a> {
    #[inline]
    pub(crate) fn new(now_us: u64, op: &'a Op, rules: &'a Rules, world: &'a dyn World) -> Self {
        Self {
            now_us,
            now_ms: now_us / 1_000,
            op,
            rules,
            world,
            caller: None,
            calling: None,
            freed: false,
            more: false,
            removed: 0,
            effects: Vec::new(),
        }
    }

    /// Whether the caller only tries: then a client that was silent for too long is dead, even if
    /// no client was heard from.
    pub(crate) fn is_trying(&self) -> bool {
        match self.op {
            Op::Acquire(acquire) => acquire.mode == Mode::Try,
            Op::AcquireShare(ask) => ask.acquire.mode == Mode::Try,
            _ => false,
        }
    }

    /// Whether the list's TTL counts as evidence of when a waiter was last heard from. Not for
    /// callers that wait: they can afford to find out, and were perhaps cut off with the other
    /// waiters.
    pub(crate) fn is_by_ttl(&self) -> bool {
        self.is_trying() || matches!(self.op, Op::Nudge)
    }
}

impl LockState {
    /// Creates a lock with these facts, consistent or not.
    pub fn from_snapshot(keys: Snapshot) -> Self {
        let by_order = keys.order.iter().map(|(owner, order)| (*order, owner.clone())).collect();
        Self { keys, by_order, shares: None, latch: None, leader: None }
    }

    /// Creates a lock with these facts; if there are `shares`, several may hold it.
    pub fn restored(keys: Snapshot, shares: Option<Shares>) -> Self {
        Self { shares: shares.map(Box::new), ..Self::from_snapshot(keys) }
    }

    /// Returns the waiters, in order.
    pub fn line(&self) -> impl Iterator<Item = &OwnerId> {
        let for_shares = self.shares.iter().flat_map(|_| &self.by_order).map(|(_, owner)| owner);
        self.keys.queue.iter().chain(for_shares)
    }

    /// The holders and the shares that the waiters want, if several may hold the lock.
    pub fn shares(&self) -> Option<&Shares> {
        self.shares.as_deref()
    }

    /// Returns when an operation should look at the lock if none comes by itself, in milliseconds since 1970:
    /// [`next_deadline_ms`](Self::next_deadline_ms) as long as somebody waits.
    pub fn due_ms(&self, now_ms: u64, rules: &Rules) -> Option<u64> {
        if self.shares.is_some() {
            return self.shares_deadline_ms(now_ms, rules.beat_ms);
        }
        (!self.keys.queue.is_empty()).then(|| self.next_deadline_ms(now_ms, rules)).flatten()
    }

    /// The facts.
    pub fn snapshot(&self) -> &Snapshot {
        &self.keys
    }

    /// Returns whether nothing but the token is left: such a lock can be forgotten once its token
    /// may be forgotten.
    pub fn is_idle(&self) -> bool {
        let k = &self.keys;
        k.hold.is_empty()
            && k.value.is_none()
            && k.queue.is_empty()
            && k.buried.is_empty()
            && k.order.is_empty()
            && self.latch.is_none()
            && self.shares.as_ref().is_none_or(|shares| shares.holds().is_empty())
    }

    /// Returns when something may change without a call, in milliseconds since 1970: the end of the
    /// lease, or of a pause before the next grant. It is later than `now_ms`, and only operations
    /// change it.
    pub fn next_deadline_ms(&self, now_ms: u64, rules: &Rules) -> Option<u64> {
        let k = &self.keys;
        if !k.hold.is_empty() {
            return k.hold_expires.map(|at| at + 1);
        }
        let head = k.queue.front()?;
        // An end further ahead than it is ever set means that the clock was set back.
        let gathering = |at: &u64| *at > now_ms && *at <= now_ms + rules.beat_ms;
        if let Some(gather) = k.record.gather.filter(gathering) {
            return Some(gather);
        }
        let ours = head.is_ours();
        let watch = k.record.watch.as_ref();
        let watch = watch.filter(|watch| watch.id == *head || (ours && watch.id.is_ours()))?;
        if watch.since > now_ms {
            return None;
        }
        let patience =
            if head.is_ours() { rules.dead_ms } else { crate::rules::JAVA_HEAD_PATIENCE_MS };
        Some(watch.since + patience).filter(|at| *at > now_ms)
    }

    /// Drops everything that has outlived its TTL, as the server does before it runs a script.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        let over = |at: Option<u64>| at.is_some_and(|at| now_ms > at);
        let k = &mut self.keys;
        if over(k.hold_expires) {
            k.hold.clear();
            k.hold_expires = None;
        }
        if over(k.value_expires) {
            k.value = None;
            k.value_expires = None;
        }
        if over(k.token_expires) {
            k.token = None;
            k.token_expires = None;
        }
        if over(k.queue_expires) {
            k.queue.clear();
        }
        if over(k.scores_expires) {
            k.scores.clear();
        }
        if over(k.order_expires) {
            k.order.clear();
            self.by_order.clear();
        }
        if over(k.state_expires) {
            k.waiters.clear();
            k.record = Default::default();
            // The records say what they want.
            if let Some(shares) = &mut self.shares {
                shares.wants.clear();
            }
        }
        if over(k.beats_expires) {
            k.beats.clear();
        }
        if !k.buried.is_empty() {
            k.buried.retain(|_, until| now_ms <= *until);
        }
        self.expire_latch(now_ms);
        self.settle();
    }

    /// Removes the TTL of keys without content, because such keys do not exist.
    pub(crate) fn settle(&mut self) {
        let k = &mut self.keys;
        if k.hold.is_empty() {
            k.hold_expires = None;
        }
        if k.queue.is_empty() {
            k.queue_expires = None;
        }
        if k.scores.is_empty() {
            k.scores_expires = None;
        }
        if k.order.is_empty() {
            k.order_expires = None;
        }
        if !k.has_state() {
            k.state_expires = None;
        }
        if k.beats.is_empty() {
            k.beats_expires = None;
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.keys.hold.is_empty()
    }

    pub(crate) fn holder(&self) -> Option<&OwnerId> {
        self.keys.hold.first_key_value().map(|(owner, _)| owner)
    }

    /// The holder as answers name it.
    pub(crate) fn named_holder(&self) -> Option<OwnerId> {
        self.holder().map(OwnerId::cut)
    }

    /// Remaining TTL of the hold, in milliseconds.
    pub(crate) fn hold_ttl(&self, now_ms: u64) -> Option<u64> {
        if self.is_free() {
            return None;
        }
        self.keys.hold_expires.map(|at| left_ms(at, now_ms))
    }

    /// Whether `owner` holds the lock under `token`. A token key that is missing or was set back
    /// does not end a hold; a newer token means a newer hold.
    pub(crate) fn holds(&self, owner: &OwnerId, token: Token) -> bool {
        self.keys.hold.contains_key(owner) && self.keys.token.is_none_or(|last| last <= token.get())
    }

    /// How many members are not on record: usually foreign ones.
    pub(crate) fn foreign_waiting(&self) -> u64 {
        (self.keys.queue.len() as u64).saturating_sub(self.keys.order.len() as u64)
    }

    /// Whether a foreign member is in the queue. An entry of ours that lost its record is not
    /// foreign, though [`Self::foreign_waiting`] counts it: anything it leaves behind must expire
    /// by itself.
    pub(crate) fn has_foreign(&self) -> bool {
        let k = &self.keys;
        k.queue.len() > k.order.len()
            && (k.queue.len() > crate::rules::WALKED_MAX
                || k.queue.iter().any(|member| !member.is_ours()))
    }

    pub(crate) fn foreign_near(&self) -> bool {
        self.foreign_waiting() > 0 || self.holder().is_some_and(|holder| !holder.is_ours())
    }

    /// Whether another token can be minted at this time.
    pub(crate) fn can_mint(&self, now_us: u64) -> bool {
        self.keys.token.unwrap_or(0) < TOKEN_LIMIT - 1 && now_us < TOKEN_LIMIT
    }

    /// The next token: larger than the last one, and at least the time, so that the series rises
    /// even if the key was lost. `foreign`: clients other than ours wait in the queue.
    pub(crate) fn mint(&mut self, foreign: bool, cx: &Cx<'_>) -> Token {
        let value = (self.keys.token.unwrap_or(0) + 1).max(cx.now_us);
        self.write_token(value, foreign, cx);
        Token::new(value).expect("can_mint was asked before")
    }

    /// The next token at a hand-over. The series keeps its TTL, or loses it if clients other than
    /// ours have a score.
    pub(crate) fn mint_in_queue(&mut self, cx: &Cx<'_>) -> Token {
        let before = self.keys.token.map(|_| self.keys.token_expires);
        let foreign = self.keys.scores.len() > self.keys.order.len() && self.has_foreign();
        let token = self.mint(foreign, cx);
        if let Some(expires) = before
            && !foreign
            && !cx.rules.java_fleet
        {
            self.keys.token_expires = expires;
        }
        token
    }

    /// Raises the last token to one that the caller knows, if the key has lost it or has a lower
    /// one.
    pub(crate) fn raise_token(&mut self, floor: Token, foreign: bool, cx: &Cx<'_>) {
        if self.is_behind(floor) {
            self.write_token(floor.get(), foreign, cx);
        }
    }

    /// Whether the last token is lost, or lower than this one.
    pub(crate) fn is_behind(&self, token: Token) -> bool {
        self.keys.token.is_none_or(|last| last < token.get())
    }

    /// A series that a Java client started, or may continue, gets no TTL from us.
    fn write_token(&mut self, value: u64, foreign: bool, cx: &Cx<'_>) {
        let foreign_series = self.keys.token.is_some() && self.keys.token_expires.is_none();
        let persistent = foreign_series || foreign || cx.rules.java_fleet;
        self.keys.token = Some(value);
        // Counted from when the clock has passed the token: from then on time alone gives a larger
        // one.
        let passed = cx.now_ms.max(value / 1_000);
        self.keys.token_expires = (!persistent).then_some(passed + crate::rules::TOKEN_TTL_MS);
    }

    /// Keeps the series alive during a hold that is renewed for days: a listing finds locks by
    /// their tokens.
    pub(crate) fn keep_token(&mut self, cx: &Cx<'_>) {
        let Some(token) = self.keys.token else { return };
        let half = crate::rules::TOKEN_TTL_MS / 2;
        let old = cx.now_ms * 1_000 > token + half * 1_000;
        if old && self.keys.token_expires.is_some_and(|at| at < cx.now_ms + half) {
            self.keys.token_expires = Some(cx.now_ms + crate::rules::TOKEN_TTL_MS);
        }
    }

    /// Renews the TTL of our own keys.
    pub(crate) fn keep_registry(&mut self, cx: &Cx<'_>) {
        let until = Some(cx.now_ms + cx.rules.registry_ms());
        let k = &mut self.keys;
        k.order_expires = until;
        k.beats_expires = until;
        self.keep_state(cx);
        self.settle();
    }

    /// Renews the TTL of waiters and record. It is not shortened while the lock is held: the number
    /// of the hold's last change, and the request that got it, must live as long as the hold.
    pub(crate) fn keep_state(&mut self, cx: &Cx<'_>) {
        let until = cx.now_ms + cx.rules.registry_ms();
        let longer = self.keys.state_expires.filter(|at| !self.is_free() && *at > until);
        self.keys.state_expires = Some(longer.unwrap_or(until));
    }

    /// The shared queue keys live for a day while only ours use them, and for ever beside Java.
    pub(crate) fn keep_queue(&mut self, cx: &Cx<'_>) {
        let persistent = cx.rules.java_fleet || self.has_foreign();
        let until = if persistent { None } else { Some(cx.now_ms + crate::rules::QUEUE_TTL_MS) };
        self.keys.queue_expires = until;
        self.keys.scores_expires = until;
        self.settle();
    }

    /// Removes our own keys once nobody holds or waits. Not right after a waiter was removed as
    /// dead: it may return, and that must not be mistaken for a return after a loss of state. And
    /// not while the last order number is ahead of the clock, which would then give smaller
    /// numbers.
    pub(crate) fn tidy(&mut self, now_us: u64) {
        let k = &self.keys;
        let over = k.record.removed.is_none() && k.record.given.is_none_or(|last| last <= now_us);
        if self.is_free() && self.keys.queue.is_empty() && over {
            // Mostly nobody has waited, and there is nothing to clear.
            let waited = !(k.order.is_empty() && k.waiters.is_empty() && k.beats.is_empty());
            if waited || !self.by_order.is_empty() {
                self.keys.order.clear();
                self.by_order.clear();
                self.keys.waiters.clear();
                self.keys.beats.clear();
            }
            self.keys.record = Default::default();
        }
        self.settle();
    }

    pub(crate) fn drop_order(&mut self, owner: &OwnerId) {
        if let Some(order) = self.keys.order.remove(owner) {
            self.by_order.remove(&(order, owner.clone()));
        }
        self.keys.waiters.remove(owner);
        // A key that is empty now is gone, and has no TTL if it is created again in the same call.
        self.settle();
    }

    pub(crate) fn beat_of(&self, client: ClientId) -> Option<u64> {
        self.keys.beats.get(&client).copied()
    }
}
