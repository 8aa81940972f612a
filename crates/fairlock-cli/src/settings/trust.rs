//! Files that decide which locks are used, or hold a password. They are only read if nobody else can
//! have written them.

use std::fmt::Display;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process;

use crate::base::exit::Failure;

/// Longest file in bytes, far beyond any real one.
const BYTES_MAX: u64 = 64 * 1024;

/// A file's content.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) text: String,
    /// The file's mode, if others than its owner can read it.
    pub(super) readable_by_others: Option<u32>,
}

/// Why a file was not read.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The file cannot be opened or read, or does not exist.
    Io(io::Error),
    /// Why the file is not trusted, for people.
    Untrusted(String),
}

impl Refusal {
    /// The failure; `what` the file is for.
    pub(super) fn about(&self, path: &Path, what: &str) -> Failure {
        let reason: &dyn Display = match self {
            Self::Io(error) => error,
            Self::Untrusted(reason) => reason,
        };
        Failure::usage(format!("{}: {reason} (the {what} file)", path.display()))
    }
}

/// Reads a file that belongs to the effective user or root and that nobody else can write. It may be a pipe, which is
/// read until its writers close it.
pub(super) fn read(path: &Path) -> Result<Read, Refusal> {
    // A pipe without a writer would block open(2) forever.
    let flags = i32::try_from((OFlags::NOCTTY | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // The open file is checked, whatever the name leads to a moment later.
    let mut file = file.map_err(Refusal::Io)?;
    let metadata = file.metadata().map_err(Refusal::Io)?;
    check(&metadata).map_err(Refusal::Untrusted)?;
    let blocking = fcntl_getfl(&file).map(|flags| flags - OFlags::NONBLOCK);
    blocking.and_then(|flags| fcntl_setfl(&file, flags)).map_err(|e| Refusal::Io(e.into()))?;
    let mut bytes = Vec::new();
    (&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Refusal::Io)?;
    // An empty configuration would select the default store.
    if bytes.is_empty() && metadata.file_type().is_fifo() {
        return Err(Refusal::Untrusted("a pipe into which nobody has written anything".to_owned()));
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Refusal::Untrusted(format!("longer than {BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Refusal::Untrusted("not UTF-8".to_owned()))?;
    let mode = metadata.mode() & 0o7777;
    let readable_by_others = (metadata.is_file() && mode & 0o044 != 0).then_some(mode);
    Ok(Read { text, readable_by_others })
}

/// Whether a file does not exist. If a part of its path is not a folder, it cannot exist.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Checks a folder or a file by its owner and by who can write to it.
pub(super) fn check(metadata: &Metadata) -> Result<(), String> {
    // The owner of a device, such as the terminal or /dev/null, says nothing.
    if metadata.file_type().is_char_device() {
        return Ok(());
    }
    let owner = metadata.uid();
    if owner != 0 && owner != process::geteuid().as_raw() {
        return Err(format!("belongs to user {owner}, who is neither you nor root"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!("others can write to it (mode {mode:03o}): chmod go-w"));
    }
    Ok(())
}
