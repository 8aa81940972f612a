//! A sample of the random rounds; `scripts/interop` plays a thousand for each cell of the matrix.

use std::path::Path;

use fairlock_interop::rounds::script::Game;
use fairlock_interop::rounds::{self, Report};
use fairlock_testkit::rng::first_seed;

use crate::fixture::{Fixture, measured, run};

const ROUNDS: u64 = 30;
/// Long rounds, played concurrently.
const LONG_ROUNDS: u64 = 8;

fn seed() -> u64 {
    let seed = std::env::var("FAIRLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    first_seed(seed, false)
}

fn sound(fixture: &Fixture, kind: &str, seed: u64, report: &Report) {
    measured(&format!("Redisson {}, {kind} from seed {seed}: {report}", fixture.version()));
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
}

#[test]
fn a_few_random_rounds() {
    run(|fixture| async move {
        let seed = seed();
        let report = rounds::run(&fixture.server, &fixture.java, ROUNDS, seed).await;
        sound(&fixture, "rounds", seed, &report);
        // A run without hand-overs would prove nothing.
        for game in [Game::Fair, Game::ReadWrite] {
            let ways = &report.of[&game].hand_overs;
            assert!(ways.rust_to_java.count > 0 && ways.java_to_rust.count > 0, "{game:?}");
        }
        // Some of these rounds have few waiters.
        let ways = &report.of[&Game::Latch].hand_overs;
        assert!(ways.rust_to_java.count + ways.java_to_rust.count > 0);
    });
}

#[test]
fn a_few_random_rounds_with_a_wrong_clock() {
    run(|fixture| async move {
        let seed = seed();
        let report = rounds::run_clocks(&fixture.server, &fixture.java, LONG_ROUNDS, seed).await;
        let Some(report) = report else { return };
        sound(&fixture, "clocks", seed, &report);
        assert!(report.all().rounds > LONG_ROUNDS / 2, "too many were spoiled");
    });
}

#[test]
fn a_few_random_rounds_with_deaths() {
    run(|fixture| async move {
        let seed = seed();
        let program = Path::new(env!("CARGO_BIN_EXE_fairlock-interop"));
        let report =
            rounds::run_deaths(&fixture.server, &fixture.java, program, LONG_ROUNDS, seed).await;
        sound(&fixture, "deaths", seed, &report);
        assert_eq!(report.all().rounds, LONG_ROUNDS);
        let games = [Game::Fair, Game::ReadWrite, Game::Latch];
        assert!(games.iter().all(|game| report.of[game].rounds > 0));
    });
}
