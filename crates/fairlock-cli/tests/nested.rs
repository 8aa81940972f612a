//! Runs inside runs: `fairlock run a -- ... fairlock run b -- ...`.

use std::fs;
use std::process::Command;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Signal, kill_process};

use crate::fixture::{Running, eventually, fairlock, finish, is_alive, lines, pid, run_script};

/// `script` under the lock `outer`; it finds the program as `$F` and the store as FAIRLOCK_URL.
fn run(url: &str, options: &[&str], outer: &str, script: &str) -> Command {
    let mut command = run_script(url, options, outer, script);
    command.env("F", env!("CARGO_BIN_EXE_fairlock")).env("FAIRLOCK_URL", url);
    command
}

/// `fairlock run x -- fairlock run x -- true` waited for itself forever: directly, through a
/// script, through another lock, as another kind of the same key, and by whatever URL the store is
/// named.
#[test]
fn d22_a_run_inside_of_a_run_of_the_same_lock_is_refused() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let (url, host) = (server.url(), format!("sqlite:{}/locks.db", dir.path().display()));
    let by_name = url.replace("127.0.0.1", "localhost");
    for (url, script) in [
        (&url, r#""$F" run x -- echo ran"#.to_owned()),
        (&url, r#""$F" run --wait 0 x -- echo ran"#.to_owned()),
        (&url, r#""$F" run --kind plain x -- echo ran"#.to_owned()),
        (&url, r#""$F" run x"#.to_owned()),
        (&url, r#"setsid "$F" run y -- sh -c 'exec "$F" run x -- echo ran'"#.to_owned()),
        (&url, format!(r#""$F" run --url {by_name} x -- echo ran"#)),
        (&host, r#""$F" run x -- echo ran"#.to_owned()),
    ] {
        let outcome = finish(run(url, &[], "x", &script));
        outcome.expect(
            64,
            "x: held by the `fairlock run` or `fairlock elect` that this was started under (owner ",
        );
        assert_eq!(outcome.stdout, "", "{script}");
    }
    let simple = run(&url, &["--kind", "simple"], "z", r#""$F" run --kind simple z -- echo ran"#);
    finish(simple).expect(
        64,
        "z: held by the `fairlock run` or `fairlock elect` that this was started under",
    );
}

/// D56: `fairlock run x -- fairlock wait x` waited for itself forever, and so did a wait for several
/// names, and one in a candidate's command. A look that does not wait is answered.
#[test]
fn a_wait_inside_of_a_run_of_the_same_lock_is_refused() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    let refused =
        "x: held by the `fairlock run` or `fairlock elect` that this was started under (owner ";
    for (options, script) in [
        (&[][..], r#""$F" wait --wait-for 20s x"#),
        (&[], r#""$F" wait --wait-for 20s free x"#),
        (&[], r#""$F" latch x --wait --wait-for 20s"#),
        (&["--shared"], r#""$F" wait --wait-for 20s x"#),
        (&["--permits", "2"], r#""$F" wait --wait-for 20s x"#),
        (&["--kind", "simple"], r#""$F" wait --kind simple --wait-for 20s x"#),
    ] {
        // Each kind has a file of its own.
        let url = format!("sqlite:{}/{}.db", dir.path().display(), options.concat());
        let outcome = finish(run(&url, options, "x", script));
        outcome.expect(64, refused);
        assert_eq!(outcome.stdout, "", "{script}");
    }
    for inner in [r#""$F" wait --wait-for 20s x"#, r#""$F" run x -- true"#] {
        let mut elect = fairlock(["elect", "--url", &url, "x", "--", "sh", "-c", inner]);
        elect.env("F", env!("CARGO_BIN_EXE_fairlock")).env("FAIRLOCK_URL", &url);
        finish(elect).expect(64, refused);
    }
    finish(run(&url, &[], "x", r#""$F" wait --wait-for 0 x"#)).expect(75, "x: held by ");
    finish(run(&url, &[], "x", r#""$F" wait --wait-for 20s y"#)).expect(0, "");
}

/// Only a run that would wait for itself is refused. Other locks are allowed, and so is the same
/// lock once the outer run has ended and left a process with its environment behind.
#[test]
fn d22_other_runs_inside_of_runs_go_on() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let outcome =
        finish(run(&url, &[], "x", r#""$F" run y -- sh -c 'echo $FAIRLOCK_NAME'; exit 3"#));
    outcome.expect(3, "");
    assert_eq!(outcome.stdout, "y\n");
    let other = format!(
        r#""$F" run --url sqlite:{}/locks.db x -- sh -c 'set -- $FAIRLOCK_OWNERS; echo $#; test "$2" = $FAIRLOCK_OWNER'"#,
        dir.path().display()
    );
    let outcome = finish(run(&url, &[], "x", &other));
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "2\n", "the owners of both");
    // Left behind, with the environment of a run that has ended.
    let log = dir.path().join("log");
    let script = format!(
        r#"setsid sh -c 'until test -e {0}.go; do sleep 0.02; done; "$F" run x -- echo later; echo "code=$?"' >{0} 2>&1 &"#,
        log.display()
    );
    finish(run(&url, &[], "x", &script)).expect(0, "");
    fs::write(log.with_extension("go"), "").unwrap();
    eventually("it has run", || lines(&log) == ["later", "code=0"]);
}

/// A process left behind by a run with --once-per was refused as long as the lock was held for the
/// rest of the period: "it would wait for itself for ever", although that run had ended. It waits
/// like any other, or skips silently.
#[test]
fn what_a_done_run_has_left_behind_is_not_refused() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let host = format!("sqlite:{}/locks.db", dir.path().display());
    for (at, url) in [server.url(), host].iter().enumerate() {
        let left_behind = |name: &str, time: &str, ttl: &str, options: &str| {
            let log = dir.path().join(format!("log {at} {name} {ttl} {options}"));
            let script = r#"setsid sh -c 'until test -e "$LOG.go"; do sleep 0.02; done
                "$F" run $OPTIONS "$FAIRLOCK_NAME" -- echo later; echo "code=$?"' >"$LOG" 2>&1 &"#;
            let mut command = run(url, &["--once-per", time, "--ttl", ttl], name, script);
            command.env("OPTIONS", options).env("LOG", &log);
            finish(command).expect(0, "");
            fs::write(dir.path().join(format!("log {at} {name} {ttl} {options}.go")), "").unwrap();
            eventually("it has ended", || {
                lines(&log).last().is_some_and(|line| line.starts_with("code="))
            });
            lines(&log)
        };
        // The rest of the period is longer than the lease, and shorter than it.
        assert_eq!(left_behind("a", "6s", "2s", "--wait 30s"), ["later", "code=0"]);
        assert_eq!(left_behind("b", "4s", "30s", "--wait 30s"), ["later", "code=0"]);
        assert_eq!(left_behind("c", "1h", "30s", "--once-per 1h"), ["code=75"]);
        // A busy machine may leave no time to ask who holds it.
        let names = ["d", "e", "f", "g", "h"].iter();
        let told = names.map(|name| (name, left_behind(name, "1h", "30s", "--wait 0")));
        let asked = |told: &Vec<String>| !told[0].ends_with(": held by another");
        let (name, told) = told.into_iter().find(|(_, told)| asked(told)).expect("who holds it");
        assert!(
            told[0].starts_with(&format!("fairlock: {name}: done, next start in 59m")),
            "{told:?}"
        );
        assert_eq!(told[1..], ["code=75"]);
    }
}

/// Two runs that cross, like two jobs that take the same two locks in opposite order: neither waits
/// for itself, so neither is refused; the time limit of the wait ends it.
#[test]
fn d22_crossing_runs_are_ended_by_their_wait_alone() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let script = |mine: &str, other: &str| {
        format!(
            r#"cd {}; : >{mine}; until test -e {other}; do sleep 0.02; done
            "$F" run --wait 1s {other} -- true; echo $? >{mine}.code
            until test -e {other}.code; do sleep 0.02; done"#,
            dir.path().display()
        )
    };
    let [a, b] = [("a", "b"), ("b", "a")]
        .map(|(mine, other)| Running::start(run(&url, &[], mine, &script(mine, other))));
    for (running, name) in [(a, "a"), (b, "b")] {
        let outcome = running.wait();
        assert_eq!(outcome.code(), 0, "{outcome:?}");
        assert!(outcome.stderr.contains(": not acquired within 1s: held by "), "{outcome:?}");
        assert_eq!(lines(&dir.path().join(format!("{name}.code"))), ["75"]);
    }
}

/// `fairlock run --lease 4s n1 -- fairlock run n2 -- sh -c 'setsid ... &'`: the daemon outlived the
/// loss of n1, since the inner run had replaced the owner by which the outer one looks for it. It
/// is asked to end like all other processes.
#[test]
fn d31_a_nested_runs_daemon_ends_with_the_outer_lock() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let log = dir.path().join("log");
    let daemon = format!(
        r#"setsid sh -c 'trap "echo asked >>{0}; exit" TERM; echo $$ >{0}; while :; do sleep 0.02; done' >/dev/null 2>&1 &
        until test -s {0}; do sleep 0.02; done; echo ready; exec sleep 60"#,
        log.display()
    );
    let script = r#""$F" run n2 -- sh -c "$DAEMON""#;
    for (deaf, ends) in [(false, &["asked"][..]), (true, &[])] {
        let daemon =
            if deaf { daemon.replace("echo asked >>", "echo >/dev/null ") } else { daemon.clone() };
        let daemon = if deaf { daemon.replace("; exit\" TERM", "\" TERM") } else { daemon };
        // By force, so that no deadline is running: a process that is asked has ten seconds, even
        // on a busy machine. The one that ignores it needs less.
        let options = if deaf { &["--grace", "1s"][..] } else { &[] };
        let mut command = run(&url, options, "n1", script);
        command.env("DAEMON", daemon);
        let mut running = Running::start(command);
        assert_eq!(running.line(), "ready");
        let process = lines(&log).swap_remove(0);
        assert!(is_alive(&process));
        finish(fairlock(["unlock", "--force", "--url", &url, "n1"])).expect(0, "");
        let outcome = running.wait();
        assert!(!is_alive(&process), "it goes on without the outer lock: {outcome:?}");
        outcome.expect(76, "n1: the lock was lost: it was taken away by force");
        assert_eq!(lines(&log)[1..], *ends);
        fs::remove_file(&log).unwrap();
    }
}

/// The same when the outer run is killed: its guardian also finds them by the list. (The inner run
/// has ended by then; while it runs, it is killed with the outer one's group, and its own guardian
/// ends what it started.)
#[test]
fn d31_a_nested_runs_daemon_ends_with_a_killed_outer_run() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let log = dir.path().join("log");
    let script = format!(
        r#""$F" run n2 -- sh -c 'setsid sh -c "echo \$\$ >{0}; exec sleep 600" >/dev/null 2>&1 &
        until test -s {0}; do sleep 0.02; done' && echo ready; exec sleep 60"#,
        log.display()
    );
    let mut running = Running::start(run(&url, &[], "n1", &script));
    assert_eq!(running.line(), "ready");
    let process = lines(&log).swap_remove(0);
    assert!(is_alive(&process), "it outlives the inner run");
    running.signal(Signal::KILL);
    eventually("the daemon is gone", || !is_alive(&process));
}

/// When the inner run loses its lock, only its own processes end, and none of the outer run's.
#[test]
fn d31_an_inner_loss_leaves_the_outer_run_alone() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let log = dir.path().join("log");
    let script = format!(
        r#"setsid sleep 60 >/dev/null 2>&1 & echo $! >{0}
        "$F" run --lease 3s n2 -- sh -c 'exec sleep 60' 2>/dev/null; echo "inner=$?""#,
        log.display()
    );
    let outcome = finish(run(&url, &[], "n1", &script));
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "inner=76\n");
    let process = lines(&log).swap_remove(0);
    assert!(is_alive(&process), "the outer lock was never in danger");
    kill_process(pid(process.parse().unwrap()), Signal::KILL).unwrap();
}
