//! Elections on more than one server: failovers of Sentinels and of a Cluster, with leaders that are frozen and killed
//! meanwhile.

use super::sentinel::three;
use super::{AGREED, connect, patient};
use crate::faults::campaign::{Campaign, NAME, Place};
use crate::faults::fixture::{measured, ms, within};
use crate::support::in_real_time;
use fairlock::{GuardState, Release};
use fairlock_testkit::server::Generation;
use fairlock_testkit::tier::size;
use fairlock_testkit::topology::{Cluster, SentinelSet, await_acknowledged, slot};
use std::time::{Duration, Instant};

/// A lease that does not outlast every failover: terms end in some, and stay in others.
const LEASE: Duration = Duration::from_secs(4);

const HEARTBEAT: Duration = ms(500);

/// F40, F45, F08: failovers, ordered and after the master's death, while the leader is frozen or not. All replicas must have
/// a term before it counts, so no grant of a master that is none any more does; announcements are not waited for, and a
/// lost one returns.
async fn fails_over(url: &str, mut how: impl FnMut(&str), rounds: &[(&str, bool)]) {
    let place = Place::url(url, HEARTBEAT, LEASE);
    let mut campaign = Campaign::start(&place, 3, 2);
    campaign.somebody_leads(AGREED).await;
    for (what, freezes) in rounds {
        let leader = campaign.leader().unwrap();
        if *freezes {
            campaign.candidates[leader].worker.stop();
        }
        let began = Instant::now();
        tokio::task::block_in_place(|| how(what));
        if *freezes {
            campaign.candidates[leader].worker.cont();
        }
        campaign.somebody_leads(2 * AGREED).await;
        measured(
            &format!("{what}, leader frozen {freezes}: until somebody leads"),
            began.elapsed(),
        );
    }
    // And the leader dies.
    let leader = campaign.leader().unwrap();
    campaign.kill(leader);
    campaign.somebody_leads(AGREED).await;
    let looks = connect(patient(url)).await;
    campaign.all_see_the_last_state(&looks, 2 * AGREED).await;
    let (terms, late) = campaign.judge();
    println!("measured: {terms} terms, {late} late writes refused, 0 violations");
    // The first leader's, and that of the one who followed the dead. Whether a failover ends a term depends on whether it
    // outlasts the lease.
    assert!(terms >= 2, "too little happened: {terms} terms");
}

/// What happens, and whether the leader is frozen meanwhile.
const ROUNDS: [(&str, bool); 4] =
    [("ordered", false), ("ordered", true), ("master killed", false), ("master killed", true)];

#[test]
fn f40_f45_elections_with_failovers_of_sentinels() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let url = format!("{}?replicas=2&replicas-timeout-ms=1000", set.url());
        let how = |what: &str| match what {
            "ordered" => {
                set.fail_over();
                set.await_whole();
            }
            _ => {
                let master = set.master();
                set.kill_master();
                set.data()[master].restart();
                set.await_whole();
            }
        };
        fails_over(&url, how, size(&ROUNDS[1..3], &ROUNDS)).await;
    });
}

/// F48, F49: the same in a Cluster, where the slot of the election also moves to another node, with its observers'
/// subscriptions.
#[test]
fn f45_f48_elections_with_failovers_of_a_cluster() {
    in_real_time(|| async {
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        let slot = slot(NAME.as_bytes());
        let url = format!("{}?replicas=1&replicas-timeout-ms=1000", cluster.url());
        let how = |what: &str| match what {
            "slot moved" => cluster.move_slot(slot, (cluster.await_master_of(slot) + 1) % 3),
            "ordered" => {
                cluster.fail_over(slot);
                cluster.await_whole();
            }
            _ => {
                let master = cluster.await_master_of(slot);
                cluster.kill_master(slot);
                cluster.nodes()[master].restart();
                cluster.await_whole();
            }
        };
        // The masters are the first three nodes only until the first failover.
        let moves = [("slot moved", false), ("slot moved", true)];
        let rounds = size([&moves[..1], &ROUNDS[3..]], [&moves, &ROUNDS]);
        fails_over(&url, how, &rounds.concat()).await;
    });
}

/// B44: the new master lacks the last writes, and still knows the leader before. Nobody shows that one again: observers go
/// from the last leader to the next.
#[test]
fn b44_a_new_master_knows_only_the_leader_before() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let [one, two, looks] = three(&set.url()).await;
        let first = one.election(NAME).campaign("first").await.unwrap();
        let mut observer = looks.election(NAME).observe().await.unwrap();
        assert_eq!(observer.changed().await.unwrap().unwrap().term, first.token());
        await_acknowledged(&mut set.raw(set.master()), 2);
        set.cut_replication();
        assert_eq!(first.resign().await.unwrap(), Release::Released);
        let second = two.election(NAME).campaign("second").await.unwrap();
        let mut shown = Vec::new();
        while observer.leader().is_none_or(|leader| leader.term != second.token()) {
            shown.push(within("the second", AGREED, observer.changed()).await.unwrap());
        }
        shown.clear();
        set.kill_master();
        within("the loss of the second term", AGREED, second.lost()).await;
        // The release is told again to the server that lacks it: no lease is waited for.
        let third =
            within("the third term", AGREED, one.election(NAME).campaign("third")).await.unwrap();
        assert!(third.token() > second.token() && second.state() == GuardState::Lost);
        while observer.leader().is_none_or(|leader| leader.term != third.token()) {
            // An error of the store ends nothing.
            if let Ok(seen) = within("the third", AGREED, observer.changed()).await {
                shown.push(seen);
            }
        }
        let terms: Vec<_> = shown.iter().flatten().map(|leader| leader.term).collect();
        assert!(terms.iter().all(|term| *term >= second.token()), "{terms:?}");
        assert_eq!(third.resign().await.unwrap(), Release::Released);
    });
}
