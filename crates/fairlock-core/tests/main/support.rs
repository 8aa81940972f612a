//! Names, ids and the outside world of the tests.

use fairlock_core::{ClientId, OwnerId, RequestId, World};
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

/// How long a failing random run is shortened.
const SHRINK_MS_MAX: u32 = 20_000;

pub(crate) fn client(number: u64) -> ClientId {
    ClientId::from_random(u128::from(number))
}

pub(crate) fn ours(client_number: u64, number: u64) -> OwnerId {
    OwnerId::ours(client(client_number), number).unwrap()
}

/// A Redisson owner: a version-4 UUID and a thread id.
pub(crate) fn java(number: u64) -> OwnerId {
    OwnerId::parse(format!("{number:08x}-0000-4000-8000-000000000000:1").as_bytes())
}

pub(crate) fn request(number: u64) -> RequestId {
    RequestId::from_random(u128::from(number))
}

/// The subscribers: every inbox but the deaf ones, and the Java waiters that listen; and the
/// clients that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ears {
    pub(crate) deaf: BTreeSet<ClientId>,
    pub(crate) java: BTreeSet<OwnerId>,
    pub(crate) gone: BTreeSet<ClientId>,
}

impl World for Ears {
    fn inbox(&self, client: ClientId) -> bool {
        !self.deaf.contains(&client)
    }

    fn listening(&self, owner: &OwnerId) -> bool {
        self.java.contains(owner)
    }

    fn gone(&self, client: ClientId) -> bool {
        self.gone.contains(&client)
    }
}

/// The seed and the number of random sequences. A plain run always plays the same ones, so that its
/// result depends on the code alone; `FAIRLOCK_CASES=n` plays others, and `FAIRLOCK_SEED=n`, which
/// a failure prints, repeats them.
fn seed_and_cases(cases: u32) -> (u64, u32) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let others = number("FAIRLOCK_CASES");
    let any = || RandomState::new().hash_one(0) >> 16;
    let seed = number("FAIRLOCK_SEED").unwrap_or_else(|| others.map_or(1, |_| any()));
    (seed, others.map_or(cases, |n| n as u32))
}

/// Plays random cases, and panics with the shortest one that was found to fail.
pub(crate) fn play_cases<S: Strategy>(
    cases: u32,
    strategy: &S,
    play: impl Fn(&S::Value) -> Result<(), String>,
    show: impl FnOnce(&S::Value) -> String,
) {
    let (seed, cases) = seed_and_cases(cases);
    println!("FAIRLOCK_SEED={seed}, {cases} cases");
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        // Reports a failure soon, even if not in its shortest form.
        max_shrink_time: SHRINK_MS_MAX,
        ..Config::default()
    };
    let result =
        TestRunner::new(config).run(strategy, |case| play(&case).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => {
            panic!("FAIRLOCK_SEED={seed}: {why}\n{}", show(&case));
        }
        Err(other) => panic!("FAIRLOCK_SEED={seed}: {other}"),
    }
}
