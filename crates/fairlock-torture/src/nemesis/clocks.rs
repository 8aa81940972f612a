//! Faults of the server's wall clock, moved by the preloaded shim.

use super::{Kind, last};
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::Server;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longer than a lease, and short: for as long as this, tokens may fall if they are lost right
/// after.
pub(crate) const FORWARD_US: i64 = 5_000_000;

const BACKWARD_US: i64 = -3_600_000_000;

/// Half of what the safety margin of a lease covers.
const DRIFT_PPM: i64 = 5_000;

/// What a step must show at least, or a drift after a second.
const SEEN_STEP_US: i64 = 4_000_000;

/// Plays the fault; `None` for a kind of another family.
pub(crate) fn play(kind: Kind, server: &Server, rng: &mut Rng) -> Option<bool> {
    let clock = server.clock();
    let reads = clock.reads();
    let seen = match kind {
        Kind::ClockForward => {
            clock.set_offset(FORWARD_US);
            distance_us(server) > SEEN_STEP_US
        }
        Kind::ClockBackward => {
            clock.set_offset(BACKWARD_US);
            distance_us(server) < -SEEN_STEP_US
        }
        Kind::ClockSlow => {
            clock.set_rate(-DRIFT_PPM);
            true
        }
        Kind::ClockFast => {
            clock.set_rate(DRIFT_PPM);
            true
        }
        _ => return None,
    };
    last(rng.between(300, 1_200));
    let read = clock.reads() > reads;
    clock.real();
    Some(seen && read)
}

/// How far the server's clock is ahead of ours.
fn distance_us(server: &Server) -> i64 {
    let reply = server.client().call(&["TIME"]);
    let [seconds, micros] = reply.array() else { panic!("TIME says {reply:?}") };
    let number = |text: &str| text.parse::<i64>().expect("a number");
    let shown = number(seconds.text()) * 1_000_000 + number(micros.text());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
    shown - i64::try_from(now).expect("before the year 292 000")
}
