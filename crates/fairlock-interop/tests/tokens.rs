//! One series of tokens, whichever side takes the lock.

use fairlock_interop::java::Kind;

use crate::fixture::{run, soon};

#[test]
fn redissons_fenced_lock_goes_on_with_ours_and_ours_with_its() {
    run(|fixture| async move {
        if !fixture.version().has_fenced() {
            fixture.skipped("it has no fenced lock");
            return;
        }
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let theirs = java.lock(Kind::Fenced, "a");
        let mut last = 0;
        let mut rises = |token: i64| {
            assert!(token > last, "{token} after {last}");
            last = token;
        };
        for round in 0..6 {
            let ours = if round % 2 == 0 { rust.plain_lock("a") } else { rust.fair_lock("a") };
            rises(theirs.call("lockAndGetToken", &[]).number().await);
            theirs.unlock().value().await;
            let guard = soon(ours.lock()).await.unwrap();
            let token = i64::try_from(guard.token().get()).unwrap();
            rises(token);
            assert_eq!(theirs.call("token", &[]).number().await, token);
            let _ = guard.release().await.unwrap();
            // One more than ours: it counts, and ignores the time.
            let next = theirs.call("tryLockAndGetToken", &[100, 5000]).number().await;
            assert_eq!(next, token + 1);
            rises(next);
            theirs.unlock().value().await;
        }
        fixture.nothing_left().await;
    });
}
