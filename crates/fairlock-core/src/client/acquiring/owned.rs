//! What comes before an acquisition by an explicit owner: it enters the owner's hold, if there is
//! one, or waits until no other request of the owner asks for the lock.
//!
//! [`OwnedStep::Ask`] begins an acquisition under the same turn; the turn is given up when that has ended. `others` is
//! passed in when the request
//! whose turn it is makes progress, or the connection changes, and once after [`OwnedStep::Turn`].

use super::{At, SILENCE_GRACE};

/// The progress of the request of the same owner whose turn it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It has not asked yet.
    #[default]
    NotAsked,
    /// It has asked.
    Asked,
    /// The store has answered it: from now on it waits for the lock.
    Answered,
}

/// The outcome of the attempt to enter the owner's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<E> {
    /// It is one more guard of that hold.
    Entered,
    /// There is no hold that can be entered, or its loss was noticed only now.
    NoHold,
    /// It was refused, or the outcome is unknown.
    Failed(E),
}

/// The next action after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum OwnedStep<E> {
    /// Nothing new.
    Wait,
    /// Enter the owner's hold, then call [`entry`](Owned::entry).
    Enter,
    /// Stand in line for the turn to ask, then call [`turn`](Owned::turn). With `now`, only if
    /// nobody else has the turn: otherwise call [`busy`](Owned::busy).
    Turn {
        /// It does not wait.
        now: bool,
    },
    /// It may ask the store.
    Ask,
    /// It has ended; the work under way is no longer wanted, and an entry that succeeds later is
    /// taken back.
    Done(OwnedEnd<E>),
}

/// How it ends without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedEnd<E> {
    /// It is one more guard of the owner's hold.
    Entered,
    /// The lock cannot be had in time.
    None,
    /// The hold could not be entered.
    Failed(E),
    /// The store did not answer the request that it waited for, so it is not certain that the lock
    /// is taken.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// Re-entries need no turn: each names a count, so they may arrive in any order.
    EnteringFirst,
    InLine,
    /// The request that had the turn before may have acquired the lock.
    EnteringAgain,
    Over,
}

/// A request of an explicit owner on its way to the owner's hold, or to its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    is_try: bool,
    until_ns: Option<u64>,
    phase: Phase,
    others: Progress,
    /// The request before it was answered.
    after_an_answer: bool,
    /// Its time was up while it entered: only the answer to that counts.
    late_entering: bool,
    grace_ns: Option<u64>,
}

impl Owned {
    /// A request that gives up at `until_ns`.
    pub fn new(is_try: bool, until_ns: Option<u64>) -> Self {
        Self {
            is_try,
            until_ns,
            phase: Phase::New,
            others: Progress::NotAsked,
            after_an_answer: false,
            late_entering: false,
            grace_ns: None,
        }
    }

    /// When [`time`](Self::time) is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        let open = !matches!(self.phase, Phase::New | Phase::Over);
        self.grace_ns.or(self.until_ns).filter(|_| open)
    }

    /// Begins it.
    pub fn start<E>(&mut self) -> OwnedStep<E> {
        match self.phase {
            Phase::New => {
                self.phase = Phase::EnteringFirst;
                OwnedStep::Enter
            }
            _ => OwnedStep::Wait,
        }
    }

    /// The attempt to enter the owner's hold is over.
    pub fn entry<E>(&mut self, entry: Entry<E>) -> OwnedStep<E> {
        match (self.phase, entry) {
            (Phase::New | Phase::InLine | Phase::Over, _) => OwnedStep::Wait,
            (_, Entry::Entered) => self.over(OwnedEnd::Entered),
            (_, Entry::Failed(error)) => self.over(OwnedEnd::Failed(error)),
            (Phase::EnteringFirst, Entry::NoHold) => {
                self.phase = Phase::InLine;
                OwnedStep::Turn { now: self.is_try }
            }
            // No time is left for a request of this caller.
            (Phase::EnteringAgain, Entry::NoHold) if self.grace_ns.is_some() => {
                let said = self.late_entering || self.after_an_answer;
                self.over(if said { OwnedEnd::None } else { OwnedEnd::Silent })
            }
            (Phase::EnteringAgain, Entry::NoHold) => {
                self.phase = Phase::Over;
                OwnedStep::Ask
            }
        }
    }

    /// It is its turn; `before` is the progress of the request that had it before.
    pub fn turn<E>(&mut self, before: Progress) -> OwnedStep<E> {
        if self.phase != Phase::InLine {
            return OwnedStep::Wait;
        }
        self.after_an_answer = before == Progress::Answered;
        self.others = Progress::Asked;
        self.phase = Phase::EnteringAgain;
        OwnedStep::Enter
    }

    /// It is another request's turn, and this one does not wait.
    pub fn busy<E>(&mut self) -> OwnedStep<E> {
        match self.phase {
            Phase::InLine if self.is_try => self.over(OwnedEnd::None),
            _ => OwnedStep::Wait,
        }
    }

    /// The progress of the request whose turn it is.
    pub fn others<E>(&mut self, at: At, progress: Progress) -> OwnedStep<E> {
        self.others = progress;
        let late = self.grace_ns.is_some() && !self.late_entering;
        if self.phase == Phase::InLine && late && self.has_said_something(at) {
            return self.over(OwnedEnd::None);
        }
        OwnedStep::Wait
    }

    /// Nobody waits for the result any more, or the client was shut down.
    pub fn gone<E>(&mut self) -> OwnedStep<E> {
        match self.phase {
            Phase::New | Phase::Over => OwnedStep::Wait,
            _ => self.over(OwnedEnd::None),
        }
    }

    /// Time has passed.
    pub fn time<E>(&mut self, at: At) -> OwnedStep<E> {
        match self.deadline_ns() {
            Some(deadline_ns) if deadline_ns <= at.ns => self.late(at),
            _ => OwnedStep::Wait,
        }
    }

    /// Without an answer of the store it is not certain that the lock is taken: the store gets some
    /// more time, and after that its silence is an error.
    fn late<E>(&mut self, at: At) -> OwnedStep<E> {
        if self.grace_ns.is_some() {
            return self.over(OwnedEnd::Silent);
        }
        self.late_entering = self.phase != Phase::InLine;
        if !self.late_entering && self.has_said_something(at) {
            return self.over(OwnedEnd::None);
        }
        self.grace_ns = Some(super::after(at.ns, SILENCE_GRACE));
        OwnedStep::Wait
    }

    /// Whether the store has answered the request whose turn it is, or nothing was asked yet for a
    /// reason other than silence.
    fn has_said_something(&self, at: At) -> bool {
        match self.others {
            Progress::Answered => true,
            Progress::NotAsked => at.connected,
            Progress::Asked => false,
        }
    }

    fn over<E>(&mut self, end: OwnedEnd<E>) -> OwnedStep<E> {
        self.phase = Phase::Over;
        OwnedStep::Done(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::lease::ns;

    type Step = OwnedStep<&'static str>;

    fn at(ms: u64) -> At {
        At { ns: ns(ms), connected: true }
    }

    /// Found no hold, and stands in line until 100 ms.
    fn in_line() -> Owned {
        let mut it = Owned::new(false, Some(ns(100)));
        assert_eq!(it.start(), Step::Enter);
        assert_eq!(it.entry(Entry::NoHold), Step::Turn { now: false });
        it
    }

    fn late(it: &mut Owned) -> Step {
        assert_eq!(it.deadline_ns(), Some(ns(100)));
        it.time(at(100))
    }

    #[test]
    fn a_hold_of_the_owner_is_entered_without_a_turn() {
        let mut it = Owned::new(true, None);
        assert_eq!(it.start(), Step::Enter);
        assert_eq!(it.entry(Entry::Entered), Step::Done(OwnedEnd::Entered));
        assert_eq!(it.gone(), Step::Wait);
        let mut it = Owned::new(false, None);
        assert_eq!(it.start(), Step::Enter);
        assert_eq!(it.entry(Entry::Failed("too deep")), Step::Done(OwnedEnd::Failed("too deep")));
    }

    /// The request before it may have acquired the lock.
    #[test]
    fn it_looks_for_a_hold_again_when_its_turn_comes() {
        let mut it = in_line();
        assert_eq!(it.turn(Progress::Answered), Step::Enter);
        assert_eq!(it.clone().entry(Entry::Entered), Step::Done(OwnedEnd::Entered));
        assert_eq!(it.entry(Entry::NoHold), Step::Ask);
        assert_eq!(it.deadline_ns(), None);
    }

    #[test]
    fn a_try_does_not_wait_for_its_turn() {
        let mut it = Owned::new(true, None);
        assert_eq!(it.start(), Step::Enter);
        assert_eq!(it.entry(Entry::NoHold), Step::Turn { now: true });
        assert_eq!(it.busy(), Step::Done(OwnedEnd::None));
    }

    #[test]
    fn a_caller_that_goes_away_in_line_is_done() {
        assert_eq!(in_line().gone(), Step::Done(OwnedEnd::None));
    }

    /// The one before it waits for the lock: the store has said that it is taken.
    #[test]
    fn time_is_up_behind_a_request_that_was_answered() {
        let mut it = in_line();
        assert_eq!(it.others(at(1), Progress::Answered), Step::Wait);
        assert_eq!(late(&mut it), Step::Done(OwnedEnd::None));
        assert_eq!(late(&mut in_line()), Step::Done(OwnedEnd::None), "it is about to ask");
    }

    #[test]
    fn silence_to_the_request_before_it_is_an_error() {
        let behind = || {
            let mut it = in_line();
            assert_eq!(it.others(at(1), Progress::Asked), Step::Wait);
            assert_eq!(late(&mut it), Step::Wait, "a slow store can still answer");
            assert_eq!(it.deadline_ns(), Some(ns(600)));
            it
        };
        assert_eq!(behind().time(at(600)), Step::Done(OwnedEnd::Silent));
        assert_eq!(behind().others(at(300), Progress::Answered), Step::Done(OwnedEnd::None));
        // That request is over, and no time is left for another one.
        for (before, end) in
            [(Progress::Answered, OwnedEnd::None), (Progress::Asked, OwnedEnd::Silent)]
        {
            let mut it = behind();
            assert_eq!(it.turn(before), Step::Enter);
            assert_eq!(it.clone().entry(Entry::Entered), Step::Done(OwnedEnd::Entered));
            assert_eq!(it.entry(Entry::NoHold), Step::Done(end));
        }
        let mut it = in_line();
        let apart = At { ns: ns(100), connected: false };
        assert_eq!(it.time::<&str>(apart), Step::Wait, "nobody could ask");
    }

    #[test]
    fn only_the_answer_to_a_re_entry_counts_when_time_is_up_meanwhile() {
        let entering = || {
            let mut it = in_line();
            assert_eq!(it.turn(Progress::NotAsked), Step::Enter);
            assert_eq!(late(&mut it), Step::Wait);
            assert_eq!(it.others(at(200), Progress::Answered), Step::Wait);
            it
        };
        assert_eq!(entering().entry(Entry::Entered), Step::Done(OwnedEnd::Entered));
        assert_eq!(entering().entry(Entry::NoHold), Step::Done(OwnedEnd::None));
        assert_eq!(entering().time(at(600)), Step::Done(OwnedEnd::Silent));
    }

    /// The re-entry found that the hold is lost, after its time.
    #[test]
    fn a_first_re_entry_that_is_late_ends_in_line() {
        let mut it = Owned::new(false, Some(ns(100)));
        assert_eq!(it.start(), Step::Enter);
        assert_eq!(late(&mut it), Step::Wait);
        assert_eq!(it.entry(Entry::NoHold), Step::Turn { now: false });
        assert_eq!(it.others(at(200), Progress::Answered), Step::Wait, "not to that re-entry");
        assert_eq!(it.turn(Progress::Asked), Step::Enter);
        assert_eq!(it.entry(Entry::NoHold), Step::Done(OwnedEnd::None));
    }
}
