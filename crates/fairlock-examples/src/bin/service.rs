//! A small service: two processes, one resource, one lock. One process is paused for longer than
//! its lease, and its later write is refused.
//!
//! ```sh
//! cargo run -p fairlock-examples --bin service -- redis://127.0.0.1/
//! ```
//!
//! The exit code is 0 if every claim that it prints holds.

use fairlock::fence::sqlite;
use fairlock::{Client, Config, FencingToken, Guard, Lock};
use fairlock_examples::fence_sql::fenced;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin, Stdout};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How many increments each worker makes before one is paused.
const ROUNDS: i64 = 20;

/// Short, to keep the demonstration short. A service would keep the default of 30 s.
const LEASE: Duration = Duration::from_secs(2);

/// Longest wait for a worker's next line: far more than a lease.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [url] => demonstrate(url).await,
        ["worker", url, db] => work_as_told(url, Path::new(db)).await,
        _ => Err("usage: service redis://HOST[:PORT]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

// ---- The service: the code that an adopter writes. ----

/// A counter in a database, changed by every process of the service under the lock.
struct Counter {
    db: Connection,
}

impl Counter {
    fn open(path: &Path) -> Result<Self> {
        let db = Connection::open(path)?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.execute(sqlite::INSTALL, ())?;
        db.execute(
            "CREATE TABLE IF NOT EXISTS counter (
                 change INTEGER PRIMARY KEY, value INTEGER NOT NULL, token INTEGER NOT NULL)",
            (),
        )?;
        Ok(Self { db })
    }

    /// Reads the value, and from here on refuses older holders.
    fn read(&mut self, token: FencingToken) -> Result<Option<i64>> {
        Ok(fenced(&mut self.db, "counter", token, |db| {
            db.query_row("SELECT coalesce(max(value), 0) FROM counter", (), |row| row.get(0))
        })?
        .ok())
    }

    /// Returns `None` if a newer holder was here; then nothing was written.
    fn write(&mut self, token: FencingToken, value: i64) -> Result<Option<()>> {
        Ok(fenced(&mut self.db, "counter", token, |db| {
            let row = (value, token.as_i64());
            db.execute("INSERT INTO counter (value, token) VALUES (?1, ?2)", row)?;
            Ok(())
        })?
        .ok())
    }
}

struct Worker {
    lock: Lock,
    counter: Counter,
    told: Lines<BufReader<Stdin>>,
    says: Stdout,
}

impl Worker {
    /// Increments the counter under the lock.
    async fn add(&mut self) -> Result<()> {
        let guard = self.lock.lock().await?;
        let Some(value) = self.counter.read(guard.token())? else {
            return Err("a newer holder was there at once".into());
        };
        self.finish(guard, value + 1).await
    }

    /// The same with a pause between read and write, in which the process is stopped.
    async fn add_slowly(&mut self) -> Result<()> {
        let guard = self.lock.lock().await?;
        let Some(value) = self.counter.read(guard.token())? else {
            return Err("a newer holder was there at once".into());
        };
        self.say(&format!("holding {}", guard.token())).await?;
        self.told.next_line().await?;
        // It does not check its guard here. Even if it did, the process might be stopped right
        // after the check.
        self.finish(guard, value + 1).await
    }

    async fn finish(&mut self, guard: Guard, value: i64) -> Result<()> {
        match self.counter.write(guard.token(), value)? {
            Some(()) => self.say(&format!("wrote {value} {}", guard.token())).await?,
            None => self.say(&format!("refused {value} {:?}", guard.state())).await?,
        }
        // If the lock was lost, the counter has refused the write.
        let _ = guard.release().await?;
        Ok(())
    }

    async fn say(&mut self, line: &str) -> Result<()> {
        self.says.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.says.flush().await?)
    }
}

async fn work_as_told(url: &str, db: &Path) -> Result<()> {
    let config = Config::from_url(url)?.watchdog_lease(LEASE).label("counter service");
    let client = Client::with_config(config).await?;
    let mut worker = Worker {
        lock: client.fair_lock("fairlock-examples:counter"),
        counter: Counter::open(db)?,
        told: BufReader::new(tokio::io::stdin()).lines(),
        says: tokio::io::stdout(),
    };
    while let Some(order) = worker.told.next_line().await? {
        match order.as_str() {
            "add" => worker.add().await?,
            "add slowly" => worker.add_slowly().await?,
            other => return Err(format!("no such order: {other}").into()),
        }
    }
    client.shutdown().await;
    Ok(())
}

// ---- The demonstration: starts two workers, pauses one, and checks the result. ----

async fn demonstrate(url: &str) -> Result<()> {
    let folder = Folder::new()?;
    let db = folder.0.join("counter.sqlite");
    let (mut a, mut b) = (Process::start(url, &db)?, Process::start(url, &db)?);

    for _ in 0..ROUNDS {
        a.tell("add").await?;
        b.tell("add").await?;
    }
    for _ in 0..ROUNDS {
        a.wrote().await?;
        b.wrote().await?;
    }
    let (value, changes, in_order) = look(&db)?;
    let wanted = 2 * ROUNDS;
    println!("a and b, {ROUNDS} times each: the counter is {value} after {changes} changes");
    claim(value == wanted && changes == wanted, "no change is lost")?;
    claim(in_order, "tokens rise from change to change")?;

    a.tell("add slowly").await?;
    let held = a.hears("holding ").await?;
    a.signal(Signal::STOP)?;
    println!("a holds the lock, has read {value}, and is paused");
    b.tell("add").await?;
    let (by_b, newer) = b.wrote().await?;
    println!("b got the lock when a's lease was over, and wrote {by_b}");
    claim(by_b == value + 1, "b's change follows the last one")?;
    claim(newer > held.parse()?, "b's token is larger than a's")?;

    a.tell("go on").await?;
    a.signal(Signal::CONT)?;
    let late = a.hears("refused ").await?;
    println!("a wakes up, and its late write is refused: \"{late}\"");
    claim(late == format!("{} Lost", value + 1), "a's guard says Lost")?;
    claim(look(&db)?.0 == by_b, "b's change stands")?;

    a.tell("add").await?;
    let (by_a, newest) = a.wrote().await?;
    println!("a takes the lock again, and wrote {by_a}");
    claim(by_a == by_b + 1 && newest > newer, "a goes on with a new token")?;
    claim(look(&db)? == (wanted + 2, wanted + 2, true), "all changes are there, in order")?;
    a.end().await?;
    b.end().await
}

fn claim(holds: bool, what: &str) -> Result<()> {
    println!("  {}: {what}", if holds { "ok" } else { "FAILED" });
    if holds { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

/// The counter, the number of changes, and whether each change has a larger token than the one
/// before it.
fn look(db: &Path) -> Result<(i64, i64, bool)> {
    let db = Connection::open(db)?;
    let mut changes = db.prepare("SELECT value, token FROM counter ORDER BY change")?;
    let changes = changes.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let changes = changes.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let in_order = changes.windows(2).all(|pair| pair[0].1 < pair[1].1);
    Ok((changes.last().map_or(0, |last| last.0), changes.len().try_into()?, in_order))
}

/// A worker process. Dropping it kills it, even while it is stopped.
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(url: &str, db: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", url])
            .arg(db)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        Ok(Self { child, stdin, stdout })
    }

    async fn tell(&mut self, order: &str) -> Result<()> {
        Ok(self.stdin.write_all(format!("{order}\n").as_bytes()).await?)
    }

    /// The rest of the next line, after `start`.
    async fn hears(&mut self, start: &str) -> Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.stdout.next_line()).await??;
        let line = line.ok_or("a worker ended")?;
        let rest = line.strip_prefix(start);
        Ok(rest.ok_or_else(|| format!("a worker says \"{line}\", not \"{start}...\""))?.to_owned())
    }

    /// The value that it wrote, and the token.
    async fn wrote(&mut self) -> Result<(i64, u64)> {
        let line = self.hears("wrote ").await?;
        let (value, token) = line.split_once(' ').ok_or("no token")?;
        Ok((value.parse()?, token.parse()?))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(kill_process(pid.ok_or("a worker ended")?, signal)?)
    }

    async fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.child.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("a worker ended with {status}").into()) }
    }
}

/// A temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("fairlock-service-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // On failure a small file remains in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
