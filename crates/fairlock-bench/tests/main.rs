//! A small soak in every test run, and the figures for `scripts/bench-compare`.

use std::process::Command;

use fairlock_testkit::server::{Generation, Server};
use serde_json::Value;

/// Memory may grow by a megabyte, as in `fairlock-bench soak`; nothing else may be left.
#[test]
fn twenty_thousand_cycles_leave_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlock-bench"))
        .args(["soak", "20000"])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("memory: 20000 cycles"), "{said}");
}

/// Every figure that `bench-compare/runner` reads.
#[test]
fn own_figures_are_measured() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_fairlock-bench"))
        .args(["own", &server.url(), "0.02", "2,5"])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let form: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (figures, fields) in [
        (&form["ping"], &["p50_us", "p99_us", "per_second"][..]),
        (&form["raw_scripts"], &["pairs_per_second"]),
        (
            &form["uncontended"][0],
            &["tasks", "p50_us", "p99_us", "pairs_per_second", "of_two_pings"],
        ),
        (
            &form["uncontended"][1],
            &["tasks", "p50_us", "p99_us", "pairs_per_second", "of_raw_scripts"],
        ),
        (&form["contended"][0], &["waiters", "p50_us", "p99_us", "turns_per_second", "of_ping"]),
        (&form["contended"][1], &["waiters", "p50_us", "p99_us", "turns_per_second", "of_ping"]),
    ] {
        for field in fields {
            assert!(figures[field].as_f64().is_some_and(|number| number > 0.0), "{field}: {form}");
        }
    }
}
