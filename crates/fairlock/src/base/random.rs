//! Random numbers from the operating system, and request ids made of them.

use crate::base::clock::lock;
use crate::base::error::{Error, ErrorKind};
use fairlock_core::RequestId;
use std::sync::Mutex;

/// How many request ids are drawn at once. A call for 16 bytes takes a tenth of the time that a
/// store in this process needs for a lock and its release; a call for 64 times as many takes ten
/// times as long.
const AT_ONCE: usize = 64;

const ID_BYTES: usize = 16;

/// 128 random bits.
pub(crate) fn random_bits() -> Result<u128, Error> {
    let mut bytes = [0; ID_BYTES];
    fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// 32 random bits.
pub(crate) fn random_u32() -> Result<u32, Error> {
    let mut bytes = [0; 4];
    fill(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The only source of randomness. Everything else is deterministic (`select!` is biased, and
/// nothing is iterated in hash order), so a simulated run can be repeated.
fn fill(bytes: &mut [u8]) -> Result<(), Error> {
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    if seeded::fill(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes).map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            format!("the operating system gives no random numbers: {error}"),
        )
    })
}

/// The request ids of one client: 128 random bits each, drawn in batches, each handed out once.
///
/// A forked child's copy would hand out the parent's ids again. It is never used: in a child,
/// clients refuse every call, unless the store is inside the process and was copied as well.
#[derive(Default)]
pub(crate) struct Requests(Mutex<Drawn>);

struct Drawn {
    bits: [u128; AT_ONCE],
    /// How many ids are not handed out yet: the first ones in `bits`.
    left: usize,
}

impl Default for Drawn {
    fn default() -> Self {
        Self { bits: [0; AT_ONCE], left: 0 }
    }
}

impl Requests {
    pub(crate) fn draw(&self) -> Result<RequestId, Error> {
        self.draw_bits().map(RequestId::from_random)
    }

    fn draw_bits(&self) -> Result<u128, Error> {
        let mut drawn = lock(&self.0);
        if drawn.left == 0 {
            let mut bytes = [0; AT_ONCE * ID_BYTES];
            fill(&mut bytes)?;
            let (ids, _) = bytes.as_chunks::<ID_BYTES>();
            drawn.bits = std::array::from_fn(|at| u128::from_le_bytes(ids[at]));
            drawn.left = AT_ONCE;
        }
        drawn.left -= 1;
        let at = drawn.left;
        // Ids in use are not kept here.
        Ok(std::mem::take(&mut drawn.bits[at]))
    }
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../tests/inside/base/random/seeded.rs"]
pub(crate) mod seeded;

#[cfg(test)]
mod tests {
    use super::*;

    /// F89. A million draws without a repeat: with fewer than 2^36 different values there would be
    /// one (the chance of none is below e^-7). Each of the 128 bits is set in half of the draws, to
    /// within six standard deviations, so none is fixed. From that follows by calculation that ten
    /// million ids of 122 such bits repeat with a chance below 10^-23; a test of it could not run
    /// long enough to fail.
    fn judge(mut all: Vec<u128>) {
        let looked_at = all.iter().step_by(10).count() as f64;
        let mut set = [0_u32; 128];
        for bits in all.iter().step_by(10) {
            for (bit, count) in set.iter_mut().enumerate() {
                *count += (bits >> bit & 1) as u32;
            }
        }
        let deviation = (looked_at / 4.0).sqrt();
        for (bit, count) in set.into_iter().enumerate() {
            let off = (f64::from(count) - looked_at / 2.0).abs() / deviation;
            assert!(off < 6.0, "bit {bit} is set in {count} of {looked_at}");
        }
        all.sort_unstable();
        let repeats = all.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(repeats, 0);
    }

    /// Draws a million, on four threads at the same time.
    fn draw_all(draw: impl Fn() -> Result<u128, Error> + Sync) -> Vec<u128> {
        const EACH: usize = 250_000;
        std::thread::scope(|scope| {
            let draw = || (0..EACH).map(|_| draw().unwrap()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn requests_do_not_repeat_and_no_bit_is_fixed() {
        let requests = Requests::default();
        judge(draw_all(|| requests.draw_bits()));
    }

    /// Not in the commit tier.
    mod full {
        use super::*;

        #[test]
        fn random_bits_do_not_repeat_and_none_is_fixed() {
            judge(draw_all(random_bits));
        }

        #[test]
        fn clients_share_no_requests() {
            let clients: Vec<_> = (0..1_000).map(|_| Requests::default()).collect();
            let draw = |_| clients.iter().map(|requests| requests.draw_bits().unwrap());
            judge((0..1_000).flat_map(draw).collect());
        }
    }
}
