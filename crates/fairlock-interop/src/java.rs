//! A JVM with Redisson clients: commands go in, and each call's answer comes out when it ends.
//!
//! [`Java`] is a process of the driver in `interop/`, [`JavaClient`] a Redisson client in it,
//! [`JavaOwner`] a thread of that client, which is what owns a lock in Java, and [`JavaLock`] a
//! lock object used by that thread. Its methods send the call at once and return a [`Call`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fairlock_testkit::clock::ClockHandle;
use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::version::Version;

/// Time limit for anything that ends by itself; the machine may be busy.
pub const SOON: Duration = Duration::from_secs(15);
/// Time limit for connecting from a cold JVM, which loads the classes it needs: with two busy loops
/// per processor, 15 s were not enough (D18). No lock waits for it.
const CONNECTED: Duration = Duration::from_secs(60);
/// These flags halve the time to the first lock; nothing here runs long enough to need more.
const JVM_FLAGS: [&str; 4] =
    ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m"];

/// A running driver, killed when the last of its clients and calls is dropped.
#[derive(Clone, Debug)]
pub struct Java {
    process: Arc<Process>,
}

#[derive(Debug)]
struct Process {
    version: Version,
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    clock: Option<ClockHandle>,
    dir: TempDir,
}

/// Calls in flight; `None` once the process has ended.
type Waiting = Option<HashMap<String, oneshot::Sender<Answer>>>;

/// The result of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Just before the call, on the clock of [`fairlock_testkit::history::now_ns`].
    pub began_ns: u64,
    /// Just after it.
    pub ended_ns: u64,
    /// The returned value, `-` for none, or the exception.
    pub result: Result<String, String>,
}

/// A call in flight. Dropping it does not cancel it.
#[derive(Debug)]
pub struct Call {
    what: String,
    receiver: oneshot::Receiver<Answer>,
    answer: Option<Answer>,
    process: Arc<Process>,
}

/// A Redisson client.
#[derive(Clone, Debug)]
pub struct JavaClient {
    java: Java,
    name: String,
    /// A UUID of version 4.
    pub uuid: String,
}

/// A thread of a Redisson client. Its calls run one after another, except asynchronous ones.
#[derive(Clone, Debug)]
pub struct JavaOwner {
    client: JavaClient,
    name: String,
    /// The owner id as stored in Redis.
    pub id: String,
}

/// The kinds of Redisson locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "they are Redisson's, see its getFairLock and so on")]
pub enum Kind {
    Fair,
    Plain,
    Fenced,
    Spin,
    NonReentrant,
    NonReentrantFair,
    /// `getReadWriteLock(name).readLock()`.
    Read,
    /// Its `writeLock()`.
    Write,
    /// No lock: an `RCountDownLatch`, with operations of its own.
    Latch,
}

/// A lock object used by one thread.
#[derive(Clone, Debug)]
pub struct JavaLock {
    owner: JavaOwner,
    kind: Kind,
    lock: String,
    is_apart: bool,
}

/// The settings of a client.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Redisson's `lockWatchdogTimeout`.
    pub watchdog: Duration,
    /// Redisson's `fairLockWaitTimeout`, if not the default. Available since 3.46.
    pub fair_wait: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { watchdog: Duration::from_secs(30), fair_wait: None }
    }
}

impl Java {
    /// Starts a process. Returns `None`, with a message, without Java or the jars.
    ///
    /// # Panics
    ///
    /// If it does not start, or as [`Version::require`].
    pub fn start(version: Version) -> Option<Self> {
        Self::launch(version, false)
    }

    /// Like [`Java::start`], with its wall clock under the test's control.
    ///
    /// # Panics
    ///
    /// As [`Java::start`].
    pub fn with_clock(version: Version) -> Option<Self> {
        Self::launch(version, true)
    }

    /// The JVM shared by all tests of this process that do not disturb it, with the version named
    /// by the environment. It ends with this process.
    ///
    /// # Panics
    ///
    /// As [`Java::start`].
    pub fn shared() -> Option<Self> {
        static SHARED: OnceLock<Option<Java>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Version::of_environment())).clone()
    }

    fn launch(version: Version, has_clock: bool) -> Option<Self> {
        let folder = version.require()?;
        let dir = TempDir::new();
        let clock = if has_clock { Some(ClockHandle::new(dir.path())?) } else { None };
        let class_path = format!("{}:{}", at(&folder, "classes"), at(&folder, "jars/*"));
        let mut command = Command::new("java");
        command.args(JVM_FLAGS).args(["-cp", &class_path, "interop.Driver"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(log_file(&dir)).expect("a file in our own folder"));
        if let Some(clock) = &clock {
            command.envs(clock.environment());
        }
        let mut child = command.spawn().expect("java starts");
        let input = Mutex::new(child.stdin.take().expect("it is piped"));
        let output = child.stdout.take().expect("it is piped");

        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let heard = Arc::clone(&waiting);
        std::thread::spawn(move || deliver(output, &heard));
        let (next, child) = (AtomicU64::new(1), Mutex::new(child));
        let process = Process { version, child, input, waiting, next, clock, dir };
        Some(Self { process: Arc::new(process) })
    }

    /// The Redisson version it runs.
    pub fn version(&self) -> Version {
        self.process.version
    }

    /// Its clock.
    ///
    /// # Panics
    ///
    /// If it was not started with [`Java::with_clock`].
    pub fn clock(&self) -> &ClockHandle {
        self.process.clock.as_ref().expect("a JVM started with a clock")
    }

    /// Its current time, in milliseconds since the epoch.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub async fn now_ms(&self) -> i64 {
        self.call("clock").value().await.parse().expect("a number")
    }

    /// Connects a new client to the server at this address.
    ///
    /// # Panics
    ///
    /// If it cannot connect.
    pub async fn client(&self, server: SocketAddr, settings: Settings) -> JavaClient {
        self.connect(&format!("redis://{server}"), settings).await
    }

    /// Connects a new client to the master that these Sentinels know by this name.
    ///
    /// # Panics
    ///
    /// If it cannot connect.
    pub async fn client_of_sentinels(
        &self,
        sentinels: &[SocketAddr],
        master: &str,
        settings: Settings,
    ) -> JavaClient {
        self.connect(&format!("sentinel/{master}/{}", listed(sentinels)), settings).await
    }

    /// Connects a new client to the Cluster of these nodes.
    ///
    /// # Panics
    ///
    /// If it cannot connect.
    pub async fn client_of_cluster(&self, nodes: &[SocketAddr], settings: Settings) -> JavaClient {
        self.connect(&format!("cluster/{}", listed(nodes)), settings).await
    }

    async fn connect(&self, address: &str, settings: Settings) -> JavaClient {
        let name = format!("c{}", self.process.next.fetch_add(1, Ordering::Relaxed));
        let watchdog_ms = settings.watchdog.as_millis();
        let fair_wait_ms = settings.fair_wait.unwrap_or_default().as_millis();
        let call = format!("connect {name} {address} {watchdog_ms} {fair_wait_ms}");
        let uuid = self.call(&call).value_within(CONNECTED).await;
        JavaClient { java: self.clone(), name, uuid }
    }

    /// Kills it with SIGKILL and waits until it has exited; calls in flight get no answer.
    pub fn kill9(&self) {
        self.process.kill();
    }

    /// Freezes the whole process (SIGSTOP).
    pub fn stop(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Resumes a stopped process (SIGCONT).
    pub fn cont(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Sends a command. If the process has ended, the call is never answered.
    fn call(&self, words: &str) -> Call {
        let id = self.process.next.fetch_add(1, Ordering::Relaxed).to_string();
        let (sender, receiver) = oneshot::channel();
        if let Some(waiting) = unpoisoned(&self.process.waiting).as_mut() {
            waiting.insert(id.clone(), sender);
        }
        // The write fails if the process has ended; the call's receiver reports that.
        let _ = writeln!(unpoisoned(&self.process.input), "{id} {words}");
        Call { what: words.to_owned(), receiver, answer: None, process: Arc::clone(&self.process) }
    }
}

impl Process {
    fn kill(&self) {
        let mut child = unpoisoned(&self.child);
        // Fails only if the process has exited and was reaped.
        let _ = child.kill();
        let _ = child.wait();
    }

    fn signal(&self, signal: Signal) {
        let child = unpoisoned(&self.child);
        kill_process(Pid::from_child(&child), signal).expect("a signal to our own child");
    }

    fn log(&self) -> String {
        fs::read_to_string(log_file(&self.dir)).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads answers until the process ends.
fn deliver(output: ChildStdout, waiting: &Mutex<Waiting>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let (id, answer) = parse(&line).unwrap_or_else(|| panic!("the driver said {line:?}"));
        let sender = unpoisoned(waiting).as_mut().and_then(|waiting| waiting.remove(id));
        if let Some(sender) = sender {
            // The receiver may be gone.
            let _ = sender.send(answer);
        }
    }
    *unpoisoned(waiting) = None;
}

fn parse(line: &str) -> Option<(&str, Answer)> {
    let mut words = line.splitn(5, ' ');
    let id = words.next()?;
    let began_ns = words.next()?.parse().ok()?;
    let ended_ns = words.next()?.parse().ok()?;
    let result = match (words.next()?, words.next()?.to_owned()) {
        ("ok", value) => Ok(value),
        ("failed", exception) => Err(exception),
        _ => return None,
    };
    Some((id, Answer { began_ns, ended_ns, result }))
}

impl Call {
    /// Waits for the result.
    ///
    /// # Panics
    ///
    /// If it does not arrive within [`SOON`], or the process ends first.
    pub async fn answer(self) -> Answer {
        self.must_answer_within(SOON).await
    }

    async fn must_answer_within(mut self, time: Duration) -> Answer {
        match self.answer_within(time).await {
            Some(answer) => answer,
            None => panic!("no answer within {time:?}: {}\n{}", self.what, self.process.log()),
        }
    }

    /// Waits for the returned value.
    ///
    /// # Panics
    ///
    /// If the call threw an exception, or as [`Call::answer`].
    pub async fn value(self) -> String {
        self.value_within(SOON).await
    }

    async fn value_within(self, time: Duration) -> String {
        let (what, process) = (self.what.clone(), Arc::clone(&self.process));
        let answer = self.must_answer_within(time).await;
        answer.result.unwrap_or_else(|error| panic!("{what}: {error}\n{}", process.log()))
    }

    /// Waits for the returned number.
    ///
    /// # Panics
    ///
    /// If the value is not a number, or as [`Call::value`].
    pub async fn number(self) -> i64 {
        self.value().await.parse().expect("a number")
    }

    /// Waits for the returned boolean.
    ///
    /// # Panics
    ///
    /// If the value is neither true nor false, or as [`Call::value`].
    pub async fn is_true(self) -> bool {
        self.value().await.parse().expect("true or false")
    }

    /// Waits for the exception.
    ///
    /// # Panics
    ///
    /// If the call threw none, or as [`Call::answer`].
    pub async fn exception(self) -> String {
        let what = self.what.clone();
        let answer = self.answer().await;
        answer.result.expect_err(&what)
    }

    /// The result, if it arrives within `time`.
    ///
    /// # Panics
    ///
    /// If the process ends first.
    pub async fn answer_within(&mut self, time: Duration) -> Option<Answer> {
        if self.answer.is_none() {
            let answer = tokio::time::timeout(time, &mut self.receiver).await.ok()?;
            let ended = |_| panic!("the JVM ended: {}\n{}", self.what, self.process.log());
            self.answer = Some(answer.unwrap_or_else(ended));
        }
        self.answer.clone()
    }

    /// Whether the call has ended.
    pub fn is_over(&mut self) -> bool {
        if self.answer.is_none() {
            self.answer = self.receiver.try_recv().ok();
        }
        self.answer.is_some()
    }
}

impl JavaClient {
    /// The client's thread of this name, created on first use.
    ///
    /// # Panics
    ///
    /// If the process does not answer.
    pub async fn owner(&self, name: &str) -> JavaOwner {
        let id = self.java.call(&format!("id {} {name} plain x", self.name)).value().await;
        JavaOwner { client: self.clone(), name: name.to_owned(), id }
    }

    /// Shuts the client down in an orderly way.
    pub fn shutdown(&self) -> Call {
        self.java.call(&format!("shutdown {}", self.name))
    }
}

impl JavaOwner {
    /// A lock of this kind. Its name must not contain spaces.
    pub fn lock(&self, kind: Kind, lock: &str) -> JavaLock {
        assert!(!lock.contains([' ', '\n']), "the driver's words are separated by spaces");
        JavaLock { owner: self.clone(), kind, lock: lock.to_owned(), is_apart: false }
    }

    /// A fair lock.
    pub fn fair(&self, lock: &str) -> JavaLock {
        self.lock(Kind::Fair, lock)
    }

    /// Interrupts the thread.
    pub fn interrupt(&self) -> Call {
        self.client.java.call(&format!("interrupt {} {}", self.client.name, self.name))
    }
}

/// Times are in milliseconds; without a lease the watchdog renews.
#[allow(missing_docs, reason = "each is Redisson's method of that name")]
impl JavaLock {
    /// A separate Java object for the same lock. Otherwise the client's threads share one,
    /// including the lease that was used last.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { is_apart: true, ..self.clone() }
    }

    /// Any operation of the driver, with numeric arguments.
    pub fn call(&self, operation: &str, numbers: &[i64]) -> Call {
        let words: Vec<_> = numbers.iter().map(i64::to_string).collect();
        self.call_with(operation, &words)
    }

    /// The same with textual arguments.
    pub fn call_with(&self, operation: &str, rest: &[String]) -> Call {
        let Self { owner, kind, lock, is_apart } = self;
        let (client, thread, kind) = (&owner.client.name, &owner.name, kind.name());
        let apart = if *is_apart { "#apart" } else { "" };
        let mut words = format!("{operation} {client} {thread} {kind}{apart} {lock}");
        for word in rest {
            words.push_str(&format!(" {word}"));
        }
        owner.client.java.call(&words)
    }

    pub fn lock(&self) -> Call {
        self.call("lock", &[])
    }

    pub fn lock_for(&self, lease_ms: i64) -> Call {
        self.call("lock", &[lease_ms])
    }

    pub fn lock_async(&self) -> Call {
        self.call("lockAsync", &[])
    }

    pub fn try_lock(&self) -> Call {
        self.call("tryLock", &[])
    }

    pub fn try_lock_for(&self, wait_ms: i64, lease_ms: Option<i64>) -> Call {
        self.call("tryLock", &[wait_ms, lease_ms.unwrap_or(-1)])
    }

    pub fn try_lock_for_async(&self, wait_ms: i64, lease_ms: Option<i64>) -> Call {
        self.call("tryLockAsync", &[wait_ms, lease_ms.unwrap_or(-1)])
    }

    pub fn unlock(&self) -> Call {
        self.call("unlock", &[])
    }

    pub fn unlock_async(&self) -> Call {
        self.call("unlockAsync", &[])
    }

    pub fn is_locked(&self) -> Call {
        self.call("isLocked", &[])
    }

    pub fn is_mine(&self) -> Call {
        self.call("isHeldByCurrentThread", &[])
    }

    pub fn hold_count(&self) -> Call {
        self.call("holdCount", &[])
    }

    pub fn remaining_ms(&self) -> Call {
        self.call("remainTimeToLive", &[])
    }

    pub fn force_unlock(&self) -> Call {
        self.call("forceUnlock", &[])
    }
}

impl Kind {
    /// Whether its owner may re-enter it.
    pub fn is_reentrant(self) -> bool {
        !matches!(self, Self::NonReentrant | Self::NonReentrantFair)
    }

    /// The driver's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Plain => "plain",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::NonReentrant => "nonreentrant",
            Self::NonReentrantFair => "nonreentrant-fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Latch => "latch",
        }
    }
}

fn at(folder: &Path, below: &str) -> String {
    folder.join(below).to_str().expect("the workspace's path is text").to_owned()
}

fn log_file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("java.log")
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listed(servers: &[SocketAddr]) -> String {
    servers.iter().map(|server| format!("redis://{server}")).collect::<Vec<_>>().join(",")
}
