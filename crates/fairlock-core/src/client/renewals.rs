//! The order in which a client looks at its holds and renews them. Times are nanoseconds of any
//! monotonic clock of the caller's choice.

use super::heartbeat::Pace;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most renewals under way at once in one lane, usually a connection: enough to fill a round trip,
/// few enough to bound the backlog of a stalled server.
pub const RENEWALS_MAX: usize = 100;

/// Most holds looked at before other tasks of the thread get their turn: well below a millisecond.
const LOOKS_MAX: usize = 1_000;

/// Longest sleep while there are holds. Timers stand still while the machine is suspended, but the
/// clock of leases does not; after a resume, a loss is reported within this time. The first sleep
/// after the last hold is no longer either, so that a client that takes and frees locks all the
/// time need not wake the watchdog's thread for each of them.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The holds of a client, which the caller identifies by `H`, and when each of them is due. Holds
/// are identified by number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewals<H> {
    holds: BTreeMap<u64, Entry<H>>,
    /// When each hold is looked at next.
    looks: BTreeSet<(u64, u64)>,
    /// One for each lane of the store, so that a server that hangs delays only its own locks.
    lanes: BTreeMap<u64, Lane>,
    /// Counts the connections; a slot belongs to one.
    era: u64,
    sleep: Sleep,
    /// Whether anything was planned since the watchdog last fell asleep.
    used: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<H> {
    hold: H,
    look_ns: Option<u64>,
    /// Where it waits for its renewal, if it does: the lane, and the end of its validity.
    waits: Option<(u64, u64)>,
    /// Of a hold about which there was a message. Boxed, because it is rare.
    told: Option<Box<Told>>,
}

/// The looks at a hold because of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Told {
    /// When the next one is, if it is planned. Nothing that is planned later replaces it.
    at_ns: Option<u64>,
    pace: Pace,
}

/// The renewals of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lane {
    /// Holds whose renewal is due and has no slot yet, by the end of their validity.
    waiting: BTreeSet<(u64, u64)>,
    /// The number of renewals under way.
    slots: usize,
}

/// The right to one renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "it is given back with `Renewals::free`"]
pub struct Slot {
    lane: u64,
    era: u64,
}

/// How long the watchdog sleeps, for callers that plan something in the meantime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Sleep {
    /// It looks at the plan before it sleeps again, or was woken to.
    #[default]
    Awake,
    /// Until this moment.
    Until(u64),
    Endless,
}

impl Sleep {
    /// Whether the watchdog would miss what is due at `at_ns`. A sleep that should be over is not
    /// relied upon: the machine may have been suspended, which makes the timer late by as much.
    fn misses(self, now_ns: u64, at_ns: u64) -> bool {
        match self {
            Self::Awake => false,
            Self::Until(end_ns) => at_ns < end_ns || end_ns <= now_ns,
            Self::Endless => true,
        }
    }
}

impl Lane {
    fn is_full(&self) -> bool {
        self.slots >= RENEWALS_MAX
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots == 0
    }
}

impl<H> Default for Renewals<H> {
    fn default() -> Self {
        Self {
            holds: BTreeMap::new(),
            looks: BTreeSet::new(),
            lanes: BTreeMap::new(),
            era: 0,
            sleep: Sleep::default(),
            used: false,
        }
    }
}

impl<H: Clone> Renewals<H> {
    /// Adds a hold, which is looked at when it is `at_ns`. Returns whether the watchdog must be
    /// woken for that.
    #[must_use = "the watchdog may sleep for too long"]
    pub fn watch(&mut self, id: u64, hold: H, now_ns: u64, at_ns: u64) -> bool {
        let entry = Entry { hold, look_ns: Some(at_ns), waits: None, told: None };
        let former = self.holds.insert(id, entry);
        debug_assert!(former.is_none(), "{id} is watched already");
        self.look_at(id, now_ns, at_ns)
    }

    /// Removes a hold, which is not renewed any more.
    pub fn forget(&mut self, id: u64) -> Option<H> {
        let entry = self.holds.remove(&id)?;
        if let Some(at_ns) = entry.look_ns {
            self.looks.remove(&(at_ns, id));
        }
        if let Some((lane, until_ns)) = entry.waits
            && let Some(lane) = self.lanes.get_mut(&lane)
        {
            lane.waiting.remove(&(until_ns, id));
        }
        Some(entry.hold)
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = &H> {
        self.holds.values().map(|entry| &entry.hold)
    }

    /// Plans the next look at a hold, instead of any planned earlier. A hold that was forgotten
    /// stays forgotten. Returns whether the watchdog must be woken for it.
    #[must_use = "the watchdog may sleep for too long"]
    pub fn plan(&mut self, id: u64, now_ns: u64, at_ns: u64) -> bool {
        let Some(entry) = self.holds.get_mut(&id) else { return false };
        let told_ns = entry.told.as_ref().and_then(|told| told.at_ns);
        let at_ns = told_ns.map_or(at_ns, |told_ns| at_ns.min(told_ns));
        if let Some(earlier) = entry.look_ns.replace(at_ns) {
            self.looks.remove(&(earlier, id));
        }
        self.look_at(id, now_ns, at_ns)
    }

    /// Plans a look at a hold because of a message, which anybody may have sent: however many come, the looks are
    /// paced. Returns whether the watchdog must be woken for it.
    #[must_use = "the watchdog may sleep for too long"]
    pub fn told(&mut self, id: u64, now_ns: u64) -> bool {
        let Some(entry) = self.holds.get_mut(&id) else { return false };
        let told = entry.told.get_or_insert_default();
        if told.at_ns.is_some() {
            return false;
        }
        let wait = told.pace.wait(Duration::from_nanos(now_ns)).as_nanos() as u64;
        let at_ns = now_ns.saturating_add(wait);
        told.at_ns = Some(at_ns);
        let at_ns = entry.look_ns.map_or(at_ns, |look_ns| look_ns.min(at_ns));
        self.plan(id, now_ns, at_ns)
    }

    fn look_at(&mut self, id: u64, now_ns: u64, at_ns: u64) -> bool {
        self.looks.insert((at_ns, id));
        self.used = true;
        let missed = self.sleep.misses(now_ns, at_ns);
        if missed {
            self.sleep = Sleep::Awake;
        }
        self.check(id);
        missed
    }

    /// All lanes have a new connection. Calls on the old one may keep their slots until they time
    /// out, and no longer count.
    pub fn reconnected(&mut self) {
        self.era += 1;
        self.lanes.values_mut().for_each(|lane| lane.slots = 0);
    }

    /// Takes the holds to look at now, the most urgent first. Returns whether more may be due than
    /// could be taken at once.
    pub fn take_due(&mut self, now_ns: u64) -> (Vec<H>, bool) {
        let mut due = Vec::new();
        while due.len() < LOOKS_MAX
            && let Some((at_ns, id)) = self.looks.first().copied()
            && at_ns <= now_ns
        {
            self.looks.pop_first();
            if let Some(entry) = self.holds.get_mut(&id) {
                entry.look_ns = None;
                if let Some(told) = &mut entry.told {
                    told.at_ns = None;
                }
                due.push(entry.hold.clone());
            }
            self.check(id);
        }
        let more = due.len() == LOOKS_MAX;
        (due, more)
    }

    /// Has a hold renewed as soon as `lane` has a slot, before those that are valid for longer.
    pub fn want(&mut self, id: u64, valid_until_ns: u64, lane: u64) {
        // The hold may have been forgotten since the look began.
        let Some(entry) = self.holds.get_mut(&id) else { return };
        if let Some((former, until_ns)) = entry.waits.replace((lane, valid_until_ns))
            && let Some(former) = self.lanes.get_mut(&former)
        {
            former.waiting.remove(&(until_ns, id));
        }
        if self.lanes.len() > 1 {
            // Some lanes are never used again.
            self.lanes.retain(|_, lane| !lane.is_idle());
        }
        self.lanes.entry(lane).or_default().waiting.insert((valid_until_ns, id));
        self.check(id);
    }

    /// The most urgent hold of some lane that waits for its renewal, with a slot for it.
    pub fn next_renewal(&mut self) -> Option<(H, Slot)> {
        let ready = |(_, lane): &(_, &mut Lane)| !lane.waiting.is_empty() && !lane.is_full();
        let (number, lane) = self.lanes.iter_mut().find(ready)?;
        let (_, id) = lane.waiting.pop_first()?;
        let entry = self.holds.get_mut(&id)?;
        lane.slots += 1;
        entry.waits = None;
        let next = (entry.hold.clone(), Slot { lane: *number, era: self.era });
        self.check(id);
        Some(next)
    }

    /// A renewal is over. Returns whether the watchdog must be woken, because a hold waits for the
    /// slot.
    #[must_use = "a hold may wait for the slot"]
    pub fn free(&mut self, slot: Slot) -> bool {
        let lane = self.lanes.get_mut(&slot.lane).filter(|_| slot.era == self.era);
        let Some(lane) = lane else { return false };
        debug_assert!(lane.slots > 0, "K12: {slot:?} was free");
        let was_full = lane.is_full();
        lane.slots = lane.slots.saturating_sub(1);
        was_full && !lane.waiting.is_empty()
    }

    /// How long the watchdog can sleep from now on. `None` means until it is woken: nothing is
    /// planned, nor was anything during the last sleep.
    pub fn fall_asleep(&mut self, now_ns: u64) -> Option<Duration> {
        let used = std::mem::take(&mut self.used);
        let longest_ns = now_ns.saturating_add(SLEEP_MAX.as_nanos() as u64);
        let end_ns = match self.looks.first() {
            Some((at_ns, _)) => longest_ns.min(*at_ns),
            None if used => longest_ns,
            None => {
                self.sleep = Sleep::Endless;
                return None;
            }
        };
        self.sleep = Sleep::Until(end_ns);
        Some(Duration::from_nanos(end_ns.saturating_sub(now_ns)))
    }

    /// The watchdog is awake.
    pub fn awake(&mut self) {
        self.sleep = Sleep::Awake;
    }

    /// Checks what an input can have broken of one hold, in debug builds.
    fn check(&self, id: u64) {
        if !cfg!(debug_assertions) {
            return;
        }
        match self.sleep {
            Sleep::Awake => {}
            Sleep::Until(end_ns) => {
                let early = self.looks.first().filter(|(at_ns, _)| *at_ns < end_ns);
                assert!(early.is_none(), "K11: {early:?} is due before {end_ns}");
            }
            Sleep::Endless => assert!(self.looks.is_empty(), "K11: {:?}", self.looks),
        }
        let Some(entry) = self.holds.get(&id) else { return };
        let planned = entry.look_ns.is_none_or(|at_ns| self.looks.contains(&(at_ns, id)));
        let waits = entry.waits.is_none_or(|(lane, until_ns)| {
            self.lanes.get(&lane).is_some_and(|lane| lane.waiting.contains(&(until_ns, id)))
        });
        assert!(planned && waits, "K12: {id} is not where it should be");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Holds 0 to `count`, which want a renewal in lane 1; the last is the most urgent.
    fn wanting(count: u64) -> Renewals<u64> {
        let mut renewals = Renewals::default();
        for id in 0..count {
            assert!(!renewals.watch(id, id, 0, 0));
        }
        while let (due, _) = renewals.take_due(0)
            && !due.is_empty()
        {
            due.into_iter().for_each(|id| renewals.want(id, count - id, 1));
        }
        renewals
    }

    #[test]
    fn holds_come_out_once_and_in_time_order() {
        let mut renewals = Renewals::default();
        for (id, at) in [(1, 30), (2, 10), (3, 20)] {
            assert!(!renewals.watch(id, id, 0, at));
        }
        assert!(!renewals.plan(1, 0, 15));
        assert_eq!(renewals.forget(2), Some(2));
        assert_eq!(renewals.forget(2), None);
        assert!(!renewals.plan(2, 0, 12), "what was forgotten stays so");
        assert_eq!(renewals.take_due(14), (vec![], false));
        assert_eq!(renewals.take_due(25), (vec![1, 3], false));
        assert_eq!(renewals.take_due(25), (vec![], false));
    }

    #[test]
    fn a_crowd_is_looked_at_in_batches() {
        let mut renewals = Renewals::default();
        for id in 0..=LOOKS_MAX as u64 {
            assert!(!renewals.watch(id, id, 0, 0));
        }
        let (first, more) = renewals.take_due(0);
        assert_eq!((first.len(), more), (LOOKS_MAX, true));
        assert_eq!(renewals.take_due(0), (vec![LOOKS_MAX as u64], false));
    }

    #[test]
    fn the_most_urgent_is_renewed_first_and_a_free_slot_is_told_to_those_who_wait() {
        let count = RENEWALS_MAX as u64 + 2;
        let mut renewals = wanting(count);
        let mut slots = Vec::new();
        while let Some((id, slot)) = renewals.next_renewal() {
            assert_eq!(id, count - 1 - slots.len() as u64);
            slots.push(slot);
        }
        assert_eq!(slots.len(), RENEWALS_MAX);
        assert!(renewals.free(slots[0]), "two wait");
        assert!(renewals.next_renewal().is_some_and(|(id, _)| id == 1));
        renewals.forget(0);
        assert!(!renewals.free(slots[1]), "nobody waits");
        assert!(renewals.next_renewal().is_none());
    }

    /// Calls on the old connection may hang until they time out.
    #[test]
    fn a_new_connection_has_all_its_slots() {
        let mut renewals = wanting(RENEWALS_MAX as u64 + 1);
        let old: Vec<_> = std::iter::from_fn(|| renewals.next_renewal()).collect();
        assert_eq!(old.len(), RENEWALS_MAX);
        renewals.reconnected();
        let (_, new) = renewals.next_renewal().expect("a slot");
        assert!(!old.into_iter().any(|(_, slot)| renewals.free(slot)));
        assert!(!renewals.free(new));
    }

    #[test]
    fn a_hold_waits_in_one_lane() {
        let mut renewals = wanting(1);
        renewals.want(0, 5, 2);
        assert_eq!(renewals.next_renewal().map(|(id, slot)| (id, slot.lane)), Some((0, 2)));
        assert!(renewals.next_renewal().is_none());
    }

    #[test]
    fn a_lane_that_hangs_does_not_hold_up_another() {
        let mut renewals = wanting(RENEWALS_MAX as u64 + 2);
        while renewals.next_renewal().is_some() {}
        renewals.want(0, 5, 2);
        assert!(renewals.next_renewal().is_some_and(|(id, slot)| (id, slot.lane) == (0, 2)));
        assert!(renewals.next_renewal().is_none());
    }

    #[test]
    fn only_what_would_be_missed_wakes_it() {
        let mut renewals = Renewals::default();
        assert_eq!(renewals.fall_asleep(0), None);
        assert!(renewals.watch(1, 1, 0, 10 * SECOND), "it sleeps for ever");
        assert!(!renewals.plan(1, 0, 5), "it was woken already");
        assert_eq!(renewals.fall_asleep(0), Some(Duration::from_nanos(5)));
        assert!(!renewals.watch(2, 2, 1, 7));
        assert!(renewals.plan(2, 1, 3));
        renewals.awake();
        assert!(!renewals.plan(1, 1, 10 * SECOND));
        renewals.forget(2);
        assert_eq!(renewals.fall_asleep(1), Some(SLEEP_MAX));
        renewals.forget(1);
        renewals.awake();
        assert_eq!(renewals.fall_asleep(2), None);
    }

    /// D48: each of 254 000 forged messages in 1.5 s caused a renewal as soon as the one before it was over.
    #[test]
    fn a_flood_of_messages_about_a_hold_causes_paced_looks() {
        const SENT: u64 = 254_000;
        let mut renewals = Renewals::default();
        let _ = renewals.watch(1, 1, 0, 20 * SECOND);
        let (mut looks, mut first) = (0, None);
        for sent in 0..SENT {
            let now = sent * 3 * SECOND / 2 / SENT;
            let _ = renewals.told(1, now);
            for _ in renewals.take_due(now).0 {
                looks += 1;
                first.get_or_insert(now);
                // The renewal is answered at once, and the next one is far.
                let _ = renewals.plan(1, now, now + 20 * SECOND);
            }
        }
        assert_eq!(first, Some(0), "the first one is believed at once");
        assert!((30..=34).contains(&looks), "{looks} looks");
        // A look that is due because of a message is not put off by a renewal that ends.
        let _ = renewals.told(1, 3 * SECOND / 2);
        let _ = renewals.plan(1, 3 * SECOND / 2, 20 * SECOND);
        assert_eq!(renewals.take_due(2 * SECOND).0, [1]);
        assert!(renewals.take_due(19 * SECOND).0.is_empty());
    }

    /// F12: after a suspension the timer is late by the suspended time, and the planned end of the
    /// sleep lies in the past.
    #[test]
    fn a_sleep_that_should_be_over_is_not_relied_upon() {
        const END: u64 = 1_000;
        assert!(Sleep::Until(END).misses(500, END - 1));
        assert!(!Sleep::Until(END).misses(500, END));
        assert!(!Sleep::Until(END).misses(END - 1, END + 500));
        assert!(Sleep::Until(END).misses(END, END + 500));
        assert!(Sleep::Endless.misses(500, u64::MAX));
        assert!(!Sleep::Awake.misses(500, 0));
    }
}
