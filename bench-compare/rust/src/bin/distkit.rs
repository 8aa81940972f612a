//! `distkit URL`: the mutex of the crate distkit, with its own polling interval.

use bench_compare::{LEASE, Rival, Share, locked_version, obey};
use distkit::lock::{LockError, LockOptions, Mutex, MutexGuard};
use distkit::{DistkitError, DistkitRedisKey};
use redis::aio::ConnectionManager;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
struct Theirs(ConnectionManager);

impl Rival for Theirs {
    type Lock = Arc<Mutex>;
    type Guard = MutexGuard;

    fn lock(&self, name: &str, _: Share) -> Arc<Mutex> {
        let key = DistkitRedisKey::try_from(name.replace(':', "_")).expect("a legal key");
        // One for each task: the owner is the mutex.
        Mutex::new(LockOptions::builder(key, self.0.clone()).ttl(LEASE).build())
    }

    async fn acquire(
        lock: &mut Arc<Mutex>,
        wait: Option<Duration>,
    ) -> Result<Option<MutexGuard>, String> {
        let guard = match wait {
            None => lock.lock().await,
            Some(wait) => lock.try_lock_with_timeout(wait).await,
        };
        match guard {
            Ok(guard) => Ok(Some(guard)),
            Err(DistkitError::LockError(LockError::Timeout { .. })) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn release(_: &mut Arc<Mutex>, guard: MutexGuard) -> Result<(), String> {
        guard.release().await.map(drop).map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("distkit URL");
    let client = redis::Client::open(url.as_str()).expect("a URL");
    let connection = client.get_connection_manager().await.expect("the server answers");
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":true",
        locked_version("distkit"),
        locked_version("tokio")
    );
    obey(Theirs(connection), &url, &hello).await;
}
