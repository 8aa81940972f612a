//! Command lines that say something else than was meant: mostly the `--` before the command was forgotten.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD};

use super::args::{self, Run};
use super::flock;
use crate::base::exit::Failure;
use crate::base::message;
use crate::base::usage;

/// Refuses them before anything is written.
pub(super) fn refuse(args: &Run) -> Result<(), Failure> {
    let typed: Vec<_> = env::args_os().skip(1).collect();
    let advice = || usage::advice(Some("run"), args::EXAMPLES);
    let refusal = if args.command.is_empty() && typed.last().is_some_and(|last| last == "--") {
        // For example because a variable that should contain the command is empty.
        format!("no COMMAND follows `--`; {}", advice())
    } else if let Some(refusal) = without_dashes(args, &typed) {
        refusal
    } else if args.command.is_empty()
        && args.dashed.is_none()
        && let Some(meant) = instead_of_a_name(&args.name)
    {
        let name = shown(&args.name);
        format!(
            "{name}: {meant}; to hold a lock of this name without a command: `fairlock run --name={name}`"
        )
    } else if let Some(limit) = flock::limit_of_consul(args) {
        let reason = format!("consul's -n is `--permits {limit}` here, flock's is `--wait 0`");
        format!("-n {limit}: {reason}; {}", advice())
    } else {
        return Ok(());
    };
    Err(Failure::usage(refusal))
}

/// What was meant by a name alone that is hardly one.
fn instead_of_a_name(name: &OsStr) -> Option<String> {
    if is_program(name) {
        return Some(format!("no lock is named: `fairlock run NAME -- {}`", shown(name)));
    }
    is_descriptor(name).then(|| {
        "flock's descriptor of a script has no counterpart: `fairlock run NAME -c 'LINE'`"
            .to_owned()
    })
}

/// `fairlock run -n 9`, in `( ... ) 9>FILE`: it would hold a lock for ever, and the script would stand still.
fn is_descriptor(name: &OsStr) -> bool {
    name.len() <= 2 && name.as_bytes().iter().all(u8::is_ascii_digit)
}

/// The refusal of several names of which all but the first are a command, as far as can be told.
fn without_dashes(args: &Run, typed: &[OsString]) -> Option<String> {
    let [first, second, ..] = &args.names[..] else { return None };
    if !args.command.is_empty() && args.flock.line.is_none() {
        return None;
    }
    let behind = |from: usize, name| {
        typed[from..].iter().position(|word| word == name).map_or(typed.len(), |at| from + at)
    };
    let at = behind((behind(0, first) + 1).min(typed.len()), second);
    let (ours, command) = typed.split_at(at);
    let (ours, command, second) = (line(ours), line(command), message::printable(second));
    Some(match &args.flock.line {
        None => format!(
            "{second}: `--` is missing before the command: `fairlock {ours} -- {command}`; several locks need a command \
             too; see fairlock run --help"
        ),
        // It came before the second name.
        Some(_) if !command_has_line(typed, at) => format!(
            "{second}: -c takes one name; with arguments for the line: `fairlock run {first} -- sh -c LINE sh {command}`; \
             with several locks: `fairlock run {first} {command} -- sh -c LINE`",
            first = shown(first)
        ),
        Some(script) => format!(
            "{second}: a command stands behind `--`: `fairlock {ours} -- {command}`; for one line: `fairlock {ours} -c {}`",
            shown(script)
        ),
    })
}

/// Whether `-c` stands behind the second name.
fn command_has_line(typed: &[OsString], at: usize) -> bool {
    typed[at..].iter().any(|word| word.as_bytes().starts_with(b"-c"))
}

/// Whether this is the path of a file that can be executed.
fn is_program(name: &OsStr) -> bool {
    let may_run = || rustix::fs::accessat(CWD, name, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    name.as_bytes().contains(&b'/') && Path::new(name).is_file() && may_run()
}

fn line(words: &[OsString]) -> String {
    words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ")
}

/// A word as it can be typed in a shell.
fn shown(word: &OsStr) -> String {
    let text = message::printable(word);
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
