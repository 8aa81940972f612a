//! How the release of a guard ends.

use super::hold::{Change, Hold};
use super::replies::Counted;
use crate::id::OwnerId;

/// The facts about a finished release, apart from the store's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Released {
    /// The change that was sent.
    pub change: Change,
    /// The hold was lost before it was sent.
    pub was_lost: bool,
    /// More than one copy was sent.
    pub resent: bool,
    /// Until when the hold was valid when it was sent.
    pub valid_until_ns: u64,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The lock is free, or was handed to the next waiter.
    Free,
    /// This many guards remain.
    StillHeld(u32),
    /// The hold was gone before.
    Lost,
    /// The outcome is unknown.
    Unknown,
}

impl Released {
    /// How the release ended; `said` is the store's answer, if one came in time.
    ///
    /// # Errors
    /// Who holds the lock instead, if the hold is gone: see [`Hold::released_when_gone`].
    pub fn outcome(self, said: Option<Counted>) -> Result<Outcome, Option<OwnerId>> {
        match said {
            Some(Counted::Released) => Ok(Outcome::Free),
            Some(Counted::StillHeld(count)) => Ok(Outcome::StillHeld(count)),
            Some(Counted::Stale) => Ok(Outcome::StillHeld(self.change.count)),
            Some(Counted::Gone { holder }) => Err(holder),
            // The store's answer would not change that.
            None if self.was_lost => Ok(Outcome::Lost),
            None => Ok(Outcome::Unknown),
        }
    }
}

impl Hold {
    /// A release was sent, and according to the store the hold is gone. It counts as lost unless
    /// the release itself ended it.
    pub fn released_when_gone(
        &mut self,
        now_ns: u64,
        sent: Released,
        holder: Option<OwnerId>,
    ) -> Outcome {
        if sent.was_lost {
            return Outcome::Lost;
        }
        // The last guard was released after this one, and that release arrived first. It reports
        // what became of the lock.
        if sent.change.count > 0 && self.has_ended() {
            return Outcome::StillHeld(sent.change.count);
        }
        if sent.resent {
            // If nothing else can have ended it, an earlier copy did.
            let ended_by_itself = now_ns >= sent.valid_until_ns;
            return if ended_by_itself { Outcome::Unknown } else { Outcome::Free };
        }
        self.gone(now_ns, holder);
        Outcome::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::hold::tests::LEASE;
    use super::super::hold::{Loss, Standing};
    use super::*;

    const VALID_UNTIL_NS: u64 = 1_000;

    /// A hold after the release of one of `guards` guards.
    fn hold(guards: u32) -> (Hold, Released) {
        let mut hold = Hold::new(LEASE, VALID_UNTIL_NS);
        for _ in 1..guards {
            hold.enter(false).expect("room for one more");
        }
        let change = hold.leave(false).change;
        let (was_lost, resent) = (false, false);
        (hold, Released { change, was_lost, resent, valid_until_ns: VALID_UNTIL_NS })
    }

    const GONE: Option<Counted> = Some(Counted::Gone { holder: None });

    fn released(hold: &mut Hold, now_ns: u64, sent: Released, said: Option<Counted>) -> Outcome {
        sent.outcome(said).unwrap_or_else(|holder| hold.released_when_gone(now_ns, sent, holder))
    }

    #[test]
    fn an_answer_is_the_outcome() {
        let (mut two, sent) = hold(2);
        for (said, outcome) in [
            (Some(Counted::Released), Outcome::Free),
            (Some(Counted::StillHeld(7)), Outcome::StillHeld(7)),
            // A later release is known there already.
            (Some(Counted::Stale), Outcome::StillHeld(1)),
            (None, Outcome::Unknown),
        ] {
            assert_eq!(released(&mut two, 0, sent, said), outcome);
        }
        assert_eq!(two.standing(), Standing::Held);
    }

    #[test]
    fn a_hold_that_is_gone_is_lost() {
        let (mut one, sent) = hold(1);
        assert_eq!(released(&mut one, 0, sent, GONE), Outcome::Lost);
        assert_eq!(one.standing(), Standing::Lost(Loss::DataLost));
    }

    /// A13: the reply to the first copy was lost, and the second one found nothing.
    #[test]
    fn a_copy_that_finds_nothing_was_not_the_first() {
        let (mut one, sent) = hold(1);
        let sent = Released { resent: true, ..sent };
        assert_eq!(released(&mut one, VALID_UNTIL_NS - 1, sent, GONE), Outcome::Free);
        assert_eq!(
            released(&mut one, VALID_UNTIL_NS, sent, GONE),
            Outcome::Unknown,
            "or the lease did"
        );
        assert_eq!(one.standing(), Standing::Held, "nothing was lost");
    }

    #[test]
    fn the_last_release_may_arrive_first() {
        let (mut two, sent) = hold(2);
        let _ = two.leave(false);
        assert_eq!(released(&mut two, 0, sent, GONE), Outcome::StillHeld(1));
    }

    #[test]
    fn what_was_lost_before_stays_lost() {
        for resent in [false, true] {
            let (mut two, sent) = hold(2);
            let _ = two.leave(false);
            two.lose(Loss::Replaced);
            let sent = Released { was_lost: true, resent, ..sent };
            assert_eq!(released(&mut two, 0, sent, GONE), Outcome::Lost);
            assert_eq!(released(&mut two, 0, sent, None), Outcome::Lost);
            assert_eq!(two.standing(), Standing::Lost(Loss::Replaced));
        }
    }
}
