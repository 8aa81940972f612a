//! RESP over one connection: commands, replies, and who gets which reply.

mod calls;
mod command;
mod connection;
mod error;
mod parser;
mod value;

pub(crate) use command::{Cmd, Decimal, Pipeline, cmd, pipe};
pub(crate) use connection::{Connection, Settings};
pub(crate) use error::CallError;
#[cfg(all(test, feature = "_testkit"))]
pub(crate) use parser::Parser;
#[cfg(test)]
pub(crate) use value::ServerError;
pub(crate) use value::{Push, PushKind, Value};
