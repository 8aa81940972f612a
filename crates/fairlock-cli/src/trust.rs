//! Files that decide which locks are used, or hold a password: read only if nobody else can have
//! written them.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process;

use crate::exit::Failure;

/// Longest file in bytes: far beyond any real one.
const BYTES_MAX: u64 = 64 * 1024;

/// Why there is no text.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The file cannot be opened or read, or is not there.
    Io(io::Error),
    /// What is wrong with it, for people.
    Untrusted(String),
}

impl Refusal {
    /// The one line about it.
    pub(crate) fn about(&self, path: &Path) -> Failure {
        match self {
            Self::Io(error) => Failure::usage(format!("{}: {error}", path.display())),
            Self::Untrusted(reason) => Failure::usage(format!("{}: {reason}", path.display())),
        }
    }
}

/// The text of a file of the effective user's or root's that nobody else can write.
pub(crate) fn read(path: &Path) -> Result<String, Refusal> {
    // Judged is what was opened, whatever the name leads to a moment later.
    let no_terminal = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(no_terminal).open(path);
    let mut file = file.map_err(Refusal::Io)?;
    let metadata = file.metadata().map_err(Refusal::Io)?;
    judge(&metadata).map_err(Refusal::Untrusted)?;
    let mut bytes = Vec::new();
    (&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Refusal::Io)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Refusal::Untrusted(format!("longer than {BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Refusal::Untrusted("not UTF-8".to_owned()))
}

/// Folders and files are judged alike: owner, and who can write.
pub(crate) fn judge(metadata: &Metadata) -> Result<(), String> {
    // A device, such as the terminal or /dev/null, has an owner of its own kind.
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
