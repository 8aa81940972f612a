//! A store that keeps its connections and says nothing, against short leases and short waits.
//!
//! The programs of a test run side by side, as they mostly sleep. What was not right is played again, as a machine that
//! stands still in the wrong moment makes everything late.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};

use crate::fixture::{Outcome, Running, fairlock, finish, run_script, status};

/// Says when it is asked to end, and only ends when it is killed.
const TAKES_ITS_TIME: &str = r#"exec 2>/dev/null
trap 'echo asked' TERM; echo holding
while :; do sleep 0.02; done"#;

const HOLDS: &str = "echo holding; exec sleep 60";

/// How late an end may be: half a second for the store's answer, one for what is under way, and as much again.
const LATE: Duration = Duration::from_millis(3_000);

/// The same for a program that has asked nothing yet.
const LATE_AT_FIRST: Duration = Duration::from_millis(1_500);

const TRIES: u32 = 4;

/// A name that no earlier try has used.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("x{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Plays them, and those that failed again, until each was right once.
#[track_caller]
fn each_is_right<T: Copy>(all: &[T], play: impl Fn(&[T]) -> Vec<Result<(), String>>) {
    let (mut left, mut why) = (all.to_vec(), Vec::new());
    for _ in 0..TRIES {
        let played = play(&left);
        assert_eq!(played.len(), left.len(), "each of them");
        why = played.iter().filter_map(|one| one.clone().err()).collect();
        left = left.into_iter().zip(played).filter(|one| one.1.is_err()).map(|one| one.0).collect();
        if left.is_empty() {
            return;
        }
    }
    panic!("{why:#?}");
}

/// Runs them side by side until they end, and judges each by its outcome and the time that it took.
fn side_by_side(
    commands: Vec<(Command, u64)>,
    judge: impl Fn(&Outcome, Duration, u64) -> Result<(), String> + Sync,
) -> Vec<Result<(), String>> {
    thread::scope(|scope| {
        let all: Vec<_> = commands
            .into_iter()
            .map(|(command, ms)| {
                let (began, judge) = (Instant::now(), &judge);
                scope.spawn(move || judge(&finish(command), began.elapsed(), ms))
            })
            .collect();
        all.into_iter().map(|one| one.join().expect("it has ended")).collect()
    })
}

/// `expect`, which a slow machine must not fail.
fn told(outcome: &Outcome, code: i32, why: &str) -> Result<(), String> {
    let said = outcome.stderr.lines().any(|line| line.contains(why));
    match outcome.code() == code && said {
        true => Ok(()),
        false => Err(format!("not {code} and {why:?}: {outcome:?}")),
    }
}

fn within(took: Duration, limit: Duration, outcome: &Outcome) -> Result<(), String> {
    match took < limit {
        true => Ok(()),
        false => Err(format!("after {took:.1?}, not within {limit:.1?}: {outcome:?}")),
    }
}

/// The fixed times of a connection did not know the lease: a command under 2 to 4 s was killed unasked.
#[test]
fn d50_a_command_under_a_short_lease_is_asked_before_it_is_killed() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    each_is_right(&["1s", "2s", "3s", "4s", "5s"], |leases| {
        server.cont();
        let mut all = Vec::new();
        for ttl in leases {
            let mut running =
                Running::start(run_script(&url, &["--ttl", ttl], ttl, TAKES_ITS_TIME));
            assert_eq!(running.line(), "holding");
            all.push(running);
        }
        server.stop();
        let judge = |(running, ttl): (Running, &&str)| {
            let outcome = running.wait();
            match outcome.code() == 76 && outcome.stdout == "asked\n" {
                true => Ok(()),
                false => Err(format!("a lease of {ttl}: {outcome:?}")),
            }
        };
        all.into_iter().zip(leases).map(judge).collect()
    });
}

const WAITS: [(&str, u64); 3] = [("200ms", 200), ("1s", 1_000), ("3s", 3_000)];

/// Some ended long after their time.
#[test]
fn d51_a_wait_for_a_store_that_is_silent_from_the_beginning_ends_in_time() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    server.stop();
    let what: Vec<_> = ["fair", "plain", "simple", "rw", "wait", "latch"]
        .into_iter()
        .flat_map(|what| WAITS.map(|(wait, ms)| (what, wait, ms)))
        .collect();
    each_is_right(&what, |some| {
        let command = |(what, wait, ms): &(&str, &str, u64)| {
            let command = match *what {
                "wait" => fairlock(["wait", "--url", &url, "--wait-for", wait, "x"]),
                "latch" => fairlock(["latch", "--url", &url, "x", "--wait", "--wait-for", wait]),
                "fair" => run_script(&url, &["--wait", wait], "x", "true"),
                kind => run_script(&url, &["--wait", wait, "--kind", kind], "x", "true"),
            };
            (command, *ms)
        };
        side_by_side(some.iter().map(command).collect(), |outcome, took, ms| {
            told(outcome, 69, "127.0.0.1")?;
            within(took, Duration::from_millis(ms) + LATE_AT_FIRST, outcome)
        })
    });
}

/// It was told as 75, "somebody else has it", and seconds late.
#[test]
fn d51_a_run_that_waits_while_the_store_goes_silent_is_not_told_that_the_lock_is_held() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let kinds: [&[&str]; 5] = [
        &[],
        &["--kind", "plain"],
        &["--kind", "simple"],
        &["--kind", "rw"],
        &["--permits", "2", "--take", "2"],
    ];
    each_is_right(&kinds, |kinds| {
        server.cont();
        let names: Vec<_> = (0..kinds.len()).map(|_| fresh()).collect();
        let mut holders = Vec::new();
        for (name, kind) in names.iter().zip(kinds) {
            let options = [*kind, &["--ttl", "60s"]].concat();
            let mut holder = Running::start(run_script(&url, &options, name, HOLDS));
            assert_eq!(holder.line(), "holding");
            holders.push(holder);
        }
        let (began, wait) = (Instant::now(), Duration::from_secs(4));
        let all: Vec<_> = names
            .iter()
            .zip(kinds)
            .map(|(name, kind)| {
                let options = [*kind, &["--wait", "4s"]].concat();
                Running::start(run_script(&url, &options, name, "true"))
            })
            .collect();
        let queued = |(name, kind): (&String, &&[&str])| {
            // Without a queue nobody is seen to wait.
            matches!(kind, ["--kind", "plain" | "simple"]) || status(&url, name)["queue_len"] == 1
        };
        while !names.iter().zip(kinds).all(queued) && began.elapsed() < wait / 2 {}
        let in_time = began.elapsed() < wait / 2;
        server.stop();
        let judge = |(running, kind): (Running, &&[&str])| {
            let outcome = running.wait();
            match in_time {
                true => told(&outcome, 69, "did not answer")?,
                false => return Err(format!("{kind:?}: they did not wait in time")),
            }
            within(began.elapsed(), wait + LATE, &outcome)
        };
        all.into_iter().zip(kinds).map(judge).collect()
    });
}

/// The store answers, so this is no outage.
#[test]
fn d51_a_wait_for_a_lock_that_another_holds_ends_in_time_with_that() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "x", HOLDS));
    assert_eq!(holder.line(), "holding");
    let what: Vec<_> = ["run", "wait"]
        .into_iter()
        .flat_map(|what| [("0", 0)].into_iter().chain(WAITS).map(move |of| (what, of)))
        .collect();
    each_is_right(&what, |some| {
        let command = |(what, (wait, ms)): &(&str, (&str, u64))| {
            let command = match *what {
                "run" => run_script(&url, &["--wait", wait], "x", "true"),
                _ => fairlock(["wait", "--url", &url, "--wait-for", wait, "x"]),
            };
            (command, *ms)
        };
        side_by_side(some.iter().map(command).collect(), |outcome, took, ms| {
            told(outcome, 75, "held")?;
            within(took, Duration::from_millis(ms) + LATE, outcome)
        })
    });
}
