//! How the kernel, or somebody with a shell, can make two processes see different files.
//!
//! The file, its log, the log's index and the files of live clients are found by name. Wherever two
//! processes could find different ones under one path, or the same file under two, one of them has
//! to be refused: otherwise there are two holders.

use super::super::{HostFile, OpenOptions};
use super::fixture::*;
use super::worker::{self, Worker};
use crate::ErrorKind;
use fairlock_core::Body;
use fairlock_testkit::disk::Disk;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A process that carries out `order` on `path`, after `script` has set up its mounts; `None`, with
/// a message, where namespaces are not allowed.
fn in_a_namespace(script: &str, order: &str, path: &Path) -> Option<Worker> {
    let probe = Command::new("unshare").args(["--mount", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        fairlock_testkit::skip("the right to make a mount namespace (unshare --mount)");
        return None;
    }
    let script = format!("set -e; {script}; exec \"$0\" \"$@\"");
    let args = ["--mount", "sh", "-c", &script];
    Some(Worker::run(&mut worker::command_under("unshare", &args, order, path)))
}

/// D02: a container with the file alone (`-v /host/locks:/c/locks`) found a log, index and clients
/// of its own beside it: two holders, and then a damaged file. The same for each part. Now this is
/// refused before any file is created.
#[test]
fn d02_what_is_mounted_by_itself_is_refused() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    for ending in ["", "-wal", "-shm", "-boot", "-users", "-clients"] {
        let inside = fixture.dir.path().join(format!("inside{ending}"));
        fs::create_dir(&inside).unwrap();
        let (outer, inner) = (named(&fixture.path(), ending), named(&inside.join("locks"), ending));
        if ending == "-clients" {
            fs::create_dir(&inner).unwrap();
        } else {
            fs::write(&inner, "").unwrap();
        }
        let script = format!("mount --bind {} {}", outer.display(), inner.display());
        let path = inside.join("locks");
        let Some(mut worker) = in_a_namespace(&script, "held", &path) else { return };
        let said = worker.says().unwrap();
        assert!(said.contains("Misuse") && said.contains("mount the folder"), "{ending}: {said}");
        assert!(said.contains(inner.to_str().unwrap()), "{ending}: {said}");
        let made = fs::read_dir(&inside).unwrap().count();
        assert_eq!(made, 1, "{ending}: something was made beside it");
    }
    assert_eq!(state(&mut file, "job").hold.len(), 1);
}

/// The folder, by contrast, is the same one wherever it is mounted, also for a reader at another
/// path.
#[test]
fn d02_a_folder_that_is_mounted_elsewhere_is_the_same_folder() {
    let fixture = Fixture::new();
    let folder = fixture.dir.path().join("outside");
    fs::create_dir(&folder).unwrap();
    let mut file = open(&folder.join("locks")).unwrap();
    take(&mut file, "job", 1);
    let inside = fixture.dir.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let script = format!("mount --bind {} {}", folder.display(), inside.display());
    let Some(mut worker) = in_a_namespace(&script, "held", &inside.join("locks")) else { return };
    assert_eq!(worker.says().as_deref(), Some("holds: 1"));
}

/// What happens to one of the files.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Removed,
    Emptied,
    Copied,
    MovedAway,
}

fn strike(blow: Blow, part: &Path, aside: &Path) {
    match blow {
        Blow::Removed => fs::remove_file(part).unwrap(),
        Blow::Emptied => {
            fs::remove_file(part).unwrap();
            fs::write(part, "").unwrap();
        }
        Blow::Copied => {
            fs::copy(part, aside).unwrap();
            fs::rename(aside, part).unwrap();
        }
        Blow::MovedAway => fs::rename(part, aside).unwrap(),
    }
}

fn says(order: &str, path: &Path) -> String {
    Worker::start(order, path).says().unwrap()
}

/// What another process is told, and this one: within this process SQLite would join the old index with
/// the new log.
fn refusals(path: &Path) -> [String; 2] {
    [says("refused", path), open_hastily(path).err().expect("it was opened").to_string()]
}

/// D03: a cleaner of temporary files removed the log and its index, which look stale. Nobody
/// noticed: new users created new ones, there were two holders, and both ended with 0. Now a user
/// of the old files must end before it writes anything more, and until it has, every new user is
/// refused and creates nothing.
#[test]
fn d03_a_log_that_is_removed_or_replaced_ends_its_users() {
    for (ending, blow) in [
        ("-wal", Blow::Removed),
        ("-wal", Blow::Emptied),
        ("-wal", Blow::Copied),
        ("-wal", Blow::MovedAway),
        ("-shm", Blow::Removed),
        ("-shm", Blow::Copied),
    ] {
        let what = format!("{ending} {blow:?}");
        let fixture = Fixture::new();
        let path = fixture.path();
        let mut file = fixture.open();
        let token = take(&mut file, "job", 1);
        assert_eq!(says("held", &path), "holds: 1", "{what}");
        let (part, aside) = (named(&path, ending), fixture.dir.path().join("aside"));
        strike(blow, &part, &aside);
        for said in refusals(&path) {
            assert!(
                said.contains("removed or replaced") && said.contains(ending),
                "{what}: {said}"
            );
        }
        let gone = matches!(blow, Blow::Removed | Blow::MovedAway);
        assert_eq!(part.exists(), !gone, "{what}: something was made");
        let written = fs::read(&path).unwrap();
        for op in [release(1, token), inspect()] {
            let error = apply(&mut file, "job", &op).unwrap_err();
            assert_eq!(error.error.kind(), ErrorKind::Unavailable, "{what}");
            assert!(!error.passing && !error.doubt, "{what}: {error:?}");
            let said = error.error.to_string();
            assert!(
                said.contains("removed or replaced") && said.contains(ending),
                "{what}: {said}"
            );
        }
        assert!(fs::read(&path).unwrap() == written, "{what}: something was written");
        if matches!(blow, Blow::MovedAway) {
            // As if nothing had happened.
            fs::rename(&aside, &part).unwrap();
            assert_eq!(body(&mut file, "job", &release(1, token)), Body::Released);
            assert_eq!(says("held", &path), "holds: 0");
            continue;
        }
        drop(file);
        // SQLite had the right files to the end, so nothing was lost.
        assert_eq!(says("held", &path), "holds: 1", "{what}");
        let said: String =
            fixture.open().db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok", "{what}");
    }
}

/// The last user had written the log back and removed it, and took seconds to end, on a disk that others kept busy: after
/// 2 s the next one was refused, and its user was asked to end processes that were ending.
#[test]
fn a_user_that_takes_seconds_to_leave_is_waited_for() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    fs::remove_file(named(&fixture.path(), "-wal")).unwrap();
    let mut next = Worker::start("held", &fixture.path());
    // The test is about this time.
    std::thread::sleep(Duration::from_secs(3));
    drop(file);
    assert_eq!(next.says().as_deref(), Some("holds: 1"));
}

/// D03: everything that looks like SQLite's or ours is removed at once (`rm locks-*`), including
/// the list of users.
#[test]
fn d03_a_log_that_is_removed_with_what_says_so_is_missed_all_the_same() {
    for gone in [&["-wal", "-users"][..], &["-shm", "-users"], &["-wal", "-shm", "-users", "-boot"]]
    {
        let fixture = Fixture::new();
        let mut file = fixture.open();
        take(&mut file, "job", 1);
        // A client of the file, without a store on top of it.
        let alive =
            fs::File::create(named(&fixture.path(), "-clients").join("somebody.alive")).unwrap();
        rustix::fs::flock(&alive, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        for ending in gone {
            fs::remove_file(named(&fixture.path(), ending)).unwrap();
        }
        let said = says("refused", &fixture.path());
        assert!(said.contains("removed or replaced"), "{gone:?}: {said}");
        assert!(apply(&mut file, "job", &inspect()).is_err(), "{gone:?}");
        drop((file, alive));
        assert_eq!(says("held", &fixture.path()), "holds: 1", "{gone:?}");
    }
}

/// Everything beside the file is removed (`rm -rf locks-*`), including the folder of the clients:
/// the file was still the same one, and there were two holders. SQLite's own lock on the file
/// reveals it.
#[test]
fn all_that_lies_beside_the_file_is_missed_while_somebody_has_it_open() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    for ending in ["-wal", "-shm", "-users", "-boot"] {
        fs::remove_file(named(&fixture.path(), ending)).unwrap();
    }
    fs::remove_dir_all(named(&fixture.path(), "-clients")).unwrap();
    for said in refusals(&fixture.path()) {
        assert!(said.contains("removed or replaced") && said.contains("-wal"), "{said}");
    }
    assert!(!named(&fixture.path(), "-wal").exists(), "something was made");
    assert!(apply(&mut file, "job", &inspect()).is_err());
    drop(file);
    assert_eq!(says("held", &fixture.path()), "holds: 1");
}

/// D03: what a killed user leaves behind looks the same, and its holds stay; once no user is alive,
/// the missing files are created anew.
#[test]
fn d03_nobody_is_kept_out_by_what_the_killed_leave() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let mut worker = Worker::start("spin 1", &fixture.path());
    assert_eq!(worker.says().as_deref(), Some("ready"));
    let _ = worker.says().expect("a token");
    worker.kill();
    assert!(named(&fixture.path(), "-wal").exists());
    assert!(says("held", &fixture.path()).starts_with("holds"));
    let mut worker = Worker::start("spin 2", &fixture.path());
    assert_eq!(worker.says().as_deref(), Some("ready"));
    worker.kill();
    for ending in ["-wal", "-shm"] {
        fs::remove_file(named(&fixture.path(), ending)).unwrap();
    }
    assert!(says("held", &fixture.path()).starts_with("holds"));
}

/// D03: a command that outlives its killed `fairlock run` still relies on its hold, which is in the
/// log. Without the log no new user is accepted until the command has ended.
#[test]
fn d03_a_log_that_is_removed_beside_a_living_command_is_missed() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let mut worker = Worker::start("spin 1", &fixture.path());
    assert_eq!(worker.says().as_deref(), Some("ready"));
    worker.kill();
    let alive =
        fs::File::create(named(&fixture.path(), "-clients").join("somebody.alive")).unwrap();
    rustix::fs::flock(&alive, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let log = named(&fixture.path(), "-wal");
    let aside = fixture.dir.path().join("aside");
    fs::rename(&log, &aside).unwrap();
    let said = says("refused", &fixture.path());
    assert!(said.contains("removed or replaced") && said.contains("-wal"), "{said}");
    fs::rename(&aside, &log).unwrap();
    assert!(says("held", &fixture.path()).starts_with("holds"));
    // That process was the last one to close the file in order, and wrote the log back to it: no
    // log is needed any more.
    assert!(!log.exists());
    assert!(says("held", &fixture.path()).starts_with("holds"));
}

/// D03: an older version does not know `FILE-users`. It is no obstacle, whichever version comes
/// first, and it is not mistaken for somebody who has removed the file.
#[test]
fn d03_an_older_version_beside_is_no_obstacle() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    // Like an older version: it has the lock on `FILE-boot`, and the log.
    fs::remove_file(named(&fixture.path(), "-users")).unwrap();
    assert_eq!(says("held", &fixture.path()), "holds: 1");
    let mut beside = fixture.open();
    assert_eq!(state(&mut beside, "job").hold.len(), 1);
    drop(file);
    assert_eq!(state(&mut beside, "job").hold.len(), 1);
    drop(beside);
    assert_eq!(says("held", &fixture.path()), "holds: 1");
}

/// A process of this version came and went beside one of an older version, which then removed the
/// log as the last one to leave. The next of the older version has another log, whose number is not
/// on record: this version was refused for as long as that process lived, once in some fifteen runs
/// of the tests, when the file system did not reuse the number.
#[test]
fn d03_an_older_version_that_comes_after_another_is_no_obstacle() {
    let fixture = Fixture::new();
    let (users, aside) = (named(&fixture.path(), "-users"), named(&fixture.path(), "-aside"));
    let older = fixture.open();
    fs::remove_file(&users).unwrap();
    assert_eq!(says("held", &fixture.path()), "holds: 0");
    drop(older);
    assert!(!named(&fixture.path(), "-wal").exists());

    // The numbers of log and index are not free for the next ones.
    for number in 0..8 {
        fs::write(fixture.path().with_extension(number.to_string()), "").unwrap();
    }
    fs::rename(&users, &aside).unwrap();
    let mut older = fixture.open();
    take(&mut older, "job", 1);
    fs::rename(&aside, &users).unwrap();
    assert_eq!(says("held", &fixture.path()), "holds: 1");
    // Nobody is let in without the log that they have open.
    fs::remove_file(named(&fixture.path(), "-wal")).unwrap();
    assert!(says("refused", &fixture.path()).contains("-wal"));
}

/// D03: the last user that closes the file in order removes log and index, so that nobody misses
/// them later.
#[test]
fn d03_the_last_one_that_leaves_removes_the_log() {
    let fixture = Fixture::new();
    let (mut one, two) = (fixture.open(), fixture.open());
    take(&mut one, "job", 1);
    let there = || ["-wal", "-shm"].map(|ending| named(&fixture.path(), ending).exists());
    one.close();
    one.close();
    assert_eq!(there(), [true; 2]);
    let error = apply(&mut one, "job", &inspect()).unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::Closed);
    drop((one, two));
    assert_eq!(there(), [false; 2]);
    assert_eq!(says("held", &fixture.path()), "holds: 1");
    assert_eq!(there(), [false; 2]);
}

/// D28: only the file was removed. New users were told of containers that see another boot.
#[test]
fn d28_a_removed_file_is_said_to_be_removed() {
    for users_too in [false, true] {
        let fixture = Fixture::new();
        let mut file = fixture.open();
        take(&mut file, "job", 1);
        fs::remove_file(fixture.path()).unwrap();
        if users_too {
            // As beside an older version: the file is then created before the removal is noticed.
            fs::remove_file(named(&fixture.path(), "-users")).unwrap();
        }
        for said in refusals(&fixture.path()) {
            assert!(said.contains("removed or replaced") && said.contains("End them"), "{said}");
        }
        assert_eq!(fixture.path().exists(), users_too);
        drop(file);
        assert_eq!(says("held", &fixture.path()), "holds: 0");
    }
}

/// D04: the folder of the clients was writable by everybody and not checked: another user replaced
/// an `alive` file in it, and there were two holders. The same for each part.
#[test]
fn d04_parts_that_others_can_write_to_are_refused() {
    let root = rustix::process::geteuid().is_root();
    for ending in ["-clients", "-wal", "-shm", "-boot", "-users"] {
        let fixture = Fixture::new();
        let _file = fixture.open();
        let part = named(&fixture.path(), ending);
        let before = fs::metadata(&part).unwrap().permissions().mode() & 0o777;
        let refused = |word: &str| {
            let error = open(&fixture.path()).err().expect("it was opened");
            assert_eq!(error.kind(), ErrorKind::Denied, "{ending}: {error}");
            let said = error.to_string();
            assert!(
                said.contains(word) && said.contains(part.to_str().unwrap()),
                "{ending}: {said}"
            );
        };
        for (more, word) in [(0o002, "everybody"), (0o020, "its group")] {
            fs::set_permissions(&part, Permissions::from_mode(before | more)).unwrap();
            refused(word);
        }
        fs::set_permissions(&part, Permissions::from_mode(before)).unwrap();
        drop(fixture.open());
        if root {
            chown(&part, Some(64_001), None).unwrap();
            refused("belongs to user 64001");
        }
    }
}

/// D18: on a disk without room even for the log's index, SQLite rolls back by itself, and the error
/// was "no such savepoint: look".
#[test]
fn d18_a_disk_that_is_too_small_is_said_to_be_full() {
    for size in ["16k", "24k", "32k", "40k", "48k", "64k"] {
        let fixture = Fixture::new();
        let Some(disk) = Disk::mount(fixture.dir.path(), size) else { return };
        let Err(error) = open(&fixture.path()) else { continue };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{size}: {error}");
        assert!(error.to_string().contains("disk is full"), "{size}: {error}");
        drop(disk);
    }
}

/// D20: inspecting a store that does not exist created it, with its folder, and reported all locks
/// as free.
#[test]
fn d20_a_look_makes_no_store() {
    let fixture = Fixture::new();
    let look = OpenOptions { create: false, ..options() };
    for path in [fixture.path(), fixture.dir.path().join("folder/that/is/not/there")] {
        let error = HostFile::open(&path, &look).err().expect("it was opened");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(said.contains(&format!("there is no store at {}", path.display())), "{said}");
    }
    assert_eq!(fs::read_dir(fixture.dir.path()).unwrap().count(), 0);
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    assert_eq!(state(&mut HostFile::open(&fixture.path(), &look).unwrap(), "job").hold.len(), 1);
}
