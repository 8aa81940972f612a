//! Many processes, started by a shell as any user would.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::fixture::{
    Outcome, PROGRAM, Running, finish, guardian, is_alive, lines, pid, run_script, run_script_by,
    with_default_signals,
};

/// Increments a counter in a file, slowly and carelessly, and records who did it. Now and then it
/// also looks at the queue: its waiters must be the next holders, in this order.
///
/// Other loops queue as soon as they can start a process, which takes as long as the look (D18: on
/// a Cluster, one time in twelve, nobody had queued by then). So it looks until those are queued
/// that are certain to come: this loop has fewer than `TURNS` turns left, so the rest of `left`
/// belongs to at least `left / TURNS` other loops.
const INCREMENT: &str = r#"
n=$(cat count); n=$((n + 1)); echo $n >count
echo "$FAIRLOCK_OWNER $FAIRLOCK_TOKEN" >>log
if [ $((n % 10)) -eq 0 ]; then
    left=$((GRANTS - n)); sure=$((left / TURNS)); [ $sure -le 3 ] || sure=3
    for look in $(seq 200); do
        status=$("$FAIRLOCK" status --json --url "$URL" x)
        length=${status##*\"queue_len\":}
        [ "${length%%[!0-9]*}" -lt $sure ] || break
    done
    echo "queue $status" >>log
fi"#;

/// Each of `processes` loops takes `turns` turns, one `fairlock run` after the other.
pub(crate) fn increment(url: &str, processes: usize, turns: usize) {
    increment_by(&[PROGRAM], url, processes, turns);
}

/// The same, with the loops using these programs in rotation.
pub(crate) fn increment_by(programs: &[&str], url: &str, processes: usize, turns: usize) {
    let dir = TempDir::new();
    fs::write(dir.path().join("count"), "0\n").expect("the folder is there");
    let increments = |program: &str| {
        for _ in 0..turns {
            let mut command = run_script_by(program, url, &[], "x", INCREMENT);
            command.current_dir(dir.path()).env("URL", url).env("FAIRLOCK", program);
            command.env("GRANTS", (processes * turns).to_string()).env("TURNS", turns.to_string());
            let outcome = finish(command);
            outcome.expect(0, "");
        }
    };
    thread::scope(|scope| {
        for program in programs.iter().cycle().take(processes) {
            scope.spawn(|| increments(program));
        }
    });
    let count = fs::read_to_string(dir.path().join("count")).expect("it is there");
    assert_eq!(count.trim().parse(), Ok(processes * turns), "no update is lost");
    check_order(&dir.path().join("log"), processes * turns);
}

/// One after the other, with increasing tokens, in the order of the queue.
fn check_order(log: &Path, grants: usize) {
    let log = lines(log);
    let (looks, served): (Vec<_>, Vec<_>) =
        log.iter().enumerate().partition(|(_, line)| line.starts_with("queue "));
    let served: Vec<_> = served.into_iter().map(|(at, line)| (at, line.as_str())).collect();
    assert_eq!(served.len(), grants);
    let split = |line: &'_ str| line.split_once(' ').map(|(o, t)| (o.to_owned(), t.to_owned()));
    let tokens = served.iter().map(|(_, line)| split(line).expect("two words").1);
    let tokens: Vec<u64> = tokens.map(|token| token.parse().expect("a number")).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens grow: {tokens:?}");

    let (mut waited, mut longest) = (0, 0);
    for (at, look) in looks {
        let status: Value = serde_json::from_str(&look["queue ".len()..]).expect("JSON");
        let queue = status["queue"].as_array().expect("a list");
        let queue: Vec<_> = queue.iter().map(|w| w["owner"].as_str().expect("an id")).collect();
        let next = served.iter().filter(|(after, _)| *after > at).map(|(_, line)| *line);
        let next: Vec<_> =
            next.filter_map(|line| line.split(' ').next()).take(queue.len()).collect();
        assert_eq!(next, queue, "after line {at}");
        waited += queue.len();
        longest = longest.max(queue.len());
    }
    assert!(waited > 0, "nobody ever waited: this shows nothing of the order");
    println!("measured: {grants} grants, order of {waited} waiters seen, queue up to {longest}");
}

/// The host store in a folder of its own.
pub(crate) fn host(dir: &TempDir) -> String {
    let store = dir.path().join("store");
    fs::create_dir_all(&store).expect("a directory");
    format!("sqlite:{}/locks.db", store.display())
}

#[test]
fn counters_on_this_host() {
    increment(&host(&TempDir::new()), 20, 50);
}

#[test]
fn counters_on_a_server() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    increment(&server.url(), 10, 10);
}

/// `fairlock` and what should end the command are both gone, and a process of the command keeps
/// working: it still has the lock, until the kernel reports that it has ended too.
#[test]
fn a_host_lock_waits_for_the_commands_processes() {
    let dir = TempDir::new();
    let url = host(&dir);
    let script = "sh -c 'while :; do sleep 0.02; done' & echo $!; wait";
    let mut running = Running::start(run_script(&url, &[], "x", script));
    let grandchild = running.line();
    kill_process(pid(guardian(running.pid())), Signal::KILL).unwrap();
    running.signal(Signal::KILL);
    drop(running);
    let once = || finish(run_script(&url, &["--wait", "500ms"], "x", "exit 7")).code();
    assert_eq!(once(), 75, "the grandchild is at work");
    assert!(is_alive(&grandchild));
    kill_process(pid(grandchild.parse().unwrap()), Signal::KILL).unwrap();
    let started = Instant::now();
    assert_eq!(finish(run_script(&url, &["--wait", "5s"], "x", "exit 7")).code(), 7);
    println!(
        "measured: {} ms after its end the next command had run",
        started.elapsed().as_millis()
    );
}

/// `scripts/contenders URL OPTION...`; its output must not depend on the store. The contenders use these two
/// programs alternately.
pub(crate) fn contenders(url: &str, options: &[&str], [odd, even]: [&str; 2]) -> Outcome {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/contenders");
    let mut command: Command = with_default_signals(script.to_str().expect("UTF-8"));
    command.arg(url).args(options).env("FAIRLOCK", odd).env("FAIRLOCK_EVEN", even);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command)
}

pub(crate) const CONTENDERS: &str = "\
contenders: 10, in the order of their numbers
killed: 7 in the queue, 4 with the lock
served: 1 2 3 4 5 6 8 9 10
tokens: each larger than the one before
at the same time: none
exit codes: 0 0 0 137 0 0 137 0 0 0
the lock: free, nobody waits
";

#[test]
fn ten_contenders_on_this_host() {
    let dir = TempDir::new();
    let outcome = contenders(&host(&dir), &[], [PROGRAM; 2]);
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, CONTENDERS);
}

#[test]
fn ten_contenders_on_a_server() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let outcome = contenders(&server.url(), &[], [PROGRAM; 2]);
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, CONTENDERS);
}
