//! A host store file for all processes of this host, on a small disk of its own where possible.

use super::Deployment;
use crate::nemesis::{Kind, last};
use fairlock_testkit::disk::Disk;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::tempdir::TempDir;
use std::path::PathBuf;
use std::time::Duration;

/// Far more than the locks of a run need, and their log while a process is stopped that keeps it from
/// starting over: several MB a second.
const DISK: &str = "64m";

/// How long another program waits for its turn to use the file.
const BUSY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Host {
    // Declared before the folder it is mounted on, so that it is dropped first.
    disk: Option<Disk>,
    folder: TempDir,
}

impl Host {
    #[expect(clippy::unnecessary_wraps, reason = "the other deployments need programs")]
    pub(crate) fn start() -> Option<Self> {
        let folder = TempDir::on_disk();
        let disk = Disk::mount(folder.path(), DISK);
        Some(Self { disk, folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("locks")
    }

    fn fill_disk(&self, rng: &mut Rng) -> bool {
        let Some(disk) = &self.disk else { return false };
        let filler = disk.fill();
        last(rng.between(100, 600));
        let full = std::fs::write(self.folder.path().join("more"), [7; 8192]).is_err();
        std::fs::remove_file(filler).expect("our own file");
        let _ = std::fs::remove_file(self.folder.path().join("more"));
        full
    }

    fn lock_file(&self, rng: &mut Rng) -> bool {
        let Ok(file) = rusqlite::Connection::open(self.file()) else { return false };
        let locked = file.busy_timeout(BUSY).and_then(|()| file.execute_batch("BEGIN IMMEDIATE"));
        last(rng.between(100, 600));
        locked.and_then(|()| file.execute_batch("ROLLBACK")).is_ok()
    }
}

impl Deployment for Host {
    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    fn kinds(&self) -> Vec<Kind> {
        let disk = self.disk.is_some().then_some(Kind::DiskFull);
        disk.into_iter().chain([Kind::FileLocked]).collect()
    }

    fn inject(&mut self, kind: Kind, rng: &mut Rng) -> bool {
        match kind {
            Kind::DiskFull => self.fill_disk(rng),
            Kind::FileLocked => self.lock_file(rng),
            other => panic!("a file does not play {other:?}"),
        }
    }

    fn heal(&mut self) {}

    fn raw(&self) -> Option<Raw> {
        None
    }

    fn folders(&self) -> Vec<PathBuf> {
        vec![self.folder.path().to_owned()]
    }
}
