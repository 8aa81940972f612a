//! The host store: uncontended pairs, alone and beside a thousand readers; hand-over between processes
//! compared with `flock`, and after the death of a holder; and the cost of waiting.
//!
//! The processes are this program, started with another first argument.

use crate::stats::{percentile, us};
use fairlock::Client;
use fairlock_testkit::history::now_ns;
use fairlock_testkit::processes::Owned;
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::threads::{self, Counts};
use rustix::fs::{FlockOperation, flock};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Goals of the host store: pairs a second, and the CPU time of an idle waiter per minute
/// (docs/testing.md, N12 and N13).
const GOAL: u32 = 10_000;
const GOAL_IDLE_MS: u32 = 1;

/// Pairs of a reader a second, and the time from the death of a holder to the next grant.
const GOAL_READS: u32 = 8_000;
const GOAL_DEATH_MS: u32 = 10;

/// How many read while the pairs of one more are measured.
const READERS: u32 = 1_000;

/// How many holders are killed, of each share.
const DEATHS: u32 = 50;

/// A waiter that was woken several times within 50 ms pauses until these are over.
const LOOKS_APART: Duration = Duration::from_millis(100);

/// Number of measured hand-overs.
const TURNS: u32 = 1_000;

/// How long each turn holds the lock: long enough for the others to be waiting.
const HOLD: Duration = Duration::from_millis(2);

/// Commands in one queue, started by `fairlock run` or by `flock`.
const COMMANDS: u32 = 100;

const WAITERS: u32 = 100;

/// Until every waiter sleeps and tokio's threads for blocking work have exited: they end after ten
/// seconds, and the CPU time they used is no longer counted.
const SETTLE: Duration = Duration::from_secs(12);

/// How long the waiters are watched: their heartbeats are up to twenty seconds apart and started at
/// the same time, so a shorter interval would count too many or too few of them.
const WATCHED: Duration = Duration::from_secs(60);

type Line = Result<String, std::io::Error>;

/// The entry point of this program when it runs as one of its own processes.
pub(crate) fn process(args: &[&str]) {
    match args {
        ["turns", url] => print_all(&turns_fairlock(url)),
        ["turns-flock", path] => print_all(&turns_flock(path)),
        // The command in the queue: prints when it began and ended.
        ["turn"] => {
            let begun = now_ns();
            std::thread::sleep(HOLD);
            print_all(&[("A", begun), ("R", now_ns())]);
        }
        ["shares"] => {
            let dir = TempDir::on_disk();
            shares(&format!("sqlite:{}/locks", dir.path().display()));
        }
        ["wait", url] => wait(url),
        ["hold", share, url] => hold(share, url),
        _ => panic!("host [SECONDS] | host shares"),
    }
}

pub(crate) fn report(span: Duration) {
    let dir = TempDir::on_disk();
    let path = dir.path().join("locks");
    let url = format!("sqlite:{}", path.display());
    uncontended(&url, span);
    shares(&url);
    for (what, args, store) in [
        ("two processes, library", "turns", url.as_str()),
        ("two processes, flock(2)", "turns-flock", dir.path().join("flock").to_str().unwrap()),
    ] {
        let children = (0..2).map(|_| this(&["host", args, store]).spawn().unwrap()).collect();
        print_turns(what, hear(children));
    }
    commands(&path);
    waiting(&url);
}

fn uncontended(url: &str, span: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let lock = client.fair_lock("bench");
        let mut took = Vec::new();
        let began = Instant::now();
        while began.elapsed() < span {
            let start = Instant::now();
            let _ = lock.lock().await.unwrap().release().await.unwrap();
            took.push(start.elapsed());
        }
        let rate = took.len() as f64 / began.elapsed().as_secs_f64();
        let (p50, p99) = (percentile(&mut took, 50), percentile(&mut took, 99));
        println!(
            "host: uncontended lock+release, 1 task: {rate:.0}/s (goal {GOAL}), p50 {}, p99 {}",
            us(p50),
            us(p99)
        );
    });
}

/// What locks that several may hold cost.
fn shares(url: &str) {
    reads(url, Duration::from_secs(2));
    deaths(url);
}

/// Pairs of one reader: alone, beside many others of its client, and beside as many of another client
/// that does nothing meanwhile.
fn reads(url: &str, span: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let other = Client::connect(url).await.unwrap();
        let lock = client.rw_lock("reads");
        for (what, readers) in [
            ("1 task".to_owned(), None),
            (format!("beside {READERS} of its own"), Some(&client)),
            (format!("beside {READERS} of another client"), Some(&other)),
        ] {
            let mut beside = Vec::new();
            for client in (0..READERS).filter_map(|_| readers) {
                beside.push(client.rw_lock("reads").read().await.unwrap());
            }
            let mut took = Vec::new();
            let began = Instant::now();
            while began.elapsed() < span {
                let start = Instant::now();
                let _ = lock.read().await.unwrap().release().await.unwrap();
                took.push(start.elapsed());
            }
            let rate = took.len() as f64 / began.elapsed().as_secs_f64();
            let (p50, p99) = (percentile(&mut took, 50), percentile(&mut took, 99));
            println!(
                "host: read+release, {what}: {rate:.0}/s (goal {GOAL_READS}), p50 {}, p99 {}",
                us(p50),
                us(p99)
            );
            for reader in beside {
                let _ = reader.release().await.unwrap();
            }
        }
    });
}

/// Holds a share until the process is killed.
fn hold(share: &str, url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let _guard = match share {
            "read" => client.rw_lock("deaths").read().await.unwrap().into_guard(),
            "fair" => client.fair_lock("deaths of fair").lock().await.unwrap(),
            _ => client.semaphore("permits", 2).acquire().await.unwrap().into_guard(),
        };
        println!("holds");
        std::io::stdout().flush().unwrap();
        std::future::pending::<()>().await;
    });
}

/// From the end of a killed holder's process to the next grant; of shares, of the last of two holders,
/// to the grant of what needs both. How long the kernel needs to end the process is printed beside it.
fn deaths(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        for share in ["fair", "read", "permit"] {
            let (mut dying, mut took) = (Vec::new(), Vec::new());
            for _ in 0..DEATHS {
                let start = || {
                    let mut child = Owned::spawn(&mut this(&["host", "hold", share, url])).unwrap();
                    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
                    assert_eq!(lines.next().and_then(Line::ok).as_deref(), Some("holds"));
                    child
                };
                let mut holders: Vec<_> = (0..if share == "fair" { 1 } else { 2 }).map(|_| start()).collect();
                let (rw, permits) = (client.rw_lock("deaths"), client.semaphore("permits", 2));
                let (line, pool) = (rw.clone(), permits.clone());
                let fair = client.fair_lock("deaths of fair");
                let queue = fair.clone();
                let turn = tokio::spawn(async move {
                    match share {
                        "read" => rw.write().await.unwrap().into_guard(),
                        "fair" => fair.lock().await.unwrap(),
                        _ => permits.acquire_many(2).await.unwrap().into_guard(),
                    }
                });
                let waiting = async || match share {
                    "read" => line.inspect().await.unwrap().queue_len,
                    "fair" => queue.inspect().await.unwrap().queue_len,
                    _ => pool.inspect().await.unwrap().queue_len,
                };
                while waiting().await == 0 {
                    tokio::time::sleep(HOLD).await;
                }
                let mut last = holders.pop().expect("one at least");
                holders.iter_mut().for_each(|holder| holder.kill().unwrap());
                tokio::time::sleep(LOOKS_APART).await;
                let began = Instant::now();
                last.kill().unwrap();
                last.wait().unwrap();
                let ended = Instant::now();
                dying.push(ended - began);
                let guard = turn.await.unwrap();
                took.push(ended.elapsed());
                let _ = guard.release().await.unwrap();
            }
            println!(
                "host: hand-over after the end of a killed holder, {share}: p50 {}, longest {} (goal \
                 {GOAL_DEATH_MS} ms); the kill itself: p50 {}, longest {}",
                us(percentile(&mut took, 50)),
                us(percentile(&mut took, 100)),
                us(percentile(&mut dying, 50)),
                us(percentile(&mut dying, 100)),
            );
        }
    });
}

/// Takes the lock, holds it for a moment and releases it, again and again.
fn turns_fairlock(url: &str) -> Vec<(&'static str, u64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let lock = client.fair_lock("turns");
        let mut seen = Vec::new();
        for _ in 0..TURNS / 2 {
            let guard = lock.lock().await.unwrap();
            seen.push(("A", now_ns()));
            std::thread::sleep(HOLD);
            seen.push(("R", now_ns()));
            let _ = guard.release().await.unwrap();
        }
        seen
    })
}

fn turns_flock(path: &str) -> Vec<(&'static str, u64)> {
    let file = File::create(path).unwrap();
    let mut seen = Vec::new();
    for _ in 0..TURNS / 2 {
        flock(&file, FlockOperation::LockExclusive).unwrap();
        seen.push(("A", now_ns()));
        std::thread::sleep(HOLD);
        seen.push(("R", now_ns()));
        flock(&file, FlockOperation::Unlock).unwrap();
        // `flock` is not fair: let the other process lock the file first.
        std::thread::sleep(HOLD / 2);
    }
    seen
}

/// `cargo run -p fairlock-bench` builds only the bench; the command next to it may be outdated or
/// missing.
pub(crate) fn build_program() {
    let Some(cargo) = std::env::var_os("CARGO") else { return };
    let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
    let build =
        Command::new(cargo).args(["build", "--quiet", "-p", "fairlock-cli"]).args(profile).status();
    assert!(
        build.is_ok_and(|status| status.success()),
        "fairlock-cli must be built to be measured"
    );
}

/// The same for commands: from the end of one to the start of the next.
fn commands(path: &Path) {
    build_program();
    let own = std::env::current_exe().unwrap();
    let fairlock = own.with_file_name("fairlock");
    let (url, other) = (format!("sqlite:{}", path.display()), path.with_extension("flock"));
    let flock: &[&str] = &["flock", other.to_str().unwrap()];
    let run: &[&str] = &[fairlock.to_str().unwrap(), "run", "--url", &url, "commands", "--"];
    for (what, words) in [("flock(1)", flock), ("fairlock run", run)] {
        let start = || {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg(&own).args(["host", "turn"]);
            command.stdout(Stdio::piped()).spawn()
        };
        match (0..COMMANDS).map(|_| start()).collect() {
            Ok(children) => print_turns(&format!("{COMMANDS} commands, {what}"), hear(children)),
            Err(error) => println!("host: SKIPPED: {what}: {error}"),
        }
    }
}

/// The output of all children, sorted by time.
fn hear(children: Vec<Child>) -> Vec<(u64, bool)> {
    let mut seen = Vec::new();
    for mut child in children {
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "a process of the bench has failed");
        seen.extend(said.lines().map(|line| {
            let (what, at) = line.split_once(' ').unwrap();
            (at.parse::<u64>().unwrap(), what == "A")
        }));
    }
    seen.sort_unstable();
    seen
}

/// Times from each release to the acquisition that follows it.
fn print_turns(what: &str, seen: Vec<(u64, bool)>) {
    let pairs = seen.windows(2).filter(|pair| !pair[0].1 && pair[1].1);
    let mut took: Vec<_> = pairs.map(|pair| Duration::from_nanos(pair[1].0 - pair[0].0)).collect();
    println!(
        "host: hand-over, {what}: p50 {}, p99 {} of {}",
        us(percentile(&mut took, 50)),
        us(percentile(&mut took, 99)),
        took.len()
    );
}

/// Waits for a lock that is never released.
fn wait(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let lock = client.fair_lock("idle");
        let turn = lock.enqueue().await.unwrap();
        println!("waits");
        std::io::stdout().flush().unwrap();
        let _turn = turn;
        std::future::pending::<()>().await;
    });
}

/// The cost of waiters when nothing happens.
fn waiting(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::connect(url)).unwrap();
    let _guard = runtime.block_on(client.fair_lock("idle").lock()).unwrap();
    let start = || {
        let mut child = Owned::spawn(&mut this(&["host", "wait", url])).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().and_then(Line::ok).as_deref(), Some("waits"));
        child
    };
    let children: Vec<_> = (0..WAITERS).map(|_| start()).collect();
    std::thread::sleep(SETTLE);
    let (before, began) = (cpu(&children), Instant::now());
    std::thread::sleep(WATCHED);
    let now = cpu(&children);
    let added = before.iter().zip(&now).flat_map(|(before, now)| threads::since(before, now));
    let used = added.map(|counts| counts.ran).sum::<Duration>().as_secs_f64() * 1e3;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!(
        "host: {WAITERS} idle waiters, a process each: {:.2} ms of CPU a minute for each (goal {GOAL_IDLE_MS})",
        used / minutes / f64::from(WAITERS)
    );
}

/// The CPU time that each thread of these processes has used so far.
fn cpu(children: &[Owned]) -> Vec<HashMap<u32, Counts>> {
    let of = |child: &Owned| threads::threads(child.id()).expect("a waiter that lives");
    children.iter().map(of).collect()
}

fn this(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args).stdout(Stdio::piped());
    command
}

fn print_all(lines: &[(&str, u64)]) {
    let text: String = lines.iter().map(|(what, at)| format!("{what} {at}\n")).collect();
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}
