use std::net::SocketAddr;

use fairlock::{ErrorKind, Release};
use fairlock_testkit::raw::Raw;

use super::Theirs;
use crate::fixture::{run, soon};

#[test]
fn what_java_holds_is_held_for_ours() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        theirs.writes.lock().value().await;
        assert!(ours.try_read().await.unwrap().is_none());
        assert!(ours.try_write().await.unwrap().is_none());
        let seen = ours.inspect().await.unwrap();
        assert_eq!(seen.holders.len(), 1);
        assert!(seen.holders[0].owner.to_string().starts_with(&java.id), "{seen:?}");
        theirs.writes.unlock().value().await;

        theirs.reads.lock().value().await;
        assert!(ours.try_write().await.unwrap().is_none());
        let reading = ours.try_read().await.unwrap().expect("Java reads");
        assert_eq!(ours.inspect().await.unwrap().holding, 2);
        theirs.reads.unlock().value().await;
        assert!(ours.try_write().await.unwrap().is_none(), "ours reads on");
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        let writing = ours.try_write().await.unwrap().expect("it is free");
        assert_eq!(writing.release().await.unwrap(), Release::Released);
        fixture.nothing_left().await;
    });
}

#[test]
fn what_ours_hold_is_held_for_java() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        let writing = soon(ours.write()).await.unwrap();
        assert!(!theirs.reads.try_lock().is_true().await);
        assert!(!theirs.writes.try_lock().is_true().await);
        assert!(theirs.writes.is_locked().is_true().await);
        assert!(!theirs.writes.is_mine().is_true().await);
        let exception = theirs.writes.unlock().exception().await;
        assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
        let reading = writing.downgrade().await.unwrap();

        assert!(!theirs.writes.try_lock().is_true().await);
        assert!(theirs.reads.is_locked().is_true().await);
        assert_eq!(theirs.reads.hold_count().number().await, 0);
        let exception = theirs.reads.unlock().exception().await;
        assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
        assert!(theirs.reads.try_lock().is_true().await);
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        assert!(ours.try_write().await.unwrap().is_none(), "Java reads on");
        theirs.reads.unlock().value().await;
        assert!(theirs.writes.try_lock().is_true().await);
        theirs.writes.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// Each counts its own holds beside those of the other, and a partial release frees nothing.
#[test]
fn each_counts_its_own_holds() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        let first = soon(ours.read()).await.unwrap();
        let second = first.reenter().await.unwrap();
        for count in 1..=3 {
            theirs.reads.lock().value().await;
            assert_eq!(theirs.reads.hold_count().number().await, count);
            assert_eq!(fixture.holds("job").get(&java.id), Some(&count));
        }
        assert_eq!(second.release().await.unwrap(), Release::StillHeld(1));
        assert_eq!(fixture.holds("job")[&first.owner().to_string()], 1);
        for left in [2, 1] {
            theirs.reads.unlock().value().await;
            assert_eq!(fixture.holds("job").get(&java.id), Some(&left));
            assert!(ours.try_write().await.unwrap().is_none());
        }
        assert_eq!(first.release().await.unwrap(), Release::Released);
        assert!(ours.try_write().await.unwrap().is_none(), "Java reads");
        theirs.reads.unlock().value().await;

        let first = soon(ours.write()).await.unwrap();
        let second = first.reenter().await.unwrap();
        let field = format!("{}:write", first.owner());
        assert_eq!(fixture.holds("job"), [(field, 2)].into());
        assert_eq!(second.release().await.unwrap(), Release::StillHeld(1));
        assert!(!theirs.reads.try_lock().is_true().await);
        assert_eq!(first.release().await.unwrap(), Release::Released);
        for _ in 0..2 {
            theirs.writes.lock().value().await;
        }
        theirs.writes.unlock().value().await;
        assert!(ours.try_read().await.unwrap().is_none(), "it writes still");
        theirs.writes.unlock().value().await;
        assert!(ours.try_read().await.unwrap().is_some());
        fixture.nothing_left().await;
    });
}

/// Redisson takes the hash of a plain or fair lock for a free read-write lock. Ours do not, nor the
/// other way round.
#[test]
fn ours_keep_out_of_another_kind_of_lock() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        java.fair("job").lock().value().await;
        let error = rust.rw_lock("job").try_read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        java.fair("job").unlock().value().await;
        let theirs = Theirs::new(&java, "job");
        theirs.reads.lock().value().await;
        let error = rust.fair_lock("job").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert_eq!(fixture.holds("job").len(), 1, "nothing of ours");
        theirs.reads.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// Writers of both sides change two numbers, one after the other; readers of both sides never see
/// them apart, and no change is lost.
#[test]
fn readers_of_either_side_see_no_half_of_a_change() {
    run(|fixture| async move {
        const EACH: usize = 12;
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let server = fixture.server.addr();
        let mut tasks = Vec::new();
        for n in 0..3 {
            let theirs = Theirs::new(&java.owner(&format!("t{n}")).await, "counted");
            let ours = rust.rw_lock("counted");
            tasks.push(tokio::spawn(async move {
                for round in 0..EACH {
                    if (round + n) % 3 == 0 {
                        theirs.writes.lock().value().await;
                        change(server).await;
                        theirs.writes.unlock().value().await;
                    } else {
                        theirs.reads.lock().value().await;
                        look(server).await;
                        theirs.reads.unlock().value().await;
                    }
                }
            }));
            tasks.push(tokio::spawn(async move {
                for round in 0..EACH {
                    if (round + n) % 3 == 0 {
                        let guard = ours.write().await.unwrap();
                        change(server).await;
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    } else {
                        let guard = ours.read().await.unwrap();
                        look(server).await;
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                }
            }));
        }
        for task in tasks {
            soon(task).await.unwrap();
        }
        let changes = (2 * 3 * EACH / 3).to_string();
        assert_eq!(fixture.call(&["GET", "one"]).text(), changes);
        assert_eq!(fixture.call(&["DEL", "one", "two"]).int(), 2);
        fixture.nothing_left().await;
    });
}

fn number(raw: &mut Raw, key: &str) -> u32 {
    let value = raw.call(&["GET", key]);
    if value.is_nil() { 0 } else { value.text().parse().unwrap() }
}

/// Calls with gaps in which interference would show.
async fn change(server: SocketAddr) {
    let mut raw = Raw::connect(server);
    let (one, two) = (number(&mut raw, "one"), number(&mut raw, "two"));
    assert_eq!(one, two);
    raw.call(&["SET", "one", &(one + 1).to_string()]);
    tokio::task::yield_now().await;
    raw.call(&["SET", "two", &(two + 1).to_string()]);
}

async fn look(server: SocketAddr) {
    let mut raw = Raw::connect(server);
    let one = number(&mut raw, "one");
    tokio::task::yield_now().await;
    assert_eq!(one, number(&mut raw, "two"), "a writer is beside a reader");
}
