//! Store URLs. Parsing is strict: unknown parts are refused, never ignored.

use crate::base::error::Error;
use crate::settings::config::{Address, Config, DATABASE_MAX, SentinelPlace, ShardedPubSub};
use crate::settings::credentials::{Password, Secret};
use std::time::Duration;

/// Redis's and Valkey's port.
const DEFAULT_PORT: u16 = 6379;

/// The Sentinels' port.
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Longest URL: far longer than any real one, and cheap to copy.
const MAX_URL_BYTES: usize = 8 * 1024;

impl Config {
    /// Reads a store URL: `memory:`, `memory:NAME`, `sqlite:/path/to/file`, `sqlite:/path?shared=group`,
    /// `redis://[user:password@]host[:port][/database]`, `valkey://...` (the same),
    /// `redis+sentinel://[user:password@]host[:port],.../master[/database]`,
    /// `redis+cluster://[user:password@]host[:port],...`, `unix:/path/to/socket` or
    /// `unix:///path?db=2`. With `rediss` or `valkeys` in place of `redis` or `valkey`, all
    /// connections are encrypted ([`tls`](Self::tls)).
    ///
    /// Options follow `?`, separated by `&`, each at most once. `ca`, `cert`, `key` and
    /// `server-name` are for encrypted connections and correspond to [`tls_ca`](Self::tls_ca) and
    /// so on; `sharded-pubsub` is for a Cluster. In paths, passwords and options, `%` and two
    /// hexadecimal digits stand for a byte that a URL cannot contain.
    ///
    /// # Errors
    /// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) names the part that cannot be used. No
    /// message contains the URL's password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        parse(url)
    }
}

fn parse(url: &str) -> Result<Config, Error> {
    if url.len() > MAX_URL_BYTES {
        return Err(Error::misuse(format!("a store URL has at most {MAX_URL_BYTES} bytes")));
    }
    if url == "memory:" {
        return Ok(Config::for_address(Address::Memory));
    }
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::misuse(
            "a store URL begins with `memory:`, `sqlite:`, `redis://`, `redis+sentinel://`, \
             `redis+cluster://`, `valkey://` or `unix:`",
        ));
    };
    match scheme {
        "redis" | "valkey" | "rediss" | "valkeys" => server(scheme, rest),
        "unix" => socket(rest),
        "memory" => shared_memory(rest),
        "sqlite" => file(rest),
        "redis+sentinel" | "valkey+sentinel" | "rediss+sentinel" | "valkeys+sentinel" => {
            sentinel(scheme, rest)
        }
        "redis+cluster" | "valkey+cluster" | "rediss+cluster" | "valkeys+cluster" => {
            cluster(scheme, rest)
        }
        _ if scheme.contains('+') => Err(Error::misuse(
            "unknown scheme in the store URL; of those with `+` there are `redis+sentinel://`, \
             `redis+cluster://`, the same with `valkey`, and with TLS `rediss` and `valkeys`",
        )),
        _ => Err(Error::misuse(
            "unknown scheme in the store URL; use `memory:`, `sqlite:`, `redis://`, \
             `redis+sentinel://`, `redis+cluster://`, the same with `valkey`, with TLS `rediss` or \
             `valkeys`, or `unix:`",
        )),
    }
}

/// The parts of a URL `scheme://authority/path?query`, not decoded yet.
struct Parts<'a> {
    user: Option<&'a str>,
    place: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

fn parts<'a>(scheme: &str, rest: &'a str) -> Result<Parts<'a>, Error> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(Error::misuse(format!("`{scheme}:` in a store URL is followed by `//`")));
    };
    if rest.contains('#') {
        return Err(Error::misuse("a store URL has no fragment; write `#` in a password as `%23`"));
    }
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    Ok(Parts { user, place, path, query })
}

/// Name and password of `name:password`, either of which may be missing.
fn login(user: &str) -> Result<(Option<String>, Password), Error> {
    let (name, password) = user.split_once(':').map_or((user, None), |(n, p)| (n, Some(p)));
    let name = decode(name, "user name")?;
    let password = password.map(|p| decode(p, "password")).transpose()?;
    let password = password.map_or(Password::None, |p| Password::Given(Secret(p)));
    Ok(((!name.is_empty()).then_some(name), password))
}

/// Options of every server's URL.
const OF_SERVERS: [&str; 18] = [
    "password-file",
    "password-env",
    "replicas",
    "replicas-timeout-ms",
    "java-fleet",
    "log-names",
    "on-rights",
    "on-eviction",
    "on-version",
    "on-replica",
    "on-cluster",
    "on-clock",
    "on-password-file",
    "on-inbox",
    "on-failover",
    "on-sentinels",
    "on-password",
    "on-kind",
];

/// Options of encrypted connections.
const OF_TLS: [&str; 4] = ["ca", "cert", "key", "server-name"];

/// Options of Sentinels.
const OF_SENTINELS: [&str; 4] =
    ["sentinel-username", "sentinel-password", "sentinel-password-file", "sentinel-password-env"];

/// Options of Clusters.
const OF_CLUSTERS: [&str; 1] = ["sharded-pubsub"];

/// Options of Unix sockets, whose URLs have no other place for these values.
const OF_SOCKETS: [&str; 2] = ["db", "username"];

/// Whether a server's scheme means TLS.
fn is_encrypted(scheme: &str) -> bool {
    scheme.starts_with("rediss") || scheme.starts_with("valkeys")
}

/// Reads what follows `?`: options of every server's URL and the scheme's own, each at most once.
/// Errors do not repeat an unknown name, which may be a part of a password that was not encoded.
fn options(
    mut config: Config,
    scheme: &str,
    query: Option<&str>,
    own: &[&str],
) -> Result<Config, Error> {
    let of_tls: &[&str] = if is_encrypted(scheme) { &OF_TLS } else { &[] };
    let known = || OF_SERVERS.iter().chain(own).chain(of_tls);
    let mut met = Vec::new();
    for option in query.iter().flat_map(|query| query.split('&')) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if !known().any(|known| *known == name) {
            if let Some(name) = OF_TLS.iter().find(|of_tls| **of_tls == name) {
                return Err(Error::misuse(format!(
                    "the option `{name}` of the store URL is for encrypted connections: `rediss://`, \
                     `rediss+sentinel://` and `rediss+cluster://`"
                )));
            }
            let known: Vec<_> = known().map(|name| format!("`{name}`")).collect();
            // A password with a `?` in it is followed by the host.
            let is_option = option.contains('=') && !query.is_some_and(|it| it.contains('@'));
            let not_this = if is_option { format!(", not `{name}`") } else { String::new() };
            return Err(Error::misuse(format!(
                "a `{scheme}:` URL takes only the options {}{not_this}",
                known.join(", ")
            )));
        }
        if met.contains(&name) {
            return Err(Error::misuse(format!(
                "the option `{name}` stands twice in the store URL"
            )));
        }
        met.push(name);
        if value.is_empty() {
            return Err(Error::misuse(format!("the option `{name}` of the store URL is empty")));
        }
        set_option(&mut config, name, value)?;
    }
    Ok(config)
}

/// Sets one option. Nothing else interprets the options.
fn set_option(config: &mut Config, name: &str, value: &str) -> Result<(), Error> {
    let text = decode(value, &format!("option `{name}`"))?;
    match name {
        "ca" => config.set_tls(|tls| tls.ca = Some(text.into())),
        "cert" => config.set_tls(|tls| tls.cert = Some(text.into())),
        "key" => config.set_tls(|tls| tls.key = Some(text.into())),
        "server-name" => config.set_tls(|tls| tls.server_name = Some(text)),
        "db" => config.database = database(value)?,
        "username" => config.username = Some(text),
        "password-file" => only(&mut config.password, Password::File(text.into()))?,
        "password-env" => only(&mut config.password, Password::Variable(text))?,
        "sentinel-username" => config.sentinel_username = Some(text),
        "sentinel-password" => {
            only(&mut config.sentinel_password, Password::Given(Secret(text)))?;
        }
        "sentinel-password-file" => {
            only(&mut config.sentinel_password, Password::File(text.into()))?;
        }
        "sentinel-password-env" => only(&mut config.sentinel_password, Password::Variable(text))?,
        "replicas" => config.replicas = value.parse()?,
        "replicas-timeout-ms" => {
            let ms = value.parse().ok().filter(|_| value.bytes().all(|b| b.is_ascii_digit()));
            let bad = || Error::misuse("`replicas-timeout-ms` in the store URL is no number");
            config.replicas_timeout = Duration::from_millis(ms.ok_or_else(bad)?);
        }
        "java-fleet" => config.java_fleet = yes_or_no(name, value)?,
        "log-names" => config.log_names = yes_or_no(name, value)?,
        "sharded-pubsub" => {
            config.sharded_pubsub = match value {
                "auto" => ShardedPubSub::Auto,
                "on" => ShardedPubSub::On,
                "off" => ShardedPubSub::Off,
                _ => {
                    return Err(Error::misuse(
                        "the option `sharded-pubsub` of the store URL is `auto`, `on` or `off`",
                    ));
                }
            };
        }
        _ if config.on.set_by_name(name, &text)? => {}
        // The lists of names are above.
        _ => return Err(Error::misuse("an option of the store URL is listed and not read")),
    }
    Ok(())
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            Err(Error::misuse(format!("the option `{name}` of the store URL is `true` or `false`")))
        }
    }
}

/// Refuses a second password: it is not clear which one was meant.
fn only(place: &mut Password, password: Password) -> Result<(), Error> {
    if !place.is_none() {
        return Err(Error::misuse("the store URL names two places for one password; keep one"));
    }
    *place = password;
    Ok(())
}

fn server(scheme: &str, rest: &str) -> Result<Config, Error> {
    let parts = parts(scheme, rest)?;
    if parts.place.contains(',') {
        return Err(Error::misuse(format!(
            "`{scheme}://` names one server; with several hosts use `{scheme}+sentinel://` or \
             `{scheme}+cluster://`"
        )));
    }
    let (host, port) = host_and_port(parts.place, DEFAULT_PORT)?;
    let mut config = Config::for_address(Address::Tcp { host, port }).tls(is_encrypted(scheme));
    if let Some(user) = parts.user {
        (config.username, config.password) = login(user)?;
    }
    config.database = database(parts.path)?;
    options(config, scheme, parts.query, &[])
}

fn sentinel(scheme: &str, rest: &str) -> Result<Config, Error> {
    let parts = parts(scheme, rest)?;
    let places = parts.place.split(',').map(|place| host_and_port(place, DEFAULT_SENTINEL_PORT));
    let sentinels = places.collect::<Result<Vec<_>, _>>()?;
    let (master, number) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if master.is_empty() {
        return Err(Error::misuse(
            "a Sentinel URL names the master after the Sentinels: \
             `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`",
        ));
    }
    let place = SentinelPlace { sentinels, master: decode(master, "master's name")? };
    place.check()?;
    let mut config = Config::for_address(Address::Sentinel(place)).tls(is_encrypted(scheme));
    config.database = database(number)?;
    if let Some(user) = parts.user {
        (config.username, config.password) = login(user)?;
    }
    options(config, scheme, parts.query, &OF_SENTINELS)
}

fn cluster(scheme: &str, rest: &str) -> Result<Config, Error> {
    let parts = parts(scheme, rest)?;
    let nodes = parts.place.split(',').map(|place| host_and_port(place, DEFAULT_PORT));
    let nodes = nodes.collect::<Result<_, _>>()?;
    let mut config = Config::for_address(Address::Cluster(nodes)).tls(is_encrypted(scheme));
    if let Some(user) = parts.user {
        (config.username, config.password) = login(user)?;
    }
    config.database = database(parts.path)?;
    config = options(config, scheme, parts.query, &OF_CLUSTERS)?;
    // The same rule for URLs and settings: a Cluster has only one database.
    config.check_address()?;
    Ok(config)
}

fn host_and_port(place: &str, default_port: u16) -> Result<(String, u16), Error> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else {
            return Err(Error::misuse("the IPv6 address in the store URL has no closing `]`"));
        };
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(Error::misuse("the text in `[...]` of the store URL is no IPv6 address"));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(Error::misuse("only `:port` can follow `]` in the store URL")),
        }
    } else {
        place.split_once(':').map_or((place, None), |(h, p)| (h, Some(p)))
    };
    if host.is_empty() {
        return Err(Error::misuse("the store URL names no host"));
    }
    if host
        .bytes()
        .any(|b| b.is_ascii_control() || b == b' ' || b == b':' && !place.starts_with('['))
    {
        return Err(Error::misuse("the host in the store URL has a character no host has"));
    }
    let port = match port {
        None => default_port,
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => port,
            _ => return Err(Error::misuse("the port in the store URL is not between 1 and 65535")),
        },
    };
    Ok((host.to_owned(), port))
}

fn socket(rest: &str) -> Result<Config, Error> {
    let (path, query) = rest.split_once('?').map_or((rest, None), |(p, q)| (p, Some(q)));
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        return Err(Error::misuse("`unix:` in a store URL is followed by an absolute path"));
    }
    let path = decode(path, "socket path")?;
    if path.contains('\0') {
        return Err(Error::misuse("the socket path in the store URL has a zero byte"));
    }
    let config = Config::for_address(Address::Unix(path.into()));
    options(config, "unix", query, &OF_SOCKETS)
}

/// Only absolute paths: a relative one would mean a different file in every folder, and so a
/// different lock.
fn shared_memory(name: &str) -> Result<Config, Error> {
    if name.starts_with('/') || name.contains(['?', '#']) {
        return Err(Error::misuse(
            "`memory:` in a store URL is followed by a name, as in `memory:tests`; write `/` at its beginning as \
             `%2F`, `?` as `%3F` and `#` as `%23`",
        ));
    }
    Config::shared_memory(decode(name, "store's name")?)
}

fn file(rest: &str) -> Result<Config, Error> {
    let (path, query) = rest.split_once('?').map_or((rest, None), |(p, q)| (p, Some(q)));
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.contains('#') {
        return Err(Error::misuse("a store URL has no fragment; write `#` in a path as `%23`"));
    }
    if !path.starts_with('/') {
        return Err(Error::misuse(
            "`sqlite:` in a store URL is followed by an absolute path, as in `sqlite:/var/lib/app/locks`",
        ));
    }
    let config = Config::host(decode(path, "file's path")?);
    match query {
        None => Ok(config),
        Some("shared=group") => Ok(config.shared_with_group(true)),
        Some(_) => Err(Error::misuse("a `sqlite:` URL takes only the option `shared=group`")),
    }
}

fn database(text: &str) -> Result<u32, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    match text.parse::<u32>() {
        Ok(number) if number <= DATABASE_MAX && text.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(number)
        }
        _ => Err(Error::misuse("the database in the store URL is no number ≥ 0")),
    }
}

/// Decodes percent encoding.
fn decode(text: &str, what: &str) -> Result<String, Error> {
    let bad = || Error::misuse(format!("the {what} in the store URL is not percent-encoded UTF-8"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut hex = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (hex(), hex()) else { return Err(bad()) };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../tests/inside/settings/url/fuzz.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Replicas;
    use crate::settings::server_checks::{Check, Reaction};

    fn given(password: &Password) -> &str {
        match password {
            Password::Given(secret) => &secret.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_say_where_the_password_is() {
        let sources = |url: &str| {
            let config = parse(url)?;
            config.check()?;
            Ok(format!("{:?} {:?}", config.password, config.sentinel_password))
        };
        for (url, expected) in [
            ("redis://ann@h?password-file=/run/p%20w", r#"file "/run/p w" None"#),
            ("redis://h/2?password-env=PW", r#"variable "PW" None"#),
            ("unix:/s?db=1&username=ann&password-file=/pw", r#"file "/pw" None"#),
            (
                "redis+sentinel://ann@h/m?password-env=A&sentinel-password-file=/b",
                r#"variable "A" file "/b""#,
            ),
            ("redis+sentinel://ann:p@h/m?sentinel-password-env=B", r#"*** variable "B""#),
        ] {
            let found: Result<_, Error> = sources(url);
            assert_eq!(found.unwrap(), expected, "{url}");
        }
        for url in [
            "redis://ann:p@h?password-file=/pw",
            "redis://h?password-file=/pw&password-env=PW",
            "redis://h?password-file=pw",
            "redis://h?password-file",
            "redis://h?password-env=",
            "redis://h?password-env=A%3dB",
            "redis://h?sentinel-password-file=/pw",
            "redis+sentinel://h/m?sentinel-password=a&sentinel-password-env=B",
            "unix:/s?username=ann",
        ] {
            assert!(sources(url).is_err(), "{url}");
        }
    }

    #[test]
    fn urls_are_read() {
        let c = parse("redis://ann:p%40ss@db.example:7000/3").unwrap();
        assert_eq!(c.address, Address::Tcp { host: "db.example".into(), port: 7000 });
        assert_eq!(c.username.as_deref(), Some("ann"));
        assert_eq!(given(&c.password), "p@ss");
        assert_eq!(c.database, 3);
        let c = parse("valkey://[::1]").unwrap();
        assert_eq!(c.address, Address::Tcp { host: "::1".into(), port: 6379 });
        let c = parse("redis://:secret@h/").unwrap();
        assert_eq!((c.username, c.database), (None, 0));
        let c = parse("unix:/run/r.sock?db=2").unwrap();
        assert_eq!(c.address, Address::Unix("/run/r.sock".into()));
        assert_eq!(c.database, 2);
        assert_eq!(parse("memory:").unwrap().address, Address::Memory);
        let shared = Address::SharedMemory(fairlock_core::LockName::new(b"a b").unwrap());
        assert_eq!(parse("memory:a%20b").unwrap().address, shared);
        let url = "redis+sentinel://ann:pw@10.0.0.1,[::1]:7000/locks/2?sentinel-password=s%26";
        let c = parse(url).unwrap();
        let sentinels = vec![("10.0.0.1".into(), 26379), ("::1".into(), 7000)];
        let place = SentinelPlace { sentinels, master: "locks".into() };
        assert_eq!((c.address, c.database), (Address::Sentinel(place), 2));
        assert_eq!(c.username.as_deref(), Some("ann"));
        assert_eq!((given(&c.password), given(&c.sentinel_password)), ("pw", "s&"));
    }

    #[test]
    fn urls_of_clusters_name_nodes() {
        let url = "valkey+cluster://ann:pw@10.0.0.1,[::1]:7000/0?sharded-pubsub=off";
        let c = parse(url).unwrap();
        let nodes = vec![("10.0.0.1".into(), 6379), ("::1".into(), 7000)];
        assert_eq!((c.address, c.sharded_pubsub), (Address::Cluster(nodes), ShardedPubSub::Off));
        assert_eq!((c.username.as_deref(), given(&c.password)), (Some("ann"), "pw"));
        let c = parse("redis+cluster://h").unwrap();
        assert_eq!(c.sharded_pubsub, ShardedPubSub::Auto);
        let many = vec!["h"; 65].join(",");
        for url in ["", "h:0", "h,", "h/1", "h/x", "h?a=b", "h?sharded-pubsub=", &many] {
            assert!(parse(&format!("redis+cluster://{url}")).is_err(), "{url}");
        }
        assert!(Config::cluster([("h", 6379)]).database(1).check().is_err());
        assert!(Config::cluster(Vec::<(String, u16)>::new()).check().is_err());
    }

    /// Everything that a URL can set can be set in code, with the same result.
    #[test]
    fn urls_and_settings_say_the_same() {
        let seen = |c: &Config| {
            let logins = (&c.username, &c.password, &c.sentinel_username, &c.sentinel_password);
            let secrets = [&c.password, &c.sentinel_password].map(|password| match password {
                Password::Given(secret) => secret.0.clone(),
                _ => String::new(),
            });
            let flags = (c.java_fleet, c.log_names);
            let rest = (&c.tls, c.sharded_pubsub, c.replicas, c.replicas_timeout, flags, c.on);
            format!("{:?} {} {logins:?} {secrets:?} {rest:?}", c.address, c.database)
        };
        let tcp = || Config::tcp("h", 6379);
        let sentinel = || Config::sentinel([("h", 26379)], "m");
        let cluster = || Config::cluster([("h", 6379)]);
        let table = [
            ("redis://h", tcp()),
            ("redis://h/2", tcp().database(2)),
            ("redis://ann:pw@h", tcp().username("ann").password("pw")),
            ("redis://ann@h?password-file=/p", tcp().username("ann").password_file("/p")),
            ("redis://h?password-env=P", tcp().password_env("P")),
            ("redis://h?replicas=2", tcp().replicas(Replicas::AtLeast(2))),
            (
                "redis://h?replicas=all&replicas-timeout-ms=70",
                tcp().replicas(Replicas::All).replicas_timeout(Duration::from_millis(70)),
            ),
            ("redis://h?java-fleet=true", tcp().java_fleet(true)),
            ("redis://h?java-fleet=false", tcp()),
            ("redis://h?log-names=true", tcp().log_names(true)),
            ("unix:/s?log-names=false", Config::unix("/s")),
            ("redis+cluster://h?java-fleet=true", cluster().java_fleet(true)),
            ("redis://h?on-rights=warn", tcp().on_check(Check::Rights, Reaction::Warn)),
            ("redis://h?on-eviction=refuse", tcp().on_check(Check::Eviction, Reaction::Refuse)),
            ("redis://h?on-version=warn", tcp().on_check(Check::Version, Reaction::Warn)),
            ("redis://h?on-replica=ignore", tcp().on_check(Check::Replica, Reaction::Ignore)),
            ("redis://h?on-cluster=warn", tcp().on_check(Check::Cluster, Reaction::Warn)),
            ("redis://h?on-clock=refuse", tcp().on_check(Check::Clock, Reaction::Refuse)),
            (
                "redis://h?on-password-file=refuse",
                tcp().on_check(Check::PasswordFile, Reaction::Refuse),
            ),
            ("redis://h?on-inbox=refuse", tcp().on_check(Check::Inbox, Reaction::Refuse)),
            (
                "redis+sentinel://h/m?on-failover=ignore",
                sentinel().on_check(Check::Failover, Reaction::Ignore),
            ),
            ("redis://h?on-password=refuse", tcp().on_check(Check::Password, Reaction::Refuse)),
            ("redis://h?on-kind=ignore", tcp().on_check(Check::Kind, Reaction::Ignore)),
            (
                "redis+sentinel://h/m?on-sentinels=refuse",
                sentinel().on_check(Check::Sentinels, Reaction::Refuse),
            ),
            ("rediss://h", tcp().tls(true)),
            ("valkeys://h?ca=/a%20b", tcp().tls_ca("/a b")),
            ("rediss://h?cert=/c&key=/k", tcp().tls_cert("/c").tls_key("/k")),
            ("rediss://h?server-name=n", tcp().tls_server_name("n")),
            ("unix:/s?db=3", Config::unix("/s").database(3)),
            ("unix:/s?username=ann", Config::unix("/s").username("ann")),
            ("redis+sentinel://h/m/4", sentinel().database(4)),
            ("redis+sentinel://h/m?sentinel-username=s", sentinel().sentinel_username("s")),
            ("redis+sentinel://h/m?sentinel-password=s", sentinel().sentinel_password("s")),
            (
                "redis+sentinel://h/m?sentinel-password-file=/p",
                sentinel().sentinel_password_file("/p"),
            ),
            ("redis+sentinel://h/m?sentinel-password-env=P", sentinel().sentinel_password_env("P")),
            ("rediss+sentinel://h/m?ca=/a", sentinel().tls_ca("/a")),
            ("valkeys+sentinel://h/m", sentinel().tls(true)),
            ("redis+cluster://h", cluster()),
            ("redis+cluster://h?sharded-pubsub=on", cluster().sharded_pubsub(ShardedPubSub::On)),
            ("rediss+cluster://h?server-name=n", cluster().tls_server_name("n")),
            ("valkeys+cluster://h", cluster().tls(true)),
        ];
        let mut met = std::collections::BTreeSet::new();
        for (url, config) in table {
            assert_eq!(seen(&parse(url).unwrap()), seen(&config), "{url}");
            let options = url.split_once('?').map_or("", |(_, options)| options).split('&');
            met.extend(options.filter_map(|option| Some(option.split_once('=')?.0)));
        }
        // Three checks that were added later had no option.
        for check in Check::ALL {
            let option = format!("on-{}", check.name());
            assert!(OF_SERVERS.contains(&&*option), "{option} is missing");
        }
        let lists: [&[&str]; 5] = [&OF_TLS, &OF_SERVERS, &OF_SENTINELS, &OF_CLUSTERS, &OF_SOCKETS];
        assert!(
            met.into_iter()
                .eq(lists.concat().into_iter().collect::<std::collections::BTreeSet<_>>())
        );
    }

    #[test]
    fn options_stand_once_and_have_a_value() {
        for query in [
            "",
            "db",
            "db=",
            "db=1&db=1",
            "db=1&",
            "DB=1",
            "db=1&sentinel-password=x",
            "sentinel-password=CANARY",
            "CANARY",
        ] {
            let error = parse(&format!("unix:/s?{query}")).unwrap_err().to_string();
            assert!(!error.contains("CANARY"), "{error}");
        }
        let error = parse("redis+sentinel://h/m?sentinel-password=%zz").unwrap_err().to_string();
        assert!(error.contains("`sentinel-password`"), "{error}");
    }

    #[test]
    fn an_unknown_option_is_named_unless_it_may_be_a_password() {
        let error = |url: &str| parse(url).unwrap_err().to_string();
        let said = error("redis://h?timeout=3");
        assert!(said.contains("not `timeout`") && said.contains("`log-names`"), "{said}");
        for url in ["redis://:pw?CANARY=x@h", "redis://:pw?a=b&CANARY=x@h", "redis://h?CANARY"] {
            assert!(!error(url).contains("CANARY"), "{url}");
        }
        let said = error("redis://h?log-names=yes");
        assert!(said.contains("`log-names`") && said.contains("`true` or `false`"), "{said}");
    }

    #[test]
    fn urls_of_files_are_absolute() {
        let file = |url: &str| parse(url).map(|config| config.address);
        let at = |path: &str, shared| Address::Sqlite { path: path.into(), shared };
        assert_eq!(file("sqlite:/var/lib/locks").unwrap(), at("/var/lib/locks", false));
        assert_eq!(file("sqlite:///var/lib/locks").unwrap(), at("/var/lib/locks", false));
        assert_eq!(file("sqlite:/a%20b/%3f%23/é?shared=group").unwrap(), at("/a b/?#/é", true));
        for url in [
            "sqlite:",
            "sqlite:locks",
            "sqlite:./locks",
            "sqlite://host/locks",
            "sqlite:/a#b",
            "sqlite:/a?shared=all",
            "sqlite:/a?",
            "sqlite:/a?mode=ro",
            "sqlite:/a%2",
            "sqlite:/%ff",
        ] {
            assert!(file(url).is_err(), "{url}");
        }
        // Paths that no file can have, wherever they come from.
        for path in ["/", "/a/..", "/a\0b", "locks"] {
            assert!(Config::host(path).check().is_err(), "{path:?}");
        }
    }

    #[test]
    fn no_secret_in_messages_or_debug() {
        for url in ["redis://u:CANARY@h:0", "redis://u:CANARY@h/x", "redis://CANARY%ZZ:p@h"] {
            assert!(!parse(url).unwrap_err().to_string().contains("CANARY"), "{url}");
        }
        let config = parse("redis://u:CANARY@h").unwrap();
        assert!(!format!("{config:?}").contains("CANARY"));
    }
}
