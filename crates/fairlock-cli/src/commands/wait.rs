//! `fairlock wait`: until a lock is free, without taking it or standing in its queue.
//!
//! It looks, as `fairlock status` does, so it changes nothing in the store and nobody is told of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use fairlock::{Client, Error, Kind as LockKind, LockName};
use tokio::time::{self, Instant};

use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::locks::look::{self, Name, Seen, Target};
use crate::locks::nested::Outer;
use crate::locks::text::in_line;
use crate::settings::options::{self, Kind};
use crate::store::{self, Store};

/// First pause between two looks: the end of something short is seen soon.
const FIRST: Duration = Duration::from_millis(50);

/// Longest pause, as long as a heartbeat of those who stand in the queue: it bounds how late a free lock is seen, and what
/// a waiting process costs.
const LONGEST: Duration = Duration::from_secs(2);

/// Added to what is left of a lease: the store counts in whole milliseconds.
const AFTER_LEASE: Duration = Duration::from_millis(1);

const EXAMPLES: &str = "\
Examples:
  fairlock wait nightly                  wait until it is free
  fairlock wait --wait-for 10m a b       wait until both are free, at most ten minutes
";

const HELP: &str = "\
Exit codes:
  0        all locks were free when they were last polled
  64       wrong usage or a wrong setting; the name is a key of another program, or a lock of the
           run that started this command
  69       the store cannot be reached or does not answer, or there is none
  70       internal error; an answer or a file that is not fairlock's
  75       not free within --wait-for
  77       access denied by the store, or no encrypted connection to a verified server

What is free:
  A lock without a holder, even with waiters; a read-write lock without a reader or writer; a
  semaphore without a permit in use. A lock that a successful run with --once-per keeps is not free.

How it waits:
  It polls after 50 ms at first, then less often, at least every 2 s, and when a lease expires. It
  takes nothing, joins no queue, and leaves nothing in the store. So it misses a lock that is free
  only between two polls, and a lock may be taken right after it was free: to exclude other work,
  use `fairlock run`. Several names are polled in turn, until all are free in one round.

Durations:
  500ms, 10s, 5m, 1m30s, 1.5h, 1d, 0";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// The locks' names, any bytes.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,

    /// Longest wait; 0 polls once. Default: no limit.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = duration::parse)]
    wait_for: Option<Duration>,

    /// Print only errors, not the holder after --wait-for.
    #[arg(short, long)]
    quiet: bool,

    /// The kind of the locks.
    ///
    /// Default: fair, which sees plain ones too, or rw or semaphore if the name is in use as one. A simple lock is found
    /// only as --kind simple.
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    #[command(flatten)]
    store: options::Store,
}

/// Waits. Signals keep their default action: nothing is held, and nothing is left behind.
pub(crate) async fn wait(args: Args) -> Result<Code, Failure> {
    let until = args.wait_for.map(|time| Instant::now() + time);
    let names: Vec<_> = args.names.iter().map(|name| Name::new(name.as_bytes())).collect();
    for name in &names {
        LockName::new(name.as_bytes()).map_err(Error::from)?;
    }
    let store = Store::resolve(&args.store)?.looked_at().waited_for(args.wait_for);
    store.warn(args.quiet);
    if !args.quiet {
        look::note_patterns(&args.names);
    }
    let asked = store.asked(args.quiet);
    let client = store.connect(args.quiet).await?;
    let kinds = look::kinds(args.kind.map(LockKind::from));
    let refused =
        Outer::of_environment().refuse_waiting(&client, &names, &kinds, args.wait_for).await;
    let held = match refused {
        Ok(()) => until_free(&client, &names, &kinds, until).await,
        Err(refusal) => Err(refusal),
    };
    store::shutdown_after(client, &held).await;
    match held? {
        None => {
            asked.found_nothing();
            Ok(Code::OK)
        }
        Some(_) if args.quiet => Err(Failure::silent(Code::CONFLICT)),
        Some(seen) => Err(Failure::new(Code::CONFLICT, not_free(&seen, args.wait_for))),
    }
}

/// Waits until a round of looks finds none of them held. Returns the one that was held at the last look when the time was
/// over.
async fn until_free(
    client: &Client,
    names: &[Name],
    kinds: &[LockKind],
    until: Option<Instant>,
) -> Result<Option<Seen>, Failure> {
    let mut pause = FIRST;
    loop {
        let Some(held) = first_held(client, names, kinds, until).await? else { return Ok(None) };
        let left = until.map_or(Duration::MAX, |until| until - Instant::now());
        if left.is_zero() {
            return Ok(Some(held));
        }
        let lease = held.status.ttl.map_or(Duration::MAX, |ttl| ttl + AFTER_LEASE);
        time::sleep(pause.min(lease).min(left)).await;
        pause = (pause * 3 / 2).min(LONGEST);
    }
}

/// Looks at one after the other, until one is held.
async fn first_held(
    client: &Client,
    names: &[Name],
    kinds: &[LockKind],
    until: Option<Instant>,
) -> Result<Option<Seen>, Failure> {
    for name in names {
        let target = Target { name: name.clone(), kind: kinds.first().copied() };
        let look = look::look_as(client, target, kinds, 0);
        let seen = match until {
            None => look.await?,
            // Silence does not mean that the lock is held.
            Some(until) => {
                let patience = (until - Instant::now()).max(store::ANSWER_MIN);
                time::timeout(patience, look).await.map_err(|_| silent(name))??
            }
        };
        if seen.status.holder.is_some() {
            return Ok(Some(seen));
        }
    }
    Ok(None)
}

fn silent(name: &Name) -> Failure {
    let name = name.printable();
    let text = format!(
        "{name}: the store did not answer in time, so it is not known whether the lock is free; check the server \
         and the network"
    );
    Failure::new(Code::UNAVAILABLE, text)
}

fn not_free(seen: &Seen, wait_for: Option<Duration>) -> String {
    let (name, status) = (seen.name.printable(), &seen.status);
    let holder = in_line(seen.kind, status).unwrap_or_default();
    match wait_for.filter(|time| !time.is_zero()) {
        None => format!("{name}: {holder}"),
        Some(time) => format!("{name}: not free within {}: {holder}", duration::human(time)),
    }
}
