//! Runs the rounds, combines their results, and serves as a fairlock client to be killed.
//!
//! ```text
//! fairlock-interop rounds ROUNDS VERSION SERVER [SEED]    two lines; 1 if anything was violated
//! fairlock-interop clocks ROUNDS VERSION SERVER [SEED]    the same, with a Java client whose clock is wrong
//! fairlock-interop deaths ROUNDS VERSION SERVER [SEED]    the same, with clients that are killed
//! fairlock-interop vectors VERSION [SERVER]              records Java's part of testing/vectors
//! fairlock-interop report FOLDER COMMIT                   Markdown, of all results in the folder's files
//! fairlock-interop worker URL LOCK LEASE_MS FAIR_WAIT_MS TIMES fair|read|write|latch
//!         waits so many times in one queue, holds once, and never ends by itself; a latch it counts down
//! ```

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock::{Client, Config};
use fairlock_interop::java::Java;
use fairlock_interop::rounds;
use fairlock_interop::vectors::{self, Recorder};
use fairlock_interop::version::Version;
use fairlock_interop::worker::Asks;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::vectors::Vector;

/// How often a worker counts a latch down.
const COUNTS_EACH: Duration = Duration::from_millis(20);

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["worker", url, lock, lease_ms, fair_wait_ms, times, asks] => {
            let times = times.parse().expect("a number of waiters");
            let asks = Asks::named(asks).expect("something that a worker asks for");
            worker(url, lock, ms(lease_ms), ms(fair_wait_ms), times, asks).await
        }
        ["report", folder, commit] => report(folder, commit),
        [kind @ ("rounds" | "clocks" | "deaths"), count, version, server] => {
            play(kind, count, version, server, new_seed()).await
        }
        [kind @ ("rounds" | "clocks" | "deaths"), count, version, server, seed] => {
            play(kind, count, version, server, seed.parse().expect("a seed is a number")).await
        }
        ["vectors", version] => record(version, Generation::Redis70.name()).await,
        ["vectors", version, server] => record(version, server).await,
        _ => {
            eprintln!("usage: fairlock-interop rounds|clocks|deaths ROUNDS VERSION SERVER [SEED]");
            eprintln!("       fairlock-interop report FOLDER COMMIT");
            eprintln!("       fairlock-interop vectors VERSION [SERVER]");
            ExitCode::from(2)
        }
    }
}

/// Prints each owner's id once it is in the queue.
async fn worker(
    url: &str,
    lock: &str,
    lease: Duration,
    fair_wait: Duration,
    times: u32,
    asks: Asks,
) -> ExitCode {
    let config = Config::from_url(url).expect("a URL").watchdog_lease(lease).fair_wait(fair_wait);
    let client = Client::with_config(config).await.expect("the server runs");
    if asks == Asks::Latch {
        let latch = client.latch(lock);
        let waiting = tokio::spawn({
            let latch = latch.clone();
            async move { latch.wait().await }
        });
        println!("-");
        while !waiting.is_finished() {
            latch.count_down().await.expect("the server runs");
            tokio::time::sleep(COUNTS_EACH).await;
        }
        return std::future::pending().await;
    }
    let mut turns = Vec::new();
    for _ in 0..times {
        let turn = match asks {
            Asks::Read => client.rw_lock(lock).enqueue_read().await,
            Asks::Write => client.rw_lock(lock).enqueue_write().await,
            _ => client.fair_lock(lock).enqueue().await,
        };
        let turn = turn.expect("a place in the queue");
        println!("{}", turn.owner());
        turns.push(turn);
    }
    let _guard = turns[0].wait().await.expect("the lock");
    std::future::pending::<ExitCode>().await
}

fn ms(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("milliseconds"))
}

/// Records what Java does into the files, and prints the names of those that change.
async fn record(version: &str, server: &str) -> ExitCode {
    let (version, generation) = named(version, server);
    let Some(mut recorder) = Recorder::start(version, generation) else {
        return ExitCode::FAILURE;
    };
    for mut vector in Vector::all() {
        if recorder.plays(&vector) {
            let before = vector.clone();
            let outcome = recorder.play(&vector, None).await;
            vectors::merge(&mut vector, version, &outcome);
            if vector != before {
                println!("{}: changed by Redisson {version}", vector.name);
            }
        }
        vector.write();
    }
    ExitCode::SUCCESS
}

fn report(folder: &str, commit: &str) -> ExitCode {
    match fairlock_interop::report::of_folder(folder.as_ref(), commit) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{folder}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn named(version: &str, server: &str) -> (Version, Generation) {
    let version = Version::named(version).expect("a version of scripts/interop-jars");
    let generation = Generation::ALL.into_iter().find(|generation| generation.name() == server);
    (version, generation.expect("a server of scripts/servers"))
}

async fn play(kind: &str, count: &str, version: &str, server: &str, seed: u64) -> ExitCode {
    let count = count.parse().expect("rounds are a number");
    let (version, generation) = named(version, server);
    let (Some(server), Some(java)) = (Server::start(generation), Java::start(version)) else {
        return ExitCode::FAILURE;
    };
    let report = match kind {
        "clocks" => rounds::run_clocks(&server, &java, count, seed).await,
        "deaths" => {
            let program = std::env::current_exe().expect("this program's path");
            Some(rounds::run_deaths(&server, &java, &program, count, seed).await)
        }
        _ => Some(rounds::run(&server, &java, count, seed).await),
    };
    let Some(report) = report else { return ExitCode::SUCCESS };
    for violation in &report.violations {
        println!("VIOLATION {violation}");
    }
    for spoiled in &report.spoiled {
        println!("SPOILED {spoiled}");
    }
    for slow in &report.slow {
        println!("SLOW {slow}");
    }
    println!("Redisson {version}, {}: {kind} from seed {seed}, {report}", generation.name());
    print!("{}", fairlock_interop::report::lines(kind, version, generation, seed, &report));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn new_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Short enough to retype.
    u64::from(since_epoch.subsec_nanos())
}
