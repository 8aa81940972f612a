//! Passwords: where they may come from, and how they are kept from the command.
//!
//! A password given in the URL on the command line can be seen by every user of the host for as
//! long as `fairlock` runs; that is why there are other ways.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{self, Path, PathBuf};

use fairlock::Config;

use crate::exit::Failure;
use crate::message;
use crate::trust;

/// Environment variable with the URL of the store.
pub(crate) const URL_VAR: &str = "FAIRLOCK_URL";
/// Environment variable with the password of the servers alone.
pub(crate) const PASSWORD_VAR: &str = "FAIRLOCK_PASSWORD";
/// Environment variable with the user at the Sentinels.
const SENTINEL_USERNAME_VAR: &str = "FAIRLOCK_SENTINEL_USERNAME";

/// One of the two passwords that there may be.
pub(crate) struct Place {
    /// Environment variable with the password alone.
    variable: &'static str,
    given: fn(Config, String) -> Config,
    in_file: fn(Config, PathBuf) -> Config,
}

/// The one for the servers that keep the locks.
pub(crate) const OF_SERVERS: Place =
    Place { variable: PASSWORD_VAR, given: Config::password, in_file: Config::password_file };

/// The one for the Sentinels.
pub(crate) const OF_SENTINELS: Place = Place {
    variable: "FAIRLOCK_SENTINEL_PASSWORD",
    given: Config::sentinel_password,
    in_file: Config::sentinel_password_file,
};

/// The settings with the password from the file on the command line, else from the environment, else from
/// the file in the configuration; without any they keep the URL's own.
pub(crate) fn with_password(
    config: Config,
    place: &Place,
    [argument, configured]: [Option<&Path>; 2],
) -> Result<Config, Failure> {
    match (argument, env::var_os(place.variable), configured) {
        (Some(path), ..) | (None, None, Some(path)) => with_file(config, place, path),
        (None, Some(value), _) => match value.into_string() {
            // A newline at the end of a password is more likely from a file with one line than a part of it.
            Ok(text) => match end_of_line_cut(&text) {
                line if line.contains('\n') => {
                    Err(Failure::usage(format!("{} has more than one line", place.variable)))
                }
                line => Ok((place.given)(config, line.to_owned())),
            },
            Err(_) => Err(Failure::usage(format!("{} is not UTF-8", place.variable))),
        },
        (None, None, None) => Ok(config),
    }
}

/// Where the password comes from, for people.
pub(crate) fn source(place: &Place, [argument, configured]: [Option<&Path>; 2]) -> String {
    let shown = |path: &Path| message::printable(path.as_os_str());
    match (argument, env::var_os(place.variable), configured) {
        (Some(path), ..) | (None, None, Some(path)) => shown(path),
        (None, Some(_), _) => place.variable.to_owned(),
        (None, None, None) => "the URL".to_owned(),
    }
}

/// As [`with_password`], for the user's name at the Sentinels.
pub(crate) fn with_sentinel_username(
    config: Config,
    [argument, configured]: [Option<&OsStr>; 2],
) -> Result<Config, Failure> {
    let variable = env::var_os(SENTINEL_USERNAME_VAR);
    let name = argument.or(variable.as_deref()).or(configured);
    match name.map(OsStr::to_str) {
        // An empty variable is how shells spell "not set".
        None | Some(Some("")) => Ok(config),
        Some(Some(name)) => Ok(config.sentinel_username(name)),
        Some(None) => Err(Failure::usage("the user's name at the Sentinels is not UTF-8")),
    }
}

/// The file is read now, to refuse what is no use, and by the library again before each connection: a password
/// that is changed there and on the server keeps the lock. A pipe can be read only once.
fn with_file(config: Config, place: &Place, path: &Path) -> Result<Config, Failure> {
    let password = in_file(path)?;
    if !path.is_file() {
        return Ok((place.given)(config, password));
    }
    let path = path::absolute(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok((place.in_file)(config, path))
}

fn in_file(path: &Path) -> Result<String, Failure> {
    let text = trust::read(path).map_err(|refusal| refusal.about(path, "password"))?.text;
    let line = end_of_line_cut(&text);
    if line.is_empty() || line.contains('\n') {
        return Err(Failure::usage(format!("{}: not one line with a password", path.display())));
    }
    Ok(line.to_owned())
}

/// One newline ends the line; further ones are more likely a mistake than a password.
fn end_of_line_cut(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
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

/// A URL that is wrong, as far as it is safe to repeat: what stands at an odd place in it may be a password, or
/// the rest of one.
pub(crate) fn legible(url: &str) -> String {
    let stripped = match child_url(url.as_ref()) {
        ChildUrl::Unchanged => url.to_owned(),
        ChildUrl::Stripped(clean) if url.contains('?') => {
            format!("{}?***", clean.split('?').next().unwrap_or_default())
        }
        ChildUrl::Stripped(clean) => clean,
        ChildUrl::Removed => return "***".to_owned(),
    };
    let (base, query) = stripped.split_once('?').map_or((&*stripped, None), |(b, q)| (b, Some(q)));
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    let (scheme, rest) = match base.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), base),
    };
    // `user:password` without what should follow: a port is a number. Paths have colons where they like.
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    let is_file =
        scheme.is_empty() && ["sqlite:", "unix:", "memory:"].iter().any(|s| base.starts_with(s));
    let place = |place: &str| match place.rsplit_once(':') {
        Some((host, port))
            if !is_file && !host.ends_with(']') && !port.bytes().all(|b| b.is_ascii_digit()) =>
        {
            format!("{host}:***")
        }
        Some(("", _)) => "***".to_owned(),
        _ => place.to_owned(),
    };
    let authority: Vec<_> = authority.split(',').map(place).collect();
    format!("{scheme}{}{path}{query}", authority.join(","))
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

/// Whether a URL's option holds a password: `password`, `pass`, `sentinel-password`, and what may come; but
/// not those that say where one is.
pub(crate) fn is_password(pair: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key).to_ascii_lowercase();
    key.contains("pass") && !key.ends_with("-file") && !key.ends_with("-env")
}

/// The variables in which a URL says that there are passwords. (One with percent encoding is not found:
/// names of variables need none.)
pub(crate) fn variables(url: &str) -> Vec<String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let named = |pair: &str| match pair.split_once('=') {
        Some(("password-env" | "sentinel-password-env", name)) => Some(name.to_owned()),
        _ => None,
    };
    query.split('&').filter_map(named).collect()
}

/// Changes to the environment that keep secrets from a child: name and new value. `variables` have
/// passwords, too.
pub(crate) fn child_environment(variables: &[String]) -> Vec<(&str, Option<OsString>)> {
    let mut changes = vec![(OF_SERVERS.variable, None), (OF_SENTINELS.variable, None)];
    changes.extend(variables.iter().map(|name| (name.as_str(), None)));
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
            "redis://ann@host?password-file=/run/pw",
            "redis+sentinel://host/m?password-env=PW&sentinel-password-file=/run/pw",
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

    #[test]
    fn d27_a_wrong_url_is_repeated_without_what_may_be_a_password() {
        for (url, shown) in [
            ("localhost:6379", "localhost:6379"),
            ("http://host:80/x", "http://host:80/x"),
            ("redis:host", "redis:***"),
            ("sqlite:relative:odd", "sqlite:relative:odd"),
            ("redis+sentinel://a:1,b:2/m?x=y", "redis+sentinel://a:1,b:2/m?x=y"),
            ("http://u:CANARY@h", "http://u@h"),
            ("redis://:CANARY", "redis://:***"),
            ("redis://ann:CANARY", "redis://ann:***"),
            ("redis://:12345", "redis://***"),
            ("ann:CANARY@h", "***"),
            ("ann:CANARY", "ann:***"),
            ("redis://h?password=CAN&ARY", "redis://h?***"),
            ("redis://u:p?CANARY@h", "***"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
        ] {
            assert_eq!(legible(url), shown, "{url}");
        }
    }

    #[test]
    fn variables_with_passwords_are_found() {
        let url =
            "redis+sentinel://h/m?password-env=A&x=B&sentinel-password-env=C&password-file=/d";
        assert_eq!(variables(url), ["A", "C"]);
        assert!(variables("redis://h").is_empty());
    }

    /// Better no URL than half a password.
    #[test]
    fn doubtful_urls_are_removed() {
        for url in ["redis://u:p/w@host", "redis://u:p?w@host", "redis://u:p#w@host", "u:pw@host"] {
            assert_eq!(child_url(OsStr::new(url)), ChildUrl::Removed, "{url}");
        }
    }
}
