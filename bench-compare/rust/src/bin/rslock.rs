//! `rslock URL`: the crate rslock, with its own retry settings.

use bench_compare::{LEASE, Rival, Share, locked_version, obey};
use rslock::{Lock, LockError, LockManager};
use std::time::Duration;

#[derive(Clone)]
struct Theirs(LockManager);

impl Rival for Theirs {
    type Lock = (LockManager, String);
    type Guard = Lock;

    fn lock(&self, name: &str, _: Share) -> Self::Lock {
        (self.0.clone(), name.to_owned())
    }

    async fn acquire(
        (manager, name): &mut Self::Lock,
        wait: Option<Duration>,
    ) -> Result<Option<Lock>, String> {
        let Some(wait) = wait else {
            let lock = manager.acquire_no_guard(name.as_bytes(), LEASE).await;
            return lock.map(Some).map_err(|error| error.to_string());
        };
        // It bounds a wait by tries only: two, with a random pause below the wait in between.
        let mut manager = manager.clone();
        manager.set_retry(2, wait);
        match manager.lock(name.as_bytes(), LEASE).await {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Unavailable) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn release((manager, _): &mut Self::Lock, lock: Lock) -> Result<(), String> {
        // It does not say what came of it.
        manager.unlock(&lock).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("rslock URL");
    let manager = LockManager::new(vec![url.as_str()]);
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":false",
        locked_version("rslock"),
        locked_version("tokio")
    );
    obey(Theirs(manager), &url, &hello).await;
}
