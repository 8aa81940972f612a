//! A host and a port as text.

use std::fmt;

/// `HOST:PORT`, as in a URL, with an IPv6 address in brackets.
pub(crate) struct HostPort<'a>(pub(crate) &'a str, pub(crate) u16);

impl fmt::Display for HostPort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(host, port) = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}
