//! A server without free memory (F28, A3, A20): operations that release or keep a lock work,
//! acquisitions are refused and leave nothing behind, and no grant is published without its hold.

use super::fixture::Fixture;
use super::rng::{Rng, seed};
use super::run::{Found, Run, START_US, Seen};
use super::step::{Named, Place, Plan, Step, Who};
use fairlock_core::{Body, Kind, Mode, Op, Rules, Snapshot};
use fairlock_testkit::server::Generation;

/// Operations that each server carries out without free memory.
const OPERATIONS: u64 = 1_500;

impl Run<'_> {
    /// Carries out `op` while the server has no free memory.
    ///
    /// # Errors
    /// If anything but an acquisition is refused, a refusal leaves a trace, or the two sides
    /// differ.
    fn without_memory(&mut self, op: &Op) -> Result<Option<Body>, String> {
        let before = self.ask_nothing();
        self.fixture.raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
        let found = self.ask(op);
        self.fixture.raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
        let refused = found.result.as_ref().is_err_and(|error| error.contains("OOM"));
        if !refused {
            return Ok(self.judge(op, found)?.map(|answer| answer.body));
        }
        let Found { heard, dump, .. } = &found;
        if !matches!(op, Op::Acquire(_)) || !heard.is_empty() || *dump != before {
            return Err(format!("refused: {op:?}\n{found:#?}\nbefore {before:#?}"));
        }
        self.count("refused: memory");
        Ok(None)
    }
}

fn random_histories(generation: Generation) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    let mut seed = seed();
    println!("FAIRLOCK_SEED={seed} on {}", generation.name());
    let mut seen = Seen::new();
    let mut operations = 0;
    while operations < OPERATIONS {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(seed);
        fixture.long_way = seed.is_multiple_of(3);
        fixture.reset(START_US);
        let mut run = Run::new(&mut fixture, plan.rules.clone(), Snapshot::default(), &mut seen);
        for step in &plan.steps {
            let result = if step.is_operation() && !run.is_garbage() && rng.chance(30) {
                operations += 1;
                let op = run.resolve(step);
                run.without_memory(&op).map(drop)
            } else {
                run.step(step)
            };
            result.unwrap_or_else(|story| panic!("FAIRLOCK_SEED={seed} {step:?}\n{story}"));
        }
        seed = seed.wrapping_add(1);
    }
    println!("{seen:#?}");
    assert!(seen.contains_key("refused: memory") && seen.contains_key("message: Inbox"));
}

#[test]
fn a03_without_memory_all_but_acquiring_works_on_redis_6_2() {
    random_histories(Generation::Redis62);
}

#[test]
fn a03_without_memory_all_but_acquiring_works_on_redis_7_0() {
    random_histories(Generation::Redis70);
}

#[test]
fn a03_without_memory_all_but_acquiring_works_on_valkey_9_1() {
    random_histories(Generation::Valkey91);
}

fn acquire(owner: u64) -> Step {
    Step::acquire(owner, Mode::Wait, Place::New, true)
}

/// The story of A3 and A20, step by step: one owner holds, one waits, memory runs out. The waiter's
/// heartbeat, the holder's renewal and re-entry, the release with its hand-over, and giving up all
/// work; a new acquisition fails and leaves nothing behind.
#[test]
fn a03_a20_a_lock_lives_through_a_server_without_memory() {
    use fairlock_core::Body::*;
    for generation in Generation::few() {
        let Some(mut fixture) = Fixture::start(generation) else { continue };
        fixture.reset(START_US);
        let mut seen = Seen::new();
        let mut run = Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
        run.step(&acquire(0)).unwrap();
        run.step(&acquire(1)).unwrap();
        run.step(&Step::Time(1_000_000)).unwrap();
        let (who, token) = (Who::Holder, Named::Last);
        let mut pressed = |step: &Step| {
            let op = run.resolve(step);
            run.without_memory(&op).unwrap_or_else(|story| panic!("{generation:?}: {story}"))
        };
        assert_eq!(pressed(&acquire(2)), None);
        let beat = pressed(&Step::Beat { client: 1, waiters: vec![1] });
        assert!(matches!(beat, Some(Beaten { queued, .. }) if queued == [true]));
        assert_eq!(
            pressed(&Step::Renew { kind: Kind::Fair, who, token, ttl_ms: 30_000 }),
            Some(Renewed)
        );
        let again = pressed(&Step::Reenter { who, token, count: 2, change: 1 });
        assert_eq!(again, Some(StillHeld { count: 2 }));
        let release = |keep, change| Step::Release { kind: Kind::Fair, who, token, keep, change };
        assert_eq!(pressed(&release(1, 2)), Some(StillHeld { count: 1 }));
        assert_eq!(pressed(&release(0, 3)), Some(Released));
        let leave = |owner| Step::Leave {
            kind: Kind::Fair,
            who: Who::Owner(owner),
            request: 0,
            bury: true,
            shared: false,
        };
        // The release has handed it the lock; not knowing that, it gives up.
        assert_eq!(pressed(&leave(1)), Some(Freed));
        assert_eq!(pressed(&acquire(2)), None);
        assert_eq!(pressed(&leave(2)), Some(Nothing));
        assert_eq!(run.core().snapshot().queue.len(), 0);
        assert!(seen.contains_key("message: Inbox"), "the release handed over: {seen:?}");
    }
}
