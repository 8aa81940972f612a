use super::*;
use crate::resp::Value;
use crate::server::{Generation, Server};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[track_caller]
fn assert_error(reply: &Value, code: &str) {
    assert!(matches!(reply, Value::Error(error) if error.starts_with(code)), "{reply:?}");
}

#[test]
fn slots_are_those_of_the_servers() {
    for (key, expected) in [("123456789", 12_739), ("a{b}c", slot(b"b")), ("{}x", slot(b"{}x"))] {
        assert_eq!(slot(key.as_bytes()), expected, "{key}");
    }
    let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
    for key in ["job", "redisson_lock_queue:{job}", "a{}b", "a{b", "{{x}}", ""] {
        let said = cluster.raw(0).call(&["CLUSTER", "KEYSLOT", key]).int();
        assert_eq!(i64::from(slot(key.as_bytes())), said, "{key}");
    }
}

#[test]
fn a_cluster_moves_slots_and_fails_over() {
    for generation in [Generation::Redis62, Generation::Valkey91] {
        let Some(cluster) = Cluster::start(generation) else { return };
        let slot = slot(b"job");
        let first = cluster.master_of(slot).unwrap();
        assert_eq!(cluster.raw(first).call(&["SET", "job", "1"]).text(), "OK");
        let second = (first + 1) % 3;
        cluster.move_slot(slot, second);
        assert_eq!(cluster.raw(second).call(&["GET", "job"]).text(), "1");
        assert_error(&cluster.raw(first).call(&["GET", "job"]), "MOVED");

        let third = cluster.fail_over(slot);
        assert_ne!(third, second);
        cluster.await_whole();
        await_acknowledged(&mut cluster.raw(third), 1);
        assert_eq!(cluster.kill_master(slot), second);
        assert_eq!(cluster.raw(second).call(&["GET", "job"]).text(), "1");
    }
}

#[test]
fn a_sentinel_set_fails_over_on_command_and_after_a_kill() {
    let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
    assert_eq!(set.master(), 0);
    assert_eq!(set.raw(0).call(&["SET", "k", "1"]).text(), "OK");
    await_acknowledged(&mut set.raw(0), 2);
    let second = set.fail_over();
    assert_eq!(set.raw(second).call(&["GET", "k"]).text(), "1");
    set.await_whole();

    set.cut_replication();
    assert_eq!(set.raw(second).call(&["SET", "k", "2"]).text(), "OK");
    let third = set.kill_master();
    assert_eq!(set.raw(third).call(&["GET", "k"]).text(), "1", "the tail is lost");
}

#[test]
fn a_sentinel_set_asks_for_passwords() {
    let login = Login { data: Some("of-data".into()), sentinels: Some("of-sentinels".into()) };
    let Some(set) = SentinelSet::start_with(Generation::Redis70, login, &[]) else { return };
    let refused = set.data()[0].client().call(&["GET", "k"]);
    assert_error(&refused, "NOAUTH");
    let refused = set.sentinels()[0].client().call(&["SENTINEL", "MASTERS"]);
    assert_error(&refused, "NOAUTH");
    let old = set.master();
    assert_ne!(set.kill_master(), old);
}

/// Tests that kill a master first called `WAIT` on a new connection, which reported that a replica
/// had what it did not have: on a busy machine the failover could lose holds and queues.
#[test]
fn a_replica_that_stands_still_has_not_acknowledged() {
    for generation in Generation::tested() {
        let Some(set) = Replicated::start(generation, 1) else { continue };
        assert_not_before_it_goes_on(set.primary(), set.replica(0), "key");
        let Some(cluster) = Cluster::start(generation) else { continue };
        let mut keys = (0..).map(|number| format!("key-{number}"));
        let key = keys.find(|key| cluster.master_of(slot(key.as_bytes())) == Some(0)).unwrap();
        assert_not_before_it_goes_on(&cluster.nodes()[0], &cluster.nodes()[3], &key);
    }
}

fn assert_not_before_it_goes_on(master: &Server, replica: &Server, key: &str) {
    replica.stop();
    assert_eq!(master.client().call(&["SET", key, "1"]).text(), "OK");
    let goes_on = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            await_acknowledged(&mut master.client(), 1);
            assert!(goes_on.load(Ordering::SeqCst), "it stands still");
        });
        // This sleep is the subject of the test: it must not return within this time.
        thread::sleep(Duration::from_millis(300));
        goes_on.store(true, Ordering::SeqCst);
        replica.cont();
    });
}
