//! The names of locks that fit what was typed so far, for the completions of shells: `fairlock __names LINE`.
//!
//! It is silent whatever is wrong: a shell shows errors in the middle of the line that is being typed.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, Command, CommandFactory as _, Parser, ValueHint};
use tokio::time;

use crate::base::exit::{Code, Failure};
use crate::base::output;
use crate::settings::options;
use crate::store::Store;

/// Nobody waits longer for a suggestion.
const PATIENCE: Duration = Duration::from_secs(1);

/// More than people look through.
const NAMES_MAX: usize = 1_000;

/// Characters that no shell treats in a special way within a word. Names with others are not suggested.
const PLAIN: &str = "-_./:@%+,";

/// Characters that stand for something that only the shell knows.
const OF_SHELLS: [char; 6] = ['\'', '"', '\\', '$', '`', '~'];

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The command line up to the cursor, as typed.
    #[arg(value_name = "LINE", allow_hyphen_values = true)]
    line: OsString,
}

/// Prints the names, a line each. `all`: the program.
pub(crate) async fn names(all: Command, args: Args) -> Result<Code, Failure> {
    let Some(asked) = args.line.to_str().and_then(|line| Asked::parse(&all, line)) else {
        return Ok(Code::OK);
    };
    let mut names = Vec::new();
    // Whatever ends the search early, what it has found by then is of use. The client is not shut down: its process ends.
    let _ = time::timeout(PATIENCE, find(&asked, &mut names)).await;
    names.sort_unstable();
    output::print(&names.concat())
}

async fn find(asked: &Asked, names: &mut Vec<String>) -> Result<(), Failure> {
    let client = Store::resolve(&asked.store)?.looked_at().connect(true).await?;
    let mut locks = client.locks();
    while let Some(page) = locks.next_page().await? {
        let page = page.iter().filter_map(|entry| std::str::from_utf8(entry.name.as_bytes()).ok());
        let fits = |name: &&str| name.starts_with(&asked.typed) && is_plain(name);
        names.extend(page.filter(fits).map(|name| format!("{name}\n")));
        if names.len() >= NAMES_MAX {
            break;
        }
    }
    Ok(())
}

fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_alphanumeric() || PLAIN.contains(c))
}

/// What is completed.
#[derive(Debug)]
struct Asked {
    store: options::Store,
    typed: String,
}

/// The options that say which store it is.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    store: options::Store,
}

impl Asked {
    /// `None` if the word at the end of the line is not the name of a lock, or if it is not known in which store.
    fn parse(all: &Command, line: &str) -> Option<Self> {
        let mut words: Vec<_> = line.split_ascii_whitespace().collect();
        let is_new = line.ends_with(|c: char| c.is_ascii_whitespace());
        let typed = if is_new { "" } else { words.pop()? };
        let [_, name, words @ ..] = words.as_slice() else { return None };
        let command = all.find_subcommand(name)?;
        let named = command.get_positionals().find(|arg| is_of_names(arg))?;
        // A latch is no lock.
        if *name == "latch" || typed.starts_with('-') || words.contains(&"--") {
            return None;
        }
        let (options, names) = split(command, words)?;
        if names > 0 && !matches!(named.get_action(), ArgAction::Append) {
            return None;
        }
        let store =
            Options::try_parse_from([&["fairlock"], options.as_slice()].concat()).ok()?.store;
        Some(Self { store, typed: typed.to_owned() })
    }
}

fn is_of_names(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "NAME"))
        && arg.get_value_hint() == ValueHint::Unknown
}

/// The options that say which store it is, with their values, and the number of words that are no options. `None` if the
/// value of an option is being typed, or contains something that the shell replaces.
fn split<'a>(command: &Command, words: &[&'a str]) -> Option<(Vec<&'a str>, usize)> {
    let of_store = Options::command();
    let (mut options, mut names) = (Vec::new(), 0);
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            names += 1;
            continue;
        }
        let Some(arg) = command.get_arguments().find(|arg| is_meant(arg, word)) else { continue };
        let is_apart = arg.get_action().takes_values() && !is_attached(word);
        let parts: Vec<_> =
            [word].into_iter().chain(is_apart.then(|| words.next()).flatten()).collect();
        if is_apart && parts.len() < 2 {
            return None;
        }
        if of_store.get_arguments().any(|other| other.get_long() == arg.get_long()) {
            if parts.iter().any(|part| part.contains(OF_SHELLS)) {
                return None;
            }
            options.extend(parts);
        }
    }
    Some((options, names))
}

fn is_meant(arg: &Arg, word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => name.chars().nth(1).is_some_and(|short| arg.get_short() == Some(short)),
    }
}

/// Whether the value stands in the same word: `--wait=5s`, `-w5`.
fn is_attached(word: &str) -> bool {
    word.contains('=') || (!word.starts_with("--") && word.len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    #[test]
    fn names_are_asked_for_where_they_stand() {
        let typed = |line| Asked::parse(&Cli::command(), line).map(|asked| asked.typed);
        for (line, wanted) in [
            ("fairlock status ", Some("")),
            ("fairlock status ni", Some("ni")),
            ("./fairlock run --wait 5s job:", Some("job:")),
            ("fairlock run --wait=5s job", Some("job")),
            ("fairlock run -w5 --shared job", Some("job")),
            ("fairlock run a b", Some("b")),
            ("fairlock list --json a", Some("a")),
            ("fairlock unlock --force n", Some("n")),
            ("fairlock leader --watch n", Some("n")),
            // A value, an option, a second name, a command, and what is no lock.
            ("fairlock run --wait ", None),
            ("fairlock status --url n", None),
            ("fairlock run --wa", None),
            ("fairlock status a b", None),
            ("fairlock run a -- b", None),
            ("fairlock elect a -- b", None),
            ("fairlock latch a", None),
            ("fairlock man a", None),
            ("fairlock frobnicate a", None),
            ("fairlock sta", None),
            ("fairlock", None),
            ("", None),
        ] {
            assert_eq!(typed(line).as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn they_are_those_of_the_store_that_is_named() {
        let url =
            |line: String| Asked::parse(&Cli::command(), &line)?.store.url?.into_string().ok();
        for option in ["--url redis://host", "--url=redis://host"] {
            let seen = url(format!("fairlock run --java-fleet {option} --replicas 1 n"));
            assert_eq!(seen.as_deref(), Some("redis://host"), "{option}");
        }
        for unknown in ["--url $URL", "--url='redis://host'", "--config ~/x.toml"] {
            let line = format!("fairlock status {unknown} n");
            assert!(Asked::parse(&Cli::command(), &line).is_none(), "{unknown}");
        }
    }

    #[test]
    fn only_plain_names_are_suggested() {
        for plain in ["nightly", "job:1", "a/b.c_d-e@f", "\u{fc}ber"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in ["-x", "a b", "a\nb", "$x", "a*", "a'b", "a;b", "\u{1b}[2J", "=ls"] {
            assert!(!is_plain(other), "{other:?}");
        }
    }
}
