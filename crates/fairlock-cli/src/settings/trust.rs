//! Files that decide which locks are used, or hold a password. They are only read if nobody else can
//! have written them.

use std::fmt::Display;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process;

use crate::base::clock;
use crate::base::duration;
use crate::base::exit::Failure;

/// Longest file in bytes, far beyond any real one.
const BYTES_MAX: u64 = 64 * 1024;

/// How long a pipe may stay silent: its writer may be a program that asks for a passphrase.
const PIPE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a pipe may have no writer. A shell opens both ends of `<(...)` at once.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two checks whether a pipe has a writer, which poll(2) does not report.
const LOOK: Duration = Duration::from_millis(20);

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
/// read until its writers close it, within limits of time.
pub(super) fn read(path: &Path) -> Result<Read, Refusal> {
    // A pipe without a writer would keep us in open(2) for ever.
    let flags = i32::try_from((OFlags::NOCTTY | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // The open file is checked, whatever the name leads to a moment later.
    let mut file = file.map_err(Refusal::Io)?;
    let metadata = file.metadata().map_err(Refusal::Io)?;
    check(&metadata).map_err(Refusal::Untrusted)?;
    let bytes = if metadata.file_type().is_fifo() {
        read_pipe(&mut file)?
    } else {
        // It may be a terminal, and people take their time.
        let blocking = fcntl_getfl(&file).map(|flags| flags - OFlags::NONBLOCK);
        blocking.and_then(|flags| fcntl_setfl(&file, flags)).map_err(|e| Refusal::Io(e.into()))?;
        let mut bytes = Vec::new();
        (&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Refusal::Io)?;
        bytes
    };
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

/// Reads a non-blocking pipe to its end.
fn read_pipe(pipe: &mut File) -> Result<Vec<u8>, Refusal> {
    let began = clock::now();
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    let late = |limit, why: &str| match clock::now().saturating_sub(began) > limit {
        true => Err(Refusal::Untrusted(format!("a pipe {why} for {}", duration::human(limit)))),
        false => Ok(()),
    };
    loop {
        match pipe.read(&mut part) {
            // No writer: not any more, or not yet.
            Ok(0) if !bytes.is_empty() => return Ok(bytes),
            Ok(0) => {
                late(WRITER_TIMEOUT, "into which nobody has written anything")?;
                thread::sleep(LOOK);
            }
            Ok(read) => {
                bytes.extend_from_slice(&part[..read]);
                if bytes.len() as u64 > BYTES_MAX {
                    return Ok(bytes);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                late(PIPE_TIMEOUT, "whose writer has not closed it")?;
                let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                let mut fds = [PollFd::new(pipe, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&timeout));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Refusal::Io(error)),
        }
    }
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
