//! What people type who come from other programs: from `consul lock`, and from those whose options come before the
//! command, or have one dash. For flock(1) see `flock.rs`.

use clap::{Arg, Command};

use super::words;
use crate::base::duration;

/// What others call our commands.
const COMMANDS: [(&str, &str); 16] = [
    ("acquire", "run"),
    ("election", "elect"),
    ("exec", "run"),
    ("flock", "run"),
    ("hold", "run"),
    ("kill", "unlock --force"),
    ("lock", "run"),
    ("locks", "list"),
    ("ls", "list"),
    ("ps", "list"),
    ("release", "unlock --force"),
    ("sem", "run --permits N"),
    ("semaphore", "run --permits N"),
    ("trylock", "run --wait 0"),
    ("version", "--version"),
    ("who", "status"),
];

/// Consul's options, with one dash, and what they are here.
const CONSUL: [(&str, &str); 7] = [
    ("child-exit-code", "not needed here: leave it out"),
    ("http-addr", "`--url` here: the store is a server of Redis or Valkey"),
    ("monitor-retry", "not needed here: leave it out"),
    ("name", "`--label VALUE` here"),
    ("pass-stdin", "not needed here: leave it out"),
    ("shell", "not needed here: leave it out, or give a line with `-c LINE`"),
    ("token", "not needed here: a password is read from `--password-file FILE`"),
];

/// A word of consul's that clap takes for `-h` among other letters: it would print help, and the command would not run.
pub(crate) fn hidden_help(all: &Command, typed: &[&str]) -> Option<String> {
    let ours = typed.split(|word| *word == "--").next()?;
    let (first, rest) = ours.split_first()?;
    if *first == "help" || ours.iter().any(|word| ["-h", "-help", "--help"].contains(word)) {
        return None;
    }
    let word = rest.iter().find(|word| word.len() > 2 && word.contains('h') && is_short(word))?;
    let command = all.find_subcommand(first)?;
    let meant = one_dash(command, rest).map_or_else(String::new, |meant| format!("; {meant}"));
    Some(format!("{word}: `-h` stands alone{meant}"))
}

fn is_short(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

/// The command that was meant by the name of one that there is not.
pub(crate) fn command(typed: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(theirs, _)| *theirs == typed).map(|(_, ours)| *ours)
}

/// `fairlock nightly -- ./backup.sh`, or with `-c`: the name of a lock where `run` should be.
pub(crate) fn without_run(name: &str, typed: &[&str]) -> Option<String> {
    let begin = typed.iter().find(|word| ["--", "-c"].contains(word))?;
    Some(format!("did you mean `fairlock run {name} {begin} ...`?"))
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
    one_dash(command, rest)
        .or_else(|| (command.get_name() == "run").then(of_run).flatten())
        .or_else(|| one_name(command, rest, unknown))
        .or_else(|| shell(command, rest, unknown))
        .or_else(|| listen(command, unknown))
}

/// etcdctl's `elect -l`.
fn listen(command: &Command, unknown: &str) -> Option<String> {
    (command.get_name() == "elect" && matches!(unknown, "-l" | "--listen"))
        .then(|| "who leads is shown by `fairlock leader --watch`".to_owned())
}

/// Several names for a command that takes one.
fn one_name(command: &Command, rest: &[&str], unknown: &str) -> Option<String> {
    if unknown.starts_with('-') {
        return None;
    }
    match command.get_name() {
        "status" => {
            let names = words::operands(command, rest).join(" ");
            Some(format!("`fairlock list {names}` shows several locks"))
        }
        name @ ("unlock" | "leader" | "latch") => Some(format!("`{name}` takes one name")),
        _ => None,
    }
}

/// `completions --shell bash`.
fn shell(command: &Command, rest: &[&str], unknown: &str) -> Option<String> {
    let is_it = command.get_name() == "completions" && unknown == "--shell";
    let shell =
        rest.iter().find_map(|word| word.strip_prefix("--shell=")).or_else(|| rest.get(1).copied());
    is_it.then(|| {
        format!(
            "the shell is named without an option: `fairlock completions {}`",
            shell.unwrap_or("bash")
        )
    })
}

/// An option by its first letter, where only one begins so: `unlock -f`, `wait -w 5`.
pub(crate) fn first_letter(all: &Command, typed: &[&str], unknown: &str) -> Option<String> {
    let ours = typed.split(|word| *word == "--").next()?;
    let (first, rest) = ours.split_first()?;
    let command = all.find_subcommand(first)?;
    let at = rest.iter().position(|word| *word == unknown)?;
    let letter = unknown.strip_prefix('-').filter(|letter| letter.len() == 1)?;
    let begins = |arg: &&Arg| arg.get_long().is_some_and(|long| long.starts_with(letter));
    let mut found = command.get_arguments().filter(begins);
    let (Some(arg), None) = (found.next(), found.next()) else { return None };
    let long = arg.get_long()?;
    if !arg.get_action().takes_values() {
        return Some(format!("did you mean `--{long}`?"));
    }
    // A bare number is one of seconds, as in flock(1).
    let value = rest.get(at + 1).copied().unwrap_or_default();
    let is_bare = duration::parse(value).is_err() && duration::parse_seconds(value).is_ok();
    Some(match (long, value) {
        ("wait-for", value) if is_bare => format!("did you mean `--{long} {value}s`?"),
        ("wait-for", value) if duration::parse(value).is_ok() => {
            format!("did you mean `--{long} {value}`?")
        }
        _ => format!("did you mean `--{long}`?"),
    })
}

/// What libraries call the shares of a lock.
fn share(rest: &[&str], unknown: &str) -> Option<String> {
    let ours = match unknown {
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

/// `--url U run x`; `--list`; and flock's `-n x`.
fn before_the_command(all: &Command, rest: &[&str], unknown: &str) -> Option<String> {
    let typed = rest.iter().find_map(|word| all.find_subcommand(word));
    let dashed = unknown.strip_prefix("--");
    if typed.is_none()
        && let Some(command) = dashed.and_then(|word| all.find_subcommand(word))
    {
        return Some(format!("did you mean `fairlock {}`?", command.get_name()));
    }
    let command = typed.or_else(|| all.find_subcommand("run").filter(|_| dashed.is_none()))?;
    let is_it = |arg: &Arg| match dashed {
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
        // `--timeout` is flock's.
        if command.get_name() == "run" && matches!(name, "try" | "timeout" | "-try") {
            let name = name.trim_start_matches('-');
            let value = value.or_else(|| rest.get(at + 1).copied()).unwrap_or_default();
            let wait = if duration::parse(value).is_ok() { value } else { "5s" };
            return Some(format!("consul's -{name} is `--wait {wait}` here"));
        }
        if command.get_name() == "run"
            && let Some((_, ours)) = CONSUL.iter().find(|(theirs, _)| *theirs == name)
        {
            let value = value.or_else(|| rest.get(at + 1).copied()).unwrap_or("VALUE");
            return Some(format!("consul's -{name} is {}", ours.replace("VALUE", value)));
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
            (
                "-n nightly -- true",
                "-n",
                Some("options stand after the command: `fairlock run -n ...`"),
            ),
            ("-j nightly", "-j", None),
            ("--list", "--list", Some("did you mean `fairlock list`?")),
            ("elect -l x", "-l", Some("who leads is shown by `fairlock leader --watch`")),
            ("elect --lease 5s x", "--lease", None),
            ("--url redis://h", "--url", None),
            ("run -try=10s x", "-t", Some("consul's -try is `--wait 10s` here")),
            ("run -timeout 1m x", "-t", Some("consul's -timeout is `--wait 1m` here")),
            ("run -timeout=soon x", "-t", Some("consul's -timeout is `--wait 5s` here")),
            ("run -name=foo -- true", "-n", Some("consul's -name is `--label foo` here")),
            ("run -wait=5s -- true", "-a", Some("long options have two dashes: `--wait=5s`")),
            ("run -verbose x", "-e", Some("long options have two dashes: `--verbose`")),
            ("status -json x", "-j", Some("long options have two dashes: `--json`")),
            ("run -n=2 x", "-=", Some("consul's -n is `--permits 2` here")),
            ("run -n3 x", "-3", Some("consul's -n is `--permits 3` here")),
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
            ("run --try 7s x", "--try", Some("consul's -try is `--wait 7s` here")),
            ("status a b", "b", Some("`fairlock list a b` shows several locks")),
            ("status --json a --kind rw b", "b", Some("`fairlock list a b` shows several locks")),
            ("unlock --force a b", "b", Some("`unlock` takes one name")),
            (
                "completions --shell zsh",
                "--shell",
                Some("the shell is named without an option: `fairlock completions zsh`"),
            ),
            // flock's, and names.
            ("run -nx x", "-x", None),
            ("run -nE 9 -z x", "-z", None),
            ("run -x -- true", "-x", None),
            ("run x -- cc -wait=5s", "--odd", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(meant(&all(), &words, unknown).as_deref(), meant_by_it, "{typed}");
        }
        for (typed, unknown, meant) in [
            ("unlock -f nightly", "-f", Some("did you mean `--force`?")),
            ("wait -w 5 w1", "-w", Some("did you mean `--wait-for 5s`?")),
            ("wait -w 5m w1", "-w", Some("did you mean `--wait-for 5m`?")),
            ("wait -k rw w1", "-k", Some("did you mean `--kind`?")),
            ("run -l x nightly", "-l", None),
            ("status -v nightly", "-v", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(first_letter(&all(), &words, unknown).as_deref(), meant, "{typed}");
        }
        for (typed, says) in [
            (
                "run -http-addr=h:8500 job -- true",
                Some(
                    "-http-addr=h:8500: `-h` stands alone; consul's -http-addr is `--url` here: the store is a server of \
                     Redis or Valkey",
                ),
            ),
            ("run -qh", Some("-qh: `-h` stands alone")),
            ("run -h", None),
            ("run job --help", None),
            ("run -help", None),
            ("help run", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(hidden_help(&all(), &words).as_deref(), says, "{typed}");
        }
        assert!(COMMANDS.is_sorted() && CONSUL.is_sorted());
        for (theirs, ours) in COMMANDS {
            let all = all();
            let first = ours.split(' ').next().expect("a word");
            assert!(all.find_subcommand(theirs).is_none(), "{theirs} is ours");
            assert!(first == "--version" || all.find_subcommand(first).is_some(), "{ours}");
        }
        assert_eq!(command("lock"), Some("run"));
        assert_eq!(command("statsu"), None);
    }
}
