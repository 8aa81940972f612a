//! The checks of a server, and the reactions to their findings.

use crate::base::error::Error;
use std::fmt;

/// A property of a server that is unsafe for locks. The client checks for it whenever it connects,
/// and for [`Clock`](Self::Clock) in every reply. [`Config::on_check`](crate::Config::on_check)
/// decides what happens if it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Check {
    /// The user may not run a command that the scripts need. A script that stops in the middle
    /// leaves a lock half taken, so this is checked before any script runs. Default: refuse.
    Rights,
    /// When its memory is full, the server deletes keys that have a TTL (`maxmemory-policy`),
    /// including locks, so two clients could hold one lock. Tokens still rise. Default: warn,
    /// because some hosted servers are configured like that and never get full.
    Eviction,
    /// The server is older than Redis 6.2 and does not know all commands. Default: refuse.
    Version,
    /// The server is a replica and accepts no writes. Default: refuse, and try again until it is
    /// promoted or the store timeout is over.
    Replica,
    /// The server is a node of a Cluster, but the address does not say so: the server serves some
    /// locks and refuses the others. Default: refuse.
    Cluster,
    /// The server's clock jumped by more than a second, or differs by as much from that of the
    /// previous server. Leases then end late, or they end early, so that another client may already
    /// hold a lock whose guard still looks valid. Default: warn. Refuse does not close the
    /// connection: it makes every guard of this server [`Suspect`](crate::GuardState::Suspect)
    /// until the server has confirmed it by its new time, and checks the waiters. After that, the
    /// server's answers count.
    Clock,
    /// Others can read or change the file with the password. Not checked if the file is on a
    /// read-only in-memory file system, as secrets of containers and services are: other rules
    /// decide who can read those. Default: warn.
    PasswordFile,
    /// The server that executes the commands does not see the client's subscription: a proxy routes
    /// each connection to a different server. Waiters are still served in order, but only through
    /// their heartbeats, and the end of their process is noticed late. Default: warn. With Ignore,
    /// such waiters count as dead at their turn.
    Inbox,
    /// Behind Sentinels: a primary that is cut off continues to grant locks for as long as it is
    /// cut off, because neither [`Config::replicas`](crate::Config::replicas) nor its own
    /// `min-replicas-to-write` prevents it. Default: warn. With `min-replicas-to-write` alone, the
    /// locks that the primary granted or renewed last stay valid for their lease although another
    /// client may already hold them.
    Failover,
    /// No majority of the Sentinels can be reached: this client may be on the wrong side of a
    /// split, and continue with a primary that was replaced. Default: warn. With Refuse, the client
    /// does not connect, and tries again; an existing connection stays.
    Sentinels,
    /// A password is given, but the server asks for none: whoever reaches it can use all locks. Found for the user
    /// `default` only: of another user without a password a server says nothing. Default: warn.
    Password,
    /// This client was granted a lock as one kind that was last granted as another, within a day. Each works as long as
    /// nobody uses the other; then one of them is refused ([`WrongType`](crate::ErrorKind::WrongType)). Every store
    /// remembers the kind; the client looks once for each name, in the background, after a grant. Default: warn.
    /// Refuse only warns, too.
    Kind,
}

impl Check {
    pub(crate) const ALL: [Self; 12] = [
        Self::Rights,
        Self::Eviction,
        Self::Version,
        Self::Replica,
        Self::Cluster,
        Self::Clock,
        Self::PasswordFile,
        Self::Inbox,
        Self::Failover,
        Self::Sentinels,
        Self::Password,
        Self::Kind,
    ];

    /// Returns the name in URLs and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rights => "rights",
            Self::Eviction => "eviction",
            Self::Version => "version",
            Self::Replica => "replica",
            Self::Cluster => "cluster",
            Self::Clock => "clock",
            Self::PasswordFile => "password-file",
            Self::Inbox => "inbox",
            Self::Failover => "failover",
            Self::Sentinels => "sentinels",
            Self::Password => "password",
            Self::Kind => "kind",
        }
    }

    fn default_reaction(self) -> Reaction {
        match self {
            Self::Eviction
            | Self::Clock
            | Self::PasswordFile
            | Self::Inbox
            | Self::Failover
            | Self::Sentinels
            | Self::Password
            | Self::Kind => Reaction::Warn,
            _ => Reaction::Refuse,
        }
    }
}

/// What to do about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reaction {
    /// Do not check.
    Ignore,
    /// Use the server, and report the finding: see [`Client::warnings`](crate::Client::warnings).
    Warn,
    /// Do not use the server.
    Refuse,
}

/// A problem found with the server that did not prevent its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    check: Check,
    message: String,
}

impl Warning {
    pub(crate) fn new(check: Check, message: impl Into<String>) -> Self {
        Self { check, message: message.into() }
    }

    /// Returns the check that found the problem.
    pub fn check(&self) -> Check {
        self.check
    }
}

/// The problem and what to do about it, for people, without secrets.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The reaction to each check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reactions([Reaction; Check::ALL.len()]);

impl Default for Reactions {
    fn default() -> Self {
        Self(Check::ALL.map(Check::default_reaction))
    }
}

impl Reactions {
    /// Ignores every check.
    pub(crate) fn ignoring() -> Self {
        Self(Check::ALL.map(|_| Reaction::Ignore))
    }

    pub(crate) fn to(self, check: Check) -> Reaction {
        self.0[check as usize]
    }

    pub(crate) fn set(&mut self, check: Check, reaction: Reaction) {
        self.0[check as usize] = reaction;
    }

    /// Sets the reaction from an option `on-CHECK=REACTION` of a URL. Returns whether it is such an
    /// option.
    pub(crate) fn set_by_name(&mut self, name: &str, value: &str) -> Result<bool, Error> {
        let check =
            Check::ALL.into_iter().find(|check| name.strip_prefix("on-") == Some(check.name()));
        let Some(check) = check else { return Ok(false) };
        let reaction = match value {
            "ignore" => Reaction::Ignore,
            "warn" => Reaction::Warn,
            "refuse" => Reaction::Refuse,
            _ => {
                let name = check.name();
                let message =
                    format!("`on-{name}` in the store URL is `ignore`, `warn` or `refuse`");
                return Err(Error::misuse(message));
            }
        };
        self.set(check, reaction);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactions_are_set_one_by_one() {
        let mut reactions = Reactions::default();
        assert_eq!(reactions.to(Check::Eviction), Reaction::Warn);
        for (at, check) in Check::ALL.into_iter().enumerate() {
            assert_eq!(check as usize, at);
            let name = format!("on-{}", check.name());
            assert!(reactions.set_by_name(&name, "ignore").unwrap());
            assert_eq!(reactions.to(check), Reaction::Ignore);
            assert!(reactions.set_by_name(&name, "IGNORE").is_err());
        }
        assert!(!reactions.set_by_name("on-fire", "warn").unwrap());
        assert!(!reactions.set_by_name("eviction", "warn").unwrap());
    }
}
