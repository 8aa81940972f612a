//! A folder that is removed with its owner.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::StatVfsMountFlags;

/// A file system in memory, if the system has one.
const IN_MEMORY: &str = "/dev/shm";

/// The space that must be free there: an append-only file of a long run takes some hundred
/// megabytes.
const IN_MEMORY_BYTES_MIN: u64 = 1 << 30;

/// A new, empty, private folder, removed on drop.
///
/// It stays behind if the test process is killed.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates the folder, in memory if there is room for it. On a machine whose disk is busy with a build, an `fsync` may
    /// take a minute, during which the host store blocks, and a Sentinel or a node of a Cluster sends nothing.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    pub fn new() -> Self {
        Self::below(&place())
    }

    /// Creates the folder below the system's temporary one: for measurements, which are about what users have.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    pub fn on_disk() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        loop {
            // Short, because it is also the start of a Unix socket's path (at most 107 bytes).
            let name = format!(
                "fairlock-{}-{}-{:x}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed),
                since_epoch.subsec_nanos(),
            );
            let path = parent.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Self { path },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create the folder {}: {error}", path.display()),
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Where the folders of tests are: in memory, if there is room.
pub fn place() -> PathBuf {
    let in_memory = Path::new(IN_MEMORY);
    if has_room(in_memory) { in_memory.to_owned() } else { std::env::temp_dir() }
}

/// Whether it has the space, and lets programs of tests run.
fn has_room(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|fs| {
        fs.f_bavail * fs.f_frsize >= IN_MEMORY_BYTES_MIN
            && !fs.f_flag.contains(StatVfsMountFlags::NOEXEC)
    })
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A folder left behind is untidy, but no error.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_differ_and_go_away_with_what_is_in_them() {
        let (one, two) = (TempDir::new(), TempDir::on_disk());
        assert_ne!(one.path(), two.path());
        std::fs::write(one.path().join("file"), "x").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
        assert!(two.path().is_dir());
    }
}
