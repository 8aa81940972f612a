//! The options of `fairlock bench`.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::duration;
use crate::settings::options;

/// Bounds for the time of all measurements: after ten minutes they find nothing new, and are an endurance test for
/// everybody else on the server.
const TIME: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(600)];

/// More rounds only take time: the median of fifty varies less than the measured values.
const ROUNDS_MAX: i64 = 50;

/// With a thousand calls under way, the limit is the client, not its server.
const TASKS_MAX: i64 = 1_000;

/// The longest queue that fairlock promises to serve as fast as a short one.
const WAITERS_MAX: i64 = 10_000;

/// As many as a fast network can acquire within the shortest lease. Each takes about 300 bytes on the server.
const HELD_MAX: i64 = 10_000;

const EXAMPLES: &str = "\
Examples:
  fairlock bench                             20 seconds on the store that is used here
  fairlock bench --url redis://host --time 1m --waiters 2,10,100,1000
  fairlock bench --json > today.json         for programs
  fairlock bench --plot bench.svg            a picture as well
";

const HELP: &str = "\
What it does to the store:
  It uses it as fast as the store can, one measurement after the other, for
  --time: others that use the same server wait longer meanwhile. On a server
  that is at work, begin with a quiet hour, --time 2s, --tasks 4, --waiters 2
  and --held 1. Its locks have names of their own, which begin with --prefix and
  a random number. No other lock is touched. All that it wrote is removed at the
  end, also after a signal; after KILL its locks end with their leases within 30
  s, except for their last tokens, which stay for a day.

What is measured:
  PING             round trips on a connection of its own: the least that any
                   call takes
  raw scripts      pairs of acquire and release, in pipelines, without
                   fairlock's client in between: the most that the server
                   carries out
  1 task           acquires and releases a lock that nobody else wants: two
                   round trips
  64 tasks         each with a lock of its own, at the same time
  N waiters        want the same lock; each takes its turn and comes again. From
                   the release to the moment when the next one has it, between
                   two clients
  N held locks     are renewed; what a renewal costs this process, and PING
                   meanwhile. Their lease is short, so that there are renewals:
                   usually each comes every 10 s
  Rounds of all but the last take turns; medians of the rounds are told, and the
  largest maximum. Stores without a server (sqlite:, memory:) have no PING and
  no raw scripts.

With --json, one object on one line; times are in microseconds, null is what was not measured:
  schema           1
  version          of fairlock
  store            as in `fairlock status --json`
  rounds, round_ms, held_ms, cores
  ping             p50_us, p99_us, max_us, per_second; or null
  raw_scripts      pairs_per_second; or null
  uncontended      for each number of tasks: tasks, p50_us, p99_us, max_us,
                   pairs_per_second; of_two_pings (1 task): p50 beside two
                   PINGs; of_raw_scripts (more): the rate
  contended        for each number of waiters: waiters, p50_us, p99_us, max_us,
                   turns_per_second, of_ping: p50 beside PING
  renewals         for each number of locks, first none: held,
                   renewals_per_second, own_cpu_us, ping_p50_us, ping_p99_us,
                   ping_max_us, lost: locks that were lost, because the store or
                   this machine stood still for longer than the lease

Exit codes:
  0; 64, 69, 70 and 77 as of `fairlock status`; 128 + n when signal n ended it";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_help = HELP)]
pub(crate) struct Args {
    /// How long all measurements take together, 100ms to 10m; what is made ready for them comes on top.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "20s")]
    pub(super) time: Duration,

    /// Rounds among which the time is divided, up to 50.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = up_to(1, ROUNDS_MAX))]
    pub(super) rounds: u32,

    /// Tasks that use locks of their own at the same time, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = up_to(1, TASKS_MAX))]
    pub(super) tasks: u32,

    /// Numbers of waiters for one lock, 2 to 10000 each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 10, 100], value_parser = up_to(2, WAITERS_MAX))]
    pub(super) waiters: Vec<u32>,

    /// Numbers of locks that are held and renewed, up to 10000 each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 100, 1000], value_parser = up_to(1, HELD_MAX))]
    pub(super) held: Vec<u32>,

    /// What the names of its locks begin with: something that the user of the server may lock.
    #[arg(long, value_name = "TEXT", default_value = "fairlock-bench:")]
    pub(super) prefix: String,

    /// One JSON object; its fields are described below.
    #[arg(long)]
    pub(super) json: bool,

    /// Write a picture of the results to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,

    /// On stderr only errors: no word on what is done, and no bar.
    #[arg(short, long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) store: options::Store,
}

fn span(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text)?;
    let [least, most] = TIME;
    if (least..=most).contains(&span) {
        return Ok(span);
    }
    Err("must be between 100ms and 10m".to_owned())
}

fn up_to(least: i64, most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=most)
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    /// As if typed behind `fairlock bench`.
    pub(in crate::commands::bench) fn args(options: &str) -> Args {
        let words = ["bench"].into_iter().chain(options.split_whitespace());
        Typed::try_parse_from(words).expect("a command line").args
    }

    #[test]
    fn lists_of_numbers() {
        assert_eq!(args("").waiters, [2, 10, 100]);
        assert_eq!(args("--waiters 3,5 --held 7").waiters, [3, 5]);
        assert_eq!(args("--held 7").held, [7]);
    }
}
