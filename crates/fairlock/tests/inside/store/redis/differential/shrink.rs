//! Shortens a failing run: leaves out steps as long as it still fails.

use super::fixture::Fixture;
use super::run::{Mismatch, Seen, run};
use super::step::Plan;

/// The shortest failing run found by leaving out steps, and its difference. Any difference counts,
/// not only the first one found.
pub(super) fn shrink(fixture: &mut Fixture, plan: &Plan, first: Mismatch) -> (Plan, Mismatch) {
    let mut best = plan.clone();
    let mut failure = first;
    best.steps.truncate(failure.at + 1);
    let mut chunk = best.steps.len().div_ceil(2);
    loop {
        let mut removed = false;
        let mut from = 0;
        while from < best.steps.len() {
            let to = (from + chunk).min(best.steps.len());
            let mut trial = best.clone();
            trial.steps.drain(from..to);
            match run(fixture, &trial, &mut Seen::new()) {
                Err(mismatch) => {
                    trial.steps.truncate(mismatch.at + 1);
                    (best, failure) = (trial, mismatch);
                    removed = true;
                }
                Ok(()) => from = to,
            }
        }
        if chunk == 1 && !removed {
            return (best, failure);
        }
        if !removed {
            chunk = chunk.div_ceil(2);
        }
    }
}
