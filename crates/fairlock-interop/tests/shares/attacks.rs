use std::time::{Duration, Instant};

use fairlock::{GuardState, Release};
use fairlock_testkit::redisson::reader_timeout_key;

use super::Theirs;
use crate::deaths::doomed;
use crate::fixture::{measured, ms, run, soon, until};

/// With each unlock of a reader Java cuts the lock's life to the longest of the readers' times, and
/// ends it if none is left. The guard of a reader of ours must not outlive that.
#[test]
fn b10_no_guard_of_ours_outlives_the_lock() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let theirs = Theirs::new(&java, "job");
        let ours = rust.rw_lock("job").lease(ms(250));
        let mut looks = 0;
        for _ in 0..8 {
            let guard = soon(ours.read()).await.unwrap();
            let owner = guard.owner().to_string();
            while guard.state() == GuardState::Held {
                theirs.reads.lock_for(20).value().await;
                // Alone in the lock, its short time may be over by now.
                theirs.reads.unlock().answer().await;
                let is_there = fixture.holds("job").contains_key(&owner);
                let writes = theirs.writes.try_lock().is_true().await;
                if guard.ensure_valid().is_ok() {
                    assert!(is_there && !writes, "the guard is valid: {is_there}, {writes}");
                    looks += 1;
                }
                if writes {
                    theirs.writes.unlock().value().await;
                }
            }
            soon(guard.lost()).await;
        }
        assert!(looks > 8, "only {looks} looks");
        fixture.nothing_left().await;
    });
}

/// Java's unlock deletes a lock in which it finds no reader's time. Every way to read has one from the
/// start, and a lost one is made again by the next renewal.
#[test]
fn b11_java_sees_every_reader_of_ours() {
    run(|fixture| async move {
        let rust = fixture.rust_with(|config| config.watchdog_lease(ms(1500))).await;
        let java = fixture.java_owner().await;
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        let seen = |owner: &str| fixture.reads_for("job", owner) > 0;
        let writing = soon(ours.write()).await.unwrap();
        let mut handed = soon(ours.enqueue_read()).await.unwrap();
        let mut cohort = soon(ours.enqueue_read()).await.unwrap();
        let downgraded = writing.downgrade().await.unwrap();
        assert!(seen(&downgraded.owner().to_string()), "a writer that reads on");
        let handed = [soon(handed.wait()).await.unwrap(), soon(cohort.wait()).await.unwrap()];
        for guard in &handed {
            assert!(seen(&guard.owner().to_string()), "let in from the line");
        }
        let at_once = soon(ours.try_read()).await.unwrap().expect("it is read");
        let owner = at_once.owner().to_string();
        assert!(seen(&owner), "at once");
        for guard in handed {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        assert_eq!(downgraded.release().await.unwrap(), Release::Released);

        fixture.call(&["DEL", &reader_timeout_key("job", &owner, 1)]);
        until("a renewal makes it again", || seen(&owner)).await;
        theirs.reads.lock_for(50).value().await;
        theirs.reads.unlock().value().await;
        assert_eq!(fixture.holds("job"), [(owner.clone(), 1)].into());
        assert_eq!(at_once.state(), GuardState::Held);
        assert_eq!(at_once.release().await.unwrap(), Release::Released);
        assert!(!seen(&owner), "it goes with the hold");
        fixture.nothing_left().await;
    });
}

/// The watchdog of a Java reader gives the lock 30 s, whatever others hold, and then its JVM is
/// killed. The longer lease of ours is kept up before that.
#[test]
fn b18_a_long_lease_outlives_a_java_reader_that_dies() {
    run(|fixture| async move {
        const HOUR: Duration = Duration::from_secs(3600);
        /// A third of Java's 30 s, and the 10 s of ours after it.
        const RENEWED: Duration = Duration::from_secs(22);
        let (rust, doomed) = (fixture.rust().await, doomed(&fixture));
        let reader = doomed.client(fixture.server.addr(), Default::default()).await;
        let theirs = Theirs::new(&reader.owner("t").await, "job");
        let guard = soon(rust.rw_lock("job").lease(HOUR).read()).await.unwrap();
        theirs.reads.lock().value().await;
        assert!(fixture.pttl("job") > 3_500_000, "an acquisition only raises it");
        let began = Instant::now();
        // Both renew in any order; what counts is what stays.
        let mut cuts = 0;
        while began.elapsed() < RENEWED && cuts == 0 {
            cuts += u32::from(fixture.pttl("job") <= 30_000);
            tokio::time::sleep(ms(5)).await;
        }
        assert!(cuts > 0, "Java cuts the lock's life");
        doomed.kill9();
        let killed = Instant::now();
        while fixture.pttl("job") <= 30_000 {
            assert!(killed.elapsed() < RENEWED, "{} ms left", fixture.pttl("job"));
            tokio::time::sleep(ms(20)).await;
        }
        measured(&format!("the lease of an hour was restored after {:?}", killed.elapsed()));
        assert!(fixture.pttl("job") > 3_500_000);
        assert_eq!(guard.state(), GuardState::Held);
        let writer = Theirs::new(&fixture.java_owner().await, "job");
        assert!(!writer.writes.try_lock().is_true().await);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    });
}

/// Between two readers of ours, Java may have written, and mints no tokens: whoever writes late with
/// our last token must be refused.
#[test]
fn b20_a_reader_of_ours_among_javas_gets_a_new_token() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        let writing = soon(ours.write()).await.unwrap();
        let late = writing.token();
        let _ = writing.release().await.unwrap();
        theirs.writes.lock().value().await;
        theirs.writes.unlock().value().await;
        theirs.reads.lock().value().await;
        let first = soon(ours.read()).await.unwrap();
        assert!(first.token() > late);
        let second = soon(ours.read()).await.unwrap();
        assert_eq!(second.token(), first.token(), "who reads at the same time has one token");
        let of_a_phase = first.token();
        let _ = first.release().await.unwrap();
        let _ = second.release().await.unwrap();
        assert_eq!(fixture.holds("job").len(), 1, "Java reads on");
        let third = soon(ours.read()).await.unwrap();
        assert!(third.token() > of_a_phase, "Java's readers alone are no phase");
        let _ = third.release().await.unwrap();
        theirs.reads.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// A Java thread that reads asks to read again while a writer of ours waits. It comes in: it would
/// wait for itself, and renew what it waits for.
#[test]
fn b25_a_java_reader_reads_again_while_a_writer_waits() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        theirs.reads.lock().value().await;
        let mut writing = soon(ours.enqueue_write()).await.unwrap();
        theirs.reads.lock().value().await;
        assert_eq!(fixture.holds("job"), [(java.id.clone(), 2)].into());
        theirs.reads.unlock().value().await;
        assert!(writing.wait_for(ms(100)).await.unwrap().is_none(), "it reads still");
        theirs.reads.unlock().value().await;
        let guard = soon(writing.wait()).await.unwrap();
        assert!(!theirs.reads.try_lock().is_true().await);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        fixture.nothing_left().await;
    });
}

/// `forceUnlock` of either half deletes the lock under all who hold it. Ours hear it with their next
/// renewal, and nothing of theirs is in the way of the next.
#[test]
fn b47_what_java_takes_by_force_is_lost() {
    run(|fixture| async move {
        let rust = fixture.rust_with(|config| config.watchdog_lease(ms(1500))).await;
        let java = fixture.java_owner().await;
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        for writes in [false, true] {
            let guards = if writes {
                vec![soon(ours.write()).await.unwrap().into_guard()]
            } else {
                let (one, two) = (ours.read().await.unwrap(), ours.read().await.unwrap());
                vec![one.into_guard(), two.into_guard()]
            };
            let (right, wrong) = match writes {
                true => (&theirs.writes, &theirs.reads),
                false => (&theirs.reads, &theirs.writes),
            };
            assert!(!wrong.force_unlock().is_true().await, "it is the other half");
            assert!(right.force_unlock().is_true().await);
            let next = soon(ours.try_write()).await.unwrap().expect("nobody holds it");
            for guard in guards {
                soon(guard.lost()).await;
                assert_eq!(guard.state(), GuardState::Lost);
                assert_eq!(guard.release().await.unwrap(), Release::Lost);
            }
            assert_eq!(next.state(), GuardState::Held);
            assert_eq!(next.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}
