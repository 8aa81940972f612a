//! The `fairlock` command: run a command under a distributed lock, look at locks, free them.
//!
//! It uses nothing but the public API of the `fairlock` library. Each module imports only those below it:
//!
//! - `main`: starts the command; `help`: help and wrong usage; `args`: the command line, assembled;
//! - `commands`: one module each, with its options;
//! - `locks`: looking at locks, and showing them;
//! - `process`: the guarded command and everything that it starts, signals, the terminal;
//! - `store`: the connection;
//! - `settings`: which store is used, and how;
//! - `base`: exit codes and failures, messages, output, durations, the clock.
//!
//! The contract with scripts is in `base/exit.rs` (codes), the commands' `Args` (options), `locks/form.rs` and
//! `commands/run/args.rs` (the JSON forms).

mod args;
mod base;
mod commands;
#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../tests/inside/fuzz.rs"]
mod fuzz;
mod help;
mod locks;
mod process;
mod settings;
mod store;

use std::env;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use clap::{FromArgMatches as _, Parser as _};

use crate::args::{Cli, Command, Errand};
use crate::base::exit::{Code, Failure};
use crate::base::message;
#[cfg(feature = "top")]
use crate::commands::top;
use crate::commands::{
    demo, fence_sql, latch, leader, list, names, run, status, unlock, wait, watch,
};
use crate::process::{exec, guardian, signal, terminal};

fn main() -> ExitCode {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let code = if words.first().is_some_and(|first| first == exec::WORD) {
        Err(exec::exec(&words[1..]))
    } else if Errand::is_meant(&words) {
        Errand::try_parse().map_or_else(|error| help::refuse(&error), run_errand)
    } else if let Some(run) = Command::run_alone(&words) {
        dispatch(run)
    } else {
        let matches = help::command().try_get_matches();
        let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
        cli.map_or_else(|error| help::refuse(&error), |cli| dispatch(cli.command))
    };
    let code = code.unwrap_or_else(Failure::report);
    message::flush();
    code.into()
}

fn dispatch(command: Command) -> Result<Code, Failure> {
    match command {
        Command::Run(args) => block_on(run::run(args.named())),
        Command::Elect(args) => args.run().and_then(|args| block_on(run::run(args))),
        Command::Leader(args) => block_on(leader::leader(args)),
        Command::Status(args) => block_on(status::status(args)),
        Command::List(args) => block_on(list::list(args)),
        #[cfg(feature = "top")]
        Command::Top(args) => block_on(top::top(args)),
        Command::Unlock(args) => block_on(unlock::unlock(args)),
        Command::Wait(args) => block_on(wait::wait(args)),
        Command::Watch(args) => block_on(watch::watch(args)),
        Command::Latch(args) => block_on(latch::latch(args)),
        Command::FenceSql(args) => fence_sql::fence_sql(&args),
        Command::Demo => block_on(demo::demo()),
        Command::Completions(args) => help::completions::completions(&args),
        Command::Man(args) => help::man(&args),
    }
}

/// Runs an errand. Those of `process` without a runtime: another process of ours waits for them.
fn run_errand(errand: Errand) -> Result<Code, Failure> {
    match errand {
        Errand::Foreground(args) => terminal::foreground(&args),
        Errand::Guardian(args) => match guardian::guard(&args)? {
            Some(holds) => block_on(holds.release()),
            None => Ok(Code::OK),
        },
        Errand::Names(args) => block_on(names::names(help::command(), args)),
    }
}

/// Runs everything on the main thread: a child's parent-death signal depends on the thread that started
/// it, and only the main thread lives as long as the process.
fn block_on(future: impl Future<Output = Result<Code, Failure>>) -> Result<Code, Failure> {
    let no_runtime = |error: io::Error| {
        let advice = "may this process open files? (ulimit -n)";
        Failure::new(Code::INTERNAL, format!("cannot start: {error}; {advice}"))
    };
    // Tokio opens three files, which can fail with an error, and then a pair of sockets for signals, where it panics on
    // failure. So this checks first that as many can be opened. Nothing else in this process opens any meanwhile.
    let room: io::Result<Vec<_>> = (0..3).map(|_| UnixStream::pair()).collect();
    drop(room.map_err(no_runtime)?);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(no_runtime)?.block_on(async {
        signal::Signals::survive_size_limits().map_err(no_runtime)?;
        future.await
    })
}
