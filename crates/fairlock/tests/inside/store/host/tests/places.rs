use super::fixture::*;
use super::worker::{self, Worker};
use crate::ErrorKind;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Opening must fail with `kind` and a message that contains `word`.
#[track_caller]
fn refused(path: &Path, kind: ErrorKind, word: &str) {
    let error = open(path).err().expect("it was opened");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

/// `None`, with a message, without the right to act as other users.
pub(super) fn as_root() -> Option<()> {
    if !rustix::process::geteuid().is_root() {
        fairlock_testkit::skip("root, to be other users");
        return None;
    }
    Some(())
}

#[test]
fn what_is_no_ordinary_file_is_refused() {
    let fixture = Fixture::new();
    let path = fixture.path();
    fs::create_dir(&path).unwrap();
    refused(&path, ErrorKind::Misuse, "folder");
    fs::remove_dir(&path).unwrap();
    symlink("elsewhere", &path).unwrap();
    refused(&path, ErrorKind::Misuse, "symbolic link");
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    refused(&path, ErrorKind::Misuse, "ordinary");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    refused(&path.join("locks"), ErrorKind::Misuse, "locks");
    fs::hard_link(&path, fixture.dir.path().join("twin")).unwrap();
    refused(&path, ErrorKind::Misuse, "hard links");
    refused(Path::new("/proc/locks/x"), ErrorKind::Misuse, "/proc/locks");
}

/// The folder may be reached through symbolic links: all its names lead to one file.
#[test]
fn a_folder_behind_a_link_is_the_same_folder() {
    let fixture = Fixture::new();
    let inner = fixture.dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    set_mode(&inner, 0o700);
    symlink(&inner, fixture.dir.path().join("link")).unwrap();
    let mut one = open(&fixture.dir.path().join("link/locks")).unwrap();
    let mut two = open(&inner.join("locks")).unwrap();
    assert_eq!(one.path(), two.path());
    take(&mut one, "job", 1);
    assert_eq!(state(&mut two, "job").hold.len(), 1);
}

#[test]
fn what_others_can_write_to_is_refused() {
    let fixture = Fixture::new();
    let folder = fixture.dir.path().join("folder");
    let path = folder.join("locks");
    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o700);
    drop(open(&path).unwrap());
    assert_eq!(mode(&path), 0o600);
    for (folder_mode, file_mode, word) in [
        (0o770, 0o600, "its group"),
        (0o777, 0o600, "everybody"),
        (0o1777, 0o600, "everybody"),
        (0o700, 0o660, "its group"),
        (0o700, 0o606, "everybody"),
    ] {
        set_mode(&folder, folder_mode);
        set_mode(&path, file_mode);
        refused(&path, ErrorKind::Denied, word);
    }
    // Others may have permission to read.
    set_mode(&folder, 0o755);
    set_mode(&path, 0o644);
    drop(open(&path).unwrap());
    // A folder above it in which anybody can rename entries.
    set_mode(fixture.dir.path(), 0o777);
    refused(&path, ErrorKind::Denied, "everybody");
    set_mode(fixture.dir.path(), 0o700);
}

/// Whatever the umask is, only this user can read the files.
#[test]
fn the_umask_decides_nothing() {
    for umask in ["000", "022", "777"] {
        let fixture = Fixture::new();
        let folder = fixture.dir.path().join("new");
        let path = folder.join("locks");
        fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o700);
        let script = format!("umask {umask} && exec \"$0\" \"$@\"");
        let mut command = worker::command_under("sh", &["-c", &script], "block", &path);
        let mut worker = Worker::run(&mut command);
        assert_eq!(worker.says().as_deref(), Some("blocks"));
        assert_eq!(mode(&folder.join("locks-clients")), 0o700, "umask {umask}");
        for file in ["locks", "locks-wal", "locks-shm", "locks-boot", "locks-users"] {
            assert_eq!(mode(&folder.join(file)), 0o600, "{file}, umask {umask}");
        }
    }
}

/// Starts a worker as another user.
pub(super) fn worker_as(order: &str, path: &Path, user: u32, group: u32) -> Worker {
    let script = "umask 077 && exec \"$0\" \"$@\"";
    let mut command = worker::command_under("sh", &["-c", script], order, path);
    command.current_dir("/").uid(user).gid(group);
    Worker::run(&mut command)
}

const GROUP: u32 = 64_201;

/// Other users are kept out, unless the folder belongs to their group and all of them use
/// `shared_with_group`.
#[test]
fn other_users_are_kept_out_unless_a_group_shares_the_file() {
    let Some(()) = as_root() else { return };
    let fixture = Fixture::new();
    // The parent folder is open to others.
    set_mode(fixture.dir.path(), 0o755);
    let folder = fixture.dir.path().join("shared");
    let path = folder.join("locks");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(64_001), Some(GROUP)).unwrap();

    // A user's folder is refused to everybody else, even root.
    set_mode(&folder, 0o755);
    refused(&path, ErrorKind::Denied, "belongs to user 64001");
    let says = |order: &str, user, group| worker_as(order, &path, user, group).says().unwrap();
    assert!(says("open", 64_002, GROUP).contains("belongs to user 64001"));

    // A group's folder must be writable by the group, and setgid.
    for wrong in [0o700, 0o750, 0o770, 0o2750] {
        set_mode(&folder, wrong);
        let said = says("shared", 64_001, GROUP);
        assert!(said.contains("Denied") && said.contains("2770"), "{wrong:o}: {said}");
    }
    set_mode(&folder, 0o2770);
    let mut one = worker_as("shared", &path, 64_001, GROUP);
    assert_eq!(one.says().as_deref(), Some("opened"));
    let mut two = worker_as("shared", &path, 64_002, GROUP);
    assert_eq!(two.says().as_deref(), Some("opened"));
    for file in ["locks", "locks-wal", "locks-shm", "locks-boot", "locks-users"] {
        let path = folder.join(file);
        let group = fs::metadata(&path).unwrap().gid();
        assert_eq!((mode(&path), group), (0o660, GROUP), "{file}");
    }
    // Whoever leaves last, the others can open the file again.
    drop(one);
    two.tell();
    two.child.wait().unwrap();
    assert_eq!(says("shared", 64_003, GROUP), "opened");
    assert_eq!(says("shared", 64_001, GROUP), "opened");
    // Users outside the group cannot, nor can members without `shared_with_group`.
    let said = says("shared", 64_004, 64_004);
    assert!(said.contains("Denied"), "{said}");
    let said = says("open", 64_001, GROUP);
    assert!(said.contains("Denied") && said.contains("shared=group"), "{said}");
}

/// A folder of user 64001, and the path of a store in it.
fn place_of_another(fixture: &Fixture) -> (PathBuf, PathBuf) {
    set_mode(fixture.dir.path(), 0o755);
    let folder = fixture.dir.path().join("own");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(64_001), Some(64_001)).unwrap();
    let path = folder.join("locks");
    (folder, path)
}

/// Where this user may not write, nothing can be locked, and the error says so.
#[test]
fn a_read_only_place_is_refused() {
    let Some(()) = as_root() else { return };
    let fixture = Fixture::new();
    let (folder, path) = place_of_another(&fixture);
    let says = |order: &str| worker_as(order, &path, 64_001, 64_001).says().unwrap();
    assert_eq!(says("open"), "opened");
    for (folder_mode, file_mode) in [(0o500, 0o600), (0o700, 0o400), (0o000, 0o600)] {
        set_mode(&folder, folder_mode);
        set_mode(&path, file_mode);
        let said = says("open");
        assert!(said.starts_with("Denied"), "{folder_mode:o} {file_mode:o}: {said}");
    }
}

/// D64: SQLite says only that it cannot open "the database file".
#[test]
fn a_file_beside_the_store_that_may_not_be_used_is_named() {
    let Some(()) = as_root() else { return };
    let fixture = Fixture::new();
    let (folder, path) = place_of_another(&fixture);
    // While it has it open, the log stays.
    let mut user = worker_as("block", &path, 64_001, 64_001);
    assert_eq!(user.says().as_deref(), Some("blocks"));
    let log = folder.join("locks-wal");
    set_mode(&log, 0o000);
    let said = worker_as("open", &path, 64_001, 64_001).says().unwrap();
    let named = format!("{}: this program may not", log.display());
    assert!(said.starts_with("Denied") && said.contains(&named), "{said}");
    assert!(said.contains("chmod u+rw"), "{said}");
    user.tell();
}

/// D64: a file that was cut off is named, with what to do.
#[test]
fn a_file_that_was_cut_off_is_named_without_sqlites_words() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    drop(file);
    let whole = fs::metadata(fixture.path()).unwrap().len();
    fs::File::options().write(true).open(fixture.path()).unwrap().set_len(whole / 2).unwrap();
    let Err(error) = open(&fixture.path()) else { panic!("it was opened") };
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{said}");
    assert!(said.contains(fixture.path().to_str().unwrap()) && said.contains("Move it"), "{said}");
    assert!(!said.contains("malformed") && !said.contains("disk image"), "{said}");
}

/// D52: a misspelt path made a folder and a store of its own, where a lock excludes nobody.
#[test]
fn a_missing_folder_is_refused_and_not_made() {
    let fixture = Fixture::new();
    let folder = fixture.dir.path().join("misspelt");
    let advice = format!("mkdir -p -m 700 {}", folder.display());
    refused(&folder.join("locks"), ErrorKind::Misuse, &advice);
    let deep = folder.join("deep");
    refused(&deep.join("locks"), ErrorKind::Misuse, &format!("mkdir -p -m 700 {}", deep.display()));
    assert_eq!(fs::read_dir(fixture.dir.path()).unwrap().count(), 0);
    // A link to nowhere is no folder.
    symlink("nowhere", fixture.dir.path().join("link")).unwrap();
    refused(
        &fixture.dir.path().join("link/locks"),
        ErrorKind::Misuse,
        "there is no such directory",
    );
}

/// The folder of the clients, which nobody has named, cannot be made there.
#[test]
fn a_file_system_of_the_kernel_is_refused() {
    let Some(()) = as_root() else { return };
    refused(Path::new("/proc/locks"), ErrorKind::Misuse, "name a file on a local disk");
}
