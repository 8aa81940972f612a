//! An observer of one lock with shares: who holds what until when, and who waits, from replies and messages alone. It
//! knows nothing of how the state machine works.

use crate::support::Ears;
use fairlock_core::{
    Acquire, Body, ClientId, Effect, Fate, GUEST_MS, Grant, LockState, Op, OwnerId, Payload,
    RequestId, Rules, Share,
};
use std::collections::BTreeMap;

type Checked = Result<(), String>;

/// A grant: the place, the owner, its share, the request and the token of the hold, and its TTL.
type Told = (u64, OwnerId, Share, (RequestId, u64), u64);

fn permits(share: Share) -> u32 {
    if let Share::Permits { n, .. } = share { n } else { 0 }
}

fn ensure(fine: bool, what: impl FnOnce() -> String) -> Checked {
    if fine { Ok(()) } else { Err(what()) }
}

#[derive(Clone, Debug)]
pub(crate) struct Has {
    pub(crate) share: Share,
    pub(crate) token: u64,
    pub(crate) request: RequestId,
    until: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) order: u64,
    pub(crate) acquire: Acquire,
    pub(crate) share: Share,
    /// It may have looked dead since then: it may be passed over and must return.
    shaky: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) holds: BTreeMap<OwnerId, Has>,
    pub(crate) waiting: BTreeMap<OwnerId, Waits>,
    pub(crate) served: Vec<OwnerId>,
    beats: BTreeMap<ClientId, u64>,
    newest: u64,
    /// Until when the lock is left to foreign waiters, or was left last.
    guests_until: u64,
    /// The last token of each owner.
    last: BTreeMap<OwnerId, u64>,
    /// Time jumped: order is no longer promised.
    pub(crate) disturbed: bool,
}

impl Keeper {
    /// Before an operation at `now`.
    pub(crate) fn time_is(&mut self, now: u64, ears: &Ears, rules: &Rules) {
        self.holds.retain(|_, has| has.until >= now);
        let heard = self.beats.values().max().copied().unwrap_or(now);
        // What is known of waiters lasts for a minute.
        self.disturbed |= now.abs_diff(heard) > 50_000 && !self.waiting.is_empty();
        for (owner, waits) in &mut self.waiting {
            let Some(client) = owner.client() else { continue };
            let beat = self.beats.get(&client).copied().unwrap_or(0);
            // A heartbeat of slack: the beat of a fresh entry need not be written.
            let old = now.abs_diff(beat) > rules.dead_ms - rules.beat_ms;
            waits.shaky |= old || ears.deaf.contains(&client) || ears.gone.contains(&client);
        }
    }

    /// The holds that stand in the way of others. Those of a client that is gone do not.
    fn standing<'a>(&'a self, ears: &'a Ears) -> impl Iterator<Item = &'a Has> {
        let is_there =
            |owner: &OwnerId| owner.client().is_none_or(|client| !ears.gone.contains(&client));
        self.holds.iter().filter(move |(owner, _)| is_there(owner)).map(|(_, has)| has)
    }

    fn fits(&self, share: Share, ears: &Ears) -> bool {
        match share {
            Share::Whole => self.standing(ears).next().is_none(),
            Share::Read => self.standing(ears).all(|has| has.share == Share::Read),
            Share::Permits { n, limit } => {
                let used: u32 = self.standing(ears).map(|has| permits(has.share)).sum();
                used + n <= limit
            }
            share => panic!("{share:?} is new"),
        }
    }

    pub(crate) fn note(
        &mut self,
        now: u64,
        (op, body, more): (&Op, &Body, bool),
        effects: &[Effect],
        ears: &Ears,
        lock: &LockState,
    ) -> Checked {
        let (request, op) = (op.hold().map(|hold| hold.request), op.bare());
        match op {
            Op::Beat { client, .. } => drop(self.beats.insert(*client, now)),
            Op::AcquireShare(ask) if matches!(body, Body::Queued { .. }) => {
                self.beats.extend(ask.acquire.owner.client().map(|client| (client, now)));
            }
            _ => {}
        }
        self.note_body(now, (op, request), body, ears)?;
        if matches!((op, body), (Op::Leave { .. }, Body::Left)) && self.guests_until > now {
            self.guests_until = now;
        }
        let mut grants = Vec::new();
        for effect in effects {
            if let Payload::Guests { .. } = &effect.payload {
                self.left_to_guests(now, ears)?;
            }
            let Payload::Grant { grant, at_ms } = &effect.payload else { continue };
            ensure(*at_ms == now, || "a message with another time".to_owned())?;
            grants.push(self.granted(grant)?);
        }
        if let (Op::AcquireShare(ask), Body::Granted { token, ttl_ms }) = (op, body) {
            let owner = &ask.acquire.owner;
            let order = self.waiting.get(owner).map_or(u64::MAX, |waits| waits.order);
            let name = (ask.acquire.request, token.get());
            grants.push((order, owner.clone(), ask.share, name, *ttl_ms));
        }
        grants.sort_by_key(|(order, ..)| *order);
        for (_, owner, share, name, ttl_ms) in grants {
            self.note_grant(now, (&owner, share), name, ttl_ms, ears)?;
        }
        self.same_as(now, lock)?;
        if now < self.guests_until && self.standing(ears).next().is_none() {
            let is_silent = effects.iter().all(|it| !matches!(it.payload, Payload::Grant { .. }));
            return ensure(is_silent, || "a grant while it is left to guests".to_owned());
        }
        self.nobody_is_forgotten(op, body, more, ears)
    }

    /// The free lock is left to foreign waiters: only if there are any, and one of ours had it since the last time.
    fn left_to_guests(&mut self, now: u64, ears: &Ears) -> Checked {
        let again = self.guests_until > 0 && self.newest / 1_000 < self.guests_until;
        ensure(ears.guests && (!again || self.disturbed), || "left to nobody".to_owned())?;
        self.guests_until = now + GUEST_MS;
        Ok(())
    }

    fn note_body(
        &mut self,
        now: u64,
        (op, request): (&Op, Option<RequestId>),
        body: &Body,
        ears: &Ears,
    ) -> Checked {
        let has = |it: &Self, owner: &OwnerId, token: u64| {
            let is_named = |has: &Has| has.token == token && Some(has.request) == request;
            it.holds.get(owner).is_some_and(is_named)
        };
        match (op, body) {
            (Op::AcquireShare(ask), Body::Queued { order, .. }) => {
                let acquire = ask.acquire.clone();
                let known = self.waiting.get(&acquire.owner).map(|waits| waits.shaky);
                let shaky = known.unwrap_or(false) && acquire.order.is_none();
                let waits = Waits { order: *order, share: ask.share, shaky, acquire };
                self.waiting.insert(ask.acquire.owner.clone(), waits);
                Ok(())
            }
            (Op::Release { owner, token, .. }, Body::Released) => {
                let had = has(self, owner, token.get());
                self.holds.remove(owner);
                ensure(had, || format!("{owner} gave back what it had not"))
            }
            (Op::Leave { owner, request, .. }, Body::Freed) => {
                let had = self.holds.remove(owner).is_some_and(|has| has.request == *request);
                ensure(had, || format!("{owner} left what it had not"))
            }
            (Op::Leave { owner, .. }, Body::Left) => {
                self.waiting.remove(owner);
                Ok(())
            }
            (Op::Renew { owner, token, ttl_ms, .. }, Body::Renewed) => {
                let had = has(self, owner, token.get());
                self.holds.entry(owner.clone()).and_modify(|has| has.until = now + ttl_ms);
                ensure(had, || format!("{owner} renewed what it had not"))
            }
            (
                Op::Reenter { owner, token, .. } | Op::Release { owner, token, .. },
                Body::StillHeld { .. } | Body::Stale,
            ) => {
                let had = has(self, owner, token.get());
                ensure(had, || format!("{owner} counted what it had not"))
            }
            (Op::AcquireShare(ask), Body::GrantedBefore(grant)) => {
                let has = self.holds.get(&ask.acquire.owner);
                let had = has.is_some_and(|has| has.request == grant.request);
                ensure(had && grant.request != ask.acquire.request, || {
                    format!("{grant:?}: {has:?}")
                })
            }
            (Op::Downgrade { owner, token, .. }, Body::StillHeld { .. }) => {
                let had = has(self, owner, token.get());
                self.holds.entry(owner.clone()).and_modify(|has| has.share = Share::Read);
                ensure(had, || format!("{owner} changed what it had not"))
            }
            (
                Op::Release { owner, token, .. } | Op::Renew { owner, token, .. },
                Body::NotHeld { .. },
            )
            | (Op::Downgrade { owner, token, .. }, Body::NotHeld { .. }) => {
                let had = has(self, owner, token.get());
                // That of a client that is gone ends when somebody needs it.
                let gone = owner.client().is_some_and(|client| ears.gone.contains(&client));
                ensure(!had || gone, || format!("{owner} lost its hold"))?;
                if had {
                    self.holds.remove(owner);
                }
                Ok(())
            }
            (Op::Force { .. }, Body::Forced { .. }) => {
                self.holds.clear();
                Ok(())
            }
            (Op::Beat { waiters, .. }, Body::Fates { fates, .. }) => {
                ensure(waiters.len() == fates.len(), || "fates of others".to_owned())?;
                waiters.iter().zip(fates).try_for_each(|(owner, fate)| self.note_fate(owner, fate))
            }
            _ => Ok(()),
        }
    }

    fn note_fate(&self, owner: &OwnerId, fate: &Fate) -> Checked {
        let waits = self.waiting.get(owner);
        let fine = match fate {
            Fate::Queued => waits.is_some(),
            // A grant of this very call is noted with its message.
            Fate::Granted(_) => true,
            Fate::Unknown => waits.is_none_or(|waits| waits.shaky || self.disturbed),
        };
        ensure(fine, || format!("{owner} was told {fate:?}: {waits:?}"))
    }

    fn granted(&self, grant: &Grant) -> Result<Told, String> {
        let mut all = self.waiting.iter();
        let known = all.find(|(_, waits)| waits.acquire.request == grant.request);
        let (owner, waits) = known.ok_or("a grant for nobody's request")?;
        let name = (grant.request, grant.token.get());
        Ok((waits.order, owner.clone(), waits.share, name, grant.ttl_ms))
    }

    fn note_grant(
        &mut self,
        now: u64,
        (owner, share): (&OwnerId, Share),
        (request, token): (RequestId, u64),
        ttl_ms: u64,
        ears: &Ears,
    ) -> Checked {
        let is_same = |has: &&Has| (has.request, has.token) == (request, token);
        if let Some(has) = self.holds.get(owner).filter(is_same) {
            // Another copy of a request that was granted.
            let until = has.until;
            return ensure(until == now + ttl_ms, || format!("{owner} has it until {until}"));
        }
        ensure(self.fits(share, ears), || {
            format!("{owner} got {share:?} beside {:?}", self.holds)
        })?;
        let phase = self.standing(ears).find(|has| has.share == Share::Read).map(|has| has.token);
        match phase.filter(|_| share == Share::Read) {
            Some(phase) => {
                ensure(token == phase, || format!("{owner} reads by {token}, others by {phase}"))?;
            }
            None => {
                let newest = self.newest;
                // One that is gone may be reading still, if nobody had to wait for it.
                let joins =
                    share == Share::Read && self.holds.values().any(|has| has.token == token);
                // Or its hold was over, nobody needed it, and the clock went back to before its end.
                let again = self.disturbed && self.last.get(owner) == Some(&token);
                ensure(token > newest || joins || again, || {
                    format!("token {token} after {newest}")
                })?;
            }
        }
        self.newest = self.newest.max(token);
        self.last.insert(owner.clone(), token);
        let order = self.waiting.remove(owner).map_or(u64::MAX, |waits| waits.order);
        self.holds.insert(owner.clone(), Has { share, token, request, until: now + ttl_ms });
        self.served.push(owner.clone());
        if self.disturbed {
            return Ok(());
        }
        for (other, waits) in &self.waiting {
            let overtaken = waits.order < order && !waits.shaky;
            ensure(!overtaken, || format!("{owner} ({order}) overtook {other} ({})", waits.order))?;
        }
        Ok(())
    }

    /// What the machine has recorded is what was said.
    fn same_as(&self, now: u64, lock: &LockState) -> Checked {
        let Some(shares) = lock.shares() else {
            return ensure(self.holds.is_empty(), || "holds are forgotten".to_owned());
        };
        // Those whose leases are over stay until somebody needs what they had.
        for (owner, hold) in shares.holds().iter().filter(|(_, hold)| hold.ends_ms >= now) {
            let is_same = |has: &&Has| (has.request, has.token) == (hold.request, hold.token.get());
            let said = self.holds.get(owner).filter(is_same);
            ensure(said.is_some_and(|has| has.share == hold.share), || {
                format!("{owner} has {hold:?}, but was told {said:?}")
            })?;
        }
        Ok(())
    }

    /// The first in line does not wait for what it could have.
    fn nobody_is_forgotten(&self, op: &Op, body: &Body, more: bool, ears: &Ears) -> Checked {
        let serves = match op {
            Op::AcquireShare(_) => matches!(body, Body::Queued { .. }),
            Op::Renew { .. } => !matches!(body, Body::Renewed),
            Op::Inspect { .. } | Op::Place { .. } | Op::Reenter { .. } => false,
            _ => true,
        };
        if !serves || more || self.disturbed {
            return Ok(());
        }
        let head = self.waiting.iter().min_by_key(|(_, waits)| waits.order);
        let Some((owner, waits)) = head.filter(|(_, waits)| !waits.shaky) else { return Ok(()) };
        ensure(!self.fits(waits.share, ears), || format!("{owner} waits for what it could have"))
    }
}
