//! Leader election: one replica of a service leads, and the next one takes over when that ends.
//! `cargo run -p fairlock-examples --bin leader [-- redis://127.0.0.1/]`

use fairlock::{Client, Config, Error, ErrorKind, FencingToken, Lock};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time;

/// A replica of the service. Here two of them are tasks; in production each is a process on its own
/// host.
struct Replica {
    name: &'static str,
    resign: Arc<Notify>,
    says: mpsc::UnboundedSender<String>,
}

impl Replica {
    fn say(&self, what: &str) {
        // The receiver may be gone; the replica continues anyway.
        let _ = self.says.send(format!("{} {what}", self.name));
    }

    /// All that only the leader does. The token is its term: it goes along with whatever is written.
    async fn lead(&self, term: FencingToken) {
        assert!(term.get() > 0);
        self.say("leads");
        self.resign.notified().await;
    }

    /// Stands for election, again and again, until this future is dropped.
    async fn stand(&self, lock: &Lock) -> Result<(), Error> {
        loop {
            match lock.with(|held| self.lead(held.token())).await {
                Ok(_) => self.say("resigned"),
                // `lead` was dropped in the middle. Another one may lead already.
                Err(error) if error.kind() == ErrorKind::Lost => self.say("was deposed"),
                // No store, no election. Whoever leads goes on until its lease is over.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) =>
                {
                    self.say("cannot stand");
                    time::sleep(Duration::from_secs(1)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    // A killed leader is replaced after this time at the latest; the default is 30 s.
    let config = Config::from_url(&url)?.watchdog_lease(Duration::from_secs(3)).label("scheduler");
    let client = Client::with_config(config).await?;
    let lock = client.fair_lock("scheduler:leader");
    let (says, mut hears) = mpsc::unbounded_channel();
    let mut hear = async || hears.recv().await.expect("the replicas stand");

    let resign = Arc::new(Notify::new());
    let start = |name| {
        let replica = Replica { name, resign: Arc::clone(&resign), says: says.clone() };
        let lock = lock.clone();
        tokio::spawn(async move { replica.stand(&lock).await })
    };
    let a = start("a");
    println!("{}", hear().await);
    let b = start("b");
    while lock.inspect().await?.queue_len == 0 {
        time::sleep(Duration::from_millis(10)).await;
    }

    // The leader resigns, for example before a restart: the next one leads at once, and it stands
    // again.
    resign.notify_one();
    let mut seen = [hear().await, hear().await];
    seen.sort();
    println!("{}, {}", seen[0], seen[1]);

    // An operator takes the lock away.
    while lock.inspect().await?.queue_len == 0 {
        time::sleep(Duration::from_millis(10)).await;
    }
    lock.force_unlock().await?;
    let mut seen = [hear().await, hear().await];
    seen.sort();
    println!("{}, {}", seen[0], seen[1]);

    for replica in [a, b] {
        replica.abort();
        // A replica that ends releases the lock, or leaves the queue.
        assert!(replica.await.is_err_and(|error| error.is_cancelled()));
    }
    client.shutdown().await;
    Ok(())
}
