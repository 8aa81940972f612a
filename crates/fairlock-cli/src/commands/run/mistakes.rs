//! Command lines that say something else than was meant: mostly the `--` before the command was forgotten.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::args::{self, Run};
use crate::base::exit::Failure;
use crate::base::message;
use crate::base::usage;

/// Refuses them before anything is written.
pub(super) fn refuse(args: &Run) -> Result<(), Failure> {
    let advice = || usage::advice(Some("run"), args::EXAMPLES);
    let has_line = args.flock.line.is_some();
    let refusal = match &args.names[..] {
        // For example because a variable that should contain the command is empty.
        _ if args.command.is_empty() && env::args_os().last().is_some_and(|last| last == "--") => {
            format!("no COMMAND follows `--`; {}", advice())
        }
        [first, second, ..] if args.command.is_empty() || has_line => {
            let (first, second) = (message::printable(first), message::printable(second));
            format!(
                "{second}: a command stands behind `--`: `fairlock run {first} -- {second} ...`; several locks need a \
                 command too, and -c takes one name; see fairlock run --help"
            )
        }
        [name] if args.command.is_empty() && args.dashed.is_none() && is_descriptor(name) => {
            let name = message::printable(name);
            format!(
                "{name}: flock's descriptor of a script has no counterpart: `fairlock run NAME -c 'LINE'`; to hold a lock \
                 of this name without a command: `fairlock run --name={name}`"
            )
        }
        _ => match limit_of_consul(args) {
            Some(limit) => {
                let reason =
                    format!("consul's -n is `--permits {limit}` here, flock's is `--wait 0`");
                format!("-n {limit}: {reason}; {}", advice())
            }
            None => return Ok(()),
        },
    };
    Err(Failure::usage(refusal))
}

/// `fairlock run -n 9`, in `( ... ) 9>FILE`: it would hold a lock for ever, and the script would stand still.
fn is_descriptor(name: &OsStr) -> bool {
    name.len() <= 2 && name.as_bytes().iter().all(u8::is_ascii_digit)
}

/// The number in consul's `-n 3 NAME`, which flock's `-n` makes two names.
fn limit_of_consul(args: &Run) -> Option<u32> {
    let first = args.names.first().filter(|_| args.flock.nonblock && args.names.len() > 1)?;
    first.to_str()?.parse().ok()
}
