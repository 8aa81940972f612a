//! What may be held beside what.

use crate::wanted::LIMIT;
use fairlock::Share;

/// A hold that is over: it was certainly valid in this time.
#[derive(Clone, Debug)]
pub(super) struct Past {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) owner: String,
    pub(super) share: Share,
}

impl Past {
    pub(super) fn covers(&self, at: u64) -> bool {
        self.from <= at && at < self.until
    }

    fn permits(&self) -> u32 {
        match self.share {
            Share::Permits { n, .. } => n,
            _ => 0,
        }
    }
}

/// Those of `others` that `hold` must not have been valid beside. All of them were valid while it was.
/// Permits are too many at the moment at which the last of them was given.
pub(super) fn conflicts<'a>(hold: &Past, others: &[&'a Past]) -> Vec<&'a Past> {
    match hold.share {
        Share::Read => others.iter().copied().filter(|other| other.share != Share::Read).collect(),
        Share::Permits { .. } => {
            let starts = others.iter().map(|other| other.from.max(hold.from));
            let mut at_a_time = starts.map(|at| {
                others.iter().copied().filter(|other| other.covers(at)).collect::<Vec<_>>()
            });
            let too_many = |beside: &Vec<&Past>| {
                hold.permits() + beside.iter().map(|other| other.permits()).sum::<u32>() > LIMIT
            };
            at_a_time.find(too_many).unwrap_or_default()
        }
        _ => others.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(from: u64, until: u64, share: Share) -> Past {
        Past { from, until, owner: format!("{from}-{until}"), share }
    }

    fn permits(from: u64, until: u64, n: u32) -> Past {
        past(from, until, Share::Permits { n, limit: LIMIT })
    }

    fn found(hold: &Past, others: &[Past]) -> usize {
        conflicts(hold, &others.iter().collect::<Vec<_>>()).len()
    }

    #[test]
    fn readers_are_beside_readers() {
        let (read, write) = (past(0, 9, Share::Read), past(0, 9, Share::Whole));
        assert_eq!(found(&read, &[read.clone(), read.clone()]), 0);
        assert_eq!(found(&read, &[read.clone(), write.clone()]), 1);
        assert_eq!(found(&write, &[read.clone(), read.clone()]), 2);
    }

    #[test]
    fn permits_count_at_each_moment() {
        let hold = permits(0, 9, 2);
        assert_eq!(found(&hold, &[permits(1, 3, 2), permits(3, 5, 2), permits(5, 9, 2)]), 0);
        assert_eq!(found(&hold, &[permits(1, 4, 2), permits(3, 5, 1)]), 2);
        assert_eq!(found(&permits(2, 9, 3), &[permits(0, 4, 2)]), 1, "it came last");
    }
}
