//! Checks whether a path can be trusted with locks, and creates the file there.
//!
//! Nothing here opens an existing file: closing it again would drop the locks that SQLite, or
//! another user of SQLite in this process, has on it.

use super::file::OpenOptions;
use super::mounts;
use crate::base::error::{Error, ErrorKind};
use rustix::fs::{Access, AtFlags, CWD, Stat, accessat};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The endings of the files that lie beside the store's file and are found by its name.
const BESIDE: [&str; 4] = ["-wal", "-shm", "-boot", "-users"];

/// Where the file is, or will be, with the folder's symbolic links resolved: SQLite finds the files
/// beside it by name, so all processes must use the same name. The folder must exist. Without
/// [`OpenOptions::create`] so must the file.
pub(super) fn prepare(path: &Path, options: &OpenOptions) -> Result<PathBuf, Error> {
    let (folder, name) = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if path.is_absolute() => (folder, name),
        _ => {
            return Err(misuse(path, "the path of the host store must be absolute, and of a file"));
        }
    };
    if !options.create && (is_missing(path) || is_missing(folder)) {
        return Err(no_store(path));
    }
    // A misspelt path must not become a store of its own, where a lock excludes nobody.
    if fs::metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(no_folder(folder, options));
    }
    let folder = fs::canonicalize(folder).map_err(|error| io_error(folder, &error))?;
    check_folder(&folder, options)?;
    check_file_system(&folder)?;
    // The log is created beside the file, and removed by the last user that leaves.
    check_access(&folder, Access::WRITE_OK | Access::EXEC_OK)?;
    let path = folder.join(name);
    if let Some(found) = metadata(&path)? {
        check_file(&path, &found, options)?;
        check_access(&path, Access::READ_OK | Access::WRITE_OK)?;
    }
    let beside = BESIDE.map(|ending| named(&path, ending));
    for path in &beside {
        if let Some(found) = metadata(path)? {
            check_beside(path, &found, options)?;
        }
    }
    mounts::check(&folder, [path.clone(), named(&path, "-clients")].iter().chain(&beside))?;
    Ok(path)
}

/// What has the name, if anything does.
fn metadata(path: &Path) -> Result<Option<Metadata>, Error> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(path, &error)),
    }
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The path of the file whose name is that of `path` plus `ending`.
pub(super) fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Checks permissions, and also finds file systems that are mounted read-only.
fn check_access(path: &Path, needed: Access) -> Result<(), Error> {
    let flags = AtFlags::EACCESS;
    accessat(CWD, path, needed, flags).map_err(|error| io_error(path, &error.into()))
}

/// Opens a file beside the store's; creates it with the same permissions if it is missing.
pub(super) fn beside(path: &Path, ending: &str, options: &OpenOptions) -> Result<File, Error> {
    let path = named(path, ending);
    let mut open = File::options();
    open.read(true).write(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    // Others may do this at the same time: the one that comes second opens it.
    let made = open.clone().create_new(true).mode(options.file_mode()).open(&path);
    match made {
        Ok(file) => {
            give_to_group(&path, &file, options).map_err(|error| io_error(&path, &error))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open.open(&path).map_err(|error| io_error(&path, &error))
        }
        Err(error) => Err(io_error(&path, &error)),
    }
}

/// Creates the file if it is missing.
pub(super) fn make_file(path: &Path, options: &OpenOptions) -> Result<(), Error> {
    if !options.create && is_missing(path) {
        return Err(no_store(path));
    }
    let made = File::options().write(true).create_new(true).mode(options.file_mode()).open(path);
    match made {
        Ok(file) => give_to_group(path, &file, options).map_err(|error| io_error(path, &error)),
        // Another process was faster. It may not have set the permissions yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_error(path, &error)),
    }
}

fn give_to_group(path: &Path, file: &File, options: &OpenOptions) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(options.file_mode()))?;
    if options.shared_with_group
        && let Some(folder) = path.parent()
    {
        let group = fs::metadata(folder)?.gid();
        if file.metadata()?.gid() != group {
            fchown(file, None, Some(group))?;
        }
    }
    Ok(())
}

fn check_folder(folder: &Path, options: &OpenOptions) -> Result<(), Error> {
    let found = fs::metadata(folder).map_err(|error| io_error(folder, &error))?;
    if !found.is_dir() {
        return Err(misuse(folder, "this is no folder"));
    }
    for above in folder.ancestors().skip(1) {
        let mode = fs::metadata(above).map_err(|error| io_error(above, &error))?.mode();
        if mode & 0o002 != 0 && mode & 0o1000 == 0 {
            return Err(denied(
                above,
                "everybody can write to this folder, and so replace the one in it",
            ));
        }
    }
    if found.mode() & 0o002 != 0 {
        return Err(denied(
            folder,
            "everybody can write to this folder; keep the file in one of your own (mode 700)",
        ));
    }
    if options.shared_with_group {
        return check_group(folder, &found, 0o2070, "the folder", "chmod 2770");
    }
    check_owner(folder, &found, "the folder")
}

/// Checks that a file beside the store's is safe from others. It may not have its final permissions
/// yet, so only excessive ones count.
pub(super) fn check_beside(
    path: &Path,
    found: &Metadata,
    options: &OpenOptions,
) -> Result<(), Error> {
    if found.file_type().is_symlink() {
        return Err(misuse(path, "this is a symbolic link; remove it"));
    }
    if found.mode() & 0o002 != 0 {
        let mode = if options.shared_with_group { "o-w" } else { "go-w" };
        return Err(denied(path, &format!("everybody can write to this; chmod {mode}")));
    }
    if options.shared_with_group {
        return Ok(());
    }
    check_owner(path, found, "this part of the store")
}

fn check_file(path: &Path, found: &Metadata, options: &OpenOptions) -> Result<(), Error> {
    let kind = found.file_type();
    if kind.is_symlink() {
        return Err(misuse(path, "this is a symbolic link; name the file itself"));
    }
    if kind.is_dir() {
        return Err(misuse(path, "this is a folder; the host store is a file"));
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        return Err(misuse(path, "this is no ordinary file"));
    }
    if found.nlink() > 1 {
        // Its log is found by name: two names would mean two logs.
        return Err(misuse(
            path,
            "the file has more than one name (hard links); remove the others",
        ));
    }
    if found.mode() & 0o002 != 0 {
        return Err(denied(path, "everybody can write to the file; chmod 600"));
    }
    if options.shared_with_group {
        return check_group(path, found, 0o060, "the file", "chmod 660");
    }
    check_owner(path, found, "the file")
}

fn check_owner(path: &Path, found: &Metadata, what: &str) -> Result<(), Error> {
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(denied(
            path,
            &format!(
                "{what} belongs to user {}, and this program runs as {user}; for a group of users \
                 there is `?shared=group`",
                found.uid()
            ),
        ));
    }
    if found.mode() & 0o020 != 0 {
        return Err(denied(
            path,
            &format!(
                "{what} can be written to by its group; chmod g-w, or `?shared=group` if that is meant"
            ),
        ));
    }
    Ok(())
}

/// `needed`: the bits without which members of the group get in each other's way.
fn check_group(
    path: &Path,
    found: &Metadata,
    needed: u32,
    what: &str,
    remedy: &str,
) -> Result<(), Error> {
    let group = found.gid();
    let ours = rustix::process::geteuid().is_root()
        || rustix::process::getegid().as_raw() == group
        || rustix::process::getgroups()
            .is_ok_and(|groups| groups.iter().any(|member| member.as_raw() == group));
    if !ours {
        return Err(denied(
            path,
            &format!("{what} belongs to group {group}, of which this program is no member"),
        ));
    }
    if found.mode() & needed != needed {
        return Err(denied(
            path,
            &format!(
                "{what} is not open to its group (mode {:o}); {remedy}",
                found.mode() & 0o7777
            ),
        ));
    }
    Ok(())
}

/// File systems on which file locks or shared memory do not reach all users of the file.
const ELSEWHERE: [(u32, &str); 22] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0xaad7_aaea, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0xbeef_dead, "SNFS"),
    (0x786f_4256, "a VirtualBox shared folder"),
    (0xbacb_acbc, "a VMware shared folder"),
    (0x7c7c_6673, "a Parallels shared folder"),
    (0x5346_4846, "a Windows folder"),
];

const FUSE: u32 = 0x6573_5546;

/// FUSE file systems that are certainly on this host.
const LOCAL_FUSE: [&str; 2] = ["fuseblk", "fuse.fuse-overlayfs"];

/// Whether the name leads to the open file itself, not by a link: nobody has removed or replaced it
/// meanwhile.
pub(super) fn leads_to(name: &Path, open: impl AsFd) -> bool {
    let id = |at: Stat| (at.st_dev, at.st_ino);
    let named = rustix::fs::lstat(name).ok().map(id);
    named.is_some() && named == rustix::fs::fstat(open).ok().map(id)
}

fn check_file_system(folder: &Path) -> Result<(), Error> {
    let found = rustix::fs::statfs(folder).map_err(|error| io_error(folder, &error.into()))?;
    let device = fs::metadata(folder).map_err(|error| io_error(folder, &error))?.dev();
    let mounts = || fs::read("/proc/self/mountinfo").unwrap_or_default();
    let Some(name) = elsewhere(found.f_type as u32, || mounted_as(&mounts(), device)) else {
        return Ok(());
    };
    Err(misuse(
        folder,
        &format!(
            "the file system is {name}, which other hosts may use too: file locks and shared memory \
             do not hold there. Use a folder on a local disk, or a server, `redis://`"
        ),
    ))
}

/// The name of the file system, if other hosts may use it, too.
fn elsewhere(magic: u32, mounted_as: impl FnOnce() -> Option<String>) -> Option<String> {
    if magic == FUSE {
        let kind = mounted_as().unwrap_or_else(|| "FUSE".to_owned());
        return (!LOCAL_FUSE.contains(&kind.as_str())).then_some(kind);
    }
    let known = ELSEWHERE.iter().find(|(number, _)| *number == magic)?;
    Some(known.1.to_owned())
}

/// The type of the file system `device`, by its latest mount.
fn mounted_as(mountinfo: &[u8], device: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let text = String::from_utf8_lossy(mountinfo);
    text.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (before.split(' ').nth(2)? == number).then(|| after.split(' ').next().map(str::to_owned))?
    })
}

#[cold]
pub(super) fn io_error(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::NotADirectory => ErrorKind::Misuse,
        io::ErrorKind::StorageFull => return Error::new(ErrorKind::Unavailable, full(path)),
        _ => ErrorKind::Unavailable,
    };
    // O_NOFOLLOW fails like this.
    let hint = if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        " (a symbolic link)"
    } else {
        ""
    };
    Error::new(kind, format!("{}: {error}{hint}", path.display()))
}

/// No space for `path`.
pub(super) fn full(path: &Path) -> String {
    format!("{}: the disk is full; locks cannot change until there is space", path.display())
}

#[cold]
fn no_folder(folder: &Path, options: &OpenOptions) -> Error {
    let mode = if options.shared_with_group { "2770" } else { "700" };
    let at = folder.display();
    misuse(
        folder,
        &format!(
            "there is no such directory, so the store's file was not made; correct the path, or make it: \
             `mkdir -p -m {mode} {at}`"
        ),
    )
}

#[cold]
fn no_store(path: &Path) -> Error {
    let message = format!(
        "there is no store at {}, so no lock of it was ever used; is that the right place?",
        path.display()
    );
    Error::new(ErrorKind::Unavailable, message)
}

pub(super) fn misuse(path: &Path, what: &str) -> Error {
    Error::misuse(format!("{}: {what}", path.display()))
}

fn denied(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_hosts_are_known() {
        let never = || unreachable!("only FUSE is asked for");
        assert_eq!(elsewhere(0x6969, never).as_deref(), Some("NFS"));
        assert_eq!(elsewhere(0xff53_4d42, never).as_deref(), Some("CIFS"));
        assert_eq!(elsewhere(0x0102_1997, never).as_deref(), Some("9p"));
        // ext4, tmpfs, btrfs, XFS, overlayfs, ZFS.
        for local in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342, 0x794c_7630, 0x2fc1_2fc1] {
            assert_eq!(elsewhere(local, never), None, "{local:x}");
        }
        let fuse = |kind: Option<&str>| elsewhere(FUSE, || kind.map(str::to_owned));
        assert_eq!(fuse(Some("fuse.sshfs")).as_deref(), Some("fuse.sshfs"));
        assert_eq!(fuse(Some("virtiofs")).as_deref(), Some("virtiofs"));
        assert_eq!(fuse(None).as_deref(), Some("FUSE"));
        assert_eq!(fuse(Some("fuseblk")), None);
    }

    #[test]
    fn the_type_of_a_mount_is_found() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 0:50 / /mnt/a\\040b rw,nosuid shared:5 - fuse.sshfs host:/x rw\n\
            41 22 0:51 / /data rw - fuseblk /dev/sdb1 rw\nbroken line\n";
        let device = |minor| rustix::fs::makedev(0, minor);
        assert_eq!(mounted_as(mounts, device(50)).as_deref(), Some("fuse.sshfs"));
        assert_eq!(mounted_as(mounts, device(51)).as_deref(), Some("fuseblk"));
        assert_eq!(mounted_as(mounts, rustix::fs::makedev(8, 1)).as_deref(), Some("ext4"));
        assert_eq!(mounted_as(mounts, device(52)), None);
    }
}
