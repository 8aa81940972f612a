//! A store shared by a group: members wake each other, and notice each other's deaths, as processes
//! of one user do.

use super::{JOB, LONG, SELDOM, take};
use crate::faults::worker::Worker;
use crate::support::{SOON, queue_is, runtime, until};
use fairlock::{Client, Config};
use fairlock_testkit::tempdir::TempDir;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

const GROUP: u32 = 64_301;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The whole group can use everything in the clients' folder, and nobody else can, whatever its
/// creator's umask was.
fn is_shared(path: &Path) {
    let found = fs::metadata(path).unwrap();
    let mode = if found.is_dir() { 0o2770 } else { 0o660 };
    assert_eq!((found.mode() & 0o7777, found.gid()), (mode, GROUP), "{}", path.display());
}

#[test]
fn members_of_a_group_hand_on_to_each_other() {
    if !rustix::process::geteuid().is_root() {
        fairlock_testkit::skip("root, to be other users");
        return;
    }
    let dir = TempDir::new();
    set_mode(dir.path(), 0o755);
    let folder = dir.path().join("shared");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(64_301), Some(GROUP)).unwrap();
    set_mode(&folder, 0o2770);
    let url = format!("sqlite:{}/locks?shared=group", folder.display());
    let member = |user| Worker::of_user(&url, SELDOM, LONG, (user, GROUP));
    let (mut one, mut two, mut three) = (member(64_301), member(64_302), member(64_303));
    runtime().block_on(async {
        let config = Config::from_url(&url).unwrap().heartbeat(SELDOM).watchdog_lease(LONG);
        let watcher = Client::with_config(config).await.unwrap();
        let lock = watcher.fair_lock(JOB);
        take(&mut one, &lock).await;
        for (place, worker) in [(1, &mut two), (2, &mut three)] {
            worker.order(&format!("lock 0 {JOB}"));
            queue_is(&lock, place).await;
        }
        let clients = folder.join("locks-clients");
        is_shared(&clients);
        for entry in fs::read_dir(&clients).unwrap() {
            is_shared(&entry.unwrap().path());
        }
        // First the kernel reports the death of another user's process; then a message goes to
        // another user's bell.
        one.kill9();
        two.expect("granted 0", SOON);
        two.order("release 0");
        three.expect("granted 0", SOON);
        three.order("release 0");
        three.expect("released 0", SOON);

        let names = || {
            let all = fs::read_dir(&clients).unwrap().map(|entry| entry.unwrap().path());
            all.filter(|path| path.extension().is_some_and(|ending| ending == "base")).collect()
        };
        two.order("plain 1 plain");
        two.expect("granted 1", SOON);
        three.order("plain 1 plain");
        until("it listens", async || {
            let found: Vec<std::path::PathBuf> = names();
            found.len() == 1 && fs::read_dir(&found[0]).is_ok_and(|in_it| in_it.count() == 1)
        })
        .await;
        is_shared(&names()[0]);
        two.order("release 1");
        three.expect("granted 1", SOON);
    });
}
