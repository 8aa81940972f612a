//! Which reply belongs to which call.

use super::error::CallError;
use super::value::{Push, PushKind, Value};
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Calls without all their replies, in the order of their commands.
#[derive(Default)]
pub(super) struct Calls(VecDeque<Waiting>);

/// A call whose replies have not all arrived.
pub(super) struct Waiting {
    /// How many are missing.
    pub(super) missing: usize,
    /// What confirms each of these commands; empty if all have replies.
    pub(super) confirmations: VecDeque<Option<(PushKind, Vec<u8>)>>,
    pub(super) replies: Vec<Value>,
    pub(super) tell: Tell,
}

pub(super) enum Tell {
    One(oneshot::Sender<Result<Value, CallError>>),
    All(oneshot::Sender<Result<Vec<Value>, CallError>>),
}

impl Tell {
    pub(super) fn fail(self, error: CallError) {
        // The caller may be gone.
        match self {
            Self::One(tell) => drop(tell.send(Err(error))),
            Self::All(tell) => drop(tell.send(Err(error))),
        }
    }
}

/// What to do about a value, once the state is not locked any more.
pub(super) enum Arrival {
    Push(Push),
    One(oneshot::Sender<Result<Value, CallError>>, Value),
    All(oneshot::Sender<Result<Vec<Value>, CallError>>, Vec<Value>),
}

impl Calls {
    pub(super) fn add(&mut self, call: Waiting) {
        self.0.push_back(call);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives the value to its call.
    ///
    /// # Errors
    /// There is no such call.
    pub(super) fn assign(
        &mut self,
        value: Value,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), CallError> {
        let value = match value {
            Value::Push(push) => {
                let front = self.0.front().and_then(|it| it.confirmations.front());
                if !front.is_some_and(|it| it.as_ref().is_some_and(|it| push.confirms(it))) {
                    arrivals.push(Arrival::Push(push));
                    return Ok(());
                }
                arrivals.push(Arrival::Push(push.clone()));
                Value::Push(push)
            }
            value => value,
        };
        // Something in between has repeated a reply. Since then, each call got another call's
        // reply.
        let Some(front) = self.0.front_mut() else {
            return Err(CallError::Parse("a reply came that no command asked for"));
        };
        front.missing -= 1;
        front.confirmations.pop_front();
        if front.missing > 0 {
            front.replies.push(value);
            return Ok(());
        }
        let Some(Waiting { mut replies, tell, .. }) = self.0.pop_front() else {
            return Ok(());
        };
        arrivals.push(match tell {
            Tell::One(tell) => Arrival::One(tell, value),
            Tell::All(tell) => {
                replies.push(value);
                Arrival::All(tell, replies)
            }
        });
        Ok(())
    }
}

impl IntoIterator for Calls {
    type Item = Waiting;
    type IntoIter = std::collections::vec_deque::IntoIter<Waiting>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
