//! Encrypted connections: real servers, and certificates of the test's own.
//!
//! The servers on this machine are those of Redis 7.0: the ones from PyPI are built without TLS.
//! Each test prints a message if it has none.

mod refused;
mod works;

use crate::support::runtime;
use fairlock::{Client, Config};
use fairlock_testkit::server::{Builder, Generation, Server};
use fairlock_testkit::tls::{Ca, Files, Identity, Issued};
use std::net::SocketAddr;
use std::time::Duration;

/// A password that must not be seen on the wire.
const CANARY: &str = "CANARY5f1c";

/// The test's own CA, another CA, and the test's files.
struct Scene {
    files: Files,
    ca: Ca,
    other: Ca,
}

impl Scene {
    fn new() -> Self {
        Self { files: Files::default(), ca: Ca::new("ours"), other: Ca::new("of others") }
    }

    /// The files of a server at 127.0.0.1 and `localhost`.
    fn identity(&self) -> Identity {
        self.files.identity("server", &self.ca.server(), &self.ca)
    }

    fn builder(&self, issued: &Issued) -> Builder {
        let identity = self.files.identity("server", issued, &self.ca);
        Server::builder(Generation::Redis70).tls(&identity).arg("--requirepass", CANARY)
    }

    /// A server with a password and a certificate signed by our CA.
    fn server(&self) -> Option<Server> {
        self.builder(&self.ca.server()).start()
    }

    /// Settings for that server that trust our CA.
    fn config(&self, addr: SocketAddr) -> Config {
        tuned(Config::tcp("127.0.0.1", addr.port()))
            .tls_ca(self.files.put("trusted.pem", self.ca.pem()))
            .password(CANARY)
    }
}

/// Timeouts for a loaded machine that still end soon.
fn tuned(config: Config) -> Config {
    config
        .connect_timeout(Duration::from_secs(3))
        .store_timeout(Duration::from_secs(10))
        .ping_interval(Duration::from_millis(100))
}

/// Takes and releases a lock, in a runtime of its own.
fn locks(config: Config) {
    runtime().block_on(async {
        let client = Client::with_config(config).await.unwrap();
        let guard = client.fair_lock("job").lock().await.unwrap();
        let _ = guard.release().await.unwrap();
    });
}
