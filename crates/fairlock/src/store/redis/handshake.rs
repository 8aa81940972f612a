//! The questions to a server when a connection to it is made, in one round trip. The answers are
//! judged before any lock is touched.

use super::classify::{classify, is_permission};
use super::dial::Connection;
use super::link;
use super::record::Record;
use super::rights;
use super::wire::{CallError, Pipeline, Value};
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::{Address, Config, ShardedPubSub};
use crate::settings::replicas::Replicas;
use crate::settings::server_checks::{Check, Reaction, Reactions, Warning};
use crate::store::StoreError;

/// The oldest server that knows all commands of the scripts: `SET ... PXAT`.
const OLDEST: (u32, u32) = (6, 2);

/// The questions, and the reactions to the answers.
pub(crate) struct Handshake {
    name: String,
    reactions: Reactions,
    /// The settings name a Cluster.
    cluster: bool,
    /// Another server may become the primary, and nothing is confirmed by replicas.
    fails_over: bool,
    /// The commands that scripts may publish with; the first that the server knows is used.
    publish: &'static [&'static str],
}

/// A finding, and the error that it becomes if the settings refuse it.
pub(super) struct Finding {
    check: Check,
    message: String,
    kind: ErrorKind,
    /// The server did not let us look; that must not prevent its use.
    blind: bool,
}

impl Handshake {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            name: link::connection_name(config),
            reactions: config.on,
            cluster: matches!(config.address, Address::Cluster(_)),
            fails_over: matches!(config.address, Address::Sentinel(_))
                && config.replicas == Replicas::None,
            publish: match (&config.address, config.sharded_pubsub) {
                (Address::Cluster(_), ShardedPubSub::On) => &["SPUBLISH"],
                (Address::Cluster(_), ShardedPubSub::Auto) => &["SPUBLISH", "PUBLISH"],
                _ => &["PUBLISH"],
            },
        }
    }

    fn looks_for(&self, check: Check) -> bool {
        self.reactions.to(check) != Reaction::Ignore
    }

    /// Names the connection, asks, and judges the answers.
    ///
    /// # Errors
    /// The connection fails, or the server must not be used.
    pub(crate) async fn exchange(
        &self,
        conn: &mut Connection,
        record: Option<&Record>,
    ) -> Result<Vec<Warning>, StoreError> {
        let mut ask = Pipeline::default();
        ask.add_command(link::set_name(&self.name));
        ask.cmd("HELLO");
        let time = record.is_some_and(Record::connected);
        if time {
            ask.cmd("TIME");
        }
        let memory = self.looks_for(Check::Eviction);
        if memory {
            ask.cmd("INFO").arg("memory");
        }
        let rights = self.looks_for(Check::Rights);
        let replication = self.fails_over && self.looks_for(Check::Failover);
        if replication {
            ask.cmd("INFO").arg("replication");
        }
        // Nothing else would show that the permission for one of these is missing.
        let outright: &[&str] = match (rights, self.cluster) {
            (false, _) => &[],
            (true, false) => &["PING"],
            (true, true) => &["ASKING", "PING"],
        };
        if rights {
            for name in outright {
                ask.cmd(name);
            }
            ask.add_command(rights::by_hash()).add_command(rights::commands(self.publish));
        }
        let failed = |error: CallError| StoreError { doubt: false, ..classify(&error) };
        let mut replies = conn.call_all(&ask).await.map_err(failed)?.into_iter();
        let mut reply = || replies.next().unwrap_or(Value::Nil);

        link::named(reply()).map_err(failed)?;
        let hello = reply();
        is_no_sentinel(&hello)?;
        let mut findings = self.of_server(&hello);
        if let Some(record) = record.filter(|_| time) {
            record.note_time(reply());
        }
        if memory {
            findings.extend(of_memory(reply()));
        }
        if replication {
            findings.extend(of_replication(reply()));
        }
        if rights {
            let denied = |name: &&&str| {
                let tried = (**name, reply().extract_error());
                tried.1.is_err_and(|error| is_permission(&error))
            };
            let denied: Vec<_> = outright.iter().filter(denied).copied().collect();
            findings.extend(of_rights(&denied, reply(), reply()).map_err(failed)?);
        }
        let mut warnings = Vec::new();
        for finding in findings {
            warnings.extend(self.react(finding)?);
        }
        Ok(warnings)
    }

    /// `HELLO` needs no permission, and contains what `INFO` would.
    fn of_server(&self, hello: &Value) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(version) = field(hello, "version").filter(|version| is_old(version)) {
            let (major, minor) = OLDEST;
            findings.push(Finding {
                check: Check::Version,
                message: format!(
                    "the server is of version {version}; the scripts need Redis {major}.{minor} or later, or Valkey"
                ),
                kind: ErrorKind::Protocol,
                blind: false,
            });
        }
        // A Cluster's replica redirects by itself.
        if !self.cluster && field(hello, "role").is_some_and(|role| role != "master") {
            findings.push(Finding {
                check: Check::Replica,
                message:
                    "the server is a replica, and takes no locks: connect to its master, or let \
                          Sentinels name it (`redis+sentinel://`)"
                        .into(),
                kind: ErrorKind::Unavailable,
                blind: false,
            });
        }
        if !self.cluster && field(hello, "mode").is_some_and(|mode| mode == "cluster") {
            findings.push(Finding {
                check: Check::Cluster,
                message:
                    "the server is a node of a Cluster, which serves some locks and refuses the \
                          others: use `redis+cluster://` (`Config::cluster`)"
                        .into(),
                kind: ErrorKind::Misuse,
                blind: false,
            });
        }
        findings.retain(|finding| self.looks_for(finding.check));
        findings
    }

    fn react(&self, finding: Finding) -> Result<Option<Warning>, StoreError> {
        let Finding { check, message, kind, blind } = finding;
        match self.reactions.to(check) {
            Reaction::Ignore => Ok(None),
            Reaction::Refuse if blind => Ok(Some(Warning::new(check, message))),
            Reaction::Warn => Ok(Some(Warning::new(check, message))),
            Reaction::Refuse if kind == ErrorKind::Unavailable => {
                // It may be promoted.
                Err(StoreError::unavailable(message, false))
            }
            Reaction::Refuse => {
                let name = check.name();
                let message =
                    format!("{message}; `on-{name}=warn` in the URL uses it all the same");
                Err(StoreError::refused(Error::new(kind, message)))
            }
        }
    }
}

/// A text field of the reply to `HELLO`.
pub(super) fn field<'a>(hello: &'a Value, name: &str) -> Option<&'a str> {
    let Value::Map(pairs) = hello else { return None };
    let text = |value: &'a Value| match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    };
    pairs.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value))
}

/// A version that cannot be read is not judged.
pub(super) fn is_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST,
        _ => false,
    }
}

/// Refuses a Sentinel, which knows where the servers are but keeps no locks.
fn is_no_sentinel(hello: &Value) -> Result<(), StoreError> {
    if field(hello, "mode") != Some("sentinel") {
        return Ok(());
    }
    let message = "a Sentinel answers here, which keeps no locks: use `redis+sentinel://HOST:PORT/MASTER` with \
                   the name of its master (`Config::sentinel`), or the port of the server";
    Err(StoreError::refused(Error::misuse(message).quoting("")))
}

/// What the primary does when it is cut off. Servers report how many replicas are close enough only
/// if they require some.
fn of_replication(info: Value) -> Option<Finding> {
    let info = match info.extract_error().ok()? {
        Value::VerbatimString(text) => text,
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => return None,
    };
    if info.lines().any(|line| line.starts_with("min_slaves_good_slaves:")) {
        return None;
    }
    let message = "a primary that is cut off goes on giving locks for as long as the split lasts, while another one \
                   gives them, too: wait for replicas (`replicas=1` in the URL), or at least set \
                   `min-replicas-to-write 1` on each server, so that it ends a lease later";
    let (check, kind) = (Check::Failover, ErrorKind::Misuse);
    Some(Finding { check, message: message.into(), kind, blind: false })
}

pub(super) fn of_memory(info: Value) -> Option<Finding> {
    let finding = |message: String, blind| {
        Some(Finding { check: Check::Eviction, message, kind: ErrorKind::Misuse, blind })
    };
    let info = match info.extract_error() {
        Ok(Value::VerbatimString(text)) => text,
        Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    };
    let value = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    match (value("maxmemory"), value("maxmemory_policy")) {
        (Some("0"), _) | (_, Some("noeviction")) => None,
        (Some(bytes), Some(policy)) => finding(
            format!(
                "when the server's memory ({bytes} bytes) is full it deletes locks (maxmemory-policy \
                 {policy}): set `noeviction`, or keep locks on a server of their own"
            ),
            false,
        ),
        _ => finding(
            "the server does not say whether it deletes locks when its memory is full: allow `+info` \
             (docs/acl), or do not look (`on-eviction=ignore` in the URL)"
                .into(),
            true,
        ),
    }
}

/// Judges the trial calls of `EVALSHA` and of the scripts' commands; those in `outright` were
/// denied already.
fn of_rights(
    outright: &[&str],
    by_hash: Value,
    commands: Value,
) -> Result<Option<Finding>, CallError> {
    let mut denied: Vec<String> = outright.iter().map(|name| (*name).to_owned()).collect();
    match by_hash.extract_error() {
        Err(error) if is_permission(&error) => denied.push("EVALSHA".to_owned()),
        // There is no such script.
        _ => {}
    }
    match commands.extract_error() {
        Ok(reply) => denied.extend(rights::denied_commands(&reply)),
        Err(error) if is_permission(&error) => denied.push("EVAL".to_owned()),
        Err(error) => return Err(error),
    }
    let message = rights::without(&denied);
    let kind = ErrorKind::Denied;
    Ok((!denied.is_empty()).then_some(Finding {
        check: Check::Rights,
        message,
        kind,
        blind: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for old in ["6.0.20", "5.0", "2.8.1", "6.1.9"] {
            assert!(is_old(old), "{old}");
        }
        for good in ["6.2.0", "7.0.15", "10.0", "9.1.2-rc1", "unstable", "", "x.1", "6"] {
            assert!(!is_old(good), "{good}");
        }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn what_a_server_says_of_itself_is_judged() {
        let hello = |version: &str, mode: &str, role: &str| {
            let pairs = [("version", version), ("mode", mode), ("role", role)];
            Value::Map(pairs.map(|(key, value)| (text(key), text(value))).to_vec())
        };
        let found = |config: Config, hello: &Value| {
            let findings = Handshake::new(&config).of_server(hello);
            findings.iter().map(|finding| finding.check).collect::<Vec<_>>()
        };
        let config = || Config::tcp("h", 1);
        assert_eq!(found(config(), &hello("7.0.1", "standalone", "master")), []);
        let all = [Check::Version, Check::Replica, Check::Cluster];
        assert_eq!(found(config(), &hello("6.0.1", "cluster", "replica")), all);
        for check in all {
            let rest = found(
                config().on_check(check, Reaction::Ignore),
                &hello("6.0.1", "cluster", "replica"),
            );
            assert_eq!(rest, all.into_iter().filter(|other| *other != check).collect::<Vec<_>>());
        }
        let cluster = Config::cluster([("h", 1)]);
        assert_eq!(found(cluster, &hello("7.0.1", "cluster", "master")), []);
        // A proxy may say less.
        assert_eq!(found(config(), &Value::Nil), []);
    }

    #[test]
    fn only_policies_that_delete_locks_are_found() {
        let info = |memory: &str, policy: &str| {
            let text = format!("# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\n");
            of_memory(Value::BulkString(text.into())).map(|finding| finding.blind)
        };
        assert_eq!(info("0", "allkeys-lru"), None);
        assert_eq!(info("1024", "noeviction"), None);
        for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"] {
            assert_eq!(info("1024", policy), Some(false), "{policy}");
        }
        assert_eq!(of_memory(Value::Nil).map(|finding| finding.blind), Some(true));
    }
}
