//! What was given back lately is given back once more when the connection is made anew: it may lead to
//! another server, which has not heard of it.
//!
//! Sentinels name a new primary before the old one stops, and replication is behind: a release that
//! was answered by the old one may be unknown to the new one, where the lock would stay held until its
//! lease ends. The operation names the hold by its token, or the request, so repeating it harms nobody.

use crate::clock::{Moment, lock};
use crate::shared::Shared;
use crate::store::Scope;
use fairlock_core::{LockName, Op};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How old it may be when the connection is lost: a server that was replaced is noticed after 2 to 4 s
/// without an announcement, and replication is seldom as late.
const KEPT: Duration = Duration::from_secs(10);

/// How many are kept: one that is missing costs a lease, each costs some 200 bytes.
const KEPT_MAX: usize = 4_096;

/// How many are under way at once.
const AT_ONCE: usize = 64;

/// What was given back lately, the oldest first.
#[derive(Default)]
pub(crate) struct Lately {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    given: VecDeque<Given>,
    /// A connection is lost: what is to be told to the next one is not forgotten before.
    lost: bool,
}

struct Given {
    at: Moment,
    name: LockName,
    op: Op,
}

impl Lately {
    /// The store has answered `op`, or cannot be reached: the lock was released, or the request left.
    pub(crate) fn note(&self, name: &LockName, op: &Op) {
        let at = Moment::now();
        let Known { given, lost } = &mut *lock(&self.known);
        let is_over = |old: &Given| !*lost && at.since(old.at) > KEPT;
        while given.len() >= KEPT_MAX || given.front().is_some_and(is_over) {
            given.pop_front();
        }
        given.push_back(Given { at, name: name.clone(), op: op.clone() });
    }

    /// The connection of these locks is lost: what is old by now is not told to the next one.
    pub(crate) fn connection_lost(&self, scope: &Scope) {
        let now = Moment::now();
        let told = |given: &Given| !scope.has(&given.name) || now.since(given.at) <= KEPT;
        let mut known = lock(&self.known);
        known.lost = true;
        known.given.retain(told);
    }

    /// The connection of these locks is made: what the server has to be told.
    fn found(&self, scope: &Scope) -> Vec<(LockName, Op)> {
        let mut known = lock(&self.known);
        known.lost = false;
        let given = known.given.iter().filter(|given| scope.has(&given.name));
        given.map(|given| (given.name.clone(), given.op.clone())).collect()
    }
}

/// Gives back once more what is of these locks, in the background. What is not answered is told to the next connection.
pub(crate) fn again(shared: &Arc<Shared>, scope: &Scope) {
    let all = shared.lately.found(scope);
    if all.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    shared.runtime.clone().spawn(async move {
        for some in all.chunks(AT_ONCE) {
            let calls = some.iter().map(|(name, op)| {
                let (shared, name, op) = (Arc::clone(&shared), name.clone(), op.clone());
                tokio::spawn(async move {
                    let reply = shared.store.call(&name, &op).await;
                    if reply.is_ok_and(|reply| reply.answer.more) {
                        shared.nudge(&name);
                    }
                })
            });
            for call in calls.collect::<Vec<_>>() {
                // A task that panicked has told nobody.
                let _ = call.await;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded() {
        let lately = Lately::default();
        let name = |n: usize| LockName::new(n.to_string().as_bytes()).unwrap();
        for n in 0..KEPT_MAX + 5 {
            lately.note(&name(n), &Op::Nudge);
        }
        let all = lately.found(&Scope::All);
        assert_eq!((all.len(), &all[0].0), (KEPT_MAX, &name(5)));
        lately.connection_lost(&Scope::All);
        assert_eq!(lately.found(&Scope::All).len(), KEPT_MAX);
        for given in lock(&lately.known).given.iter_mut().take(7) {
            given.at = given.at.minus_ms(KEPT.as_millis() as u64 + 1);
        }
        lately.connection_lost(&Scope::All);
        assert_eq!(lately.found(&Scope::All)[0].0, name(12));
    }

    /// However long nobody can be told.
    #[test]
    fn what_ends_without_a_connection_waits_for_the_next() {
        let lately = Lately::default();
        let note = |name: &[u8]| {
            lately.note(&LockName::new(name).unwrap(), &Op::Nudge);
            for given in lock(&lately.known).given.iter_mut() {
                given.at = given.at.minus_ms(KEPT.as_millis() as u64 + 1);
            }
        };
        lately.connection_lost(&Scope::All);
        note(b"one");
        note(b"two");
        assert_eq!(lately.found(&Scope::All).len(), 2);
        note(b"three");
        assert_eq!(lately.found(&Scope::All).len(), 1, "the others were told, and are old");
    }
}
