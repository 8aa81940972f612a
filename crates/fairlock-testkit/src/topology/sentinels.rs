//! One master, two replicas, three Sentinels.

use std::net::SocketAddr;
use std::time::Duration;

use super::{await_acknowledged, field, until};
use crate::raw::Raw;
use crate::resp::Value;
use crate::server::{Builder, Generation, Server};
use crate::tls::Identity;

/// The name under which the Sentinels monitor the master.
pub const MASTER_NAME: &str = "locks";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
/// The number of Sentinels that must agree.
const QUORUM: usize = 2;
/// A master that does not answer for this long counts as down.
const DOWN_AFTER: Duration = Duration::from_secs(1);
/// How long one attempt at a failover may take; the next follows after twice as long.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The passwords that the servers require.
#[derive(Clone, Debug)]
pub struct Login {
    /// The password of the data servers' default user, if they require one.
    pub data: Option<String>,
    /// The password of the Sentinels' default user, if they require one.
    pub sentinels: Option<String>,
}

/// A running Sentinel set on 127.0.0.1, killed and removed on drop.
#[derive(Debug)]
pub struct SentinelSet {
    data: Vec<Server>,
    sentinels: Vec<Server>,
    login: Login,
    tls: bool,
}

impl SentinelSet {
    /// Starts a set without passwords and waits until all know each other; `None`, with a notice,
    /// if the server is not installed.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn start(generation: Generation) -> Option<Self> {
        Self::start_with(generation, Login { data: None, sentinels: None }, &[])
    }

    /// The same with passwords, and with settings of the data servers as on the command line.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn start_with(
        generation: Generation,
        login: Login,
        settings: &[(&str, &str)],
    ) -> Option<Self> {
        Self::launch(generation, login, settings, None)
    }

    /// A set without passwords whose servers and Sentinels speak only TLS, to everybody; `None`,
    /// with a notice, if there is no server with TLS.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn start_tls(generation: Generation, identity: &Identity) -> Option<Self> {
        let login = Login { data: None, sentinels: None };
        Self::launch(generation, login, &[], Some(identity))
    }

    fn launch(
        generation: Generation,
        login: Login,
        settings: &[(&str, &str)],
        identity: Option<&Identity>,
    ) -> Option<Self> {
        let encrypted = |server: Builder| match identity {
            Some(identity) => server.tls(identity),
            None => server,
        };
        let mut data = Vec::new();
        for _ in 0..=REPLICAS {
            let mut server = Server::builder(generation)
                // A replica that lost its master for a moment continues where it was.
                .arg("--repl-backlog-size", "4mb")
                .arg("--repl-diskless-sync", "yes")
                .arg("--repl-diskless-sync-delay", "0");
            for (name, value) in settings {
                server = server.arg(name, value);
            }
            if let Some(password) = &login.data {
                server = server.arg("--requirepass", password).arg("--masterauth", password);
            }
            data.push(encrypted(server).start()?);
        }
        let master = data[0].port();
        let mut config = format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {master} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER_NAME} {}\n\
             sentinel failover-timeout {MASTER_NAME} {}\n\
             sentinel parallel-syncs {MASTER_NAME} {REPLICAS}\n",
            DOWN_AFTER.as_millis(),
            FAILOVER_TIMEOUT.as_millis(),
        );
        if let Some(password) = &login.data {
            config += &format!("sentinel auth-pass {MASTER_NAME} {password}\n");
        }
        if let Some(password) = &login.sentinels {
            config += &format!("requirepass {password}\nsentinel sentinel-pass {password}\n");
        }
        let mut set = Self { data, sentinels: Vec::new(), login, tls: identity.is_some() };
        for replica in 1..=REPLICAS {
            let port = master.to_string();
            let reply = set.raw(replica).call(&["REPLICAOF", "127.0.0.1", &port]);
            assert_eq!(reply, Value::Simple("OK".into()));
        }
        for _ in 0..SENTINELS {
            let sentinel = Server::builder_of_sentinel(generation).config(&config);
            set.sentinels.push(encrypted(sentinel).start()?);
        }
        set.await_whole();
        Some(set)
    }

    /// The data servers; which of them is the master changes.
    pub fn data(&self) -> &[Server] {
        &self.data
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// A connection to a data server, logged in.
    ///
    /// # Panics
    ///
    /// If it does not accept one.
    #[track_caller]
    pub fn raw(&self, server: usize) -> Raw {
        login(self.data[server].client(), self.login.data.as_deref())
    }

    /// A connection to a Sentinel, logged in.
    ///
    /// # Panics
    ///
    /// If it does not accept one.
    #[track_caller]
    pub fn raw_sentinel(&self, sentinel: usize) -> Raw {
        login(self.sentinels[sentinel].client(), self.login.sentinels.as_deref())
    }

    /// The data server that a live Sentinel names as the master.
    ///
    /// # Panics
    ///
    /// If none does within 90 s.
    #[track_caller]
    pub fn master(&self) -> usize {
        until("a Sentinel that names a master", || self.named().first().copied())
    }

    /// The data server that each live Sentinel names as the master.
    fn named(&self) -> Vec<usize> {
        let named = self.sentinels.iter().filter_map(|sentinel| {
            let raw = sentinel.try_client().ok()?;
            let mut raw = login(raw, self.login.sentinels.as_deref());
            let reply = raw.try_call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).ok()?;
            let port = reply.array()[1].text().parse::<u16>().ok()?;
            self.data.iter().position(|server| server.port() == port)
        });
        named.collect()
    }

    /// The addresses of the Sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(Server::addr).collect()
    }

    /// `redis+sentinel://HOST:PORT,HOST:PORT,HOST:PORT/locks`, or `rediss+sentinel://...`.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{}/{MASTER_NAME}", places.join(","))
    }

    /// Orders a failover to a replica that is up to date, and waits for the new master.
    ///
    /// # Panics
    ///
    /// If there is none within 90 s.
    #[track_caller]
    pub fn fail_over(&self) -> usize {
        let old = self.master();
        until("a new master", || {
            // Ordered again if an order was abandoned, as Sentinels do on a busy machine.
            if self.named().first() == Some(&old) {
                self.raw_sentinel(0).call(&["SENTINEL", "FAILOVER", MASTER_NAME]);
            }
            self.agreed_master().filter(|new| *new != old)
        })
    }

    /// Kills the master and waits until another is named and reports so itself.
    ///
    /// # Panics
    ///
    /// If there is none within 90 s.
    #[track_caller]
    pub fn kill_master(&self) -> usize {
        let old = self.master();
        self.data[old].kill9();
        self.await_master_after(old)
    }

    /// Waits until all live Sentinels name a server other than `old`, and it reports so itself.
    ///
    /// # Panics
    ///
    /// If there is none within 90 s.
    #[track_caller]
    pub fn await_master_after(&self, old: usize) -> usize {
        until("a new master", || self.agreed_master().filter(|new| *new != old))
    }

    /// The data server that all live Sentinels name, and that itself reports to be the master;
    /// `None` during a failover.
    pub fn agreed_master(&self) -> Option<usize> {
        let named = self.named();
        let one = *named.first()?;
        let agreed = named.iter().all(|other| *other == one);
        (agreed && self.role(one).as_deref() == Some("master")).then_some(one)
    }

    /// Cuts replication: the master continues to serve clients, and no replica receives anything.
    /// Undone by [`Self::mend_replication`].
    ///
    /// # Panics
    ///
    /// If the master does not answer.
    #[track_caller]
    pub fn cut_replication(&self) {
        let mut master = self.raw(self.master());
        let denied = master.call(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
        assert_eq!(denied, Value::Simple("OK".into()));
        master.call(&["CLIENT", "KILL", "TYPE", "replica"]);
        until("the replicas are cut off", || {
            let info = master.call(&["INFO", "replication"]);
            (field(info.text(), "connected_slaves") == Some("0")).then_some(())
        });
    }

    /// Lets replicas connect to the master again, and waits until they have.
    ///
    /// # Panics
    ///
    /// If they do not within 90 s.
    #[track_caller]
    pub fn mend_replication(&self) {
        let reply = self.raw(self.master()).call(&["ACL", "SETUSER", "default", "+psync", "+sync"]);
        assert_eq!(reply, Value::Simple("OK".into()));
        self.await_replicas();
    }

    /// Waits until every live data server is the master or a replica that acknowledges what it
    /// does.
    ///
    /// # Panics
    ///
    /// If they are not within 90 s.
    #[track_caller]
    pub fn await_replicas(&self) {
        let living = self.data.iter().filter(|s| s.try_client().is_ok()).count();
        until("all replicas are online", || {
            let info = self.raw(self.master()).call(&["INFO", "replication"]);
            (info.text().matches("state=online").count() == living - 1).then_some(())
        });
        await_acknowledged(&mut self.raw(self.master()), living - 1);
    }

    /// Waits until every Sentinel knows all replicas and all other Sentinels.
    ///
    /// # Panics
    ///
    /// If they do not within 90 s.
    #[track_caller]
    pub fn await_whole(&self) {
        self.await_replicas();
        for sentinel in 0..self.sentinels.len() {
            until(format!("Sentinel {sentinel} knows all"), || {
                let info = self.raw_sentinel(sentinel).call(&["INFO", "sentinel"]);
                let known = format!("slaves={REPLICAS},sentinels={SENTINELS}");
                let info = info.text();
                (info.contains("status=ok") && info.contains(&known)).then_some(())
            });
        }
    }

    fn role(&self, server: usize) -> Option<String> {
        let raw = self.data[server].try_client().ok()?;
        let reply = login(raw, self.login.data.as_deref()).try_call(&["ROLE"]).ok()?;
        Some(reply.array()[0].text().to_owned())
    }
}

#[track_caller]
fn login(mut raw: Raw, password: Option<&str>) -> Raw {
    if let Some(password) = password {
        assert_eq!(raw.call(&["AUTH", password]), Value::Simple("OK".into()));
    }
    raw
}
