//! `--once-per`: at most one run per period; and `--ttl`: what a killed holder costs the others.

use std::fs;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::fixture::{
    self, Running, eventually, fairlock, finish, guardian, hold_until, pid, run_script,
};

fn status(url: &str, name: &str) -> (Value, String) {
    let human = finish(fairlock(["status", "--url", url, name]));
    (fixture::status(url, name), human.stdout)
}

/// A server and a file of the host store.
struct Stores {
    _server: Server,
    dir: TempDir,
    urls: [String; 2],
}

impl Stores {
    fn start() -> Option<Self> {
        let server = Server::start(Generation::Redis70)?;
        let dir = TempDir::new();
        let urls = [server.url(), format!("sqlite:{}/locks.db", dir.path().display())];
        Some(Self { _server: server, dir, urls })
    }
}

/// Three hosts started a short job 0.3 s apart under `--wait 0`, and each of them ran it: "skipped"
/// applied only while it ran. Now it runs once in the period, counted from its start; then once
/// more.
#[test]
fn d24_a_job_runs_once_in_its_time() {
    let Some(stores) = Stores::start() else { return };
    for url in &stores.urls {
        for kind in ["fair", "plain", "simple"] {
            // Again under another name if the machine was too slow.
            let in_time =
                (1..=5).any(|attempt| runs_once(url, kind, &format!("job {kind} {attempt}")));
            assert!(in_time, "five times too slow: {kind} {url}");
        }
    }
}

/// Returns whether the machine was fast enough to tell.
fn runs_once(url: &str, kind: &str, name: &str) -> bool {
    let run = |time| {
        let options = ["--kind", kind, "--once-per", time];
        finish(run_script(url, &options, name, "echo ran"))
    };
    let began = Instant::now();
    let outcome = run("3s");
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "ran\n");
    for _ in 0..2 {
        // As far apart as three crons; this sleep is the subject of the test.
        std::thread::sleep(Duration::from_millis(300));
        let again = run("3s");
        if began.elapsed() >= Duration::from_secs(3) {
            return false;
        }
        again.expect(75, "");
        assert_eq!(again.stdout, "", "{kind} {url}");
    }
    eventually("its time is over", || run("2s").stdout == "ran\n");
    let elapsed = began.elapsed();
    assert!(elapsed >= Duration::from_millis(2_990), "too early: {elapsed:?}");
    true
}

/// While it runs, afterwards, and when its period is over.
#[test]
fn d24_status_says_that_it_is_done_and_when_it_may_start_again() {
    let Some(stores) = Stores::start() else { return };
    for url in &stores.urls {
        for (kind, name) in [("fair", "a"), ("simple", "b")] {
            let status = || {
                let args = ["status", "--url", url, "--kind", kind, name];
                let json = finish(fairlock(args.iter().chain(&["--json"]))).stdout;
                (serde_json::from_str::<Value>(&json).unwrap(), finish(fairlock(args)).stdout)
            };
            let go = stores.dir.path().join(format!("go {kind} {}", url.len()));
            let options = ["--kind", kind, "--once-per", "1h"];
            let script = hold_until(&go).replace(&go.display().to_string(), "\"$GO\"");
            let mut command = run_script(url, &options, name, &script);
            command.env("GO", &go);
            let mut running = Running::start(command);
            assert_eq!(running.line(), "holding");
            let (json, human) = status();
            assert_eq!((&json["held"], &json["done"]), (&true.into(), &false.into()), "{json}");
            assert!(human.starts_with(&format!("{name}: held by ")), "{human}");
            let ttl = json["ttl_ms"].as_u64().unwrap();
            assert!(ttl <= 30_000, "a crash must not cost an hour: {json}");
            // A second start skips at once, in both phases, and never enters the queue.
            let skip = |options: &[&str], code| {
                let mut all = vec!["--kind", kind, "--once-per", "1h"];
                all.extend(options);
                finish(run_script(url, &all, name, "echo ran")).expect(code, "");
            };
            skip(&[], 75);
            skip(&["--conflict-exit-code", "0"], 0);
            fs::write(&go, "").unwrap();
            running.wait().expect(0, "");
            skip(&[], 75);
            let told = finish(run_script(
                url,
                &["--kind", kind, "--once-per", "1h", "-v"],
                name,
                "echo ran",
            ));
            told.expect(75, &format!("{name}: skipped: done, next start in 59m"));
            let (json, human) = status();
            assert_eq!((&json["held"], &json["done"]), (&true.into(), &true.into()), "{json}");
            let ttl = json["ttl_ms"].as_u64().unwrap();
            assert!((3_500_000..3_600_000).contains(&ttl), "{json}");
            assert!(human.starts_with(&format!("{name}: done, next start in 59m")), "{human}");
            let listed = finish(fairlock(["list", "--kind", kind, "--url", url, name])).stdout;
            assert!(listed.contains("  done, next start in 59m"), "{listed}");
            let unlock = ["unlock", "--force", "--kind", kind, "--url", url, name];
            finish(fairlock(unlock)).expect(0, "");
            let (json, human) = status();
            assert_eq!((&json["held"], &json["done"]), (&false.into(), &false.into()), "{json}");
            assert!(human.starts_with(&format!("{name}: free")), "{human}");
        }
    }
}

/// `status` reported `done, next start in 29s` for a run that was working, and for one that was
/// killed, if nothing was known about its client: without the right to announce where it runs, or
/// 90 s after its end. Also with a fixed lease.
#[test]
fn what_is_at_work_or_was_killed_is_not_done() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut client) = (server.url(), server.client());
    for (kind, lease) in [("fair", "--ttl"), ("simple", "--ttl"), ("plain", "--lease")] {
        let name = format!("{kind} {lease}");
        let options = ["--kind", kind, lease, "5m", "--once-per", "1h"];
        let status = || {
            let args = ["status", "--url", &url, "--kind", kind, "--json", &name];
            serde_json::from_str::<Value>(&finish(fairlock(args)).stdout).expect("JSON")
        };
        let mut running =
            Running::start(run_script(&url, &options, &name, "echo up; exec sleep 60"));
        assert_eq!(running.line(), "up");
        let owner = status()["holder"]["owner"].as_str().expect("it is held").to_owned();
        let id = owner.split(':').next().expect("the client");
        // What is left for a user without these rights, or after 90 s.
        client.call(&["DEL", &format!("fairlock_client:{id}")]);
        for killed in [false, true] {
            if killed {
                // It would give the lock back.
                kill_process(pid(guardian(running.pid())), Signal::KILL).unwrap();
                running.signal(Signal::KILL);
            }
            let status = status();
            assert_eq!(status["holder"]["client"], Value::Null, "{status}");
            assert_eq!(
                (&status["held"], &status["done"]),
                (&true.into(), &false.into()),
                "{status}"
            );
            let skipped = ["--kind", kind, "--once-per", "1h", "-v"];
            finish(run_script(&url, &skipped, &name, "echo ran"))
                .expect(75, &format!("{name}: skipped: held by {owner}"));
        }
        finish(fairlock(["unlock", "--force", "--kind", kind, "--url", &url, &name])).expect(0, "");
        finish(run_script(&url, &options, &name, "true")).expect(0, "");
        assert_eq!(status()["done"], true);
    }
}

/// A job that failed, was ended by a signal, or took longer than the period does not block the next
/// start.
#[test]
fn d24_what_fails_or_takes_longer_gives_the_lock_back() {
    let Some(stores) = Stores::start() else { return };
    for url in &stores.urls {
        for (time, script, code) in
            [("1h", "exit 3", 3), ("1h", "kill -USR1 $$", 138), ("300ms", "sleep 0.4", 0)]
        {
            finish(run_script(url, &["--once-per", time], "x", script)).expect(code, "");
            let (json, human) = status(url, "x");
            assert_eq!(json["held"], false, "{script}: {human}");
        }
        let missing = ["run", "--url", url, "--once-per", "1h", "x", "--", "/no/such/command"];
        finish(fairlock(missing)).expect(127, "no such file");
        assert_eq!(status(url, "x").0["held"], false);
        // Killed while working: the lock is held no longer than its lease, however long the period
        // is.
        let options = ["--once-per", "1h", "--ttl", "3s"];
        let mut running = Running::start(run_script(url, &options, "x", "echo up; exec sleep 60"));
        assert_eq!(running.line(), "up");
        running.signal(Signal::KILL);
        eventually("it is free", || status(url, "x").0["held"] == false);
    }
}

/// The period counts from the start, not from the end.
#[test]
fn d24_the_time_counts_from_the_start() {
    let Some(stores) = Stores::start() else { return };
    for url in &stores.urls {
        finish(run_script(url, &["--once-per", "1h"], "x", "sleep 1.2")).expect(0, "");
        let ttl = status(url, "x").0["ttl_ms"].as_u64().unwrap();
        assert!((3_500_000..=3_598_800).contains(&ttl), "{ttl}");
    }
}

/// A host that always wants it sets it once; a single run can override it.
#[test]
fn d24_the_configuration_can_say_it() {
    let dir = TempDir::new();
    let file = dir.path().join("config.toml");
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    fs::write(&file, format!("url = \"{url}\"\nonce-per = \"1h\"\nttl = \"20s\"\n")).unwrap();
    let run = |options: &[&str], rest: &[&str]| {
        let mut command = fairlock(["run"]);
        command.args(options).arg("x").args(rest).env("FAIRLOCK_CONFIG", &file);
        command
    };
    finish(run(&["--wait", "5s"], &["--", "true"]))
        .expect(64, "x: under `once-per` in the configuration a run never waits");
    finish(run(&["--once-per", "1h", "--wait", "5s"], &["--", "true"]))
        .expect(64, "x: under --once-per a run never waits");
    finish(run(&["--once-per", "1h"], &[])).expect(64, "fairlock: ");
    assert_eq!(finish(run(&[], &["--", "echo", "ran"])).stdout, "ran\n");
    finish(run(&[], &["--", "echo", "ran"])).expect(75, "");
    assert!(status(&url, "x").1.contains("done, next start in 59m"));
    finish(fairlock(["unlock", "--force", "--url", &url, "x"])).expect(0, "");
    // As often as desired, and a hold without a command as before.
    for _ in 0..2 {
        finish(run(&["--once-per", "0", "--wait", "60s"], &["--", "true"])).expect(0, "");
    }
    let mut hold = Running::start(run(&["--wait", "60s"], &[]));
    hold.line();
    let ttl = status(&url, "x").0["ttl_ms"].as_u64().unwrap();
    assert!(ttl <= 20_000, "{ttl}");
    hold.signal(Signal::TERM);
    hold.wait().expect(143, "");
}

/// A killed holder blocked the others for 27 to 29 s, and the only way to shorten that was a lease
/// that ends the command.
#[test]
fn d26_a_killed_holder_costs_no_more_than_its_ttl() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut client) = (server.url(), server.client());
    let mut holder =
        Running::start(run_script(&url, &["--ttl", "6s"], "x", "echo up; exec sleep 60"));
    assert_eq!(holder.line(), "up");
    // Renewed: held for longer than the lease, which never exceeds the given TTL. This sleep is the
    // subject of the test.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        let ttl = client.call(&["PTTL", "x"]).int();
        assert!((1..=6_000).contains(&ttl), "{ttl} ms after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    let waiter = Running::start(run_script(&url, &["--ttl", "6s"], "x", "exit 5"));
    eventually("it waits", || status(&url, "x").0["queue_len"] == 1);
    let killed = Instant::now();
    holder.signal(Signal::KILL);
    waiter.wait().expect(5, "");
    let elapsed = killed.elapsed();
    assert!(elapsed < Duration::from_secs(16), "{elapsed:?}");
    println!("measured: served {} ms after the kill", elapsed.as_millis());
}

#[test]
fn d26_the_ttl_has_bounds_and_is_no_fixed_lease() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    for (options, text) in [
        (&["--ttl", "299ms"][..], "--ttl"),
        (&["--ttl", "0"], "longer than 0"),
        (&["--ttl", "10s", "--lease", "10s"], "cannot be used with"),
    ] {
        finish(run_script(&url, options, "x", "echo ran")).expect(64, text);
    }
    // It ends no command: this one runs longer.
    let outcome = finish(run_script(&url, &["--ttl", "4s"], "x", "sleep 6; echo ran"));
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "ran\n");
}
