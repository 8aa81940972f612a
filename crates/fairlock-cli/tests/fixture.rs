//! Starting the program, and waiting for conditions instead of sleeping.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fairlock_testkit::processes::Owned;
use fairlock_testkit::schema::Schema;
use fairlock_testkit::tempdir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::schemas;

pub(crate) use fairlock_testkit::processes::{children, is_alive, state};
/// Waits for a condition, with a bound far beyond what is needed.
pub(crate) use fairlock_testkit::wait::patiently as eventually;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_fairlock");

/// The program, without the settings in the environment of the test runner.
pub(crate) fn fairlock<I>(args: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    fairlock_by(PROGRAM, args)
}

/// The same for another version of the program.
pub(crate) fn fairlock_by<I>(program: &str, args: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = with_default_signals(program);
    command.args(args);
    neutral(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Removes settings for the program that come from the machine or from the test runner.
pub(crate) fn neutral(command: &mut Command) {
    command.env_remove("FAIRLOCK_URL").env_remove("FAIRLOCK_PASSWORD").env_remove("NO_COLOR");
    command.env("FAIRLOCK_CONFIG", "/dev/null");
}

/// A program that starts with the default action for every signal. Tests may run in the background
/// of a shell, which ignores INT and QUIT, and what is ignored on entry stays ignored.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// The URL of a host store that nobody else uses: for tests of one process, since `run` refuses
/// `memory:`, where a lock excludes nobody.
pub(crate) fn alone() -> String {
    const NAME: &str = "fairlock-alone-";
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let all = tempdir::place();
        let folder = all.join(format!("{NAME}{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder for tests");
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("it is ours");
        // A test program removes nothing when it ends; the next one does.
        for entry in fs::read_dir(all).expect("it is there").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_the_dead = name.strip_prefix(NAME).is_some_and(|pid| !is_alive(pid));
            if of_the_dead {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        folder
    });
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("sqlite:{}", FOLDER.join(format!("{number}.db")).display())
}

/// `fairlock run --url URL OPTIONS NAME -- sh -c SCRIPT`.
pub(crate) fn run_script(url: &str, options: &[&str], name: &str, script: &str) -> Command {
    run_script_by(PROGRAM, url, options, name, script)
}

/// The same with another version.
pub(crate) fn run_script_by(
    program: &str,
    url: &str,
    options: &[&str],
    name: &str,
    script: &str,
) -> Command {
    let mut command = fairlock_by(program, ["run", "--url", url]);
    command.args(options).args([name, "--", "sh", "-c", script]);
    command
}

/// A script that holds the lock until a file appears.
pub(crate) fn hold_until(file: &Path) -> String {
    format!("echo holding; until test -e {}; do sleep 0.02; done", file.display())
}

/// The result of a finished process.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The exit code; a process that a signal ended has none and fails the test.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        assert_eq!(self.status.signal(), None, "ended by a signal: {self:?}");
        self.status.code().expect("a code")
    }

    /// Checks the code, and that stderr is one line of ours that contains `text`. With an empty
    /// `text`, stderr may contain only lines about waiting, which appear on a machine whose disk
    /// stalls for 10 s.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, text: &str) {
        assert_eq!(self.code(), code, "{self:?}");
        if text.is_empty() {
            assert_eq!(
                self.stderr.lines().find(|line| {
                    !line.contains(": waiting for ") && !line.contains(" does not answer yet; ")
                }),
                None,
                "{self:?}"
            );
        } else {
            assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
            assert!(self.stderr.starts_with("fairlock: "), "{self:?}");
            assert!(self.stderr.contains(text), "{text:?} is missing: {self:?}");
        }
    }
}

/// A started process; killed when the test ends early.
#[derive(Debug)]
pub(crate) struct Running {
    child: Owned,
    stdout: Option<BufReader<ChildStdout>>,
    /// What it writes to stdout is JSON, and has this schema.
    form: Option<Schema>,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let form = schemas::of(&command);
        let mut child = Owned::spawn(&mut command).expect("the program starts");
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdout, form }
    }

    /// The same, with the write end of its stdin.
    #[track_caller]
    pub(crate) fn start_with_stdin(mut command: Command) -> (Self, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut running = Self::start(command);
        let stdin = running.child.stdin.take().expect("a pipe");
        (running, stdin)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).expect("the process is there");
    }

    /// The next line of stdout. Blocks as long as it takes: the test runner has its own limit.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.as_mut().expect("not yet waited for").read_line(&mut line);
        assert!(read.expect("stdout is readable") > 0, "no more lines");
        schemas::check(self.form.as_ref(), &line);
        line.trim_end().to_owned()
    }

    /// Closes the reading end of its stdout.
    pub(crate) fn reads_no_more(&mut self) {
        self.stdout = None;
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Outcome {
        let mut status = None;
        eventually("the program ends", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        let mut outcome = Outcome {
            status: status.expect("it has ended"),
            stdout: String::new(),
            stderr: String::new(),
        };
        if let Some(mut stdout) = self.stdout.take() {
            stdout.read_to_string(&mut outcome.stdout).expect("UTF-8");
            schemas::check(self.form.as_ref(), &outcome.stdout);
        }
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut outcome.stderr).expect("UTF-8");
        }
        outcome
    }
}

/// Runs a command until it ends.
#[track_caller]
pub(crate) fn finish(command: Command) -> Outcome {
    Running::start(command).wait()
}

/// What `fairlock status --json` prints about a lock.
#[track_caller]
pub(crate) fn status(url: &str, name: &str) -> Value {
    let outcome = finish(fairlock(["status", "--json", "--url", url, name]));
    outcome.expect(0, "");
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

/// The guardian of a run. While a process becomes another program it has no command line, on a busy
/// machine for a while.
pub(crate) fn guardian(run: u32) -> u32 {
    let is_one = |child: &u32| {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == b"__guardian")
    };
    let mut found = None;
    eventually("it has a guardian", || {
        found = children(run).into_iter().find(is_one);
        found.is_some()
    });
    found.expect("just found")
}

/// The lines of a file that may not exist yet.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

pub(crate) fn pid(process: u32) -> Pid {
    i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process number")
}
