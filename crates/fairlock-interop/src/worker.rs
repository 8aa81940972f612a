//! A fairlock client in its own process, to be killed: see the command `worker` of this crate's
//! program.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fairlock_testkit::processes::Owned;
use tokio::task::spawn_blocking;

use crate::java::SOON;

/// The default fair wait of all clients.
const FAIR_WAIT: Duration = Duration::from_secs(300);

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
        Self::waiting(program, url, lock, lease, 1, FAIR_WAIT).await
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
        let mut command = Command::new(program);
        command.args(["worker", url, lock]);
        command.args([lease, fair_wait].map(|time| time.as_millis().to_string()));
        command.arg(times.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
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
