//! A primary with replicas, without Sentinels.

use super::{await_acknowledged, field, until};
use crate::raw::Raw;
use crate::resp::Value;
use crate::server::{Generation, Server};

/// A running primary and its replicas on 127.0.0.1, killed and removed on drop.
#[derive(Debug)]
pub struct Replicated {
    primary: Server,
    replicas: Vec<Server>,
}

impl Replicated {
    /// Starts them and waits until all replicas are in step; `None`, with a notice, if the server
    /// is not installed.
    ///
    /// # Panics
    ///
    /// If they do not come up.
    pub fn start(generation: Generation, replicas: usize) -> Option<Self> {
        Self::start_with(generation, replicas, &[])
    }

    /// The same, with settings as on the command line.
    ///
    /// # Panics
    ///
    /// If they do not come up.
    pub fn start_with(
        generation: Generation,
        replicas: usize,
        settings: &[(&str, &str)],
    ) -> Option<Self> {
        let start = || {
            let mut server = Server::builder(generation)
                .arg("--repl-backlog-size", "4mb")
                .arg("--repl-diskless-sync", "yes")
                .arg("--repl-diskless-sync-delay", "0");
            for (name, value) in settings {
                server = server.arg(name, value);
            }
            server.start()
        };
        let primary = start()?;
        let mut set = Self { primary, replicas: Vec::new() };
        for replica in 0..replicas {
            set.replicas.push(start()?);
            set.follow(replica);
        }
        set.await_online(replicas);
        Some(set)
    }

    /// The primary.
    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// One of the replicas.
    pub fn replica(&self, replica: usize) -> &Server {
        &self.replicas[replica]
    }

    /// The primary and the replicas, as separate values.
    pub fn into_parts(self) -> (Server, Vec<Server>) {
        (self.primary, self.replicas)
    }

    /// A connection to the primary.
    ///
    /// # Panics
    ///
    /// If it does not accept one.
    #[track_caller]
    pub fn raw(&self) -> Raw {
        self.primary.client()
    }

    /// Makes the replica a primary of its own: it receives nothing more, as behind a network that
    /// is cut.
    ///
    /// # Panics
    ///
    /// If it does not become one.
    #[track_caller]
    pub fn promote(&self, replica: usize) {
        let reply = self.replicas[replica].client().call(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(reply, Value::Simple("OK".into()));
    }

    /// Makes the replica follow the primary (again).
    ///
    /// # Panics
    ///
    /// If it does not.
    #[track_caller]
    pub fn follow(&self, replica: usize) {
        let port = self.primary.port().to_string();
        let reply = self.replicas[replica].client().call(&["REPLICAOF", "127.0.0.1", &port]);
        assert_eq!(reply, Value::Simple("OK".into()));
    }

    /// Waits until the primary has this many replicas online that acknowledge what it does.
    ///
    /// # Panics
    ///
    /// If it has not within 90 s.
    #[track_caller]
    pub fn await_online(&self, replicas: usize) {
        until(format!("{replicas} replicas are online"), || {
            let info = self.raw().call(&["INFO", "replication"]);
            let info = info.text();
            let all = field(info, "connected_slaves") == Some(&replicas.to_string());
            (all && info.matches("state=online").count() == replicas).then_some(())
        });
        await_acknowledged(&mut self.raw(), replicas);
    }
}
