//! What the holder of a lock announces, and what others see of it.

use crate::lab::{LEASE, T0, wanted};
use crate::support::{Ears, java, ours, request};
use fairlock_core::{
    Announce, Body, Channel, CoreError, Kind, Leadership, LockState, Op, OwnerId, Payload, Rules,
    Snapshot, Token,
};

const KEPT_MS: u64 = 60_000;

struct Scene {
    lock: LockState,
    now_ms: u64,
    /// Of the last operation.
    told: Vec<(OwnerId, Token)>,
}

impl Scene {
    fn new() -> Self {
        Self { lock: LockState::default(), now_ms: T0, told: Vec::new() }
    }

    fn send(&mut self, op: &Op) -> Body {
        let rules = Rules::default();
        let (answer, effects) =
            self.lock.apply(self.now_ms * 1_000, op, &rules, &Ears::default()).unwrap();
        let said = effects.into_iter().filter(|effect| effect.channel == Channel::Leader);
        self.told = said
            .map(|effect| match effect.payload {
                Payload::Leader { owner, token, at_ms } => {
                    assert_eq!(at_ms, self.now_ms);
                    (owner, token)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        answer.body
    }

    fn takes(&mut self, who: u64) -> Token {
        let got = self.send(&Op::Acquire(wanted(&ours(who, 1), who, self.now_ms)));
        let Body::Granted { token, .. } = got else { panic!("{got:?}") };
        token
    }

    fn says(&mut self, who: u64, token: Token, change: u64, value: &str) -> Body {
        let (owner, value) = (ours(who, 1), value.as_bytes().to_vec());
        self.send(&Op::Announce(Box::new(Announce {
            owner,
            token,
            change,
            ttl_ms: KEPT_MS,
            value,
        })))
    }

    fn releases(&mut self, who: u64, token: Token) {
        let (kind, owner) = (Kind::Fair, ours(who, 1));
        let gone = self.send(&Op::Release { kind, owner, token, keep: 0, change: 1 });
        assert_eq!(gone, Body::Released);
    }

    fn sees(&mut self) -> Leadership {
        let before = self.lock.snapshot().clone();
        let Body::Leader(seen) = self.send(&Op::Leader) else { panic!("a look") };
        let over = before.hold_expires.is_some_and(|at| self.now_ms > at);
        assert!(over || *self.lock.snapshot() == before, "a look changes nothing");
        *seen
    }

    fn value(&mut self) -> Option<String> {
        self.sees().announced.map(|it| String::from_utf8(it.value).unwrap())
    }
}

#[test]
fn a_value_is_seen_as_long_as_its_hold_lasts() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.sees(),
        Leadership { holder: None, token: None, ttl_ms: None, announced: None }
    );
    let token = scene.takes(1);
    let seen = scene.sees();
    assert_eq!(
        (seen.holder, seen.token, seen.ttl_ms),
        (Some(ours(1, 1)), Some(token), Some(LEASE))
    );
    assert_eq!(seen.announced, None);
    assert_eq!(scene.says(1, token, 1, "a"), Body::Announced);
    assert_eq!(scene.told, [(ours(1, 1), token)]);
    let began = scene.now_ms;
    scene.now_ms += 5;
    assert_eq!(scene.says(1, token, 2, "b"), Body::Announced);
    let announced = scene.sees().announced.unwrap();
    assert_eq!((announced.change, announced.since_ms, &announced.value[..]), (2, began, &b"b"[..]));
    scene.releases(1, token);
    assert_eq!(scene.sees().announced, None);
    // Another hold, of the same owner too, has announced nothing.
    let next = scene.takes(1);
    assert!(next > token);
    assert_eq!((scene.sees().token, scene.value()), (Some(next), None));
    assert_eq!(scene.says(1, next, 1, "c"), Body::Announced);
    assert_eq!(scene.sees().announced.unwrap().since_ms, scene.now_ms);
    // Its lease ends, and with it what it has announced.
    scene.now_ms += LEASE + 1;
    assert_eq!((scene.sees().holder, scene.value()), (None, None));
}

/// B43: the old leader's announcement arrives after the next one's.
#[test]
fn b43_a_late_announcement_changes_nothing() {
    let mut scene = Scene::new();
    let old = scene.takes(1);
    scene.releases(1, old);
    let new = scene.takes(2);
    assert_eq!(scene.says(1, old, 1, "old"), Body::NotHeld { holder: Some(ours(2, 1)) });
    assert_eq!(scene.value(), None);
    assert_eq!(scene.says(2, new, 1, "new"), Body::Announced);
    for change in [1, 2, 99] {
        assert_eq!(scene.says(1, old, change, "old"), Body::NotHeld { holder: Some(ours(2, 1)) });
        assert!(scene.told.is_empty());
        assert_eq!(scene.value().as_deref(), Some("new"));
    }
    // Nor does that of an earlier hold of the same owner.
    scene.releases(2, new);
    let again = scene.takes(1);
    assert_eq!(scene.says(1, again, 1, "again"), Body::Announced);
    assert_eq!(scene.says(1, old, 5, "old"), Body::NotHeld { holder: Some(ours(1, 1)) });
    assert_eq!(scene.value().as_deref(), Some("again"));
}

/// A copy of a former value arrives after the next one, in the same term.
#[test]
fn a_delayed_copy_does_not_bring_a_value_back() {
    let mut scene = Scene::new();
    let token = scene.takes(1);
    assert_eq!(scene.says(1, token, 1, "a"), Body::Announced);
    assert_eq!(scene.says(1, token, 2, "b"), Body::Announced);
    assert_eq!(scene.says(1, token, 1, "a"), Body::Stale);
    assert!(scene.told.is_empty());
    assert_eq!(scene.value().as_deref(), Some("b"));
    // The same once more is no news, but keeps it.
    scene.now_ms += LEASE - 1;
    assert_eq!(scene.says(1, token, 2, "b"), Body::Announced);
    assert!(scene.told.is_empty());
    assert_eq!(scene.lock.leader().unwrap().expires, scene.now_ms + KEPT_MS);
}

#[test]
fn an_announcement_ends_by_itself() {
    let mut scene = Scene::new();
    let token = scene.takes(1);
    assert_eq!(scene.says(1, token, 3, "a"), Body::Announced);
    for _ in 0..3 {
        scene.now_ms += KEPT_MS / 3;
        let renew = Op::Renew { kind: Kind::Fair, owner: ours(1, 1), token, ttl_ms: LEASE };
        assert_eq!(scene.send(&renew), Body::Renewed);
    }
    assert_eq!(scene.value().as_deref(), Some("a"), "its last millisecond");
    scene.now_ms += 1;
    assert_eq!(scene.value(), None);
    // Announced again, it is news, whatever its number is.
    assert_eq!(scene.says(1, token, 3, "a"), Body::Announced);
    assert_eq!(scene.told.len(), 1);
}

#[test]
fn others_have_no_term() {
    let mut scene = Scene::new();
    let hold = [(java(1), 1)].into();
    scene.lock = LockState::from_snapshot(Snapshot { hold, ..Snapshot::default() });
    let seen = scene.sees();
    assert_eq!((seen.holder, seen.announced), (Some(java(1)), None));
    let token = Token::new(1).unwrap();
    assert_eq!(scene.says(1, token, 1, "a"), Body::NotHeld { holder: Some(java(1)) });
}

#[test]
fn another_kind_is_refused() {
    let rules = Rules::default();
    for kind in [Kind::Simple, Kind::ReadWrite, Kind::Semaphore] {
        let mut lock = LockState::default();
        let mut acquire = wanted(&ours(1, 1), 1, T0);
        (acquire.kind, acquire.request) = (kind, request(1));
        let share = match kind {
            Kind::Semaphore => fairlock_core::Share::Permits { n: 1, limit: 2 },
            _ => fairlock_core::Share::Whole,
        };
        let op = Op::asks(acquire, share);
        lock.apply(T0 * 1_000, &op, &rules, &Ears::default()).unwrap();
        let refused = lock.apply(T0 * 1_000, &Op::Leader, &rules, &Ears::default()).unwrap_err();
        assert!(matches!(refused, CoreError::WrongType | CoreError::InUse(_)), "{refused:?}");
    }
}
