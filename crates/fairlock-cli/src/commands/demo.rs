//! `fairlock demo`: shows what fairlock promises, on locks inside this process, and checks it.
//!
//! It only uses the public API, so it is also the shortest complete example of its use. A claim that does
//! not hold ends the program with code 1.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fairlock::{Client, Error, Lock};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;

use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::output;

/// The whole show takes about a second. If it takes longer than this, it has failed.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// How long each contender works under the lock: long enough to notice two at once.
const WORK: Duration = Duration::from_millis(20);

/// Lease of the holder that crashes.
const LEASE: Duration = Duration::from_millis(500);

/// How long after the end of that lease the next contender may be served.
const LEASE_SLACK: Duration = Duration::from_millis(500);

/// Time between two looks at the queue while contenders line up.
const POLL: Duration = Duration::from_millis(2);

/// Name of the lock.
const NAME: &str = "demo";

pub(crate) const HELP: &str = "\
Exit codes:
  0        every claim held
  1        a claim did not hold, or the demo took longer than 3 s
  70       internal error; stdout cannot be written";

/// Plays all scenes. The code is 0 if every claim held.
pub(crate) async fn demo() -> Result<Code, Failure> {
    match time::timeout(TIME_LIMIT, Show::play()).await {
        Ok(result) => result,
        Err(_) => Err(failed(format!("not finished within {}", duration::human(TIME_LIMIT)))),
    }
}

struct Show {
    client: Client,
    /// Tokens of all grants, in their order.
    tokens: Vec<u64>,
    grants: mpsc::UnboundedSender<Grant>,
    granted: mpsc::UnboundedReceiver<Grant>,
    /// How many contenders believe at this moment that they hold the lock.
    inside: Arc<AtomicU32>,
}

/// A contender had its turn.
struct Grant {
    contender: usize,
    token: u64,
    alone: bool,
}

impl Show {
    async fn play() -> Result<Code, Failure> {
        let (grants, granted) = mpsc::unbounded_channel();
        let client = Client::connect("memory:").await?;
        let inside = Arc::new(AtomicU32::new(0));
        let mut show = Self { client, tokens: Vec::new(), grants, granted, inside };
        say("fairlock demo: locks inside this process, no server needed\n")?;
        show.turns_in_order().await?;
        show.death_in_the_queue().await?;
        show.crash_of_the_holder().await?;
        show.tokens_only_grow()?;
        show.readers_and_a_writer().await?;
        show.permits().await?;
        show.client.shutdown().await;
        say("\nAll claims held.\n")
    }

    async fn turns_in_order(&mut self) -> Result<(), Failure> {
        say("\n1. Turns are taken in order, one at a time\n")?;
        let holder = self.lock().lock().await?;
        self.tokens.push(holder.token().get());
        say("   somebody holds the lock; contenders 1 2 3 4 5 queue up behind\n")?;
        let tasks = self.line_up(5).await?;
        let _ = holder.release().await?;
        self.expect_served(&[1, 2, 3, 4, 5]).await?;
        all(tasks).await
    }

    async fn death_in_the_queue(&mut self) -> Result<(), Failure> {
        say("\n2. A contender that dies in the queue holds nobody up\n")?;
        let holder = self.lock().lock().await?;
        self.tokens.push(holder.token().get());
        let mut tasks = self.line_up(4).await?;
        say("   contenders 1 2 3 4 queue up; 1 and 3 die\n")?;
        for dead in [2, 0] {
            tasks.remove(dead).abort();
        }
        self.queue_reaches(2).await?;
        let _ = holder.release().await?;
        self.expect_served(&[2, 4]).await?;
        all(tasks).await
    }

    async fn crash_of_the_holder(&mut self) -> Result<(), Failure> {
        let lease = duration::human(LEASE);
        say("\n3. A holder that crashes keeps the lock no longer than its lease\n")?;
        let started = Instant::now();
        let holder = self.lock().lease(LEASE).lock().await?;
        self.tokens.push(holder.token().get());
        let tasks = self.line_up(1).await?;
        // Forgotten instead of dropped: like a process that was killed, it never releases anything.
        mem::forget(holder);
        say(&format!("   it took a lease of {lease} and is gone without a word; 1 waits\n"))?;
        self.expect_served(&[1]).await?;
        let waited = started.elapsed();
        say(&format!("   1 got the lock {} after the crashed one\n", duration::human(waited)))?;
        if waited < LEASE {
            return Err(failed("the lease was cut short"));
        }
        if waited > LEASE + LEASE_SLACK {
            return Err(failed("the crashed holder was waited for too long"));
        }
        all(tasks).await
    }

    fn tokens_only_grow(&self) -> Result<(), Failure> {
        say(
            "\n4. Every grant has a larger token than all before: storage can reject a late writer\n",
        )?;
        // Tokens start at the time in microseconds; the differences are easier to read.
        let first = self.tokens.first().copied().unwrap_or(0);
        let steps: Vec<String> =
            self.tokens.iter().map(|token| format!("+{}", token.saturating_sub(first))).collect();
        say(&format!("   {first} {}\n", steps.get(1..).unwrap_or(&[]).join(" ")))?;
        if self.tokens.is_sorted_by(|a, b| a < b) {
            Ok(())
        } else {
            Err(failed("a token did not grow"))
        }
    }

    async fn readers_and_a_writer(&self) -> Result<(), Failure> {
        say("\n5. Readers share a read-write lock, and none overtakes a writer that waits\n")?;
        let catalogue = self.client.rw_lock("demo: catalogue");
        let (one, two) = (catalogue.read().await?, catalogue.read().await?);
        let mut writer = catalogue.enqueue_write().await?;
        let mut late = catalogue.enqueue_read().await?;
        say("   1 and 2 read; 3 waits to write; 4 wants to read, and waits behind 3\n")?;
        let _ = one.release().await?;
        let _ = two.release().await?;
        let writing = writer.wait().await?;
        let seen = catalogue.inspect().await?;
        if (seen.holding, seen.queue_len) != (1, 1) {
            return Err(failed("a writer was not alone"));
        }
        let _ = writing.release().await?;
        let _ = late.wait().await?.release().await?;
        say("   1 and 2 ended: 3 wrote alone, then 4 read\n")?;
        Ok(())
    }

    async fn permits(&self) -> Result<(), Failure> {
        say("\n6. No more permits of a semaphore are in use than its limit\n")?;
        let pool = self.client.semaphore("demo: downloads", 2);
        let (first, second) = (pool.acquire().await?, pool.acquire().await?);
        if pool.try_acquire().await?.is_some() {
            return Err(failed("a third of two permits was given"));
        }
        let _ = first.release().await?;
        let third = pool.try_acquire().await?;
        let third = third.ok_or_else(|| failed("a permit did not come back"))?;
        say("   2 of 2 were taken, so a third was refused; when one came back, it was given\n")?;
        let _ = second.release().await?;
        let _ = third.release().await?;
        Ok(())
    }

    /// Starts contenders 1 to `count`, each after the one before is in the queue.
    async fn line_up(&self, count: usize) -> Result<Vec<Contender>, Failure> {
        let mut tasks = Vec::with_capacity(count);
        for contender in 1..=count {
            let turn =
                take_turn(contender, self.lock(), self.grants.clone(), Arc::clone(&self.inside));
            tasks.push(tokio::spawn(turn));
            self.queue_reaches(contender).await?;
        }
        Ok(tasks)
    }

    /// Waits until the queue is this long, bounded by the limit on the whole show.
    async fn queue_reaches(&self, length: usize) -> Result<(), Failure> {
        let lock = self.lock();
        while lock.inspect().await?.queue_len != length {
            time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn expect_served(&mut self, expected: &[usize]) -> Result<(), Failure> {
        let mut served = Vec::with_capacity(expected.len());
        for _ in expected {
            let grant =
                self.granted.recv().await.ok_or_else(|| failed("a contender was never served"))?;
            if !grant.alone {
                return Err(failed("two held the lock at the same time"));
            }
            self.tokens.push(grant.token);
            served.push(grant.contender);
        }
        let list: Vec<String> = served.iter().map(usize::to_string).collect();
        say(&format!("   served: {}\n", list.join(" ")))?;
        if served == expected { Ok(()) } else { Err(failed("not in the order of the queue")) }
    }

    fn lock(&self) -> Lock {
        self.client.fair_lock(NAME)
    }
}

type Contender = JoinHandle<Result<(), Error>>;

async fn take_turn(
    contender: usize,
    lock: Lock,
    grants: mpsc::UnboundedSender<Grant>,
    inside: Arc<AtomicU32>,
) -> Result<(), Error> {
    let guard = lock.lock().await?;
    let alone = inside.fetch_add(1, Ordering::SeqCst) == 0;
    time::sleep(WORK).await;
    inside.fetch_sub(1, Ordering::SeqCst);
    // Sent before the release, so that the messages are in the order of the turns.
    let _ = grants.send(Grant { contender, token: guard.token().get(), alone });
    guard.release().await.map(|_| ())
}

/// Waits for all contenders, none of which may fail.
async fn all(tasks: Vec<Contender>) -> Result<(), Failure> {
    for task in tasks {
        task.await.map_err(|_| failed("a contender panicked"))??;
    }
    Ok(())
}

fn say(text: &str) -> Result<Code, Failure> {
    output::print(text)
}

fn failed(claim: impl std::fmt::Display) -> Failure {
    Failure::new(Code::FAILED, format!("demo: {claim}"))
}
