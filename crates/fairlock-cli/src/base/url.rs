//! Passwords in URLs: where they are, and the URL without them.
//!
//! Pure, and imports nothing of this program: every message is redacted with it.

use std::ffi::OsStr;

/// The URL that the command sees as `FAIRLOCK_URL`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildUrl {
    /// It holds no password.
    Unchanged,
    /// The URL without its password.
    Stripped(String),
    /// It is not clear where the password ends.
    Removed,
}

/// The part of a malformed URL that is safe to repeat in an error. `***` stands for text that may be a password.
pub(crate) fn legible(url: &str) -> String {
    let of_scheme = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '-';
    let (scheme, rest) = match url.find("://") {
        Some(at) if url[..at].chars().all(of_scheme) => url.split_at(at + 3),
        _ => ("", url),
    };
    let (base, options) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..at], "?***"),
        None => (rest, ""),
    };
    let is_port_or_path = |part: &str| {
        let port = part.split(['/', ',']).next().unwrap_or_default();
        port.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_safe = !rest.contains('@')
        && !base.starts_with(':')
        && base.split(':').skip(1).all(is_port_or_path);
    if is_safe { format!("{scheme}{base}{options}") } else { format!("{scheme}***") }
}

/// Removes the password from a URL.
pub(crate) fn child_url(url: &OsStr) -> ChildUrl {
    let Some(url) = url.to_str() else { return ChildUrl::Removed };
    let (base, query) = match url.split_once('?') {
        Some((base, query)) => (base, Some(query)),
        None => (url, None),
    };
    let Some(mut clean) = without_userinfo_password(base) else { return ChildUrl::Removed };
    // `unix:` URLs have no authority; user and password are in the query.
    if let Some(query) = query {
        if query.contains('@') {
            // Most likely the rest of a password with an unescaped `?`.
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

/// `None` if there is an `@` where none belongs: an unescaped password.
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

/// Whether an option of a URL holds a password: `password`, `sentinel-password`, future ones, misspelt ones and those
/// of other programs, but not options that name where a password is.
pub(super) fn is_password(pair: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key).to_ascii_lowercase();
    let words = ["pas", "pwd", "auth", "token", "secret"];
    (key == "pw" || words.iter().any(|word| key.contains(word)))
        && !key.ends_with("-file")
        && !key.ends_with("-env")
}

/// The environment variables that a URL names for passwords. (Percent-encoded names are not found: names of
/// variables need no encoding.)
pub(crate) fn variables(url: &str) -> Vec<String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let named = |pair: &str| match pair.split_once('=') {
        Some(("password-env" | "sentinel-password-env", name)) => Some(name.to_owned()),
        _ => None,
    };
    query.split('&').filter_map(named).collect()
}

/// Whether the URL names the password for the servers, or where it is.
pub(crate) fn names_password(url: &str) -> bool {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut names = query.split('&').filter_map(|it| Some(it.split_once('=')?.0));
    let authority = base.split_once("://").map_or("", |(_, rest)| rest);
    let login = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    login.is_some_and(|(_, password)| !password.is_empty())
        || names.any(|name| ["password", "password-file", "password-env"].contains(&name))
}

/// Whether the URL asks for encrypted connections.
pub(crate) fn is_encrypted(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    scheme.starts_with("rediss") || scheme.starts_with("valkeys")
}

/// The environment variable that this parameter of a URL names.
pub(crate) fn variable<'a>(url: &'a str, parameter: &str) -> Option<&'a str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(parameter)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_named_in_a_url() {
        for (url, expected) in [
            ("redis://h", false),
            ("redis://ann@h", false),
            ("redis://:pw@h", true),
            ("redis://h?password-file=/x", true),
            ("redis+sentinel://h/m?sentinel-password-env=X", false),
            ("redis+sentinel://u:p@h/m?sentinel-password=y", true),
        ] {
            assert_eq!(names_password(url), expected, "{url}");
        }
    }

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
            ("unix:/r.sock?passwd=pw&pasword=pw&pwd=pw&auth=pw&pw=pw&token=pw", "unix:/r.sock"),
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
            ("/srv/locks.db", "/srv/locks.db"),
            ("http://host:80/x", "http://host:80/x"),
            ("redis:host", "***"),
            ("redis:host:6379", "***"),
            ("redis://h:port", "redis://***"),
            ("sqlite:", "sqlite:"),
            ("sqlite:/srv/x y", "sqlite:/srv/x y"),
            ("redis+sentinel://a:1,b:2/m?x=CANARY", "redis+sentinel://a:1,b:2/m?***"),
            ("redis://h?pw=CANARY", "redis://h?***"),
            ("redis://h?password=CAN&ARY", "redis://h?***"),
            ("redis://h#CANARY", "redis://h?***"),
            ("http://u:CANARY@h", "http://***"),
            ("redis://:CANARY", "redis://***"),
            ("redis://:12345", "redis://***"),
            ("redis://ann:CANARY", "redis://***"),
            ("redis://ann:1CANARY", "redis://***"),
            ("redis://u:p?CANARY@h", "redis://***"),
            ("ann:CANARY@h", "***"),
            ("ann:CANARY", "***"),
            ("ann:CANARY@redis://h", "***"),
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

    /// No URL is better than half a password.
    #[test]
    fn doubtful_urls_are_removed() {
        for url in ["redis://u:p/w@host", "redis://u:p?w@host", "redis://u:p#w@host", "u:pw@host"] {
            assert_eq!(child_url(OsStr::new(url)), ChildUrl::Removed, "{url}");
        }
    }
}
