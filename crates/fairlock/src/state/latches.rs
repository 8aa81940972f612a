//! The waiters of latches. All waiters of one latch share its looks: one task looks for all of them
//! (`engine/latch.rs`).

use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::store::Scope;
use fairlock_core::{LatchFate, LatchSeen, LockName, Opened, latch_fate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How long a message may still take if it was sent before a reply that came on another connection.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// The latches that this client waits for.
#[derive(Default)]
pub(crate) struct Latches(Mutex<BTreeMap<LockName, Arc<Watched>>>);

/// A latch that is waited for.
pub(crate) struct Watched {
    pub(crate) name: LockName,
    /// There was a message about the latch, or somebody new waits for it.
    pub(crate) kick: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many looks have begun.
    looks: u64,
    /// How many waiters have come. Never the same twice: one whose wait is over may be dropped later.
    numbers: u64,
    heard: Heard,
    /// In the order in which they came.
    waiters: Vec<Waiter>,
}

/// The messages since the last look. Each can be forged, or be about a latch of this name in another database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// When there was the first message that the latch was counted down to 0.
    counted_down: Option<Moment>,
    /// Before that one there was a message that it was set or deleted.
    changed_before: bool,
    /// After that one there was a message that it was set.
    set_anew: bool,
    /// After that one a look has found a latch.
    is_kept: bool,
}

struct Waiter {
    /// Distinguishes it from the others of this latch.
    number: u64,
    /// Looks that had begun when it came do not count for it.
    after_look: u64,
    /// The generation that it waits for; unknown before its first look.
    waits_for: Option<u64>,
    /// Since when it is known that this latch is closed. A message that arrives soon after that may
    /// be about the latch before it.
    closed_since: Option<Moment>,
    /// Since when looks show that its latch is gone. The message that it was counted down may be on its
    /// way, on the other connection.
    gone_since: Option<Moment>,
    done: oneshot::Sender<Result<Opened, Error>>,
}

/// A look that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    number: u64,
    heard: Heard,
    /// The generation that the look names.
    pub(crate) waiting: u64,
}

/// When to look next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nobody waits any more.
    Nobody,
    /// With the next heartbeat.
    Later,
    /// When a message that is on its way must have arrived.
    Soon,
}

/// Somebody waits. Dropping it ends the wait.
pub(crate) struct Waiting {
    watched: Arc<Watched>,
    number: u64,
    pub(crate) done: oneshot::Receiver<Result<Opened, Error>>,
}

impl Latches {
    /// Begins to wait for the latch of this generation, or for the one that the first look finds.
    /// `watch` starts the task that looks, unless there is one.
    pub(crate) fn wait(
        &self,
        name: &LockName,
        waits_for: Option<u64>,
        watch: impl FnOnce(Arc<Watched>),
    ) -> Waiting {
        let mut all = lock(&self.0);
        let mut is_new = false;
        let watched = all.entry(name.clone()).or_insert_with(|| {
            is_new = true;
            Arc::new(Watched { name: name.clone(), kick: Notify::new(), state: Mutex::default() })
        });
        let watched = Arc::clone(watched);
        let (done, outcome) = oneshot::channel();
        let number = watched.add(waits_for, done);
        drop(all);
        if is_new {
            watch(Arc::clone(&watched));
        } else {
            watched.kick.notify_one();
        }
        Waiting { watched, number, done: outcome }
    }

    /// A message about the latch.
    pub(crate) fn wake(&self, name: &LockName, counted_down: bool) {
        let watched = lock(&self.0).get(name).cloned();
        if let Some(watched) = watched {
            lock(&watched.state).heard.note(counted_down, Moment::now());
            watched.kick.notify_one();
        }
    }

    /// Messages may have been missed: all look again.
    pub(crate) fn check(&self, scope: &Scope) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for watched in all.iter().filter(|watched| scope.has(&watched.name)) {
            watched.kick.notify_one();
        }
    }

    /// Ends the task that looks, unless somebody waits. Returns whether it ends.
    pub(crate) fn ends(&self, watched: &Watched) -> bool {
        let mut all = lock(&self.0);
        let is_over = lock(&watched.state).waiters.is_empty();
        if is_over {
            all.remove(&watched.name);
        }
        is_over
    }

    /// How many are watched.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn watched(&self) -> usize {
        lock(&self.0).len()
    }
}

impl Watched {
    fn add(&self, waits_for: Option<u64>, done: oneshot::Sender<Result<Opened, Error>>) -> u64 {
        let mut state = lock(&self.state);
        state.numbers += 1;
        let number = state.numbers;
        let after_look = state.looks;
        let (closed_since, gone_since) = (None, None);
        let waiter = Waiter { number, after_look, waits_for, closed_since, gone_since, done };
        state.waiters.push(waiter);
        number
    }

    /// A look begins.
    pub(crate) fn look(&self) -> Look {
        let mut state = lock(&self.state);
        state.looks += 1;
        let known = state.waiters.iter().filter_map(|waiter| waiter.waits_for).max();
        Look { number: state.looks, heard: state.heard, waiting: known.unwrap_or(0) }
    }

    /// The result of the look: waiters whose latch is over are woken.
    pub(crate) fn seen(&self, look: Look, seen: &LatchSeen) -> Next {
        let mut state = lock(&self.state);
        let (mut next, heard) = (Next::Later, state.heard);
        let mut left = Vec::with_capacity(state.waiters.len());
        let mut over = Vec::new();
        for mut waiter in state.waiters.drain(..) {
            if waiter.after_look >= look.number {
                left.push(waiter);
                continue;
            }
            let counted_down = waiter.is_told(&heard, seen.count > 0);
            match latch_fate(waiter.waits_for, seen, counted_down) {
                LatchFate::Closed(generation) => {
                    waiter.waits_for = Some(generation);
                    waiter.closed_since.get_or_insert_with(Moment::now);
                    waiter.gone_since = None;
                    left.push(waiter);
                }
                LatchFate::Over(Opened::Gone) if waiter.may_hear(Moment::now()) => {
                    next = Next::Soon;
                    left.push(waiter);
                }
                LatchFate::Over(opened) => over.push((waiter.done, opened)),
            }
        }
        if left.is_empty() {
            next = Next::Nobody;
        }
        state.waiters = left;
        // What came during this look is for the next one, too.
        if heard == look.heard {
            state.heard = heard.after_look(Moment::now());
        }
        drop(state);
        for (done, opened) in over {
            // Whoever waited may have gone.
            let _ = done.send(Ok(opened));
        }
        next
    }

    /// The look has failed: those who came before it get the error, the others look again.
    pub(crate) fn look_failed(&self, look: Look, error: &Error) {
        self.tell(error, |waiter| waiter.after_look < look.number);
    }

    /// All waiters get the error.
    pub(crate) fn failed(&self, error: &Error) {
        self.tell(error, |_| true);
    }

    fn tell(&self, error: &Error, is_told: impl Fn(&Waiter) -> bool) {
        let mut state = lock(&self.state);
        let (told, left) = state.waiters.drain(..).partition(is_told);
        state.waiters = left;
        drop(state);
        let told: Vec<Waiter> = told;
        for waiter in told {
            // Whoever waited may have gone.
            let _ = waiter.done.send(Err(error.clone()));
        }
    }
}

impl Heard {
    fn note(&mut self, counted_down: bool, now: Moment) {
        match (counted_down, self.counted_down) {
            (true, None) => self.counted_down = Some(now),
            (true, Some(_)) => {}
            (false, Some(at)) if !self.is_kept || now.since(at) < ON_ITS_WAY => {
                self.set_anew = true;
            }
            (false, _) => *self = Self { changed_before: true, ..Self::default() },
        }
    }

    /// What counts still after a look that had this. The latch may have been counted down and set again before that look:
    /// then the message that it was set is on its way.
    fn after_look(self, now: Moment) -> Self {
        let may_be_followed =
            !self.set_anew && self.counted_down.is_some_and(|at| now.since(at) < ON_ITS_WAY);
        if may_be_followed { Self { is_kept: true, ..self } } else { Self::default() }
    }
}

impl Waiter {
    /// Whether the messages say that its latch was counted down. If a latch is there (`closed`), they must say that it was
    /// set after that, and begin so late that they cannot be about the latch before.
    fn is_told(&self, heard: &Heard, closed: bool) -> bool {
        let is_late =
            |at: Moment| self.closed_since.is_some_and(|since| at.since(since) >= ON_ITS_WAY);
        let is_set_anew = heard.set_anew && !heard.changed_before;
        heard.counted_down.is_some_and(|at| !closed || (is_set_anew && is_late(at)))
    }

    /// Whether the message that its latch was counted down may still arrive.
    fn may_hear(&mut self, now: Moment) -> bool {
        // What was open before it came is no news to it.
        self.waits_for.is_some() && now.since(*self.gone_since.get_or_insert(now)) < ON_ITS_WAY
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock(&self.watched.state);
        let before = state.waiters.len();
        state.waiters.retain(|waiter| waiter.number != self.number);
        if state.waiters.is_empty() && before > 0 {
            drop(state);
            self.watched.kick.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look had been unanswered for 30 s when a new waiter came: its wait failed at once, with
    /// those of the others.
    #[test]
    fn who_comes_during_a_look_does_not_fail_with_it() {
        let (latches, name) = (Latches::default(), LockName::new(b"import").unwrap());
        let mut task = None;
        let mut first = latches.wait(&name, None, |watched| task = Some(watched));
        let watched = task.expect("a task looks");
        let look = watched.look();
        let mut second = latches.wait(&name, None, |_| panic!("a task looks already"));
        watched.look_failed(look, &Error::closed());
        assert!(first.done.try_recv().unwrap().is_err());
        assert!(second.done.try_recv().is_err(), "it waits");
        assert!(!latches.ends(&watched));
        watched.look_failed(watched.look(), &Error::closed());
        assert!(second.done.try_recv().unwrap().is_err());
    }

    /// D60: Java counted the latch down and set it anew between two looks. Under the same generation,
    /// the wait went on with the next latch.
    #[test]
    fn a_latch_that_is_set_anew_between_two_looks_has_opened() {
        let (latches, name) = (Latches::default(), LockName::new(b"import").unwrap());
        let mut task = None;
        let mut waiting = latches.wait(&name, None, |watched| task = Some(watched));
        let watched = task.expect("a task looks");
        let closed = LatchSeen { count: 1, generation: Some(7), ..LatchSeen::default() };
        assert_eq!(watched.seen(watched.look(), &closed), Next::Later);
        let mut hear = |messages: &[bool]| {
            messages.iter().for_each(|counted_down| latches.wake(&name, *counted_down));
            let next = watched.seen(watched.look(), &closed);
            (next, waiting.done.try_recv().ok().map(Result::unwrap))
        };
        let waits = (Next::Later, None);
        let (zero, set) = (true, false);
        // Sent before the first look, they would be about the latch before this one.
        assert_eq!(hear(&[zero, set]), waits);
        let before = Moment::now().minus_ms(2 * ON_ITS_WAY.as_millis() as u64);
        lock(&watched.state).waiters[0].closed_since = Some(before);
        assert_eq!(hear(&[set]), waits);
        // Deleted first: what was counted down is a later latch.
        assert_eq!(hear(&[set, zero, set]), waits);
        // Forged, or of a latch with this name in another database: the keys say that this one is closed.
        assert_eq!(hear(&[zero]), waits);
        lock(&watched.state).heard.counted_down = Some(before);
        assert_eq!(hear(&[set]), waits);
        assert_eq!(hear(&[]), waits);
        assert_eq!(hear(&[zero, set]), (Next::Nobody, Some(Opened::CountedDown)));
    }

    /// The look came between the two messages, which were sent before it.
    #[test]
    fn a_latch_that_is_set_anew_before_a_look_has_opened_when_that_is_heard() {
        let (latches, name) = (Latches::default(), LockName::new(b"import").unwrap());
        let mut task = None;
        let mut waiting = latches.wait(&name, None, |watched| task = Some(watched));
        let watched = task.expect("a task looks");
        let closed = LatchSeen { count: 1, generation: Some(7), ..LatchSeen::default() };
        assert_eq!(watched.seen(watched.look(), &closed), Next::Later);
        let before = Moment::now().minus_ms(2 * ON_ITS_WAY.as_millis() as u64);
        lock(&watched.state).waiters[0].closed_since = Some(before);
        latches.wake(&name, true);
        assert_eq!(watched.seen(watched.look(), &closed), Next::Later);
        let look = watched.look();
        latches.wake(&name, false);
        assert_eq!(watched.seen(look, &closed), Next::Nobody);
        assert_eq!(waiting.done.try_recv().unwrap().unwrap(), Opened::CountedDown);
    }

    /// A timed wait finds out which latch it waits for before it begins. By then the next one may
    /// be there.
    #[test]
    fn who_knows_its_latch_does_not_wait_for_the_next() {
        let (latches, name) = (Latches::default(), LockName::new(b"import").unwrap());
        let mut task = None;
        let mut waiting = latches.wait(&name, Some(7), |watched| task = Some(watched));
        let watched = task.expect("a task looks");
        let next = LatchSeen { count: 1, generation: Some(8), opened: Some(7), done: false };
        assert_eq!(watched.seen(watched.look(), &next), Next::Nobody);
        assert_eq!(waiting.done.try_recv().unwrap().unwrap(), Opened::CountedDown);
    }
}
