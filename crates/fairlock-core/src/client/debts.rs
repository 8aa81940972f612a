//! Requests that the store has refused to take back, to be taken back when it answers again.

use crate::id::LockName;
use crate::op::Op;
use std::collections::VecDeque;

/// `Leave`s that were refused, the oldest first.
///
/// A place counts as alive while any heartbeat of its client for that lock arrives. So its `Leave`
/// is owed until one is answered; without heartbeats nothing keeps the place alive, and it ends by
/// itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Debts {
    owed: VecDeque<(LockName, Op)>,
}

impl Debts {
    /// Most requests owed: more than a client has waiters, and some 200 bytes each. A request that
    /// is dropped costs the waiters behind it the time after which it counts as dead.
    pub const MAX: usize = 16_384;

    /// How many are taken back after each success: a lock's debts are paid in a few round trips,
    /// but as long as the store refuses, only one is tried at a time.
    pub const AFTER_ONE: usize = 2;

    /// The store has refused `leave`, or was not reached for so long that it is not repeated any more.
    pub fn owe(&mut self, name: LockName, leave: Op) {
        if self.owed.len() == Self::MAX {
            self.owed.pop_front();
        }
        self.owed.push_back((name, leave));
    }

    /// The oldest of a lock, at most that many. They are no longer owed, unless they are refused
    /// again.
    pub fn take(&mut self, name: &LockName, count: usize) -> Vec<Op> {
        let next = |_| {
            let at = self.owed.iter().position(|(of, _)| of == name)?;
            self.owed.remove(at).map(|(_, leave)| leave)
        };
        (0..count).map_while(next).collect()
    }

    /// All of all locks: the client ends.
    pub fn take_all(&mut self) -> VecDeque<(LockName, Op)> {
        std::mem::take(&mut self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ClientId, OwnerId, RequestId};
    use crate::op::Kind;

    fn name(name: &str) -> LockName {
        LockName::new(name.as_bytes()).expect("a name")
    }

    fn leave(number: usize) -> Op {
        let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
        let request = RequestId::from_random(number as u128);
        Op::Leave { kind: Kind::Fair, owner, request, bury: false, shared_owner: false }
    }

    #[test]
    fn a_lock_that_answers_pays_its_own_debts_the_oldest_first() {
        let mut debts = Debts::default();
        for (number, lock) in ["one", "other", "one", "one"].into_iter().enumerate() {
            debts.owe(name(lock), leave(number));
        }
        assert_eq!(debts.take(&name("third"), 1), []);
        assert_eq!(debts.take(&name("one"), 1), [leave(0)]);
        // Refused again: the others are tried before it.
        debts.owe(name("one"), leave(0));
        assert_eq!(debts.take(&name("one"), Debts::AFTER_ONE), [leave(2), leave(3)]);
        assert_eq!(debts.take(&name("one"), Debts::AFTER_ONE), [leave(0)]);
        assert_eq!(debts.take(&name("one"), 1), []);
        assert_eq!(debts.take_all(), [(name("other"), leave(1))]);
        assert_eq!(debts, Debts::default());
    }

    /// A lock that is never asked for again keeps its debts.
    #[test]
    fn the_oldest_of_too_many_are_forgotten() {
        let mut debts = Debts::default();
        for number in 0..Debts::MAX + 3 {
            debts.owe(name("one"), leave(number));
        }
        assert_eq!(debts.take(&name("one"), 1), [leave(3)]);
        assert_eq!(debts.take_all().len(), Debts::MAX - 1);
    }
}
