//! Where a listing of a Cluster's locks is: masters are searched one after the other.
//!
//! What is done is counted in slots, because nodes come and go: a slot is done when the node that had it
//! before its search has it afterwards.

use super::slots::{Addr, SLOTS, SlotMap, SlotSet};

/// So many searches of nodes for each master that there is in the beginning: slots that move all the time
/// must not keep a listing from its end.
const SEARCHES: usize = 3;

/// In the middle of the search of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The node that is searched.
    pub(super) node: Addr,
    /// What its `SCAN` said.
    pub(super) from: u64,
    /// What it served when its search began.
    began_with: SlotSet,
    done: SlotSet,
    left: usize,
}

impl Walk {
    pub(super) fn begin(map: &SlotMap) -> Option<Self> {
        Self::search(map, SlotSet::default(), SEARCHES * map.masters().len())
    }

    /// The node said so.
    pub(super) fn at(self, from: u64) -> Self {
        Self { from, ..self }
    }

    /// The node's search is over.
    pub(super) fn over(mut self, map: &SlotMap) -> Option<Self> {
        for slot in served_by(map, &self.node) {
            if self.began_with.contains(slot) {
                self.done.insert(slot);
            }
        }
        Self::search(map, self.done, self.left)
    }

    /// Whoever has the first slot that is left; `None` at the end.
    fn search(map: &SlotMap, done: SlotSet, left: usize) -> Option<Self> {
        let left = left.checked_sub(1)?;
        let node = (0..SLOTS as u16).filter(|slot| !done.contains(*slot));
        let node = node.filter_map(|slot| map.owner(slot)).next()?.clone();
        let mut began_with = SlotSet::default();
        served_by(map, &node).for_each(|slot| began_with.insert(slot));
        Some(Self { node, from: 0, began_with, done, left })
    }
}

fn served_by<'a>(map: &'a SlotMap, node: &'a Addr) -> impl Iterator<Item = u16> + 'a {
    (0..SLOTS as u16).filter(move |slot| map.owner(*slot) == Some(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn map(parts: &[(i64, i64, i64)]) -> SlotMap {
        let range = |(first, last, port): &(i64, i64, i64)| {
            let node = vec![Value::BulkString(b"h".to_vec()), Value::Int(*port)];
            Value::Array(vec![Value::Int(*first), Value::Int(*last), Value::Array(node)])
        };
        let slots = Value::Array(parts.iter().map(range).collect());
        SlotMap::read(&slots, &Addr::new("h", 1)).unwrap()
    }

    #[test]
    fn every_slot_is_searched_where_it_stayed() {
        let before = map(&[(0, 99, 1), (100, 16_383, 2)]);
        let walk = Walk::begin(&before).unwrap();
        assert_eq!(walk.node.port, 1);
        let second = walk.clone().over(&before).unwrap();
        assert_eq!(second.node.port, 2);
        assert_eq!(second.over(&before), None);
        // Half of the first node's slots have moved, to one that was not searched yet, meanwhile.
        let after = map(&[(0, 49, 1), (50, 16_383, 2)]);
        let second = walk.over(&after).unwrap();
        assert_eq!(second.node.port, 2);
        // And back to one that was.
        let third = second.over(&before).unwrap();
        assert_eq!(third.node.port, 1, "slots 50 to 99");
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
}
