//! A second process that ends the command's group when `fairlock` no longer can.
//!
//! `fairlock` may be killed, or stopped for longer than its lease. The kernel's parent-death signal
//! (see `exec.rs`) helps in the first case only, and reaches only the command itself: a worker that a
//! shell script started would continue without the lock, and so would a set-user-id command.
//!
//! The guardian reads from a socket whose other end only `fairlock` has. `fairlock` writes to it the time until which
//! the lock is safe, and each later one as soon as the lock is renewed. When that time passes, or the socket closes, the
//! guardian kills the group and the processes that escaped from it (`escaped.rs`). Guardians that do so at the same time
//! share the search for them (`shared_scan.rs`). Before it kills, it says so on the
//! socket: `fairlock` must not take that KILL for the command's own end. If `fairlock` is dead, the guardian then releases
//! its holds (`abandoned_holds.rs`), but only when all processes of the command have exited. When all is well, `fairlock` ends the guardian
//! first. It costs one small process that sleeps.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child as Process, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{self, Pid, Signal};

use super::abandoned_holds::{AbandonedHolds, MARK};
use super::escaped::{Search, Whose};
use super::proc;
use crate::base::clock;
use crate::base::exit::Failure;

/// How late the guardian is on purpose: at the deadline itself `fairlock` kills, if it can, and says why. Half of the
/// least margin between a guard's deadline and the end of its lease: with a later KILL the command would run into the
/// next holder's time.
const SLACK: Duration = Duration::from_millis(5);

/// Deadlines that differ by less are the same.
const RESOLUTION: Duration = Duration::from_millis(1);

/// What the guardian writes before it kills.
const KILLS: &[u8] = b"k";

/// How long the guardian may take to start and to read the holds.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// Variables of the environment that say where certificates are.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Longest time between two looks at the clock: timers stand still while the machine sleeps.
const TICK: Duration = Duration::from_secs(1);

/// How often the guardian looks for escaped processes and kills them: one that is just being started is only found
/// by the next look.
const ROUNDS_MAX: u32 = 50;

/// Time between two such looks.
const PAUSE: Duration = Duration::from_millis(20);

/// How long processes may take to end after KILL. Only those stuck in the kernel take longer.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Time between two checks whether they have ended.
const GONE_POLL: Duration = Duration::from_millis(20);

/// The running guardian of one group.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Process,
    line: UnixStream,
    /// The last deadline that it was told.
    told: Duration,
}

impl Guardian {
    /// Starts this program (`program`) as the guardian of a group and of all other processes that run
    /// for the lock's `owner`.
    pub(super) fn spawn(
        mut program: Command,
        group: Pid,
        owner: &OsStr,
        holds: Option<&AbandonedHolds>,
    ) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        program
            .arg("__guardian")
            .arg(group.as_raw_pid().to_string())
            .arg(owner)
            // Neither the terminal's signals nor those to our group reach it.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            // A reader of our output must not wait for the guardian's copy to close.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_clear()
            // A guardian without any environment would be read by each look of the others (`escaped.rs`).
            .env("FAIRLOCK_GUARDIAN", "1")
            .envs(CERTIFICATES.into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        let guardian = Self { process: program.spawn()?, line, told: Duration::ZERO };
        guardian.hand_over(holds)?;
        Ok(guardian)
    }

    /// Hands over what it needs if this process dies. Waits only for a guardian whose socket is too small for it.
    fn hand_over(&self, holds: Option<&AbandonedHolds>) -> io::Result<()> {
        if let Some(holds) = holds {
            self.line.set_write_timeout(Some(READ_WITHIN))?;
            (&self.line).write_all(holds.line().as_bytes())?;
        }
        // From now on a guardian that does not read, because it was stopped, must not block this side.
        self.line.set_nonblocking(true)
    }

    /// The number of its process.
    pub(super) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Sets the time of the boot clock until which the group may live. Best effort: a guardian that was
    /// killed is one precaution less, not a reason to end the command.
    ///
    /// A deadline that has not changed is not repeated: one that stands still reads nothing, and the socket has room
    /// for some hundred.
    pub(super) fn allow_until(&mut self, deadline: Duration) {
        if deadline.abs_diff(self.told) < RESOLUTION {
            return;
        }
        if self.line.write_all(format!("{}\n", deadline.as_nanos()).as_bytes()).is_ok() {
            self.told = deadline;
        }
    }

    /// Whether it has killed the group, or is about to.
    pub(super) fn kills(&self) -> bool {
        let mut read = [0; KILLS.len()];
        (&self.line).read(&mut read).is_ok_and(|length| length > 0)
    }

    /// Ends the guardian. KILL leaves it no time to act, even if it was stopped. The kernel takes a moment to remove the
    /// process: only `drop` waits for that.
    pub(super) fn dismiss(&mut self) {
        let _ = self.process.kill();
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.dismiss();
        let _ = self.process.wait();
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    group: i32,
    owner: OsString,
}

/// `fairlock __guardian GROUP OWNER`: guards the group until its time is over. Returns the holds to release, if the
/// whole command is dead, and `fairlock` as well.
pub(crate) fn guard(args: &Args) -> Result<Option<AbandonedHolds>, Failure> {
    let group = Pid::from_raw(args.group).ok_or_else(|| Failure::usage("not a process group"))?;
    let line = io::stdin();
    let Over { holds, is_dead } = until_over(&line);
    // If nobody reads it, nobody needs it.
    let _ = rustix::io::write(&line, KILLS);
    let _ = process::kill_process_group(group, Signal::KILL);
    // Ends after two looks without a find: one look can miss a process that is executing another program.
    let mut none = 0;
    let mut search = Search::new(&args.owner, Whose::All, group);
    // If the deadline has passed, the next holder may have begun already, and a shared look can take longer.
    if is_dead {
        search = search.sharing();
    }
    for _ in 0..ROUNDS_MAX {
        let found = search.signal(Some(Signal::KILL));
        none = if found == 0 { none + 1 } else { 0 };
        if none == 2 {
            break;
        }
        thread::sleep(PAUSE);
    }
    let all_gone = until_gone(group) && none == 2;
    Ok(holds.filter(|_| is_dead && all_gone))
}

/// Waits until the group is gone, at most [`GONE_WITHIN`]. Returns whether it certainly is. On the host store the lock is handed on when the last
/// process that inherited it is gone. The guardian has inherited it as well, and some of the group may have closed it.
fn until_gone(group: Pid) -> bool {
    let give_up = clock::now() + GONE_WITHIN;
    while proc::runs(group) && clock::now() < give_up {
        thread::sleep(GONE_POLL);
    }
    // Processes of another user may be invisible in `/proc`.
    let is_anothers = process::test_kill_process_group(group) == Err(Errno::PERM);
    !proc::runs(group) && !is_anothers
}

/// Why the group must die.
#[derive(Debug)]
struct Over {
    /// The holds of `fairlock`, if they are to be released.
    holds: Option<AbandonedHolds>,
    /// The socket is closed: `fairlock` is dead. Otherwise the time is over.
    is_dead: bool,
}

/// Returns when the group must die: its time is over, or the other end of the socket is closed.
///
/// The socket is read before the clock counts: for a guardian that was asleep, or slow to start, a later deadline may
/// already be there.
fn until_over(line: impl AsFd) -> Over {
    let (mut deadline, mut text) = (Duration::MAX, Vec::new());
    let mut holds = None;
    loop {
        let left = deadline.saturating_sub(clock::now());
        if is_readable(&line, left.min(TICK)) {
            let mut read = [0; 4096];
            match rustix::io::read(&line, &mut read) {
                Ok(0) => return Over { holds, is_dead: true },
                Ok(length) => text.extend_from_slice(&read[..length]),
                Err(Errno::INTR) => continue,
                Err(_) => return Over { holds, is_dead: false },
            }
            let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { continue };
            let rest = text.split_off(end + 1);
            for told in text[..end].split(|byte| *byte == b'\n') {
                if told.first() == Some(&MARK) {
                    holds = AbandonedHolds::of_line(told);
                    continue;
                }
                match str::from_utf8(told).ok().and_then(|told| told.parse().ok()) {
                    Some(until) => deadline = Duration::from_nanos(until).saturating_add(SLACK),
                    None => return Over { holds, is_dead: false },
                }
            }
            text = rest;
        } else if deadline <= clock::now() {
            return Over { holds, is_dead: false };
        }
    }
}

/// Whether within this time there is something to read, or the other end is closed.
fn is_readable(line: impl AsFd, wait: Duration) -> bool {
    let mut polled = [PollFd::new(&line, PollFlags::IN)];
    let wait = Timespec::try_from(wait).expect("a second at most");
    poll(&mut polled, Some(&wait)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_socket_is_the_end_of_the_group() {
        let later = (clock::now() + Duration::from_secs(3_600)).as_nanos().to_string();
        for lines in ["", &format!("{later}\n"), &format!("1\n{later}\n"), &format!("{later}\n12")]
        {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (&ours).write_all(lines.as_bytes()).unwrap();
            drop(ours);
            until_over(theirs);
        }
    }

    /// A guardian whose start took 8 s, on a machine with a slow disk, believed the first deadline that it read, which
    /// was over by then, and killed a command whose lock had been renewed since.
    #[test]
    fn a_guardian_that_slept_reads_first_what_it_was_told() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let later = clock::now() + Duration::from_secs(3_600);
        ours.write_all(format!("1\n{}\n", later.as_nanos()).as_bytes()).unwrap();
        let ended = thread::spawn(move || until_over(theirs));
        thread::sleep(Duration::from_millis(200));
        assert!(!ended.is_finished(), "its time is not over");
        drop(ours);
        ended.join().unwrap();
    }

    /// With 100 ms of slack the KILL came up to 84 ms into the next holder's time: a guard ends at least 10 ms before
    /// its lease. On a loaded machine processes wake up late, so the soonest of several tries counts.
    #[test]
    fn d26_the_group_is_killed_before_the_lease_ends() {
        const MARGIN: Duration = Duration::from_millis(10);
        let late = || {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let deadline = clock::now() + Duration::from_millis(20);
            ours.write_all(format!("{}\n", deadline.as_nanos()).as_bytes()).unwrap();
            until_over(theirs);
            clock::now() - deadline
        };
        let soonest = (0..50).map(|_| late()).find(|late| *late < MARGIN);
        assert!(soonest.is_some(), "never within {MARGIN:?}");
    }

    #[test]
    fn silence_past_the_deadline_is_too() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let soon = clock::now() + Duration::from_millis(10);
        ours.write_all(format!("{}\n", soon.as_nanos()).as_bytes()).unwrap();
        until_over(theirs);
        assert!(clock::now() >= soon + SLACK);
    }
}
