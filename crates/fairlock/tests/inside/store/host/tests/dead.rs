//! Many clients die at once: more than one operation removes from a queue.

use super::super::folder::{self, BELL, Folder};
use super::super::liveness::{self, Liveness, Sign};
use super::fixture::{Fixture, acquire, apply, client, options, take};
use super::worker::Worker;
use crate::{Client, Config, Error, Guard, Lock, Release};
use fairlock_core::{Kind, Mode};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Bound for what must happen.
const SOON: Duration = Duration::from_secs(30);

/// Three times what one operation looks at.
const MANY: u64 = 200;

/// So rare that no heartbeat within a test finds anything: every 20 s.
const SELDOM: Duration = Duration::from_secs(60);

/// Far below that.
const AT_ONCE: Duration = Duration::from_secs(10);

async fn real(fixture: &Fixture) -> Client {
    let config = Config::host(fixture.path()).heartbeat(SELDOM);
    Client::with_config(config).await.unwrap()
}

/// Client 0 holds the fair lock `job`, and the next ones wait for it. They [`die`] with what is returned.
fn crowd(fixture: &Fixture, waiters: u64) -> Vec<Liveness> {
    let mut file = fixture.open();
    take(&mut file, "job", 0);
    for number in 1..=waiters {
        apply(&mut file, "job", &acquire(number, Mode::Wait)).unwrap();
    }
    let folder = Folder::open(&fixture.path(), &options()).unwrap();
    (0..=waiters).map(|number| Liveness::begin(&folder, client(number), false).unwrap()).collect()
}

/// All of them are dead. A child that another test starts at this moment has copies of their files until its program
/// begins, and keeps them alive so long: once a test found one of them alive.
fn die(fixture: &Fixture, crowd: Vec<Liveness>) {
    let all = 0..crowd.len() as u64;
    drop(crowd);
    let folder = Folder::open(&fixture.path(), &options()).unwrap();
    let is_gone = |number| liveness::look(&folder, client(number)) == Sign::Gone;
    fairlock_testkit::wait::until("all are dead", SOON, || all.clone().all(is_gone));
}

/// Waits for the lock in a task, which is in the queue at this place.
async fn wait_behind(lock: &Lock, place: u64) -> JoinHandle<Result<Guard, Error>> {
    let own = lock.clone();
    let waits = tokio::spawn(async move { own.lock().await });
    fairlock_testkit::wait::until_async("it waits", SOON, async || {
        lock.inspect().await.unwrap().queue_len as u64 == place
    })
    .await;
    waits
}

/// It has the lock at once, and releases it.
async fn served(waits: JoinHandle<Result<Guard, Error>>) {
    let guard = tokio::time::timeout(AT_ONCE, waits).await.expect("at once").unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// The waiter behind them removed 64 and watched nobody then: when the holder died as well, the lock
/// was idle until its heartbeat.
#[tokio::test]
async fn the_one_behind_many_that_die_at_once_is_served_at_once() {
    let fixture = Fixture::new();
    let mut all = crowd(&fixture, MANY);
    let waiter = real(&fixture).await;
    let lock = waiter.fair_lock("job");
    let waits = wait_behind(&lock, MANY + 1).await;
    drop(all.split_off(1));
    fairlock_testkit::wait::until_async("the dead are gone", AT_ONCE, async || {
        lock.inspect().await.unwrap().queue_len == 1
    })
    .await;
    drop(all);
    served(waits).await;
    assert_eq!(lock.inspect().await.unwrap().queue_len, 0);
}

/// A try looked at 64 of them and found the lock taken.
#[tokio::test]
async fn a_try_finds_the_lock_of_many_dead_free() {
    let fixture = Fixture::new();
    die(&fixture, crowd(&fixture, MANY));
    let client = real(&fixture).await;
    let guard = client.fair_lock("job").try_lock().await.unwrap();
    let _ = guard.expect("all are dead").release().await.unwrap();
}

/// What the dead leave under a name is no lock of any kind.
#[tokio::test]
async fn a_name_that_only_the_dead_use_serves_every_kind() {
    for dead in [1, MANY] {
        for kind in [Kind::Plain, Kind::Simple, Kind::Fair] {
            let fixture = Fixture::new();
            die(&fixture, crowd(&fixture, dead));
            let client = real(&fixture).await;
            let lock = match kind {
                Kind::Plain => client.plain_lock("job"),
                Kind::Simple => client.simple_lock("job"),
                _ => client.fair_lock("job"),
            };
            let guard = lock.try_lock().await.unwrap().expect("all are dead");
            let _ = guard.release().await.unwrap();
            let fair = client.fair_lock("job").try_lock().await.unwrap();
            let _ = fair.expect("free").release().await.unwrap();
        }
    }
}

/// A release could not be written, as on a full disk, and its client ended: it removed the proof of
/// its end with its other files, so the next one waited for the whole lease.
#[tokio::test]
async fn a_hold_whose_release_failed_ends_with_its_client() {
    let fixture = Fixture::new();
    let config = Config::host(fixture.path()).store_timeout(Duration::from_secs(1));
    let config = config.response_timeout(Duration::from_millis(200));
    let config = config.watchdog_lease(Duration::from_secs(300));
    let holder = Client::with_config(config).await.unwrap();
    let guard = holder.fair_lock("job").lock().await.unwrap();
    let waiter = real(&fixture).await;
    let waits = wait_behind(&waiter.fair_lock("job"), 1).await;
    let mut writer = Worker::start("block", &fixture.path());
    assert_eq!(writer.says().as_deref(), Some("blocks"));
    assert_eq!(guard.release().await.unwrap(), Release::Unknown);
    let bell = folder::name(holder.id(), BELL);
    holder.shutdown().await;
    // Its release is repeated until then, and would succeed if the file were free.
    let folder = Folder::open(&fixture.path(), &options()).unwrap();
    fairlock_testkit::wait::until_async("it has ended", SOON, async || !folder.has(&bell)).await;
    writer.kill();
    served(waits).await;
}
