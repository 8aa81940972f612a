//! A fairlock client in its own process, to be killed: see the command `worker` of this crate's
//! program.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fairlock_testkit::processes::Owned;
use tokio::task::spawn_blocking;

use crate::java::SOON;
use crate::rounds::script::Share;

/// The default fair wait of all clients.
const FAIR_WAIT: Duration = Duration::from_secs(300);

/// What a worker asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Asks {
    Fair,
    Read,
    Write,
    /// Of a latch: it waits, and counts down again and again.
    Latch,
}

impl Asks {
    const ALL: [(Self, &str); 4] = [
        (Self::Fair, "fair"),
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Latch, "latch"),
    ];

    /// That of a turn of the rounds.
    pub fn of(share: Share) -> Self {
        match share {
            Share::Whole => Self::Fair,
            Share::Read => Self::Read,
            Share::Write => Self::Write,
        }
    }

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(asks, _)| *asks == self).expect("all are listed").1
    }

    /// That of a word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other)| *other == word).map(|(asks, _)| *asks)
    }
}

/// Waits for a lock and then holds it, until it is killed.
#[derive(Debug)]
pub struct Worker {
    child: Owned,
    /// The owner of its request, the first if there are several.
    pub owner: String,
    /// All its owners, in the order of the queue.
    pub owners: Vec<String>,
}

impl Worker {
    /// Returns when it is in the queue, or holds the lock. `program` is `fairlock-interop`.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`SOON`].
    pub async fn start(program: &Path, url: &str, lock: &str, lease: Duration) -> Self {
        Self::asking(program, url, lock, lease, Asks::Fair).await
    }

    /// Like [`Worker::start`], of this kind of lock. Of a latch it has begun to wait, and has no
    /// owner.
    ///
    /// # Panics
    ///
    /// As [`Worker::start`].
    pub async fn asking(
        program: &Path,
        url: &str,
        lock: &str,
        lease: Duration,
        asks: Asks,
    ) -> Self {
        Self::begin(program, url, lock, lease, 1, FAIR_WAIT, asks).await
    }

    /// Like [`Worker::start`], this many times in the queue, each as a separate owner, and with
    /// this `fair_wait`.
    ///
    /// # Panics
    ///
    /// As [`Worker::start`], and if `times` is 0.
    pub async fn waiting(
        program: &Path,
        url: &str,
        lock: &str,
        lease: Duration,
        times: usize,
        fair_wait: Duration,
    ) -> Self {
        Self::begin(program, url, lock, lease, times, fair_wait, Asks::Fair).await
    }

    async fn begin(
        program: &Path,
        url: &str,
        lock: &str,
        lease: Duration,
        times: usize,
        fair_wait: Duration,
        asks: Asks,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(["worker", url, lock]);
        command.args([lease, fair_wait].map(|time| time.as_millis().to_string()));
        command.args([&times.to_string(), asks.word()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Owned::spawn(&mut command).expect("the program of this crate");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let owners = spawn_blocking(move || lines.take(times).collect::<Result<Vec<_>, _>>());
        let owners = tokio::time::timeout(SOON, owners).await.expect("the worker is slow");
        let owners = owners.expect("no panic").expect("UTF-8");
        assert!(owners.len() == times, "the worker has ended");
        let owner = owners.first().expect("at least one").clone();
        Self { child, owner, owners }
    }

    /// Kills it with SIGKILL and waits until it has exited.
    pub fn kill9(self) {
        drop(self.child);
    }
}
