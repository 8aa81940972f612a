//! Whether the file, or one of those beside it, is a mount of its own.
//!
//! A container may be given the file alone (`-v /host/locks.db:/locks.db`, a `subPath`). That is
//! the same file, but the files that are found beside it by name are not: the log, its index, the
//! files that show who is alive. Each side would have its own, and its own holders. Only the mounts
//! reveal this.

use super::place;
use crate::base::error::Error;
use std::path::{Path, PathBuf};

/// Refuses names that are not on the folder's own mount.
pub(super) fn check<'a>(
    folder: &Path,
    names: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Error> {
    let around = platform::mount_of(folder);
    for name in names {
        if platform::is_apart(around, name) {
            return Err(place::misuse(
                name,
                "this is mounted by itself (a bind mount, a `subPath`), so that others who use the store would \
                 have another log beside it, and other locks; mount the folder that it is in instead",
            ));
        }
    }
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use super::is_mounted_at;
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    use std::path::Path;

    /// The id of the mount, if the kernel reports it (since Linux 5.8).
    pub(super) fn mount_of(path: &Path) -> Option<u64> {
        let at = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID).ok()?;
        let told = at.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        told.then_some(at.stx_mnt_id)
    }

    /// Whether `path` exists and is on another mount than its folder, which is on `around`.
    pub(super) fn is_apart(around: Option<u64>, path: &Path) -> bool {
        if around.is_some() {
            return mount_of(path).is_some_and(|mount| Some(mount) != around);
        }
        std::fs::read("/proc/self/mountinfo").is_ok_and(|mounts| is_mounted_at(&mounts, path))
    }
}

/// Host stores can only be opened on Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod platform {
    use std::path::Path;

    pub(super) fn mount_of(_: &Path) -> Option<u64> {
        None
    }

    pub(super) fn is_apart(_: Option<u64>, _: &Path) -> bool {
        false
    }
}

/// Whether something is mounted on `path` itself.
#[cfg(any(test, target_os = "linux", target_os = "android"))]
fn is_mounted_at(mountinfo: &[u8], path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let point = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(unescaped);
    let path = path.as_os_str().as_bytes();
    mountinfo.split(|byte| *byte == b'\n').any(|line| point(line).as_deref() == Some(path))
}

/// Spaces, tabs, line ends and backslashes are written as `\` and three octal digits.
#[cfg(any(test, target_os = "linux", target_os = "android"))]
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For kernels that do not report the id of a mount.
    #[test]
    fn what_is_mounted_is_found_in_the_list_of_mounts() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 8:1 /h/locks.db /c/my\\040locks.db rw shared:5 - ext4 /dev/sda1 rw\nbroken line\n";
        let is = |path: &str| is_mounted_at(mounts, Path::new(path));
        assert!(is("/c/my locks.db"));
        assert!(!is("/c") && !is("/c/my") && !is("/h/locks.db") && !is("line"));
        if let Ok(own) = std::fs::read("/proc/self/mountinfo") {
            assert!(is_mounted_at(&own, Path::new("/proc")));
        }
    }
}
