//! One server with persistence, behind a proxy, with a clock we control.

use super::Deployment;
use crate::log::Input;
use crate::log::asked::Asked;
use crate::log::tail::Tail;
use crate::nemesis::{Kind, clocks, network, operator, server};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::{Generation, Server};
use std::path::PathBuf;
use std::sync::mpsc::Sender;

#[derive(Debug)]
pub(crate) struct Single {
    server: Server,
    proxy: Proxy,
    /// Follows the server's log for the checker.
    tail: Option<(Tail, Sender<Input>)>,
    asked: Option<Asked>,
}

/// The faults that the campaign over all topologies plays on a single server.
const OWN: [Kind; 6] = [
    Kind::ConnectionsKilled,
    Kind::InboxesKilled,
    Kind::ScriptsFlushed,
    Kind::ServerStopped,
    Kind::Restarted,
    Kind::Flushed,
];

const MORE: [Kind; 35] = [
    Kind::Paused,
    Kind::WritesPaused,
    Kind::BusyScript,
    Kind::ServerSlept,
    Kind::RestartedEmpty,
    Kind::OutOfMemory,
    Kind::ClockForward,
    Kind::ClockBackward,
    Kind::ClockSlow,
    Kind::ClockFast,
    Kind::LockDeleted,
    Kind::LockPersisted,
    Kind::LockExpired,
    Kind::LockOverwritten,
    Kind::QueueDeleted,
    Kind::ScoresDeleted,
    Kind::RegistryDeleted,
    Kind::TokenDeleted,
    Kind::ForceUnlocked,
    Kind::RepliesDelayed,
    Kind::RequestCut,
    Kind::AllCut,
    Kind::ToServerLost,
    Kind::ToClientLost,
    Kind::PushesSwallowed,
    Kind::PushesDuplicated,
    Kind::PushesDelayed,
    Kind::ReplyLost,
    Kind::ReplyLostInSilence,
    Kind::ByteByByte,
    Kind::Refused,
    Kind::Silenced,
    Kind::InboxesSilenced,
    Kind::RequestsLate,
    Kind::RequestsReplayed,
];

impl Single {
    pub(crate) fn start() -> Option<Self> {
        let server = Server::builder(Generation::Redis70)
            .clock_shim(true)
            .persist(true)
            // Faults here kill the process, not the machine, so a write is enough.
            .arg("--appendfsync", "no")
            // The log has every command from the start. Loading any other format omits keys that
            // have expired meanwhile, without a record of it.
            .arg("--aof-use-rdb-preamble", "no")
            // A short log makes restarts short.
            .arg("--auto-aof-rewrite-min-size", "16mb")
            .arg("--busy-reply-threshold", "150")
            .start()?;
        let proxy = Proxy::start(server.addr());
        Some(Self { server, proxy, tail: None, asked: None })
    }

    /// Kills the server and deletes its data.
    fn restart_empty(&mut self) -> bool {
        let keys = self.server.client().call(&["DBSIZE"]).int();
        self.server.kill9();
        let checker = self.tail.take().map(|(tail, checker)| {
            tail.stop();
            checker
        });
        std::fs::remove_dir_all(self.server.dir().join("appendonlydir")).expect("the server's log");
        if let Some(checker) = checker {
            let _ = checker.send(Input::Emptied);
            self.tail = Some((Tail::start(self.server.dir(), checker.clone()), checker));
        }
        self.server.restart();
        keys > 0
    }
}

impl Deployment for Single {
    fn url(&self) -> String {
        self.proxy.url()
    }

    fn kinds(&self) -> Vec<Kind> {
        [&OWN[..], &MORE].concat()
    }

    fn own_kinds(&self) -> Vec<Kind> {
        OWN.to_vec()
    }

    fn inject(&mut self, kind: Kind, rng: &mut Rng) -> bool {
        if kind == Kind::RestartedEmpty {
            return self.restart_empty();
        }
        let (url, mut raw) = (self.server.url(), self.server.client());
        server::play(kind, &self.server, rng)
            .or_else(|| clocks::play(kind, &self.server, rng))
            .or_else(|| network::play(kind, &self.proxy, rng))
            .or_else(|| operator::play(kind, &url, &mut raw, rng))
            .unwrap_or_else(|| panic!("a single server does not play {kind:?}"))
    }

    fn heal(&mut self) {}

    fn attach(&mut self, checker: Sender<Input>) -> bool {
        self.asked = Some(Asked::start(self.server.addr(), checker.clone()));
        self.tail = Some((Tail::start(self.server.dir(), checker.clone()), checker));
        true
    }

    fn detach(&mut self) {
        self.asked = None;
        if let Some((tail, _)) = self.tail.take() {
            tail.stop();
        }
    }

    fn raw(&self) -> Option<Raw> {
        Some(self.server.client())
    }

    fn folders(&self) -> Vec<PathBuf> {
        vec![self.server.dir().to_owned()]
    }
}
