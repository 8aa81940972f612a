//! What a server does to itself, or is ordered to do.

use super::{Kind, info, kill_connections, last, ok};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::Server;
use std::time::{Duration, Instant};

/// How long a server is stopped: pings notice it, no lease ends.
const STOPPED_MS: u64 = 1_200;

/// An endless script is killed after this time.
const BUSY_MS: u64 = 300;

/// Plays the fault; `None` for a kind of another family.
pub(crate) fn play(kind: Kind, server: &Server, rng: &mut Rng) -> Option<bool> {
    let mut raw = server.client();
    Some(match kind {
        Kind::ConnectionsKilled => kill_connections(&mut raw, "normal"),
        Kind::InboxesKilled => kill_connections(&mut raw, "pubsub"),
        Kind::ScriptsFlushed => {
            let cached = info(&mut raw, "memory", "number_of_cached_scripts");
            ok(&raw.call(&["SCRIPT", "FLUSH"])) && cached > 0
        }
        Kind::Paused => pause(server, &mut raw, "ALL", rng.between(200, 1_000)),
        Kind::WritesPaused => pause(server, &mut raw, "WRITE", rng.between(200, 1_000)),
        Kind::BusyScript => busy(server),
        Kind::ServerStopped => {
            let stopped = rng.between(200, STOPPED_MS);
            server.stop();
            last(stopped);
            server.cont();
            true
        }
        Kind::ServerSlept => {
            let (seconds, began) = (rng.between(2, 10) as f64 / 10.0, Instant::now());
            raw.call(&["DEBUG", "SLEEP", &format!("{seconds:.1}")]);
            began.elapsed().as_secs_f64() >= seconds
        }
        Kind::Restarted => {
            let (before, keys) = (server.pid(), raw.call(&["DBSIZE"]).int());
            server.kill9();
            server.restart();
            server.pid() != before && keys > 0 && server.client().call(&["DBSIZE"]).int() > 0
        }
        Kind::Flushed => {
            let keys = raw.call(&["DBSIZE"]).int();
            ok(&raw.call(&["FLUSHALL"])) && keys > 0
        }
        Kind::OutOfMemory => {
            let refused = |raw: &mut Raw| info(raw, "errorstats", "errorstat_OOM");
            let before = refused(&mut raw);
            raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
            last(rng.between(300, 900));
            raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
            refused(&mut raw) > before
        }
        _ => return None,
    })
}

/// Whether the server served no client for most of that time.
fn pause(server: &Server, raw: &mut Raw, what: &str, millis: u64) -> bool {
    let began = Instant::now();
    if !ok(&raw.call(&["CLIENT", "PAUSE", &millis.to_string(), what])) {
        return false;
    }
    // A write of our own waits for the end of the pause like any other.
    server.client().call(&["DEL", "nobody's"]);
    began.elapsed() >= Duration::from_millis(millis / 2)
}

/// An endless script blocks all clients until it is killed.
fn busy(server: &Server) -> bool {
    let mut raw = server.client();
    raw.send(&["EVAL", "while true do end", "0"]);
    last(BUSY_MS);
    // Refused until the server handles anything besides its script.
    let began = Instant::now();
    loop {
        let killed = server.client().try_call(&["SCRIPT", "KILL"]);
        if killed.is_ok_and(|reply| ok(&reply)) {
            return true;
        }
        if began.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
