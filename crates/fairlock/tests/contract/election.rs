//! Elections: who leads, who sees it, and what ends a term.

use std::time::Duration;

use super::super::api::{Client, Term};
use super::super::support::{SOON, Store, soon, until};
use fairlock::{ErrorKind, Leader, LostReason, Release};
use tokio::task::JoinHandle;

/// Campaigns in a task, which waits behind `before` others when this returns.
async fn candidate(client: &Client, value: &'static str, before: usize) -> JoinHandle<Term> {
    let election = client.election("scheduler");
    let campaign = tokio::spawn(async move { election.campaign(value).await.unwrap() });
    let lock = client.fair_lock("scheduler");
    until("the candidate", async || lock.inspect().await.unwrap().queue_len == before + 1).await;
    campaign
}

async fn leader(client: &Client) -> Option<Leader> {
    client.election("scheduler").leader().await.unwrap()
}

fn value(leader: &Leader) -> &str {
    std::str::from_utf8(leader.value.as_deref().expect("announced")).unwrap()
}

pub(super) async fn a_leader_is_seen_by_all(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    assert_eq!(leader(&other).await, None);
    let mut observer = other.election("scheduler").observe().await.unwrap();
    assert_eq!(soon("a change", observer.changed()).await.unwrap(), None);
    let term = client.election("scheduler").campaign("one").await.unwrap();
    let seen = soon("a change", observer.changed()).await.unwrap().expect("it leads");
    // Elected comes first, if it is seen.
    let seen = match seen.value {
        None => soon("a change", observer.changed()).await.unwrap().expect("it leads"),
        Some(_) => seen,
    };
    assert_eq!((seen.term, &seen.owner, value(&seen)), (term.token(), term.owner(), "one"));
    term.proclaim("two").await.unwrap();
    let next = soon("a change", observer.changed()).await.unwrap().expect("it leads");
    assert_eq!((next.term, next.since, value(&next)), (seen.term, seen.since, "two"));
    assert_eq!(leader(&other).await.as_ref(), Some(&next));
    assert_eq!(leader(&client).await, Some(next));
    assert_eq!(term.resign().await.unwrap(), Release::Released);
    assert_eq!(soon("a change", observer.changed()).await.unwrap(), None);
    assert_eq!(leader(&other).await, None);
}

pub(super) async fn a_resigned_leader_is_followed_in_turn(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let first = client.election("scheduler").campaign("first").await.unwrap();
    let second = candidate(&other, "second", 0).await;
    let third = candidate(&client, "third", 1).await;
    let mut observer = other.election("scheduler").observe().await.unwrap();
    let mut terms = vec![soon("a change", observer.changed()).await.unwrap().unwrap().term];
    assert_eq!(first.resign().await.unwrap(), Release::Released);
    for (campaign, expected) in [(second, "second"), (third, "third")] {
        let term = soon("the next", campaign).await.unwrap();
        loop {
            let seen = soon("a change", observer.changed()).await.unwrap();
            let Some(seen) = seen.filter(|it| it.value.is_some()) else { continue };
            if seen.term != term.token() {
                continue;
            }
            assert_eq!(value(&seen), expected);
            terms.push(seen.term);
            break;
        }
        assert_eq!(term.resign().await.unwrap(), Release::Released);
    }
    assert!(terms.is_sorted() && terms.len() == 3, "{terms:?}");
}

/// B43: a leader that was followed announces nothing any more.
pub(super) async fn b43_a_former_leader_announces_nothing(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let former = client.election("scheduler").campaign("former").await.unwrap();
    assert!(other.fair_lock("scheduler").force_unlock().await.unwrap());
    let term = other.election("scheduler").campaign("present").await.unwrap();
    let error = former.proclaim("late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    let seen = leader(&client).await.expect("it leads");
    assert_eq!((seen.term, value(&seen)), (term.token(), "present"));
    assert_eq!(former.resign().await.unwrap(), Release::Lost);
    assert_eq!(term.resign().await.unwrap(), Release::Released);
}

pub(super) async fn a_lock_that_nobody_announces_has_a_leader_without_a_value(store: Store) {
    let client = store.client().await;
    let guard = client.fair_lock("scheduler").lock().await.unwrap();
    let seen = leader(&client).await.expect("it holds the lock");
    assert_eq!((seen.term, seen.value, seen.since), (guard.token(), None, None));
    drop(guard);
    until("the end", async || leader(&client).await.is_none()).await;
}

pub(super) async fn a_leader_that_hangs_is_followed(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let election = client.election("scheduler").while_touched(Duration::from_millis(1_500));
    let hung = election.campaign("hung").await.unwrap();
    let next = candidate(&other, "next", 0).await;
    // Longer than it lasts without.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        hung.touch();
    }
    hung.ensure_valid().unwrap();
    soon("the end", hung.lost()).await;
    assert_eq!(hung.lost_reason(), Some(LostReason::Untouched));
    let term = tokio::time::timeout(SOON, next).await.expect("followed at once").unwrap();
    assert!(term.token() > hung.token());
    assert_eq!(hung.resign().await.unwrap(), Release::Lost);
    term.ensure_valid().unwrap();
    assert_eq!(term.resign().await.unwrap(), Release::Released);
}

pub(super) async fn bad_input_is_refused(store: Store) {
    let client = store.client().await;
    let longest = vec![b'x'; 1_024];
    let kind = |outcome: Result<Term, fairlock::Error>| outcome.map(drop).unwrap_err().kind();
    let election = client.election("scheduler");
    assert_eq!(kind(election.campaign([&longest[..], b"x"].concat()).await), ErrorKind::Misuse);
    assert_eq!(kind(client.election("").campaign("x").await), ErrorKind::Misuse);
    assert!(client.election("").observe().await.is_err());
    let short = client.election("scheduler").while_touched(Duration::from_millis(99));
    assert_eq!(kind(short.campaign("x").await), ErrorKind::Misuse);
    assert_eq!(leader(&client).await, None, "nothing was sent");

    let term = election.campaign(&longest).await.unwrap();
    let error = term.proclaim([&longest[..], b"x"].concat()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    assert_eq!(leader(&client).await.unwrap().value, Some(longest));
    term.proclaim("").await.unwrap();
    assert_eq!(leader(&client).await.unwrap().value, Some(Vec::new()));
    term.proclaim(b"\0\r\n\xff % {}").await.unwrap();
    let seen = leader(&client).await.unwrap();
    assert!(format!("{seen:?}").contains(r"\xff % {}"), "{seen:?}");
    assert_eq!(seen.value.unwrap(), b"\0\r\n\xff % {}");
    assert_eq!(term.resign().await.unwrap(), Release::Released);

    let guard = client.simple_lock("scheduler").lock().await.unwrap();
    let refused = client.election("scheduler").leader().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongType);
    assert_eq!(kind(election.campaign("x").await), ErrorKind::WrongType);
    drop(guard);
}
