//! The same on a Cluster: locks on different nodes, and names that are refused.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use fairlock_testkit::server::Generation;
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::topology::{Cluster, slot};
use serde_json::Value;

use crate::fixture::{Running, eventually, fairlock, finish, hold_until, run_script};

fn json(args: &[&str]) -> Vec<Value> {
    let outcome = finish(fairlock(args));
    outcome.expect(0, "");
    outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn run_status_list_and_unlock() {
    let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
    let (url, dir) = (cluster.url(), TempDir::new());
    let file = dir.path().join("go");
    let names = ["nightly", "c", "job-1", "job-2"];
    let nodes: BTreeSet<_> = names.map(|name| cluster.master_of(slot(name.as_bytes()))).into();
    assert_eq!(nodes.len(), 3, "of all nodes");
    let mut running = Vec::new();
    for name in names {
        let options = ["--label", "backup"];
        let mut holder = Running::start(run_script(&url, &options, name, &hold_until(&file)));
        assert_eq!(holder.line(), "holding");
        running.push(holder);
    }
    let waiter = Running::start(run_script(&url, &[], "nightly", "echo next"));
    let status = |name: &str| json(&["status", "--json", "--url", &url, name]).remove(0);
    eventually("it waits", || status("nightly")["queue_len"] == 1);
    let seen = status("nightly");
    assert_eq!(seen["holder"]["client"]["label"], "backup", "{seen}");
    assert_eq!(seen["queue"][0]["client"]["pid"], waiter.pid(), "{seen}");
    assert_eq!(seen["store"]["scope"], "fleet", "{seen}");

    let mut listed: Vec<_> = json(&["list", "--json", "--url", &url])
        .iter()
        .map(|lock| lock["name"].as_str().expect("a text").to_owned())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, ["c", "job-1", "job-2", "nightly"]);
    assert_eq!(json(&["list", "--json", "--url", &url, "job-*"]).len(), 2);

    finish(fairlock(["unlock", "--url", &url, "job-2", "--force"])).expect(0, "");
    eventually("it is free", || status("job-2")["holder"] == Value::Null);
    finish(run_script(&url, &["--wait", "0"], "job-1", "true")).expect(75, "job-1");
    finish(run_script(&url, &[], "a{b", "true")).expect(64, "cannot be used on a Cluster");
    finish(run_script(&format!("{url}/1"), &[], "job", "true")).expect(64, "database 0");

    fs::write(&file, "").expect("the folder is there");
    for (name, holder) in names.into_iter().zip(running) {
        let outcome = holder.wait();
        assert_eq!(outcome.code(), if name == "job-2" { 76 } else { 0 }, "{outcome:?}");
    }
    let outcome = waiter.wait();
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "next\n");
}

/// D36: with one of three masters dead, a third of all commands for locks of the others were
/// refused, and a listing showed none of those locks. D33, D40: `--wait 5s` for a lock of the dead
/// one ended after 11.5 s.
#[test]
fn d36_d40_a_dead_shard_concerns_its_own_locks_alone() {
    let settings = [("--cluster-require-full-coverage", "no")];
    let Some(cluster) = Cluster::start_with(Generation::Redis70, &settings) else { return };
    let (url, dir) = (cluster.url(), TempDir::new());
    let named = |master: usize| {
        let mut names = (0..).map(|number| format!("job-{number}"));
        names.find(|name| cluster.master_of(slot(name.as_bytes())) == Some(master)).unwrap()
    };
    let [dead, living, other] = [0, 1, 2].map(named);
    let file = dir.path().join("go");
    let mut holder = Running::start(run_script(&url, &[], &living, &hold_until(&file)));
    assert_eq!(holder.line(), "holding");
    cluster.nodes()[3].kill9();
    cluster.nodes()[0].stop();

    for _ in 0..12 {
        finish(run_script(&url, &["--wait", "5s"], &other, "true")).expect(0, "");
    }
    let outcome = finish(fairlock(["list", "--url", &url]));
    assert_eq!(outcome.code(), 69, "{outcome:?}");
    assert!(outcome.stdout.contains(&living), "{outcome:?}");
    assert!(outcome.stderr.contains("0-5460"), "{outcome:?}");
    for (wait, least, most) in [("0", 0, 8), ("5s", 5, 11)] {
        let began = Instant::now();
        let outcome = finish(run_script(&url, &["--wait", wait], &dead, "echo must not run"));
        let took = began.elapsed();
        assert_eq!((outcome.code(), outcome.stdout.as_str()), (69, ""), "{outcome:?}");
        println!("measured: --wait {wait} at a dead shard: {} ms", took.as_millis());
        assert!((least..most).contains(&took.as_secs()), "{took:?}: {outcome:?}");
    }
    fs::write(&file, "").expect("the folder is there");
    holder.wait().expect(0, "");
    cluster.nodes()[0].cont();
}
