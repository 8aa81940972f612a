//! `redis_lock URL`: the crate redis-lock, with its own pause between tries.

use bench_compare::{LEASE, Rival, Share, locked_version, obey};
use redis_lock::{AcquireLockError, LockAcrossError, LockAcrossOptions, lock_across};
use redis_of_redis_lock::Client;
use redis_of_redis_lock::aio::MultiplexedConnection;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};

/// It gives up after ten seconds if nothing else is said.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone)]
struct Theirs(MultiplexedConnection);

/// It knows no guards, only a section that it runs under the lock: this one waits until it is told to end.
struct Held {
    running: Pin<Box<dyn Future<Output = Result<(), LockAcrossError>> + Send>>,
    end: oneshot::Sender<()>,
}

impl Rival for Theirs {
    /// Each task has its own handle of the connection. In its examples all share one behind the mutex, so that
    /// one call at a time is under way.
    type Lock = (Arc<Mutex<MultiplexedConnection>>, String);
    type Guard = Held;

    fn lock(&self, name: &str, _: Share) -> Self::Lock {
        (Arc::new(Mutex::new(self.0.clone())), name.to_owned())
    }

    async fn acquire(
        (connection, name): &mut Self::Lock,
        wait: Option<Duration>,
    ) -> Result<Option<Held>, String> {
        let duration = wait.unwrap_or(FOR_EVER);
        let options = LockAcrossOptions { ttl: LEASE, duration, ..Default::default() };
        let (begun, began) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (connections, name) = ([connection.clone()], name.clone());
        let mut running = Box::pin(async move {
            let section = async move {
                let _ = begun.send(());
                let _ = ended.await;
            };
            lock_across(&connections, &name, section, options).await
        });
        tokio::select! {
            biased;
            done = &mut running => match done {
                Err(LockAcrossError::Acquire(AcquireLockError::Failed(_))) if wait.is_some() => Ok(None),
                Err(error) => Err(error.to_string()),
                Ok(()) => Err("it ended before it was told to".into()),
            },
            _ = began => Ok(Some(Held { running, end })),
        }
    }

    async fn release(_: &mut Self::Lock, held: Held) -> Result<(), String> {
        let _ = held.end.send(());
        held.running.await.map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("redis_lock URL");
    let client = Client::open(url.as_str()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await.expect("the server answers");
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":false",
        locked_version("redis-lock"),
        locked_version("tokio")
    );
    obey(Theirs(connection), &url, &hello).await;
}
