//! A bank whose clerks sleep through their leases, with a lock server that forgets: transfers are lost without a fence,
//! and none is lost with one.

use std::env;
use std::time::{Duration, Instant};

use fairlock::fence::Refusal;
use fairlock::fence::postgres::{FENCE, TAKE, install};
use fairlock::{Client as Locks, Config, Guard};
use fairlock_testkit::postgres::Postgres;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::{Generation, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::fence_postgres::connect;

const CLERKS: u64 = 6;
const ACCOUNTS: u64 = 4;

/// The sum of all accounts never changes.
const OPENING_BALANCE: i64 = 1_000;

/// So short that a clerk who sleeps outlives it.
const LEASE: Duration = Duration::from_millis(400);

/// Between two losses of the lock server's data.
const REMEMBERS: Duration = Duration::from_secs(2);

struct Clerk {
    db: Client,
    rng: Rng,
    fenced: bool,
}

impl Clerk {
    async fn begin(&self, token: i64) -> Result<(), Error> {
        self.db.batch_execute("BEGIN").await?;
        if self.fenced {
            self.db.execute(FENCE, &[&"bank", &token]).await?;
        }
        Ok(())
    }

    /// Reads two balances, sleeps, and writes what follows from them.
    async fn transfer(&mut self, token: i64) -> Result<(), Error> {
        let from = self.rng.below(ACCOUNTS) as i64;
        let to = (from + 1 + self.rng.below(ACCOUNTS - 1) as i64) % ACCOUNTS as i64;
        let amount = 1 + self.rng.below(9) as i64;
        self.begin(token).await?;
        let read = "SELECT balance FROM account WHERE id = $1";
        let mut balances = [0; 2];
        for (balance, account) in balances.iter_mut().zip([from, to]) {
            *balance = self.db.query_one(read, &[&account]).await?.get::<_, i64>(0);
        }
        self.db.batch_execute("COMMIT").await?;
        let nap = if self.rng.below(3) == 0 { 2 * LEASE } else { Duration::ZERO };
        sleep(nap).await;
        self.begin(token).await?;
        if self.rng.below(5) == 0 {
            sleep(2 * LEASE).await;
        }
        let write = "UPDATE account SET balance = $2 WHERE id = $1";
        self.db.execute(write, &[&from, &(balances[0] - amount)]).await?;
        self.db.execute(write, &[&to, &(balances[1] + amount)]).await?;
        let note = "INSERT INTO transfer (source, target, amount) VALUES ($1, $2, $3)";
        self.db.execute(note, &[&from, &to, &amount]).await?;
        self.db.batch_execute("COMMIT").await
    }

    /// Takes the fence, again and again while the guard is valid.
    async fn take(&self, guard: &Guard) -> Result<(), Error> {
        loop {
            let taken = self.db.execute(TAKE, &[&"bank", &guard.token().as_i64(), &"test"]).await;
            match taken {
                Err(error)
                    if refusal(&error) == Some(Refusal::Blocked)
                        && guard.ensure_valid().is_ok() => {}
                other => return other.map(drop),
            }
        }
    }

    /// Works under the lock until the time is over. Returns how often it was refused.
    async fn work(mut self, locks: Locks, until: Instant) -> u64 {
        let lock = locks.fair_lock("bank").lease(LEASE);
        let mut refused = 0;
        while Instant::now() < until {
            let Ok(Some(guard)) = lock.try_lock_for(Duration::from_secs(5)).await else { continue };
            let token = guard.token().as_i64();
            let mut done = if self.fenced { self.take(&guard).await } else { Ok(()) };
            for _ in 0..2 {
                if done.is_ok() {
                    done = self.transfer(token).await;
                }
            }
            if let Err(error) = done {
                // Without a fence, two clerks write at once, which may be a deadlock.
                let known = matches!(refusal(&error), Some(Refusal::Lost | Refusal::Blocked))
                    || !self.fenced && error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED);
                assert!(known, "{error:?}");
                refused += 1;
                self.db.batch_execute("ROLLBACK").await.unwrap();
            }
            let _ = guard.release().await;
        }
        refused
    }
}

fn refusal(error: &Error) -> Option<Refusal> {
    Refusal::from_sqlstate(error.code()?.code())
}

/// Returns the number of transfers, of accounts that are wrong afterwards, and of refusals.
async fn day(fenced: bool, lasts: Duration) -> Option<(i64, i64, u64)> {
    let server = Postgres::start()?;
    let redis = Server::start(Generation::Redis70)?;
    let db = connect(&server, "postgres").await;
    db.batch_execute(&install("fairlock").unwrap()).await.unwrap();
    let tables = format!(
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint);
         INSERT INTO account SELECT id, {OPENING_BALANCE} FROM generate_series(0, {ACCOUNTS} - 1) AS id;
         CREATE TABLE transfer (source bigint, target bigint, amount bigint);"
    );
    db.batch_execute(&tables).await.unwrap();
    let until = Instant::now() + lasts;
    let mut clerks = JoinSet::new();
    for seed in 0..CLERKS {
        let clerk = Clerk { db: connect(&server, "postgres").await, rng: Rng::new(seed), fenced };
        // Waiters that the server forgot come back with their next heartbeat.
        let config = Config::from_url(&redis.url()).unwrap().heartbeat(Duration::from_millis(300));
        clerks.spawn(clerk.work(Locks::with_config(config).await.unwrap(), until));
    }
    while Instant::now() < until {
        sleep(REMEMBERS).await;
        redis.client().call(&["FLUSHALL"]);
    }
    let refused = clerks.join_all().await.into_iter().sum();
    let wrong = format!(
        "SELECT count(*) FROM account WHERE balance <> {OPENING_BALANCE}
            + (SELECT coalesce(sum(amount), 0) FROM transfer WHERE target = account.id)
            - (SELECT coalesce(sum(amount), 0) FROM transfer WHERE source = account.id)"
    );
    let count = async |query: &str| db.query_one(query, &[]).await.unwrap().get::<_, i64>(0);
    Some((count("SELECT count(*) FROM transfer").await, count(&wrong).await, refused))
}

mod full {
    use super::*;

    /// A minute each, unless `FAIRLOCK_TEST_BANK_SECONDS` says otherwise.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_transfer_is_lost_with_a_fence_and_some_without() {
        let text = env::var("FAIRLOCK_TEST_BANK_SECONDS").ok();
        let lasts =
            Duration::from_secs(text.map_or(60, |text| text.parse().expect("a number of seconds")));
        let Some((done, wrong, refused)) = day(true, lasts).await else { return };
        println!(
            "measured: with the fence {done} transfers, {wrong} accounts wrong, {refused} holds refused"
        );
        assert!(done > 20 && refused > 0, "{done} transfers, {refused} refused");
        assert_eq!(wrong, 0);
        let (done, wrong, _) = day(false, lasts).await.unwrap();
        println!("measured: without {done} transfers, {wrong} accounts wrong");
        assert!(wrong > 0, "{done} transfers, and the test shows nothing");
    }
}
