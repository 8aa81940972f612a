//! Random numbers with a seed, in place of those of the operating system, on threads that simulate.

use fairlock_testkit::rng::Rng;
use std::cell::RefCell;

thread_local! {
    static HERE: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// From now on chance has this seed on this thread; without one it is chance again.
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
