//! The first life of the guarded command: `fairlock __exec PARENT -- COMMAND...`.
//!
//! A command must not continue without the lock when `fairlock` is killed with KILL, which `fairlock`
//! cannot catch. The kernel can send a signal when a parent dies, but only the child itself can request
//! that, after it was created and before it becomes the command. Doing so between `fork` and `exec`
//! needs unsafe code; starting this program once more does not.
//!
//! The kernel drops the request if the command is set-user-id or has file capabilities (`sudo`, `ping`).
//! The guardian (`guardian.rs`) ends such a command, and everything that any command has started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process;

use crate::base::exit::{Code, Failure};
use crate::base::message;

/// The first word.
pub(crate) const WORD: &str = "__exec";

/// Becomes the command, given the words after the first; returns only if that fails. They are read without the help of
/// clap: each command waits for this.
pub(crate) fn exec(words: &[OsString]) -> Failure {
    let [parent, _, program, arguments @ ..] = words else {
        return Failure::usage("no command given");
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = process::set_parent_process_death_signal(Some(process::Signal::KILL)) {
        return Failure::new(
            Code::INTERNAL,
            format!("cannot tie the command to its lock: {error}"),
        );
    }
    // The parent may have died before the request was made.
    let now = process::getppid().map(|parent| parent.as_raw_pid().to_string());
    if now.as_deref() != parent.to_str() {
        return Failure::silent(Code::signal(process::Signal::KILL.as_raw()));
    }
    // Nothing of the command runs before its guardian: `Child::prepare` waits for this stop.
    if let Err(error) = process::kill_process(process::getpid(), process::Signal::STOP) {
        return Failure::new(Code::INTERNAL, format!("cannot wait for the guardian: {error}"));
    }
    refused(program, &Command::new(program).args(arguments).exec())
}

/// The codes that shells use, so that scripts see no difference.
fn refused(program: &OsString, error: &io::Error) -> Failure {
    let shown = message::printable(program);
    match error.kind() {
        io::ErrorKind::NotFound => {
            // Quoted as a whole, as for `flock -c` or `su -c`.
            let is_line = shown.contains([' ', '|', '&', ';', '<', '>', '$']);
            let reason = match (is_line, shown.contains('/')) {
                (true, _) => "command not found; a line for a shell is given as `-- sh -c LINE`",
                (false, false) => "command not found",
                (false, true) if Path::new(program).exists() => {
                    "the interpreter that its first line names was not found"
                }
                (false, true) => "no such file",
            };
            Failure::new(Code::NOT_FOUND, format!("{shown}: {reason}"))
        }
        _ => Failure::new(Code::NOT_EXECUTABLE, format!("{shown}: cannot be executed: {error}")),
    }
}
