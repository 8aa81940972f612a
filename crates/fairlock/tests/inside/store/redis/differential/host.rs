//! The file of the host store as the third party: it carries out the same operations at the same
//! times.

use crate::ErrorKind;
use crate::store::StoreError;
use crate::store::host::{HostFile, OpenOptions};
use fairlock_core::{
    Answer, CoreError, Effect, Kind, Leader, LockName, LockState, Op, Rules, Snapshot, World,
};
use fairlock_testkit::tempdir::TempDir;
use std::time::Duration;

type Done = (Answer, Vec<Effect>);

/// A host store in a file of its own.
pub(super) struct Host {
    file: HostFile,
    name: LockName,
    calls: u64,
    _dir: TempDir,
}

impl Host {
    pub(super) fn new(name: LockName) -> Self {
        let dir = TempDir::new();
        let options =
            OpenOptions { shared_with_group: false, busy: Duration::from_secs(5), create: true };
        let file = HostFile::open(&dir.path().join("locks"), &options).expect("a file of our own");
        Self { file, name, calls: 0, _dir: dir }
    }

    /// Copies what others did to the keys into the file.
    pub(super) fn set(&mut self, now_us: u64, state: &Snapshot, leader: Option<&Leader>) {
        self.file.stopped_us = Some(now_us);
        self.file
            .put(&self.name, &LockState::from_snapshot(state.clone()))
            .expect("the state is written");
        self.file.put_leader(&self.name, leader).expect("the announcement is written");
    }

    /// Carries out `op` in the file and compares the result with the core's.
    ///
    /// # Errors
    /// Both results if they differ.
    pub(super) fn check(
        &mut self,
        now_us: u64,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
        expected: &Result<Done, CoreError>,
        core: &Snapshot,
    ) -> Result<(), String> {
        self.file.stopped_us = Some(now_us);
        self.calls += 1;
        let found = self.file.apply(&self.name, op, rules, world);
        if !same(expected, &found) {
            return Err(format!(
                "the host store differs: {op:?}\ncore {expected:#?}\nfile {found:#?}"
            ));
        }
        // Check only every other time, so that the next operation also finds a state that was not
        // decoded in between.
        if self.calls.is_multiple_of(2) {
            let mut state = self.file.state_of(&self.name).expect("a row that can be read");
            expire(&mut state, now_us, rules, world);
            if state.snapshot() != core {
                let file = state.snapshot();
                return Err(format!(
                    "the host store's row differs: {op:?}\ncore {core:#?}\nfile {file:#?}"
                ));
            }
        }
        Ok(())
    }
}

fn same(expected: &Result<Done, CoreError>, found: &Result<Done, StoreError>) -> bool {
    match (expected, found) {
        (Ok(expected), Ok(found)) => expected == found,
        (Err(expected), Err(found)) => {
            let said = found.error.to_string();
            // The file has no token key to remove, so its error gives other advice.
            let is_told =
                *expected == CoreError::TokenExhausted && said.contains("have reached 2^53");
            found.error.kind() == ErrorKind::WrongType
                && (is_told || said.ends_with(&expected.to_string()))
                && !found.doubt
                && !found.passing
        }
        _ => false,
    }
}

/// A read-only operation leaves expired content in the row; the next operation that writes drops
/// it.
fn expire(state: &mut LockState, now_us: u64, rules: &Rules, world: &dyn World) {
    // Expired content is dropped even if the lock is of another kind.
    let _ = state.apply(now_us, &Op::Inspect { kind: Kind::Fair, limit: 0 }, rules, world);
}
