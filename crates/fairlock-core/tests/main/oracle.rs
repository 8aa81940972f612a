//! An observer of one lock: what it records, from replies and messages alone, and what it expects
//! of the next ones. It knows nothing of how the state machine works.

use crate::support::Ears;
use fairlock_core::{
    Acquire, Body, ClientId, Effect, Kind, LockState, Op, OwnerId, Payload, RequestId, Rules,
};
use std::collections::BTreeMap;

/// A waiter that was told that it is queued.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) order: u64,
    pub(crate) acquire: Acquire,
    /// It may have looked dead since then: it may be passed over and must return.
    pub(crate) shaky: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// Owner, and the latest end of its hold (milliseconds; `None`: no end is known).
    pub(crate) holder: Option<(OwnerId, Option<u64>)>,
    /// The last token.
    pub(crate) newest: u64,
    pub(crate) waiting: BTreeMap<OwnerId, Waits>,
    pub(crate) beats: BTreeMap<ClientId, u64>,
    /// Keys were lost, Java took part or time jumped: order is no longer promised.
    pub(crate) disturbed: bool,
    /// Keys were lost.
    pub(crate) torn: bool,
    /// The token key was deleted, and the clock is behind the last token.
    pub(crate) series_broken: bool,
    pub(crate) served: Vec<OwnerId>,
}

type Checked = Result<(), String>;

fn ensure(fine: bool, what: impl FnOnce() -> String) -> Checked {
    if fine { Ok(()) } else { Err(what()) }
}

impl Oracle {
    /// Before an operation at `now`: notes which waiters may look dead by now.
    pub(crate) fn time_is(&mut self, now: u64, ears: &Ears, rules: &Rules) {
        if self.holder.as_ref().is_some_and(|(_, until)| until.is_some_and(|at| now > at)) {
            self.holder = None;
        }
        for (owner, waits) in &mut self.waiting {
            let Some(client) = owner.client() else { continue };
            let beat = self.beats.get(&client).copied().unwrap_or(0);
            // A heartbeat of slack: the beat of a fresh entry need not be written.
            let old = now.abs_diff(beat) > rules.dead_ms - rules.beat_ms;
            waits.shaky |= old || ears.deaf.contains(&client);
        }
    }

    /// A waiter gives a new TTL to a hold whose TTL was removed; it is longer than any pause of a
    /// holder that renews.
    fn note_mended(&mut self, now: u64, op: &Op, lock: &LockState) -> Checked {
        let expires = lock.snapshot().hold_expires;
        if let (Some((holder, until @ None)), Some(at)) = (&mut self.holder, expires)
            && lock.snapshot().hold.contains_key(holder)
        {
            let by_another = match op {
                Op::Beat { .. } => true,
                Op::Acquire(a) => a.owner != *holder,
                _ => false,
            };
            ensure(!by_another || at >= now + fairlock_core::MENDED_HOLD_MS, || {
                format!("at {now} the endless hold of {holder} got an end at {at}")
            })?;
            *until = Some(at);
        }
        Ok(())
    }

    /// Compares a reply and its messages with what the oracle knows and with the resulting state.
    pub(crate) fn note(
        &mut self,
        now: u64,
        op: &Op,
        body: &Body,
        effects: &[Effect],
        lock: &LockState,
    ) -> Checked {
        self.note_mended(now, op, lock)?;
        match op {
            Op::Beat { client, .. } => {
                self.beats.insert(*client, now);
            }
            Op::Acquire(a) => {
                let queued = matches!(body, Body::Queued { .. });
                if let Some(client) = a.owner.client().filter(|_| queued) {
                    self.beats.insert(client, now);
                }
            }
            _ => {}
        }
        self.note_end(op, body);
        self.note_body(now, op, body, lock)?;
        for effect in effects {
            let Payload::Grant { grant, at_ms } = &effect.payload else { continue };
            ensure(*at_ms == now, || "a message with another time".to_owned())?;
            let owner = self.owner_of(grant.request).ok_or("a grant for nobody's request")?;
            self.note_grant(now, &owner, grant.token.get(), grant.ttl_ms, Kind::Fair)?;
        }
        Ok(())
    }

    fn owner_of(&self, request: RequestId) -> Option<OwnerId> {
        let mut all = self.waiting.iter();
        all.find(|(_, waits)| waits.acquire.request == request).map(|(owner, _)| owner.clone())
    }

    fn note_end(&mut self, op: &Op, body: &Body) {
        if matches!(body, Body::Released | Body::Freed | Body::Forced { .. }) {
            self.holder = None;
        }
        if let (Op::Leave { owner, .. }, Body::Left) = (op, body) {
            self.waiting.remove(owner);
        }
    }

    fn note_body(&mut self, now: u64, op: &Op, body: &Body, lock: &LockState) -> Checked {
        let k = lock.snapshot();
        match (op, body) {
            (Op::Acquire(a), Body::Granted { token, ttl_ms }) => {
                ensure(k.hold.contains_key(&a.owner), || "granted and not the holder".to_owned())?;
                ensure(k.token == Some(token.get()), || "granted under another token".to_owned())?;
                ensure(k.hold_expires == Some(now + ttl_ms), || "another TTL".to_owned())?;
                // Without a holder: the hold ended, and then the clock went back to before its end.
                let again = token.get() == self.newest;
                let same = self.holder.as_ref().map_or(again, |(holder, _)| *holder == a.owner);
                if same && (token.get() >= self.newest || self.series_broken) {
                    self.newest = token.get();
                    self.holder = Some((a.owner.clone(), Some(now + ttl_ms)));
                    return Ok(());
                }
                self.note_grant(now, &a.owner, token.get(), *ttl_ms, a.kind)
            }
            (Op::Acquire(a), Body::Queued { order, .. }) => {
                // If the list was lost, the next heartbeat repairs it.
                let stands = (k.queue.contains(&a.owner) || self.disturbed)
                    && k.scores.contains_key(&a.owner)
                    && k.order.get(&a.owner) == Some(order)
                    && k.waiters.get(&a.owner).is_some_and(|w| w.request == a.request);
                ensure(stands, || format!("queued with {order}, but {k:?}"))?;
                let waits = Waits { order: *order, acquire: a.clone(), shaky: false };
                self.waiting.insert(a.owner.clone(), waits);
                Ok(())
            }
            (Op::Renew { ttl_ms, owner, .. }, Body::Renewed) => {
                self.holder = Some((owner.clone(), Some(now + ttl_ms)));
                ensure(k.hold_expires == Some(now + ttl_ms), || "not renewed".to_owned())
            }
            (Op::Reenter { owner, .. } | Op::Release { owner, .. }, Body::StillHeld { count }) => {
                ensure(k.hold.get(owner) == Some(&i64::from(*count)), || "wrong count".to_owned())
            }
            (Op::Release { owner, .. }, Body::Released)
            | (Op::Leave { owner, .. }, Body::Freed) => {
                ensure(!k.hold.contains_key(owner), || "freed and still held".to_owned())
            }
            (Op::Leave { owner, .. }, Body::Left) => {
                let gone = !k.queue.contains(owner) || self.disturbed;
                ensure(gone, || "left and still queued".to_owned())
            }
            (Op::Beat { client, waiters }, Body::Beaten { held, queued, .. }) => {
                if let Some(grant) = held {
                    let holder = k.hold.keys().next().and_then(OwnerId::client);
                    ensure(holder == Some(*client), || "held by another client".to_owned())?;
                    ensure(k.token == Some(grant.token.get()), || "held otherwise".to_owned())?;
                }
                for (owner, stands) in waiters.iter().zip(queued) {
                    self.note_queued(owner, *stands, lock)?;
                }
                Ok(())
            }
            (Op::Place { owner }, Body::Place { ahead }) => self.note_place(owner, *ahead),
            _ => Ok(()),
        }
    }

    /// Before a waiter stand those with smaller numbers, except those judged dead.
    fn note_place(&self, owner: &OwnerId, ahead: Option<u64>) -> Checked {
        if self.disturbed {
            return Ok(());
        }
        let Some(waits) = self.waiting.get(owner) else {
            return ensure(ahead.is_none(), || format!("{owner} does not wait, but has {ahead:?}"));
        };
        let before = || self.waiting.values().filter(|other| other.order < waits.order);
        let most = before().count() as u64;
        let least = before().filter(|other| !other.shaky).count() as u64;
        let fits = ahead.map_or(waits.shaky, |ahead| (least..=most).contains(&ahead));
        ensure(fits, || format!("{ahead:?} before {owner}, which has {least} to {most}"))
    }

    fn note_queued(&self, owner: &OwnerId, stands: bool, lock: &LockState) -> Checked {
        let k = lock.snapshot();
        let holds = k.hold.contains_key(owner);
        // In a state torn by faults the answer may be no although one key says yes. One call may
        // also say yes and then remove an orphan, and with it the state of the list, which is empty
        // then: the next call says no.
        let known = k.order.contains_key(owner);
        let fits = holds || stands == known || (self.disturbed && !stands) || self.torn;
        ensure(fits, || format!("{owner} was told {stands}, but {k:?}"))?;
        let Some(waits) = self.waiting.get(owner) else { return Ok(()) };
        let lost = !stands && !holds && !waits.shaky && !self.disturbed;
        ensure(!lost, || format!("{owner} lived and lost its place"))
    }

    fn note_grant(
        &mut self,
        now: u64,
        owner: &OwnerId,
        token: u64,
        ttl_ms: u64,
        kind: Kind,
    ) -> Checked {
        if let Some((holder, until)) = &self.holder {
            return Err(format!("{owner} got the lock that {holder} has until {until:?}"));
        }
        let rises = token > self.newest || self.series_broken;
        ensure(rises, || format!("token {token} after {}", self.newest))?;
        self.newest = token;
        self.holder = Some((owner.clone(), Some(now + ttl_ms)));
        let order = self.waiting.remove(owner).map_or(u64::MAX, |waits| waits.order);
        self.served.push(owner.clone());
        if kind == Kind::Plain || self.disturbed {
            return Ok(());
        }
        for (other, waits) in &self.waiting {
            let overtaken = waits.order < order && !waits.shaky;
            ensure(!overtaken, || format!("{owner} ({order}) overtook {other} ({})", waits.order))?;
        }
        Ok(())
    }
}
