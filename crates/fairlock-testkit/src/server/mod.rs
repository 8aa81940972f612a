//! A private server per test: its own port, its own folder, killed with its owner.

mod ended;
mod generation;
pub(crate) mod port;
pub(crate) mod spawn;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};

pub use self::ended::ended_since;
pub use self::generation::{Generation, ONLY, require, workspace_root};

use self::port::Port;
use crate::clock::ClockHandle;
use crate::raw::Raw;
use crate::resp::Value;
use crate::tempdir::TempDir;
use crate::tls::Identity;

/// How long a server may take until it answers, even on a loaded machine with a log to load.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The pause between two attempts to reach a starting server; starting takes about 10 ms.
const READY_POLL: Duration = Duration::from_millis(2);
/// Ports tried, since another process may take a free one between our check and the server's start.
const START_ATTEMPTS: u32 = 20;
/// Lines of the server's log shown with a failure.
const LOG_LINES: usize = 50;

/// A running, private server on 127.0.0.1, killed and removed on drop.
#[derive(Debug)]
pub struct Server {
    generation: Generation,
    program: PathBuf,
    args: Vec<OsString>,
    port: Port,
    /// Whether it is encrypted.
    tls: bool,
    child: Mutex<Child>,
    clock: Option<ClockHandle>,
    dir: TempDir,
}

/// The settings to start a [`Server`] with.
#[derive(Debug)]
pub struct Builder {
    generation: Generation,
    args: Vec<OsString>,
    clock_shim: bool,
    /// A configuration file that the server may rewrite.
    config: Option<String>,
    /// Whether the port 10 000 above is needed too.
    bus: bool,
    tls: bool,
}

impl Builder {
    fn new(generation: Generation) -> Self {
        Self {
            generation: generation.or_only(),
            args: Vec::new(),
            clock_shim: false,
            config: None,
            bus: false,
            tls: false,
        }
    }

    /// Adds a setting as on the server's command line, `("--maxmemory", "10mb")`. Later ones take
    /// precedence.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.into(), value.into()]);
        self
    }

    fn flag(mut self, name: &str) -> Self {
        self.args.push(name.into());
        self
    }

    /// Whether data survives [`Server::kill9`] and [`Server::restart`], up to the last answered
    /// command. Otherwise a restarted server is empty.
    #[must_use]
    pub fn persist(self, persist: bool) -> Self {
        let (appendonly, appendfsync) = if persist { ("yes", "always") } else { ("no", "no") };
        self.arg("--appendonly", appendonly).arg("--appendfsync", appendfsync)
    }

    /// Puts the server's wall clock under the test's control, see [`Server::clock`].
    #[must_use]
    pub fn clock_shim(mut self, clock_shim: bool) -> Self {
        self.clock_shim = clock_shim;
        self
    }

    /// Gives the server a configuration file, which it may rewrite: a Sentinel requires one.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Takes a port such that the one 10 000 above is free too: the nodes of a Cluster use it for
    /// their bus.
    #[must_use]
    pub fn bus_port(mut self) -> Self {
        self.bus = true;
        self
    }

    /// Makes its port a TLS port, without plain TCP; clients need no certificate, unless a later
    /// `("--tls-auth-clients", "yes")` requires it. Replication, Sentinels and the Cluster's bus
    /// use TLS as well. [`Server::client`] uses the Unix socket.
    #[must_use]
    pub fn tls(mut self, identity: &Identity) -> Self {
        self.tls = true;
        let Identity { ca, cert, key } = identity;
        for (name, path) in [("ca-cert", ca), ("cert", cert), ("key", key)] {
            self.args.extend([format!("--tls-{name}-file").into(), path.into()]);
        }
        self.arg("--tls-auth-clients", "no").arg("--tls-replication", "yes")
    }

    /// Starts the server and waits until it answers; `None`, with a notice, if it (or, for the
    /// clock, a C compiler) is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start, with the end of its log; or if it is not installed where `CI` is set.
    pub fn start(self) -> Option<Server> {
        let program = require(self.generation)?;
        if self.tls && !self.generation.speaks_tls() {
            let name = self.generation.name();
            crate::skip(&format!("a server {name} that is built with TLS; this one is not"));
            return None;
        }
        let dir = TempDir::new();
        let clock = if self.clock_shim { Some(ClockHandle::new(dir.path())?) } else { None };
        if let Some(config) = &self.config {
            fs::write(config_file(dir.path()), config).expect("the server's folder is ours");
        }

        let (child, port) = (0..START_ATTEMPTS)
            .find_map(|_| {
                let port = Port::reserve(self.bus);
                let place = (port.number, self.tls);
                let child = launch(&program, &self.args, place, dir.path(), clock.as_ref()).ok()?;
                Some((child, port))
            })
            .unwrap_or_else(|| {
                panic!("{} does not start:\n{}", program.display(), log_end(dir.path()))
            });
        let Self { generation, args, tls, .. } = self;
        Some(Server { generation, program, args, port, tls, child: Mutex::new(child), clock, dir })
    }
}

impl Server {
    /// Starts a server with default settings; `None`, with a notice, if it is not installed.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    pub fn start(generation: Generation) -> Option<Self> {
        Self::builder(generation).start()
    }

    /// A builder for a server with other settings.
    pub fn builder(generation: Generation) -> Builder {
        let mut builder = Builder::new(generation).arg("--save", "");
        if builder.generation.guards_debug() {
            builder = builder.arg("--enable-debug-command", "local");
        }
        builder
    }

    /// The same for a Sentinel, which accepts none of a server's settings. It needs a
    /// [`Builder::config`].
    pub fn builder_of_sentinel(generation: Generation) -> Builder {
        Builder::new(generation).flag("--sentinel")
    }

    /// Its generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What it reports of itself, for example `Valkey 8.1.1`.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    #[track_caller]
    pub fn version(&self) -> String {
        let info = self.client().call(&["INFO", "server"]);
        let field = |name| info.text().lines().find_map(|line| line.strip_prefix(name));
        // Valkey has both fields; that of Redis says which Redis its clients may take it for.
        let valkey = field("valkey_version:").map(|version| format!("Valkey {version}"));
        let redis = || field("redis_version:").map(|version| format!("Redis {version}"));
        valkey.or_else(redis).expect("INFO names a version")
    }

    /// `redis://127.0.0.1:PORT/`, or `rediss://` where it is encrypted.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}://{}/", self.addr())
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The Unix socket it listens on as well.
    pub fn unix_socket(&self) -> PathBuf {
        unix_socket(self.dir())
    }

    /// Its working folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id; a new one after [`Server::restart`].
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Its clock.
    ///
    /// # Panics
    ///
    /// If it was not started with [`Builder::clock_shim`].
    #[track_caller]
    pub fn clock(&self) -> &ClockHandle {
        self.clock.as_ref().expect("a server built with clock_shim(true)")
    }

    /// A new connection to it.
    ///
    /// # Panics
    ///
    /// If it does not accept one.
    #[track_caller]
    pub fn client(&self) -> Raw {
        self.try_client()
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.addr()))
    }

    /// A new connection to it.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn try_client(&self) -> io::Result<Raw> {
        if self.tls {
            Raw::try_connect_unix(&self.unix_socket())
        } else {
            Raw::try_connect(self.addr())
        }
    }

    /// How many scripts the server has been asked to run so far, under any command that runs them.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[track_caller]
    pub fn script_calls(&self) -> u64 {
        self.client().script_calls()
    }

    /// Kills it with SIGKILL and waits until it is gone. Does nothing if it is gone already.
    pub fn kill9(&self) {
        kill(&mut self.child());
    }

    /// Stops the whole process (SIGSTOP): connections stay open, nothing answers.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a stopped process (SIGCONT).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts it again on the same port in the same folder (killing it if it still runs) and waits
    /// until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        let mut child = self.child();
        kill(&mut child);
        *child = launch(
            &self.program,
            &self.args,
            (self.port.number, self.tls),
            self.dir(),
            self.clock.as_ref(),
        )
        .unwrap_or_else(|error| {
            panic!("no restart on port {}: {error}\n{}", self.port.number, log_end(self.dir()))
        });
    }

    fn signal(&self, signal: Signal) {
        let child = self.child();
        kill_process(Pid::from_child(&child), signal).expect("a signal to our own child");
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        if thread::panicking() {
            eprintln!(
                "{} on port {}:\n{}",
                self.generation.name(),
                self.port.number,
                log_end(self.dir())
            );
        }
    }
}

/// Starts the program and waits until it answers.
fn launch(
    program: &Path,
    args: &[OsString],
    (port, tls): (u16, bool),
    dir: &Path,
    clock: Option<&ClockHandle>,
) -> Result<Child, String> {
    let mut command = spawn::tied(program.as_os_str());
    let config = config_file(dir);
    if config.exists() {
        // Must come first.
        command.arg(config);
    }
    command
        .args(["--bind", "127.0.0.1"])
        .arg("--unixsocket")
        .arg(unix_socket(dir))
        .arg("--dir")
        .arg(dir)
        .arg("--logfile")
        .arg(log_file(dir))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if tls {
        command.args(["--port", "0", "--tls-port", &port.to_string()]);
    } else {
        command.args(["--port", &port.to_string()]);
    }
    if let Some(clock) = clock {
        command.envs(clock.environment());
    }
    let mut child = spawn::spawn(command).map_err(|error| error.to_string())?;

    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if is_ready(dir) {
            return Ok(child);
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended: {status}"));
        }
        if Instant::now() > deadline {
            kill(&mut child);
            return Err(format!("no answer within {READY_WITHIN:?}"));
        }
        thread::sleep(READY_POLL);
    }
}

/// Uses the Unix socket, which is ours alone: on the TCP port a server of another process that was
/// faster to take it might answer. Both are open before the first answer.
fn is_ready(dir: &Path) -> bool {
    let reply =
        Raw::try_connect_unix(&unix_socket(dir)).and_then(|mut raw| raw.try_call(&["PING"]));
    match reply {
        Ok(Value::Simple(_)) => true,
        // It is up and requires a password; other errors are about loading its data.
        Ok(Value::Error(error)) => error.starts_with("NOAUTH"),
        _ => false,
    }
}

fn kill(child: &mut Child) {
    ended::note(child.id());
    // Fails only if it is gone and reaped already.
    let _ = child.kill();
    let _ = child.wait();
}

/// The configuration file, where the server has one.
fn config_file(dir: &Path) -> PathBuf {
    dir.join("server.conf")
}

fn unix_socket(dir: &Path) -> PathBuf {
    dir.join("s")
}

fn log_file(dir: &Path) -> PathBuf {
    dir.join("server.log")
}

fn log_end(dir: &Path) -> String {
    let log = fs::read_to_string(log_file(dir)).unwrap_or_else(|error| format!("no log: {error}"));
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests;
