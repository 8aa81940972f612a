//! What the kernel has counted for servers that are gone: a test that fails drops its servers
//! before anyone can ask whether they were allowed to run.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::threads::{self, Counts};

/// The threads of each server at its death. One entry for each kill by this process.
static ENDED: Mutex<Vec<(Instant, HashMap<u32, Counts>)>> = Mutex::new(Vec::new());

/// Notes the counts of a server that is about to be killed.
pub(super) fn note(process: u32) {
    // It was killed before, or has ended by itself.
    let Ok(threads) = threads::threads(process) else { return };
    ENDED.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), threads));
}

/// The last counts of the threads of all servers that were killed since `began`.
pub fn ended_since(began: Instant) -> HashMap<u32, Counts> {
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    let since = ended.iter().filter(|(at, _)| *at >= began);
    since.flat_map(|(_, threads)| threads).map(|(thread, counts)| (*thread, *counts)).collect()
}
