//! Options of flock(1), `consul lock` and `etcdctl elect` that fairlock does not take, and their counterparts.

use clap::{Arg, Command};

use crate::base::duration;

/// Consul's options, which have one dash or two. `VALUE` stands for the typed value.
const CONSUL: [(&str, &str); 9] = [
    ("child-exit-code", "not needed here: leave it out"),
    ("http-addr", "`--url` here: the store is a server of Redis or Valkey"),
    ("monitor-retry", "not needed here: leave it out"),
    ("name", "`--label VALUE` here"),
    ("pass-stdin", "not needed here: leave it out"),
    ("shell", "not needed here: leave it out, or give a line with `-c LINE`"),
    ("timeout", "`--wait VALUE` here"),
    ("token", "not needed here: a password is read from `--password-file FILE`"),
    ("try", "`--wait VALUE` here"),
];

/// The command that another program calls by this name.
pub(crate) fn command(typed: &str) -> Option<&'static str> {
    matches!(typed, "flock" | "lock").then_some("run")
}

/// The counterpart of an unknown option. `typed`: the whole command line; `unknown`: the unknown part of it.
pub(crate) fn counterpart(all: &Command, typed: &[&str], unknown: &str) -> Option<String> {
    let (command, words) = own_words(typed)?;
    match (command, unknown) {
        ("elect", "-l" | "--listen") => {
            return Some("who leads is shown by `fairlock leader --watch`".to_owned());
        }
        ("run", "-u" | "--unlock") if words.contains(&unknown) => {
            let reason = "has no counterpart: a lock ends with its command";
            return Some(format!("flock's {unknown} {reason}"));
        }
        _ => {}
    }
    let ours = all.find_subcommand(command)?;
    words.iter().enumerate().find_map(|(at, word)| {
        let (option, value) =
            word.split_once('=').map_or((*word, None), |(option, value)| (option, Some(value)));
        // Of a word with one dash, clap reports a letter.
        if !option.starts_with('-') || option.starts_with("--") && option != unknown {
            return None;
        }
        let name = option.trim_start_matches('-');
        if command == "run" {
            if let ("-n", Some(value)) = (option, value) {
                return Some(format!("consul's -n is `--permits {value}` here"));
            }
            if let Some((_, here)) = CONSUL.iter().find(|(theirs, _)| *theirs == name) {
                let value = value.or_else(|| words.get(at + 1).copied()).unwrap_or("VALUE");
                let is_wait = here.starts_with("`--wait");
                let value = if is_wait && duration::parse(value).is_err() { "5s" } else { value };
                return Some(format!("consul's -{name} is {}", here.replace("VALUE", value)));
            }
        }
        let is_ours = |arg: &Arg| name.len() > 1 && arg.get_long() == Some(name);
        let hint = || format!("long options have two dashes: `-{word}`");
        ours.get_arguments().any(is_ours).then(hint)
    })
}

/// A word such as consul's `-shell=false`, of which clap takes one letter for `-h`: it would print help and exit with 0,
/// and the command would never run.
pub(crate) fn hidden_help<'a>(typed: &[&'a str]) -> Option<&'a str> {
    let (command, words) = own_words(typed)?;
    if command == "help" || words.iter().any(|word| ["-h", "-help", "--help"].contains(word)) {
        return None;
    }
    let is_short = |word: &str| word.starts_with('-') && !word.starts_with("--");
    words.iter().copied().find(|word| word.len() > 2 && word.contains('h') && is_short(word))
}

/// The first word, and those that follow it before `--`.
fn own_words<'a, 'b>(typed: &'b [&'a str]) -> Option<(&'a str, &'b [&'a str])> {
    let (command, words) = typed.split(|word| *word == "--").next()?.split_first()?;
    Some((command, words))
}

#[cfg(test)]
mod tests {
    use super::super::command as all;
    use super::*;

    #[test]
    fn unknown_options_have_counterparts() {
        for (typed, unknown, expected) in [
            (
                "run -u x -- true",
                "-u",
                Some("flock's -u has no counterpart: a lock ends with its command"),
            ),
            ("run -nu x -- true", "-u", None),
            ("elect -l x", "-l", Some("who leads is shown by `fairlock leader --watch`")),
            ("elect --lease 5s x", "--lease", None),
            ("run -try=10s x", "-t", Some("consul's -try is `--wait 10s` here")),
            ("run --try 7s x", "--try", Some("consul's -try is `--wait 7s` here")),
            ("run -timeout 1m x", "-t", Some("consul's -timeout is `--wait 1m` here")),
            ("run -timeout=soon x", "-t", Some("consul's -timeout is `--wait 5s` here")),
            ("run -name=foo -- true", "-n", Some("consul's -name is `--label foo` here")),
            ("run -n=2 x", "-=", Some("consul's -n is `--permits 2` here")),
            ("run -wait=5s -- true", "-a", Some("long options have two dashes: `--wait=5s`")),
            ("status -json x", "-j", Some("long options have two dashes: `--json`")),
            ("run --name=x --timeout 5 --odd", "--odd", None),
            ("run -nx x", "-x", None),
            ("run x -- cc -wait=5s", "--odd", None),
            ("--list", "--list", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(counterpart(&all(), &words, unknown).as_deref(), expected, "{typed}");
        }
    }

    #[test]
    fn help_among_other_letters() {
        for (typed, expected) in [
            ("run -http-addr=h:8500 job -- true", Some("-http-addr=h:8500")),
            ("run -qh", Some("-qh")),
            ("run -h", None),
            ("run job --help", None),
            ("run -help", None),
            ("help run", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(hidden_help(&words), expected, "{typed}");
        }
    }
}
