//! The server refuses everything about a lock for a second, because a key has a wrong type or a right was taken away.
//! Waiters fail, and the server refuses as well to take their places back.
//!
//! Such a refusal counted as an answer. The places stayed in the line, and while others of the same client waited, they
//! counted as alive: when the fault was over, each was granted the lock in its turn, for nobody, and cost the deadline
//! after which a client counts as dead.

use super::fixture::{D, Fixture, HB, LEASE, SLACK, config, eventually, key, measured, ms};
use super::fixture::{steady, within};
use super::refusals::errors;
use fairlock::{Client, Error, ErrorKind, Guard, Permit, Release, WriteGuard};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How many wait when the fault begins. One after the other they would cost ten deadlines.
const WAITERS: usize = 10;

/// How soon all are served once the fault is over.
const SOON: Duration = HB.saturating_mul(2).saturating_add(SLACK);

const _: () = assert!(SOON.as_millis() * 2 < WAITERS as u128 * D.as_millis());

#[derive(Clone, Copy, Debug)]
enum Which {
    Fair,
    Write,
    Permit,
}

impl Which {
    fn wait(self, client: &Client) -> impl Future<Output = Result<Guard, Error>> + Send + 'static {
        let client = client.clone();
        async move {
            match self {
                Self::Fair => client.fair_lock("c").lock().await,
                Self::Write => client.rw_lock("c").write().await.map(WriteGuard::into_guard),
                Self::Permit => client.semaphore("c", 1).acquire().await.map(Permit::into_guard),
            }
        }
    }

    fn start(self, client: &Client) -> JoinHandle<Result<Guard, Error>> {
        tokio::spawn(self.wait(client))
    }

    /// How many stand in the line.
    #[track_caller]
    fn in_line(self, fixture: &Fixture) -> usize {
        let prefix = match self {
            Self::Fair => "fairlock_order",
            Self::Write => "fairlock_rw_order",
            Self::Permit => "fairlock_sem_order",
        };
        usize::try_from(fixture.call(&["ZCARD", &key(prefix, "c")]).int()).unwrap()
    }

    /// Ten tasks of a client wait.
    fn ten(self, fixture: &Fixture, client: &Client) -> Vec<JoinHandle<Result<Guard, Error>>> {
        let tasks = (0..WAITERS).map(|_| self.start(client)).collect();
        eventually("all stand in the line", SLACK, || self.in_line(fixture) == WAITERS);
        tasks
    }

    /// The same client asks again, and three others stand behind it. Each gets the lock, and releases it.
    async fn all_are_served(self, again: &Client, other: &Client, limit: Duration, what: &str) {
        let began = Instant::now();
        let tasks = [again, other, other, other].map(|client| {
            let turn = self.wait(client);
            tokio::spawn(async move { turn.await?.release().await })
        });
        for task in tasks {
            let left = limit.saturating_sub(began.elapsed());
            let released = within("all are served", left, task).await.unwrap().unwrap();
            assert_eq!(released, Release::Released, "{what}, {self:?}");
        }
        measured(&format!("{what}, {self:?}: all served"), began.elapsed());
    }
}

/// The holder's lease outlasts the fault.
async fn patient(fixture: &Fixture, heartbeat: Duration) -> Client {
    let config = config(&fixture.server.url()).watchdog_lease(60 * LEASE).heartbeat(heartbeat);
    Client::with_config(config).await.unwrap()
}

/// Puts another type in place of a key, or puts the key back.
fn wrong_type(fixture: &Fixture, wrong: &str, on: bool) {
    let commands: [&[&str]; 2] = match on {
        true => [&["RENAME", wrong, "saved"], &["SADD", wrong, "odd"]],
        false => [&["DEL", wrong], &["RENAME", "saved", wrong]],
    };
    fixture.call(&["MULTI"]);
    for command in commands {
        fixture.call(command);
    }
    fixture.call(&["EXEC"]);
}

/// Takes the right to run scripts away, or gives it back.
fn denied(fixture: &Fixture, on: bool) {
    let rights = if on { ["-eval", "-evalsha"] } else { ["+eval", "+evalsha"] };
    fixture.call(&["ACL", "SETUSER", "default", rights[0], rights[1]]);
}

/// Ten waiters of one client fail, and the fault is over a second later.
async fn waiters_fail(which: Which, kind: ErrorKind, what: &str, fault: impl Fn(&Fixture, bool)) {
    let Some(fixture) = Fixture::redis70() else { return };
    let (one, ten, other) =
        (patient(&fixture, HB).await, patient(&fixture, HB).await, patient(&fixture, HB).await);
    let held = which.wait(&one).await.unwrap();
    let tasks = which.ten(&fixture, &ten);
    fault(&fixture, true);
    for task in tasks {
        let error = within("the wait fails", HB + SLACK, task).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    // This is about time: the fault outlasts the attempts to take the places back.
    tokio::time::sleep(ms(1_000)).await;
    fault(&fixture, false);
    assert_eq!(which.in_line(&fixture), WAITERS, "their places are there");
    let released = async {
        // All stand in the line by then, or will soon.
        tokio::time::sleep(HB).await;
        held.release().await.unwrap()
    };
    let served = which.all_are_served(&ten, &other, HB + SOON, what);
    assert_eq!(tokio::join!(released, served).0, Release::Released);
    eventually("nothing is left", SLACK, || {
        which.in_line(&fixture) == 0 && fixture.call(&["EXISTS", "c"]).int() == 0
    });
}

#[test]
fn places_that_a_key_of_a_wrong_type_left_behind_are_given_back() {
    for (which, wrong) in [
        (Which::Fair, "fairlock_beats:{c}"),
        (Which::Write, "fairlock_rw_holds:{c}"),
        (Which::Permit, "fairlock_sem_holds:{c}"),
    ] {
        let fault = |fixture: &Fixture, on| wrong_type(fixture, wrong, on);
        steady(|| waiters_fail(which, ErrorKind::WrongType, "a wrong type", fault));
    }
}

#[test]
fn places_that_a_denied_right_left_behind_are_given_back() {
    for which in [Which::Fair, Which::Write, Which::Permit] {
        steady(|| waiters_fail(which, ErrorKind::Denied, "a denied right", denied));
    }
}

/// Futures are dropped while the right is missing. The heartbeats are so far apart that none falls into the fault, and
/// the next one pays all debts: sooner than a single place would cost.
#[test]
fn futures_that_were_dropped_while_the_right_was_missing_leave_no_places() {
    const BEAT: Duration = Duration::from_secs(2);
    for which in [Which::Fair, Which::Write, Which::Permit] {
        steady(|| async move {
            let Some(fixture) = Fixture::redis70() else { return };
            let one = patient(&fixture, BEAT).await;
            let (ten, other) = (patient(&fixture, BEAT).await, patient(&fixture, BEAT).await);
            let held = which.wait(&one).await.unwrap();
            let tasks = which.ten(&fixture, &ten);
            let before = errors(&fixture, "NOPERM");
            denied(&fixture, true);
            for task in tasks {
                task.abort();
            }
            eventually("all that was taken back is refused", SLACK, || {
                errors(&fixture, "NOPERM") >= before + WAITERS as u64
            });
            denied(&fixture, false);
            assert_eq!(which.in_line(&fixture), WAITERS, "their places are there");
            let served = which.all_are_served(&ten, &other, BEAT + SLACK, "dropped futures");
            let (released, ()) = tokio::join!(held.release(), served);
            assert_eq!(released.unwrap(), Release::Released);
        });
    }
}

/// A task asks again and again while it is refused. None of that left anything behind, so the server is not asked to take
/// it back when it answers again.
#[test]
fn requests_that_were_refused_at_once_owe_nothing() {
    const REFUSED: u64 = 50;
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, asks) = (patient(&fixture, HB).await, patient(&fixture, HB).await);
        let held = Which::Fair.wait(&one).await.unwrap();
        let before = errors(&fixture, "NOPERM");
        denied(&fixture, true);
        for _ in 0..REFUSED {
            let error = Which::Fair.wait(&asks).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        }
        eventually("all that was taken back is refused", SLACK, || {
            errors(&fixture, "NOPERM") >= before + 2 * REFUSED
        });
        denied(&fixture, false);
        let calls = fixture.script_calls();
        let turn = Which::Fair.start(&asks);
        eventually("it stands in the line", SLACK, || Which::Fair.in_line(&fixture) == 1);
        // This is about time: some heartbeats.
        tokio::time::sleep(3 * HB).await;
        assert_eq!(held.release().await.unwrap(), Release::Released);
        let guard = within("its turn", SOON, turn).await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let calls = fixture.script_calls() - calls;
        assert!(calls < REFUSED / 2, "{calls} calls");
    });
}

/// The holder may not run scripts when it releases. The lock lasted for the rest of its lease, though its own client
/// waited for it.
#[test]
fn a_release_that_was_refused_is_made_up_for() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, other) = (patient(&fixture, HB).await, patient(&fixture, HB).await);
        let held = Which::Fair.wait(&one).await.unwrap();
        denied(&fixture, true);
        assert_eq!(held.release().await.unwrap(), Release::Unknown);
        denied(&fixture, false);
        assert_eq!(fixture.call(&["EXISTS", "c"]).int(), 1, "the release was refused");
        Which::Fair.all_are_served(&one, &other, SOON, "a refused release").await;
    });
}

/// The same of an explicit owner, which asks for the lock again itself: its request is not in the line beside a hold of its
/// own, so no heartbeat made up for the release, and the lock stayed held for the rest of its lease.
#[test]
fn a_refused_release_of_an_explicit_owner_is_made_up_for() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = patient(&fixture, HB).await;
        let owner = client.owner();
        let lock = client.fair_lock("c").owned_by(&owner);
        let held = lock.lock().await.unwrap();
        let token = held.token();
        denied(&fixture, true);
        assert_eq!(held.release().await.unwrap(), Release::Unknown);
        denied(&fixture, false);
        assert_eq!(fixture.call(&["EXISTS", "c"]).int(), 1, "the release was refused");
        let again = within("its own lock", SOON, lock.lock()).await.unwrap();
        assert!(again.token() > token);
        assert_eq!(again.release().await.unwrap(), Release::Released);
    });
}

/// A client that is shut down tries once more to give its places back.
#[test]
fn a_shutdown_gives_back_what_was_refused() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, ten) = (patient(&fixture, HB).await, patient(&fixture, HB).await);
        let held = Which::Fair.wait(&one).await.unwrap();
        let tasks = Which::Fair.ten(&fixture, &ten);
        let before = errors(&fixture, "NOPERM");
        denied(&fixture, true);
        for task in tasks {
            let error = within("the wait fails", HB + SLACK, task).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        }
        eventually("all that was taken back is refused", SLACK, || {
            errors(&fixture, "NOPERM") > before + WAITERS as u64
        });
        // Every reply has been read by then.
        tokio::time::sleep(HB).await;
        denied(&fixture, false);
        assert_eq!(Which::Fair.in_line(&fixture), WAITERS);
        ten.shutdown().await;
        assert_eq!(Which::Fair.in_line(&fixture), 0);
        assert_eq!(held.release().await.unwrap(), Release::Released);
    });
}
