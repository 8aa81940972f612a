//! Random sequences for the order of renewals: holds come and go and are planned for any time,
//! lanes hang, connections break, and the watchdog sleeps. Each answer is compared with a plain
//! account of what is planned, waits and is under way.

use crate::support::play_cases;
use fairlock_core::client::{RENEWALS_MAX, Renewals, SLEEP_MAX, Slot};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CASES: u32 = 400;
const ACTS_MAX: usize = 100;

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Watch(u64),
    Forget(usize),
    /// A crowd, whose renewals are wanted at once in this lane.
    Crowd(u64, u64),
    Plan(usize, u64),
    /// The watchdog looks at what is due; some are wanted in this lane.
    Look(u64),
    /// At most so many.
    Renew(u64),
    Free(usize),
    Reconnect,
    Sleep,
}

fn acts() -> impl Strategy<Value = Act> {
    let time = || prop_oneof![0..5_u64, 0..3_000_000_000_u64];
    prop_oneof![
        4 => time().prop_map(Act::Pass),
        4 => time().prop_map(Act::Watch),
        3 => any::<usize>().prop_map(Act::Forget),
        1 => (1..140_u64, 0..3_u64).prop_map(|(count, lane)| Act::Crowd(count, lane)),
        3 => (any::<usize>(), time()).prop_map(|(which, at)| Act::Plan(which, at)),
        4 => (0..3_u64).prop_map(Act::Look),
        6 => prop_oneof![1..3_u64, 1..120_u64].prop_map(Act::Renew),
        4 => any::<usize>().prop_map(Act::Free),
        1 => Just(Act::Reconnect),
        4 => Just(Act::Sleep),
    ]
}

#[derive(Default)]
struct Play {
    renewals: Renewals<u64>,
    now: u64,
    ids: u64,
    /// When each hold is looked at, if a look is planned.
    holds: BTreeMap<u64, Option<u64>>,
    /// The lane and the urgency of those that wait for a slot.
    waiting: BTreeMap<u64, (u64, u64)>,
    /// The lane of each slot, and whether it is of this connection.
    slots: Vec<(Slot, u64, bool)>,
    /// When the watchdog wakes up, while it sleeps.
    wakes: Option<u64>,
}

impl Play {
    fn act(&mut self, act: &Act) -> Result<(), String> {
        match *act {
            Act::Pass(by) => {
                self.now += by;
                if self.wakes.is_some_and(|wakes| wakes <= self.now) {
                    self.wake(true);
                }
            }
            Act::Watch(later) => self.watch(self.now + later),
            Act::Forget(which) => {
                let Some(id) = self.some_hold(which) else { return Ok(()) };
                self.waiting.remove(&id);
                self.holds.remove(&id);
                check(self.renewals.forget(id) == Some(id), "forgets another")?;
                check(self.renewals.forget(id).is_none(), "forgets it twice")?;
            }
            Act::Crowd(count, lane) => {
                for _ in 0..count {
                    self.watch(self.now);
                    self.wake(true);
                    self.want(self.ids, lane);
                }
            }
            Act::Plan(which, later) => {
                let Some(id) = self.some_hold(which) else { return Ok(()) };
                let at = self.now + later;
                self.holds.insert(id, Some(at));
                let missed = self.renewals.plan(id, self.now, at);
                self.wake(missed);
            }
            Act::Look(lane) => {
                self.wake(true);
                let (due, more) = self.renewals.take_due(self.now);
                let now = self.now;
                let planned = |at: &Option<u64>| at.is_some_and(|at| at <= now);
                let mut all: Vec<_> = self
                    .holds
                    .iter()
                    .filter(|(_, at)| planned(at))
                    .map(|(id, at)| (*at, *id))
                    .collect();
                all.sort_unstable();
                let all: Vec<_> = all.into_iter().map(|(_, id)| id).collect();
                check(due == all && !more, "what is due")?;
                for id in due {
                    self.holds.insert(id, None);
                    if id % 2 == 0 {
                        self.want(id, lane);
                    }
                }
            }
            Act::Renew(count) => {
                self.wake(true);
                for _ in 0..count {
                    self.renew()?;
                }
            }
            Act::Free(which) if !self.slots.is_empty() => {
                let (slot, lane, counts) = self.slots[which % self.slots.len()];
                let wanted = counts
                    && self.under_way(lane) == RENEWALS_MAX
                    && self.waiting.values().any(|(other, _)| *other == lane);
                _ = self.slots.swap_remove(which % self.slots.len());
                check(self.renewals.free(slot) == wanted, "who is told of a free slot")?;
            }
            Act::Free(_) => {}
            Act::Reconnect => {
                self.renewals.reconnected();
                self.slots.iter_mut().for_each(|(.., counts)| *counts = false);
            }
            Act::Sleep => {
                self.wake(true);
                let length = self.renewals.fall_asleep(self.now);
                check(length.is_none_or(|length| length <= SLEEP_MAX), "sleeps for too long")?;
                let length = length.map(|length| u64::try_from(length.as_nanos()).unwrap());
                self.wakes = Some(length.map_or(u64::MAX, |length| self.now + length));
            }
        }
        let late = |at: &Option<u64>| {
            at.is_some_and(|at| self.wakes.is_some_and(|end| at.max(self.now) < end))
        };
        let slept = self.holds.values().any(late);
        check(!slept, "sleeps beyond what is due")?;
        check(self.renewals.holds().eq(self.holds.keys()), "which holds there are")
    }

    fn renew(&mut self) -> Result<(), String> {
        let next = self.renewals.next_renewal();
        let lanes: BTreeSet<_> = self.waiting.values().map(|(lane, _)| *lane).collect();
        let lane = lanes.into_iter().find(|lane| self.under_way(*lane) < RENEWALS_MAX);
        let first = lane.and_then(|lane| {
            let of_lane = self.waiting.iter().filter(|(_, (other, _))| *other == lane);
            of_lane.map(|(id, (_, until))| (*until, *id)).min()
        });
        check(next.map(|(id, _)| id) == first.map(|(_, id)| id), "who is renewed next")?;
        if let (Some((id, slot)), Some(lane)) = (next, lane) {
            self.waiting.remove(&id);
            self.slots.push((slot, lane, true));
        }
        Ok(())
    }

    fn watch(&mut self, at: u64) {
        self.ids += 1;
        self.holds.insert(self.ids, Some(at));
        let missed = self.renewals.watch(self.ids, self.ids, self.now, at);
        self.wake(missed);
    }

    fn want(&mut self, id: u64, lane: u64) {
        // Any order of urgency.
        let until = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.waiting.insert(id, (lane, until));
        self.renewals.want(id, until, lane);
    }

    fn wake(&mut self, woken: bool) {
        if woken {
            self.wakes = None;
            self.renewals.awake();
        }
    }

    fn some_hold(&self, which: usize) -> Option<u64> {
        self.holds.keys().nth(which % self.holds.len().max(1)).copied()
    }

    fn under_way(&self, lane: u64) -> usize {
        self.slots.iter().filter(|(_, of, counts)| *of == lane && *counts).count()
    }
}

fn check(right: bool, what: &str) -> Result<(), String> {
    if right { Ok(()) } else { Err(what.to_owned()) }
}

fn play(acts: &[Act]) -> Result<(), String> {
    let mut play = Play::default();
    for (place, act) in acts.iter().enumerate() {
        play.act(act).map_err(|what| format!("act {place}: {what}"))?;
    }
    Ok(())
}

#[test]
fn nothing_that_is_due_is_slept_through_or_forgotten() {
    let strategy = prop::collection::vec(acts(), 1..ACTS_MAX);
    play_cases(CASES, &strategy, |acts| play(acts), |acts| format!("{acts:#?}"));
}
