//! A store that knows which clients are gone: whose holds end then, and how many clients it is asked about.

use super::scene::{LEASE, Scene, owner, permits, release};
use crate::support::{client, request};
use fairlock_core::{
    Acquire, Answer, Body, ClientId, CoreError, Effect, Kind, LOOKED_AT_MAX, Mode, Op, OwnerId,
    RequestId, Share, ShareAcquire, Token, World,
};
use std::cell::RefCell;
use std::collections::BTreeSet;

#[derive(Default)]
struct Kernel {
    gone: BTreeSet<ClientId>,
    left: BTreeSet<(ClientId, RequestId)>,
    asked: RefCell<BTreeSet<ClientId>>,
}

impl World for Kernel {
    fn inbox(&self, _: ClientId) -> bool {
        true
    }

    fn listening(&self, _: &OwnerId) -> bool {
        false
    }

    fn gone(&self, client: ClientId) -> bool {
        self.asked.borrow_mut().insert(client);
        self.gone.contains(&client)
    }

    fn proves_death(&self) -> bool {
        true
    }

    fn is_left(&self, client: ClientId, _: Token, request: Option<RequestId>) -> bool {
        request.is_some_and(|request| self.left.contains(&(client, request)))
    }
}

fn apply(scene: &mut Scene, world: &Kernel, op: &Op) -> (Answer, Vec<Effect>) {
    world.asked.borrow_mut().clear();
    scene.lock.apply(scene.now * 1_000 + 500, op, &scene.rules, world).expect("not refused")
}

fn tries(scene: &mut Scene, world: &Kernel, n: u64, share: Share) -> bool {
    let acquire = scene.asks(n, share, Mode::Try);
    let op = Op::AcquireShare(Box::new(ShareAcquire { acquire, share }));
    matches!(apply(scene, world, &op).0.body, Body::Granted { .. })
}

#[test]
fn what_was_left_to_the_store_outlives_its_client() {
    for (mut scene, share) in [
        (Scene::rw(), Share::Read),
        (Scene::rw(), Share::Whole),
        (Scene::semaphore(), permits(2, 2)),
    ] {
        scene.gets(1, share);
        let wanted = if share == Share::Read { Share::Whole } else { share };
        let mut world = Kernel { gone: [client(1)].into(), ..Kernel::default() };
        world.left.insert((client(1), request(1)));
        assert!(!tries(&mut scene, &world, 2, wanted), "{share:?}");
        apply(&mut scene, &world, &Op::Nudge);
        assert_eq!(scene.holders(), 1, "{share:?}");
        scene.now += LEASE + 1;
        assert!(tries(&mut scene, &world, 2, wanted), "{share:?}");
    }
}

/// A look shows nobody who is gone, and the store's own search for what the dead left ends their holds.
#[test]
fn the_dead_hold_nothing_that_can_be_seen() {
    let mut scene = Scene::rw();
    for n in 1..=3 {
        scene.gets(n, Share::Read);
    }
    let world = Kernel { gone: [client(1), client(3)].into(), ..Kernel::default() };
    let look = Op::Inspect { kind: Kind::ReadWrite, limit: 0 };
    let Body::Inspected(seen) = apply(&mut scene, &world, &look).0.body else { panic!() };
    let shares = seen.shares.expect("shares");
    assert_eq!((shares.holding, seen.holder.expect("one").owner), (1, owner(2)));
    assert_eq!(scene.holders(), 3, "a look changes nothing");
    apply(&mut scene, &world, &Op::Nudge);
    assert_eq!(scene.holders(), 1);
}

/// A thousand readers live, and one of them goes: that is no reason to ask about all others.
#[test]
fn a_crowd_of_readers_is_not_asked_about_in_vain() {
    const READERS: u64 = 1_000;
    let mut scene = Scene::rw();
    let mut token = None;
    (1..=READERS).for_each(|n| token = Some(scene.gets(n, Share::Read)));
    let token = token.expect("they read");
    scene.waits(2_000, Share::Whole);
    let mut world = Kernel::default();
    apply(&mut scene, &world, &release(Kind::ReadWrite, READERS, token));
    let asked = world.asked.borrow().len();
    assert!(asked <= LOOKED_AT_MAX as usize + 1, "{asked} were asked about");
    // Once all of them are gone, none is in the way.
    world.gone = (1..READERS).map(client).collect();
    let (_, effects) = apply(&mut scene, &world, &Op::Nudge);
    assert_eq!((scene.holders(), effects.len()), (1, 1));
}

/// The last one to die may be any of them, and the call that lets the writer in may be another reader's release.
#[test]
fn a_writer_comes_in_behind_any_number_of_dead_readers() {
    for lives in [1, 64, 65, 66, 100] {
        let mut scene = Scene::rw();
        let mut token = None;
        (1..=100).for_each(|n| token = Some(scene.gets(n, Share::Read)));
        scene.waits(200, Share::Whole);
        let gone = (1..=100).filter(|n| *n != lives).map(client).collect();
        let world = Kernel { gone, ..Kernel::default() };
        let token = token.expect("they read");
        let (_, effects) = apply(&mut scene, &world, &release(Kind::ReadWrite, lives, token));
        assert_eq!((scene.holders(), effects.len()), (1, 1), "{lives}");
        assert!(scene.lock.shares().expect("held").holds().contains_key(&owner(200)), "{lives}");
    }
}

/// Whoever is gone neither holds nor waits: the name is free for another kind, as `status` says. But not while somebody
/// lives who uses it.
#[test]
fn a_name_that_only_the_dead_use_serves_every_kind() {
    let fair = |scene: &Scene| {
        Op::Acquire(Acquire { kind: Kind::Fair, ..scene.asks(9, Share::Whole, Mode::Try) })
    };
    for lives in [false, true] {
        let mut scene = Scene::rw();
        scene.gets(1, Share::Read);
        scene.gets(2, Share::Read);
        scene.waits(3, Share::Whole);
        let world = Kernel { gone: (1..=3).map(client).collect(), ..Kernel::default() };
        if lives {
            scene.waits(4, Share::Read);
        }
        let op = fair(&scene);
        let done = scene.lock.apply(scene.now * 1_000 + 500, &op, &scene.rules, &world);
        match lives {
            true => assert_eq!(done.map(drop), Err(CoreError::InUse(Kind::ReadWrite))),
            false => assert!(matches!(done.expect("free").0.body, Body::Granted { .. })),
        }
    }
    // The other way round.
    let mut scene = Scene::semaphore();
    for n in [1, 2] {
        let acquire = Acquire { kind: Kind::Fair, ..scene.asks(n, permits(1, 1), Mode::Wait) };
        scene.send(&Op::Acquire(acquire));
    }
    let world = Kernel { gone: [client(1), client(2)].into(), ..Kernel::default() };
    assert!(tries(&mut scene, &world, 3, permits(1, 1)));
}
