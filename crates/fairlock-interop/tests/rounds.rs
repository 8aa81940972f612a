//! A slice of the random rounds; `scripts/interop` plays a thousand for each cell of the matrix.

use fairlock_interop::rounds;
use fairlock_testkit::history::now_ns;

use crate::bed::{measured, run};

const ROUNDS: u64 = 30;

#[test]
fn a_few_random_rounds() {
    let seed = std::env::var("FAIRLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| now_ns() % 1_000_000_000);
    run(|bed| async move {
        let report = rounds::run(&bed.server, &bed.java, ROUNDS, seed).await;
        measured(&format!("Redisson {}, seed {seed}: {report}", bed.version()));
        assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
        // A run in which nothing was handed on would show nothing.
        assert!(
            report.hand_overs.rust_to_java.count > 0 && report.hand_overs.java_to_rust.count > 0
        );
    });
}
