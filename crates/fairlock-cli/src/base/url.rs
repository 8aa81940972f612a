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

/// The part of a malformed URL that is safe to repeat in an error: text in an unexpected position may be a password,
/// or the rest of one.
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
    let query = query.map_or(String::new(), |query| {
        format!("?{}", query.split('&').map(legible_option).collect::<Vec<_>>().join("&"))
    });
    let (scheme, rest) = match base.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), base),
    };
    // `user:password` without a host: a port is a number. A path may have colons anywhere.
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    let is_file =
        scheme.is_empty() && ["sqlite:", "unix:", "memory:"].iter().any(|s| base.starts_with(s));
    let address = |address: &str| match address.rsplit_once(':') {
        Some((host, port))
            if !is_file && !host.ends_with(']') && !port.bytes().all(|b| b.is_ascii_digit()) =>
        {
            format!("{host}:***")
        }
        Some(("", _)) => "***".to_owned(),
        _ => address.to_owned(),
    };
    let authority: Vec<_> = authority.split(',').map(address).collect();
    format!("{scheme}{}{path}{query}", authority.join(","))
}

/// An option of a malformed URL. The value of an unknown one may be a password whose name was misspelt, or is another
/// program's.
fn legible_option(option: &str) -> String {
    /// Options whose values are no secrets.
    const KNOWN: [&str; 17] = [
        "ca",
        "cert",
        "db",
        "java-fleet",
        "key",
        "log-names",
        "password-env",
        "password-file",
        "replicas",
        "replicas-timeout-ms",
        "sentinel-password-env",
        "sentinel-password-file",
        "sentinel-username",
        "server-name",
        "shared",
        "sharded-pubsub",
        "username",
    ];
    match option.split_once('=') {
        Some((key, _)) if KNOWN.contains(&key) || key.starts_with("on-") => option.to_owned(),
        Some((key, _)) => format!("{key}=***"),
        None if option.is_empty() => String::new(),
        None => "***".to_owned(),
    }
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

/// Whether the URL names a password, or where one is: `option` is `password` or `sentinel-password`.
pub(crate) fn names_password(url: &str, option: &str) -> bool {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut names = query.split('&').filter_map(|it| Some(it.split_once('=')?.0));
    let authority = base.split_once("://").map_or("", |(_, rest)| rest);
    let login = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    (option == "password" && login.is_some_and(|(_, password)| !password.is_empty()))
        || names.any(|name| {
            name.strip_prefix(option).is_some_and(|it| ["", "-file", "-env"].contains(&it))
        })
}

/// Whether the URL asks for encrypted connections.
pub(crate) fn is_encrypted(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    scheme.starts_with("rediss") || scheme.starts_with("valkeys")
}

/// The scheme that was probably meant by an unknown one.
pub(crate) fn near_scheme(url: &str) -> Option<&'static str> {
    const SCHEMES: [&str; 14] = [
        "redis",
        "rediss",
        "valkey",
        "valkeys",
        "sqlite",
        "unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
        "valkey+sentinel",
        "valkeys+sentinel",
        "valkey+cluster",
        "valkeys+cluster",
    ];
    let (scheme, _) = url.split_once(':')?;
    let near = SCHEMES.into_iter().map(|known| (distance(scheme, known), known));
    let (off, known) = near.min_by_key(|(off, _)| *off)?;
    (1..=2).contains(&off).then_some(known)
}

/// How many letters are to be added, left out or replaced.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<_> = (0..=other.len()).collect();
    for (at, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (to, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[to + 1];
            row[to + 1] = replaced.min(diagonal + 1).min(row[to] + 1);
        }
    }
    row[other.len()]
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
    fn a_misspelt_scheme_has_a_near_one() {
        for (url, near) in [
            ("reddis://h", Some("redis")),
            ("redis-sentinel://h/m", Some("redis+sentinel")),
            ("sqllite:/x", Some("sqlite")),
            ("redis://h:port", None),
            ("http://h", None),
            ("x", None),
        ] {
            assert_eq!(near_scheme(url), near, "{url}");
        }
    }

    #[test]
    fn passwords_named_in_a_url() {
        for (url, servers, sentinels) in [
            ("redis://h", false, false),
            ("redis://ann@h", false, false),
            ("redis://:pw@h", true, false),
            ("redis://h?password-file=/x", true, false),
            ("redis+sentinel://h/m?sentinel-password-env=X", false, true),
            ("redis+sentinel://u:p@h/m?sentinel-password=y", true, true),
        ] {
            assert_eq!(names_password(url, "password"), servers, "{url}");
            assert_eq!(names_password(url, "sentinel-password"), sentinels, "{url}");
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
            ("http://host:80/x", "http://host:80/x"),
            ("redis:host", "redis:***"),
            ("sqlite:relative:odd", "sqlite:relative:odd"),
            ("redis+sentinel://a:1,b:2/m?x=CANARY", "redis+sentinel://a:1,b:2/m?x=***"),
            ("redis://h?log-names=yes&on-clock=no", "redis://h?log-names=yes&on-clock=no"),
            ("redis://h?replicas=1&psw=CANARY&CANARY", "redis://h?replicas=1&psw=***&***"),
            ("redis://h?pasword=CANARY", "redis://h?***"),
            ("redis://h?pw=CANARY", "redis://h?***"),
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

    /// No URL is better than half a password.
    #[test]
    fn doubtful_urls_are_removed() {
        for url in ["redis://u:p/w@host", "redis://u:p?w@host", "redis://u:p#w@host", "u:pw@host"] {
            assert_eq!(child_url(OsStr::new(url)), ChildUrl::Removed, "{url}");
        }
    }
}
