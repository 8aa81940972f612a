//! `fairlock bench`: what it prints, and that it leaves nothing behind. Its figures are not checked
//! here.

use std::fs;
use std::path::Path;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::topology::Cluster;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Outcome, Running, eventually, fairlock, finish};

/// As short as possible: the observation of renewals takes half a second each.
const SHORT: [&str; 8] = ["--time", "100ms", "--rounds", "2", "--waiters", "2,5", "--held", "20"];

fn bench(url: &str, options: &[&str]) -> Outcome {
    let all = [&["bench", "--url", url, "--tasks", "4"], &SHORT[..], options].concat();
    finish(fairlock(all))
}

fn json(url: &str) -> Value {
    let outcome = bench(url, &["--json", "--quiet"]);
    outcome.expect(0, "");
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

/// The names of the fields, which the help must contain as well.
fn fields(form: &Value) -> Vec<&str> {
    form.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn is_positive(form: &Value, fields: &[&str]) {
    for field in fields {
        assert!(form[field].as_f64().is_some_and(|number| number > 0.0), "{field}: {form}");
    }
}

const TIMES: [&str; 3] = ["p50_us", "p99_us", "max_us"];

fn has_times(form: &Value) {
    is_positive(form, &TIMES);
    let [p50, p99, max] = TIMES.map(|field| form[field].as_f64().expect("a number"));
    assert!(p50 <= p99 && p99 <= max, "{form}");
}

#[test]
fn a_table_and_a_picture_and_nothing_is_left() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (dir, mut raw) = (TempDir::new(), server.client());
    raw.call(&["SET", "fairlock-bench:mine", "x"]);
    let picture = dir.path().join("bench.svg");
    let outcome = bench(&server.url(), &["--plot", picture.to_str().expect("a path")]);
    outcome.expect(
        0,
        "2 rounds of PING, raw scripts, 1 task, 4 tasks, 2 waiters, 5 waiters; then 20 held locks",
    );
    let rows = [
        "PING ",
        "raw scripts ",
        "1 task ",
        "4 tasks ",
        "2 waiters ",
        "5 waiters ",
        "held locks ",
        "20 ",
    ];
    let mut lines = outcome.stdout.lines();
    for row in rows {
        assert!(
            lines.any(|line| line.starts_with(row)),
            "{row:?} in its place: {}",
            outcome.stdout
        );
    }
    for beside in ["x two PINGs", "of the raw scripts", "x PING"] {
        assert!(outcome.stdout.contains(beside), "{beside}: {}", outcome.stdout);
    }
    let svg = fs::read_to_string(&picture).expect("it was written");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains("raw scripts") && svg.matches("<polyline").count() == 4, "{svg}");
    assert_eq!(raw.call(&["DBSIZE"]).int(), 1, "{:?}", raw.call(&["KEYS", "*"]));
    assert_eq!(raw.call(&["GET", "fairlock-bench:mine"]).text(), "x");
}

/// Programs read these names: they must not change, and the help lists them.
#[test]
fn the_json_form_on_a_cluster() {
    let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
    let form = json(&cluster.url());
    let all = [
        "contended",
        "cores",
        "held_ms",
        "ping",
        "raw_scripts",
        "renewals",
        "round_ms",
        "rounds",
        "schema",
        "store",
        "uncontended",
        "version",
    ];
    assert_eq!(fields(&form), all);
    assert_eq!((&form["schema"], &form["rounds"]), (&1.into(), &2.into()));
    assert_eq!(form["store"]["scope"], "fleet");
    has_times(&form["ping"]);
    is_positive(&form["ping"], &["per_second"]);
    is_positive(&form["raw_scripts"], &["pairs_per_second"]);
    let [one, many] = form["uncontended"].as_array().expect("a list").as_slice() else {
        panic!("{form}")
    };
    assert_eq!((&one["tasks"], &many["tasks"]), (&1.into(), &4.into()));
    is_positive(one, &["pairs_per_second", "of_two_pings"]);
    is_positive(many, &["pairs_per_second", "of_raw_scripts"]);
    let contended = form["contended"].as_array().expect("a list");
    assert_eq!(
        contended.iter().map(|row| row["waiters"].as_u64()).collect::<Vec<_>>(),
        [Some(2), Some(5)]
    );
    for row in contended {
        has_times(row);
        is_positive(row, &["turns_per_second", "of_ping"]);
    }
    let [none, held] = form["renewals"].as_array().expect("a list").as_slice() else {
        panic!("{form}")
    };
    assert_eq!(
        (&none["held"], &none["renewals_per_second"], &none["own_cpu_us"]),
        (&0.into(), &0.0.into(), &Value::Null)
    );
    assert_eq!(held["held"], 20);
    is_positive(held, &["renewals_per_second", "ping_p50_us", "ping_p99_us", "ping_max_us"]);

    let help = finish(fairlock(["bench", "--help"])).stdout;
    let inner = [&form["ping"], one, many, &contended[0], held];
    for field in inner.into_iter().flat_map(fields).chain(all) {
        assert!(help.contains(field), "{field} is not in the help");
    }
    for node in 0..cluster.nodes().len() {
        assert_eq!(cluster.raw(node).call(&["DBSIZE"]).int(), 0);
    }
}

/// A store without PING gets no yardstick.
#[test]
fn a_host_store_has_no_yardsticks() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}", dir.path().join("locks").display());
    let form = json(&url);
    assert!(form["ping"].is_null() && form["raw_scripts"].is_null(), "{form}");
    let one = &form["uncontended"][0];
    has_times(one);
    assert!(one["of_two_pings"].is_null() && form["contended"][0]["of_ping"].is_null(), "{form}");
    assert!(form["renewals"][1]["ping_p50_us"].is_null(), "{form}");
    let left = finish(fairlock(["list", "--all", "--json", "--url", &url]));
    left.expect(0, "");
    assert_eq!(left.stdout, "", "nothing is left");
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (dir, url, mut raw) = (TempDir::new(), server.url(), server.client());
    let picture = dir.path().join("bench.svg");
    let plot = picture.to_str().expect("a path");
    let running = Running::start(fairlock([
        "bench",
        "--url",
        &url,
        "--quiet",
        "--time",
        "10s",
        "--rounds",
        "50",
        "--waiters",
        "50",
        "--plot",
        plot,
    ]));
    // In mid-run: a lock is held, and others wait for it.
    eventually("a queue", || !raw.call(&["KEYS", "redisson_lock_queue:*"]).array().is_empty());
    assert!(Path::new(plot).exists());
    running.signal(Signal::INT);
    let outcome = running.wait();
    outcome.expect(130, "");
    assert_eq!(outcome.stdout, "");
    assert_eq!(raw.call(&["DBSIZE"]).int(), 0, "{:?}", raw.call(&["KEYS", "*"]));
    assert!(!picture.exists(), "an empty picture");
}

/// A store that answers at once never makes a task wait, so nothing else ran, and the end was never
/// noticed: on the host store, one task that found the lock free took it again and again, forever.
#[test]
fn a_signal_is_heard_while_nothing_waits() {
    let running = Running::start(fairlock([
        "bench", "--url", "memory:", "--quiet", "--time", "10m", "--rounds", "1",
    ]));
    // Each step takes a minute, and the first keeps the processor busy throughout.
    let stat = format!("/proc/{}/stat", running.pid());
    eventually("it works", || {
        let stat = fs::read_to_string(&stat).expect("it runs");
        let ticks = stat.split(' ').nth(13).and_then(|user| user.parse::<u64>().ok());
        ticks.expect("its time") >= 20
    });
    running.signal(Signal::INT);
    running.wait().expect(130, "");
}
