//! Starts processes that must not outlive this one, not even when it is killed with SIGKILL.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// The two places util-linux is installed to.
const SETPRIV: [&str; 2] = ["/usr/bin/setpriv", "/bin/setpriv"];

/// A command that runs `program` so that the kernel kills it when the thread that started it ends.
///
/// Without `setpriv` on the machine it is a plain command: then a test process that is killed
/// leaves its servers behind.
pub(super) fn tied(program: &OsStr) -> Command {
    match SETPRIV.iter().find(|path| Path::new(path).is_file()) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Starts the command from a thread that lives as long as this process.
///
/// The kernel ties the child to the THREAD that started it, and a test's thread ends before the
/// process does: a server shared by two tests would die with the first of them.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();

    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        let run = move || {
            for (mut command, answer) in jobs {
                // A caller that is gone has panicked; its server is reaped with this process.
                let _ = answer.send(command.spawn());
            }
        };
        thread::Builder::new().name("spawner".into()).spawn(run).expect("a thread");
        Mutex::new(sender)
    });
    let (sender, answer) = channel();
    let jobs = spawner.lock().unwrap_or_else(PoisonError::into_inner).clone();
    jobs.send((command, sender)).expect("the spawner runs for ever");
    answer.recv().expect("the spawner answers")
}
