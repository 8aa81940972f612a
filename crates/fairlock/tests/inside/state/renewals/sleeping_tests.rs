//! When the watchdog looks: for what is due before it wakes up by itself, and not for every lock
//! that is taken and released in between. In paused time, so that every look is counted.

use super::{EARLY_MAX, Watchdog};
use crate::base::clock::{Moment, follow_tokio, lock};
use crate::state::hold::{Hold, Lease};
use fairlock_core::client::{Acquisition, Hold as Known, SLEEP_MAX};
use fairlock_core::{Kind, LockName, Mode, OwnerId, RequestId, Token};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// No look.
const NOTHING: [Duration; 0] = [];

/// A running watchdog that only records its looks.
struct Kennel {
    watchdog: Arc<Watchdog>,
    looks: Arc<Mutex<Vec<Moment>>>,
    began: Moment,
}

impl Kennel {
    fn new() -> Self {
        follow_tokio();
        let (watchdog, looks) = (Arc::new(Watchdog::default()), Arc::default());
        let kennel = Self { watchdog, looks, began: Moment::now() };
        let (watchdog, looks) = (Arc::clone(&kennel.watchdog), Arc::clone(&kennel.looks));
        tokio::spawn(async move {
            loop {
                let _ = watchdog.take_due();
                lock(&looks).push(Moment::now());
                watchdog.due().await;
            }
        });
        kennel
    }

    /// A hold that is renewed a third of `lease` from now, or that only expires.
    fn hold(&self, lease: Duration, renewed: bool) -> Arc<Hold> {
        let ms = u64::try_from(lease.as_millis()).unwrap();
        let until_ns = fairlock_core::client::valid_until_ns(Moment::now().nanos(), ms);
        let until = Moment::at_nanos(until_ns);
        let (name, owner) = (LockName::new(b"job").unwrap(), OwnerId::parse(b"someone"));
        let (token, lease) = (
            Token::new(1).unwrap(),
            Lease {
                ms,
                renewed,
                end_ns: None,
                ends_by_max_hold: false,
                may_be_cut: false,
                java_fleet: false,
            },
        );
        let request = RequestId::from_random(1);
        let acquisition = Acquisition::new(Kind::Fair, owner, Mode::Wait, ms, false, request);
        let mut known = Known::new(lease, until.nanos());
        known.granted_whole(true);
        let hold = Arc::new(Hold::new(name, acquisition, token, known));
        self.watchdog.watch(&hold, Moment::now());
        hold
    }

    /// The times of all looks since the last call, counted from the beginning.
    async fn looked(&self) -> Vec<Duration> {
        // Long enough for everything that is ready; time does not advance meanwhile.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let looks = std::mem::take(&mut *lock(&self.looks));
        looks.into_iter().map(|at| at.since(self.began)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_date_does_not_wake_it() {
    let kennel = Kennel::new();
    let _first = kennel.hold(ms(30_000), true);
    assert!(!kennel.looked().await.is_empty());
    for _ in 0..100 {
        let hold = kennel.hold(ms(30_000), true);
        tokio::task::yield_now().await;
        kennel.watchdog.forget(&hold);
    }
    assert_eq!(kennel.looked().await, NOTHING);
    sleep(SLEEP_MAX + ms(2)).await;
    assert_eq!(kennel.looked().await.len(), 1);
}

/// The same with nothing else to watch: between two holds there is nothing to renew, and the
/// watchdog still sleeps on.
#[tokio::test(start_paused = true)]
async fn locks_one_after_the_other_do_not_wake_it() {
    let kennel = Kennel::new();
    kennel.watchdog.forget(&kennel.hold(ms(30_000), true));
    assert!(!kennel.looked().await.is_empty());
    for _ in 0..3_000 {
        let hold = kennel.hold(ms(30_000), true);
        sleep(ms(1)).await;
        kennel.watchdog.forget(&hold);
    }
    let looked = kennel.looked().await;
    assert!((2..=4).contains(&looked.len()), "{looked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_date_wakes_it() {
    let kennel = Kennel::new();
    let _first = kennel.hold(ms(30_000), true);
    kennel.looked().await;
    let _short = kennel.hold(ms(300), false);
    assert_eq!(kennel.looked().await.len(), 1, "to see until when it can sleep now");
    sleep(ms(310)).await;
    let looked = kennel.looked().await;
    assert_eq!(looked.len(), 1, "{looked:?}");
    assert!((ms(290)..ms(293)).contains(&looked[0]), "{looked:?}");
    // The same when a hold is planned anew.
    let again = kennel.hold(ms(30_000), true);
    kennel.looked().await;
    kennel.watchdog.plan(&again, Moment::now().plus_ms(50));
    assert_eq!(kennel.looked().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_holds_it_sleeps_for_ever() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let kennel = Kennel::new();
    assert_eq!(kennel.looked().await.len(), 1);
    sleep(HOUR).await;
    assert_eq!(kennel.looked().await, NOTHING, "a client that was never used");
    kennel.watchdog.forget(&kennel.hold(ms(30_000), true));
    assert_eq!(kennel.looked().await.len(), 1, "nobody knows how soon the first one is due");
    sleep(HOUR).await;
    let looked = kennel.looked().await;
    assert_eq!(looked.len(), 1, "one more, because it had been used: {looked:?}");
    assert!(looked[0] <= HOUR + SLEEP_MAX + ms(2), "{looked:?}");
    sleep(HOUR).await;
    assert_eq!(kennel.looked().await, NOTHING);
    let _short = kennel.hold(ms(300), false);
    assert_eq!(kennel.looked().await.len(), 1);
}

/// A message that a hold was taken away by force can be read together with its grant, before the hold is watched. It was
/// dropped, and an explicit lease ran on to its end beside the next holder.
#[tokio::test(start_paused = true)]
async fn a_report_that_comes_before_its_hold_is_kept() {
    let kennel = Kennel::new();
    let (owner, token) = (OwnerId::parse(b"someone"), Token::new(1).unwrap());
    for number in 2..100 {
        assert!(!kennel.watchdog.check_hold(&owner, Token::new(number).unwrap()));
    }
    assert!(!kennel.watchdog.check_hold(&owner, token));
    assert_eq!(lock(&kennel.watchdog.watched).early.len(), EARLY_MAX);
    kennel.looked().await;
    let hold = kennel.hold(ms(30_000), false);
    assert_eq!(kennel.looked().await.len(), 1, "at once");
    assert!(hold.look().is_some_and(|look| look.renew), "the store is asked");
    kennel.watchdog.forget(&hold);
    let another = kennel.hold(ms(30_000), false);
    assert!(another.look().is_some_and(|look| !look.renew), "it concerned one hold");
}
