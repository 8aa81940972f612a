//! The rules of `fairlock-core` alone.

use fairlock_core::{
    Acquire, Body, ClientId, Kind, LockState, Mode, Op, OwnerId, Payload, RequestId, Rules, Share,
    Token, World,
};

/// In the year 2033, as in the tests of the core.
const START_US: u64 = 2_000_000_000_000_000;

/// Every client listens.
struct Everybody;

impl World for Everybody {
    fn inbox(&self, _: ClientId) -> bool {
        true
    }

    fn listening(&self, _: &OwnerId) -> bool {
        true
    }
}

/// One lock and its clock, which advances by 100 us with each operation, so that no waiter is
/// judged dead.
struct Lock {
    state: LockState,
    rules: Rules,
    now_us: u64,
    operations: u64,
}

impl Lock {
    fn new() -> Self {
        Self {
            state: LockState::default(),
            rules: Rules::default(),
            now_us: START_US,
            operations: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Body, Vec<fairlock_core::Effect>) {
        self.now_us += 100;
        self.operations += 1;
        let (answer, effects) = self.state.apply(self.now_us, op, &self.rules, &Everybody).unwrap();
        (answer.body, effects)
    }

    fn acquire(&mut self, owner: &OwnerId) -> Body {
        let op = Op::Acquire(Acquire {
            kind: Kind::Fair,
            owner: owner.clone(),
            request: RequestId::from_random(u128::from(self.operations)),
            lease_ms: 30_000,
            mode: Mode::Wait,
            order: None,
            not_after_ms: u64::MAX,
            sure: false,
            shared_owner: false,
        });
        self.apply(&op).0
    }

    fn read(&mut self, owner: &OwnerId) -> Body {
        let acquire = Acquire {
            kind: Kind::ReadWrite,
            owner: owner.clone(),
            request: RequestId::from_random(u128::from(self.operations)),
            lease_ms: 30_000,
            mode: Mode::Wait,
            order: None,
            not_after_ms: u64::MAX,
            sure: false,
            shared_owner: false,
        };
        self.apply(&Op::asks(acquire, Share::Read)).0
    }

    /// Returns the token of the next holder, if there is one.
    fn release(&mut self, owner: &OwnerId, token: Token) -> Option<Token> {
        let owner = owner.clone();
        let op = Op::Release { kind: Kind::Fair, owner, token, keep: 0, change: 1 };
        let (body, effects) = self.apply(&op);
        assert_eq!(body, Body::Released);
        effects.into_iter().find_map(|effect| match effect.payload {
            Payload::Grant { grant, .. } => Some(grant.token),
            _ => None,
        })
    }
}

fn owner(n: u64) -> OwnerId {
    OwnerId::ours(ClientId::from_random(7), n + 1).unwrap()
}

fn granted(body: &Body) -> Token {
    match body {
        Body::Granted { token, .. } => *token,
        other => panic!("{other:?}"),
    }
}

/// Takes and releases a free lock.
pub(crate) fn pairs(times: u64) {
    let (mut lock, owner) = (Lock::new(), owner(0));
    for _ in 0..times {
        let token = granted(&lock.acquire(&owner));
        assert_eq!(lock.release(&owner, token), None);
    }
}

/// Reads while another reads.
pub(crate) fn read_pairs(times: u64) {
    let (mut lock, owner, another) = (Lock::new(), owner(0), owner(1));
    granted(&lock.read(&another));
    for _ in 0..times {
        let token = granted(&lock.read(&owner));
        let owner = owner.clone();
        let kind = Kind::ReadWrite;
        let op = Op::Release { kind, owner, token, keep: 0, change: 1 };
        let op = op.of_hold(kind, RequestId::from_random(u128::from(lock.operations - 1)), 0);
        assert_eq!(lock.apply(&op).0, Body::Released);
        // A second is ten thousand operations.
        if lock.operations.is_multiple_of(10_000) {
            let owner = another.clone();
            let op = Op::Renew { kind, owner, token, ttl_ms: 30_000 };
            lock.apply(&op.of_hold(kind, RequestId::from_random(0), 0));
        }
    }
}

/// With this many waiters, the holder hands the lock over and enters at the end of the queue.
pub(crate) fn handovers(waiters: u64, times: u64) {
    let mut lock = Lock::new();
    let mut token = granted(&lock.acquire(&owner(0)));
    for n in 1..=waiters {
        lock.acquire(&owner(n));
    }
    for turn in 0..times {
        let holder = owner(turn % (waiters + 1));
        token = lock.release(&holder, token).unwrap();
        let back = lock.acquire(&holder);
        assert!(matches!(back, Body::Queued { .. }), "{back:?}");
    }
}

/// A heartbeat for the oldest of a thousand waiters.
pub(crate) fn beats(times: u64) {
    let mut lock = Lock::new();
    granted(&lock.acquire(&owner(0)));
    for n in 1..=1_000 {
        lock.acquire(&owner(n));
    }
    let beat = Op::Beat { client: ClientId::from_random(7), waiters: vec![owner(1)] };
    for _ in 0..times {
        lock.apply(&beat);
    }
}
