//! Why a call has no reply that can be used.

use super::value::ServerError;
use std::fmt;
use std::io;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The connection failed, or the reply did not come in time.
    Io(Arc<io::Error>),
    /// The server sent something that is not RESP.
    Parse(&'static str),
    /// The reply has another form than the command's.
    Unexpected(&'static str),
    /// The server refused the command.
    Server(ServerError),
    /// The same, with more about the missing right.
    NoRight(String),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl From<io::ErrorKind> for CallError {
    fn from(kind: io::ErrorKind) -> Self {
        io::Error::from(kind).into()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Parse(what) | Self::Unexpected(what) => f.write_str(what),
            Self::Server(error) => error.fmt(f),
            Self::NoRight(what) => write!(f, "no right {what}"),
        }
    }
}

impl CallError {
    /// The code of the server's error.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Server(error) => Some(error.code()),
            _ => None,
        }
    }

    /// Where the server says that the slot is.
    pub(crate) fn redirect_node(&self) -> Option<&str> {
        let Self::Server(error) = self else { return None };
        if !matches!(error.code(), "MOVED" | "ASK") {
            return None;
        }
        let mut words = error.detail()?.split_ascii_whitespace();
        words.next()?.parse::<u16>().ok()?;
        words.next()
    }

    pub(crate) fn is_io_error(&self) -> bool {
        matches!(self, Self::Io(_))
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.is_io(&[io::ErrorKind::TimedOut])
    }

    /// Whether the connection has ended.
    pub(crate) fn is_connection_dropped(&self) -> bool {
        self.is_io(&[
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::ConnectionAborted,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::NotConnected,
            io::ErrorKind::NotFound,
        ])
    }

    /// Whether the connection must be replaced.
    pub(crate) fn is_unrecoverable_error(&self) -> bool {
        self.is_connection_dropped() || matches!(self, Self::Parse(_))
    }

    fn is_io(&self, kinds: &[io::ErrorKind]) -> bool {
        matches!(self, Self::Io(error) if kinds.contains(&error.kind()))
    }
}
