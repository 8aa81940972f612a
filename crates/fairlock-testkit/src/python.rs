//! redis-py in a process of its own, driven line by line.

use crate::processes::Owned;
use crate::server::workspace_root;
use std::env;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Where redis-py is: the folder named by `FAIRLOCK_TEST_REDISPY`, else what `scripts/servers` left
/// in `.servers`. Without it the running test is skipped with a notice, and this returns `None`.
///
/// # Panics
///
/// If there is none and the environment variable `CI` is set.
pub fn require_redis_py() -> Option<PathBuf> {
    let own = env::var_os("FAIRLOCK_TEST_REDISPY").filter(|path| !path.is_empty());
    let fetched = || Some(workspace_root().join(".servers/redispy"));
    let found = own.map(PathBuf::from).or_else(fetched).filter(|path| path.join("redis").is_dir());
    if found.is_none() {
        crate::skip("redis-py (run scripts/servers)");
    }
    found
}

/// A running Python program; killed on drop.
#[derive(Debug)]
pub struct Python {
    _child: Owned,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// Starts `program` (its text) with redis-py available; `None`, with a notice, if that is
    /// missing.
    ///
    /// # Panics
    ///
    /// If `python3` cannot be started, and as [`require_redis_py`].
    pub fn start(program: &str, args: &[&str]) -> Option<Self> {
        let redis_py = require_redis_py()?;
        let mut command = Command::new("python3");
        command.args(["-c", program]).args(args).env("PYTHONPATH", redis_py);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Owned::spawn(&mut command).expect("python3 starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Some(Self { _child: child, input, output })
    }

    /// Sends one line.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the program reads");
    }

    /// The next line that it prints.
    ///
    /// # Panics
    ///
    /// If it ends instead.
    pub fn hear(&mut self) -> String {
        self.output.next().expect("the program goes on").expect("its output is text")
    }

    /// Sends a line and waits for one.
    ///
    /// # Panics
    ///
    /// As [`tell`](Self::tell) and [`hear`](Self::hear).
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }
}
