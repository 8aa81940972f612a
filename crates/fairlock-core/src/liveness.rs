//! Liveness: beats, inboxes, proof that a client is gone, and the amnesty after a silence.

use crate::id::{ClientId, OwnerId, RequestId};
use crate::queue::to_score;
use crate::rules::{Token, World};
use crate::state::{Cx, LockState};
use crate::value::SimpleValue;

/// The decision about a waiter of ours at its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is alive: it gets the lock.
    Grant,
    /// It is dead: it is removed.
    Remove,
    /// Not clear yet: nobody gets the lock now.
    Wait,
}

/// What the age of a client's last beat shows.
enum Age {
    Alive,
    Dead,
    /// It is old, but an amnesty runs.
    Spared {
        until: u64,
    },
}

/// Whether a hold is over because its client is gone. `request`: that of a share's hold.
pub(crate) fn is_over(
    owner: &OwnerId,
    token: Option<Token>,
    request: Option<RequestId>,
    world: &dyn World,
) -> bool {
    let is_left = |client| token.is_some_and(|token| world.is_left(client, token, request));
    owner.client().is_some_and(|client| world.gone(client) && !is_left(client))
}

impl LockState {
    /// Ends a hold whose client is known to be dead, as if its lease had ended.
    #[inline]
    pub(crate) fn end_gone(&mut self, world: &dyn World) {
        if self.is_hold_over(world) {
            self.keys.hold.clear();
            self.keys.hold_expires = None;
        }
        if let Some(SimpleValue::Ours { owner, token, .. }) = &self.keys.value
            && is_over(owner, Some(*token), None, world)
        {
            self.keys.value = None;
            self.keys.value_expires = None;
        }
    }

    /// Returns whether the client that holds the lock is known to be dead, so that its hold is
    /// over.
    pub(crate) fn is_hold_over(&self, world: &dyn World) -> bool {
        let token = self.keys.token.and_then(Token::new);
        self.holder().is_some_and(|owner| is_over(owner, token, None, world))
    }

    /// Judges a waiter of ours whose turn it is.
    #[inline]
    pub(crate) fn judge(&mut self, owner: &OwnerId, cx: &Cx<'_>) -> Verdict {
        let Some(client) = owner.client() else { return Verdict::Wait };
        if cx.world.gone(client) {
            return Verdict::Remove;
        }
        let on_record = self.keys.order.contains_key(owner);
        let Some(waiter) = self.keys.waiters.get(owner).filter(|_| on_record) else {
            return self.judge_orphan(owner, client, cx);
        };
        // An end further ahead than it is ever set means that the clock was set back.
        let gathering = |until| cx.now_ms < until && until <= cx.now_ms + cx.rules.beat_ms;
        if self.keys.record.gather.is_some_and(gathering) {
            return Verdict::Wait;
        }
        // The client's own call is proof enough, and its reply needs no inbox.
        let reachable = waiter.sure || cx.calling == Some(client);
        if !reachable && cx.rules.presence && !cx.world.inbox(client) {
            return Verdict::Remove;
        }
        let dead = cx.rules.ages && self.dead_by_age(client, cx);
        if dead { Verdict::Remove } else { Verdict::Grant }
    }

    /// Judges an entry of ours whose record was lost or has expired. It is judged by the remaining
    /// facts, within this call: for a client that only tries now and then, each time may look like
    /// the first. A live waiter notices the loss within a heartbeat and enters again; it gets D for
    /// that.
    #[cold]
    fn judge_orphan(&mut self, owner: &OwnerId, client: ClientId, cx: &Cx<'_>) -> Verdict {
        let calling = cx.calling == Some(client);
        let sure = self.keys.waiters.get(owner).is_some_and(|waiter| waiter.sure);
        if cx.rules.presence && !calling && !sure && !cx.world.inbox(client) {
            return Verdict::Remove;
        }
        // All of them lost their records together, so the D of the first one counts for all the
        // others, however many there are. A watch from another loss, or from a clock that was set
        // back, counts for none.
        let known = self.keys.record.watch.as_ref().filter(|watch| {
            watch.id.is_ours()
                && watch.since <= cx.now_ms
                && cx.now_ms < watch.since + cx.rules.dead_ms + crate::rules::JAVA_PASSED_MS
        });
        let since = known.map(|watch| watch.since);
        if since.is_some_and(|since| cx.now_ms >= since + cx.rules.dead_ms)
            || !(calling || self.may_live(owner, client, cx))
        {
            return Verdict::Remove;
        }
        if since.is_none() {
            self.start_watch(owner, 0, cx);
        }
        Verdict::Wait
    }

    /// Whether a client without a record was heard from recently, judging by its beats, the list's
    /// TTL and its own score. Heartbeats keep that score ahead; without a score the client would
    /// return anyway.
    fn may_live(&self, owner: &OwnerId, client: ClientId, cx: &Cx<'_>) -> bool {
        let silence_ms = cx.rules.silence_ms();
        let beat = self.beat_of(client).filter(|beat| *beat <= cx.now_ms);
        if beat.is_some_and(|beat| cx.now_ms - beat <= silence_ms) {
            return true;
        }
        // Callers that wait need no weaker evidence: the inbox exists, and D is short.
        if cx.rules.presence && !cx.is_by_ttl() {
            return true;
        }
        // An entry renews the list's TTL unless its client sent a beat less than half a period ago.
        let grace_ms = silence_ms + cx.rules.beat_ms;
        if cx.is_by_ttl() && self.heard_ms().is_some_and(|heard| cx.now_ms > heard + grace_ms) {
            return false;
        }
        let until = |score: i64| {
            score.saturating_add(to_score(silence_ms)).saturating_sub(to_score(cx.rules.lead_ms()))
        };
        self.keys.scores.get(owner).is_some_and(|score| to_score(cx.now_ms) <= until(*score))
    }

    /// When any waiter was last heard from. Heartbeats and entries renew the list's TTL as long as
    /// only ours are in the list.
    fn heard_ms(&self) -> Option<u64> {
        self.keys.queue_expires.map(|at| at.saturating_sub(crate::rules::QUEUE_TTL_MS))
    }

    /// Returns whether a waiter that cannot be served yet, in front of others that could be, is dead by both its age
    /// and its inbox. Such a waiter is passed over for good, so one sign alone is not enough.
    pub(crate) fn is_surely_dead(&mut self, owner: &OwnerId, cx: &Cx<'_>) -> bool {
        let Some(client) = owner.client() else { return false };
        if cx.world.gone(client) {
            return true;
        }
        let sure = self.keys.waiters.get(owner).is_some_and(|waiter| waiter.sure);
        let hears = cx.rules.presence && !sure && cx.world.inbox(client);
        if hears || cx.calling == Some(client) || !cx.rules.ages {
            return false;
        }
        matches!(self.age(client, cx), Age::Dead)
    }

    fn dead_by_age(&mut self, client: ClientId, cx: &Cx<'_>) -> bool {
        match self.age(client, cx) {
            Age::Alive => false,
            Age::Dead => true,
            // This waiter gets the lock, and the amnesty ends a heartbeat later. By then the others
            // that are alive have been heard from: however many are dead, only one turn is lost.
            Age::Spared { until } => {
                self.keys.record.amnesty = Some(until.min(cx.now_ms + cx.rules.beat_ms));
                false
            }
        }
    }

    /// What the age of a client's last beat shows.
    #[inline]
    fn age(&mut self, client: ClientId, cx: &Cx<'_>) -> Age {
        let Some(mut beat) = self.beat_of(client) else { return Age::Dead };
        if beat > cx.now_ms {
            // The clock was set back: the age counts from now.
            beat = cx.now_ms;
            self.keys.beats.insert(client, beat);
        }
        if cx.now_ms - beat <= cx.rules.dead_ms {
            return Age::Alive;
        }
        if !cx.is_trying() {
            self.notice_silence(cx);
        }
        // An end further ahead than it is ever set means that the clock was set back.
        let runs = |until: &u64| cx.now_ms < *until && *until <= cx.now_ms + cx.rules.dead_ms;
        let Some(until) = self.keys.record.amnesty.filter(runs) else { return Age::Dead };
        // The amnesty covers clients that were alive when the silence began, not those silent
        // before.
        if self.keys.record.silence.is_some_and(|last| beat + cx.rules.dead_ms < last) {
            return Age::Dead;
        }
        Age::Spared { until }
    }

    /// If no client was heard from for two heartbeats, the server slept or its clock jumped: for D,
    /// age then means nothing. Happens once for each silence.
    pub(crate) fn notice_silence(&mut self, cx: &Cx<'_>) {
        let Some(last) = self.keys.beats.values().copied().max() else { return };
        let silent = cx.now_ms > last + 2 * cx.rules.beat_ms;
        if silent && self.keys.record.silence != Some(last) {
            self.keys.record.silence = Some(last);
            self.keys.record.amnesty = Some(cx.now_ms + cx.rules.dead_ms);
            self.keep_state(cx);
        }
    }

    /// Records a beat of `client`.
    pub(crate) fn note_beat(&mut self, client: ClientId, cx: &Cx<'_>) {
        self.notice_silence(cx);
        let oldest = cx.now_ms.saturating_sub(cx.rules.beats_kept_ms());
        self.keys.beats.retain(|_, beat| *beat >= oldest);
        self.keys.beats.insert(client, cx.now_ms);
    }

    /// Records that `client` sent an acquisition, which counts as a beat. If its last beat is
    /// fresh, nothing is written, so that the common path need not look at all beats. Returns
    /// whether it was fresh.
    #[inline]
    pub(crate) fn note_entry(&mut self, client: ClientId, cx: &Cx<'_>) -> bool {
        let fresh = self
            .beat_of(client)
            .is_some_and(|beat| beat <= cx.now_ms && cx.now_ms - beat < cx.rules.beat_ms / 2);
        if !fresh {
            self.note_beat(client, cx);
        }
        fresh
    }
}
