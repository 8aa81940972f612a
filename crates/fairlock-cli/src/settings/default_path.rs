//! The default path of the host store: one file for each user, the same in every environment.
//!
//! Two runs of one user that use different files do not exclude each other, and neither notices.
//! So the path depends on nothing that differs between a login shell, cron, a system unit and
//! `env -i`: not on `HOME`, on an XDG variable, on a session's folder (`/run/user` goes away at
//! logout), or on a folder for temporary files (a unit may have one of its own).
//!
//! 1. `/var/lib/fairlock/UID`, if root has created it: for users without a home, with a home on a
//!    network, or with one that some of their services cannot see.
//! 2. `.local/state/fairlock` in the home that the user database names.
//!
//! A path that cannot be the same everywhere is refused with the reason: a home that is not there, is
//! hidden (a unit with `ProtectHome=`) or read-only. There is no fallback to another folder.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::account::Account;
use super::trust::{self, is_absent};
use crate::base::exit::Failure;

/// Root creates folders for users in here.
const SYSTEM: &str = "/var/lib/fairlock";

/// The folder below a home.
const STATE: [&str; 3] = [".local", "state", "fairlock"];

/// The name of the file.
const FILE: &str = "locks.db";

/// File systems that live in memory, by their numbers in `linux/magic.h`: tmpfs and ramfs.
const VOLATILE: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The path of this user's host store. Only looks: [`make`] creates its folder, the library the file.
pub(super) fn find(account: &Account) -> Result<PathBuf, Failure> {
    find_below(Path::new(SYSTEM), account)
}

/// Creates the folder of this path, if it is missing: nobody has typed it, so it is not misspelt.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        return Ok(());
    }
    // The process's umask must not decide. Of several processes at once each may do this.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let made = made.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o700)));
    made.map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))
}

fn find_below(system: &Path, account: &Account) -> Result<PathBuf, Failure> {
    let made_by_root = system.join(account.uid.to_string());
    let refused = |folder: &Path, reason: &str| {
        let advice = advice(&made_by_root, account);
        Failure::usage(format!(
            "no place for the locks of {}: {}: {reason}; {advice}",
            account.describe(),
            folder.display(),
        ))
    };
    if let Some(file) = usable(&made_by_root, account).map_err(|r| refused(&made_by_root, &r))? {
        return writable(&made_by_root).map(|()| file).map_err(|r| refused(&made_by_root, &r));
    }
    let Some(home) = &account.home else {
        return Err(refused(Path::new("the user database"), "it names no home folder"));
    };
    if let Some(reason) = hidden(home) {
        return Err(refused(home, &format!("the home {reason}")));
    }
    match fs::metadata(home) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(refused(home, "the home is no folder")),
        Err(error) => return Err(refused(home, &format!("the home: {error}"))),
    }
    let folder = STATE.iter().fold(home.clone(), |path, part| path.join(part));
    let file = match usable(&folder, account).map_err(|reason| refused(&folder, &reason))? {
        Some(file) => file,
        None => folder.join(FILE),
    };
    let existing = folder.ancestors().find(|path| path.exists()).unwrap_or(home);
    writable(existing).map_err(|reason| refused(existing, &reason))?;
    Ok(file)
}

/// The file in this folder; `None` if the folder does not exist, an error if it is not the user's alone.
fn usable(folder: &Path, account: &Account) -> Result<Option<PathBuf>, String> {
    let metadata = match fs::metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !metadata.is_dir() {
        return Err("no folder".to_owned());
    }
    if metadata.uid() != account.uid {
        return Err(format!("belongs to user {}", metadata.uid()));
    }
    trust::check(&metadata)?;
    Ok(Some(folder.join(FILE)))
}

/// Checks that the effective user can create files in this folder.
fn writable(folder: &Path) -> Result<(), String> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, folder, wanted, AtFlags::EACCESS).map_err(|error| {
        let error = io::Error::from(error);
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("{error} (a service with ProtectHome= or ProtectSystem=? ReadWritePaths=)")
            }
            _ => format!("cannot be written: {error}"),
        }
    })
}

/// Why this process does not see the home that the user's other processes see: a service manager has closed it, or
/// replaced it with a file system in memory. `None` if it does.
pub(super) fn hidden(home: &Path) -> Option<&'static str> {
    match fs::metadata(home) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Some("is closed to this process (a service with ProtectHome=?)")
        }
        _ => {
            // For a home that does not exist, the folder above it counts: `/home` may be replaced as a
            // whole. Some systems have all of `/` in memory; that hides nothing.
            let there = home.ancestors().find(|path| path.exists())?;
            let replaced = there.parent().is_some() && there.is_dir() && is_volatile(there);
            replaced.then_some(
                "is in memory here (a service with ProtectHome=?): other processes may not see it, \
                 and nothing lasts",
            )
        }
    }
}

fn is_volatile(folder: &Path) -> bool {
    #[cfg(target_os = "linux")]
    let kind = rustix::fs::statfs(folder).ok().and_then(|found| u64::try_from(found.f_type).ok());
    #[cfg(not(target_os = "linux"))]
    let kind: Option<u64> = None;
    kind.is_some_and(|kind| VOLATILE.contains(&kind))
}

/// What an administrator can do about it, and what anybody can.
fn advice(made_by_root: &Path, account: &Account) -> String {
    let system = made_by_root.parent().unwrap_or(made_by_root).display();
    format!(
        "as root: `install -d -m 755 {system} && install -d -m 700 -o {} {}`, or name a store with \
         --url or FAIRLOCK_URL",
        account.name.clone().unwrap_or_else(|| account.uid.to_string()),
        made_by_root.display(),
    )
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
mod tests {

    use fairlock_testkit::tempdir::TempDir;
    use rustix::process::geteuid;

    use super::*;

    /// A user with a home on the disk; temporary folders may be in memory.
    struct Scene {
        dir: TempDir,
        account: Account,
    }

    impl Scene {
        fn new() -> Self {
            let dir = TempDir::new();
            let home = dir.path().join("home");
            fs::create_dir(&home).unwrap();
            let account =
                Account { uid: geteuid().as_raw(), name: Some("ann".into()), home: Some(home) };
            Self { dir, account }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn find(&self) -> Result<PathBuf, String> {
            find_below(&self.path("var"), &self.account).map_err(|failure| failure.to_string())
        }

        /// Whether homes here are in memory, which has an error of its own.
        fn in_memory(&self) -> bool {
            is_volatile(self.dir.path())
        }
    }

    #[test]
    fn the_home_of_the_user_database() {
        let scene = Scene::new();
        if scene.in_memory() {
            assert!(scene.find().unwrap_err().contains("in memory"));
            return;
        }
        let file = scene.path("home/.local/state/fairlock/locks.db");
        assert_eq!(scene.find(), Ok(file.clone()));
        assert!(!scene.path("home/.local").exists(), "looking makes nothing");

        let folder = file.parent().unwrap();
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(scene.find(), Ok(file.clone()));
        fs::set_permissions(folder, Permissions::from_mode(0o770)).unwrap();
        assert!(scene.find().unwrap_err().contains("others can write to it (mode 770)"));
    }

    /// Even if the home could be used: a service that cannot see the home must get the same path.
    #[test]
    fn a_folder_made_by_root_comes_first() {
        let scene = Scene::new();
        let folder = scene.path("var").join(scene.account.uid.to_string());
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(scene.find(), Ok(folder.join("locks.db")));

        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(scene.find().unwrap_err().contains("others can write"), "not the home instead");
        fs::remove_dir(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        assert!(scene.find().unwrap_err().contains("no folder"));
    }

    #[test]
    fn no_home() {
        let mut scene = Scene::new();
        for (home, reason) in [
            (None, "it names no home folder"),
            (Some("/nonexistent/ann".into()), "the home: No such file or directory"),
            (Some("/dev/null".into()), "the home is no folder"),
        ] {
            scene.account.home = home;
            let error = scene.find().unwrap_err();
            assert!(error.contains(reason), "{error}");
            assert!(error.contains("install -d -m 700 -o ann "), "{error}");
            assert!(error.contains("--url or FAIRLOCK_URL"), "{error}");
        }
    }

    #[test]
    fn a_home_in_memory() {
        let mut scene = Scene::new();
        if !is_volatile(Path::new("/dev/shm")) {
            return fairlock_testkit::skip("/dev/shm in memory");
        }
        // The second is the case of `/home` being replaced as a whole.
        for home in ["/dev/shm", "/dev/shm/fairlock-test-no-such-home"] {
            scene.account.home = Some(home.into());
            assert!(scene.find().unwrap_err().contains("is in memory here"), "{home}");
        }
    }
}
