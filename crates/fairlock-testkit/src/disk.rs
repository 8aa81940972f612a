//! A small disk (a tmpfs) for one test, which can fill it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk mounted on a folder; unmounted when dropped.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one of `size` (`"1m"`) on an existing folder; `None`, with a notice, without the
    /// right to mount.
    ///
    /// # Panics
    ///
    /// Without that right where `CI` is set.
    pub fn mount(at: &Path, size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            crate::skip("root, for a small disk");
            return None;
        }
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", &options, "fairlock"]).arg(at).status();
        if !done.is_ok_and(|status| status.success()) {
            crate::skip("the right to mount (a tmpfs)");
            return None;
        }
        Some(Self(at.to_owned()))
    }

    /// Makes it read-only.
    ///
    /// # Panics
    ///
    /// If it cannot be remounted.
    pub fn read_only(&self) {
        let mut mount = Command::new("mount");
        let done = mount.args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "no remount");
    }

    /// Leaves no free byte on it; removing the returned file frees the space.
    ///
    /// # Panics
    ///
    /// If it cannot be written to at all.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).expect("a file on a disk of our own");
        while file.write_all(&[7; 512]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server may still have open files there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
