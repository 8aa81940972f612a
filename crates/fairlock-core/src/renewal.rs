//! When each hold must be renewed: a plan without a clock.

use std::collections::{BTreeSet, HashMap};

/// The planned renewals of a client's holds, by time. Holds are identified by number; times are
/// nanoseconds of any monotonic clock of the caller's choice.
#[derive(Clone, Debug, Default)]
pub struct RenewalPlan {
    by_time: BTreeSet<(u64, u64)>,
    due: HashMap<u64, u64>,
}

impl RenewalPlan {
    /// Plans the renewal of hold `id` for `at_ns`, replacing any earlier plan for it.
    pub fn set(&mut self, id: u64, at_ns: u64) {
        if let Some(earlier) = self.due.insert(id, at_ns) {
            self.by_time.remove(&(earlier, id));
        }
        self.by_time.insert((at_ns, id));
    }

    /// Removes a hold; returns whether a renewal was planned.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(at_ns) = self.due.remove(&id) else { return false };
        self.by_time.remove(&(at_ns, id))
    }

    /// When the next renewal is due. Only [`set`](Self::set), [`remove`](Self::remove) and
    /// [`take_due`](Self::take_due) change it.
    pub fn next_ns(&self) -> Option<u64> {
        self.by_time.first().map(|(at_ns, _)| *at_ns)
    }

    /// Removes and returns at most `limit` holds that are due at `now_ns`, the most urgent first.
    pub fn take_due(&mut self, now_ns: u64, limit: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some((at_ns, id)) = self.by_time.first().copied() else { break };
            if at_ns > now_ns {
                break;
            }
            self.by_time.remove(&(at_ns, id));
            self.due.remove(&id);
            taken.push(id);
        }
        taken
    }

    /// How many renewals are planned.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether no renewal is planned.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_holds_come_out_once_and_in_time_order() {
        let mut plan = RenewalPlan::default();
        plan.set(1, 30);
        plan.set(2, 10);
        plan.set(3, 20);
        plan.set(1, 15);
        assert_eq!(plan.next_ns(), Some(10));
        assert!(plan.remove(2));
        assert!(!plan.remove(2));
        assert_eq!(plan.take_due(14, 8), Vec::<u64>::new());
        assert_eq!(plan.take_due(25, 1), [1]);
        assert_eq!(plan.take_due(25, 8), [3]);
        assert!(plan.is_empty());
    }
}
