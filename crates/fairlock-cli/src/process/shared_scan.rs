//! One scan of `/proc` that serves many guardians.
//!
//! When N runs are killed at once, each of their guardians searches for escaped processes (`escaped.rs`). If each read
//! the environment of every process, the cost would grow with N². Instead one guardian, the scanner, reads them and
//! answers the others, the requesters, with the numbers of the processes that carry their owner. A requester checks
//! these processes itself before it kills them.
//!
//! The first guardian to bind an abstract socket becomes the scanner. The kernel frees the name when the scanner exits.
//! The scanner accepts all connections, scans, and answers them, until no requester waits. An answer is valid only if
//! its scan began after the request, so a connection that arrives during a scan waits for the next one.
//!
//! Correctness does not depend on sharing. A requester falls back to its own scan if the scanner
//! - belongs to another user or another pid namespace, and could claim that no process remains;
//! - may not read the requester (another user namespace, fewer capabilities, a sandbox): a scanner that may read it may
//!   also read what the requester may;
//! - does not answer in time, or not in the expected form.
//!
//! The name of the socket contains the pid namespace, because several of them can share a network namespace, to which
//! abstract sockets belong.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{self, Pid};

use super::escaped;
use crate::base::clock;

/// How long a requester waits before it scans itself. A scan of 2000 processes takes a tenth of that. A scanner that is
/// stopped delays the requesters by as much, once for each search.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long a requester tries to reach the scanner. Any user can take the name and not answer, and until the requester
/// has looked, its escaped processes live.
const MEET_WITHIN: Duration = Duration::from_millis(50);

/// Time between two attempts to connect: another guardian has bound the socket and does not listen yet, or just left.
const RETRY: Duration = Duration::from_millis(2);

/// How long a scanner serves others. Its own lock is handed on later by as much. Then a requester becomes the scanner.
const SERVE_FOR: Duration = Duration::from_millis(500);

/// How long the scanner waits for the text of a request whose connection is older than a whole scan.
const REQUEST_WITHIN: Duration = Duration::from_millis(100);

/// The largest number of connections that are accepted for one scan: half of the usual limit of open files.
const REQUESTERS_MAX: usize = 512;

/// Files that the scan itself needs, and some more.
const FILES_SPARE: usize = 8;

/// The longest owner in a request, in bytes.
const OWNER_MAX: usize = 4096;

/// The largest number of processes in an answer. A requester that has more scans itself.
const PROCESSES_MAX: usize = 4096;

/// The longest answer, in bytes: a number has ten digits at most.
const ANSWER_MAX: usize = 11 * PROCESSES_MAX + FOUND.len();

/// Begins an answer. A space and a number follow for each process.
const FOUND: &str = "found";

/// The answer to a requester whose environment the scanner could not read, or that has too many processes.
const UNREADABLE: &str = "unreadable";

/// The place where the guardians of a user meet.
#[derive(Debug)]
pub(super) struct SharedScan {
    name: String,
    answer_within: Duration,
}

/// What a shared scan found for one owner.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) processes: Vec<Pid>,
    /// This process made the scan, and others may wait for the next one.
    pub(super) scanner: Option<Scanner>,
}

/// Why a request has no answer.
#[derive(Debug)]
enum Unanswered {
    /// No guardian listens on the socket.
    Absent,
    /// The scanner exited.
    Exited,
    /// The scanner cannot be used.
    Unusable,
}

impl SharedScan {
    /// `None` if `/proc` does not show the namespace.
    pub(super) fn new() -> Option<Self> {
        let namespace = pid_namespace("self").ok()?;
        let user = process::geteuid().as_raw();
        // The first number is the version of the protocol.
        let name = format!("fairlock-scan-1-{user}-{}", namespace.to_str()?);
        Some(Self { name, answer_within: ANSWER_WITHIN })
    }

    /// The processes that carry the owner in their environment, by a scan that begins after this call. `None` if the
    /// caller must scan itself.
    pub(super) fn find(&self, owner: &[u8]) -> Option<Found> {
        let give_up = clock::now() + self.answer_within;
        let mut meet_by = clock::now() + MEET_WITHIN;
        loop {
            let [meet, left] = [meet_by, give_up].map(|end| end.saturating_sub(clock::now()));
            if meet.is_zero() || left.is_zero() {
                return None;
            }
            match self.request(owner, meet, left) {
                Ok(processes) => return Some(Found { processes, scanner: None }),
                Err(Unanswered::Absent) => {
                    if let Ok(scanner) = self.listen() {
                        let processes = Scan::run().ok()?.owners.remove(owner).unwrap_or_default();
                        return Some(Found { processes, scanner: Some(scanner) });
                    }
                }
                // Another guardian takes its place, and may take as long to listen.
                Err(Unanswered::Exited) => meet_by = clock::now() + MEET_WITHIN,
                Err(Unanswered::Unusable) => return None,
            }
            thread::sleep(RETRY);
        }
    }

    fn request(
        &self,
        owner: &[u8],
        meet: Duration,
        within: Duration,
    ) -> Result<Vec<Pid>, Unanswered> {
        let failed = |error| match error {
            Errno::CONNREFUSED => Unanswered::Absent,
            Errno::CONNRESET | Errno::PIPE => Unanswered::Exited,
            _ => Unanswered::Unusable,
        };
        let (socket, address) = self.socket().map_err(failed)?;
        // A full queue of connections blocks `connect`.
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(meet)).map_err(failed)?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(within)).map_err(failed)?;
        net::connect(&socket, &address).map_err(failed)?;
        let scanner = peer(&socket).ok_or(Unanswered::Unusable)?;
        match pid_namespace(scanner.as_raw_pid()) {
            Ok(theirs) if pid_namespace("self").is_ok_and(|ours| ours == theirs) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Unanswered::Exited);
            }
            _ => return Err(Unanswered::Unusable),
        }
        net::send(&socket, owner, SendFlags::NOSIGNAL).map_err(failed)?;
        let mut answer = vec![0; ANSWER_MAX];
        match rustix::io::read(&socket, &mut answer).map_err(failed)? {
            0 => Err(Unanswered::Exited),
            length => parse(&answer[..length]).ok_or(Unanswered::Unusable),
        }
    }

    fn listen(&self) -> rustix::io::Result<Scanner> {
        let (socket, address) = self.socket()?;
        net::bind(&socket, &address)?;
        // The kernel lowers it to the limit of the machine.
        net::listen(&socket, i32::MAX)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Scanner { socket })
    }

    /// A socket that keeps messages apart, so one read gets the whole answer or nothing.
    fn socket(&self) -> rustix::io::Result<(OwnedFd, SocketAddrUnix)> {
        let address = SocketAddrUnix::new_abstract_name(self.name.as_bytes())?;
        let kind = SocketType::SEQPACKET;
        Ok((net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?, address))
    }
}

fn pid_namespace(of: impl Display) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{of}/ns/pid"))
}

/// The process at the other end of a connection, if it belongs to the same user.
fn peer(socket: &OwnedFd) -> Option<Pid> {
    let peer = sockopt::socket_peercred(socket).ok()?;
    (peer.uid == process::geteuid()).then_some(peer.pid)
}

fn parse(answer: &[u8]) -> Option<Vec<Pid>> {
    let numbers = str::from_utf8(answer).ok()?.strip_prefix(FOUND)?.split_ascii_whitespace();
    // `from_raw` panics on a negative number.
    let process = |number: &str| Pid::from_raw(number.parse().ok().filter(|number| *number > 0)?);
    numbers.map(process).collect()
}

/// The guardian that scans for the others.
#[derive(Debug)]
pub(super) struct Scanner {
    socket: OwnedFd,
}

impl Scanner {
    /// Answers the requesters until none waits, but at most for [`SERVE_FOR`] and one more scan.
    pub(super) fn serve(&self) {
        let until = clock::now() + SERVE_FOR;
        while clock::now() < until {
            let requesters = self.accept();
            if requesters.is_empty() || answer(requesters, until + SERVE_FOR).is_err() {
                return;
            }
        }
    }

    /// Accepts the connections that are there.
    fn accept(&self) -> Vec<(OwnedFd, Pid)> {
        let mut requesters = Vec::new();
        // Connections of other users count too. Otherwise such a user could keep this loop busy.
        for _ in 0..REQUESTERS_MAX {
            match net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => requesters.extend(peer(&socket).map(|process| (socket, process))),
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    // Too many open files: the scan needs some.
                    requesters.truncate(requesters.len().saturating_sub(FILES_SPARE));
                    break;
                }
            }
        }
        requesters
    }
}

/// Answers requesters by a scan that begins only now, after their requests. If the scan fails, or it is too late for
/// those behind silent ones, their connections close, and they connect to the next scanner.
fn answer(requesters: Vec<(OwnedFd, Pid)>, until: Duration) -> io::Result<()> {
    let scan = Scan::run()?;
    for (socket, process) in requesters {
        if clock::now() > until {
            break;
        }
        // The requester may have given up.
        let _ = scan.answer(&socket, process);
    }
    Ok(())
}

/// What one pass over `/proc` found.
#[derive(Debug, Default)]
struct Scan {
    /// The processes that carry an owner in their environment.
    owners: HashMap<Vec<u8>, Vec<Pid>>,
    /// The processes whose environment could be read.
    readable: HashSet<Pid>,
}

impl Scan {
    /// Fails if a process may be missing because no more files could be opened.
    fn run() -> io::Result<Self> {
        let mut scan = Self::default();
        let mut environment = Vec::new();
        for process in escaped::processes()? {
            match escaped::read_environment(process, &mut environment) {
                Err(error) if is_shortage(&error) => return Err(error),
                Err(_) => continue,
                Ok(()) => {}
            }
            if !environment.is_empty() {
                scan.readable.insert(process);
            }
            for owner in escaped::owners(&environment) {
                let processes = scan.owners.entry(owner.to_owned()).or_default();
                if processes.last() != Some(&process) {
                    processes.push(process);
                }
            }
        }
        Ok(scan)
    }

    fn answer(&self, socket: &OwnedFd, requester: Pid) -> rustix::io::Result<()> {
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(REQUEST_WITHIN))?;
        let mut owner = [0; OWNER_MAX];
        let length = rustix::io::read(socket, &mut owner)?;
        let mut answer = UNREADABLE.to_owned();
        let found = self.owners.get(&owner[..length]).map_or(&[][..], |found| found);
        if self.readable.contains(&requester) && found.len() <= PROCESSES_MAX {
            FOUND.clone_into(&mut answer);
            for process in found {
                answer += &format!(" {}", process.as_raw_pid());
            }
        }
        net::send(socket, answer.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }
}

/// Whether this process, or the machine, is short of files or memory.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::{Child, Command};
    use std::thread::JoinHandle;
    use std::time::Instant;

    use super::super::escaped::{OWNER_VAR, OWNERS_VAR, Search, Whose};
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A place of its own for each test.
    fn place(test: &str) -> SharedScan {
        SharedScan { name: format!("fairlock-test-{}-{test}", std::process::id()), ..real() }
    }

    fn real() -> SharedScan {
        SharedScan::new().unwrap()
    }

    /// A process with an owner in its environment, killed when dropped.
    struct Marked(Child);

    impl Marked {
        fn start(variable: &str, owners: &str) -> Self {
            let sleep = Command::new("sleep").arg("60").env(variable, owners).spawn().unwrap();
            let marked = Self(sleep);
            let (mut environment, start) = (Vec::new(), Instant::now());
            while escaped::read_environment(marked.pid(), &mut environment).is_err()
                || !escaped::owners(&environment).any(|owner| owners.as_bytes().starts_with(owner))
            {
                assert!(start.elapsed() < LIMIT, "{owners} does not begin");
                thread::yield_now();
            }
            marked
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }
    }

    impl Drop for Marked {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Requests in a thread of its own. The thread's answer is valid only if it did not scan itself.
    fn request(name: &str, owner: &'static str) -> JoinHandle<Option<Vec<Pid>>> {
        let shared = SharedScan { name: name.to_owned(), ..real() };
        thread::spawn(move || {
            let found = shared.find(owner.as_bytes())?;
            found.scanner.is_none().then_some(found.processes)
        })
    }

    fn serve_until_answered(scanner: &Scanner, request: JoinHandle<Option<Vec<Pid>>>) -> Vec<Pid> {
        while !request.is_finished() {
            scanner.serve();
            thread::yield_now();
        }
        request.join().unwrap().expect("an answer of the scanner")
    }

    fn wait_for_request(scanner: &Scanner) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        let limit = Timespec::try_from(LIMIT).unwrap();
        let polled = &mut [PollFd::new(&scanner.socket, PollFlags::IN)];
        assert_eq!(poll(polled, Some(&limit)), Ok(1));
    }

    #[test]
    fn requesters_get_the_processes_of_their_own_owner() {
        let place = place("two");
        let scanner = place.listen().unwrap();
        let first = Marked::start(OWNER_VAR, "shared-two:1");
        let second = Marked::start(OWNER_VAR, "shared-two:2");
        let nested = Marked::start(OWNERS_VAR, "shared-two:1 shared-two:3");
        let requests =
            ["shared-two:1", "shared-two:2", "shared-two:"].map(|it| request(&place.name, it));
        let mut answers = requests.map(|request| serve_until_answered(&scanner, request));
        answers[0].sort_by_key(|process| process.as_raw_pid());
        let mut of_first = [first.pid(), nested.pid()];
        of_first.sort_by_key(|process: &Pid| process.as_raw_pid());
        assert_eq!(answers, [of_first.to_vec(), vec![second.pid()], vec![]]);
    }

    #[test]
    fn process_that_starts_after_the_request_is_found_by_its_scan_or_the_second() {
        let place = place("later");
        let scanner = place.listen().unwrap();
        let first_request = request(&place.name, "shared-later:1");
        wait_for_request(&scanner);
        let before_scan = Marked::start(OWNER_VAR, "shared-later:1");
        let first = serve_until_answered(&scanner, first_request);
        assert_eq!(first, [before_scan.pid()], "the scan began before the request");
        let after_scan = Marked::start(OWNER_VAR, "shared-later:1");
        let second_request = request(&place.name, "shared-later:1");
        let second = serve_until_answered(&scanner, second_request);
        assert!(second.contains(&after_scan.pid()), "the second answer is of the first scan");
    }

    #[test]
    fn guardian_without_a_scanner_scans_for_itself_and_those_that_connect() {
        let place = place("alone");
        let marked = Marked::start(OWNER_VAR, "shared-alone:1");
        let found = place.find(b"shared-alone:1").unwrap();
        assert_eq!(found.processes, [marked.pid()]);
        let scanner = found.scanner.expect("it scanned");
        let other = request(&place.name, "shared-alone:1");
        assert_eq!(serve_until_answered(&scanner, other), [marked.pid()]);
        drop(scanner);
        assert!(place.find(b"shared-alone:1").unwrap().scanner.is_some(), "the name is free");
    }

    #[test]
    fn search_finds_its_process_however_the_scanner_fails() {
        let marked = Marked::start(OWNER_VAR, "shared-fails:1");
        let accept = |scanner: &Scanner| {
            wait_for_request(scanner);
            net::accept(&scanner.socket).unwrap()
        };
        let search_beside = |how: &str, fails: &(dyn Fn(Scanner) -> Vec<OwnedFd> + Sync)| {
            let place = SharedScan { answer_within: Duration::from_millis(300), ..place("fails") };
            let scanner = place.listen().unwrap();
            let mut search = Search::new(OsStr::new("shared-fails:1"), Whose::All, Pid::INIT);
            search.shared = Some(place);
            // The scanner's sockets stay open until the search has ended.
            let _open = thread::scope(|scope| {
                let open = scope.spawn(|| fails(scanner));
                let start = Instant::now();
                assert_eq!(search.signal(None), 1, "the scanner {how}");
                assert_eq!(search.signal(None), 1, "the scanner {how}, second scan");
                assert!(start.elapsed() < LIMIT, "the scanner {how}");
                open.join().unwrap()
            });
        };
        search_beside("exits", &|scanner| {
            wait_for_request(&scanner);
            Vec::new()
        });
        search_beside("exits after it accepted", &|scanner| {
            accept(&scanner);
            Vec::new()
        });
        search_beside("exits after it read the request", &|scanner| {
            let socket = accept(&scanner);
            assert_ne!(rustix::io::read(&socket, &mut [0; OWNER_MAX]).unwrap(), 0);
            Vec::new()
        });
        search_beside("is silent", &|scanner| vec![accept(&scanner), scanner.socket]);
        search_beside("accepts nothing", &|scanner| vec![scanner.socket]);
        for answer in [UNREADABLE, "found 1 x", "found -1", "found 0", "12", "\0", "\u{fffd}"] {
            search_beside(&format!("answers {answer:?}"), &|scanner| {
                let socket = accept(&scanner);
                net::send(&socket, answer.as_bytes(), SendFlags::NOSIGNAL).unwrap();
                vec![socket, scanner.socket]
            });
        }
        drop(marked);
    }

    /// `connect` blocks then, without the limit of time forever.
    #[test]
    fn request_to_a_full_queue_ends() {
        let place = SharedScan { answer_within: Duration::from_millis(300), ..place("full") };
        let scanner = place.listen().unwrap();
        net::listen(&scanner.socket, 0).unwrap();
        let (filler, address) = place.socket().unwrap();
        net::connect(&filler, &address).unwrap();
        assert!(place.find(b"shared-full:1").is_none());
    }

    /// Any user can take the name and not listen.
    #[test]
    fn request_to_a_name_that_nobody_listens_to_ends_soon() {
        let place = place("taken");
        let (taken, address) = place.socket().unwrap();
        net::bind(&taken, &address).unwrap();
        let start = Instant::now();
        assert!(place.find(b"shared-taken:1").is_none());
        assert!(start.elapsed() < ANSWER_WITHIN, "{:?}", start.elapsed());
    }

    /// It may have started another process before it ended.
    #[test]
    fn process_that_ended_after_it_was_found_counts() {
        let place = place("ended");
        let scanner = place.listen().unwrap();
        let mut search = Search::new(OsStr::new("shared-ended:1"), Whose::All, Pid::INIT);
        search.shared = Some(place);
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                wait_for_request(&scanner);
                let socket = net::accept(&scanner.socket).unwrap();
                assert_ne!(rustix::io::read(&socket, &mut [0; OWNER_MAX]).unwrap(), 0);
                let answer = format!("{FOUND} {}", ended.id());
                net::send(&socket, answer.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            });
            assert_eq!(search.signal(None), 1);
        });
    }

    /// A scanner that may not read the requester may not read the requester's processes either.
    #[test]
    fn requester_that_the_scanner_cannot_read_gets_no_answer() {
        let place = place("unreadable");
        let scanner = place.listen().unwrap();
        let request = request(&place.name, "shared-unreadable:1");
        wait_for_request(&scanner);
        for (socket, process) in scanner.accept() {
            assert_eq!(process, process::getpid());
            let mut scan = Scan::run().unwrap();
            assert!(scan.readable.remove(&process));
            scan.answer(&socket, process).unwrap();
        }
        assert_eq!(request.join().unwrap(), None);
    }
}
