//! What the oracle knows of locks that several may hold, and what must not happen to them.

use super::oracle::{LockHistory, Oracle, Waiting};
use fairlock_core::{Answer, Body, LockName, Op, OwnerId, Share, SharedHold, Shares, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Part of the history of a lock.
#[derive(Default)]
pub(super) struct Shared {
    /// The holders, with their tokens.
    holders: BTreeMap<OwnerId, u64>,
    /// Every hold there was.
    known: BTreeSet<(OwnerId, u64)>,
    /// The server's grants of which no guard has resulted yet: the token, the client, and when.
    pub(super) granted: BTreeMap<OwnerId, (u64, usize, Instant)>,
}

/// Whether a share may be held beside these.
pub(super) fn is_beside(share: Share, others: impl Iterator<Item = Share>) -> bool {
    let mut others = others.peekable();
    match share {
        Share::Read => others.all(|other| other == Share::Read),
        Share::Permits { n, limit } => {
            let used = others.map(|other| match other {
                Share::Permits { n, .. } => n,
                _ => 0,
            });
            used.sum::<u32>() + n <= limit
        }
        _ => others.peek().is_none(),
    }
}

impl Oracle {
    /// Called after the server has carried out an operation on a lock that several may hold.
    pub(super) fn after_share(
        &mut self,
        name: &LockName,
        op: &Op,
        answer: &Answer,
        keys: &Snapshot,
        shares: &Shares,
    ) {
        let now = Instant::now();
        self.counts.calls += 1;
        let mut lock = self.locks.remove(name).unwrap_or_default();
        self.enters(&mut lock, op, answer, now);
        if let Op::Leave { owner, .. } = op
            && !keys.order.contains_key(owner)
        {
            lock.waiting.retain(|waiting| waiting.owner != *owner);
        }
        let mut granted = std::mem::take(&mut lock.shares.granted);
        granted.retain(|owner, (token, peer, at)| {
            let stands = shares.holds().get(owner).is_some_and(|hold| hold.token.get() == *token);
            if !stands && !gives_up(op, owner) && self.is_calm(*peer, *at) {
                self.violation(format!("{name}: client {peer} let its grant {token} run out"));
            }
            stands
        });
        lock.shares.granted = granted;
        let mut new: Vec<_> = shares
            .holds()
            .iter()
            .filter(|(owner, hold)| lock.shares.holders.get(owner) != Some(&hold.token.get()))
            // Holds that a failover brought back are no new grants.
            .filter(|(owner, hold)| {
                !lock.shares.known.contains(&((*owner).clone(), hold.token.get()))
            })
            .collect();
        // In the order in which they stood in the line.
        let order = |owner: &OwnerId| lock.waiting.iter().position(|it| it.owner == *owner);
        new.sort_by_key(|(owner, _)| order(owner).unwrap_or(usize::MAX));
        for (owner, hold) in new {
            self.gets(name, &mut lock, owner, hold, now);
        }
        lock.shares.holders =
            shares.holds().iter().map(|(o, hold)| (o.clone(), hold.token.get())).collect();
        for waiting in &lock.waiting {
            let there = keys.order.contains_key(&waiting.owner)
                || shares.holds().contains_key(&waiting.owner);
            if !there && self.is_calm(waiting.peer, waiting.entered) {
                let (owner, peer) = (&waiting.owner, waiting.peer);
                self.violation(format!(
                    "{name}: {owner} of client {peer} lives, and was dropped from the line by {op:?}"
                ));
            }
        }
        self.excludes(name, shares);
        self.locks.insert(name.clone(), lock);
    }

    /// Notes a place in the line. A returning waiter has its former one, even if it is served at once.
    fn enters(&self, lock: &mut LockHistory, op: &Op, answer: &Answer, now: Instant) {
        let Op::AcquireShare(ask) = op else { return };
        let asked = &ask.acquire;
        let order = match &answer.body {
            Body::Queued { order, .. } => Some(*order),
            Body::Granted { token, .. } => {
                let known = lock.shares.holders.get(&asked.owner) == Some(&token.get());
                asked.order.filter(|_| !known)
            }
            _ => None,
        };
        let peer = asked.owner.client().and_then(|id| self.clients.get(&id));
        if let (Some(order), Some(&peer)) = (order, peer)
            && !lock.waiting.iter().any(|waiting| waiting.owner == asked.owner)
        {
            let place = lock.waiting.partition_point(|waiting| waiting.order < order);
            let owner = asked.owner.clone();
            lock.waiting.insert(place, Waiting { owner, peer, order, entered: now });
        }
    }

    /// Somebody was granted a share.
    fn gets(
        &mut self,
        name: &LockName,
        lock: &mut LockHistory,
        owner: &OwnerId,
        hold: &SharedHold,
        now: Instant,
    ) {
        self.counts.grants += 1;
        let token = hold.token.get();
        lock.minted.insert(token, (owner.clone(), lock.series));
        let is_new = lock.shares.known.iter().all(|(_, known)| *known != token);
        // Those who read at the same time have one token.
        let joins = hold.share == Share::Read && (!is_new || token == lock.highest);
        let falls = token < lock.highest || (token == lock.highest && !joins);
        // A failover may bring back a time of reading that was over, with its token.
        if falls && !(joins && self.is_forgiven(name)) {
            self.violation(format!("{name}: token {token} after {}", lock.highest));
        }
        lock.highest = lock.highest.max(token);
        lock.shares.known.insert((owner.clone(), token));
        let place = lock.waiting.iter().position(|waiting| waiting.owner == *owner);
        for waiting in &lock.waiting[..place.unwrap_or(lock.waiting.len())] {
            if self.is_calm(waiting.peer, waiting.entered) {
                let (first, peer) = (&waiting.owner, waiting.peer);
                self.violation(format!(
                    "{name}: {owner} overtook {first} of client {peer}, which lives"
                ));
            }
        }
        lock.waiting.retain(|waiting| waiting.owner != *owner);
        if let Some(&peer) = owner.client().and_then(|id| self.clients.get(&id)) {
            lock.shares.granted.insert(owner.clone(), (token, peer, now));
        }
    }

    /// The server itself never gives what does not fit.
    fn excludes(&mut self, name: &LockName, shares: &Shares) {
        let all: Vec<_> = shares.holds().iter().map(|(owner, hold)| (owner, hold.share)).collect();
        let Some((_, largest)) = all.iter().max_by_key(|(_, share)| match share {
            Share::Permits { limit, .. } => *limit,
            Share::Read => 0,
            _ => u32::MAX,
        }) else {
            return;
        };
        let mut others = all.iter().map(|(_, share)| *share).collect::<Vec<_>>();
        let at = others.iter().position(|share| share == largest).unwrap_or(0);
        others.remove(at);
        if !is_beside(*largest, others.into_iter()) {
            self.violation(format!("{name}: held at once: {all:?}"));
        }
    }
}

/// Whether the operation ends the hold of this owner, rather than finding that it has ended.
fn gives_up(op: &Op, owner: &OwnerId) -> bool {
    match op.bare() {
        Op::Force { .. } => true,
        Op::Leave { owner: by, .. } | Op::Release { owner: by, .. } => by == owner,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::{Acquire, ClientId, Kind, Mode, RequestId, ShareAcquire, Token};
    use std::time::Duration;

    /// Three owners, each of a client of its own, and a line that they stand in.
    struct Scene {
        oracle: Oracle,
        owners: Vec<OwnerId>,
        held: BTreeMap<OwnerId, SharedHold>,
        line: Snapshot,
        name: LockName,
    }

    impl Scene {
        async fn begin() -> Self {
            let mut oracle = Oracle::default();
            oracle.begin(Instant::now(), false);
            let ids = [1, 2, 3].map(ClientId::from_random);
            let owners = ids.map(|id| OwnerId::ours(id, 1).expect("a number")).to_vec();
            for id in ids {
                oracle.add_client(id);
            }
            // All are calm from the beginning on; what follows comes later.
            tokio::time::advance(Duration::from_secs(60)).await;
            let name = LockName::new(b"pages").expect("a name");
            let (held, line) = (BTreeMap::new(), Snapshot::default());
            Self { oracle, owners, held, line, name }
        }

        fn has(&mut self, who: usize, share: Share, token: u64) {
            let hold = SharedHold {
                request: RequestId::from_random(1),
                token: Token::new(token).expect("a token"),
                share,
                count: 1,
                change: 0,
                ends_ms: u64::MAX,
            };
            self.held.insert(self.owners[who].clone(), hold);
            self.line.order.remove(&self.owners[who]);
        }

        /// Enters the line, and is told its number.
        fn waits(&mut self, who: usize, order: u64) -> Vec<String> {
            self.line.order.insert(self.owners[who].clone(), order);
            let acquire = Acquire {
                kind: Kind::ReadWrite,
                owner: self.owners[who].clone(),
                request: RequestId::from_random(1),
                lease_ms: 30_000,
                mode: Mode::Wait,
                order: None,
                not_after_ms: u64::MAX,
                sure: true,
                shared_owner: false,
            };
            let ask = ShareAcquire { acquire, share: Share::Whole };
            let body = Body::Queued { order, retry_ms: None, foreign: false, length: 1 };
            self.after(&Op::AcquireShare(Box::new(ask)), body)
        }

        fn after(&mut self, op: &Op, body: Body) -> Vec<String> {
            let answer = Answer { now_ms: 1, more: false, removed: 0, other_limit: false, body };
            let shares = Shares::restored(Kind::ReadWrite, self.held.clone(), BTreeMap::new());
            self.oracle.after_share(&self.name, op, &answer, &self.line, &shares);
            std::mem::take(&mut self.oracle.violations)
        }

        fn nudged(&mut self) -> Vec<String> {
            self.after(&Op::Nudge, Body::Nudged)
        }

        #[track_caller]
        fn finds(&mut self, what: &str) {
            let found = self.nudged().concat();
            assert!(found.contains(what), "{found}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_with_shares_are_sound() {
        let mut scene = Scene::begin().await;
        scene.has(0, Share::Read, 5);
        scene.has(1, Share::Read, 5);
        assert!(scene.nudged().is_empty());
        assert!(scene.waits(2, 10).is_empty());
        let owners = scene.owners.clone();
        // Both have their guards.
        owners.iter().for_each(|owner| scene.oracle.seen(&scene.name, owner, 5));
        scene.held.clear();
        scene.has(2, Share::Whole, 6);
        assert!(scene.nudged().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_beside_a_reader_is_found() {
        let mut scene = Scene::begin().await;
        scene.has(0, Share::Read, 5);
        scene.has(1, Share::Whole, 6);
        scene.finds("held at once");
        let mut scene = Scene::begin().await;
        let two = Share::Permits { n: 2, limit: 3 };
        scene.has(0, two, 5);
        scene.has(1, two, 6);
        scene.finds("held at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_does_not_rise_is_found() {
        for (first, next, token) in [
            (Share::Whole, Share::Whole, 5),
            (Share::Whole, Share::Read, 4),
            (Share::Read, Share::Whole, 5),
        ] {
            let mut scene = Scene::begin().await;
            scene.has(0, first, 5);
            assert!(scene.nudged().is_empty());
            let owner = scene.owners[0].clone();
            scene.oracle.seen(&scene.name, &owner, 5);
            scene.held.clear();
            scene.has(1, next, token);
            scene.finds(&format!("token {token} after 5"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_overtaken_dropped_or_not_told_is_found() {
        let mut scene = Scene::begin().await;
        scene.has(0, Share::Read, 5);
        assert!(scene.nudged().is_empty());
        assert!(scene.waits(1, 10).is_empty());
        scene.has(2, Share::Read, 5);
        scene.finds("overtook");

        let mut scene = Scene::begin().await;
        scene.has(0, Share::Read, 5);
        assert!(scene.nudged().is_empty());
        assert!(scene.waits(1, 10).is_empty());
        scene.line.order.clear();
        scene.finds("was dropped from the line");

        let mut scene = Scene::begin().await;
        scene.has(0, Share::Read, 5);
        assert!(scene.nudged().is_empty());
        scene.held.clear();
        scene.finds("let its grant 5 run out");
    }
}
