//! Settings: each number with its unit, default and reason.

mod address;
mod tls;

pub(crate) use self::address::Address;
pub(crate) use self::tls::TlsSettings;

use crate::base::error::Error;
use crate::settings::credentials::{Credentials, Password, Secret};
use crate::settings::replicas::Replicas;
use crate::settings::server_checks::{Check, Reaction, Reactions};
use crate::settings::text::{VALUE_BYTES_MAX, is_printable};
use fairlock_core::{MAX_LEASE_MS, Rules};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Shortest lease. Below it, the safety margin (10 ms) and a round trip leave no usable time.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(100);

/// Shortest time between two looks at a lock that is [polled](crate::Lock::poll): each look is a call to the store, so a
/// waiting client costs a server at most about fifty of them a second.
pub(crate) const MIN_POLL: Duration = Duration::from_millis(10);

/// Largest database number that a server can have: servers count them in a C `int`.
pub(crate) const DATABASE_MAX: u32 = i32::MAX as u32;

/// Maximum number of Sentinels that can be named: each costs a connection whenever the master is
/// looked up.
pub(crate) const SENTINELS_MAX: usize = 16;

/// Maximum number of nodes of a Cluster that can be named; the others are discovered from the
/// Cluster itself.
pub(crate) const SEEDS_MAX: usize = 64;

/// How to reach a store and how to use it. Created from a URL or a constructor, and refined with
/// setters.
///
/// If a setting is out of bounds, [`Client::with_config`](crate::Client::with_config) fails before
/// anything is sent. The bounds of durations: `watchdog_lease` 300 ms to ten years, `heartbeat` 20
/// ms to 60 s, `fair_wait` 1 s to a day, `connect_retry` 0 to an hour, all others 10 ms to an hour.
///
/// Its `Debug` form hides the passwords.
///
/// ```
/// # use std::time::Duration;
/// let config = fairlock::Config::from_url("redis://127.0.0.1:6379/2")?
///     .client_name("billing")
///     .store_timeout(Duration::from_secs(10));
/// # Ok::<(), fairlock::Error>(())
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) address: Address,
    pub(crate) username: Option<String>,
    pub(crate) password: Password,
    pub(crate) database: u32,
    pub(crate) client_name: Option<String>,
    pub(crate) connect_timeout: Duration,
    /// Whether the host store's file is created if there is none.
    pub(crate) create: bool,
    pub(crate) connect_retry: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) store_timeout: Duration,
    pub(crate) watchdog_lease: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) fair_wait: Duration,
    pub(crate) ping_interval: Duration,
    pub(crate) ping_timeout: Duration,
    pub(crate) java_fleet: bool,
    pub(crate) lazy_connect: bool,
    pub(crate) label: Option<String>,
    pub(crate) announce: bool,
    pub(crate) log_names: bool,
    pub(crate) sentinel_username: Option<String>,
    pub(crate) sentinel_password: Password,
    pub(crate) children_keep_alive: bool,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) on: Reactions,
    pub(crate) sharded_pubsub: ShardedPubSub,
    pub(crate) replicas: Replicas,
    pub(crate) replicas_timeout: Duration,
}

/// How messages of locks on a Cluster are published: Redisson's `shardedSubscriptionMode`, which
/// must be the same in the whole fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShardedPubSub {
    /// To the nodes of the lock's slot (`SPUBLISH`) if every master supports it, as Redis 7 and
    /// later do, else to the whole Cluster (`PUBLISH`). The client decides once, when it connects.
    #[default]
    Auto,
    /// To the nodes of the lock's slot.
    On,
    /// To the whole Cluster, as Redisson before 3.22 does.
    Off,
}

/// Sentinels, and the name of the master that they monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelPlace {
    pub(crate) sentinels: Vec<(String, u16)>,
    pub(crate) master: String,
}

impl SentinelPlace {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.sentinels.is_empty() || self.sentinels.len() > SENTINELS_MAX {
            return Err(Error::misuse(format!("name 1 to {SENTINELS_MAX} Sentinels")));
        }
        for (host, port) in &self.sentinels {
            check_place(host, *port)?;
        }
        // The names that a Sentinel's configuration can have.
        let legible = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
        if self.master.is_empty() || !self.master.bytes().all(legible) {
            return Err(Error::misuse(
                "the name of the master that the Sentinels watch must be letters, digits, `.`, `-` \
                 and `_`, as in their configuration",
            ));
        }
        Ok(())
    }
}

fn check_place(host: &str, port: u16) -> Result<(), Error> {
    if port == 0 {
        return Err(Error::misuse("port 0 is no port of a server"));
    }
    if host.is_empty() || host.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(Error::misuse("the host is empty or has a character no host has"));
    }
    Ok(())
}

impl Config {
    /// Uses the Redis or Valkey server at `host` and `port`.
    ///
    /// ```
    /// let config = fairlock::Config::tcp("127.0.0.1", 6379).username("ann").password("secret");
    /// ```
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::for_address(Address::Tcp { host: host.into(), port })
    }

    /// Uses a Redis or Valkey server behind a Unix socket, whose path must be absolute.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::for_address(Address::Unix(path.into()))
    }

    /// Uses a store for this user's processes on this host: the file at `path`, which must be
    /// absolute. A missing file is created. A missing folder is an error, since the path may be
    /// misspelt. With [`shared_with_group`](Self::shared_with_group) the file is for a group of users; all other users
    /// get [`Denied`](crate::ErrorKind::Denied). Linux only. Needs the feature `sqlite`.
    ///
    /// ```
    /// let config = fairlock::Config::host("/var/lib/billing/locks").label("nightly");
    /// ```
    pub fn host(path: impl Into<PathBuf>) -> Self {
        Self::for_address(Address::Sqlite { path: path.into(), shared: false })
    }

    /// Shares the host store's file with the group of its folder, which must be open to that group
    /// and pass it on to new files (mode 2770). Every user of the file must set this. Has no effect
    /// on other stores. Default: the URL's, else false: the file is for one user.
    #[must_use]
    pub fn shared_with_group(mut self, yes: bool) -> Self {
        if let Address::Sqlite { shared, .. } = &mut self.address {
            *shared = yes;
        }
        self
    }

    /// Sets whether connecting creates the host store's file if it is missing; set this to false in
    /// a program that only inspects locks. If the file or its folder is missing, connecting
    /// then fails with an error of kind [`Unavailable`](crate::ErrorKind::Unavailable), "there is
    /// no store at ...", and nothing is created. Has no effect on other stores. Default: true.
    ///
    /// ```
    /// let config = fairlock::Config::host("/var/lib/billing/locks").create(false);
    /// ```
    #[must_use]
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Uses the server that Sentinels monitor under the name `master`, whichever it is at the time.
    /// Each Sentinel is given as host and port. All are asked before each connection.
    ///
    /// ```
    /// let sentinels = [("10.0.0.1", 26379), ("10.0.0.2", 26379), ("10.0.0.3", 26379)];
    /// let config = fairlock::Config::sentinel(sentinels, "locks").password("secret");
    /// ```
    pub fn sentinel<H: Into<String>>(
        sentinels: impl IntoIterator<Item = (H, u16)>,
        master: impl Into<String>,
    ) -> Self {
        let sentinels = sentinels.into_iter().map(|(host, port)| (host.into(), port)).collect();
        Self::for_address(Address::Sentinel(SentinelPlace { sentinels, master: master.into() }))
    }

    /// Uses a Redis or Valkey Cluster. `nodes` are some of its nodes, each as host and port, from
    /// which the others are discovered. Name several, so that one of them is available.
    ///
    /// ```
    /// let config = fairlock::Config::cluster([("10.0.0.1", 6379), ("10.0.0.2", 6379)]);
    /// ```
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        let nodes = nodes.into_iter().map(|(host, port)| (host.into(), port)).collect();
        Self::for_address(Address::Cluster(nodes))
    }

    /// Uses a store inside this process, for the one client that is created with it.
    ///
    /// Its leases and waits run in real time, on the client's own thread, also under
    /// `#[tokio::test(start_paused = true)]`. For tests in paused time use `test_util::Sandbox`
    /// (feature `test-util`).
    pub fn memory() -> Self {
        Self::for_address(Address::Memory)
    }

    pub(crate) fn for_address(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: Password::None,
            database: 0,
            client_name: None,
            connect_timeout: Duration::from_secs(5),
            create: true,
            connect_retry: Duration::ZERO,
            response_timeout: Duration::from_secs(3),
            store_timeout: Duration::from_secs(30),
            watchdog_lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(2),
            fair_wait: Duration::from_secs(300),
            ping_interval: Duration::from_secs(2),
            ping_timeout: Duration::from_secs(2),
            java_fleet: false,
            lazy_connect: false,
            label: None,
            announce: true,
            log_names: false,
            sentinel_username: None,
            sentinel_password: Password::None,
            children_keep_alive: false,
            tls: None,
            on: Reactions::default(),
            sharded_pubsub: ShardedPubSub::Auto,
            replicas: Replicas::None,
            replicas_timeout: Duration::from_secs(1),
        }
    }

    /// Sets the user to authenticate as. Default: the URL's, else the server's default user.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.username = Some(name.into());
        self
    }

    /// Sets the password. Default: the URL's. If several settings provide a password, the last one
    /// counts.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Password::Given(Secret(password.into()));
        self
    }

    /// Reads the password from a file: one line, absolute path. The file is read before each
    /// connection, so if the password is changed there and on the server, this client keeps its
    /// locks. In a URL: `?password-file=/path`.
    #[must_use]
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password = Password::File(path.into());
        self
    }

    /// Reads the password from an environment variable before each connection. In a URL:
    /// `?password-env=NAME`.
    #[must_use]
    pub fn password_env(mut self, name: impl Into<String>) -> Self {
        self.password = Password::Variable(name.into());
        self
    }

    /// Asks the application for the login before each connection, for passwords that expire. The
    /// callback runs on a thread of its own, one call at a time, and may block for as long as
    /// [`connect_timeout`](Self::connect_timeout) allows. The text of its error is shown, so it
    /// must contain no secret.
    ///
    /// ```
    /// use fairlock::Credentials;
    /// let config = fairlock::Config::tcp("127.0.0.1", 6379)
    ///     .password_from(|| std::fs::read_to_string("/run/token").map(Credentials::new));
    /// ```
    #[must_use]
    pub fn password_from<E>(
        mut self,
        ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.password = Password::from(ask);
        self
    }

    /// Sets the user to authenticate as on the Sentinels, which have their own users. Default: the
    /// URL's, else their default user.
    #[must_use]
    pub fn sentinel_username(mut self, name: impl Into<String>) -> Self {
        self.sentinel_username = Some(name.into());
        self
    }

    /// Sets the password for the Sentinels. Default: the URL's, else none.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Password::Given(Secret(password.into()));
        self
    }

    /// Reads the password for the Sentinels from a file, as [`password_file`](Self::password_file).
    /// In a URL: `?sentinel-password-file=/path`.
    #[must_use]
    pub fn sentinel_password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.sentinel_password = Password::File(path.into());
        self
    }

    /// Reads the password for the Sentinels from an environment variable, as
    /// [`password_env`](Self::password_env). In a URL: `?sentinel-password-env=NAME`.
    #[must_use]
    pub fn sentinel_password_env(mut self, name: impl Into<String>) -> Self {
        self.sentinel_password = Password::Variable(name.into());
        self
    }

    /// Asks the application for the login to the Sentinels, as
    /// [`password_from`](Self::password_from).
    #[must_use]
    pub fn sentinel_password_from<E>(
        mut self,
        ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.sentinel_password = Password::from(ask);
        self
    }

    /// Sets the database number, at most 2^31 - 1; the server decides which exist. Default: the
    /// URL's, else 0.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Sets the name of the connections in `CLIENT LIST`: 1 to 128 printable ASCII characters
    /// without spaces. Default: `fairlock`.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Sets the longest time to open a connection, handshake included. Default: 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long `connect` retries while the store does not answer, for programs that may start
    /// in the middle of a failover. Permanent failures (a wrong password, a wrong name) are still
    /// reported at once. Default: zero, one attempt.
    #[must_use]
    pub fn connect_retry(mut self, time: Duration) -> Self {
        self.connect_retry = time;
        self
    }

    /// Sets the longest wait for the reply to one call, which is then sent again. Default: 3 s.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets how long an unreachable store is retried before a call fails. This does not limit the
    /// wait for a lock that others hold. Default: 30 s.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Sets the lease of locks without an explicit lease, renewed after each third of it.
    /// Redisson's `lockWatchdogTimeout`. Default: 30 s.
    #[must_use]
    pub fn watchdog_lease(mut self, lease: Duration) -> Self {
        self.watchdog_lease = lease;
        self
    }

    /// Sets the period of a waiting client's heartbeats. A client that is silent for three periods
    /// counts as dead. All clients of a lock should use the same value. Default: 2 s.
    #[must_use]
    pub fn heartbeat(mut self, period: Duration) -> Self {
        self.heartbeat = period;
        self
    }

    /// Sets Redisson's `fairLockWaitTimeout`, which must be the same in the whole fleet. Default:
    /// 300 s.
    #[must_use]
    pub fn fair_wait(mut self, wait: Duration) -> Self {
        self.fair_wait = wait;
        self
    }

    /// Sets the interval between pings on an idle connection. Default: 2 s.
    #[must_use]
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.ping_interval = interval;
        self
    }

    /// Sets how long a ping may stay unanswered before its connection counts as dead. Default: 2 s.
    #[must_use]
    pub fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = timeout;
        self
    }

    /// Declares that Java clients with Redisson use the same locks, so fairlock never gives shared
    /// keys a TTL. Default: false. Then the queue's keys lose their TTL while a Java client is in
    /// the queue, and a token series that Java began gets no TTL. In a URL: `?java-fleet=true`.
    ///
    /// If false, Java's fenced lock begins at 1 after fairlock's last token has expired. If true,
    /// each name that was ever locked leaves a token key of about 190 bytes for good.
    ///
    /// When a Java reader renews, it cuts the life of the whole read-write lock to 30 s, whatever others hold. If true,
    /// a guard of such a lock is therefore valid for at most 30 s after the store's last answer, however long its
    /// lease.
    #[must_use]
    pub fn java_fleet(mut self, yes: bool) -> Self {
        self.java_fleet = yes;
        self
    }

    /// Makes `connect` return without waiting for the first connection; the first call waits for
    /// it. Default: false.
    #[must_use]
    pub fn lazy_connect(mut self, yes: bool) -> Self {
        self.lazy_connect = yes;
        self
    }

    /// Shows the names of locks in `tracing` spans and in events of every level. Default: false;
    /// then only events at `debug` and below show them, because names may say more about a business
    /// than its logs should.
    #[must_use]
    pub fn log_names(mut self, yes: bool) -> Self {
        self.log_names = yes;
        self
    }

    /// Sets the name that the application gives itself, shown to those who inspect a lock that it
    /// holds or waits for: 1 to 128 bytes without control characters. Everybody who can read the
    /// store can read it. Default: none.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets whether this client publishes who it is to the other clients of the store
    /// ([`ClientInfo`](crate::ClientInfo): host, process, user, label, version), so that inspecting
    /// a lock shows who holds it and who waits. On a server, the client writes a key with a TTL of
    /// 90 s (or its lease and 30 s, if that is longer) when it connects and every 30 s, and removes
    /// it when it ends. If the server does not allow that, locks still work. Default: true.
    #[must_use]
    pub fn announce(mut self, yes: bool) -> Self {
        self.announce = yes;
        self
    }

    /// On the host store, lets processes that this one starts keep this client alive. A lock there
    /// is handed on as soon as the kernel reports that its holder has ended, without waiting for
    /// the lease. With this setting, it is not handed on until every process started since has
    /// ended as well, except processes that have closed the descriptors they inherited. For
    /// programs that run others under a lock, as `fairlock run` does. Has no effect on other
    /// stores. Default: false.
    ///
    /// A child of `fork()` without `exec` keeps the client alive in any case.
    #[must_use]
    pub fn children_keep_alive(mut self, yes: bool) -> Self {
        self.children_keep_alive = yes;
        self
    }

    /// Sets how many replicas of the server must have a lock before it counts as held: see
    /// [`Replicas`] for what that promises and what it does not. If too few have it in time, the
    /// lock is given back and the request fails with
    /// [`ErrorKind::NotReplicated`](crate::ErrorKind::NotReplicated). The setting applies to all
    /// locks of a client, as in Redisson, and all clients of a lock should use it. It needs a third
    /// connection. Only for servers. Default: the URL's, else none.
    #[must_use]
    pub fn replicas(mut self, replicas: Replicas) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets how long to wait for replicas each time. Redisson's `slavesSyncTimeout`. This time is
    /// added to the limit of a wait. Default: the URL's, else 1 s.
    #[must_use]
    pub fn replicas_timeout(mut self, timeout: Duration) -> Self {
        self.replicas_timeout = timeout;
        self
    }

    /// Sets how messages are published on a Cluster. Has no effect on other stores. All clients
    /// that share locks must agree, or a waiter learns of its turn only from its next heartbeat.
    /// Default: the URL's, else [`ShardedPubSub::Auto`].
    #[must_use]
    pub fn sharded_pubsub(mut self, how: ShardedPubSub) -> Self {
        self.sharded_pubsub = how;
        self
    }

    /// Checks the address of the store.
    pub(crate) fn check_address(&self) -> Result<(), Error> {
        match &self.address {
            Address::Tcp { host, port } => check_place(host, *port)?,
            Address::Sentinel(place) => place.check()?,
            Address::Cluster(nodes) => {
                if nodes.is_empty() || nodes.len() > SEEDS_MAX {
                    return Err(Error::misuse(format!(
                        "name 1 to {SEEDS_MAX} nodes of the Cluster"
                    )));
                }
                for (host, port) in nodes {
                    check_place(host, *port)?;
                }
                if self.database != 0 {
                    return Err(Error::misuse("a Cluster has the database 0 alone"));
                }
            }
            Address::Unix(path) if !path.is_absolute() => {
                return Err(Error::misuse("the path of a Unix socket must be absolute"));
            }
            Address::Sqlite { path, .. } if !is_path_of_file(path) => {
                return Err(Error::misuse(
                    "the path of the host store must be absolute, and name a file",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets what to do if a check finds a problem with a server. Default: refuse, but only warn of
    /// [`Check::Eviction`], [`Check::Clock`], [`Check::PasswordFile`], [`Check::Inbox`],
    /// [`Check::Failover`], [`Check::Sentinels`], [`Check::Password`] and [`Check::Kind`]. In a URL:
    /// `?on-eviction=refuse`.
    ///
    /// ```
    /// use fairlock::{Check, Config, Reaction};
    /// let config = Config::tcp("127.0.0.1", 6379).on_check(Check::Eviction, Reaction::Refuse);
    /// ```
    #[must_use]
    pub fn on_check(mut self, check: Check, reaction: Reaction) -> Self {
        self.on.set(check, reaction);
        self
    }

    /// The former name of [`on_check`](Self::on_check).
    #[deprecated = "it is called on_check"]
    #[must_use]
    pub fn on(self, check: Check, reaction: Reaction) -> Self {
        self.on_check(check, reaction)
    }

    /// Checks the settings against each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let hour = Duration::from_secs(3_600);
        let ms = Duration::from_millis;
        let bounds = [
            ("connect_timeout", self.connect_timeout, ms(10), hour),
            ("connect_retry", self.connect_retry, ms(0), hour),
            ("response_timeout", self.response_timeout, ms(10), hour),
            ("store_timeout", self.store_timeout, ms(10), hour),
            ("watchdog_lease", self.watchdog_lease, ms(300), ms(MAX_LEASE_MS)),
            ("heartbeat", self.heartbeat, ms(20), Duration::from_secs(60)),
            ("fair_wait", self.fair_wait, ms(1_000), 24 * hour),
            ("ping_interval", self.ping_interval, ms(10), hour),
            ("ping_timeout", self.ping_timeout, ms(10), hour),
            ("replicas_timeout", self.replicas_timeout, ms(10), hour),
        ];
        for (name, value, least, most) in bounds {
            if value < least || value > most {
                return Err(Error::misuse(format!(
                    "{name} is {value:?}; it must be between {least:?} and {most:?}"
                )));
            }
        }
        self.check_address()?;
        self.check_tls()?;
        self.replicas.check()?;
        let has_replicas = !matches!(
            self.address,
            Address::Memory | Address::SharedMemory(_) | Address::Sqlite { .. }
        );
        if self.replicas != Replicas::None && !has_replicas {
            return Err(Error::misuse("only a server has replicas to wait for"));
        }
        if self.username.is_some() && self.password.is_none() {
            return Err(Error::misuse(
                "there is a user name without a password; a password alone stands after a colon \
                 in the store URL, or is set apart from it",
            ));
        }
        if self.sentinel_username.is_some() && self.sentinel_password.is_none() {
            return Err(Error::misuse("there is a user name for the Sentinels without a password"));
        }
        self.password.check("password")?;
        self.sentinel_password.check("sentinel_password")?;
        let name = self.client_name.as_deref().unwrap_or("fairlock");
        if name.is_empty() || name.len() > 128 || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::misuse(
                "client_name must be 1 to 128 printable ASCII characters without spaces",
            ));
        }
        if self.label.as_deref().is_some_and(|label| !is_printable(label)) {
            return Err(Error::misuse(format!(
                "label must be 1 to {VALUE_BYTES_MAX} bytes of text without control characters"
            )));
        }
        if self.database > DATABASE_MAX {
            return Err(Error::misuse(format!(
                "database {} cannot be used; it must be between 0 and {DATABASE_MAX}",
                self.database
            )));
        }
        Ok(())
    }

    pub(crate) fn rules(&self) -> Rules {
        let beat_ms = self.heartbeat.as_millis() as u64;
        let dead_ms = 3 * beat_ms;
        Rules {
            beat_ms,
            dead_ms,
            fair_wait_ms: self.fair_wait.as_millis() as u64,
            bury_ms: self.store_timeout.as_millis() as u64 + dead_ms,
            java_fleet: self.java_fleet,
            // In a Cluster, a subscriber count covers only one node.
            presence: !matches!(self.address, Address::Cluster(_)),
            ages: true,
        }
    }
}

/// Returns whether `path` is absolute, ends with a name, and has no zero bytes, which no path can
/// contain.
fn is_path_of_file(path: &std::path::Path) -> bool {
    let zero = path.as_os_str().as_encoded_bytes().contains(&0);
    path.is_absolute() && path.file_name().is_some() && !zero
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            // A name alone is most likely a password in the wrong place.
            .field("username", &self.username.as_ref().filter(|_| !self.password.is_none()))
            .field("password", &self.password)
            .field("sentinel_password", &self.sentinel_password)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("store_timeout", &self.store_timeout)
            .field("watchdog_lease", &self.watchdog_lease)
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}
