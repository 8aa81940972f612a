//! `redisson_rs fair|plain URL`: the crate redisson, which has nothing to do with Redisson but the name.

use bench_compare::{Rival, Share, locked_version, obey};
use redisson::{AsyncRFairLock, AsyncRLock, AsyncRedissonClient, RedissonConfig};
use std::sync::Arc;
use std::time::Duration;

/// Each waiter keeps a connection of its pool; with the default of 10 the holder gets none to release with once
/// ten wait.
const CONNECTIONS: u32 = 1_100;

#[derive(Clone)]
struct Theirs {
    client: Arc<AsyncRedissonClient>,
    fair: bool,
}

enum Lock {
    Fair(AsyncRFairLock),
    Plain(AsyncRLock),
}

impl Rival for Theirs {
    type Lock = Lock;
    type Guard = ();

    fn lock(&self, name: &str, _: Share) -> Lock {
        if self.fair {
            Lock::Fair(self.client.get_fair_lock(name))
        } else {
            Lock::Plain(self.client.get_lock(name))
        }
    }

    async fn acquire(lock: &mut Lock, wait: Option<Duration>) -> Result<Option<()>, String> {
        let got = match (lock, wait) {
            (Lock::Fair(lock), None) => lock.lock().await.map(|()| true),
            (Lock::Fair(lock), Some(wait)) => lock.try_lock_with_timeout(wait).await,
            (Lock::Plain(lock), None) => lock.lock().await.map(|()| true),
            (Lock::Plain(lock), Some(wait)) => lock.try_lock_with_timeout(wait).await,
        };
        got.map(|got| got.then_some(())).map_err(|error| error.to_string())
    }

    async fn release(lock: &mut Lock, (): ()) -> Result<(), String> {
        let released = match lock {
            Lock::Fair(lock) => lock.unlock().await,
            Lock::Plain(lock) => lock.unlock().await,
        };
        // Whether it was held it does not say: a lock that is released entirely is `false`, too.
        released.map(drop).map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [kind, url] = &args[..] else { panic!("redisson_rs fair|plain URL") };
    let config = RedissonConfig::single_server(url).with_pool_size(CONNECTIONS);
    let client = AsyncRedissonClient::new(config).await.expect("the server answers");
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":false",
        locked_version("redisson"),
        locked_version("tokio")
    );
    obey(Theirs { client: Arc::new(client), fair: kind == "fair" }, url, &hello).await;
}
