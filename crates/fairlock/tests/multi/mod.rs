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
    ($store:ident, $at:expr; $($case:ident),* $(,)?) => {
        mod $store {
            $(#[test]
            fn $case() {
                use super::*;
                run($at, |store| super::each_store::$case(store));
            })*
        }
    };
    ($store:ident, $at:expr; with futures) => {
        on! {
            $store, $at;
            free_ones_are_taken_and_given_back, all_or_none, a_try_that_fails_takes_none,
            attempts_beside_others_leave_the_free_one_alone, a_busy_one_is_waited_for,
            opposite_orders_do_not_meet, all_kinds_together, the_lease_begins_with_the_last,
            a_lost_one_loses_all, a_loss_before_the_last_begins_again,
            what_was_lost_unnoticed_is_not_handed_out, the_wait_is_bounded_in_total,
            bad_input_is_refused, one_that_cannot_be_taken_refuses_all, closures, a_dropped_wait_leaves_nothing, one_alone,
        }
    };
}

contract_stores!(on);
