//! What every store must do. Each case runs on every store, with a server of its own for each.

mod cancelled;
mod closing;
mod contended;
mod detached;
mod drops;
mod election;
mod enqueue;
mod errors;
mod forced;
mod guards;
mod kinds;
mod latches;
mod listing;
mod looking;
mod loss;
mod max_hold;
mod names;
mod owners;
mod plain;
mod redisson;
mod shares;
mod simple;
mod turns;
mod unordered;
mod unpolled;
mod with;

use super::support::{At, run};
use fairlock_testkit::server::Generation;

/// The cases on `$store` that both APIs can run; `with futures` lists those that need futures.
macro_rules! on {
    ($store:ident, $at:expr, $tier:ident; with futures) => {
        on! {
            $store, $at, $tier;
            enqueue: {
                stores: [leaving_is_confirmed],
                rest: [
                    a_free_lock_is_granted_at_once, it_stands_in_the_queue_when_ready, a_dropped_wait_keeps_the_place,
                    a_timed_wait_keeps_the_place, a_granted_turn_is_renewed, a_granted_turn_ends_with_its_longest_hold,
                    dropped_turns_leave, only_fair_locks_have_a_queue, the_shutdown_ends_them, positions,
                    turns_of_one_owner, no_runtime_is_needed,
                ],
            }
            kinds: {
                stores: [another_kind_than_the_last_is_warned_of_once],
                rest: [a_client_that_mixes_kinds_is_warned_of_once],
            }
            latches: {
                stores: [it_opens_at_zero, a_dropped_wait_leaves_nothing, many_wait_and_many_count_down],
                rest: [
                    a_timed_wait_ends, a_deleted_latch_is_gone, a_latch_that_is_set_anew_is_another,
                    bad_input_is_refused, a_latch_is_no_lock, a_shutdown_ends_the_wait,
                ],
            }
            unpolled: {
                rest: [a_shutdown_does_not_wait_for_one_that_nobody_polls],
            }
            with: {
                stores: [a_value_outlives_the_store],
                rest: [
                    closures_of_both_forms, it_runs_in_a_task, closures_run_with_a_permit, the_lock_is_held_meanwhile,
                    a_loss_cancels_the_closure, a_value_outlives_a_loss, a_value_wins_over_a_loss, a_panic_releases,
                    a_dropped_future_drops_the_closure_first, nothing_is_held_after_it, it_can_give_up_waiting,
                    errors_come_before_the_closure,
                ],
            }
        }
    };
    ($store:ident, $at:expr, $tier:ident; $($more:tt)*) => {
        tests! {
            $store, $at, $tier;
            cancelled: {
                stores: [a_grant_nobody_takes_is_passed_on, a_guard_on_its_way_is_released],
                threads: [
                    an_unpolled_future_does_nothing, while_waiting, the_last_waiter_and_the_next, a_thousand_give_up,
                ],
            }
            closing: {
                stores: [releases_are_waited_for, the_connection_can_be_watched],
                threads: [calls_after_it_are_closed, waiters_end, a_held_guard_ends_with_its_lease],
            }
            contended: {
                stores: [fair],
                rest: [plain, simple, fair_and_plain_names_do_not_touch],
            }
            detached: {
                stores: [the_next_is_served_at_its_end],
                threads: [it_is_renewed_once, it_outlives_its_client],
                rest: [
                    it_stays_until_its_lease_ends, an_end_is_not_moved, others_do_not_free_it,
                    others_are_lost_at_its_end, a_lost_lock_is_not_detached, not_after_the_shutdown,
                    d24_it_stays_for_the_time_that_was_named, d24_what_was_left_for_a_time_is_done,
                    d24_not_for_a_time_beside_other_guards,
                ],
            }
            drops: {
                threads: [
                    inside_a_runtime, in_a_plain_thread, after_the_runtime_is_gone, then_the_client_at_once,
                    a_cancelled_wait_then_the_client_at_once,
                ],
            }
            election: {
                stores: [a_leader_is_seen_by_all, a_resigned_leader_is_followed_in_turn],
                threads: [
                    b43_a_former_leader_announces_nothing, a_lock_that_nobody_announces_has_a_leader_without_a_value,
                    a_leader_that_hangs_is_followed, bad_input_is_refused,
                ],
            }
            errors: {
                stores: [a_lost_lock_names_its_new_holder, a_store_that_is_gone, keys_of_another_type],
                rest: [the_end_of_the_client],
            }
            guards: {
                stores: [reentry, tokens_rise_without_their_key, inspection],
                threads: [a_cancelled_reentry_is_taken_back, release_after_force_is_lost],
                rest: [
                    hold_counts, the_outer_guard_goes_first, the_inner_guard_goes_first, tokens_rise,
                    looks_at_the_holder, guards_name_what_they_hold,
                ],
            }
            listing: {
                stores: [held_waited_for_and_free, odd_names, foreign_ones, only_what_may_be_seen],
                rest: [shares, each_once, the_pace_is_kept, a_bad_pace_is_refused, without_the_store],
            }
            forced: {
                stores: [d15_the_holder_is_told],
            }
            looking: {
                stores: [
                    foreign_waiters, clients_are_named, a_record_lives_as_long_as_its_client, records_may_be_denied,
                ],
                rest: [
                    places_and_times, a_client_says_its_lease_while_all_its_holds_have_it, a_silent_client_is_unknown,
                    odd_records_are_unknown,
                ],
            }
            loss: {
                stores: [an_expired_lock_goes_to_the_next],
                rest: [
                    the_watchdog_keeps_a_lock, an_explicit_lease_ends, signals_of_a_taken_lock,
                    a_lost_guard_does_not_reenter,
                ],
            }
            max_hold: {
                rest: [
                    renewals_end_with_it, a_leaked_guard_ends_with_it, it_shortens_the_lease, a_shorter_lease_counts,
                    a_hand_over_counts_from_the_grant, bad_values_are_refused,
                ],
            }
            names: {
                stores: [odd_names_work, names_that_share_a_queue_do_not_share_grants],
                rest: [
                    odd_names_wait, bad_names_are_refused, bad_leases_are_refused, the_shortest_and_the_longest_lease,
                ],
            }
            owners: {
                threads: [
                    reentry, others_wait_for_all_of_them, requests_at_once_are_one_waiter,
                    a_request_behind_another_has_its_own_end, nothing_that_is_given_up_is_taken_over,
                    a_dropped_reentry_beside_a_release_loses_nothing, an_unknown_hold_of_ones_own_is_waited_for,
                    a_lost_hold_is_not_entered, a_lost_guard_does_not_concern_the_owners_next_hold,
                    a_second_entry_can_be_refused, a_second_request_is_refused_when_the_first_is_granted,
                    a_hold_keeps_its_lease, errors_name_lock_owner_and_holder,
                ],
            }
            plain: {
                stores: [a_release_wakes, a_hand_over_takes_two_scripts],
                threads: [a_timed_wait_ends],
                rest: [
                    exclusion, zero_wait, reentry, expiry, force_unlock, a_cancelled_wait_leaves_nothing,
                    it_looks_as_often_as_it_says, bad_polls_are_refused,
                ],
            }
            redisson: {
                stores: [attempts_leave_no_trace],
                rest: [
                    a_timed_wait_is_exact, time_to_live, a_wait_that_is_looked_away_from_goes_on,
                    many_tasks_on_few_names, a_hold_is_renewed_after_whatever_came_before, leases_that_nobody_ends,
                    trying_is_not_delayed,
                ],
            }
            simple: {
                stores: [a_hand_over_takes_two_scripts, expiry],
                rest: [
                    exclusion, a_release_wakes, a_timed_wait_ends, zero_wait, guards_are_counted,
                    a_lost_guard_counts_nothing, force_unlock, a_cancelled_wait_leaves_nothing, the_watchdog_keeps_it,
                    tokens_rise_across_kinds, kinds_do_not_mix, inspection,
                ],
            }
            shares: {
                stores: [a_long_line_of_readers_comes_in, who_wants_much_waits_in_line],
                rest: [
                    readers_share_and_writers_exclude, neighbours_read_together_and_in_turn, timed_waits_end,
                    readers_come_in_when_the_writer_before_them_goes, what_nobody_waits_for_is_given_back,
                    permits_are_counted, limits_may_differ, bad_input_is_refused, owners_enter_what_they_hold,
                    the_last_guard_that_writes_leaves_a_reader, force_unlock_takes_every_share, leases_end_alone,
                ],
            }
            turns: {
                stores: [force_unlock_hands_on],
                rest: [
                    exclusion, first_in_first_out, a_timed_wait_ends, zero_wait, no_barging, endless_waits,
                    a_place_is_not_lost_by_others_leaving,
                ],
            }
            $($more)*
        }
    };
}

// The parent module names the stores.
contract_stores!(on);
