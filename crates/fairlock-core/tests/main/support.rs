//! Names, ids and the outside world of the tests.

use fairlock_core::{ClientId, OwnerId, RequestId, World};
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

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
    /// Somebody foreign waits for a lock with shares.
    pub(crate) guests: bool,
}

impl World for Ears {
    fn inbox(&self, client: ClientId) -> bool {
        !self.deaf.contains(&client)
    }

    fn listening(&self, owner: &OwnerId) -> bool {
        self.java.contains(owner)
    }

    fn guests(&self) -> bool {
        self.guests
    }

    fn gone(&self, client: ClientId) -> bool {
        self.gone.contains(&client)
    }

    fn proves_death(&self) -> bool {
        !self.gone.is_empty()
    }
}

/// Plays random cases, and panics with the shortest one that was found to fail.
///
/// A plain run always plays the same ones, so that its result depends on the code alone.
/// `FAIRLOCK_CASES=n` plays others, `FAIRLOCK_FUZZ_SECONDS=n` plays others for that long, and
/// `FAIRLOCK_SEED=n`, which a failure prints, repeats them.
pub(crate) fn play_cases<S: Strategy>(
    cases: u32,
    strategy: &S,
    play: impl Fn(&S::Value) -> Result<(), String>,
    show: impl FnOnce(&S::Value) -> String,
) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (others, seconds) = (number("FAIRLOCK_CASES"), number("FAIRLOCK_FUZZ_SECONDS"));
    let any = || RandomState::new().hash_one(0) >> 16;
    let others_wanted = others.or(seconds).is_some();
    let first = number("FAIRLOCK_SEED").unwrap_or_else(|| if others_wanted { any() } else { 1 });
    let cases = others.map_or(cases, |n| n as u32);
    let until = seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let mut played = 0;
    for seed in first.. {
        if let Some((why, case)) = first_failure(seed, cases, strategy, &play) {
            panic!("FAIRLOCK_SEED={seed}: {why}\n{}", show(&case));
        }
        played += u64::from(cases);
        if until.is_none_or(|until| Instant::now() >= until) {
            break;
        }
    }
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("measured: {name}: {played} cases from seed {first}");
}

fn first_failure<S: Strategy>(
    seed: u64,
    cases: u32,
    strategy: &S,
    play: impl Fn(&S::Value) -> Result<(), String>,
) -> Option<(String, S::Value)> {
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
        Ok(()) => None,
        Err(TestError::Fail(why, case)) => Some((why.to_string(), case)),
        Err(other) => panic!("FAIRLOCK_SEED={seed}: {other}"),
    }
}
