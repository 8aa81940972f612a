//! Who else can read or change a file with a password.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

/// Returns the problem with the mode of an open file, if any. Links were followed when it was
/// opened.
pub(crate) fn of(file: &File) -> Option<String> {
    // If the metadata cannot be read, nothing is reported.
    let metadata = file.metadata().ok()?;
    // A pipe ends with its creator, and a device has an owner of its own kind.
    if !metadata.is_file() {
        return None;
    }
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let who = open_to(metadata.mode(), is_ours)?;
    if is_handed_in(file) {
        return None;
    }
    let mode = metadata.mode() & 0o777;
    Some(format!(
        "can be read or changed by {who} (mode {mode:03o}): `chmod 600`, or 640 of root's and your group"
    ))
}

/// Returns to whom else a file is open. If the file is not ours, its group does not count, because
/// we can read it only through that group.
fn open_to(mode: u32, is_ours: bool) -> Option<&'static str> {
    if mode & 0o006 != 0 {
        Some("every user of this host")
    } else if is_ours && mode & 0o060 != 0 {
        Some("its group")
    } else {
        None
    }
}

/// Returns whether the file is on a read-only file system in memory. Orchestrators and init systems
/// pass secrets in that way, mostly with the mode 0644 or 0444 and owned by root. Access to the
/// mount decides who sees the file, and nobody inside can change the mode.
#[cfg(target_os = "linux")]
fn is_handed_in(file: &File) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let in_memory = rustix::fs::fstatfs(file).is_ok_and(|fs| {
        #[allow(clippy::unnecessary_cast, reason = "its width differs between machines")]
        let kind = fs.f_type as i64 & 0xffff_ffff;
        kind == TMPFS || kind == RAMFS
    });
    let read_only = || {
        rustix::fs::fstatvfs(file)
            .is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    };
    in_memory && read_only()
}

#[cfg(not(target_os = "linux"))]
fn is_handed_in(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_judged() {
        for (mode, is_ours, who) in [
            (0o100_600, true, None),
            (0o100_400, false, None),
            (0o100_640, true, Some("its group")),
            (0o100_660, true, Some("its group")),
            // Owned by root, with our group.
            (0o100_640, false, None),
            (0o100_644, true, Some("every user of this host")),
            (0o100_444, false, Some("every user of this host")),
            (0o100_602, false, Some("every user of this host")),
            // Others can only execute it.
            (0o100_711, true, None),
        ] {
            assert_eq!(open_to(mode, is_ours), who, "{mode:o} {is_ours}");
        }
    }
}
