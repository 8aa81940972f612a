//! Readers who are granted together.

use super::super::run::owner;
use super::beside_java::Scene;
use Share::{Read, Whole};
use fairlock_core::{Body, Kind, Mode, Op, Payload, Share};

/// The server does nothing else meanwhile: a script ends after 128, and says that there are more.
#[test]
fn a_cohort_is_granted_by_128() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let kind = Kind::ReadWrite;
    let token = rw.gets(0, Whole);
    for n in 1..=300 {
        assert!(matches!(rw.ask(n, Read, Mode::Wait), Body::Queued { .. }), "{n}");
    }
    let mut calls = vec![Op::Release { kind, owner: owner(0), token, keep: 0, change: 1 }];
    calls.extend([Op::Nudge.on(kind), Op::Nudge.on(kind)]);
    for (call, (granted, more)) in calls.iter().zip([(128, true), (128, true), (44, false)]) {
        rw.effects.clear();
        let answer = rw.send(call).expect("fine");
        let grants = rw.effects.iter().filter_map(|effect| match &effect.payload {
            Payload::Grant { grant, .. } => Some(grant),
            _ => None,
        });
        let tokens: Vec<_> = grants.map(|grant| grant.token).collect();
        assert_eq!((tokens.len(), answer.more), (granted, more), "{call:?}");
        assert!(tokens.iter().all(|one| *one == tokens[0] && *one > token), "one phase");
    }
}
