//! Passwords: where they may come from, and how they are kept from the command.
//!
//! A password given in the URL on the command line can be seen by every user of the host for as
//! long as `fairlock` runs; that is why there are two other ways.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::exit::Failure;
use crate::trust;

/// Environment variable with the URL of the store.
pub(crate) const URL_VAR: &str = "FAIRLOCK_URL";
/// Environment variable with the password alone.
pub(crate) const PASSWORD_VAR: &str = "FAIRLOCK_PASSWORD";

/// The password from the file on the command line, else from the environment, else from the file
/// in the configuration; `None` leaves the URL's own.
pub(crate) fn password(
    [argument, configured]: [Option<&Path>; 2],
) -> Result<Option<String>, Failure> {
    match (argument, env::var_os(PASSWORD_VAR), configured) {
        (Some(path), ..) => in_file(path).map(Some),
        (None, Some(value), _) => value
            .into_string()
            .map(Some)
            .map_err(|_| Failure::usage(format!("{PASSWORD_VAR} is not UTF-8"))),
        (None, None, Some(path)) => in_file(path).map(Some),
        (None, None, None) => Ok(None),
    }
}

fn in_file(path: &Path) -> Result<String, Failure> {
    let text = trust::read(path).map_err(|refusal| refusal.about(path))?;
    // One newline ends the line; further ones are more likely a mistake than a password.
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains('\n') {
        return Err(Failure::usage(format!("{}: not one line with a password", path.display())));
    }
    Ok(line.to_owned())
}

/// What the command gets to see as `FAIRLOCK_URL`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildUrl {
    /// It holds no password.
    Unchanged,
    /// The same without the password.
    Stripped(String),
    /// It cannot be told where the password ends.
    Removed,
}

/// Takes the password out of a URL.
pub(crate) fn child_url(url: &OsStr) -> ChildUrl {
    let Some(url) = url.to_str() else { return ChildUrl::Removed };
    let (base, query) = match url.split_once('?') {
        Some((base, query)) => (base, Some(query)),
        None => (url, None),
    };
    let Some(mut clean) = without_userinfo_password(base) else { return ChildUrl::Removed };
    // `unix:` URLs have no authority and carry user and password in the query.
    if let Some(query) = query {
        if query.contains('@') {
            // Most likely the rest of a password with an unescaped question mark.
            return ChildUrl::Removed;
        }
        let kept: Vec<&str> = query.split('&').filter(|pair| !is_password(pair)).collect();
        if !kept.is_empty() {
            clean.push('?');
            clean.push_str(&kept.join("&"));
        }
    }
    if clean == url { ChildUrl::Unchanged } else { ChildUrl::Stripped(clean) }
}

/// `None` when there is an `@` where none belongs: an unescaped password.
fn without_userinfo_password(base: &str) -> Option<String> {
    let Some((scheme, rest)) = base.split_once("://") else {
        return (!base.contains('@')).then(|| base.to_owned());
    };
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    if path.contains('@') {
        return None;
    }
    let host = match authority.rsplit_once('@') {
        None => authority.to_owned(),
        Some((userinfo, host)) => match userinfo.split_once(':') {
            None => authority.to_owned(),
            Some(("", _)) => host.to_owned(),
            Some((user, _)) => format!("{user}@{host}"),
        },
    };
    Some(format!("{scheme}://{host}{path}"))
}

/// Whether a URL's option holds a password: `password`, `pass`, `sentinel-password`, and what may come.
pub(crate) fn is_password(pair: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key);
    key.to_ascii_lowercase().contains("pass")
}

/// Changes to the environment that keep secrets from a child: name and new value.
pub(crate) fn child_environment() -> Vec<(&'static str, Option<OsString>)> {
    let mut changes = vec![(PASSWORD_VAR, None)];
    if let Some(url) = env::var_os(URL_VAR) {
        match child_url(&url) {
            ChildUrl::Unchanged => {}
            ChildUrl::Stripped(clean) => changes.push((URL_VAR, Some(clean.into()))),
            ChildUrl::Removed => changes.push((URL_VAR, None)),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_without_a_password_stay() {
        for url in [
            "redis://host",
            "redis://host:6379/2",
            "redis://user@host",
            "redis://host/0?protocol=resp3",
            "unix:/run/redis.sock",
            "unix:///run/redis.sock?db=1&user=x",
            "memory:",
            "",
        ] {
            assert_eq!(child_url(OsStr::new(url)), ChildUrl::Unchanged, "{url}");
        }
    }

    #[test]
    fn passwords_are_taken_out() {
        for (url, clean) in [
            ("redis://:pw@host/1", "redis://host/1"),
            ("rediss://user:pw@host:1", "rediss://user@host:1"),
            ("redis://user:p@w@host", "redis://user@host"),
            ("redis://user:a:b@host", "redis://user@host"),
            ("unix:///r.sock?db=1&pass=pw", "unix:///r.sock?db=1"),
            ("unix:/r.sock?password=pw", "unix:/r.sock"),
            ("unix:/r.sock?PASS=pw", "unix:/r.sock"),
            (
                "redis+sentinel://u:pw@a,[::1]:1/m/2?sentinel-username=s&sentinel-password=pw",
                "redis+sentinel://u@a,[::1]:1/m/2?sentinel-username=s",
            ),
        ] {
            assert_eq!(child_url(OsStr::new(url)), ChildUrl::Stripped(clean.to_owned()), "{url}");
        }
    }

    /// Better no URL than half a password.
    #[test]
    fn doubtful_urls_are_removed() {
        for url in ["redis://u:p/w@host", "redis://u:p?w@host", "redis://u:p#w@host", "u:pw@host"] {
            assert_eq!(child_url(OsStr::new(url)), ChildUrl::Removed, "{url}");
        }
    }
}
