//! A client of ours in a process of its own, to be killed: see the command `worker` of this crate's program.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::java::SOON;

/// It waits for a lock and then holds it, until it is killed.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    /// The owner that it asks for.
    pub owner: String,
}

impl Worker {
    /// Ready when it stands in the queue, or holds the lock. `program` is `fairlock-interop`.
    ///
    /// # Panics
    ///
    /// If it does not get as far within [`SOON`].
    pub async fn start(program: &Path, url: &str, lock: &str, lease: Duration) -> Self {
        let mut command = Command::new(program);
        command.args(["worker", url, lock]).arg(lease.as_millis().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program of this crate");
        let output = child.stdout.take().expect("it is piped");
        let first = spawn_blocking(move || BufReader::new(output).lines().next());
        let first = tokio::time::timeout(SOON, first).await.expect("the worker is slow");
        let owner = first.expect("no panic").expect("the worker goes on").expect("UTF-8");
        Self { child, owner }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill9(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Fails only if it is gone and reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}
