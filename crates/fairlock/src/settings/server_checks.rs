//! What is looked at in a server, and what is done about it.

use crate::base::error::Error;
use std::fmt;

/// Something about a server that locks do not get on with; looked for whenever a connection is made, and
/// [`Clock`](Self::Clock) in every reply.
/// [`Config::on_check`](crate::Config::on_check) says what is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Check {
    /// The user may not run a command that the scripts need. A script that is stopped in the middle
    /// leaves a lock half taken, so it is looked for before any runs. Default: refuse.
    Rights,
    /// When its memory is full the server deletes keys that have a TTL (`maxmemory-policy`), locks among
    /// them: two could hold one lock. Tokens rise all the same. Default: warn, because some hosted
    /// servers come like that and never get full.
    Eviction,
    /// The server is older than Redis 6.2 and does not know all commands. Default: refuse.
    Version,
    /// The server is a replica: it takes no writes. Default: refuse, and try again until it is promoted
    /// or the store timeout is over.
    Replica,
    /// The server is a node of a Cluster, and the address does not say so: it serves some locks and
    /// refuses the others. Default: refuse.
    Cluster,
    /// The server's clock jumped by more than a second, or differs by as much from that of the server before
    /// it. Leases end early then, and others may have got a lock whose guard still counts on it; or they end
    /// late. Default: warn. Refuse does not end the connection: it puts every guard of this server in doubt
    /// ([`Suspect`](crate::GuardState::Suspect)) until the server has confirmed it by its new time, and has the
    /// waiters asked for; what goes on afterwards is what the server says.
    Clock,
    /// Others can read the file with the password, or change it. Not looked for where the file is part of a
    /// read-only file system in memory, as secrets of containers and services are: who sees that is decided
    /// elsewhere. Default: warn.
    PasswordFile,
    /// The server of the commands does not see where the client listens: something between them leads each connection
    /// to another server. Waiters are served in order all the same, but by their heartbeats, and the end of their process
    /// is noticed late. Default: warn. Ignore leaves such waiters to be taken for dead at their turn.
    Inbox,
    /// Behind Sentinels: a primary that is cut off goes on giving locks for as long as that lasts, because neither
    /// [`Config::replicas`](crate::Config::replicas) nor its own `min-replicas-to-write` forbids it. Default: warn.
    /// With the latter alone what it gave or renewed at the end stays valid for its lease beside a new holder.
    Failover,
    /// No majority of the Sentinels can be reached: this client may be on the wrong side of a split, and go on with a
    /// primary that was replaced. Default: warn. Refuse makes no connection then, and tries again; one that is there
    /// stays.
    Sentinels,
}

impl Check {
    pub(crate) const ALL: [Self; 10] = [
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
    ];

    /// As in URLs and logs.
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
        }
    }

    fn default_reaction(self) -> Reaction {
        match self {
            Self::Eviction
            | Self::Clock
            | Self::PasswordFile
            | Self::Inbox
            | Self::Failover
            | Self::Sentinels => Reaction::Warn,
            _ => Reaction::Refuse,
        }
    }
}

/// What to do about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reaction {
    /// Do not even look.
    Ignore,
    /// Go on, and say it: see [`Client::warnings`](crate::Client::warnings).
    Warn,
    /// Do not use the server.
    Refuse,
}

/// Something that was found and gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    check: Check,
    message: String,
}

impl Warning {
    pub(crate) fn new(check: Check, message: impl Into<String>) -> Self {
        Self { check, message: message.into() }
    }

    /// Which check found it.
    pub fn check(&self) -> Check {
        self.check
    }
}

/// What was found, and what to do: for people, without secrets.
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
    /// Nothing is looked for.
    pub(crate) fn ignoring() -> Self {
        Self(Check::ALL.map(|_| Reaction::Ignore))
    }

    pub(crate) fn to(self, check: Check) -> Reaction {
        self.0[check as usize]
    }

    pub(crate) fn set(&mut self, check: Check, reaction: Reaction) {
        self.0[check as usize] = reaction;
    }

    /// Takes an option `on-CHECK=REACTION` of a URL; says whether it is one.
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
