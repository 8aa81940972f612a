//! One lock with shares, its clock, and what was published.

use crate::support::{Ears, client, ours, request};
use fairlock_core::{
    Acquire, Body, CoreError, Fate, Grant, Inspection, Kind, LockState, Mode, Op, OwnerId, Payload,
    RequestId, Rules, Share, ShareAcquire, Token, is_share_of,
};

pub(crate) const T0: u64 = 1_760_000_000_000;
pub(crate) const LEASE: u64 = 30_000;

pub(crate) struct Scene {
    pub(crate) lock: LockState,
    pub(crate) kind: Kind,
    pub(crate) rules: Rules,
    pub(crate) ears: Ears,
    pub(crate) now: u64,
    /// Each call runs in a microsecond of its own.
    tick: u64,
    /// Grants by message that were not read.
    pub(crate) grants: Vec<Grant>,
    /// Requests whose clients were told that the lock is left to guests.
    pub(crate) invited: Vec<RequestId>,
    pub(crate) more: bool,
}

/// Client `n`'s only owner. Its request has the same number.
pub(crate) fn owner(n: u64) -> OwnerId {
    ours(n, 1)
}

fn number(of: RequestId) -> Option<u64> {
    (1..10_000).find(|n| request(*n) == of)
}

pub(crate) fn permits(n: u32, limit: u32) -> Share {
    Share::Permits { n, limit }
}

/// Releases the hold of request `n`.
pub(crate) fn release(kind: Kind, n: u64, token: Token) -> Op {
    let op = Op::Release { kind, owner: owner(n), token, keep: 0, change: 1 };
    op.of_hold(kind, request(n), u64::MAX)
}

impl Scene {
    pub(crate) fn of(kind: Kind) -> Self {
        let (rules, ears) = (Rules::default(), Ears::default());
        let lock = LockState::default();
        let (grants, invited) = (Vec::new(), Vec::new());
        Self { lock, kind, rules, ears, now: T0, tick: 0, grants, invited, more: false }
    }

    pub(crate) fn rw() -> Self {
        Self::of(Kind::ReadWrite)
    }

    pub(crate) fn semaphore() -> Self {
        Self::of(Kind::Semaphore)
    }

    pub(crate) fn refused(&mut self, op: &Op) -> CoreError {
        let before = self.lock.clone();
        let now_us = self.now * 1_000 + self.tick;
        let refusal = self.lock.apply(now_us, op, &self.rules, &self.ears).expect_err("refused");
        assert_eq!(before.snapshot(), self.lock.snapshot());
        refusal
    }

    pub(crate) fn send(&mut self, op: &Op) -> Body {
        self.tick += 1;
        let now_us = self.now * 1_000 + self.tick;
        let (answer, effects) = self.lock.apply(now_us, op, &self.rules, &self.ears).expect("fine");
        self.more = answer.more;
        for effect in effects {
            match effect.payload {
                Payload::Grant { grant, .. } => self.grants.push(grant),
                Payload::Guests { request } => self.invited.push(request),
                _ => {}
            }
        }
        answer.body
    }

    pub(crate) fn asks(&self, n: u64, share: Share, mode: Mode) -> Acquire {
        assert!(is_share_of(self.kind, share), "{share:?}");
        Acquire {
            kind: self.kind,
            owner: owner(n),
            request: request(n),
            lease_ms: LEASE,
            mode,
            order: None,
            not_after_ms: u64::MAX,
            sure: false,
            shared_owner: false,
        }
    }

    pub(crate) fn ask_with(&mut self, acquire: Acquire, share: Share) -> Body {
        self.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share })))
    }

    pub(crate) fn ask(&mut self, n: u64, share: Share) -> Body {
        let acquire = self.asks(n, share, Mode::Wait);
        self.ask_with(acquire, share)
    }

    pub(crate) fn tries(&mut self, n: u64, share: Share) -> bool {
        let acquire = self.asks(n, share, Mode::Try);
        matches!(self.ask_with(acquire, share), Body::Granted { .. })
    }

    /// Gets a share at once.
    #[track_caller]
    pub(crate) fn gets(&mut self, n: u64, share: Share) -> Token {
        match self.ask(n, share) {
            Body::Granted { token, .. } => token,
            body => panic!("{n} is to get {share:?} at once: {body:?}"),
        }
    }

    /// Has to wait. Returns its number.
    #[track_caller]
    pub(crate) fn waits(&mut self, n: u64, share: Share) -> u64 {
        match self.ask(n, share) {
            Body::Queued { order, .. } => order,
            body => panic!("{n} is to wait for {share:?}: {body:?}"),
        }
    }

    pub(crate) fn release(&mut self, n: u64, token: Token) -> Body {
        self.send(&release(self.kind, n, token))
    }

    pub(crate) fn renew(&mut self, n: u64, token: Token) -> Body {
        let op = Op::Renew { kind: self.kind, owner: owner(n), token, ttl_ms: LEASE };
        self.send(&op.of_hold(self.kind, request(n), u64::MAX))
    }

    pub(crate) fn leave(&mut self, n: u64) -> Body {
        let (kind, owner, request) = (self.kind, owner(n), request(n));
        self.send(&Op::Leave { kind, owner, request, bury: false, shared_owner: false })
    }

    pub(crate) fn downgrade(&mut self, n: u64, token: Token) -> Body {
        let op = Op::Downgrade { owner: owner(n), token };
        self.send(&op.of_hold(self.kind, request(n), u64::MAX))
    }

    pub(crate) fn beat(&mut self, n: u64) -> Vec<Fate> {
        match self.send(&Op::Beat { client: client(n), waiters: vec![owner(n)] }) {
            Body::Fates { fates, .. } => fates,
            body => panic!("{body:?}"),
        }
    }

    pub(crate) fn inspect(&mut self) -> Inspection {
        match self.send(&Op::Inspect { kind: self.kind, limit: 10 }) {
            Body::Inspected(seen) => *seen,
            body => panic!("{body:?}"),
        }
    }

    /// Who has been granted a share by message since the last call, in order.
    pub(crate) fn told(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.grants).iter().filter_map(|it| number(it.request)).collect()
    }

    /// Whose client was told since the last call that the lock is left to guests.
    pub(crate) fn invited(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.invited).into_iter().filter_map(number).collect()
    }

    pub(crate) fn holders(&self) -> usize {
        self.lock.shares().map_or(0, |shares| shares.holds().len())
    }
}
