//! The scripts of fair locks, in pipelines, without fairlock's client: the most that the server
//! carries out.
//!
//! `MONITOR` shows the two calls of one lock and release. The same calls follow for many locks, with
//! the argument positions of docs/protocol.md, "Scripts".

use crate::uncontended::connection;
use fairlock::Client;
use fairlock_testkit::raw::Raw as Monitor;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline};
use std::time::{Duration, Instant};

/// Locks of each of the two pipelines: while the server works on one, the client fills the other.
const LOCKS: usize = 64;

/// The lock whose calls are recorded. No other argument contains its name.
const NAME: &str = "own:recorded";

/// Words of a call before its keys: `EVALSHA`, the hash, the number of keys.
const BEFORE_KEYS: usize = 3;

/// ARGV of `acquire`: no later than this, in epoch milliseconds.
const NOT_AFTER: usize = 5;

/// ARGV of `release`: the token of the hold.
const TOKEN: usize = 3;

/// A connection, and the calls of each lock.
pub(crate) struct Raw {
    conn: MultiplexedConnection,
    halves: [Half; 2],
}

struct Half {
    acquires: Pipeline,
    /// Their tokens come with the replies of `acquires`.
    releases: Vec<Vec<String>>,
}

impl Raw {
    /// Records the calls of `client`, which uses the same server.
    pub(crate) async fn open(url: &str, client: &Client) -> Self {
        let server = redis::Client::open(url).unwrap();
        let lock = client.fair_lock(NAME);
        // The server loads the scripts.
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        let mut monitor = Monitor::connect(server.get_connection_info().addr().to_string());
        assert_eq!(monitor.call(&["MONITOR"]).text(), "OK");
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        let [mut acquire, release] = [next_call(&mut monitor), next_call(&mut monitor)];
        *argument(&mut acquire, NOT_AFTER) = u64::MAX.to_string();
        let half = |half| {
            let of = |words: &[String], n| {
                let name = format!("own:{half}:{n}");
                words.iter().map(|word| word.replace(NAME, &name)).collect::<Vec<_>>()
            };
            let mut acquires = redis::pipe();
            for n in 0..LOCKS {
                acquires.add_command(command(&of(&acquire, n)));
            }
            Half { acquires, releases: (0..LOCKS).map(|n| of(&release, n)).collect() }
        };
        let conn = connection(&server).await;
        Self { conn, halves: [half(0), half(1)] }
    }

    /// Acquires and releases all locks, again and again. Returns the pairs per second.
    pub(crate) async fn pairs(&mut self, span: Duration) -> f64 {
        let Self { conn, halves: [one, other] } = self;
        let began = Instant::now();
        let (one, other) =
            tokio::join!(one.pairs(conn.clone(), span), other.pairs(conn.clone(), span));
        (one + other) as f64 / began.elapsed().as_secs_f64()
    }
}

impl Half {
    async fn pairs(&mut self, mut conn: MultiplexedConnection, span: Duration) -> usize {
        let (began, mut pairs) = (Instant::now(), 0);
        while pairs == 0 || began.elapsed() < span {
            let granted: Vec<String> = self.acquires.query_async(&mut conn).await.unwrap();
            let mut releases = redis::pipe();
            for (release, reply) in self.releases.iter_mut().zip(granted) {
                let words: Vec<_> = reply.split(' ').collect();
                let [_, _, "granted", token, _] = words[..] else { panic!("{reply}") };
                token.clone_into(argument(release, TOKEN));
                releases.add_command(command(release));
            }
            let released: Vec<String> = releases.query_async(&mut conn).await.unwrap();
            assert!(released.iter().all(|reply| reply.ends_with(" released")), "{released:?}");
            pairs += released.len();
        }
        pairs
    }
}

/// The words of the next call that names the lock.
fn next_call(monitor: &mut Monitor) -> Vec<String> {
    loop {
        let line = monitor.read().unwrap();
        // After the time and the client's address, each word is in quotes.
        let Some((_, words)) = line.text().split_once("] ") else { continue };
        let words: Vec<_> = words.trim_matches('"').split("\" \"").map(ToOwned::to_owned).collect();
        if words[0] == "EVALSHA" && words.iter().any(|word| word == NAME) {
            return words;
        }
    }
}

/// ARGV `number` of a call.
fn argument(words: &mut [String], number: usize) -> &mut String {
    let keys: usize = words[BEFORE_KEYS - 1].parse().unwrap();
    &mut words[BEFORE_KEYS + keys + number - 1]
}

fn command(words: &[String]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}
