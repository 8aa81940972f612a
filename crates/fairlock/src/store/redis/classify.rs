//! The meaning of a failed call: refused, passing, or in doubt. One match decides.

use super::wire::CallError;
use crate::base::error::{self, Error, ErrorKind};
use crate::store::{REFUSES_WRITES, StoreError};

pub(crate) fn is_noscript(error: &CallError) -> bool {
    error.code() == Some("NOSCRIPT")
}

pub(crate) fn is_wrong_type(error: &CallError) -> bool {
    error.code() == Some("WRONGTYPE") || text(error).contains("WRONGTYPE")
}

/// The script's description of what is stored under the lock's name, if that is certainly not a
/// lock.
pub(crate) fn not_a_lock(error: &CallError) -> Option<String> {
    let says = text(error);
    let (_, found) = says.split_once("FAIRLOCK_KIND")?;
    // The notation of an error puts its code between quotes.
    Some(found.trim_start_matches(['"', ':', ' ']).to_owned())
}

/// Whether the server is a replica.
pub(crate) fn is_read_only(error: &CallError) -> bool {
    error.code() == Some("READONLY") || text(error).contains("READONLY")
}

/// Whether a permission is missing. Scripts report that without the code.
pub(crate) fn is_permission(error: &CallError) -> bool {
    let says = text(error).to_ascii_lowercase();
    matches!(error, CallError::NoRight(_))
        || error.code() == Some("NOPERM")
        || [
            "noperm",
            "no permissions",
            "can't access at least one of the keys",
            "can't run this command",
            "can't publish to the channel",
        ]
        .iter()
        .any(|words| says.contains(words))
}

/// The server's message, bounded, without control characters, and without what [`said`] removes.
pub(super) fn text(error: &CallError) -> String {
    error::legible(&said(error))
}

/// The server's message, without the place in our script and without our arguments, which may be a part of a password.
fn said(error: &CallError) -> String {
    let mut said = error.to_string();
    // "... data set. script: 003e..., on @user_script:104." But "ACL failure in script: ..." names the missing right.
    for rest in [". script: ", ", with args beginning with", "args beginning with"] {
        said.truncate(said.find(rest).unwrap_or(said.len()));
    }
    said
}

/// Why a server refuses writes, and what to do. The server's own message is longer than the part of
/// it that is repeated, and names the place in our script.
fn refuses_writes(says: impl Fn(&str) -> bool) -> Option<&'static str> {
    [
        ("OOM", "its memory is full (OOM): raise `maxmemory`, or remove what fills it"),
        ("MISCONF", "it cannot save to its disk (MISCONF): its log says why, often a full disk"),
        (
            "NOREPLICAS",
            "too few replicas are connected (NOREPLICAS): start them, or lower `min-replicas-to-write`",
        ),
        (
            "READONLY",
            "it is a replica (READONLY): name the primary, or the Sentinels (redis+sentinel://) that know it",
        ),
    ]
    .into_iter()
    .find_map(|(code, text)| says(code).then_some(text))
}

pub(crate) fn classify(error: &CallError) -> StoreError {
    let failure = judge(error, text(error));
    StoreError { error: failure.error.quoting(&said(error)), ..failure }
}

fn judge(error: &CallError, message: String) -> StoreError {
    match error {
        CallError::Io(_) => {
            StoreError::unavailable(format!("the connection failed: {message}"), true)
        }
        CallError::NoRight(_) => denied(message),
        CallError::Server(server) => match server.code() {
            "NOPERM" => denied(message),
            "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => {
                StoreError::unavailable(message, false)
            }
            _ => by_code(error, message),
        },
        CallError::Parse(_) | CallError::Unexpected(_) => StoreError {
            error: Error::new(
                ErrorKind::Protocol,
                format!(
                    "the server's reply cannot be read ({message}): it has another form than RESP3, or text that \
                     is not UTF-8; is it a Redis or Valkey server, and does anything on the way rewrite replies?"
                ),
            ),
            doubt: true,
            passing: false,
        },
    }
}

fn by_code(error: &CallError, message: String) -> StoreError {
    let code = error.code().unwrap_or("");
    // Older servers put errors of a script's commands inside a general error.
    let says = |word: &str| code == word || message.contains(word);
    if says("WRONGTYPE") || says("FAIRLOCK_TOKEN") || says("FAIRLOCK_KIND") {
        let advice = match says("WRONGTYPE") {
            // It may be a lock that somebody holds.
            true => {
                "if it is a lock, name its kind (`--kind`; `simple_lock`, `fair_lock`, `plain_lock`), and remove \
                 nothing; otherwise use another name"
            }
            false => "another program uses it: use another name",
        };
        let message = format!("{message}; {advice}");
        return StoreError::refused(Error::new(ErrorKind::WrongType, message));
    }
    if says("NOAUTH")
        || says("WRONGPASS")
        || says(super::login::WITHOUT_PASSWORD)
        || is_permission(error)
    {
        return denied(message);
    }
    if says("DB index is out of range") {
        let message = "the server has no database of this number (DB index is out of range): they begin with 0, and \
                       `databases` in its configuration says how many there are";
        return StoreError::refused(Error::misuse(message));
    }
    if says("non local key") || says("while the cluster is down") {
        // The slot is moving while the script runs, and the server looks on the slot's new node for
        // a key that the script has just deleted. What the script did before stays done.
        return StoreError::unavailable(format!("the slot is on its way: {message}"), true);
    }
    if let Some(why) = refuses_writes(says) {
        return StoreError::unavailable(format!("{REFUSES_WRITES}: {why}"), false);
    }
    let busy = ["BUSY", "LOADING", "UNKILLABLE"];
    if busy.iter().any(|word| says(word)) || message.contains("max number of clients") {
        return StoreError::unavailable(format!("the server cannot serve now: {message}"), false);
    }
    let hint = if message.to_ascii_lowercase().contains("unknown command") {
        "is it a Sentinel (`redis+sentinel://`), or older than Redis 6.2?"
    } else {
        "is it Redis 6.2 or later, or Valkey?"
    };
    StoreError::refused(Error::new(
        ErrorKind::Protocol,
        format!("the server refused the call: {message}; {hint}"),
    ))
}

fn denied(message: String) -> StoreError {
    // For logins, the server's message contains no more than this, and that of NOAUTH is about
    // `HELLO`, which no user has typed.
    let message = if message.contains("NOAUTH") {
        "the server denies access to who has not logged in (NOAUTH): give the client a password"
            .into()
    } else if message.contains("WRONGPASS") {
        "the server denies access: it does not accept this user and password (WRONGPASS)".into()
    } else {
        format!(
            "the server denies access: {message}; check user, password, and the user's permissions \
             (`ACL GETUSER`)"
        )
    };
    StoreError::refused(Error::new(ErrorKind::Denied, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::ServerError;

    /// A server that does not know HELLO repeats the password, of which it may cut the end.
    #[test]
    fn arguments_are_not_repeated() {
        for said in [
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 's3cr'",
            "ERR unknown command 'HELLO' args beginning with: 's3cr",
        ] {
            let error = CallError::Server(ServerError::new(said.to_owned()));
            let message = classify(&error).error.to_string();
            assert!(message.contains("unknown command 'HELLO'"), "{message}");
            assert!(!message.contains("s3cr"), "{message}");
        }
    }
}
