//! The contract of `fairlane::store`, sentence by sentence: one suite over every store, and a test that walks the
//! embedded store and the in-memory one in lockstep.

#![cfg(test)]

#[path = "store/append.rs"]
mod append;
#[path = "store/elsewhere.rs"]
mod elsewhere;
#[path = "store/in_shards.rs"]
mod in_shards;
#[path = "store/lists.rs"]
mod lists;
#[path = "store/lockstep.rs"]
mod lockstep;
#[path = "store/moves.rs"]
mod moves;
#[path = "store/on_redis.rs"]
mod on_redis;
#[path = "store/outages.rs"]
mod outages;
#[path = "store/owners.rs"]
mod owners;
#[path = "store/power.rs"]
mod power;
#[path = "store/queues.rs"]
mod queues;
#[path = "support/redis.rs"]
#[expect(dead_code, reason = "servers with users, replicas and clusters are for other tests")]
mod redis_servers;
#[path = "store/reopening.rs"]
mod reopening;
#[path = "store/repeats.rs"]
mod repeats;
#[path = "store/settle.rs"]
mod settle;
#[path = "store/site.rs"]
mod site;
#[path = "store/snapshot.rs"]
mod snapshot;
#[path = "store/spool.rs"]
mod spool;
#[path = "store/spool_redis.rs"]
mod spool_redis;
#[path = "store/survival.rs"]
mod survival;
#[path = "store/trouble.rs"]
mod trouble;
#[path = "store/world.rs"]
mod world;

/// The cases of the suite as tests of one store.
macro_rules! contract {
    ($module:ident: $subject:ty) => {
        contract! { $module: $subject =>
            append::{
                seqs_start_at_1_and_follow_without_a_gap
                an_empty_batch_takes_nothing_and_names_the_next_seq
                a_batch_is_there_whole_and_in_order_after_a_crash
                a_batch_larger_than_a_segment_is_still_one_batch
                bodies_come_back_byte_for_byte
                every_field_of_an_event_comes_back
                header_lines_come_back_in_their_order
                an_append_a_settlement_and_reads_may_run_side_by_side
            }
            settle::{
                a_settlement_about_no_event_is_counted_and_changes_nothing
                a_settlement_may_be_repeated
                a_batch_of_settlements_counts_exactly_those_that_changed_nothing
                settlements_of_one_batch_apply_in_their_order
                begun_counts_an_attempt_and_leaves_the_event_open
                a_retry_waits_for_its_due_time
                a_released_event_is_fresh_at_its_old_place
                ended_events_leave_their_lane_and_stay_readable
                pending_ones_end_from_wherever_they_stand
                the_first_attempt_stays_the_first
                interruptions_in_a_row_are_counted_and_another_end_resets_them
                refused_attempts_are_counted_for_the_life_of_an_event
                a_story_has_its_attempts_exactly_and_oldest_first
                ended_events_are_made_pending_in_the_order_given_and_others_are_not
                a_requeued_event_goes_to_the_end_of_its_lane_with_its_history
                an_event_may_be_requeued_again_and_again
                only_ended_events_are_requeued
            }
            repeats::{
                a_repeat_is_suppressed_in_its_own_batch_and_later
                a_window_ends_and_outlives_every_kind_of_restart
                what_repeats_an_ended_event_is_suppressed_and_what_repeats_a_dead_one_is_new
                a_repeat_that_is_released_goes_its_way_like_any_other
                suppressed_events_are_kept_as_long_as_they_should_be
                of_two_at_the_same_time_one_is_taken
            }
            queues::{
                load_pages_through_a_lane_in_order
                load_gives_fresh_events_alone
                due_is_ordered_over_all_lanes_by_time_then_seq
                open_pages_in_the_order_of_seqs
                lanes_are_paged_in_the_order_of_their_names
                a_thousand_lanes_are_all_there
                groups_in_odd_written_forms_stay_apart
                parts_of_a_group_are_lanes_of_their_own
                a_lane_is_gone_with_its_last_pending_event_and_comes_back
                summaries_add_up
                a_lane_says_when_its_oldest_pending_event_was_received
            }
            lists::{
                a_list_is_newest_first_and_paged_to_its_end
                every_filter_alone_and_together
                a_rare_event_is_found_behind_many_others
                a_list_that_is_paged_while_events_end_misses_none
                unknown_ids_and_seqs_are_none
            }
            survival::{
                an_empty_store_reopens_empty
                reopening_after_a_clean_close_gives_the_same_answers
                reopening_after_a_crash_gives_the_same_answers
                numbering_goes_on_after_reopening
                a_batch_under_way_in_a_crash_is_there_whole_or_not_at_all
                what_was_open_in_a_crash_is_open_after_it
                interruptions_are_counted_over_crashes
                a_closed_store_answers_nothing
                an_open_store_admits_every_group
                ended_events_are_gone_after_their_retention_and_pending_ones_never
                usage_counts_what_is_there
            }
        }
    };
    ($module:ident: $subject:ty => $($file:ident::{$($case:ident)+})+) => {
        mod $module {
            $($(
                #[test]
                fn $case() {
                    crate::world::run(async { crate::$file::$case(crate::world::World::<$subject>::new().await).await });
                }
            )+)+
        }
    };
}

contract!(memory: crate::world::InMemory);
contract!(embedded: crate::world::OnDisk);
// The same with tiny segments, and a checkpoint after nearly every batch.
contract!(restless: crate::world::Restless);
// And with nothing left but the log after each crash.
contract!(forgetful: crate::world::Forgetful);
// One that is elsewhere and answers, behind a spool.
contract!(spooled: crate::spool::BehindSpool);
// The same while it does not answer: what there is to say of events that nobody can deliver.
contract!(away: crate::spool::Away =>
    append::{
        a_batch_is_there_whole_and_in_order_after_a_crash
        bodies_come_back_byte_for_byte
        header_lines_come_back_in_their_order
    }
);
// A server of its own for each case; with one shard its seqs are those of any other store.
contract!(in_redis: crate::on_redis::OnRedis<1>);
// With more shards the cases that do not count on one row of seqs; tests/store/in_shards.rs has the others in its own words.
contract!(in_seven_shards: crate::on_redis::OnRedis<7> =>
    append::{
        a_batch_is_there_whole_and_in_order_after_a_crash
        every_field_of_an_event_comes_back
        header_lines_come_back_in_their_order
    }
    settle::{
        a_settlement_may_be_repeated
        begun_counts_an_attempt_and_leaves_the_event_open
        a_retry_waits_for_its_due_time
        a_released_event_is_fresh_at_its_old_place
        ended_events_leave_their_lane_and_stay_readable
        pending_ones_end_from_wherever_they_stand
        interruptions_in_a_row_are_counted_and_another_end_resets_them
        a_story_has_its_attempts_exactly_and_oldest_first
        an_event_may_be_requeued_again_and_again
        only_ended_events_are_requeued
    }
    queues::{
        load_gives_fresh_events_alone
        due_is_ordered_over_all_lanes_by_time_then_seq
        lanes_are_paged_in_the_order_of_their_names
        parts_of_a_group_are_lanes_of_their_own
        a_lane_is_gone_with_its_last_pending_event_and_comes_back
    }
    lists::{
        a_list_that_is_paged_while_events_end_misses_none
    }
    survival::{
        what_was_open_in_a_crash_is_open_after_it
        interruptions_are_counted_over_crashes
        a_closed_store_answers_nothing
        an_open_store_admits_every_group
    }
);

/// The walk itself: two in-memory stores cannot differ, but every step of theirs is checked for answers that contradict
/// one another.
#[test]
fn generated_lives_contradict_themselves_nowhere() {
    lockstep::walk::<world::InMemory, world::InMemory>();
}

#[test]
fn the_embedded_store_lives_as_the_one_in_memory_does() {
    lockstep::walk::<world::InMemory, world::OnDisk>();
}

#[test]
fn the_embedded_store_lives_so_with_many_checkpoints_and_segments_too() {
    lockstep::walk::<world::InMemory, world::Restless>();
}

#[test]
fn the_store_in_redis_lives_as_the_one_in_memory_does() {
    lockstep::walk::<world::InMemory, on_redis::OnRedis<1>>();
}

#[test]
fn the_embedded_store_lives_so_when_only_the_log_survives() {
    lockstep::walk::<world::InMemory, world::Forgetful>();
}
