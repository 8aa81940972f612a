//! One operation on one connection.

use super::classify::{self, classify};
use super::dial::Connection;
use super::keys::{Keys, Publishing};
use super::link;
use super::reply;
use super::rights;
use super::script::{self, By};
use super::wire::{self, CallError, Value};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use fairlock_core::{Answer, Kind, LockName, Op, Rules};

/// An operation to carry out, and how its messages are published.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) publishing: Publishing,
    pub(crate) name: &'a LockName,
    pub(crate) op: &'a Op,
}

impl Call<'_> {
    /// Sends the operation, and again with the script's text if the server does not know the script
    /// yet. Returns when the answered copy was sent. With `asking`, the slot is moving to this
    /// node.
    pub(crate) async fn send(
        &self,
        conn: &mut Connection,
        asking: bool,
    ) -> (Moment, Result<Value, CallError>) {
        let mut sent = Moment::now();
        let mut result = self.copy(conn, By::Hash, asking).await;
        if result.as_ref().is_err_and(classify::is_noscript) {
            sent = Moment::now();
            result = self.copy(conn, By::Text, asking).await;
        }
        (sent, result)
    }

    async fn copy(&self, conn: &mut Connection, by: By, asking: bool) -> Result<Value, CallError> {
        let cmd = script::call(by, self.rules, self.publishing, self.name, self.op);
        if !asking {
            return conn.call(&cmd).await?.extract_error();
        }
        let mut both = wire::Pipeline::with_capacity(2);
        both.cmd("ASKING");
        both.add_command(cmd);
        let mut replies = conn.call_all(&both).await?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        // Without permission for `ASKING`, the node only names the other one again.
        if let Some(asked) = replies.pop() {
            asked.extract_error()?;
        }
        reply.extract_error()
    }

    /// Strict: a reply of another form is an error.
    pub(crate) fn read(&self, reply: Value) -> Result<Answer, StoreError> {
        let answer = reply::answer(reply)
            .map_err(|message| StoreError::refused(Error::new(ErrorKind::Protocol, message)))?;
        crate::observe::answered(self.name, &answer);
        Ok(answer)
    }

    /// The failure of a call on this connection.
    pub(crate) async fn failed(&self, conn: &mut Connection, error: &CallError) -> StoreError {
        let failure = classify(error);
        if classify::is_wrong_type(error) {
            return link::name_wrong_type(conn, self.name, self.op).await.unwrap_or(failure);
        }
        if let Some(found) = classify::not_a_lock(error) {
            return link::name_not_a_lock(conn, self.name, self.op, &found).await;
        }
        if classify::is_permission(error) {
            let mut keys = script::keys(self.name, self.op);
            if self.op.kind() == Some(Kind::ReadWrite) {
                keys.push(Keys::new(self.name).reader_timeout());
            }
            let is_latch = matches!(self.op, Op::Latch(_));
            let publish = self.publishing.command();
            return rights::explain(conn, self.name, is_latch, &keys, publish, error)
                .await
                .unwrap_or(failure);
        }
        failure
    }
}
