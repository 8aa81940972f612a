//! Options that several commands share, as typed: nothing here reads a file or the environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fairlock::Locks;

use crate::base::duration;

/// The heading of the options that say where the locks are.
pub(crate) const STORE: &str = "Where the locks are";

/// Where the locks are.
#[derive(Args, Debug, Default)]
pub(crate) struct Store {
    /// The store: a URL such as redis://HOST:6379 or sqlite:PATH.
    ///
    /// Also valkey:, redis+sentinel:, redis+cluster: and unix:, and rediss: and the like for TLS; see
    /// docs/configuration.md. Default: $FAIRLOCK_URL, then the configuration file, then a file of this user on this host.
    // An `OsString` without a parser: whatever is wrong with it, clap never quotes it.
    #[arg(long, value_name = "URL", help_heading = STORE)]
    pub(crate) url: Option<OsString>,

    /// A file with the password, on one line.
    ///
    /// Default: the password in --url, then $FAIRLOCK_PASSWORD, then the configuration file, then the password in a URL
    /// from elsewhere.
    #[arg(long, value_name = "FILE", help_heading = STORE, hide_short_help = true)]
    pub(crate) password_file: Option<PathBuf>,

    /// Refuse a store whose locks exclude fewer processes than this.
    #[arg(long, value_enum, help_heading = STORE, hide_short_help = true)]
    pub(crate) scope: Option<Scope>,

    /// A configuration file that replaces the user's and the system's. Default: $FAIRLOCK_CONFIG.
    #[arg(long, value_name = "FILE", help_heading = STORE, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// First come, first served.
    Fair,
    /// Reentrant, without a queue.
    Plain,
    /// A string key, as in redis-py and other small clients.
    Simple,
    /// One writer or many readers, first come, first served.
    Rw,
    /// N permits, first come, first served.
    Semaphore,
}

impl From<Kind> for fairlock::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Fair => Self::Fair,
            Kind::Plain => Self::Plain,
            Kind::Simple => Self::Simple,
            Kind::Rw => Self::ReadWrite,
            Kind::Semaphore => Self::Semaphore,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Scope {
    /// All users of this host (not the default store).
    Host,
    /// All hosts that use the server.
    Fleet,
}

impl Scope {
    /// The word as typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Fleet => "fleet",
        }
    }
}

/// Parses the time between two looks at the same locks.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    /// People see no more, and the server has other work.
    const MIN: Duration = Duration::from_millis(200);
    /// Beyond it `fairlock list` serves as well.
    const MAX: Duration = Duration::from_secs(3_600);
    match duration::parse(text)? {
        interval if (MIN..=MAX).contains(&interval) => Ok(interval),
        _ => Err("must be between 200ms and 1h".to_owned()),
    }
}

/// Parses how many keys of a server are searched per second.
pub(crate) fn rate() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(Locks::KEYS_PER_SECOND_MAX))
}
