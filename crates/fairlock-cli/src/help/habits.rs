//! What people type who come from other programs: from `consul lock`, and from those whose options come before the
//! command, or have one dash. For flock(1) see `flock.rs`.

use clap::{Arg, Command};

use crate::base::duration;

/// What others call the command that runs something under a lock.
const RUN: [&str; 5] = ["lock", "exec", "acquire", "hold", "flock"];

/// The command that was meant by the name of one that there is not.
pub(crate) fn command(typed: &str) -> Option<&'static str> {
    RUN.contains(&typed).then_some("run")
}

/// What to do about an unknown option. `all`: the program; `typed`: the whole command line; `unknown`: the unknown part
/// of it.
pub(crate) fn meant(all: &Command, typed: &[&str], unknown: &str) -> Option<String> {
    let ours = typed.split(|word| *word == "--").next()?;
    let (first, rest) = ours.split_first()?;
    if first.starts_with('-') {
        return before_the_command(all, rest, unknown);
    }
    let command = all.find_subcommand(first)?;
    let of_run = || semaphore(rest, unknown).or_else(|| share(rest, unknown));
    one_dash(command, rest).or_else(|| (command.get_name() == "run").then(of_run).flatten())
}

/// What libraries call the shares of a lock.
fn share(rest: &[&str], unknown: &str) -> Option<String> {
    let ours = match unknown {
        "--read" | "--reader" => "a reader says `--shared`".to_owned(),
        "--write" | "--writer" => "a writer says `--kind rw`".to_owned(),
        "--limit" => {
            let value = rest.iter().enumerate().find_map(|(at, word)| {
                let value = word.strip_prefix("--limit")?.strip_prefix('=');
                value.or_else(|| rest.get(at + 1).copied())
            });
            let limit = value.filter(|value| value.parse::<u32>().is_ok_and(|limit| limit > 0));
            format!("the limit of a semaphore is `--permits {}`", limit.unwrap_or("N"))
        }
        _ => return None,
    };
    Some(format!("{ours} here"))
}

/// `--url U run x`.
fn before_the_command(all: &Command, rest: &[&str], unknown: &str) -> Option<String> {
    let command = rest.iter().find_map(|word| all.find_subcommand(word))?;
    let is_it = |arg: &Arg| match unknown.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| unknown == format!("-{short}")),
    };
    let name = command.get_name();
    let has_it = command.get_arguments().any(is_it);
    has_it.then(|| format!("options stand after the command: `fairlock {name} {unknown} ...`"))
}

/// `-wait=5s`, and consul's `-try` and `-timeout`.
fn one_dash(command: &Command, rest: &[&str]) -> Option<String> {
    rest.iter().enumerate().find_map(|(at, word)| {
        let typed = word.strip_prefix('-')?;
        let (name, value) =
            typed.split_once('=').map_or((typed, None), |(name, value)| (name, Some(value)));
        if command.get_name() == "run" && matches!(name, "try" | "timeout") {
            let value = value.or_else(|| rest.get(at + 1).copied()).unwrap_or_default();
            let wait = if duration::parse(value).is_ok() { value } else { "5s" };
            return Some(format!("consul's -{name} is `--wait {wait}` here"));
        }
        let is_ours = |arg: &Arg| name.len() > 1 && arg.get_long() == Some(name);
        command
            .get_arguments()
            .any(is_ours)
            .then(|| format!("long options have two dashes: `--{typed}`"))
    })
}

/// Consul's `-n=2`: how many may hold the lock at once. (flock's `-n` has no value; for `-n 2` see `run/flock.rs`.)
fn semaphore(rest: &[&str], unknown: &str) -> Option<String> {
    let value = rest.iter().find_map(|word| word.strip_prefix("-n"))?;
    if !value.starts_with(unknown.strip_prefix('-')?) {
        return None;
    }
    let holders = value.trim_start_matches('=');
    let is_number = !holders.is_empty() && holders.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("consul's -n is `--permits {holders}` here"))
}

#[cfg(test)]
mod tests {
    use super::super::command as all;
    use super::*;

    #[test]
    fn habits() {
        for (typed, unknown, meant_by_it) in [
            (
                "--url redis://h run x",
                "--url",
                Some("options stand after the command: `fairlock run --url ...`"),
            ),
            (
                "-q unlock x",
                "-q",
                Some("options stand after the command: `fairlock unlock -q ...`"),
            ),
            ("--wait 5s status x", "--wait", None),
            ("--url redis://h", "--url", None),
            ("run -try=10s x", "-t", Some("consul's -try is `--wait 10s` here")),
            ("run -timeout 1m x", "-t", Some("consul's -timeout is `--wait 1m` here")),
            ("run -timeout=soon x", "-t", Some("consul's -timeout is `--wait 5s` here")),
            ("run -name=foo -- true", "-n", Some("long options have two dashes: `--name=foo`")),
            ("run -verbose x", "-e", Some("long options have two dashes: `--verbose`")),
            ("status -json x", "-j", Some("long options have two dashes: `--json`")),
            ("run -n=2 x", "-=", Some("consul's -n is `--permits 2` here")),
            ("run -n3 x", "-3", Some("consul's -n is `--permits 3` here")),
            ("run --read x -- true", "--read", Some("a reader says `--shared` here")),
            ("run --write x -- true", "--write", Some("a writer says `--kind rw` here")),
            (
                "run --limit 3 x -- true",
                "--limit",
                Some("the limit of a semaphore is `--permits 3` here"),
            ),
            (
                "run --limit=3 x -- true",
                "--limit",
                Some("the limit of a semaphore is `--permits 3` here"),
            ),
            ("run --limit x", "--limit", Some("the limit of a semaphore is `--permits N` here")),
            ("status --read x", "--read", None),
            // flock's, and names.
            ("run -nx x", "-x", None),
            ("run -nE 9 -z x", "-z", None),
            ("run -x -- true", "-x", None),
            ("run x -- cc -wait=5s", "--odd", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(meant(&all(), &words, unknown).as_deref(), meant_by_it, "{typed}");
        }
        assert_eq!(command("lock"), Some("run"));
        assert_eq!(command("statsu"), None);
    }
}
