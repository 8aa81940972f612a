//! The lock is taken away while the command runs, or the server is gone.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::fs::OFlags;
use rustix::process::{Signal, kill_process};

use crate::fixture::{
    Running, alone, eventually, fairlock, finish, guardian, hold_until, is_alive, pid, run_script,
    status,
};

/// Prints its own process id and a grandchild's, then works; the grandchild ignores TERM.
const FAMILY: &str = r#"exec 2>/dev/null
sh -c 'trap "" TERM; while :; do sleep 0.02; done' &
echo $$ $!
while :; do sleep 0.02; done"#;

/// Starts `FAMILY` under the lock `x`; returns the ids of its processes.
fn start_family(url: &str, options: &[&str]) -> (Running, Vec<String>) {
    let mut running = Running::start(run_script(url, options, "x", FAMILY));
    let family = running.line().split(' ').map(str::to_owned).collect();
    (running, family)
}

#[track_caller]
fn all_gone(family: &[String]) {
    for process in family {
        assert!(!is_alive(process), "{process} of {family:?} outlived the lock");
    }
}

#[test]
fn a_deleted_lock_ends_the_commands_group() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (running, family) = start_family(&server.url(), &["--grace", "300ms"]);
    assert_eq!(server.client().call(&["DEL", "x"]).int(), 1);
    let why = "x: the lock was lost: the store knows nothing of it: its data were lost, or somebody \
               deleted it (Java's forceUnlock, DEL); the command was ended";
    running.wait().expect(76, why);
    all_gone(&family);
}

#[test]
fn a_lock_taken_away_ends_the_command() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let options = ["--grace", "300ms", "--lost-exit-code", "42"];
    let (running, family) = start_family(&url, &options);
    let unlock = finish(fairlock(["unlock", "--force", "--url", &url, "x"]));
    unlock.expect(0, "");
    assert!(unlock.stdout.starts_with("x: unlocked; it was held by "), "{unlock:?}");
    running.wait().expect(42, "the command was ended");
    all_gone(&family);
}

/// The command may end before the loss is known: its own code would claim success.
#[test]
fn a_release_that_finds_the_lock_gone() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (dir, mut client) = (TempDir::new(), server.client());
    let go = dir.path().join("go");
    let mut running = Running::start(run_script(&server.url(), &[], "x", &hold_until(&go)));
    assert_eq!(running.line(), "holding");
    assert_eq!(client.call(&["DEL", "x"]).int(), 1);
    fs::write(&go, "").unwrap();
    running.wait().expect(76, "lost");
}

#[test]
fn on_lost_ignore_lets_the_command_finish() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let go = dir.path().join("go");
    let script = format!("{}; echo finished", hold_until(&go));
    let options = ["--on-lost", "ignore"];
    let mut running = Running::start(run_script(&server.url(), &options, "x", &script));
    assert_eq!(running.line(), "holding");
    assert_eq!(server.client().call(&["DEL", "x"]).int(), 1);
    fs::write(&go, "").unwrap();
    let outcome = running.wait();
    outcome.expect(76, "lost while the command ran");
    assert_eq!(outcome.stdout, "finished\n");
}

/// A server that goes away for good: the command is ended before the lock can belong to another
/// client. A machine that stands still in the last moments makes the program late, which it says;
/// one that does so three times in a row is not believed.
#[test]
fn a_dead_server_ends_the_command_by_the_deadline() {
    let (before, late) = (
        "the lock was about to be lost: the store does not answer, and its lease runs out; the command was ended",
        "the lock was lost: its lease ran out while the store did not answer; the command was ended",
    );
    for tries_left in (0..3).rev() {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let (running, family) = start_family(&server.url(), &["--grace", "300ms"]);
        server.kill9();
        let outcome = running.wait();
        all_gone(&family);
        if tries_left == 0 || !outcome.stderr.contains(late) {
            return outcome.expect(76, before);
        }
        outcome.expect(76, late);
    }
}

/// A holder without its server used to say nothing until the command was ended, not even with `--verbose`.
#[test]
fn a_doubt_is_told_and_so_is_its_end() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (proxy, dir) = (Proxy::start(server.addr()), TempDir::new());
    let (go, said) = (dir.path().join("go"), dir.path().join("said"));
    let mut command = run_script(&proxy.url(), &["--verbose"], "x", &hold_until(&go));
    let mut run = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
    let says = |text: &str| {
        eventually(text, || fs::read_to_string(&said).is_ok_and(|all| all.contains(text)));
    };
    says("x: acquired");
    proxy.refuse(true);
    proxy.cut_all();
    says("x: the store does not answer; unless it does, the command is ended in ");
    proxy.refuse(false);
    says("x: the store answers again");
    fs::write(&go, "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
}

/// Fills a pipe.
fn fill(pipe: &PipeWriter) {
    // A description of its own: the other processes that write to the pipe are to block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut pipe = File::options().write(true).custom_flags(flags).open(path).expect("it is open");
    for piece in [&[b'x'; 512][..], b"x"] {
        let full = loop {
            if let Err(error) = pipe.write(piece) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}

/// A run whose stderr stands still from the moment when it has the lock. Returns both ends of the pipe.
fn start_unread(url: &str) -> (Running, BufReader<PipeReader>, PipeWriter) {
    let (reader, writer) = io::pipe().expect("a pipe");
    let script = "exec 2>/dev/null; trap 'exit 3' TERM; echo holding; while :; do sleep 0.02; done";
    let mut command = run_script(url, &["--verbose", "--grace", "300ms"], "x", script);
    command.stderr(writer.try_clone().expect("a copy"));
    let mut running = Running::start(command);
    assert_eq!(running.line(), "holding");
    let (mut reader, mut said) = (BufReader::new(reader), String::new());
    while !said.contains("x: acquired") {
        reader.read_line(&mut said).expect("UTF-8");
    }
    fill(&writer);
    (running, reader, writer)
}

/// `fairlock` stood in the middle of a message that nobody read: no signal was passed on, a lost lock ended no command,
/// and the guardian, which was told of no renewal, killed the command of a lock that was renewed.
#[test]
fn stderr_that_nobody_reads_holds_up_neither_signals_nor_a_loss() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(server.addr());
    let (running, _reader, _writer) = start_unread(&proxy.url());
    proxy.refuse(true);
    proxy.cut_all();
    // After 2 s it says that the store does not answer.
    thread::sleep(Duration::from_secs(3));
    proxy.refuse(false);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 3, "the command's own end");

    let (running, _reader, _writer) = start_unread(&server.url());
    assert_eq!(server.client().call(&["DEL", "x"]).int(), 1);
    assert_eq!(running.wait().code(), 76, "a loss");
}

/// Waiting for stderr used up a short lease, three times, and the lease was blamed.
#[test]
fn stderr_that_nobody_reads_does_not_use_up_a_short_lease() {
    let (reader, writer) = io::pipe().expect("a pipe");
    fill(&writer);
    let mut command = run_script(&alone(), &["--verbose", "--lease", "3s"], "x", "exit 3");
    command.stderr(writer.try_clone().expect("a copy"));
    assert_eq!(Running::start(command).wait().code(), 3, "the command ran");
    drop((reader, writer));
}

/// A server that refused the renewals was said not to answer.
#[test]
fn what_the_server_says_instead_of_renewing_is_repeated() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    for (setting, refuses, passes, says) in [
        ("min-replicas-to-write", "3", "0", "too few replicas are connected (NOREPLICAS): "),
        ("replicaof", "127.0.0.1 1", "no one", "is a replica"),
    ] {
        let script = "echo holding; exec sleep 60";
        let mut running = Running::start(run_script(&url, &["--ttl", "6s"], "x", script));
        assert_eq!(running.line(), "holding");
        let mut set = |value: &str| {
            let words: Vec<_> = value.split(' ').collect();
            match setting {
                "replicaof" => raw.call(&[&["REPLICAOF"], &words[..]].concat()),
                _ => raw.call(&["CONFIG", "SET", setting, value]),
            };
        };
        set(refuses);
        let outcome = running.wait();
        outcome.expect(76, "the store d");
        assert!(
            outcome.stderr.contains("not renew it (") && outcome.stderr.contains(says),
            "{outcome:?}"
        );
        assert!(!outcome.stderr.contains("script:"), "{outcome:?}");
        set(passes);
    }
}

/// If it is unknown whether the lock was released, it is also unknown whether it was still held:
/// both may have the same cause. The run used to end with the command's own code.
#[test]
fn d32_a_release_without_an_answer_is_no_success() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let go = dir.path().join("go");
    let script = format!("{}; exit 7", hold_until(&go));
    let mut running = Running::start(run_script(&server.url(), &[], "x", &script));
    assert_eq!(running.line(), "holding");
    server.stop();
    fs::write(&go, "").unwrap();
    let outcome = running.wait();
    outcome.expect(76, "x: it is not known whether the lock was released, nor whether it was held");
    outcome.expect(76, "; the command itself ended with code 7");
}

/// D55: it cost the others 28 s. The next holder sees no process of the command, not even one that left its group.
#[test]
fn killed_fairlock_hands_its_lock_on_after_its_command_is_dead() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let kinds: [&[&str]; 6] = [
        &[],
        &["--kind", "plain"],
        &["--kind", "simple"],
        &["--kind", "rw"],
        &["--permits", "2", "--take", "2"],
        &["y", "z"],
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let name = format!("x{at}");
        let script = format!("setsid sh -c 'exec sleep 600' & echo $!; {FAMILY}");
        let mut running = Running::start(run_script(&url, kind, &name, &script));
        let family = [running.line(), running.line()].join(" ");
        let look = format!(
            "for p in {family}; do if test -e /proc/$p; then cut -d' ' -f3 /proc/$p/stat; fi; done; echo over"
        );
        let mut next = Running::start(run_script(&url, kind, &name, &look));
        // Without a queue nobody is seen to wait.
        if !matches!(kind, ["--kind", "plain" | "simple"]) {
            // It waits for one lock at a time.
            let queued = |name: &str| status(&url, name)["queue_len"] == 1;
            eventually("it waits", || [&*name, "y", "z"].into_iter().any(queued));
        }
        let began = Instant::now();
        running.signal(Signal::KILL);
        let mut said = next.line();
        println!("measured: {kind:?}: the next one runs {:.1?} after the kill", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(15), "{kind:?}: by the end of the lease");
        while said != "over" {
            assert_eq!(said, "Z", "{kind:?}: a process of the command still ran");
            said = next.line();
        }
        next.wait().expect(0, "");
    }
}

/// The password of the store reaches the guardian, and nobody else's eyes.
#[test]
fn guardian_of_a_store_with_a_password_gives_the_lock_back_and_shows_no_password() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let mut command = run_script(&server.url(), &[], "x", FAMILY);
    command.env("FAIRLOCK_PASSWORD", "s3cret");
    let mut running = Running::start(command);
    running.line();
    let guardian = guardian(running.pid());
    for file in ["cmdline", "environ"] {
        let shown = fs::read(format!("/proc/{guardian}/{file}")).expect("it lives");
        assert!(!shown.windows(6).any(|part| part == b"s3cret"), "{file}");
    }
    let began = Instant::now();
    running.signal(Signal::KILL);
    eventually("the lock is free", || client.call(&["EXISTS", "x"]).int() == 0);
    assert!(began.elapsed() < Duration::from_secs(15), "by the end of the lease");
    eventually("the guardian has ended", || !is_alive(guardian));
}

/// Without a guardian nobody knows that the command is dead.
#[test]
fn killed_fairlock_and_guardian_leave_a_lock_that_runs_out() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (running, family) = start_family(&server.url(), &[]);
    kill_process(pid(guardian(running.pid())), Signal::KILL).unwrap();
    running.signal(Signal::KILL);
    eventually("the command is gone", || !is_alive(&family[0]));
    kill_process(pid(family[1].parse().unwrap()), Signal::KILL).unwrap();
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 1);
    assert!(server.client().call(&["PTTL", "x"]).int() > 0);
}

/// The key was replaced by another program's. The run used to end with 0, and one line that nobody
/// reads.
#[test]
fn d32_a_hold_whose_key_is_of_another_type_does_not_end_with_success() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (dir, mut client) = (TempDir::new(), server.client());
    let go = dir.path().join("go");
    let mut running = Running::start(run_script(&server.url(), &[], "x", &hold_until(&go)));
    assert_eq!(running.line(), "holding");
    client.call(&["SET", "x", "precious"]);
    fs::write(&go, "").unwrap();
    let outcome = running.wait();
    assert_eq!(outcome.code(), 76, "{outcome:?}");
    assert_eq!(client.call(&["GET", "x"]).text(), "precious");
}

/// The file of the host store is removed, and made again by another program's user: two can hold
/// the lock, and the first must not report success.
#[test]
fn d32_a_hold_whose_file_is_gone_does_not_end_with_success() {
    let dir = TempDir::new();
    let (url, go) = (format!("sqlite:{}/locks.db", dir.path().display()), dir.path().join("go"));
    let mut running = Running::start(run_script(&url, &[], "x", &hold_until(&go)));
    assert_eq!(running.line(), "holding");
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        // Some of them may not exist.
        let _ = fs::remove_file(dir.path().join(file));
    }
    fs::write(&go, "").unwrap();
    let outcome = running.wait();
    assert_eq!(outcome.code(), 76, "{outcome:?}");
}

/// Every loss used to have the same message, from which an administrator had to guess the cause.
#[test]
fn d15_each_loss_says_why() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let replaced = |client: &mut Raw| {
        client.call(&["DEL", "x"]);
        client.call(&["HSET", "x", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
        client.call(&["PEXPIRE", "x", "60000"]);
    };
    type Deed = fn(&mut Raw);
    let gone: Deed = |client| drop(client.call(&["DEL", "x"]));
    for (deed, why) in [
        (gone, "the lock was lost: the store knows nothing of it"),
        (replaced as Deed, "the lock was lost: somebody else has it"),
    ] {
        let (running, family) = start_family(&url, &["--ttl", "6s", "--grace", "100ms"]);
        deed(&mut server.client());
        running.wait().expect(76, why);
        all_gone(&family);
        server.client().call(&["DEL", "x"]);
    }
    let (running, _) = start_family(&url, &["--lease", "6s"]);
    running.wait().expect(76, "x: the lock was about to be lost: its --lease of 6s is over");
    let (running, _) = start_family(&url, &["--ttl", "6s"]);
    server.stop();
    running.wait().expect(
        76,
        "the lock was about to be lost: the store does not answer, and its lease runs out; the",
    );
    server.cont();
}

/// A run and its guardian were stopped from before the end of the lease until long after it. When
/// continued, the run found that it had waited long enough for what KILL had left, although it had
/// not sent a KILL: the grandchild kept running without the lock.
#[test]
fn what_is_left_is_killed_however_late_that_is() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    // Not with our stdout: a grandchild that outlives the run would keep the test waiting for more.
    let script = FAMILY.replace("done' &", "done' >/dev/null &");
    let mut running = Running::start(run_script(&server.url(), &["--lease", "6s"], "x", &script));
    let family: Vec<_> = running.line().split(' ').map(str::to_owned).collect();
    let guardian = guardian(running.pid());
    let command = format!("/proc/{}", family[0]);
    eventually("it is asked, ends, and was waited for", || !fs::exists(&command).unwrap());
    kill_process(pid(guardian), Signal::STOP).unwrap();
    running.signal(Signal::STOP);
    // The two seconds until the lease is over, those that KILL may take to work, and one more.
    thread::sleep(Duration::from_secs(5));
    running.signal(Signal::CONT);
    running.wait().expect(76, "the command was ended");
    all_gone(&family);
}

#[test]
fn a_server_that_is_not_there() {
    // Bound but no longer listening: the port is free, and refuses.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    for args in [
        &["run", "--wait", "0", "--url", &url, "x", "--", "true"][..],
        &["run", "--wait", "1s", "--url", &url, "x", "--", "true"],
        &["status", "--url", &url, "x"],
        &["unlock", "--force", "--url", &url, "x"],
    ] {
        finish(fairlock(args)).expect(69, "fairlock: ");
    }
}

/// The key belongs to something else and must not be touched.
#[test]
fn a_key_of_another_type() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut client = server.client();
    client.call(&["SET", "x", "precious"]);
    let outcome = finish(run_script(&server.url(), &["--wait", "0"], "x", "echo must not run"));
    outcome.expect(64, "fairlock: ");
    assert_eq!(outcome.stdout, "");
    assert_eq!(client.call(&["GET", "x"]).text(), "precious");
}

/// What a hand-over gives lasts for 6 s at most, which counts from the waiter's last heartbeat. A connection that was lost
/// for milliseconds right after it ended the command at its start, because the grace was most of those seconds.
#[test]
fn a_connection_that_is_lost_at_the_hand_over_and_returns_ends_nothing() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let kinds: [&[&str]; 4] =
        [&[], &["--shared"], &["--kind", "rw"], &["--permits", "2", "--take", "2"]];
    for (at, kind) in kinds.into_iter().enumerate() {
        let (proxy, dir) = (Proxy::start(server.addr()), TempDir::new());
        let (go, name) = (dir.path().join("go"), format!("x{at}"));
        let before = if kind == ["--shared"] { &["--kind", "rw"] } else { kind };
        let mut before =
            Running::start(fairlock([&["run", "--url", &server.url(), &name], before].concat()));
        before.line();
        let status = || status(&server.url(), &name);
        // A third of the lease: more than a hand-over gives.
        let options = [kind, &["--grace", "10s"]].concat();
        let script = format!("{}; echo finished", hold_until(&go));
        let mut running = Running::start(run_script(&proxy.url(), &options, &name, &script));
        eventually("it waits", || status()["queue_len"] == 1);
        // The grant comes as a message; what would make its lease whole does not arrive.
        proxy.hold_requests(true);
        before.signal(Signal::TERM);
        before.wait().expect(143, "");
        assert_eq!(running.line(), "holding", "{kind:?}");
        proxy.refuse(true);
        proxy.cut_all();
        // So that the loss is noticed.
        proxy.wait_until(|counts| counts.connections_refused > 1);
        proxy.refuse(false);
        eventually("its lease is whole, or it was ended", || {
            let left = status()["holder"]["ttl_ms"].as_u64();
            left.is_none_or(|left| left > 15_000)
        });
        fs::write(&go, "").unwrap();
        let outcome = running.wait();
        outcome.expect(0, "");
        assert_eq!(outcome.stdout, "finished\n", "{kind:?}");
    }
}
