//! The position of a listing of a Cluster's locks: masters are searched one after the other.
//!
//! Progress is counted in slots, because nodes come and go: a slot is done if the node that had it
//! before its search has it afterwards.

use super::slots::{Addr, SLOTS, SlotMap, SlotSet};

/// How many nodes are searched at most, for each master that exists in the beginning: slots that
/// move all the time must not keep a listing from ending.
const SEARCHES: usize = 3;

/// A listing in the middle of the search of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The node being searched; `None`: nobody serves the slots that are left.
    pub(super) node: Option<Addr>,
    /// The cursor that its `SCAN` returned.
    pub(super) from: u64,
    /// The slots that it served when its search began.
    began_with: SlotSet,
    done: SlotSet,
    /// Slots whose nodes were not reached: they come last.
    late: SlotSet,
    left: usize,
}

impl Walk {
    pub(super) fn begin(map: &SlotMap) -> Option<Self> {
        let left = SEARCHES * map.masters().len();
        Self::search(map, SlotSet::default(), SlotSet::default(), left)
    }

    /// Its node is not reached: the others come first. `None`: all others have been searched.
    pub(super) fn later(mut self, map: &SlotMap) -> Option<Self> {
        let here = served_by(map, self.node.as_ref());
        let is_last = here.filter(|slot| !self.late.contains(*slot)).count() == 0;
        served_by(map, self.node.as_ref()).for_each(|slot| self.late.insert(slot));
        let next = Self::search(map, self.done, self.late, self.left)?;
        (!is_last || next.node != self.node).then_some(next)
    }

    /// The slots that were not searched yet.
    pub(super) fn missing(&self) -> SlotSet {
        self.done.others()
    }

    /// The node's search continues at this cursor.
    pub(super) fn at(self, from: u64) -> Self {
        Self { from, ..self }
    }

    /// The node's search is over.
    pub(super) fn over(mut self, map: &SlotMap) -> Option<Self> {
        for slot in served_by(map, self.node.as_ref()) {
            if self.began_with.contains(slot) {
                self.done.insert(slot);
            }
        }
        Self::search(map, self.done, self.late, self.left)
    }

    /// Begins to search the node that has the first slot that is left, late slots last; `None` at
    /// the end.
    fn search(map: &SlotMap, done: SlotSet, late: SlotSet, left: usize) -> Option<Self> {
        let left = left.checked_sub(1)?;
        let open = || (0..SLOTS as u16).filter(|slot| !done.contains(*slot));
        open().next()?;
        let in_time = open().filter(|slot| !late.contains(*slot));
        let node = in_time.chain(open()).find_map(|slot| map.owner(slot)).cloned();
        let mut began_with = SlotSet::default();
        served_by(map, node.as_ref()).for_each(|slot| began_with.insert(slot));
        Some(Self { node, from: 0, began_with, done, late, left })
    }
}

fn served_by<'a>(map: &'a SlotMap, node: Option<&'a Addr>) -> impl Iterator<Item = u16> + 'a {
    let slots = (0..SLOTS as u16).filter(move |slot| map.owner(*slot) == node);
    slots.filter(move |_| node.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::Value;

    fn map(parts: &[(i64, i64, i64)]) -> SlotMap {
        let range = |(first, last, port): &(i64, i64, i64)| {
            let node = vec![Value::BulkString(b"h".to_vec()), Value::Int(*port)];
            Value::Array(vec![Value::Int(*first), Value::Int(*last), Value::Array(node)])
        };
        let slots = Value::Array(parts.iter().map(range).collect());
        SlotMap::read(&slots, &Addr::new("h", 1)).unwrap()
    }

    /// The port of the node that is searched; 0: nobody serves what is left.
    fn at(walk: &Walk) -> u16 {
        walk.node.as_ref().map_or(0, |node| node.port)
    }

    #[test]
    fn every_slot_is_searched_where_it_stayed() {
        let before = map(&[(0, 99, 1), (100, 16_383, 2)]);
        let walk = Walk::begin(&before).unwrap();
        assert_eq!(at(&walk), 1);
        let second = walk.clone().over(&before).unwrap();
        assert_eq!(at(&second), 2);
        assert_eq!(second.over(&before), None);
        // Meanwhile half of the first node's slots have moved to one that was not searched yet.
        let after = map(&[(0, 49, 1), (50, 16_383, 2)]);
        let second = walk.over(&after).unwrap();
        assert_eq!(at(&second), 2);
        // And back to one that was.
        let third = second.over(&before).unwrap();
        assert_eq!(at(&third), 1, "slots 50 to 99");
        assert_eq!(third.over(&before), None);
    }

    #[test]
    fn it_ends_whatever_moves() {
        let maps = [map(&[(0, 16_383, 1)]), map(&[(0, 16_383, 2)])];
        let mut walk = Walk::begin(&maps[0]);
        let mut searches = 0;
        while let Some(at) = walk {
            searches += 1;
            walk = at.over(&maps[searches % 2]);
        }
        assert_eq!(searches, SEARCHES);
        assert_eq!(Walk::begin(&SlotMap::default()), None);
    }

    #[test]
    fn who_is_not_reached_comes_last_and_is_named() {
        let whole = map(&[(0, 99, 1), (100, 199, 2), (200, 16_383, 3)]);
        let second = Walk::begin(&whole).unwrap().later(&whole).unwrap();
        assert_eq!(at(&second), 2);
        let third = second.over(&whole).unwrap();
        assert_eq!(at(&third), 3);
        let last = third.over(&whole).unwrap();
        assert_eq!((at(&last), last.missing().to_string()), (1, "0-99".to_owned()));
        assert_eq!(last.clone().later(&whole), None, "all others have been");
        assert_eq!(last.clone().over(&whole), None);
        // Its replica has taken over.
        let after = map(&[(0, 99, 4), (100, 199, 2), (200, 16_383, 3)]);
        assert_eq!(at(&last.clone().later(&after).unwrap()), 4);
        // Nobody serves them any more.
        let less = map(&[(100, 199, 2), (200, 16_383, 3)]);
        let last = last.over(&less).unwrap();
        assert_eq!((at(&last), last.missing().to_string()), (0, "0-99".to_owned()));
        assert_eq!(last.clone().later(&less), None);
        assert_eq!(at(&last.later(&whole).unwrap()), 1);
    }

    /// Two nodes are not reached: neither is waited for forever in place of the other.
    #[test]
    fn it_ends_with_two_that_are_not_reached() {
        let whole = map(&[(0, 99, 1), (100, 199, 2), (200, 16_383, 3)]);
        let mut walk = Walk::begin(&whole).unwrap().later(&whole).unwrap().later(&whole).unwrap();
        assert_eq!(at(&walk), 3);
        walk = walk.over(&whole).unwrap();
        assert_eq!((at(&walk), walk.missing().to_string()), (1, "0-199".to_owned()));
        assert_eq!(walk.later(&whole), None);
    }
}
