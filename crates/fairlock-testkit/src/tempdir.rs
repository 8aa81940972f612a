//! A folder that is removed with its owner.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A new, empty, private folder below the system's temporary one, removed on drop.
///
/// A test process that is killed leaves it behind.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates the folder.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    pub fn new() -> Self {
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
            let path = std::env::temp_dir().join(name);
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

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A folder that stays behind is untidy, not wrong.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_differ_and_go_away_with_what_is_in_them() {
        let (one, two) = (TempDir::new(), TempDir::new());
        assert_ne!(one.path(), two.path());
        std::fs::write(one.path().join("file"), "x").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
        assert!(two.path().is_dir());
    }
}
