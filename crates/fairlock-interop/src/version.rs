//! The Redisson versions for which `scripts/interop-jars` builds the driver.

use std::env;
use std::fmt;
use std::path::PathBuf;

use fairlock_testkit::server::workspace_root;

/// A version of Redisson.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// The newest.
    V4_7,
    /// The last of 3.x.
    V3_52,
    /// Older than fenced locks, unlock latches and the fair-wait setting. Its waiters sleep for as
    /// long as their turn is away, not for the TTL of the lock.
    V3_16,
}

impl Version {
    /// All of them, the newest first.
    pub const ALL: [Self; 3] = [Self::V4_7, Self::V3_52, Self::V3_16];

    /// Its Maven version.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4_7 => "4.7.0",
            Self::V3_52 => "3.52.0",
            Self::V3_16 => "3.16.8",
        }
    }

    /// The version with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// The version in `FAIRLOCK_INTEROP_REDISSON`, or else the newest.
    ///
    /// # Panics
    ///
    /// If the variable names an unknown version.
    pub fn of_environment() -> Self {
        match env::var("FAIRLOCK_INTEROP_REDISSON") {
            Ok(name) if !name.is_empty() => Self::named(&name)
                .unwrap_or_else(|| panic!("no Redisson {name} in FAIRLOCK_INTEROP_REDISSON")),
            _ => Self::V4_7,
        }
    }

    /// Whether it has fenced locks.
    pub fn has_fenced(self) -> bool {
        self != Self::V3_16
    }

    /// Whether the setting `fairLockWaitTimeout` exists (since 3.46).
    pub fn has_fair_wait(self) -> bool {
        self != Self::V3_16
    }

    /// Whether its fair waiters ask again when the TTL of the lock that they saw ends, and in a
    /// tight loop while it is free and not their turn. Since 3.32; before, each sleeps for as long
    /// as its turn was away, which is minutes.
    pub fn looks_again(self) -> bool {
        self != Self::V3_16
    }

    /// Whether it sends messages to the shard where the server can do that. Since 3.22.
    pub fn has_sharded_messages(self) -> bool {
        self != Self::V3_16
    }

    /// Whether its requests follow a slot that has moved. 3.16.8 sends a lock's script in a batch:
    /// when the former master answers `MOVED`, `lock()` returns, and no node has a hold.
    pub fn follows_slots(self) -> bool {
        self != Self::V3_16
    }

    /// Whether it has locks that cannot be re-entered.
    pub fn has_non_reentrant(self) -> bool {
        self == Self::V4_7
    }

    /// The folder with jars and driver. Without it, or without `java`, the running test is skipped
    /// with a message, and this returns `None`.
    ///
    /// # Panics
    ///
    /// If there is none and the environment variable `CI` is set.
    pub fn require(self) -> Option<PathBuf> {
        let folder = workspace_root().join(".servers/interop").join(self.name());
        let is_there = folder.join("jars").is_dir() && folder.join("classes").is_dir();
        if !is_there || !has_java() {
            fairlock_testkit::skip(&format!(
                "java and Redisson {} (run scripts/interop-jars {0})",
                self.name()
            ));
            return None;
        }
        Some(folder)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn has_java() -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| folder.join("java").is_file())
}
