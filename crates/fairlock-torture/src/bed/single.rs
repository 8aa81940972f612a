//! One server that keeps its data.

use super::{Bed, Kind, kill_connections, ok};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;

/// How long a stopped server stands still: pings find it, no lease ends.
const STOPPED: Duration = Duration::from_millis(1_200);

#[derive(Debug)]
pub(crate) struct Single(Server);

impl Single {
    pub(crate) fn start() -> Option<Self> {
        Server::builder(Generation::Redis70).persist(true).start().map(Self)
    }
}

impl Bed for Single {
    fn url(&self) -> String {
        self.0.url()
    }

    fn kinds(&self) -> Vec<Kind> {
        use Kind::{
            ConnectionsKilled, Flushed, InboxesKilled, Restarted, ScriptsFlushed, ServerStopped,
        };
        vec![ConnectionsKilled, InboxesKilled, ScriptsFlushed, ServerStopped, Restarted, Flushed]
    }

    fn inject(&mut self, kind: Kind) -> bool {
        let mut raw = self.raw();
        match kind {
            Kind::ConnectionsKilled => kill_connections(&mut raw, "normal"),
            Kind::InboxesKilled => kill_connections(&mut raw, "pubsub"),
            Kind::ScriptsFlushed => ok(&raw.call(&["SCRIPT", "FLUSH"])),
            Kind::ServerStopped => {
                self.0.stop();
                // The length of the fault itself.
                std::thread::sleep(STOPPED);
                self.0.cont();
                true
            }
            Kind::Restarted => {
                let before = self.0.pid();
                self.0.kill9();
                self.0.restart();
                self.0.pid() != before
            }
            Kind::Flushed => {
                let keys = raw.call(&["DBSIZE"]).int();
                ok(&raw.call(&["FLUSHALL"])) && keys > 0
            }
            other => panic!("a single server does not play {other:?}"),
        }
    }

    fn heal(&mut self) {}

    fn raw(&self) -> Raw {
        self.0.client()
    }
}
