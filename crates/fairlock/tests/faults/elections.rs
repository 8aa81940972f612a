//! Elections on a real server: leaders, observers and the server are killed, frozen and cut off.

use super::campaign::{Campaign, LOOKS_EVERY, Member, NAME, Place};
use super::fixture::{Fixture, HB, LEASE, SLACK, client, eventually, measured, ms, steady, within};
use fairlock::{Client, Election, Leader, LostReason, Observer, Release, Term};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::rng::{Rng, first_seed};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

fn election(client: &Client) -> Election {
    client.election(NAME)
}

/// Stands behind the leader.
async fn follows(fixture: &Fixture, client: &Client, value: &'static str) -> JoinHandle<Term> {
    let (election, before) = (election(client), fixture.queue(NAME));
    let task = tokio::spawn(async move { election.campaign(value).await.unwrap() });
    fixture.joined(NAME, &before);
    task
}

/// Waits until an observer shows this value; returns what it has shown by then.
async fn sees(observer: &mut Observer, value: &str, limit: Duration) -> Vec<Option<Leader>> {
    let mut shown = Vec::new();
    let seen = async {
        loop {
            let seen = observer.changed().await.unwrap();
            let is_it =
                seen.as_ref().is_some_and(|it| it.value.as_deref() == Some(value.as_bytes()));
            shown.push(seen);
            if is_it {
                return;
            }
        }
    };
    within(&format!("{value} is seen"), limit, seen).await;
    let terms: Vec<_> = shown.iter().flatten().map(|leader| leader.term).collect();
    assert!(terms.is_sorted(), "{terms:?}");
    shown
}

/// F01: the leader is killed. The next one leads when its lease is over, and is seen.
#[test]
fn f01_a_leader_is_killed() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let place = Place::behind(fixture.server.addr(), HB, LEASE);
            let mut campaign = Campaign::start(&place, 1, 0);
            campaign.keeps();
            let (waits, looks) = (fixture.client().await, fixture.client().await);
            let dead = campaign.somebody_leads(SLACK * 10).await;
            let term = campaign.term_of(dead);
            let mut observer = election(&looks).observe().await.unwrap();
            assert_eq!(observer.changed().await.unwrap().unwrap().term.get(), term);
            let next = follows(&fixture, &waits, "next").await;
            campaign.kill(dead);
            let (killed, left) = (Instant::now(), fixture.ttl(NAME));
            let next = within("the next leader", left + ms(300) + SLACK, next).await.unwrap();
            let over = killed.elapsed().saturating_sub(left);
            measured(&format!("{} after the rest of the lease", generation.name()), over);
            assert!(next.token().get() > term);
            sees(&mut observer, "next", SLACK).await;
            campaign.judge();
            assert_eq!(next.resign().await.unwrap(), Release::Released);
        }
    });
}

/// F08: the leader is frozen beyond its lease. Another leads, with a larger term; the first thing that the old one does
/// when it goes on is to stand again, and what it still writes is refused.
#[test]
fn f08_a_leader_is_frozen_beyond_its_lease() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let place = Place::behind(fixture.server.addr(), HB, LEASE);
        let mut campaign = Campaign::start(&place, 2, 2);
        campaign.keeps();
        let old = campaign.somebody_leads(SLACK * 10).await;
        campaign.candidates[old].worker.stop();
        let stopped = Instant::now();
        let new = within("another leads", LEASE + ms(300) + 2 * SLACK, async {
            loop {
                let leader = campaign.somebody_leads(LEASE + 3 * SLACK).await;
                if leader != old {
                    break leader;
                }
            }
        });
        let new = new.await;
        measured("f08 freeze to the next term", stopped.elapsed());
        assert!(campaign.term_of(new) > campaign.term_of(old));
        campaign.candidates[old].worker.cont();
        eventually("the old one stands again", SLACK + 2 * HB, || fixture.queue(NAME).len() == 1);
        let looks = fixture.client().await;
        campaign.all_see_the_last_state(&looks, 10 * SLACK).await;
        // It leads once more, and a write of its first term comes late.
        campaign.kill(new);
        campaign.somebody_leads(LEASE + 3 * SLACK).await;
        campaign.all_see_the_last_state(&looks, 10 * SLACK).await;
        let (terms, late) = campaign.judge();
        assert!(terms >= 3 && late >= 1, "{terms} terms, {late} late writes");
    });
}

/// F09: an observer is frozen while others lead, one after the other. What it shows when it goes on is the last state, and
/// nothing from before.
#[test]
fn f09_an_observer_is_frozen() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let place = Place::behind(fixture.server.addr(), HB, LEASE);
        let mut campaign = Campaign::start(&place, 3, 2);
        campaign.somebody_leads(SLACK * 10).await;
        campaign.observers[0].worker.stop();
        tokio::time::sleep(ms(2_500)).await;
        campaign.observers[0].worker.cont();
        let looks = fixture.client().await;
        campaign.all_see_the_last_state(&looks, 20 * SLACK).await;
        let (terms, _) = campaign.judge();
        assert!(terms >= 3, "{terms} terms");
    });
}

/// F24: the server stands still for longer than the lease. The leader gives up by its own clock, before anybody else leads;
/// observers show what is true afterwards.
#[test]
fn f24_the_server_stands_still_beyond_the_lease() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (leads, waits, looks) =
            (fixture.client().await, fixture.client().await, fixture.client().await);
        let term = election(&leads).campaign("one").await.unwrap();
        let mut observer = election(&looks).observe().await.unwrap();
        sees(&mut observer, "one", SLACK).await;
        let next = follows(&fixture, &waits, "two").await;
        fixture.server.stop();
        within("the end of the term", LEASE + SLACK, term.lost()).await;
        assert_eq!(term.lost_reason(), Some(LostReason::Unreachable));
        assert!(!next.is_finished(), "nobody else leads yet");
        fixture.server.cont();
        let next = within("the next leader", 2 * LEASE + 3 * SLACK, next).await.unwrap();
        assert!(next.token() > term.token());
        sees(&mut observer, "two", LOOKS_EVERY + SLACK).await;
        assert_eq!(next.resign().await.unwrap(), Release::Released);
    });
}

/// F21: the server comes back without its data. The leader is told, whoever leads next has a larger term, and no observer
/// shows the lost one again.
#[test]
fn f21_the_server_forgets_who_leads() {
    steady(|| async {
        let Some(fixture) = Fixture::with(Server::builder(Generation::Redis70).persist(false))
        else {
            return;
        };
        let (leads, waits, looks) =
            (fixture.client().await, fixture.client().await, fixture.client().await);
        let term = election(&leads).campaign("one").await.unwrap();
        let mut observer = election(&looks).observe().await.unwrap();
        sees(&mut observer, "one", SLACK).await;
        let next = follows(&fixture, &waits, "two").await;
        fixture.server.kill9();
        fixture.server.restart();
        let next = within("the next leader", 2 * LEASE + 5 * SLACK, next).await.unwrap();
        assert!(next.token() > term.token());
        assert!(term.ensure_valid().is_err(), "before the next one leads");
        sees(&mut observer, "two", LOOKS_EVERY + SLACK).await;
        assert_eq!(next.resign().await.unwrap(), Release::Released);
    });
}

/// F35, F54: an operator deletes the announcement. The leader announces it again as soon as its connection was lost and is
/// back; without that it takes up to 20 s, which `election::faults::a_lost_announcement_comes_back` plays in paused time.
#[test]
fn f35_the_announcement_is_deleted_and_the_leader_reconnects() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (leads, looks) = (client(&proxy.url()).await, fixture.client().await);
        let term = election(&leads).campaign("one").await.unwrap();
        assert_eq!(fixture.call(&["DEL", &format!("fairlock_leader:{{{NAME}}}")]).int(), 1);
        let seen = election(&looks).leader().await.unwrap().unwrap();
        assert_eq!((seen.term, seen.value), (term.token(), None), "elected, and nothing announced");
        let mut observer = election(&looks).observe().await.unwrap();
        assert_eq!(observer.changed().await.unwrap().unwrap().value, None);
        proxy.cut_all();
        sees(&mut observer, "one", SLACK).await;
        term.ensure_valid().unwrap();
        assert_eq!(term.resign().await.unwrap(), Release::Released);
    });
}

/// F51, F52, F53, F59: an observer hears no messages, or nothing at all, in one direction or both. It shows the last state
/// within five seconds after it can be told, and nothing that is over.
#[test]
fn f51_f59_an_observer_hears_nothing() {
    type Fault = fn(&Proxy, bool);
    let faults: [(&str, Fault); 4] = [
        ("messages are lost", |proxy, on| proxy.swallow_pushes(on)),
        ("nothing reaches it", |proxy, on| proxy.black_hole_to_client(on)),
        ("nothing reaches the server", |proxy, on| proxy.black_hole_to_server(on)),
        ("its connections are cut", |proxy, on| {
            proxy.refuse(on);
            proxy.cut_all();
        }),
    ];
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let leads = fixture.client().await;
        for (what, fault) in faults {
            let proxy = Proxy::start(fixture.server.addr());
            let looks = client(&proxy.url()).await;
            let mut observer = election(&looks).observe().await.unwrap();
            assert_eq!(observer.changed().await.unwrap(), None);
            fault(&proxy, true);
            let first = election(&leads).campaign("first").await.unwrap();
            let _ = first.resign().await.unwrap();
            let term = election(&leads).campaign("second").await.unwrap();
            if what != "messages are lost" {
                tokio::time::sleep(ms(700)).await;
                fault(&proxy, false);
            }
            let began = Instant::now();
            let shown = loop {
                // An error of the store ends nothing.
                let Ok(seen) = within(what, LOOKS_EVERY + SLACK, observer.changed()).await else {
                    continue;
                };
                if let Some(seen) = seen {
                    break seen;
                }
            };
            measured(&format!("{what}: until it is seen"), began.elapsed());
            assert!(began.elapsed() <= LOOKS_EVERY + SLACK, "{what}");
            assert_eq!(
                (shown.term, shown.value.as_deref()),
                (term.token(), Some(&b"second"[..])),
                "{what}"
            );
            assert_eq!(term.resign().await.unwrap(), Release::Released);
        }
    });
}

/// The faults of a campaign, of which one or two at a time are played.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LeaderFrozen,
    LeaderKilled,
    LeaderCutOff,
    LeaderMute,
    LeaderDeaf,
    ServerFrozen,
    AllCut,
    ObserverFrozen,
    ObserverDeaf,
    MessagesLost,
}

const FAULTS: [Fault; 10] = [
    Fault::LeaderFrozen,
    Fault::LeaderKilled,
    Fault::LeaderCutOff,
    Fault::LeaderMute,
    Fault::LeaderDeaf,
    Fault::ServerFrozen,
    Fault::AllCut,
    Fault::ObserverFrozen,
    Fault::ObserverDeaf,
    Fault::MessagesLost,
];

/// Faults in an order that a seed draws, each for up to twice the lease, with others beside it; the verdict at the end is
/// about all of it. Nothing takes the lock away here, so the verdict has no exception.
fn campaigns_under_faults(generation: Generation, seed: u64) {
    steady(|| async {
        let Some(fixture) = Fixture::start(generation) else { return };
        println!("measured: seed {seed}");
        let mut rng = Rng::new(seed);
        let place = Place::behind(fixture.server.addr(), HB, LEASE);
        let mut campaign = Campaign::start(&place, 4, 3);
        campaign.somebody_leads(SLACK * 10).await;
        let mut faults = FAULTS;
        rng.shuffle(&mut faults);
        for fault in faults {
            let leader = campaign.somebody_leads(SLACK * 10).await;
            let observer = rng.below(3) as usize;
            let beside = rng.chance(50);
            if beside {
                campaign.observers[observer].worker.stop();
            }
            let lasts = ms(rng.between(200, 2_000));
            play(&fixture, &mut campaign, fault, leader, observer, lasts).await;
            if beside {
                campaign.observers[observer].worker.cont();
            }
            campaign.hears();
            tokio::time::sleep(ms(rng.below(500))).await;
        }
        let looks = fixture.client().await;
        campaign.all_see_the_last_state(&looks, 20 * SLACK).await;
        let (terms, late) = campaign.judge();
        println!("measured: {terms} terms, {late} late writes refused, 0 violations");
        assert!(terms >= 6 && late >= 1, "too little happened: {terms} terms, {late} late writes");
    });
}

async fn play(
    fixture: &Fixture,
    campaign: &mut Campaign,
    fault: Fault,
    leader: usize,
    observer: usize,
    lasts: Duration,
) {
    let proxy = |member: &Member, on: bool, to_server: bool, to_client: bool| {
        let proxy = member.proxy.as_ref().unwrap();
        if to_server {
            proxy.black_hole_to_server(on);
        }
        if to_client {
            proxy.black_hole_to_client(on);
        }
    };
    let switch = |campaign: &Campaign, on: bool| match fault {
        Fault::LeaderFrozen => match on {
            true => campaign.candidates[leader].worker.stop(),
            false => campaign.candidates[leader].worker.cont(),
        },
        Fault::ObserverFrozen | Fault::LeaderKilled => {}
        Fault::ServerFrozen => match on {
            true => fixture.server.stop(),
            false => fixture.server.cont(),
        },
        Fault::LeaderCutOff => proxy(&campaign.candidates[leader], on, true, true),
        Fault::LeaderMute => proxy(&campaign.candidates[leader], on, true, false),
        Fault::LeaderDeaf => proxy(&campaign.candidates[leader], on, false, true),
        Fault::ObserverDeaf => proxy(&campaign.observers[observer], on, false, true),
        Fault::MessagesLost => {
            for member in &campaign.observers {
                member.proxy.as_ref().unwrap().swallow_pushes(on);
            }
        }
        Fault::AllCut => {
            for member in campaign.candidates.iter().chain(&campaign.observers) {
                member.proxy.as_ref().unwrap().refuse(on);
                member.proxy.as_ref().unwrap().cut_all();
            }
        }
    };
    if matches!(fault, Fault::LeaderKilled) {
        campaign.kill(leader);
        campaign.joins();
    }
    if matches!(fault, Fault::ObserverFrozen) {
        campaign.observers.iter().for_each(|member| member.worker.stop());
    }
    switch(campaign, true);
    tokio::time::sleep(lasts).await;
    switch(campaign, false);
    if matches!(fault, Fault::ObserverFrozen) {
        campaign.observers.iter().for_each(|member| member.worker.cont());
    }
}

#[test]
fn elections_under_faults_on_redis62() {
    campaigns_under_faults(Generation::Redis62, 1);
}

#[test]
fn elections_under_faults_on_redis70() {
    let seed = std::env::var("FAIRLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    campaigns_under_faults(Generation::Redis70, first_seed(seed, false));
}

#[test]
fn elections_under_faults_on_valkey91() {
    campaigns_under_faults(Generation::Valkey91, 3);
}
