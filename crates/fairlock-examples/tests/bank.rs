//! A bank whose clerks are stopped for longer than their leases, with lock servers that fail over and forget: transfers
//! are lost without a fence, and none is lost with one.

use std::env;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fairlock::fence::Refusal;
use fairlock::fence::postgres::{FENCE, TAKE, install};
use fairlock::{Client as Locks, Config, Guard};
use fairlock_testkit::postgres::Postgres;
use fairlock_testkit::processes::Owned;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::Generation;
use fairlock_testkit::topology::SentinelSet;
use fairlock_testkit::wait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::fence_postgres::{connect, connect_to};

const CLERKS: usize = 6;
const ACCOUNTS: u64 = 4;

/// The sum of all accounts never changes.
const OPENING_BALANCE: i64 = 1_000;

/// So short that a clerk who is stopped outlives it.
const LEASE: Duration = Duration::from_millis(400);

/// Far longer than a call may take without a store.
const SOON: Duration = Duration::from_secs(60);

/// What a clerk's process is told: the database, the lock servers, its seed, whether it uses the fence, and for how many
/// seconds it works.
const ORDERS: [&str; 5] =
    ["BANK_DATABASE", "BANK_LOCKS", "BANK_SEED", "BANK_FENCED", "BANK_SECONDS"];

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

    /// Reads two balances, pauses, and writes what follows from them.
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
        self.pause().await;
        self.begin(token).await?;
        self.pause().await;
        let write = "UPDATE account SET balance = $2 WHERE id = $1";
        self.db.execute(write, &[&from, &(balances[0] - amount)]).await?;
        self.db.execute(write, &[&to, &(balances[1] + amount)]).await?;
        let note = "INSERT INTO transfer (source, target, amount) VALUES ($1, $2, $3)";
        self.db.execute(note, &[&from, &to, &amount]).await?;
        self.db.batch_execute("COMMIT").await
    }

    async fn pause(&mut self) {
        sleep(Duration::from_millis(self.rng.below(40))).await;
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
        let lock = locks.fair_lock("bank");
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

fn signal(clerk: &Owned, signal: Signal) {
    kill_process(Pid::from_child(clerk), signal).unwrap();
}

/// Injects one fault after another, until `until`.
fn trouble(clerks: &[Owned], locks: &SentinelSet, until: Instant) {
    let mut rng = Rng::new(7);
    let mut counts = [0; 4];
    while Instant::now() < until {
        let kind = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3][rng.below(10) as usize];
        counts[kind] += 1;
        match kind {
            0 => {
                // Half of them, so that the holder is often one.
                let stopped: Vec<_> = clerks.iter().filter(|_| rng.below(2) == 0).collect();
                stopped.iter().for_each(|clerk| signal(clerk, Signal::STOP));
                std::thread::sleep(2 * LEASE);
                stopped.iter().for_each(|clerk| signal(clerk, Signal::CONT));
            }
            1 => drop(locks.raw(locks.master()).call(&["FLUSHALL"])),
            2 => drop(locks.fail_over()),
            // What was written last is lost.
            _ => {
                let old = locks.master();
                locks.cut_replication();
                std::thread::sleep(LEASE);
                locks.kill_master();
                locks.data()[old].restart();
                locks.await_whole();
            }
        }
        std::thread::sleep(Duration::from_millis(rng.below(600)));
    }
    let [stopped, flushed, ordered, lossy] = counts;
    println!(
        "measured: clerks stopped {stopped} times, {flushed} losses of data, {ordered} failovers and {lossy} with a loss"
    );
}

/// Returns the number of transfers, of accounts that are wrong afterwards, and of refusals.
async fn day(fenced: bool, lasts: Duration) -> Option<(i64, i64, u64)> {
    let server = Postgres::start()?;
    let locks = SentinelSet::start(Generation::Redis70)?;
    let db = connect(&server, "postgres").await;
    db.batch_execute(&install("fairlock").unwrap()).await.unwrap();
    let tables = format!(
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint);
         INSERT INTO account SELECT id, {OPENING_BALANCE} FROM generate_series(0, {ACCOUNTS} - 1) AS id;
         CREATE TABLE transfer (source bigint, target bigint, amount bigint);"
    );
    db.batch_execute(&tables).await.unwrap();
    // Each in a process of its own, so that it can be stopped.
    let hire = |seed: usize| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["bank::full::a_clerk", "--exact", "--nocapture", "--test-threads=1"]);
        let seconds = lasts.as_secs().to_string();
        let orders = [
            server.url("postgres", "postgres"),
            locks.url(),
            seed.to_string(),
            u8::from(fenced).to_string(),
            seconds,
        ];
        Owned::spawn(command.envs(ORDERS.into_iter().zip(orders)).stdout(Stdio::piped())).unwrap()
    };
    let clerks: Vec<_> = (0..CLERKS).map(hire).collect();
    trouble(&clerks, &locks, Instant::now() + lasts);
    let refused = clerks.into_iter().map(|mut clerk| {
        wait::until("the clerk's day is over", SOON, || clerk.try_wait().unwrap().is_some());
        let mut said = String::new();
        clerk.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(clerk.wait().unwrap().success(), "{said}");
        let refused = said.lines().find_map(|line| line.strip_prefix("refused "));
        refused.unwrap_or_else(|| panic!("{said}")).parse::<u64>().unwrap()
    });
    let refused = refused.sum();
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

    /// Runs in a process of the next test. Started by the test harness itself, it has no orders and does nothing.
    #[tokio::test]
    async fn a_clerk() {
        let Ok(database) = env::var(ORDERS[0]) else { return };
        let order = |at: usize| env::var(ORDERS[at]).unwrap();
        let number = |at: usize| order(at).parse::<u64>().unwrap();
        let until = Instant::now() + Duration::from_secs(number(4));
        let clerk = Clerk {
            db: connect_to(&database).await,
            rng: Rng::new(number(2)),
            fenced: number(3) == 1,
        };
        // Waiters that the server forgot come back with their next heartbeat.
        let config = Config::from_url(&order(1)).unwrap().watchdog_lease(LEASE);
        let locks = Locks::with_config(config.heartbeat(Duration::from_millis(300))).await.unwrap();
        println!("\nrefused {}", clerk.work(locks, until).await);
    }

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
