//! `next`: the hand-over, with which almost every fair operation ends. If the lock is free, the
//! first live waiter of ours becomes the holder at once; a Java head is notified, and the lock is
//! left free for it.

use crate::id::OwnerId;
use crate::liveness::Verdict;
use crate::op::{Channel, Effect, Grant, Payload};
use crate::queue::to_score;
use crate::rules::Token;
use crate::snapshot::Watch;
use crate::state::{Cx, LockState};

/// Whether a caller that does not wait may take the free lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Nobody before the caller could take the lock.
    Open,
    /// The lock is held, or belongs to a waiter.
    Closed,
}

impl LockState {
    pub(crate) fn next(&mut self, cx: &mut Cx<'_>) -> Door {
        for _ in 0..crate::rules::LOOKED_AT_MAX {
            if !self.is_free() {
                return Door::Closed;
            }
            let Some(head) = self.keys.queue.front().cloned() else { return Door::Open };
            let candidate = if head.is_ours() {
                head
            } else {
                match self.offer_to_foreign(&head, cx) {
                    Offer::Dropped => continue,
                    Offer::Waiting => return Door::Closed,
                    // Redisson cannot serve anybody behind this head, so the first of ours is next.
                    Offer::PassedOver => match self.by_order.first() {
                        Some((_, owner)) => owner.clone(),
                        None => return Door::Open,
                    },
                }
            };
            if self.keys.queue.front() != Some(&candidate)
                && !self.keys.scores.contains_key(&candidate)
            {
                // Java removed it from list and scores; it returns when it notices.
                self.drop_lost(&candidate, cx);
                continue;
            }
            match self.judge(&candidate, cx) {
                Verdict::Grant if !self.can_mint(cx.now_us) => return Door::Closed,
                Verdict::Grant => {
                    self.grant(&candidate, cx);
                    return Door::Closed;
                }
                Verdict::Remove => {
                    let on_record = self.is_on_record(&candidate);
                    self.unlist(&candidate);
                    self.drop_order(&candidate);
                    // Without a record, state was lost: a waiter that returns must be able to tell.
                    if on_record {
                        self.note_removed(cx);
                    }
                    cx.removed += 1;
                }
                Verdict::Wait => return Door::Closed,
            }
        }
        // The last entry looked at may have been the last of the queue.
        if self.keys.queue.is_empty() {
            return Door::Open;
        }
        cx.more = true;
        Door::Closed
    }

    fn offer_to_foreign(&mut self, head: &OwnerId, cx: &mut Cx<'_>) -> Offer {
        let score = match self.keys.scores.get(head).copied() {
            // Without a score Redisson never drops it, and it would block the lock for ever. This
            // may create the set, which must expire with the list.
            None => {
                let score = to_score(cx.now_ms + cx.rules.fair_wait_ms);
                self.keys.scores.insert(head.clone(), score);
                self.keep_queue(cx);
                score
            }
            Some(score) => score,
        };
        let watch = self.keys.record.watch.clone().filter(|watch| {
            watch.id == *head
                && watch.score == score
                && watch.since <= cx.now_ms
                && cx.now_ms
                    < watch.since
                        + crate::rules::JAVA_HEAD_PATIENCE_MS
                        + crate::rules::JAVA_PASSED_MS
        });
        // Redisson's own rule for stale heads. But a client whose clock is behind enters with a
        // stale score and listens: it is notified like any other, and gets its time to come.
        let is_stale = score <= to_score(cx.now_ms);
        if is_stale {
            let is_patient =
                |watch: &Watch| cx.now_ms < watch.since + crate::rules::JAVA_HEAD_PATIENCE_MS;
            if !watch.as_ref().is_none_or(is_patient) || !cx.world.listening(head) {
                self.unlist(head);
                return Offer::Dropped;
            }
        }
        let Some(mut watch) = watch else {
            self.start_watch(head, score, cx);
            cx.tell(Channel::Waiter(head.clone()));
            return Offer::Waiting;
        };
        if cx.world.listening(head) {
            if !is_stale {
                watch.since = cx.now_ms;
            }
            if cx.freed || cx.now_ms >= watch.pinged + crate::rules::JAVA_PING_MS {
                watch.pinged = cx.now_ms;
                cx.tell(Channel::Waiter(head.clone()));
            }
            self.set_watch(watch, cx);
            return Offer::Waiting;
        }
        if cx.now_ms < watch.since + crate::rules::JAVA_HEAD_PATIENCE_MS {
            return Offer::Waiting;
        }
        Offer::PassedOver
    }

    pub(crate) fn start_watch(&mut self, head: &OwnerId, score: i64, cx: &Cx<'_>) {
        let watch = Watch { id: head.clone(), score, since: cx.now_ms, pinged: cx.now_ms };
        self.set_watch(watch, cx);
    }

    fn set_watch(&mut self, watch: Watch, cx: &Cx<'_>) {
        self.keys.record.watch = Some(watch);
        self.keep_state(cx);
    }

    /// Makes a waiter of ours the holder. If this is its own call, it gets the whole lease.
    fn grant(&mut self, owner: &OwnerId, cx: &mut Cx<'_>) {
        let Some(client) = owner.client() else { return };
        let Some(waiter) = self.keys.waiters.get(owner).cloned() else { return };
        let own_call = cx.caller.as_ref() == Some(owner);
        let beat = self.beat_of(client).unwrap_or(0).min(cx.now_ms);
        let ttl_ms = if own_call { waiter.lease_ms } else { granted_ms(beat, waiter.lease_ms, cx) };
        let token = self.mint_in_queue(cx);
        self.take(owner, ttl_ms, cx);
        self.unlist(owner);
        // Before the waiter's record is removed: without content the state is gone, and its TTL
        // with it.
        self.keys.record.grant = Some((token.get(), waiter.request));
        self.drop_order(owner);
        let kept = ttl_ms + cx.rules.dead_ms;
        // The client's last beat keeps the state long enough for a short hold.
        if own_call || cx.now_ms - beat + kept > cx.rules.registry_ms() {
            self.keys.state_expires = Some(cx.now_ms + kept.max(cx.rules.registry_ms()));
        }
        if !own_call {
            let grant = Grant { request: waiter.request, token, ttl_ms };
            let payload = Payload::Grant { grant, at_ms: cx.now_ms };
            cx.effects.push(Effect { channel: Channel::Inbox(client), payload });
        }
        self.settle();
    }

    /// Writes the hold.
    pub(crate) fn take(&mut self, owner: &OwnerId, ttl_ms: u64, cx: &Cx<'_>) {
        self.keys.hold.insert(owner.clone(), 1);
        self.keys.hold_expires = Some(cx.now_ms + ttl_ms);
    }
}

/// How long a grant lasts that a waiter is notified of by message: only the time for which its last
/// beat vouches, so that a dead one costs no more than that.
#[inline]
pub(crate) fn granted_ms(beat: u64, lease_ms: u64, cx: &Cx<'_>) -> u64 {
    let alive_for = (beat + cx.rules.dead_ms).saturating_sub(cx.now_ms);
    alive_for.max(cx.rules.beat_ms).min(lease_ms)
}

enum Offer {
    /// It was stale and has left the queue.
    Dropped,
    /// Neither it nor any other foreign waiter behind it can take the lock.
    PassedOver,
    /// It was notified; the lock stays free for it.
    Waiting,
}

impl Cx<'_> {
    pub(crate) fn tell(&mut self, channel: Channel) {
        self.effects.push(Effect { channel, payload: Payload::Zero });
    }

    /// Notifies a holder of ours that its lock was taken away.
    pub(crate) fn tell_forced(&mut self, holder: Option<&OwnerId>, token: Option<Token>) {
        let Some((owner, token)) = holder.zip(token) else { return };
        let Some((client, number)) = owner.parts() else { return };
        let payload = Payload::Forced { number, token };
        self.effects.push(Effect { channel: Channel::Inbox(client), payload });
    }
}
