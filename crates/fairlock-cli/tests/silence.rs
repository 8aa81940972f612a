//! A store that keeps its connections and does not answer, against short leases and waits, and a file that was removed.
//!
//! The cases are judged by exit codes and messages. A few always run, with limits that only a hang exceeds.
//! `FAIRLOCK_SILENCE=1` runs all of them, in about a minute, and also judges the time that each takes, which needs an idle
//! machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{Outcome, Running, fairlock, finish, run_script, status};

/// Reports TERM and continues until KILL.
const IGNORES_TERM: &str = r#"exec 2>/dev/null
trap 'echo asked' TERM; echo holding
while :; do sleep 0.02; done"#;

const HOLDS: &str = "echo holding; exec sleep 60";

/// Whether to run all cases.
fn all() -> bool {
    std::env::var_os("FAIRLOCK_SILENCE").is_some()
}

/// How late an end may be: half a second for the last answer, one second for unfinished calls, and as much again.
const LATE: Duration = Duration::from_secs(3);

/// The same for a command that never had a connection: there is nothing to end.
const LATE_AT_FIRST: Duration = Duration::from_millis(1_500);

/// Without all cases, the machine need not be idle.
fn limit(wait_ms: u64, late: Duration) -> Duration {
    Duration::from_millis(wait_ms) + if all() { late } else { Duration::from_secs(30) }
}

/// `few`, or `many` if all cases are run.
fn cases<T: Clone>(few: &[T], many: &[T]) -> Vec<T> {
    if all() { many.to_vec() } else { few.to_vec() }
}

/// A name that no other case uses.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("x{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Plays each case, at most three times until it is right: a machine that pauses in the wrong moment makes a single case
/// late. The wrong behaviour does not depend on luck.
#[track_caller]
fn each_is_right<T: Clone>(cases: Vec<T>, play: impl Fn(&[T]) -> Vec<Result<(), String>>) {
    let (mut left, mut why) = (cases, Vec::new());
    for _ in 0..3 {
        let played = play(&left);
        assert_eq!(played.len(), left.len(), "one result for each case");
        why = played.iter().filter_map(|result| result.clone().err()).collect();
        let failed = left.into_iter().zip(played).filter(|(_, result)| result.is_err());
        left = failed.map(|(case, _)| case).collect();
        if left.is_empty() {
            return;
        }
    }
    panic!("{why:#?}");
}

/// Runs the commands side by side, and judges each by its outcome and its time.
fn side_by_side(
    commands: Vec<(Command, u64)>,
    (code, why): (i32, &str),
    late: Duration,
) -> Vec<Result<(), String>> {
    thread::scope(|scope| {
        let all: Vec<_> = commands
            .into_iter()
            .map(|(command, wait_ms)| {
                scope.spawn(move || {
                    let began = Instant::now();
                    judge(&finish(command), code, why)?;
                    in_time(began, limit(wait_ms, late))
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().expect("it has ended")).collect()
    })
}

/// As `Outcome::expect`, with a result.
fn judge(outcome: &Outcome, code: i32, why: &str) -> Result<(), String> {
    if outcome.code() == code && outcome.stderr.lines().any(|line| line.contains(why)) {
        return Ok(());
    }
    Err(format!("not {code} and {why:?}: {outcome:?}"))
}

fn in_time(began: Instant, limit: Duration) -> Result<(), String> {
    let took = began.elapsed();
    if took < limit { Ok(()) } else { Err(format!("after {took:.1?}, not within {limit:.1?}")) }
}

/// D50: the fixed times of a connection did not depend on the lease. A command under 2 to 4 s was killed without TERM.
#[test]
fn a_command_under_a_short_lease_gets_term_before_kill() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let leases = cases(&["3s", "4s"], &["1s", "2s", "3s", "4s", "5s", "10s", "30s"]);
    each_is_right(leases, |leases| {
        server.cont();
        let holders: Vec<_> = leases
            .iter()
            .map(|ttl| {
                let script = run_script(&url, &["--ttl", ttl], &fresh(), IGNORES_TERM);
                let mut running = Running::start(script);
                assert_eq!(running.line(), "holding");
                running
            })
            .collect();
        server.stop();
        let outcomes = holders.into_iter().map(Running::wait).zip(leases);
        outcomes
            .map(|(outcome, ttl)| match outcome.code() == 76 && outcome.stdout == "asked\n" {
                true => Ok(()),
                false => Err(format!("a lease of {ttl}: {outcome:?}")),
            })
            .collect()
    });
}

const WAITS: [(&str, u64); 4] = [("200ms", 200), ("1s", 1_000), ("6s", 6_000), ("20s", 20_000)];

/// D51: short waits ended 2 s late.
#[test]
fn a_wait_for_a_store_that_never_answers_ends_in_time_with_69() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    server.stop();
    let kinds = cases(
        &["fair", "several", "wait", "latch"],
        &["fair", "plain", "simple", "rw", "several", "wait", "latch"],
    );
    let waits = cases(&WAITS[..1], &WAITS);
    let of_kind = |kind| waits.iter().map(move |&(wait, ms)| (kind, wait, ms));
    each_is_right(kinds.into_iter().flat_map(of_kind).collect(), |cases| {
        let command = |&(kind, wait, ms): &(&str, &str, u64)| {
            let command = match kind {
                "wait" => fairlock(["wait", "--url", &url, "--wait-for", wait, "x"]),
                "latch" => fairlock(["latch", "--url", &url, "x", "--wait", "--wait-for", wait]),
                "fair" => run_script(&url, &["--wait", wait], "x", "true"),
                "several" => run_script(&url, &["--wait", wait, "y"], "x", "true"),
                kind => run_script(&url, &["--wait", wait, "--kind", kind], "x", "true"),
            };
            (command, ms)
        };
        side_by_side(cases.iter().map(command).collect(), (69, "127.0.0.1"), LATE_AT_FIRST)
    });
}

/// D51: the message was "somebody else has it", with 75, and seconds late.
#[test]
fn a_run_whose_store_goes_silent_while_it_waits_ends_with_69() {
    const SEVERAL: &[&str] = &["y"];
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let few: [&[&str]; 3] = [&[], &["--kind", "plain"], SEVERAL];
    let many: [&[&str]; 6] = [
        &[],
        &["--kind", "plain"],
        &["--kind", "simple"],
        &["--kind", "rw"],
        &["--permits", "2", "--take", "2"],
        SEVERAL,
    ];
    each_is_right(cases(&few, &many), |kinds| {
        server.cont();
        let names: Vec<_> = kinds.iter().map(|_| fresh()).collect();
        let cases = || names.iter().zip(kinds);
        let mut holders = Vec::new();
        for (name, kind) in cases() {
            let own: &[&str] = if *kind == SEVERAL { &[] } else { kind };
            let options = [own, &["--ttl", "60s"]].concat();
            let mut holder = Running::start(run_script(&url, &options, name, HOLDS));
            assert_eq!(holder.line(), "holding");
            holders.push(holder);
        }
        let (began, wait) = (Instant::now(), Duration::from_secs(4));
        let waiters: Vec<_> = cases()
            .map(|(name, kind)| {
                let options = [*kind, &["--wait", "4s"]].concat();
                Running::start(run_script(&url, &options, name, "true"))
            })
            .collect();
        // Without a queue, no waiter is seen.
        let waits = |(name, kind): (&String, &&[&str])| {
            matches!(kind, ["--kind", "plain" | "simple"]) || status(&url, name)["queue_len"] == 1
        };
        while began.elapsed() < wait / 2 && !cases().all(waits) {}
        let all_wait = began.elapsed() < wait / 2;
        server.stop();
        let outcomes = waiters.into_iter().map(Running::wait).zip(kinds);
        outcomes
            .map(|(outcome, kind)| match all_wait {
                true => judge(&outcome, 69, "did not answer")
                    .and_then(|()| in_time(began, limit(4_000, LATE))),
                false => Err(format!("{kind:?}: not all waited before the store went silent")),
            })
            .collect()
    });
}

/// A waiter without a place in a queue had looked a moment before, and did not look again: 75, seconds late.
#[test]
fn a_store_that_goes_silent_shortly_before_the_end_of_a_wait_is_an_outage() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let kinds = [&["--kind", "plain"][..], &["--kind", "simple"], &["--kind", "plain", "--quiet"]];
    each_is_right(kinds.to_vec(), |kinds| {
        server.cont();
        let mut runs = Vec::new();
        for kind in kinds {
            let name = fresh();
            let own = &kind[..2];
            let mut holder =
                Running::start(run_script(&url, &[own, &["--ttl", "60s"]].concat(), &name, HOLDS));
            assert_eq!(holder.line(), "holding");
            let wait = [*kind, &["--wait", "2s"]].concat();
            runs.push((holder, Running::start(run_script(&url, &wait, &name, "true"))));
        }
        let began = Instant::now();
        thread::sleep(Duration::from_millis(1_500));
        server.stop();
        let (_holders, waiters): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        waiters
            .into_iter()
            .map(|waiter| {
                judge(&waiter.wait(), 69, "answer")
                    .and_then(|()| in_time(began, limit(2_000, LATE)))
            })
            .collect()
    });
}

/// A lock that another client holds is not an outage.
#[test]
fn a_wait_for_a_held_lock_ends_in_time_with_75() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "x", HOLDS));
    assert_eq!(holder.line(), "holding");
    let waits = cases(&WAITS[..1], &WAITS[..3]).into_iter().chain([("0", 0)]);
    let of_wait = |(wait, ms)| ["run", "wait"].map(|command| (command, wait, ms));
    each_is_right(waits.flat_map(of_wait).collect(), |cases| {
        let command = |&(command, wait, ms): &(&str, &str, u64)| {
            let command = match command {
                "run" => run_script(&url, &["--wait", wait], "x", "true"),
                _ => fairlock(["wait", "--url", &url, "--wait-for", wait, "x"]),
            };
            (command, ms)
        };
        side_by_side(cases.iter().map(command).collect(), (75, "held"), LATE)
    });
}

/// D62: the message was "the store does not answer", while `status` on the same file names the cause.
#[test]
fn a_holder_whose_file_was_removed_or_replaced_says_so() {
    let remove = |file: &Path| fs::remove_file(file).expect("the file exists while it is in use");
    let replace = |file: &Path| {
        let copy = file.with_extension("copy");
        fs::copy(file, &copy).expect("a copy");
        fs::rename(copy, file).expect("the copy takes its place");
    };
    let deeds =
        [("", &remove as &dyn Fn(&Path)), ("-wal", &remove), ("-shm", &remove), ("", &replace)];
    let dirs = deeds.each_ref().map(|_| TempDir::new());
    let start = |dir: &TempDir| {
        let url = format!("sqlite:{}/l.db", dir.path().display());
        let mut running = Running::start(run_script(&url, &["--ttl", "6s"], "x", HOLDS));
        assert_eq!(running.line(), "holding");
        running
    };
    let holders = dirs.each_ref().map(start);
    for ((ending, deed), dir) in deeds.iter().zip(&dirs) {
        deed(&dir.path().join(format!("l.db{ending}")));
    }
    for (running, (ending, _)) in holders.into_iter().zip(deeds) {
        let outcome = running.wait();
        assert_eq!(outcome.code(), 76, "{ending}: {outcome:?}");
        let said = &outcome.stderr;
        assert!(said.contains("was removed or replaced"), "{ending}: {said}");
        assert!(!said.contains("not answer"), "{ending}: {said}");
    }
}
