//! `ours fair|plain|simple|rw|semaphore URL`: this project's own locks, on any store.

use bench_compare::{Rival, Share, locked_version, obey};
use fairlock::{Client, Error, Guard, Lock, Permit, ReadGuard, RwLock, Semaphore, WriteGuard};
use std::time::Duration;

#[derive(Clone)]
struct Ours {
    client: Client,
    wanted: fn(&Client, &str, Share) -> Wanted,
}

/// What one task takes, turn after turn.
enum Wanted {
    Lock(Lock),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore),
}

impl Wanted {
    async fn acquire(&self) -> Result<Guard, Error> {
        match self {
            Self::Lock(lock) => lock.lock().await,
            Self::Read(lock) => lock.read().await.map(ReadGuard::into_guard),
            Self::Write(lock) => lock.write().await.map(WriteGuard::into_guard),
            Self::Permit(permits) => permits.acquire().await.map(Permit::into_guard),
        }
    }

    async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock_for(wait).await?,
            Self::Read(lock) => lock.try_read_for(wait).await?.map(ReadGuard::into_guard),
            Self::Write(lock) => lock.try_write_for(wait).await?.map(WriteGuard::into_guard),
            Self::Permit(permits) => permits.try_acquire_for(wait).await?.map(Permit::into_guard),
        })
    }
}

impl Rival for Ours {
    type Lock = Wanted;
    type Guard = Guard;

    fn lock(&self, name: &str, share: Share) -> Wanted {
        (self.wanted)(&self.client, name, share)
    }

    async fn acquire(wanted: &mut Wanted, wait: Option<Duration>) -> Result<Option<Guard>, String> {
        match wait {
            None => wanted.acquire().await.map(Some),
            Some(wait) => wanted.try_acquire_for(wait).await,
        }
        .map_err(|error| error.to_string())
    }

    async fn release(_: &mut Wanted, guard: Guard) -> Result<(), String> {
        match guard.release().await {
            Ok(fairlock::Release::Released) => Ok(()),
            Ok(other) => Err(format!("release: {other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [kind, url] = &args[..] else { panic!("ours KIND URL") };
    let wanted: fn(&Client, &str, Share) -> Wanted = match kind.as_str() {
        "fair" => |client, name, _| Wanted::Lock(client.fair_lock(name)),
        "plain" => |client, name, _| Wanted::Lock(client.plain_lock(name)),
        "simple" => |client, name, _| Wanted::Lock(client.simple_lock(name)),
        "rw" => |client, name, share| {
            if share.reads {
                Wanted::Read(client.rw_lock(name))
            } else {
                Wanted::Write(client.rw_lock(name))
            }
        },
        "semaphore" => |client, name, share| Wanted::Permit(client.semaphore(name, share.permits)),
        _ => panic!("{kind}: no kind of lock"),
    };
    let client = Client::connect(url).await.expect("the store answers");
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":true",
        locked_version("fairlock"),
        locked_version("tokio")
    );
    obey(Ours { client, wanted }, url, &hello).await;
}
