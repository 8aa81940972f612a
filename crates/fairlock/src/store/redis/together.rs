//! Several locks in one call: all of them, or none.

use super::classify::{classify, is_noscript};
use super::dial::Connection;
use super::keys::Publishing;
use super::link::Link;
use super::reply;
use super::script::{self, By};
use super::wire::{CallError, Value};
use crate::base::clock::{Moment, ServerClock};
use crate::base::error::{Error, ErrorKind};
use crate::store::{Reply, StoreError, Taken};
use fairlock_core::{Answer, Body, LockName, Op, Rules};
use std::sync::Arc;

/// Locks to take together, all of them in one slot.
#[derive(Clone, Copy)]
pub(super) struct Together<'a> {
    pub(super) rules: &'a Rules,
    pub(super) publishing: Publishing,
    pub(super) asks: &'a [(LockName, Op)],
}

impl Together<'_> {
    /// Sends the call. If it is refused, the locks are requested one at a time instead: a single
    /// request can follow a slot that moves, and its error names the lock.
    pub(super) async fn send(
        self,
        link: &Link,
        clock: Option<Arc<ServerClock>>,
    ) -> Result<Taken, StoreError> {
        let Some(conn) = link.connection() else { return Ok(Taken::None(None)) };
        let mut sent = Moment::now();
        let mut result = self.copy(&conn, By::Hash).await;
        if result.as_ref().is_err_and(is_noscript) {
            sent = Moment::now();
            result = self.copy(&conn, By::Text).await;
        }
        let answers = match result {
            Ok(Value::Int(first)) => {
                link.note_answer();
                let which = usize::try_from(first).ok().and_then(|first| first.checked_sub(1));
                return Ok(Taken::None(which.filter(|which| *which < self.asks.len())));
            }
            Ok(reply) => self.read(reply)?,
            Err(error) => {
                link.note_failure(&error);
                let failure = classify(&error);
                return if failure.doubt { Err(failure) } else { Ok(Taken::None(None)) };
            }
        };
        link.note_answer();
        let reply = |answer| Reply { sent, answer, clock: clock.clone() };
        Ok(Taken::All(answers.into_iter().map(reply).collect()))
    }

    async fn copy(self, conn: &Connection, by: By) -> Result<Value, CallError> {
        let cmd = script::call_together(by, self.rules, self.publishing, self.asks);
        conn.call(&cmd).await?.extract_error()
    }

    /// Strict, as for one lock. A reply of another form leaves in doubt what was done.
    fn read(self, reply: Value) -> Result<Vec<Answer>, StoreError> {
        let Value::Array(replies) = reply else { return Err(strange()) };
        if replies.len() != self.asks.len() {
            return Err(strange());
        }
        let mut answers = Vec::with_capacity(replies.len());
        for ((name, _), reply) in self.asks.iter().zip(replies) {
            let answer = reply::answer(reply).map_err(|_| strange())?;
            if !matches!(answer.body, Body::Granted { .. }) {
                return Err(strange());
            }
            crate::observe::answered(name, &answer);
            answers.push(answer);
        }
        Ok(answers)
    }
}

fn strange() -> StoreError {
    let message = "the server's reply to a request for several locks does not fit the protocol; a \
                   proxy may rewrite replies, or another program answers at this address";
    let error = Error::new(ErrorKind::Protocol, message);
    StoreError { error, doubt: true, passing: false }
}
