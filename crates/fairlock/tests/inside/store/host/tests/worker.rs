//! A process of its own that uses the file: this test binary, whose environment tells it to run one
//! test.

use super::fixture::*;
use fairlock_core::{
    Body, Channel, ClientId, Fate, Kind, LockState, Mode, Op, OwnerId, Payload, RequestId, Rules,
    Share, ShareAcquire,
};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ORDER: &str = "FAIRLOCK_HOST_WORKER";
const PATH: &str = "FAIRLOCK_HOST_PATH";

/// The prefix of every line that a worker prints.
const SAYS: &str = "worker: ";

/// The locks that `spin` works on, by number.
pub(super) const LOCKS: [Kind; 4] = [Kind::Fair, Kind::Fair, Kind::ReadWrite, Kind::Semaphore];

/// The permits of the semaphore.
pub(super) const LIMIT: u32 = 3;

/// In place of the client that got a token, where several get it.
pub(super) const READERS: &str = "readers";

/// A worker process, killed on drop.
pub(super) struct Worker {
    pub(super) child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

/// The command that starts a worker with this order.
pub(super) fn command(order: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "store::host::tests::worker::worker", "--nocapture", "--test-threads=1"])
        .env(ORDER, order)
        .env(PATH, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// The same, run by another command: `program` with `args`, followed by the worker's command.
pub(super) fn command_under(program: &str, args: &[&str], order: &str, path: &Path) -> Command {
    let inner = command(order, path);
    let mut command = Command::new(program);
    command
        .args(args)
        .arg(fairlock_testkit::program::for_others())
        .args(inner.get_args())
        .envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

impl Worker {
    pub(super) fn start(order: &str, path: &Path) -> Self {
        Self::run(&mut command(order, path))
    }

    pub(super) fn run(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    /// The worker's next message; `None` when it has ended.
    pub(super) fn says(&mut self) -> Option<String> {
        let mut lines = self.output.by_ref().map_while(Result::ok);
        // The line may begin with output of the test harness.
        lines.find_map(|line| Some(line.split_once(SAYS)?.1.to_owned()))
    }

    pub(super) fn tell(&mut self) {
        let mut input = self.input.as_ref().unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// Kills it and waits until it is gone. It must not have ended by itself.
    pub(super) fn kill(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "a worker has ended by itself: {ended:?}");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: &str) {
    println!("{SAYS}{line}");
}

fn say_held(opened: Result<super::super::HostFile, crate::Error>) {
    // The file is closed again before the worker prints this.
    let held = opened.map(|mut file| state(&mut file, "job").hold.len());
    match held {
        Ok(held) => say(&format!("holds: {held}")),
        Err(error) => say(&format!("{error:?}")),
    }
}

/// Not a test unless this process was started as a worker.
#[test]
fn worker() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let path = std::path::PathBuf::from(std::env::var_os(PATH).unwrap());
    let (what, number) = order.split_once(' ').unwrap_or((&order, "0"));
    match what {
        "open" => match open(&path) {
            Ok(_) => say("opened"),
            Err(error) => say(&format!("{error:?}")),
        },
        "held" => say_held(open(&path)),
        "refused" => say_held(open_hastily(&path)),
        "shared" => {
            let options = super::super::OpenOptions { shared_with_group: true, ..options() };
            match super::super::HostFile::open(&path, &options) {
                Ok(mut file) => {
                    let token = take(&mut file, "job", 1);
                    assert_eq!(body(&mut file, "job", &release(1, token)), Body::Released);
                    say("opened");
                    // Other processes come and go meanwhile.
                    let _ = std::io::stdin().lines().next();
                }
                Err(error) => say(&format!("{error:?}")),
            }
        }
        "threads" => threads(&path),
        "descriptors" => descriptors(&path),
        "block" => {
            let file = open(&path).unwrap();
            file.db.execute_batch("BEGIN IMMEDIATE").unwrap();
            say("blocks");
            let _ = std::io::stdin().lines().next();
        }
        "stand" => stand(&path),
        "time" => {
            let file = open(&path).unwrap();
            say("ready");
            while std::io::stdin().lines().next().is_some_and(|line| line.is_ok()) {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
                say(&format!("{} {wall}", file.now_us()));
            }
        }
        "spin" => spin(&path, number.parse().unwrap()),
        other => panic!("no such order: {other}"),
    }
}

/// Tries for a second to write to a file that is locked, and prints how often its threads slept.
fn stand(path: &Path) {
    let slept = || -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let of = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
        };
        tasks.map(|task| of(task.unwrap())).sum()
    };
    let options = super::super::OpenOptions { busy: Duration::from_secs(1), ..options() };
    let mut file = super::super::HostFile::open(path, &options).unwrap();
    say("ready");
    let _ = std::io::stdin().lines().next();
    let before = slept();
    apply(&mut file, "job", &acquire(2, Mode::Try)).expect_err("it is locked");
    say(&format!("slept {}", slept() - before));
}

/// A client whose process cannot start a thread for a while.
fn threads(path: &Path) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const SOON: Duration = Duration::from_secs(30);
    let count = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
        line.trim().parse::<u32>().unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let own = count();
        let client = crate::Client::with_config(crate::Config::host(path)).await.unwrap();
        client.ping().await.unwrap();
        // The thread for blocking calls ends by itself; then only the client's own is left.
        let began = std::time::Instant::now();
        while count() > own + 1 {
            assert!(began.elapsed() < SOON, "{} threads", count());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let limit = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..limit }).unwrap();
        for _ in 0..3 {
            let pong = tokio::time::timeout(SOON, client.ping()).await.expect("no answer");
            assert_eq!(pong.unwrap_err().kind(), crate::ErrorKind::Unavailable);
            let seen = tokio::time::timeout(SOON, client.fair_lock("job").inspect()).await;
            seen.expect("no answer").unwrap();
        }
        setrlimit(Resource::Nproc, limit).unwrap();
        client.ping().await.unwrap();
        let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
        client.shutdown().await;
    });
    say("works again");
}

/// How a process judges a live client when it can open nothing, or one file more, because all other
/// descriptors are taken.
fn descriptors(path: &Path) {
    use super::super::folder::Folder;
    use super::super::{cleanup, liveness::Liveness, opening, users};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut file = open(path).unwrap();
    let folder = Folder::open(path, &options()).unwrap();
    let _life = Liveness::begin(&folder, client(1), false).unwrap();
    let info = crate::ClientInfo::here(&crate::Config::memory(), SystemTime::now());
    file.announce(client(1), &info).unwrap();
    let limit = getrlimit(Resource::Nofile);
    // The lowest free descriptor is always given out first.
    let free = || {
        let next = std::fs::File::open("/dev/null").unwrap();
        u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&next)).unwrap()
    };
    let left = |count: u64| {
        setrlimit(Resource::Nofile, limit).unwrap();
        let most = free() + count;
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).unwrap();
    };
    let told = |what: &str, is_right: bool| say(&format!("{what}: {is_right}"));
    left(1);
    // The folder can be read, but nothing in it can be opened.
    assert!(std::fs::read_dir(path.parent().unwrap()).is_ok());
    told("lived in", opening::is_lived_in(path));
    left(0);
    assert!(std::fs::File::open("/dev/null").is_err(), "there is a descriptor");
    told("in use", users::has_boot_in_use(path));
    let file = std::sync::Mutex::new(file);
    cleanup::sweep(&folder, &file, |_| None);
    let rows = file.lock().unwrap().announced(None, 10).unwrap();
    told("not swept", rows == [client(1)]);
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Locks and unlocks, waits and gives up, opens and closes the file, until it is killed. Prints
/// every token, and to whom it was given.
fn spin(path: &Path, seed: u64) {
    let mut file = open(path).unwrap();
    if seed.is_multiple_of(2) {
        // The log is written back very often, so that kills hit that as well.
        let pages = "PRAGMA wal_autocheckpoint = 5";
        file.db.query_row(pages, [], |_| Ok(())).unwrap();
    }
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let client = ClientId::from_random(u128::from(seed + 1) << 64);
    let me = OwnerId::ours(client, 1).unwrap();
    let rules = Rules { beat_ms: 20, dead_ms: 60, ..Rules::default() };
    let config = crate::Config::memory().label("a worker");
    say("ready");
    // Granted and not yet released, by lock.
    let mut held = vec![None; LOCKS.len()];
    for count in 0_u64.. {
        let at = draw(LOCKS.len() as u64) as usize;
        let lock = name(&format!("lock {at}"));
        let request = RequestId::from_random(u128::from(seed) << 64 | u128::from(count));
        let kind = LOCKS[at];
        let share = match kind {
            Kind::Semaphore => Share::Permits { n: 1 + draw(2) as u32, limit: LIMIT },
            _ if draw(3) == 0 => Share::Whole,
            _ => Share::Read,
        };
        let op = match (draw(10), held[at]) {
            (0, Some((token, of))) if kind == Kind::ReadWrite => {
                Op::Downgrade { owner: me.clone(), token }.of_hold(kind, of, 0)
            }
            (0..6, Some((token, of))) => {
                let owner = me.clone();
                Op::Release { kind, owner, token, keep: 0, change: count }.of_hold(kind, of, 0)
            }
            (0..5, None) => {
                let acquire = fairlock_core::Acquire {
                    kind,
                    owner: me.clone(),
                    request,
                    lease_ms: 30,
                    mode: if draw(2) == 0 { Mode::Wait } else { Mode::Try },
                    order: None,
                    not_after_ms: u64::MAX,
                    sure: true,
                    shared_owner: false,
                };
                match kind {
                    Kind::Fair => Op::Acquire(acquire),
                    _ => Op::AcquireShare(Box::new(ShareAcquire { acquire, share })),
                }
            }
            (6, Some((token, of))) => {
                Op::Renew { kind, owner: me.clone(), token, ttl_ms: 30 }.of_hold(kind, of, 0)
            }
            (7, _) => Op::Beat { client, waiters: vec![me.clone()] },
            (8, _) if draw(20) == 0 => Op::Force { kind },
            (9, _) if draw(20) == 0 => {
                Op::Leave { kind, owner: me.clone(), request, bury: true, shared_owner: true }
            }
            (9, _) if draw(20) == 0 => {
                let info = crate::ClientInfo::here(&config, SystemTime::now());
                file.announce(client, &info).unwrap();
                file.farewell(client).unwrap();
                continue;
            }
            _ => Op::Nudge,
        };
        let (answer, effects) = file.apply(&lock, &op, &rules, &Everybody).unwrap();
        if matches!(op.bare(), Op::Release { .. }) {
            held[at] = None;
        }
        let granted = match answer.body {
            Body::Granted { token, .. } => Some((token, request)),
            Body::GrantedBefore(grant) => Some((grant.token, grant.request)),
            Body::Beaten { held: Some(grant), .. } => Some((grant.token, grant.request)),
            Body::Fates { fates, .. } => fates.into_iter().find_map(|fate| match fate {
                Fate::Granted(grant) => Some((grant.token, grant.request)),
                _ => None,
            }),
            _ => None,
        };
        held[at] = granted.or(held[at]);
        let now = file.known(&lock).and_then(LockState::shares);
        let reads = |token| {
            let mut holds = now.into_iter().flat_map(|shares| shares.holds().values());
            holds.any(|hold| hold.token == token && hold.share == Share::Read)
        };
        let passed_on =
            effects.iter().filter_map(|effect| match (&effect.channel, &effect.payload) {
                (Channel::Inbox(to), Payload::Grant { grant, .. }) => Some((grant.token, *to)),
                _ => None,
            });
        for (token, to) in passed_on.chain(granted.map(|(token, _)| (token, client))) {
            match reads(token) {
                true => say(&format!("{at} {token} {READERS}")),
                false => say(&format!("{at} {token} {to}")),
            }
        }
    }
}
