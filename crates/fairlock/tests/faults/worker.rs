//! A client in a process of its own, to be killed and frozen.
//!
//! The process is this test binary again, told to run one test: so it always has the library under
//! test, however the tests were built and started. It takes orders on stdin, and reports events on
//! stdout in lines that begin with `> `, each with the time of the system's monotonic clock:
//!
//! ```text
//! lock KEY NAME [LEASE_MS]   -> granted KEY TOKEN OWNER AT, or failed KEY KIND AT; `plain` and `simple`
//!                               in place of `lock` for those kinds, `read` and `write` for a read-write
//!                               lock, `permit` for one of two permits, `permits` for both
//! watch KEY                  -> says KEY STATE REMAINING_MS AT, every few milliseconds
//! release KEY                -> released KEY OUTCOME AT
//! detach KEY [LEASE_MS]      -> detached KEY AT
//! ```
//!
//! `stand`, `keep` and `observe` are about elections: see [`candidate`](super::candidate).
//!
//! A guard that changes its state reports `state KEY STATE AT`. A panic of any task ends the process, and is said as
//! `panicked ...`, which fails the test.

use super::candidate::Candidate;
use super::fixture::{Fixture, HB, LEASE, SELDOM, SLACK, config, eventually, ms, steady};
use crate::topologies::patient;
use fairlock::{Client, Error, Guard};
use fairlock_testkit::history::{Event, Record, now_ns};
use fairlock_testkit::processes::{self, Owned};
use fairlock_testkit::program;
use fairlock_testkit::server::Server;
use fairlock_testkit::threads::{self, Counts};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Holds the store's URL, and makes a process of this test binary a worker.
const URL: &str = "FAIRLOCK_FAULTS_WORKER_URL";

/// Heartbeat and watchdog lease of the worker, in milliseconds.
const TIMES: &str = "FAIRLOCK_FAULTS_WORKER_TIMES";

/// A worker starts in a few milliseconds; a loaded machine must not make the test fail.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Worker {
    child: Owned,
    stdin: ChildStdin,
    lines: Receiver<Line>,
}

/// A line that a worker printed.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) words: Vec<String>,
    /// The worker's own time when it printed the line.
    pub(crate) at_ns: u64,
}

impl Line {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<_> =
            text.strip_prefix("> ")?.split(' ').map(ToOwned::to_owned).collect();
        let at_ns = words.pop()?.parse().ok()?;
        Some(Self { words, at_ns })
    }

    /// A panic of one task would leave a worker that looks like one that lost its locks.
    #[track_caller]
    fn assert_no_panic(&self) {
        assert!(self.words[0] != "panicked", "a worker has {}", self.words.join(" "));
    }

    pub(crate) fn token(&self) -> u64 {
        self.words[2].parse().unwrap()
    }

    /// For how long the guard of a watched turn is still valid.
    pub(crate) fn remaining(&self) -> Duration {
        ms(self.words[3].parse().unwrap())
    }

    pub(crate) fn owner(&self) -> &str {
        &self.words[3]
    }
}

impl Worker {
    pub(crate) fn start(server: &Server) -> Self {
        Self::with(&server.url(), HB, LEASE, [])
    }

    /// With heartbeats that are far apart.
    pub(crate) fn seldom(server: &Server) -> Self {
        Self::with(&server.url(), SELDOM, LEASE, [])
    }

    pub(crate) fn with(
        url: &str,
        heartbeat: Duration,
        lease: Duration,
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Self {
        Self::under(Command::new("env"), url, heartbeat, lease, environment)
    }

    /// The same, started by `starter`, which becomes the program that its last arguments name.
    pub(crate) fn under(
        mut starter: Command,
        url: &str,
        heartbeat: Duration,
        lease: Duration,
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Self {
        // Not by its path: a build may replace the file while the tests run.
        starter.arg(format!("/proc/{}/exe", std::process::id())).envs(environment);
        Self::run(&mut starter, url, heartbeat, lease)
    }

    /// As another user, with a umask that gives others nothing.
    pub(crate) fn of_user(
        url: &str,
        heartbeat: Duration,
        lease: Duration,
        (user, group): (u32, u32),
    ) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077 && exec \"$0\" \"$@\""]);
        command.arg(program::for_others()).current_dir("/").uid(user).gid(group);
        Self::run(&mut command, url, heartbeat, lease)
    }

    fn run(command: &mut Command, url: &str, heartbeat: Duration, lease: Duration) -> Self {
        let (_, module) = module_path!().split_once("::").unwrap();
        command
            .args([&format!("{module}::takes_orders"), "--exact", "--nocapture"])
            .env(URL, url)
            .env(TIMES, format!("{} {}", heartbeat.as_millis(), lease.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = Owned::spawn(command).unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let Some(line) = Line::parse(&line) else { continue };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let worker = Self { child, stdin, lines };
        worker.expect("ready", STARTS_WITHIN);
        worker
    }

    #[track_caller]
    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.stdin, "{order}").unwrap();
    }

    /// The next line with this beginning; others are skipped.
    #[track_caller]
    pub(crate) fn expect(&self, beginning: &str, within: Duration) -> Line {
        let line = self.hear(beginning, within);
        line.unwrap_or_else(|| panic!("the worker did not say `{beginning}` within {within:?}"))
    }

    /// All that it has said since the last look.
    #[track_caller]
    pub(crate) fn said(&self) -> Vec<Line> {
        self.lines.try_iter().inspect(Line::assert_no_panic).collect()
    }

    #[track_caller]
    pub(crate) fn hear(&self, beginning: &str, within: Duration) -> Option<Line> {
        let until = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.words.join(" ").starts_with(beginning) => return Some(line),
                Ok(line) => line.assert_no_panic(),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Takes a free lock.
    #[track_caller]
    pub(crate) fn take(&mut self, fixture: &Fixture, name: &str) -> Line {
        self.order(&format!("lock 0 {name}"));
        // The bound leaves room for a slow start, which is not what is measured.
        self.granted(fixture, name, STARTS_WITHIN)
    }

    /// The grant of its only wait, recorded with the worker's time.
    #[track_caller]
    pub(crate) fn granted(&self, fixture: &Fixture, name: &str, within: Duration) -> Line {
        let line = self.expect("granted", within);
        let (lock, owner) = (name.to_owned(), line.owner().to_owned());
        let event = Event::Granted { token: line.token() };
        fixture.history.extend([Record { lock, owner, at_ns: line.at_ns, event }]);
        line
    }

    /// Enters the queue; returns its owner.
    #[track_caller]
    pub(crate) fn enter(&mut self, fixture: &Fixture, name: &str) -> String {
        self.enter_as(fixture, "0", name)
    }

    #[track_caller]
    pub(crate) fn enter_as(&mut self, fixture: &Fixture, key: &str, name: &str) -> String {
        let before = fixture.queue(name);
        self.order(&format!("lock {key} {name}"));
        fixture.joined(name, &before)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill9(&mut self) {
        self.signal(Signal::KILL);
        // The system closes its connections before it can be waited for.
        self.child.wait().unwrap();
    }

    /// Its resident memory, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The counts of its threads so far.
    pub(crate) fn cpu(&self) -> HashMap<u32, Counts> {
        threads::threads(self.child.id()).expect("a worker that lives")
    }

    /// Limits the files that it may have open from now on, except those already open; returns the
    /// former limit.
    pub(crate) fn limit_files(&self, files: u64) -> u64 {
        let pid = Some(Pid::from_child(&self.child));
        let now = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit { current: Some(files), maximum: now.maximum };
        prlimit(pid, Resource::Nofile, limit).unwrap().current.unwrap_or(u64::MAX)
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let is_stopped = || processes::state(self.child.id()) == Some('T');
        eventually("the worker is stopped", SLACK, is_stopped);
    }

    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

pub(super) fn say(what: std::fmt::Arguments<'_>) {
    say_at(now_ns(), what);
}

pub(super) fn say_at(at_ns: u64, what: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // The test harness may have begun a line. If the pipe is closed, nobody is left to read this.
    let _ = writeln!(out, "\n> {what} {at_ns}").and_then(|()| out.flush());
}

/// The worker itself, when it is started as one; otherwise tests that a worker obeys.
#[test]
fn takes_orders() {
    let Some(url) = std::env::var_os(URL) else { return steady(async || check_a_worker()) };
    std::panic::set_hook(Box::new(|panic| {
        say(format_args!("{}", panic.to_string().replace('\n', " ")));
        std::process::abort();
    }));
    let times = std::env::var(TIMES).unwrap();
    let (heartbeat, lease) = times.split_once(' ').unwrap();
    let url = url.to_str().unwrap();
    // Servers that fail over are given time.
    let config = if url.starts_with("redis+") { patient(url) } else { config(url) };
    let config =
        config.heartbeat(ms(heartbeat.parse().unwrap())).watchdog_lease(ms(lease.parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(config));
}

async fn work(config: fairlock::Config) {
    let client = Client::with_config(config).await.unwrap();
    let (sender, mut orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut turns = HashMap::new();
    let candidate = Candidate::new(client.clone());
    say(format_args!("ready"));
    // Ends with its stdin, so that no worker outlives the test.
    while let Some(order) = orders.recv().await {
        let words: Vec<_> = order.split(' ').collect();
        match words[..] {
            [share @ ("read" | "write" | "permit" | "permits"), key, name, ..] => {
                let lease = words.get(3).map(|lease_ms| ms(lease_ms.parse().unwrap()));
                let guard = shared(client.clone(), share.to_owned(), name.to_owned(), lease);
                let (sender, orders) = unbounded_channel();
                turns.insert(key.to_owned(), sender);
                tokio::spawn(turn(key.to_owned(), guard, orders));
            }
            [kind @ ("lock" | "plain" | "simple"), key, name, ..] => {
                let mut lock = match kind {
                    "plain" => client.plain_lock(name),
                    "simple" => client.simple_lock(name),
                    _ => client.fair_lock(name),
                };
                if let Some(lease_ms) = words.get(3) {
                    lock = lock.lease(ms(lease_ms.parse().unwrap()));
                }
                let (sender, orders) = unbounded_channel();
                turns.insert(key.to_owned(), sender);
                let guard = async move { lock.lock().await };
                tokio::spawn(turn(key.to_owned(), guard, orders));
            }
            ["stand", name, resource] => candidate.stands(name, resource),
            ["keep"] => candidate.keeps(),
            ["observe", name] => candidate.observes(name),
            ["detach", key, lease_ms] => {
                let _ = turns[key].send(format!("detach {lease_ms}"));
            }
            [order, key] => {
                // A turn that has failed takes no more orders.
                let _ = turns[key].send(order.to_owned());
            }
            _ => panic!("not understood: {order}"),
        }
    }
}

/// Takes a share of a lock.
async fn shared(
    client: Client,
    share: String,
    name: String,
    lease: Option<Duration>,
) -> Result<Guard, Error> {
    let (mut rw, mut permits) = (client.rw_lock(&name), client.semaphore(&name, 2));
    if let Some(lease) = lease {
        (rw, permits) = (rw.lease(lease), permits.lease(lease));
    }
    Ok(match share.as_str() {
        "read" => rw.read().await?.into_guard(),
        "write" => rw.write().await?.into_guard(),
        "permits" => permits.acquire_many(2).await?.into_guard(),
        _ => permits.acquire().await?.into_guard(),
    })
}

async fn turn(
    key: String,
    taking: impl Future<Output = Result<Guard, Error>>,
    mut orders: UnboundedReceiver<String>,
) {
    let guard = match taking.await {
        Ok(guard) => guard,
        Err(error) => return say(format_args!("failed {key} {:?}", error.kind())),
    };
    say(format_args!("granted {key} {} {}", guard.token(), guard.owner()));
    let mut state = guard.state();
    let mut watching = false;
    loop {
        tokio::select! {
            order = orders.recv() => match order.as_deref() {
                Some("watch") => watching = true,
                Some("release") => break,
                Some("detach") => {
                    guard.detach().await.unwrap();
                    return say(format_args!("detached {key}"));
                }
                Some(order) if order.starts_with("detach ") => {
                    let left = order["detach ".len()..].parse().unwrap();
                    guard.detach_for(ms(left)).await.unwrap();
                    return say(format_args!("detached {key}"));
                }
                _ => return,
            },
            next = guard.state_changed(state) => {
                say(format_args!("state {key} {next:?}"));
                state = next;
            }
            () = tokio::time::sleep(ms(2)), if watching => {
                // Reads the time first: what is reported was true after it.
                let at_ns = now_ns();
                let (state, left_ms) = (guard.state(), guard.remaining().as_millis());
                let mut out = std::io::stdout().lock();
                let _ = writeln!(out, "> says {key} {state:?} {left_ms} {at_ns}");
            }
        }
    }
    match guard.release().await {
        Ok(outcome) => say(format_args!("released {key} {outcome:?}")),
        Err(error) => say(format_args!("failed {key} {:?}", error.kind())),
    }
}

fn check_a_worker() {
    let Some(fixture) = Fixture::redis70() else { return };
    let mut worker = Worker::start(&fixture.server);
    let line = worker.take(&fixture, "job");
    assert_eq!(fixture.holder("job").as_deref(), Some(line.owner()));
    worker.order("release 0");
    assert_eq!(worker.expect("released", STARTS_WITHIN).words[2], "Released");
    assert_eq!(fixture.holder("job"), None);
    worker.stop();
    worker.cont();
    worker.kill9();
}

#[test]
#[should_panic(expected = "a worker has panicked at")]
fn a_worker_that_panics_fails_the_test() {
    let mut worker = Worker::with("memory:", HB, LEASE, []);
    worker.order("lock 0 job no-number");
    worker.hear("granted", STARTS_WITHIN);
}
