//! What the fence adds to a transaction of one UPDATE in PostgreSQL, whose disk is waited for. All kinds in turns, in five
//! rounds.

use std::time::{Duration, Instant};

use fairlock::fence::postgres::{FENCE, TAKE, install};
use fairlock_testkit::postgres::Postgres;
use tokio::try_join;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, NoTls, Statement};

use crate::stats::{percentile, ratio, us};

const ROUNDS: u32 = 5;

/// Tokens as a store grants them.
const FIRST: i64 = 1_800_000_000_000_000;

type Value<'a> = &'a (dyn ToSql + Sync);

struct Bench {
    db: Client,
    begin: Statement,
    update: Statement,
    commit: Statement,
    take: Statement,
    fence: Statement,
    trivial: Statement,
    token: i64,
}

impl Bench {
    async fn plain(&self) -> Result<(), Error> {
        self.db.execute(&self.begin, &[]).await?;
        self.db.execute(&self.update, &[]).await?;
        self.db.execute(&self.commit, &[]).await.map(drop)
    }

    async fn fenced(&self) -> Result<(), Error> {
        self.with(&self.fence, &[&"bench", &self.token]).await
    }

    /// What any further statement costs.
    async fn trivial(&self) -> Result<(), Error> {
        self.with(&self.trivial, &[]).await
    }

    /// A transaction that begins with this statement.
    async fn with(&self, first: &Statement, values: &[Value<'_>]) -> Result<(), Error> {
        self.db.execute(&self.begin, &[]).await?;
        self.db.execute(first, values).await?;
        self.db.execute(&self.update, &[]).await?;
        self.db.execute(&self.commit, &[]).await.map(drop)
    }

    /// Sent at once, as with `libpq`'s pipeline mode.
    async fn plain_pipelined(&self) -> Result<(), Error> {
        let Self { db, begin, update, commit, .. } = self;
        try_join!(db.execute(begin, &[]), db.execute(update, &[]), db.execute(commit, &[]))
            .map(drop)
    }

    async fn fenced_pipelined(&self) -> Result<(), Error> {
        self.pipelined_with(&self.fence, &[&"bench", &self.token]).await
    }

    async fn trivial_pipelined(&self) -> Result<(), Error> {
        self.pipelined_with(&self.trivial, &[]).await
    }

    async fn pipelined_with(&self, first: &Statement, values: &[Value<'_>]) -> Result<(), Error> {
        let Self { db, begin, update, commit, .. } = self;
        try_join!(
            db.execute(begin, &[]),
            db.execute(first, values),
            db.execute(update, &[]),
            db.execute(commit, &[]),
        )
        .map(drop)
    }

    /// One commit without a BEGIN.
    async fn one_update(&self) -> Result<(), Error> {
        self.db.execute(&self.update, &[]).await.map(drop)
    }

    async fn take(&mut self) -> Result<(), Error> {
        self.token += 1;
        self.db.execute(&self.take, &[&"bench", &self.token, &"bench"]).await.map(drop)
    }
}

pub(crate) async fn report(times: u32) {
    let Some(server) = Postgres::start_on_disk() else { return };
    let (db, connection) =
        tokio_postgres::connect(&server.url("postgres", "postgres"), NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    db.batch_execute(&install("fairlock").unwrap()).await.unwrap();
    db.batch_execute("CREATE TABLE account (balance bigint); INSERT INTO account VALUES (0)")
        .await
        .unwrap();
    let prepare = async |text: &str| db.prepare(text).await.unwrap();
    let (begin, update) =
        (prepare("BEGIN").await, prepare("UPDATE account SET balance = balance + 1").await);
    let (commit, take, fence) =
        (prepare("COMMIT").await, prepare(TAKE).await, prepare(FENCE).await);
    let trivial = prepare("SELECT 1").await;
    let mut bench = Bench { db, begin, update, commit, take, fence, trivial, token: FIRST };
    bench.take().await.unwrap();

    let mut took: [Vec<Duration>; 8] = Default::default();
    for _ in 0..ROUNDS * times {
        let mut kinds = took.iter_mut();
        macro_rules! time {
            ($call:ident) => {{
                let began = Instant::now();
                bench.$call().await.unwrap();
                kinds.next().unwrap().push(began.elapsed());
            }};
        }
        time!(plain);
        time!(fenced);
        time!(trivial);
        time!(plain_pipelined);
        time!(fenced_pipelined);
        time!(trivial_pipelined);
        time!(one_update);
        time!(take);
    }
    let [
        plain,
        fenced,
        trivial,
        plain_pipelined,
        fenced_pipelined,
        trivial_pipelined,
        one_update,
        take,
    ] = took.map(|mut all| percentile(&mut all, 50));
    for (what, with, without, goal) in [
        ("a fenced transaction", fenced, plain, "1.15"),
        ("one with SELECT 1 instead", trivial, plain, "none"),
        ("a fenced transaction, pipelined", fenced_pipelined, plain_pipelined, "1.05"),
        ("one with SELECT 1 instead, pipelined", trivial_pipelined, plain_pipelined, "none"),
        ("a take, compared with one UPDATE and its commit", take, one_update, "1"),
    ] {
        println!(
            "fence: {what}: p50 {} and without {} = {:.2} x (goal {goal})",
            us(with),
            us(without),
            ratio(with, without)
        );
    }
}
