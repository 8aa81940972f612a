//! Names the permissions that the user lacks. Servers report that something is denied, but seldom
//! what.

use super::classify::{classify, is_permission, text};
use super::dial::Connection;
use super::keys::{INBOX_PREFIX, Keys};
use super::wire::{self, CallError, Cmd, Value};
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use fairlock_core::LockName;

const RIGHTS: &str = include_str!("lua/rights.lua");

/// A key that nobody uses: permissions for commands are tried on it.
const KEY: &str = "fairlock_rights";

/// Where to find the rules.
const RULES: &str = "docs/acl in the repository of fairlock has all rules that it needs";

/// Asks which commands of the scripts are denied. Scripts publish with the first of `publish` that
/// the server knows.
pub(crate) fn commands(publish: &[&str]) -> Cmd {
    let mut cmd = wire::cmd("EVAL");
    cmd.arg(RIGHTS).arg(0_u8).arg(KEY).arg(INBOX_PREFIX);
    cmd.args(publish);
    cmd
}

/// Tries the permission for `EVALSHA`: no script has this hash.
pub(crate) fn by_hash() -> Cmd {
    let mut cmd = wire::cmd("EVALSHA");
    cmd.arg("0".repeat(40)).arg(0_u8);
    cmd
}

/// The commands that a reply to [`commands`] names; none if it has another form.
pub(crate) fn denied_commands(reply: &Value) -> Vec<String> {
    let Value::Array(names) = reply else { return Vec::new() };
    let name = |name: &Value| match name {
        Value::BulkString(name) => Some(String::from_utf8_lossy(name).into_owned()),
        _ => None,
    };
    let rule = |name: String| match name.as_str() {
        // The script may know only the command.
        "PUBSUB" => "PUBSUB|NUMSUB".to_owned(),
        _ => name,
    };
    names.iter().filter_map(name).map(rule).collect()
}

/// The message about denied commands.
pub(crate) fn without(commands: &[String]) -> String {
    let rules: Vec<_> = commands.iter().map(|name| format!("+{}", name.to_lowercase())).collect();
    format!(
        "the user may not run {}, and a script that is stopped half way leaves its work half done; allow \
         it with `ACL SETUSER USER {}` ({RULES})",
        commands.join(", "),
        rules.join(" ")
    )
}

/// The error for something that a user's rules do not allow.
pub(crate) fn denied(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, message.into())
}

/// The failure of a subscription, which may have been denied.
pub(crate) fn channel(channel: &[u8], error: &CallError) -> StoreError {
    let failure = classify(error);
    if !is_permission(error) {
        return failure;
    }
    let (said, channel) = (text(error), channel.escape_ascii());
    let of = if said.contains("channels") || said.contains("a channel") {
        format!(
            "to the channel `{channel}`: allow it with a rule like `&{}*`",
            prefix(&channel.to_string())
        )
    } else {
        format!("to subscribe to `{channel}`: allow `+subscribe` and `+unsubscribe`")
    };
    let error = denied(format!("the user has no right {of} ({RULES}; the server says: {said})"));
    let error = error.quoting(&said);
    StoreError { error, ..failure }
}

/// The same error, with the denied key if it is about a permission for one.
pub(crate) fn of_key(key: &[u8], error: CallError) -> CallError {
    let said = text(&error);
    if !is_permission(&error) || !said.contains("key") {
        return error;
    }
    let key = key.escape_ascii().to_string();
    let detail =
        format!("to the key `{key}`: allow it with a rule like `~{}*` ({RULES})", prefix(&key));
    CallError::NoRight(detail)
}

/// The name up to its first colon or brace: how a rule for all of its kind begins.
fn prefix(name: &str) -> &str {
    name.find(['{', ':']).map_or(name, |end| &name[..=end])
}

/// Asks the server what was denied in a call on a lock. Asks only after an error, so that the
/// common path does not pay for it.
pub(crate) async fn explain(
    conn: &mut Connection,
    name: &LockName,
    is_latch: bool,
    cmd_keys: &[Vec<u8>],
    publish: &str,
    error: &CallError,
) -> Option<StoreError> {
    if !is_permission(error) {
        return None;
    }
    let failure = classify(error);
    let said = text(error);
    let message = if ["channels", "a channel", "the channel"].iter().any(|of| said.contains(of)) {
        // The server does not say which. The client's own inbox is tried when the connection is
        // made.
        let keys = Keys::new(name);
        // Latches and announcements each have one channel of their own.
        let own = match is_latch {
            true => Some(keys.latch_channel()),
            false => Some(keys.leader()).filter(|channel| cmd_keys.contains(channel)),
        };
        if let Some(channel) = own {
            let channel = channel.escape_ascii().to_string();
            let rule = prefix(&channel);
            format!(
                "the user has no right to the channel `{channel}`: allow it with a rule like `&{rule}*`"
            )
        } else {
            let base = keys.base().escape_ascii().to_string();
            format!(
                "the user has no right to the channel `{base}`, or to one that begins with `{base}:` or \
                 `{INBOX_PREFIX}`: allow it with rules like `&redisson_lock__channel:{{*` and \
                 `&{INBOX_PREFIX}*`"
            )
        }
    } else if said.contains("keys") || said.contains("a key") {
        let denied = denied_keys(conn, cmd_keys).await;
        if denied.is_empty() {
            return None;
        }
        let rules: Vec<_> = denied.iter().map(|key| format!("`~{}*`", prefix(key))).collect();
        format!(
            "the user has no right to {}: allow it with rules like {}",
            denied.iter().map(|key| format!("the key `{key}`")).collect::<Vec<_>>().join(" and "),
            rules.join(" and ")
        )
    } else {
        let reply = conn.call(&commands(&[publish])).await.ok()?;
        let commands = denied_commands(&reply);
        if commands.is_empty() {
            return None;
        }
        without(&commands)
    };
    let error = denied(format!("{message} ({RULES}; the server says: {said})")).on(name);
    // A script may have done something before that.
    Some(StoreError { error, ..failure })
}

/// The keys among `keys` that the user may not use; the server does not say which.
async fn denied_keys(conn: &mut Connection, keys: &[Vec<u8>]) -> Vec<String> {
    let mut each = wire::Pipeline::with_capacity(keys.len());
    for key in keys {
        each.cmd("EVAL").arg("return 1").arg(1_u8).arg(key);
    }
    let replies = conn.call_all(&each).await.unwrap_or_default();
    let denied =
        keys.iter().zip(replies).filter(|(_, reply)| matches!(reply, Value::ServerError(_)));
    denied.map(|(key, _)| key.escape_ascii().to_string()).collect()
}
