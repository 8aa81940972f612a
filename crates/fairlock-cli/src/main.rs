//! The `fairlock` command: run a command under a distributed lock, look at locks, free them.
//!
//! It uses nothing but the public API of the `fairlock` library. The contract with scripts is in
//! three places: `exit.rs` (codes), `args.rs` (options) and `status.rs` (the JSON form).

mod args;
mod child;
mod clock;
mod demo;
mod duration;
mod exec;
mod exit;
mod keeper;
mod list;
mod look;
mod message;
mod output;
mod plan;
mod progress;
mod run;
mod secrets;
mod signal;
mod status;
mod store;
mod terminal;
mod unlock;
mod wait;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::exit::{Code, Failure};

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => dispatch(cli.command),
        Err(error) => refuse(&error),
    };
    code.unwrap_or_else(Failure::report).into()
}

fn dispatch(command: Command) -> Result<Code, Failure> {
    match command {
        // Before any runtime: these are other processes' errands.
        Command::Exec(args) => Err(exec::exec(&args)),
        Command::Foreground(args) => terminal::foreground(&args),
        Command::Keep(args) => keeper::keep(&args),
        Command::Run(args) => block_on(run::run(args)),
        Command::Status(args) => block_on(status::status(args)),
        Command::List(args) => block_on(list::list(args)),
        Command::Unlock(args) => block_on(unlock::unlock(args)),
        Command::Demo => block_on(demo::demo()),
    }
}

/// Runs everything on the main thread: a child's parent-death signal belongs to the thread that
/// started it, and the main thread is the one that lives as long as the process.
fn block_on(future: impl Future<Output = Result<Code, Failure>>) -> Result<Code, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("no runtime: {error}")))?
        .block_on(future)
}

/// What clap has to say: help goes to stdout as it is, an error becomes our one line.
fn refuse(error: &clap::Error) -> Result<Code, Failure> {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => output::print(&text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Err(Failure::usage("say what to do: run, status, list, unlock or demo; see --help"))
        }
        _ => {
            // The first paragraph is the reason; the rest is usage, which --help has too.
            let reason = text.split("\n\n").next().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            Err(Failure::usage(format!("{}; see --help", reason.trim_end())))
        }
    }
}
