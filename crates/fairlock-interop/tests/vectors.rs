//! The golden vectors (`testing/vectors`), replayed by the jars that they were recorded from.

use fairlock_interop::vectors::Recorder;
use fairlock_interop::version::Version;
use fairlock_testkit::vectors::{Vector, mismatch};

use crate::fixture::generation;

/// The files must match what Redisson does: each has an outcome for this version, or an object that
/// this version lacks.
#[test]
fn the_jars_do_what_the_files_say() {
    let version = Version::of_environment();
    let Some(mut recorder) = Recorder::start(version, generation()) else { return };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let mut wrong = Vec::new();
    let mut played = 0;
    for vector in Vector::all() {
        if !recorder.plays(&vector) {
            continue;
        }
        let said = vector.java_outcome(version.name());
        let said = said.unwrap_or_else(|| panic!("{}: not recorded from {version}", vector.name));
        let seen = runtime.block_on(recorder.play(&vector, Some(&said)));
        if let Some(difference) = mismatch(&said, &seen) {
            wrong.push(format!("{}: {difference}", vector.name));
        }
        played += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(played > 80, "only {played}");
}
