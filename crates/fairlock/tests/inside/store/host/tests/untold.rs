//! Deaths around a line for shares: of one that had served it and told nobody yet, and of one among more
//! than a waiter watches.

use super::super::folder::Folder;
use super::super::liveness::Liveness;
use super::fixture::{Fixture, apply, ask, body, client, options, owner};
use crate::{Client, Config, Error, Guard, Release};
use fairlock_core::{Body, Kind, Mode, Op, Share, Token};
use std::time::Duration;
use tokio::task::JoinHandle;

const JOB: &str = "job";

/// Bound for what must happen.
const SOON: Duration = Duration::from_secs(30);

/// So rare that no heartbeat within a test finds anything: every 20 s.
const SELDOM: Duration = Duration::from_secs(60);

/// Far below that.
const AT_ONCE: Duration = Duration::from_secs(10);

type Waits = JoinHandle<Result<Guard, Error>>;

async fn real(fixture: &Fixture, heartbeat: Duration) -> Client {
    let config = Config::host(fixture.path()).heartbeat(heartbeat);
    Client::with_config(config).await.unwrap()
}

/// Client `number` is alive until what is returned is dropped. It tells nobody of what it does.
fn alive(fixture: &Fixture, number: u64) -> Liveness {
    let folder = Folder::open(&fixture.path(), &options()).unwrap();
    Liveness::begin(&folder, client(number), false).unwrap()
}

/// Client `number` gets this share at once.
fn takes(fixture: &Fixture, number: u64, share: Share) -> Token {
    match body(&mut fixture.open(), JOB, &ask(number, share, Mode::Try)) {
        Body::Granted { token, .. } => token,
        other => panic!("{number}: {other:?}"),
    }
}

fn releases(fixture: &Fixture, kind: Kind, number: u64, token: Token) {
    let op = Op::Release { kind, owner: owner(number), token, keep: 0, change: 0 };
    let op = op.of_hold(kind, super::fixture::request(number), 0);
    assert_eq!(body(&mut fixture.open(), JOB, &op), Body::Released);
}

/// Waits for a share in a task, at this place.
async fn waits(client: &Client, share: Share, place: usize) -> Waits {
    let (rw, own) = (client.rw_lock(JOB), client.clone());
    let task = tokio::spawn(async move {
        let rw = own.rw_lock(JOB);
        Ok(match share {
            Share::Permits { n, limit } => {
                own.semaphore(JOB, limit).acquire_many(n).await?.into_guard()
            }
            Share::Whole => rw.write().await?.into_guard(),
            _ => rw.read().await?.into_guard(),
        })
    });
    fairlock_testkit::wait::until_async("it waits", SOON, async || {
        let length = match share {
            Share::Permits { limit, .. } => own_length(client, limit).await,
            _ => rw.inspect().await.unwrap().queue_len,
        };
        length == place
    })
    .await;
    task
}

async fn own_length(client: &Client, limit: u32) -> usize {
    client.semaphore(JOB, limit).inspect().await.unwrap().queue_len
}

async fn served(waits: Waits) -> Guard {
    tokio::time::timeout(AT_ONCE, waits).await.expect("at once").unwrap().unwrap()
}

async fn gives_back(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A trial from outside killed processes as fast as it could. Twice in 8 200 kills a lock was idle until a
/// heartbeat: who had been let in did not know, or nobody knew whom to watch.
#[tokio::test]
async fn one_killed_before_it_tells_anybody_keeps_nobody_waiting() {
    let fixture = Fixture::new();
    // A file that is new while somebody uses another one is refused.
    drop(fixture.open());
    let dying = alive(&fixture, 0);
    let token = takes(&fixture, 0, Share::Whole);
    let [first, second, last] =
        [real(&fixture, SELDOM).await, real(&fixture, SELDOM).await, real(&fixture, SELDOM).await];
    let one = waits(&first, Share::Read, 1).await;
    let silent = alive(&fixture, 1);
    apply(&mut fixture.open(), JOB, &ask(1, Share::Read, Mode::Wait)).unwrap();
    let two = waits(&second, Share::Read, 3).await;
    let writer = waits(&last, Share::Whole, 4).await;
    releases(&fixture, Kind::ReadWrite, 0, token);
    drop(dying);
    // The first watched it. The second learns from the first, and so does the writer, who then watches
    // more than the reader before it.
    let (one, two) = (served(one).await, served(two).await);
    gives_back(two).await;
    gives_back(one).await;
    assert!(!writer.is_finished(), "beside one that reads");
    drop(silent);
    gives_back(served(writer).await).await;
}

/// One of 65 holders: at first it is not among the 64 whose deaths the waiter watches for.
#[tokio::test]
async fn a_waiter_behind_a_crowd_watches_others_when_some_have_left() {
    const MANY: u64 = 64;
    let fixture = Fixture::new();
    let (others, waiting) = (real(&fixture, SELDOM).await, real(&fixture, SELDOM).await);
    let limit = MANY as u32 + 1;
    let permit = Share::Permits { n: 1, limit };
    // Their ids are larger than any random one.
    let number = |at: u64| u64::from(u32::MAX) - 1 - at;
    let mut alive: Vec<_> = (0..MANY).map(|at| alive(&fixture, number(at))).collect();
    for at in 0..MANY {
        takes(&fixture, number(at), permit);
    }
    let other = others.semaphore(JOB, limit).acquire().await.unwrap();
    let two = waits(&waiting, Share::Permits { n: 2, limit }, 1).await;
    gives_back(other.into_guard()).await;
    drop(alive.remove(0));
    gives_back(served(two).await).await;
}

/// Of 100 who hold permits, the waiter does not watch this one.
#[tokio::test]
async fn one_of_too_many_is_found_with_a_heartbeat() {
    const MANY: u64 = 100;
    let fixture = Fixture::new();
    let waiting = real(&fixture, Duration::from_millis(50)).await;
    let permit = Share::Permits { n: 1, limit: MANY as u32 };
    let mut alive: Vec<_> = (0..MANY).map(|at| alive(&fixture, at)).collect();
    for at in 0..MANY {
        takes(&fixture, at, permit);
    }
    let one = waits(&waiting, permit, 1).await;
    drop(alive.pop());
    let guard = tokio::time::timeout(SOON, one).await.expect("soon").unwrap().unwrap();
    gives_back(guard).await;
}
