//! The lock-set workload, as in Jepsen: processes add to sets that a lock protects, by reading the
//! whole set, waiting, and writing the whole set back, and are stopped for longer than their
//! leases. They do not check their guards between read and write, so only the token prevents lost
//! updates.
//!
//! Half of the sets check tokens and must not lose an acknowledged update. The other half do not
//! check them; their losses show what fencing prevents, and are reported.

use crate::report::Verdict;
use crate::resource::{Access, Resource};
use fairlock::{Client, Config};
use fairlock_testkit::processes::Owned;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::{Generation, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "lockset";

const PROCESSES: usize = 5;
/// Sets of each kind, and tasks per process on each set.
const SETS: usize = 8;

/// A tenth of the scale of Jepsen's workload, which has a lease of 2 s and sections of up to 2 s.
const LEASE: Duration = Duration::from_millis(200);
const SECTION_MS: u64 = 200;
/// How long a process is stopped, which is longer than a lease, and the pause in between.
const STOPPED: Duration = Duration::from_millis(300);
const BETWEEN: Duration = Duration::from_millis(100);

/// Minimum of acknowledged updates per second of a run.
const UPDATES_A_SECOND: u64 = 10;

struct Process {
    child: Owned,
    reader: std::thread::JoinHandle<Vec<(String, String)>>,
}

/// The result of the workload.
#[derive(Debug)]
pub(crate) struct Outcome {
    seconds: u64,
    seed: u64,
    took: Duration,
    pauses: u64,
    /// Acknowledged updates, and how many of them were lost.
    fenced: (u64, u64),
    bare: (u64, u64),
}

/// Returns `None`, with a message, when a server is missing.
pub(crate) fn run(seconds: u64, seed: u64) -> Option<Outcome> {
    println!("{NAME}: starting");
    let server = Server::start(Generation::Redis70)?;
    let resource = Resource::start()?;
    let mut rng = Rng::new(seed);
    let mut processes: Vec<_> =
        (0..PROCESSES).map(|_| start(&server.url(), resource.addr(), rng.below(1 << 40))).collect();
    let (began, mut pauses) = (Instant::now(), 0_u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        let pid = Pid::from_child(&rng.pick(&processes.iter().collect::<Vec<_>>()).child);
        kill_process(pid, Signal::STOP).expect("our own child");
        // The fault is that this is longer than a lease.
        std::thread::sleep(STOPPED);
        kill_process(pid, Signal::CONT).expect("our own child");
        pauses += 1;
        std::thread::sleep(BETWEEN);
    }
    let took = began.elapsed();
    for process in &mut processes {
        drop(process.child.stdin.take());
    }
    let mut acknowledged: HashMap<String, Vec<String>> = HashMap::new();
    for mut process in processes {
        process.child.wait().expect("our own child");
        for (set, element) in process.reader.join().expect("lines") {
            acknowledged.entry(set).or_default().push(element);
        }
    }
    let mut access = Access::to(resource.addr());
    let mut count = |kind: &str| {
        let (mut all, mut lost) = (0_u64, 0_u64);
        for (set, elements) in acknowledged.iter().filter(|(set, _)| set.starts_with(kind)) {
            let there: HashSet<String> = access.elements(set).into_iter().collect();
            all += elements.len() as u64;
            lost += elements.iter().filter(|element| !there.contains(*element)).count() as u64;
        }
        (all, lost)
    };
    let (fenced, bare) = (count("fenced"), count("bare"));
    Some(Outcome { seconds, seed, took, pauses, fenced, bare })
}

/// Prints the result and returns the verdict.
pub(crate) fn tell(outcome: &Outcome) -> (Verdict, Value) {
    let Outcome { seconds, seed, took, pauses, .. } = outcome;
    let ((fenced, fenced_lost), (bare, bare_lost)) = (outcome.fenced, outcome.bare);
    let enough = fenced >= UPDATES_A_SECOND * seconds;
    let verdict = match (fenced_lost, enough) {
        (1.., _) => Verdict::Violations,
        (0, false) => Verdict::Invalid,
        (0, true) => Verdict::Sound,
    };
    let share = 100.0 * bare_lost as f64 / bare.max(1) as f64;
    println!("{NAME}, {:.0} s, seed {seed}:", took.as_secs_f64());
    println!("  pauses          {pauses}, each longer than the lease");
    println!("  with tokens     {fenced} updates acknowledged, {fenced_lost} of them lost");
    println!(
        "  without         {bare} updates acknowledged, {bare_lost} of them lost ({share:.1} %)"
    );
    if !enough {
        println!("  INVALID: {fenced} updates of {}", UPDATES_A_SECOND * seconds);
    }
    let line = json!({
        "topology": NAME, "seed": seed, "seconds": took.as_secs_f64(), "pauses": pauses,
        "fenced": fenced, "fenced_lost": fenced_lost, "bare": bare, "bare_lost": bare_lost,
        "violations": fenced_lost, "valid": enough,
    });
    println!("json {line}");
    (verdict, line)
}

fn start(url: &str, resource: SocketAddr, seed: u64) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["lockset-worker", url, &resource.to_string(), &seed.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = Owned::spawn(&mut command).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        let line = |line: String| line.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        lines.map_while(Result::ok).filter_map(line).collect()
    });
    Process { child, reader }
}

/// `fairlock-torture lockset-worker URL RESOURCE SEED`: prints each acknowledged update.
pub(crate) fn worker(args: &[&str]) {
    let [url, resource, seed] = args else { panic!("URL RESOURCE SEED, not {args:?}") };
    let (resource, seed): (SocketAddr, u64) = (resource.parse().unwrap(), seed.parse().unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            // Reads until the input ends.
            let _ = std::io::stdin().lines().count();
            stop.store(true, Ordering::SeqCst);
        }
    });
    runtime.block_on(async {
        let config = Config::from_url(url).unwrap().heartbeat(Duration::from_millis(500));
        let client = Client::with_config(config).await.unwrap();
        let mut rng = Rng::new(seed);
        let tasks: Vec<_> = (0..2 * SETS)
            .map(|set| {
                let name = format!("{}-{}", if set < SETS { "fenced" } else { "bare" }, set % SETS);
                let rng = Rng::new(rng.below(1 << 40));
                tokio::spawn(add(client.clone(), name, resource, rng, Arc::clone(&stop)))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

async fn add(
    client: Client,
    set: String,
    resource: SocketAddr,
    mut rng: Rng,
    stop: Arc<AtomicBool>,
) {
    let lock = client.fair_lock(&set).lease(LEASE);
    let mut access = Access::to(resource);
    let (me, mut number) = (rng.below(1 << 40), 0_u64);
    while !stop.load(Ordering::SeqCst) {
        // On a shared machine the grant may come too late for so short a lease; try again.
        let Ok(guard) = lock.lock().await else { continue };
        let token = if set.starts_with("fenced") { Some(guard.token().get()) } else { None };
        if let Some(text) = access.read_set(&set, token) {
            tokio::time::sleep(Duration::from_millis(rng.below(SECTION_MS))).await;
            number += 1;
            let element = format!("{me:x}.{number:x}");
            if access.write_set(&set, token, &format!("{text}{element},")) {
                let mut out = std::io::stdout().lock();
                let _ = writeln!(out, "{set} {element}").and_then(|()| out.flush());
            }
        }
        // The hold is usually lost; the workload is about that.
        let _ = guard.release().await;
    }
}
