//! Which tier of tests runs. CONTRIBUTING.md says what the commit tier leaves to the full one.

/// Whether `scripts/test` runs the commit tier, in which exhaustive tests are smaller and random ones shorter.
pub fn is_commit() -> bool {
    std::env::var_os("FAIRLOCK_TEST_COMMIT_TIER").is_some()
}

/// The size of a test: `commit` in the commit tier, `full` in the full one and when a test is run by hand.
pub fn size<T>(commit: T, full: T) -> T {
    if is_commit() { commit } else { full }
}
