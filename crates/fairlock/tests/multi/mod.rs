//! Several locks at once: on every store, over several slots, and with faults in paused time.

#[cfg(feature = "test-util")]
mod cancelled;
mod dropped;
mod each_store;
#[cfg(feature = "test-util")]
mod overlapping;
mod server;
#[cfg(feature = "blocking")]
mod threads;

use crate::support::{At, run};
use fairlock_testkit::server::Generation;

macro_rules! on {
    ($store:ident, $at:expr, $tier:ident; with futures) => {
        tests! {
            $store, $at, $tier;
            each_store: {
                stores: [
                    free_ones_are_taken_and_given_back, all_or_none, opposite_orders_do_not_meet, all_kinds_together,
                    a_lost_one_loses_all, bad_input_is_refused,
                ],
                rest: [
                    a_try_that_fails_takes_none, attempts_beside_others_leave_the_free_one_alone,
                    a_busy_one_is_waited_for, the_lease_begins_with_the_last, a_loss_before_the_last_begins_again,
                    what_was_lost_unnoticed_is_not_handed_out, the_wait_is_bounded_in_total,
                    one_that_cannot_be_taken_refuses_all, closures, a_dropped_wait_leaves_nothing, one_alone,
                ],
            }
        }
    };
}

contract_stores!(on);
