//! `ours fair|plain|simple URL`: this project's own locks, on any store.

use bench_compare::{Rival, locked_version, obey};
use fairlock::{Client, Guard, Lock};
use std::time::Duration;

#[derive(Clone)]
struct Ours {
    client: Client,
    lock: fn(&Client, &str) -> Lock,
}

impl Rival for Ours {
    type Lock = Lock;
    type Guard = Guard;

    fn lock(&self, name: &str) -> Lock {
        (self.lock)(&self.client, name)
    }

    async fn acquire(lock: &mut Lock, wait: Option<Duration>) -> Result<Option<Guard>, String> {
        match wait {
            None => lock.lock().await.map(Some),
            Some(wait) => lock.try_lock_for(wait).await,
        }
        .map_err(|error| error.to_string())
    }

    async fn release(_: &mut Lock, guard: Guard) -> Result<(), String> {
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
    let [kind, url] = &args[..] else { panic!("ours fair|plain|simple URL") };
    let lock: fn(&Client, &str) -> Lock = match kind.as_str() {
        "fair" => |client, name| client.fair_lock(name),
        "plain" => |client, name| client.plain_lock(name),
        "simple" => |client, name| client.simple_lock(name),
        _ => panic!("{kind}: no kind of lock"),
    };
    let client = Client::connect(url).await.expect("the store answers");
    let hello = format!(
        "\"version\":\"{}\",\"runs_on\":\"tokio {}\",\"renews\":true",
        locked_version("fairlock"),
        locked_version("tokio")
    );
    obey(Ours { client, lock }, url, &hello).await;
}
