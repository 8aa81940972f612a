//! What happens to a client that the world knows to be gone: a store on one host asks the kernel.

use crate::lab::{T0, wanted};
use crate::support::{Ears, client, ours};
use fairlock_core::{
    Acquire, Answer, Body, Channel, Effect, Kind, LOOKED_AT_MAX, LockState, Op, OwnerId, Payload,
    Rules,
};

struct Bed {
    lock: LockState,
    ears: Ears,
    rules: Rules,
    now_ms: u64,
}

impl Bed {
    fn new() -> Self {
        let rules = Rules { ages: false, ..Rules::default() };
        Self { lock: LockState::default(), ears: Ears::default(), rules, now_ms: T0 }
    }

    fn apply(&mut self, op: &Op) -> (Answer, Vec<Effect>) {
        self.lock.apply(self.now_ms * 1_000, op, &self.rules, &self.ears).unwrap()
    }

    fn ask(&mut self, kind: Kind, who: u64) -> Body {
        let op = Op::Acquire(Acquire { kind, ..wanted(&ours(who, 1), who, self.now_ms) });
        self.apply(&op).0.body
    }

    fn holder(&self) -> Option<&OwnerId> {
        self.lock.snapshot().hold.keys().next()
    }
}

fn granted_to(effects: &[Effect]) -> Vec<u64> {
    let mut all = Vec::new();
    for effect in effects {
        if let (Channel::Inbox(to), Payload::Grant { .. }) = (&effect.channel, &effect.payload) {
            all.extend((1..100).filter(|number| client(*number) == *to));
        }
    }
    all
}

#[test]
fn a_hold_ends_with_its_client_and_the_next_has_it() {
    let mut bed = Bed::new();
    assert!(matches!(bed.ask(Kind::Fair, 1), Body::Granted { .. }));
    assert!(matches!(bed.ask(Kind::Fair, 2), Body::Queued { .. }));
    let (_, effects) = bed.apply(&Op::Nudge);
    assert!(effects.is_empty() && bed.holder() == Some(&ours(1, 1)), "it lives");
    bed.ears.gone.insert(client(1));
    let (_, effects) = bed.apply(&Op::Nudge);
    assert_eq!(granted_to(&effects), [2]);
    assert_eq!(bed.holder(), Some(&ours(2, 1)));
}

#[test]
fn plain_and_simple_holds_end_with_their_client() {
    for kind in [Kind::Plain, Kind::Simple] {
        let mut bed = Bed::new();
        assert!(matches!(bed.ask(kind, 1), Body::Granted { .. }));
        assert!(!matches!(bed.ask(kind, 2), Body::Granted { .. }));
        bed.ears.gone.insert(client(1));
        assert!(matches!(bed.ask(kind, 2), Body::Granted { .. }), "{kind:?}");
    }
}

/// Nobody is judged by age: only clients that are gone are passed over, however many they are and
/// however long the others have waited.
#[test]
fn waiters_that_are_gone_are_passed_and_silent_ones_are_not() {
    let mut bed = Bed::new();
    for who in 1..=5 {
        bed.ask(Kind::Fair, who);
    }
    bed.ears.gone.extend([client(1), client(2), client(3), client(5)]);
    // Longer than any heartbeat counts, shorter than the registry lives.
    bed.now_ms += 2 * bed.rules.dead_ms;
    let (answer, effects) = bed.apply(&Op::Nudge);
    assert_eq!((answer.removed, granted_to(&effects)), (2, vec![4]));
    let Payload::Grant { grant, .. } = &effects[0].payload else { panic!("{effects:?}") };
    assert_eq!(
        grant.ttl_ms, bed.rules.beat_ms,
        "it was not heard of for long: it has to confirm soon"
    );
}

#[test]
fn many_that_are_gone_go_in_bounded_steps() {
    let mut bed = Bed::new();
    let many = u64::from(LOOKED_AT_MAX) + 10;
    for who in 1..=many + 1 {
        bed.ask(Kind::Fair, who);
    }
    bed.ears.gone.extend((1..=many).map(client));
    let (answer, _) = bed.apply(&Op::Nudge);
    assert!(answer.more && answer.removed == LOOKED_AT_MAX, "{answer:?}");
    let (answer, _) = bed.apply(&Op::Nudge);
    assert!(!answer.more);
    assert_eq!(bed.holder(), Some(&ours(many + 1, 1)));
}
