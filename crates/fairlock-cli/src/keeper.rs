//! A second process that ends the command's whole group should `fairlock` be killed.
//!
//! The kernel's parent-death signal (see `exec.rs`) reaches the command itself and nothing else:
//! the worker that a shell script started would go on unlocked, and so would a set-user-id
//! command. The keeper holds the reading end of a pipe whose writing end only `fairlock` has. The
//! pipe closes when `fairlock` is gone, however it went; unless told before that all is well, the
//! keeper then kills the group. It costs one small process that sleeps.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child as Process, Command, Stdio};

use rustix::process::{self, Pid, Signal};

use crate::args;
use crate::exit::{Code, Failure};

/// What the keeper is told when it is not needed any more.
const ALL_IS_WELL: &[u8] = b".";

/// The running keeper of one group.
#[derive(Debug)]
pub(crate) struct Keeper {
    process: Process,
}

impl Keeper {
    /// Starts this program (`program`) as the keeper of a group.
    pub(crate) fn spawn(mut program: Command, group: Pid) -> io::Result<Self> {
        program
            .arg("__keep")
            .arg(group.as_raw_pid().to_string())
            // Away from the terminal's signals and from those sent to our group.
            .process_group(0)
            .stdin(Stdio::piped())
            // A reader of our output must not wait for the keeper's copy to close.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_clear();
        Ok(Self { process: program.spawn()? })
    }

    /// Sends it home, before the number of the group can come to belong to somebody else.
    pub(crate) fn dismiss(&mut self) {
        if let Some(mut pipe) = self.process.stdin.take() {
            // A keeper that was killed needs no word.
            let _ = pipe.write_all(ALL_IS_WELL);
        }
        let _ = self.process.wait();
    }
}

/// `fairlock __keep GROUP`: waits for the word, or for the end of the pipe.
pub(crate) fn keep(args: &args::Group) -> Result<Code, Failure> {
    let group = Pid::from_raw(args.group).ok_or_else(|| Failure::usage("not a process group"))?;
    let mut word = Vec::new();
    // A pipe that cannot be read tells nothing good either.
    let read = io::stdin().read_to_end(&mut word);
    if read.is_err() || word.is_empty() {
        let _ = process::kill_process_group(group, Signal::KILL);
    }
    Ok(Code::OK)
}
