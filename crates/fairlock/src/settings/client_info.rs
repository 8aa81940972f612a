//! The information that a client publishes about itself for those who inspect a lock that it holds
//! or waits for.

use crate::settings::config::Config;
#[cfg(unix)]
use crate::settings::text::printable;
#[cfg(unix)]
use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// Where a client of fairlock runs, as the client reports it: this is not verified, and anybody who
/// can write to the store can forge it. All texts are printable and at most 128 bytes long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClientInfo {
    /// The host's name.
    pub host: Option<String>,
    /// The process id, on its own host or in its own container.
    pub pid: u32,
    /// The user it runs as: a name, or `uid:` and a number.
    pub user: Option<String>,
    /// The name that the application gives itself: [`Config::label`].
    pub label: Option<String>,
    /// The version of fairlock.
    pub version: String,
    /// When the client was created, by the server's clock, to the second.
    pub since: SystemTime,
    /// The lease of all its holds, each of which it renews every third of it. `None` once it has
    /// held a lock under another lease, with a longest hold, or left one to the store, and for
    /// former versions, which do not say.
    pub lease: Option<Duration>,
}

impl ClientInfo {
    /// Collects the facts about this process.
    pub(crate) fn here(config: &Config, since: SystemTime) -> Self {
        Self {
            host: host(),
            pid: std::process::id(),
            user: user(),
            label: config.label.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since,
            lease: Some(config.watchdog_lease),
        }
    }
}

#[cfg(unix)]
fn host() -> Option<String> {
    printable(&rustix::system::uname().nodename().to_string_lossy())
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    None
}

/// Finds the user that the process runs as, not the one that the environment names.
#[cfg(unix)]
fn user() -> Option<String> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let name = local_users().and_then(|users| user_name(&users, &uid).and_then(printable_cow));
    Some(name.unwrap_or_else(|| format!("uid:{uid}")))
}

#[cfg(not(unix))]
fn user() -> Option<String> {
    None
}

#[cfg(unix)]
fn printable_cow(text: Cow<'_, str>) -> Option<String> {
    printable(&text)
}

/// Reads the file of this host's users, or its beginning if it is huge.
#[cfg(unix)]
fn local_users() -> Option<Vec<u8>> {
    use std::io::Read as _;
    const BYTES_MAX: u64 = 1 << 20;
    let mut users = Vec::new();
    std::fs::File::open("/etc/passwd").ok()?.take(BYTES_MAX).read_to_end(&mut users).ok()?;
    Some(users)
}

/// Finds the name of `uid` in lines of the form `name:password:uid:...`.
#[cfg(unix)]
fn user_name<'a>(users: &'a [u8], uid: &str) -> Option<Cow<'a, str>> {
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number == uid.as_bytes()).then(|| String::from_utf8_lossy(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::text::is_printable;

    #[cfg(unix)]
    #[test]
    fn users_have_names() {
        let users = b"root:x:0:0::/root:/bin/sh\nodd\n:x\n\xff:x:7:0::/:/bin/sh\nann:x:1000:0";
        assert_eq!(user_name(users, "0").as_deref(), Some("root"));
        assert_eq!(user_name(users, "1000").as_deref(), Some("ann"));
        assert_eq!(user_name(users, "7").as_deref(), Some("\u{fffd}"));
        assert_eq!(user_name(users, "100"), None);
        assert_eq!(user_name(b"", "0"), None);
    }

    #[test]
    fn this_process_can_be_told() {
        let config = Config::memory().label("nightly");
        let info = ClientInfo::here(&config, SystemTime::UNIX_EPOCH);
        assert_eq!(info.pid, std::process::id());
        assert_eq!(info.label.as_deref(), Some("nightly"));
        for text in [info.host, info.user, Some(info.version)] {
            assert!(text.as_deref().is_none_or(is_printable), "{text:?}");
        }
    }
}
