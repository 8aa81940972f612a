//! Elections whose clients are cut off, come back, and lose their locks, in paused time.

#![cfg(feature = "test-util")]

use super::value;
use crate::support::run_paused;
use fairlock::test_util::Sandbox;
use fairlock::{Client, Error, GuardState, Leader, LostReason, Term};
use fairlock_testkit::rng::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

/// The default lease, after which a dead leader is followed.
const LEASE: Duration = Duration::from_secs(30);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_killed_leader_is_followed_at_the_end_of_its_lease() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (dead, waits, sees) = (sandbox.client(), sandbox.client(), sandbox.client());
        let mut observer = sees.election("e").observe().await.unwrap();
        assert!(observer.changed().await.unwrap().is_none());
        let term = dead.election("e").campaign("dead").await.unwrap();
        assert_eq!(value(&observer.changed().await.unwrap().unwrap()), "dead");
        let next = waits.election("e");
        let next = tokio::spawn(async move { next.campaign("next").await.unwrap() });
        sleep(ms(1)).await;
        sandbox.cut_off(&dead);
        let began = Instant::now();
        let next = next.await.unwrap();
        let took = began.elapsed();
        assert!(took <= LEASE + ms(60), "{took:?}");
        assert_eq!(
            (term.state(), term.lost_reason()),
            (GuardState::Lost, Some(LostReason::Unreachable))
        );
        assert!(next.token() > term.token());
        let seen = observer.changed().await.unwrap().unwrap();
        assert!(began.elapsed() - took <= ms(50), "{:?}", began.elapsed() - took);
        assert_eq!((value(&seen), seen.term), ("next", next.token()));
    });
}

/// Nobody says that nobody leads: it is seen within 5 s, and of a leader that died at the end of its lease.
#[test]
fn without_a_message_a_change_is_seen_within_five_seconds() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (leads, sees) = (sandbox.client(), sandbox.client());
        let mut observer = sees.election("e").observe().await.unwrap();
        assert!(observer.changed().await.unwrap().is_none());
        let term = leads.election("e").campaign("one").await.unwrap();
        assert!(observer.changed().await.unwrap().is_some());
        let _ = term.resign().await.unwrap();
        let began = Instant::now();
        assert!(observer.changed().await.unwrap().is_none());
        assert!(began.elapsed() <= Duration::from_secs(5) + ms(1), "{:?}", began.elapsed());

        let _dead = leads.election("e").campaign("two").await.unwrap();
        assert!(observer.changed().await.unwrap().is_some());
        sandbox.cut_off(&leads);
        let began = Instant::now();
        assert!(observer.changed().await.unwrap().is_none());
        assert!(began.elapsed() <= LEASE + ms(60), "{:?}", began.elapsed());

        // An observer that is cut off misses the message, and looks when it is back.
        sandbox.restore(&leads);
        sandbox.cut_off(&sees);
        let term = leads.election("e").campaign("three").await.unwrap();
        sandbox.restore(&sees);
        let began = Instant::now();
        assert_eq!(observer.changed().await.unwrap().unwrap().term, term.token());
        assert!(began.elapsed() <= ms(50), "{:?}", began.elapsed());
    });
}

/// A dropped wait loses no message, and an error of the store ends nothing.
#[test]
fn an_observer_survives_what_happens_to_its_calls() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (leads, sees) = (sandbox.client(), sandbox.client());
        let mut observer = sees.election("e").observe().await.unwrap();
        assert!(observer.changed().await.unwrap().is_none());
        assert!(timeout(ms(10), observer.changed()).await.is_err());
        let term = leads.election("e").campaign("one").await.unwrap();
        // Polled once, it has heard the message; it is dropped before it could look.
        let mut wait = Box::pin(observer.changed());
        let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(wait.as_mut().poll(cx))).await;
        drop(wait);
        let seen = timeout(ms(50), observer.changed()).await.expect("looks at once").unwrap();
        assert_eq!(seen.unwrap().term, term.token());
        sandbox.cut_off(&sees);
        drop(term);
        assert!(observer.changed().await.is_err(), "nothing can be seen");
        assert!(observer.leader().is_some());
        sandbox.restore(&sees);
        assert!(observer.changed().await.unwrap().is_none());
    });
}

/// The time without a sign of life counted from before the first announcement: when that took longer, each term was lost as
/// it was handed out.
#[test]
fn a_slow_announcement_is_no_silence_of_the_program() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let guard = client.fair_lock("e").lock().await.unwrap();
        let election = client.election("e").while_touched(ms(200));
        sandbox.cut_off(&client);
        let leads = tokio::spawn(async move { election.lead(guard, "me").await.unwrap() });
        sleep(ms(1_000)).await;
        sandbox.restore(&client);
        let term = leads.await.unwrap();
        sleep(ms(150)).await;
        term.ensure_valid().unwrap();
        term.touch();
        sleep(ms(150)).await;
        term.ensure_valid().unwrap();
        sleep(ms(100)).await;
        assert_eq!(term.lost_reason(), Some(LostReason::Untouched));
    });
}

/// What the store has lost is announced again after the next reconnect, or within 20 s.
#[test]
fn a_lost_announcement_comes_back() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (leads, sees) = (sandbox.client(), sandbox.client());
        let term = leads.election("e").campaign("one").await.unwrap();
        sandbox.cut_off(&leads);
        // Not known to the store, which cannot be reached.
        assert!(timeout(ms(100), term.proclaim("two")).await.is_err());
        assert_eq!(value(&sees.election("e").leader().await.unwrap().unwrap()), "one");
        sleep(Duration::from_secs(1)).await;
        sandbox.restore(&leads);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(value(&sees.election("e").leader().await.unwrap().unwrap()), "two");
        // Kept for as long as the term lasts, however long that is.
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!(value(&sees.election("e").leader().await.unwrap().unwrap()), "two");
        term.ensure_valid().unwrap();
    });
}

/// What one run has seen.
#[derive(Default)]
struct Judge {
    /// The terms that somebody believes to have, with whether they are valid.
    terms: BTreeMap<u64, Rc<Term>>,
    led: usize,
}

impl Judge {
    fn begins(&mut self, term: Rc<Term>) {
        let token = term.token().get();
        let last = self.terms.last_key_value().map(|(token, _)| *token);
        assert!(last.is_none_or(|last| last < token), "term {token} after {last:?}");
        self.led += 1;
        self.terms.insert(token, term);
        self.check();
    }

    fn check(&self) {
        let valid = self.terms.values().filter(|term| term.state() != GuardState::Lost);
        let valid: Vec<_> = valid.map(|term| term.token()).collect();
        assert!(valid.len() <= 1, "two valid terms: {valid:?}");
    }
}

/// Candidates, observers and faults, drawn from a seed. Never two valid terms; terms rise; no observer misses the last
/// state, is shown one twice, or goes back to a former term (B44).
#[test]
fn elections_under_faults() {
    for seed in 1..=20 {
        let led = Rc::new(RefCell::new(0));
        let result = Rc::clone(&led);
        run_paused(async move {
            LocalSet::new().run_until(play(seed, result)).await;
        });
        assert!(*led.borrow() >= 5, "seed {seed}: {led:?} terms");
    }
}

async fn play(seed: u64, led: Rc<RefCell<usize>>) {
    let sandbox = Sandbox::new();
    let mut rng = Rng::new(seed);
    let judge = Rc::new(RefCell::new(Judge::default()));
    let candidates: Vec<_> = (0..4).map(|_| sandbox.client()).collect();
    let watchers: Vec<_> = (0..3).map(|_| sandbox.client()).collect();
    for (number, client) in candidates.iter().enumerate() {
        let (client, judge) = (client.clone(), Rc::clone(&judge));
        spawn_local(campaigns(client, Rng::new(seed * 100 + number as u64), judge));
    }
    let seen: Vec<_> = watchers
        .iter()
        .map(|client| {
            let last = Rc::new(RefCell::new(None));
            spawn_local(observes(client.clone(), Rc::clone(&last)));
            last
        })
        .collect();
    for _ in 0..60 {
        sleep(ms(rng.below(6_000))).await;
        let all = [&candidates[..], &watchers[..]].concat();
        let client = &all[rng.below(all.len() as u64) as usize];
        match rng.below(10) {
            0..4 => sandbox.cut_off(client),
            4..8 => sandbox.restore(client),
            8 => drop(sandbox.lose("e")),
            _ => drop(sandbox.suspect("e")),
        }
        judge.borrow().check();
    }
    candidates.iter().chain(&watchers).for_each(|client| sandbox.restore(client));
    // The last one that leads keeps its term from here on: see `campaigns`.
    *led.borrow_mut() = judge.borrow().led;
    judge.borrow_mut().led = usize::MAX / 2;
    sleep(4 * LEASE).await;
    judge.borrow().check();
    let present = watchers[0].election("e").leader().await.unwrap();
    assert!(present.as_ref().is_some_and(|it| it.value.is_some()), "{present:?}");
    for last in &seen {
        assert_eq!(*last.borrow(), present, "seed {seed}: the last state was missed");
    }
}

/// Leads for a while, again and again.
async fn campaigns(client: Client, mut rng: Rng, judge: Rc<RefCell<Judge>>) {
    loop {
        let Ok(term) = client.election("e").campaign("first").await else {
            sleep(ms(100)).await;
            continue;
        };
        let term = Rc::new(term);
        judge.borrow_mut().begins(Rc::clone(&term));
        let token = term.token().get();
        let lasts = ms(rng.below(20_000));
        let _: Result<Result<(), Error>, _> = timeout(lasts, async {
            sleep(ms(rng.below(2_000))).await;
            term.proclaim("second").await?;
            term.lost().await;
            Ok(())
        })
        .await;
        if judge.borrow().led >= usize::MAX / 2 && term.state() != GuardState::Lost {
            return term.lost().await;
        }
        judge.borrow_mut().terms.remove(&token);
        // Both copies are gone: it is given back.
        drop(term);
    }
}

/// Observes for ever; checks what it sees.
async fn observes(client: Client, last: Rc<RefCell<Option<Leader>>>) {
    let mut observer = loop {
        match client.election("e").observe().await {
            Ok(observer) => break observer,
            Err(_) => sleep(ms(100)).await,
        }
    };
    let (mut highest, mut over) = (0, true);
    loop {
        let Ok(seen) = observer.changed().await else { continue };
        if let Some(seen) = &seen {
            let term = seen.term.get();
            let before: Option<Leader> = last.borrow().clone();
            // In one term the value comes, and changes.
            let goes_on = !over && term == highest && before.as_ref() != Some(seen);
            assert!(term > highest || goes_on, "{seen:?} after term {highest} and {before:?}");
            highest = term;
        } else {
            assert!(!over || highest == 0, "told twice that nobody leads");
        }
        over = seen.is_none();
        *last.borrow_mut() = seen;
    }
}
