//! `fairlock-hot-paths PATH TIMES [URL]`: runs one of the hot paths this many times, and nothing
//! else. `scripts/guard` runs it twice under valgrind with different counts. The difference is the
//! cost of the path, without start-up, symbols and clock reads. Paths that need a server connect to
//! the URL; they destroy its data.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

mod client;
mod rules;
mod server;

use std::process::ExitCode;

/// Runs a path this many times, on the server at the URL if it needs one.
type Path = fn(u64, Option<&str>);

const PATHS: [(&str, Path); 11] = [
    ("rules-pair", |times, _| rules::pairs(times)),
    ("rules-handover-10", |times, _| rules::handovers(10, times)),
    ("rules-handover-1000", |times, _| rules::handovers(1_000, times)),
    ("rules-beat", |times, _| rules::beats(times)),
    ("client-pair", |times, _| client::pairs(times)),
    ("client-handover", |times, _| client::handovers(times)),
    ("rules-read-pair", |times, _| rules::read_pairs(times)),
    ("client-read-pair", |times, _| client::read_pairs(times)),
    ("redis-pair", |times, url| server::pairs(times, url.expect("URL"))),
    ("redis-handover", |times, url| server::handovers(times, url.expect("URL"))),
    ("redis-ping", |times, url| server::pings(times, url.expect("URL"))),
];

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let (path, times, url) = match args[..] {
        ["paths"] => {
            PATHS.iter().for_each(|(name, _)| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        [path, times] => (path, times, None),
        [path, times, url] => (path, times, Some(url)),
        _ => ("", "", None),
    };
    match (PATHS.iter().find(|(name, _)| *name == path), times.parse()) {
        (Some((_, go)), Ok(times)) => go(times, url),
        _ => {
            eprintln!("fairlock-hot-paths paths | PATH TIMES [URL]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
