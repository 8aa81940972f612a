//! A service of several replicas whose scheduler runs once in the fleet, and of which all know where it runs.
//! `cargo run -p fairlock-examples --bin scheduler [-- redis://127.0.0.1/]`

use fairlock::{Client, Config, Election, Error, FencingToken, Observer, Term};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time;

/// A replica of the service. Here two of them are tasks; in production each is a process on its own
/// host.
struct Replica {
    /// Where it is reached: what it announces while it leads.
    address: &'static str,
    /// Tells it to make room, for example before a restart.
    resign: Arc<Notify>,
}

impl Replica {
    /// Campaigns, again and again, until this future is dropped.
    async fn stand(&self, election: &Election) -> Result<(), Error> {
        // `schedule` is dropped in the middle when the term is lost: another one may lead already. While the store does
        // not answer, whoever leads goes on until its lease is over.
        let terms = election.run_terms(self.address, |term| async {
            self.schedule(term).await;
            ControlFlow::<()>::Continue(())
        });
        terms.await
    }

    /// The scheduler: all that only the leader does, until it is to make room.
    async fn schedule(&self, term: Term) {
        let mut rounds = time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                _ = rounds.tick() => {}
                () = self.resign.notified() => return,
            }
            // A round that hangs ends the term: see `while_touched` below.
            term.touch();
            start_what_is_due(term.token()).await;
        }
    }
}

/// The term goes along with whatever is written, so that a late write of a former leader is refused.
async fn start_what_is_due(term: FencingToken) {
    assert!(term.get() > 0);
}

/// Waits for another leader than this one, and returns where it is. Every replica can do so, to pass
/// requests on.
async fn another(observer: &mut Observer, known: &[u8]) -> Result<String, Error> {
    loop {
        let leader = observer.changed().await?;
        if let Some(value) = leader.and_then(|leader| leader.value).filter(|it| it != known) {
            return Ok(String::from_utf8_lossy(&value).into_owned());
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    // A killed leader is replaced after this time at the latest; the default is 30 s.
    let config = Config::from_url(&url)?.watchdog_lease(Duration::from_secs(3)).label("scheduler");
    let client = Client::with_config(config).await?;
    let election = client.election("scheduler").while_touched(Duration::from_secs(30));
    let mut observer = election.observe().await?;

    let resign = Arc::new(Notify::new());
    let start = |address| {
        let replica = Replica { address, resign: Arc::clone(&resign) };
        let election = election.clone();
        tokio::spawn(async move { replica.stand(&election).await })
    };
    let a = start("http://a:8080");
    println!("runs at {}", another(&mut observer, b"").await?);
    let b = start("http://b:8080");
    // An election is a fair lock, and its candidates are the queue.
    let lock = client.fair_lock("scheduler");
    while lock.inspect().await?.queue_len == 0 {
        time::sleep(Duration::from_millis(10)).await;
    }

    // The leader makes room: the next one leads at once, and it stands again.
    resign.notify_one();
    println!("then at {}", another(&mut observer, b"http://a:8080").await?);
    while lock.inspect().await?.queue_len == 0 {
        time::sleep(Duration::from_millis(10)).await;
    }

    // An operator takes the term away.
    lock.force_unlock().await?;
    println!("then at {}", another(&mut observer, b"http://b:8080").await?);

    for replica in [b, a] {
        replica.abort();
        // A replica that ends gives the term back, or its candidacy.
        assert!(replica.await.is_err_and(|error| error.is_cancelled()));
    }
    while observer.changed().await?.is_some() {}
    println!("then nowhere");
    client.shutdown().await;
    Ok(())
}
