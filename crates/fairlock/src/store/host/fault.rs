//! SQLite's errors as ours: what happened, to which file, and what to do.

use super::place;
use crate::base::clock::rounded;
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use fairlock_core::{CoreError, LockName};
use rusqlite::ErrorCode;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether somebody else currently has the file locked, so that the same call may succeed soon.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Somebody kept the file locked for the whole of `waited`.
pub(super) fn busy(path: &Path, waited: Duration) -> StoreError {
    let waited = rounded(waited);
    let message = format!(
        "{}: another process has had the file locked for {waited:?}; is one of its users stopped?",
        path.display()
    );
    StoreError::unavailable(message, false)
}

/// An error of SQLite, before anything was committed, or with `commit` during the commit.
#[cold]
pub(super) fn of(path: &Path, error: &rusqlite::Error, commit: bool) -> StoreError {
    let at = path.display();
    if error.sqlite_error_code() == Some(ErrorCode::CannotOpen)
        && let Some(file) = closed_to_us(path)
    {
        let message = format!(
            "{}: this program may not read and write this file, which belongs to the store {at}; give its user the \
             right (`chmod u+rw`), as for the store itself, and remove nothing",
            file.display()
        );
        return refused(ErrorKind::Denied, message);
    }
    let passing = |message: String, doubt| StoreError::unavailable(message, doubt);
    match error.sqlite_error_code() {
        _ if is_busy(error) => {
            passing(format!("{at}: the file is locked by another process"), false)
        }
        // Log frames without a commit mark are not a transaction: nothing was done.
        Some(ErrorCode::DiskFull) => passing(place::full(path), false),
        // For the index, which is memory-mapped, a full disk is reported as an I/O error.
        Some(ErrorCode::SystemIoFailure) if !commit && is_full(path) => {
            passing(place::full(path), false)
        }
        Some(ErrorCode::ReadOnly) => refused(
            ErrorKind::Denied,
            format!("{at}: the file, its folder or its file system is read-only ({error})"),
        ),
        // The header is wrong, so this is another program's file, and the message must not suggest
        // moving it.
        Some(ErrorCode::NotADatabase) => refused(
            ErrorKind::Protocol,
            format!(
                "{at}: this is no file of fairlock ({error}); it was left as it is. Name another file for the \
                 locks"
            ),
        ),
        Some(ErrorCode::DatabaseCorrupt) => {
            damaged(path, "a part of it is missing or was overwritten")
        }
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted,
        ) => passing(format!("{at}: the file cannot be used now: {error}"), commit),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            refused(ErrorKind::Denied, format!("{at}: access to the file is denied ({error})"))
        }
        _ => refused(
            ErrorKind::Protocol,
            format!("{at}: the file is not as this version of fairlock makes it: {error}"),
        ),
    }
}

/// An I/O error on the file beside the store's whose name adds `ending`.
#[cold]
pub(super) fn of_io(path: &Path, ending: &str, error: &std::io::Error) -> StoreError {
    let error = place::io_error(&place::named(path, ending), error);
    if error.kind() == ErrorKind::Unavailable {
        return StoreError { error, doubt: false, passing: true };
    }
    refused(error.kind(), error.to_string())
}

/// A refusal of the core.
#[cold]
pub(super) fn of_core(path: &Path, name: &LockName, error: &CoreError) -> StoreError {
    let message = match error {
        // Tokens follow the time, for all locks of the file.
        CoreError::TokenExhausted => format!(
            "{}: the store's time is beyond the year 2255, and the tokens that it carries have reached 2^53: the \
             wall clock was wrong when the machine's first user came. Set the clock, end all users of the file, \
             then move it away, and all that lies beside it with the same beginning; a new one is made, whose \
             tokens begin anew",
            path.display()
        ),
        other => other.to_string(),
    };
    let kind = match error {
        CoreError::NoSuchShare => ErrorKind::Misuse,
        _ => ErrorKind::WrongType,
    };
    StoreError::refused(Error::new(kind, message).on(name))
}

/// The file of the store that this process may not use; SQLite names none. Not found by opening it: closing it again
/// would drop SQLite's locks.
fn closed_to_us(path: &Path) -> Option<PathBuf> {
    let files = ["", "-wal", "-shm"].map(|ending| place::named(path, ending));
    files.into_iter().find(|file| {
        let rights = Access::READ_OK | Access::WRITE_OK;
        accessat(CWD, file, rights, AtFlags::EACCESS) == Err(Errno::ACCESS)
    })
}

#[cold]
pub(super) fn no_timer(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the kernel gives no timer ({error})"))
}

#[cold]
pub(super) fn no_fifo(path: &Path, error: &std::io::Error) -> Error {
    let message =
        format!("{}-clients: the files of this client cannot be made ({error})", path.display());
    Error::new(ErrorKind::Unavailable, message)
}

/// Whether the file system has no space for even an index of SQLite's log.
fn is_full(path: &Path) -> bool {
    const INDEX_BYTES: u64 = 32 * 1_024;
    let Some(folder) = path.parent() else { return false };
    rustix::fs::statvfs(folder)
        .is_ok_and(|at| at.f_bavail.saturating_mul(at.f_frsize) < INDEX_BYTES)
}

/// The file is damaged, or not an SQLite database.
pub(super) fn damaged(path: &Path, what: impl std::fmt::Display) -> StoreError {
    refused(
        ErrorKind::Protocol,
        format!(
            "{}: the file is damaged, or no file of fairlock: {what}; it was left as it is. Move it \
             (and what lies beside it with the same beginning) away once no program uses it: that \
             frees every lock in it",
            path.display()
        ),
    )
}

fn refused(kind: ErrorKind, message: String) -> StoreError {
    StoreError::refused(Error::new(kind, message))
}
