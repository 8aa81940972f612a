//! A small disk (a tmpfs) for one test, which can fill it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::wait;

/// How long the space of a removed file may stay in use: far longer than a start of a program takes.
const FREE_WITHIN: Duration = Duration::from_secs(30);

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

    /// Removes the file and waits until its space is free, if nobody else writes there. A child that another test of
    /// this process starts at the same time has the file open until its program begins: once the disk was found full
    /// after the removal.
    ///
    /// # Panics
    ///
    /// If there is no such file, or its space does not become free.
    pub fn free(&self, filler: &Path) {
        let length = fs::metadata(filler).expect("the file that fills the disk").len();
        fs::remove_file(filler).expect("a file of our own");
        wait::until("the space is free", FREE_WITHIN, || {
            let disk = rustix::fs::statvfs(&self.0).expect("a disk of our own");
            disk.f_bavail * disk.f_frsize >= length
        });
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server may still have open files there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
