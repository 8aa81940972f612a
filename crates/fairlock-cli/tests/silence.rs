//! A store that keeps its connections and says nothing, against short leases and short waits.
//!
//! The programs of a test run side by side, as they mostly sleep. A test is played up to three times, as a machine that
//! stands still in the wrong moment makes everything late.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};

use crate::fixture::{Outcome, Running, fairlock, finish, run_script, status};

/// Says when it is asked to end, and only ends when it is killed.
const TAKES_ITS_TIME: &str = r#"exec 2>/dev/null
trap 'echo asked' TERM; echo holding
while :; do sleep 0.02; done"#;

const HOLDS: &str = "echo holding; exec sleep 60";

/// What is over its time. No program needs half of it.
const LATE: Duration = Duration::from_millis(1_500);

const TRIES: u32 = 3;

/// Plays it until nothing was late.
#[track_caller]
fn in_time(what: &str, mut play: impl FnMut() -> Result<(), String>) {
    let mut late = Vec::new();
    for _ in 0..TRIES {
        match play() {
            Ok(()) => return,
            Err(why) => late.push(why),
        }
    }
    panic!("{what}: {late:#?}");
}

/// Runs them side by side until they end; with each outcome, how long that took.
fn side_by_side(commands: Vec<Command>) -> Vec<(Outcome, Duration)> {
    thread::scope(|scope| {
        let all: Vec<_> = commands
            .into_iter()
            .map(|command| {
                let began = Instant::now();
                scope.spawn(move || (finish(command), began.elapsed()))
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
    in_time("a silent store", || {
        let Some(server) = Server::start(Generation::Redis70) else { return Ok(()) };
        let url = server.url();
        let mut all: Vec<_> = (1..=5)
            .map(|lease| {
                let (ttl, name) = (format!("{lease}s"), format!("x{lease}"));
                let options = ["--ttl", &ttl];
                (lease, Running::start(run_script(&url, &options, &name, TAKES_ITS_TIME)))
            })
            .collect();
        for (_, running) in &mut all {
            assert_eq!(running.line(), "holding");
        }
        server.stop();
        for (lease, running) in all {
            let outcome = running.wait();
            told(&outcome, 76, "the store does not answer")
                .or_else(|_| told(&outcome, 76, "the store did not answer"))?;
            if outcome.stdout != "asked\n" {
                return Err(format!("a lease of {lease} s: {outcome:?}"));
            }
        }
        Ok(())
    });
}

/// Some ended long after their time.
#[test]
fn d51_a_wait_for_a_store_that_is_silent_from_the_beginning_ends_in_time() {
    in_time("a silent store", || {
        let Some(server) = Server::start(Generation::Redis70) else { return Ok(()) };
        let url = server.url();
        server.stop();
        let waits = [("200ms", 200), ("1s", 1_000), ("3s", 3_000)];
        let kinds: [&[&str]; 4] =
            [&[], &["--kind", "plain"], &["--kind", "simple"], &["--kind", "rw"]];
        let mut all: Vec<(Command, u64)> = Vec::new();
        for (wait, ms) in waits {
            for kind in kinds {
                all.push((run_script(&url, &[&["--wait", wait], kind].concat(), "x", "true"), ms));
            }
            all.push((fairlock(["wait", "--url", &url, "--wait-for", wait, "x"]), ms));
            all.push((fairlock(["latch", "--url", &url, "x", "--wait", "--wait-for", wait]), ms));
        }
        let (all, ms): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for ((outcome, took), ms) in side_by_side(all).into_iter().zip(ms) {
            told(&outcome, 69, " did not answer within ")?;
            within(took, Duration::from_millis(ms) + LATE, &outcome)?;
        }
        Ok(())
    });
}

/// It was told as 75, "somebody else has it", and seconds late.
#[test]
fn d51_a_run_that_waits_while_the_store_goes_silent_is_not_told_that_the_lock_is_held() {
    in_time("a silent store", || {
        let Some(server) = Server::start(Generation::Redis70) else { return Ok(()) };
        let url = server.url();
        let kinds: [&[&str]; 5] = [
            &[],
            &["--kind", "plain"],
            &["--kind", "simple"],
            &["--kind", "rw"],
            &["--permits", "2", "--take", "2"],
        ];
        let names: Vec<_> = (0..kinds.len()).map(|at| format!("x{at}")).collect();
        let mut holders = Vec::new();
        for (name, kind) in names.iter().zip(kinds) {
            let options = [kind, &["--ttl", "60s"]].concat();
            let mut holder = Running::start(run_script(&url, &options, name, HOLDS));
            assert_eq!(holder.line(), "holding");
            holders.push(holder);
        }
        let began = Instant::now();
        let (wait, all) = (Duration::from_secs(4), {
            let commands = names.iter().zip(kinds).map(|(name, kind)| {
                run_script(&url, &[kind, &["--wait", "4s"]].concat(), name, "true")
            });
            commands.map(Running::start).collect::<Vec<_>>()
        });
        let queued = |at: usize| status(&url, &names[at])["queue_len"] == 1;
        // Without a queue nobody is seen to wait.
        while ![0, 3, 4].into_iter().all(queued) {
            if began.elapsed() > wait / 2 {
                return Err("they do not wait in time".to_owned());
            }
        }
        server.stop();
        for (running, kind) in all.into_iter().zip(kinds) {
            let outcome = running.wait();
            let took = began.elapsed();
            told(&outcome, 69, "did not answer").map_err(|why| format!("{kind:?}: {why}"))?;
            within(took, wait + LATE, &outcome)?;
        }
        Ok(())
    });
}

/// The store answers, so this is no outage.
#[test]
fn d51_a_wait_for_a_lock_that_another_holds_ends_in_time_with_that() {
    in_time("a lock that is held", || {
        let Some(server) = Server::start(Generation::Redis70) else { return Ok(()) };
        let url = server.url();
        let mut holder = Running::start(run_script(&url, &[], "x", HOLDS));
        assert_eq!(holder.line(), "holding");
        let waits = [("0", 0), ("200ms", 200), ("1s", 1_000), ("3s", 3_000)];
        let mut all: Vec<(Command, u64)> = Vec::new();
        for (wait, ms) in waits {
            all.push((run_script(&url, &["--wait", wait], "x", "true"), ms));
            all.push((fairlock(["wait", "--url", &url, "--wait-for", wait, "x"]), ms));
        }
        let (all, ms): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for ((outcome, took), ms) in side_by_side(all).into_iter().zip(ms) {
            told(&outcome, 75, "held")?;
            within(took, Duration::from_millis(ms) + LATE, &outcome)?;
        }
        Ok(())
    });
}
