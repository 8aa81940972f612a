//! `distkit_rw URL`: the read-write lock of the crate distkit, with its own polling interval.

use bench_compare::{LEASE, Rival, Share, locked_version, obey};
use distkit::lock::{LockError, LockOptions, RwLock, RwLockReadGuard, RwLockWriteGuard};
use distkit::{DistkitError, DistkitRedisKey};
use redis::aio::ConnectionManager;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
struct Theirs(ConnectionManager);

struct Side {
    lock: Arc<RwLock>,
    reads: bool,
}

enum Guard {
    Reads(RwLockReadGuard),
    Writes(RwLockWriteGuard),
}

impl Rival for Theirs {
    type Lock = Side;
    type Guard = Guard;

    fn lock(&self, name: &str, share: Share) -> Side {
        let key = DistkitRedisKey::try_from(name.replace(':', "_")).expect("a legal key");
        // One for each task: the owner is the lock.
        let lock = RwLock::new(LockOptions::builder(key, self.0.clone()).ttl(LEASE).build());
        Side { lock, reads: share.reads }
    }

    async fn acquire(side: &mut Side, wait: Option<Duration>) -> Result<Option<Guard>, String> {
        let guard = match (side.reads, wait) {
            (true, None) => side.lock.read().await.map(Guard::Reads),
            (true, Some(wait)) => side.lock.try_read_with_timeout(wait).await.map(Guard::Reads),
            (false, None) => side.lock.write().await.map(Guard::Writes),
            (false, Some(wait)) => side.lock.try_write_with_timeout(wait).await.map(Guard::Writes),
        };
        match guard {
            Ok(guard) => Ok(Some(guard)),
            Err(DistkitError::LockError(LockError::Timeout { .. })) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn release(_: &mut Side, guard: Guard) -> Result<(), String> {
        match guard {
            Guard::Reads(guard) => guard.release().await,
            Guard::Writes(guard) => guard.release().await,
        }
        .map(drop)
        .map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("distkit_rw URL");
    let client = redis::Client::open(url.as_str()).expect("a URL");
    let connection = client.get_connection_manager().await.expect("the server answers");
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":true",
        locked_version("distkit"),
        locked_version("tokio")
    );
    obey(Theirs(connection), &url, &hello).await;
}
