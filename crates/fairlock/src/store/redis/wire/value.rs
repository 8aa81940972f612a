//! What servers send.

use super::error::CallError;
use std::fmt;

/// A value, of the kinds that replies to fairlock have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    BulkString(Vec<u8>),
    SimpleString(String),
    VerbatimString(String),
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Push(Push),
    ServerError(ServerError),
    /// Of a kind that no reply to fairlock has: a set, a double, a boolean, a big number, something
    /// with attributes.
    Other,
}

/// A message that is not a reply, or that confirms a subscription.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Push {
    pub(crate) kind: PushKind,
    /// What follows the kind.
    pub(crate) data: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushKind {
    Message,
    SMessage,
    Subscribe,
    Unsubscribe,
    SSubscribe,
    SUnsubscribe,
    /// Not from the server: the connection is lost.
    Disconnection,
    Other,
}

impl Push {
    /// Reads a message from all elements of its value; `None` if the first one is not a kind.
    pub(super) fn read(mut data: Vec<Value>) -> Option<Self> {
        if data.is_empty() {
            return Some(Self { kind: PushKind::Other, data });
        }
        let kind = match data.remove(0) {
            Value::BulkString(kind) => kind,
            Value::SimpleString(kind) => kind.into_bytes(),
            _ => return None,
        };
        std::str::from_utf8(&kind).ok()?;
        let kind = match kind.as_slice() {
            b"message" => PushKind::Message,
            b"smessage" => PushKind::SMessage,
            b"subscribe" => PushKind::Subscribe,
            b"unsubscribe" => PushKind::Unsubscribe,
            b"ssubscribe" => PushKind::SSubscribe,
            b"sunsubscribe" => PushKind::SUnsubscribe,
            _ => PushKind::Other,
        };
        Some(Self { kind, data })
    }

    /// Whether it confirms a subscription of this kind to this channel.
    pub(super) fn confirms(&self, (kind, channel): &(PushKind, Vec<u8>)) -> bool {
        self.kind == *kind
            && matches!(self.data.first(), Some(Value::BulkString(named)) if named == channel)
    }
}

impl Value {
    /// The value, unless it is or contains an error.
    pub(crate) fn extract_error(self) -> Result<Self, CallError> {
        match self.error() {
            Some(error) => Err(CallError::Server(error.clone())),
            None => Ok(self),
        }
    }

    /// The parser bounds the depth.
    fn error(&self) -> Option<&ServerError> {
        match self {
            Self::ServerError(error) => Some(error),
            Self::Array(items) | Self::Push(Push { data: items, .. }) => {
                items.iter().find_map(Self::error)
            }
            Self::Map(pairs) => {
                pairs.iter().find_map(|(key, value)| key.error().or_else(|| value.error()))
            }
            _ => None,
        }
    }
}

/// An error that the server sent: a code and, mostly, a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerError(String);

impl ServerError {
    pub(crate) fn new(line: String) -> Self {
        Self(line)
    }

    pub(crate) fn code(&self) -> &str {
        self.split().0
    }

    pub(crate) fn detail(&self) -> Option<&str> {
        self.split().1
    }

    fn split(&self) -> (&str, Option<&str>) {
        match self.0.split_once(' ') {
            Some((code, detail)) => (code, Some(detail)),
            None => (&self.0, None),
        }
    }
}

impl fmt::Display for ServerError {
    /// As fairlock's messages have always shown it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, detail) = self.split();
        match code {
            "ERR" => f.write_str("ResponseError"),
            "EXECABORT" => f.write_str("ExecAbort"),
            "LOADING" => f.write_str("BusyLoading"),
            "NOSCRIPT" => f.write_str("NoScript"),
            "MOVED" => f.write_str("Moved"),
            "ASK" => f.write_str("Ask"),
            "TRYAGAIN" => f.write_str("TryAgain"),
            "CLUSTERDOWN" => f.write_str("ClusterDown"),
            "CROSSSLOT" => f.write_str("CrossSlot"),
            "MASTERDOWN" => f.write_str("MasterDown"),
            "READONLY" => f.write_str("ReadOnly"),
            "NOTBUSY" => f.write_str("NotBusy"),
            "NOSUB" => f.write_str("NoSub"),
            "NOPERM" => f.write_str("NoPerm"),
            code => write!(f, "{code:?}"),
        }?;
        match detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}
