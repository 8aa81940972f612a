//! Private PostgreSQL servers and poolers: each has its own directory and port, and is killed with its owner.

use std::ffi::OsString;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::server::port::Port;
use crate::server::spawn::spawn;
use crate::tempdir::TempDir;
use crate::wait;

/// The directory of `initdb` and `postgres`, if set.
const BINARIES: &str = "FAIRLOCK_TEST_POSTGRES";

/// Where Debian installs them, below a directory for each major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Where Debian, and others, install PgBouncer.
const PGBOUNCER: [&str; 3] =
    ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];

/// The user that runs the server where the tests run as root, because PostgreSQL refuses root.
const USER: &str = "postgres";

/// A running, private server on 127.0.0.1. Its superuser is `postgres`, without a password.
#[derive(Debug)]
pub struct Postgres {
    child: Child,
    port: Port,
    dir: TempDir,
}

impl Postgres {
    /// Starts a server that does not wait for its disk; `None`, with a notice, if PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start, with its log; or if it is not installed where `CI` is set.
    pub fn start() -> Option<Self> {
        Self::start_with(&["fsync=off"])
    }

    /// The same with these settings, for example `max_prepared_transactions=2`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[&str]) -> Option<Self> {
        Self::start_in(TempDir::new(), settings)
    }

    /// Starts a server that waits for its disk, for measurements.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_on_disk() -> Option<Self> {
        Self::start_in(TempDir::on_disk(), &[])
    }

    fn start_in(dir: TempDir, settings: &[&str]) -> Option<Self> {
        let Some(binaries) = binaries() else {
            crate::skip("PostgreSQL (Debian: apt-get install postgresql)");
            return None;
        };
        hand_over(&dir);
        let mut init = command(&binaries.join("initdb"));
        init.args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"]);
        run(init.arg(dir.path().join("data")));
        Some(Self::serve(&binaries, dir, settings))
    }

    /// Starts a replica of this server, which follows it without waiting for its disk.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn replica(&self) -> Self {
        let binaries = binaries().expect("this server runs");
        let dir = TempDir::new();
        hand_over(&dir);
        let mut copy = command(&binaries.join("pg_basebackup"));
        copy.args(["--no-sync", "--write-recovery-conf", "--checkpoint=fast", "-d"]);
        run(copy.arg(self.url("postgres", "")).arg("-D").arg(dir.path().join("data")));
        Self::serve(&binaries, dir, &["fsync=off"])
    }

    /// Runs a server on the data in `dir`.
    fn serve(binaries: &Path, dir: TempDir, settings: &[&str]) -> Self {
        let data = dir.path().join("data");
        let port = Port::reserve(false);
        let log = std::fs::File::create(dir.path().join("log")).expect("a file of our own");
        let mut server = command(&binaries.join("postgres"));
        server.arg("-D").arg(&data).arg("-p").arg(port.number.to_string());
        for setting in
            ["listen_addresses=127.0.0.1", "unix_socket_directories="].iter().chain(settings)
        {
            server.arg("-c").arg(setting);
        }
        let log_of_errors = log.try_clone().expect("a descriptor");
        server.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(log_of_errors);
        let child = spawn(server).expect("postgres starts");
        let server = Self { child, port, dir };
        wait::patiently("PostgreSQL accepts connections", || server.is_ready());
        server
    }

    /// Whether it has written that it accepts connections.
    fn is_ready(&self) -> bool {
        let said = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        assert!(!said.contains("FATAL"), "PostgreSQL does not start:\n{said}");
        // A replica adds "read-only" before the last word.
        said.contains("database system is ready to accept ")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The URL of a database for the drivers and psql.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgresql://{user}@127.0.0.1:{}/{database}", self.port())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An immediate shutdown, with all its processes.
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        wait::holds(Duration::from_secs(5), || matches!(self.child.try_wait(), Ok(Some(_))));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running PgBouncer with at most two connections to each database of a server.
#[derive(Debug)]
pub struct PgBouncer {
    child: Child,
    port: Port,
    _dir: TempDir,
}

impl PgBouncer {
    /// Starts one with this `pool_mode`; `None`, with a notice, if PgBouncer is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start; or if it is not installed where `CI` is set.
    pub fn start(server: &Postgres, pool_mode: &str) -> Option<Self> {
        let Some(program) = PGBOUNCER.iter().map(Path::new).find(|path| path.is_file()) else {
            crate::skip("PgBouncer (Debian: apt-get install pgbouncer)");
            return None;
        };
        let (dir, port) = (TempDir::new(), Port::reserve(false));
        hand_over(&dir);
        let file = dir.path().join("ini");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=app\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={}\n\
             unix_socket_dir=\nauth_type=any\npool_mode={pool_mode}\ndefault_pool_size=2\n",
            server.port(),
            port.number
        );
        std::fs::write(&file, settings).expect("a file of our own");
        let mut pooler = command(program);
        pooler.arg("-q").arg(file).stdin(Stdio::null());
        let child = spawn(pooler).expect("PgBouncer starts");
        let number = port.number;
        wait::patiently("PgBouncer accepts connections", || {
            TcpStream::connect(("127.0.0.1", number)).is_ok()
        });
        Some(Self { child, port, _dir: dir })
    }

    /// The URL of a database for the drivers. The server's role is `app`.
    pub fn url(&self, database: &str) -> String {
        format!("postgresql://app@127.0.0.1:{}/{database}", self.port.number)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives an empty directory to the user that runs the server.
fn hand_over(dir: &TempDir) {
    if let Some((user, group)) = other_user() {
        chown(dir.path(), Some(user), Some(group)).expect("root may");
    }
}

/// Runs a program that prepares a server.
fn run(command: &mut Command) {
    let done = command.current_dir("/").output().expect("it runs");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The directory of PostgreSQL's programs: the newest version that is installed.
fn binaries() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os(BINARIES) {
        return Some(directory.into());
    }
    let versions = std::fs::read_dir(DEBIAN).ok()?.flatten();
    let newest =
        versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max()?;
    Some(Path::new(DEBIAN).join(newest.to_string()).join("bin"))
}

/// The user and the group that run the server, if this process is root's.
fn other_user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("a list of users");
    let line = users.lines().find(|line| line.starts_with(&format!("{USER}:")));
    let fields: Vec<&str> = line.expect("the package makes the user").split(':').collect();
    Some((fields[2].parse().expect("a number"), fields[3].parse().expect("a number")))
}

/// A command that runs `program`, not as root, and that the kernel kills with this process.
fn command(program: &Path) -> Command {
    let mut words: Vec<OsString> = ["setpriv", "--pdeathsig", "KILL"].map(OsString::from).into();
    if geteuid().is_root() {
        words.extend(
            [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()]
                .map(OsString::from),
        );
    }
    words.extend([OsString::from("--"), program.into()]);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}
