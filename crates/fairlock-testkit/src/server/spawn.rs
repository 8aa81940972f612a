//! Starts processes that must not outlive this one, not even when it is killed with SIGKILL.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fs, io, thread};

/// The two places where util-linux may be installed.
const SETPRIV: [&str; 2] = ["/usr/bin/setpriv", "/bin/setpriv"];

/// A command that runs `program` in the network of this thread, and that the kernel kills when the
/// thread that started it ends.
///
/// Without `setpriv` on the machine it is not tied: then a test process that is killed leaves its
/// servers behind.
pub(super) fn tied(program: &OsStr) -> Command {
    let mut words: Vec<OsString> = own_network();
    if let Some(setpriv) = SETPRIV.iter().find(|path| Path::new(path).is_file()) {
        words.extend([*setpriv, "--pdeathsig", "KILL", "--"].map(OsString::from));
    }
    words.push(program.to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The words that enter this thread's network, if it has one of its own: the spawner is not in it.
fn own_network() -> Vec<OsString> {
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    match fs::read_link("/proc/thread-self") {
        Ok(thread) if network("thread-self") != network("self") => {
            let path = format!("--net=/proc/{}/ns/net", thread.display());
            ["nsenter", &path, "--"].map(OsString::from).into()
        }
        _ => Vec::new(),
    }
}

/// Starts the command on a thread that lives as long as this process.
///
/// The kernel ties the child to the THREAD that started it, and a test's thread ends before the
/// process does: a server shared by two tests would die with the first of them.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (sender, answer) = channel();
    let jobs = spawner().lock().unwrap_or_else(PoisonError::into_inner).clone();
    jobs.send((command, sender)).expect("the spawner runs for ever");
    answer.recv().expect("the spawner answers")
}

type Job = (Command, Sender<io::Result<Child>>);

/// The only spawner; it stays in the network of the thread that asked first.
pub(crate) fn spawner() -> &'static Mutex<Sender<Job>> {
    static SPAWNER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        let run = move || {
            for (mut command, answer) in jobs {
                // A caller that is gone has panicked; its server is reaped with this process.
                let _ = answer.send(command.spawn());
            }
        };
        thread::Builder::new().name("spawner".into()).spawn(run).expect("a thread");
        Mutex::new(sender)
    })
}
