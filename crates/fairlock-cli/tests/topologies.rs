//! `fairlock run --url` on more than one server, with the URLs from docs/configuration.md.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tls::{Ca, Files};
use fairlock_testkit::topology::{Cluster, SentinelSet, await_acknowledged};

use crate::fixture::{Running, finish, run_script};
use crate::many::increment;

/// Processes contending for one lock, and how often each takes it.
const PROCESSES: usize = 4;
const TURNS: usize = 5;

/// The URL form in the table of docs/configuration.md for a scheme.
fn form(scheme: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = fs::read_to_string(page).expect("the page");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{scheme}://")));
    row.and_then(|row| row.split('`').nth(1)).expect("the page shows it").to_owned()
}

/// A URL of that form: optional parts left out, placeholders filled in.
fn of_form(scheme: &str, places: &str, rest: &str) -> String {
    let form = form(scheme).replace("[user:password@]", "").replace("[/database]", "");
    form.replace("host[:port],...", places).replace("/master", rest)
}

#[test]
fn the_command_runs_behind_sentinels() {
    let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
    let places: Vec<_> = set.addresses().iter().map(ToString::to_string).collect();
    let url = of_form("redis+sentinel", &places.join(","), "/locks");
    assert_eq!(url, set.url());
    increment(&url, PROCESSES, TURNS);

    // Held through a failover: the command ends by itself, with its own code.
    let mut command = run_script(&url, &[], "held", "echo holding; read line; exit 3");
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "holding\n");
    // A failover loses what no replica has.
    await_acknowledged(&mut set.raw(set.master()), 2);
    set.fail_over();
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    increment(&url, PROCESSES, TURNS);
}

#[test]
fn the_command_runs_on_a_cluster() {
    let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
    let places: Vec<_> = cluster.nodes().iter().map(|node| node.addr().to_string()).collect();
    let url = of_form("redis+cluster", &places.join(","), "");
    assert_eq!(url, cluster.url());
    increment(&url, PROCESSES, TURNS);
    // One node is enough to find the others, wherever the lock is.
    let one = of_form("redis+cluster", &places[0], "");
    for name in ["a", "b", "c", "d", "e"] {
        let outcome = finish(run_script(&one, &[], name, "echo $FAIRLOCK_NAME"));
        outcome.expect(0, "");
        assert_eq!(outcome.stdout, format!("{name}\n"));
    }
}

/// An encrypted server whose CA is named in the URL, or is one that the machine trusts. A failure
/// is one line, with the exit code for denied access.
#[test]
fn the_command_runs_encrypted() {
    let (files, ca) = (Files::default(), Ca::new("ours"));
    let identity = files.identity("server", &ca.server(), &ca);
    let builder = Server::builder(Generation::Redis70).tls(&identity);
    let Some(server) = builder.arg("--tls-auth-clients", "optional").start() else { return };
    let trusted = identity.ca.display();
    let url = format!("{}?ca={trusted}", server.url());
    assert!(url.starts_with("rediss://"), "{url}");
    increment(&url, PROCESSES, TURNS);

    let mut by_machine = run_script(&server.url(), &[], "job", "echo $FAIRLOCK_NAME");
    let outcome = finish({
        by_machine.env("SSL_CERT_FILE", &identity.ca);
        by_machine
    });
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "job\n");

    let mine = files.identity("mine", &ca.client(), &ca);
    let (cert, key) = (mine.cert.display(), mine.key.display());
    let outcome = finish(run_script(&format!("{url}&cert={cert}&key={key}"), &[], "job", "true"));
    outcome.expect(0, "");

    let other = files.put("other.pem", Ca::new("of others").pem());
    let url = format!("{}?ca={}", server.url(), other.display());
    let outcome = finish(run_script(&url, &[], "job", "echo must not run"));
    assert_eq!(outcome.stdout, "");
    outcome.expect(77, "name the file of the server's CA");
}

/// D37: a run that started right after the master had died ended with 69 in 0.0 s, beside others
/// that waited through the same failover. A run that does not wait still fails at once.
#[test]
fn d37_a_wait_includes_the_failover() {
    let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
    let url = set.url();
    let old = set.master();
    set.data()[old].kill9();
    let began = Instant::now();
    let waits = run_script(&url, &["--wait", "30s"], "x", "echo served");
    let waits_for_ever = run_script(&url, &[], "y", "echo served");
    let running = [waits, waits_for_ever].map(Running::start);
    finish(run_script(&url, &["--wait", "0"], "z", "echo must not run")).expect(69, "refused");
    for running in running {
        let outcome = running.wait();
        outcome.expect(0, "");
        assert_eq!(outcome.stdout, "served\n");
    }
    println!("measured: served {} ms after the master's death", began.elapsed().as_millis());
}

/// D33: the connection timeout, 5 s, ended a run whatever its `--wait`: a server that stalled for
/// longer was given up. A wait still ends at its own limit.
#[test]
fn d33_a_stalled_server_is_waited_for() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    server.stop();
    let waits = Running::start(run_script(&server.url(), &["--wait", "60s"], "x", "echo served"));
    let began = Instant::now();
    // On a busy machine one of them may be late.
    let is_in_time = || {
        let began = Instant::now();
        let outcome =
            finish(run_script(&server.url(), &["--wait", "2s"], "y", "echo must not run"));
        assert_eq!(outcome.code(), 69, "{outcome:?}");
        (2..5).contains(&began.elapsed().as_secs())
    };
    assert!((0..3).any(|_| is_in_time()), "three waits of 2 s ended late");
    // This sleep is the subject of the test: longer than a connection may take.
    thread::sleep(Duration::from_secs(7).saturating_sub(began.elapsed()));
    server.cont();
    let outcome = waits.wait();
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "served\n");
}
