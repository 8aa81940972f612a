//! Seeded random numbers that replace the operating system's on threads that simulate.

use fairlock_testkit::rng::Rng;
use std::cell::RefCell;

thread_local! {
    static HERE: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// Seeds this thread's random numbers; `None` returns to the operating system's.
pub(crate) fn set(seed: Option<u64>) {
    HERE.set(seed.map(Rng::new));
}

pub(super) fn fill(bytes: &mut [u8]) -> bool {
    HERE.with_borrow_mut(|here| {
        let Some(rng) = here else { return false };
        bytes.fill_with(|| rng.below(256) as u8);
        true
    })
}
