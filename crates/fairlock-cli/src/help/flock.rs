//! Options of `flock(1)` that `fairlock run` does not take: people who have used it for years type them here as well.

use clap::Command;

use super::words;

/// The counterpart in `fairlock run` of an option of flock, as the end of `flock's ...`. `all`: the program;
/// `typed`: the whole command line; `unknown`: the unknown part of it.
pub(crate) fn meant(all: &Command, typed: &[&str], unknown: &str) -> Option<String> {
    let rest = typed.strip_prefix(&["run"])?;
    let is_short = |word: &str| unknown.len() == 2 && word.starts_with(unknown);
    let is_typed = typed.iter().any(|word| {
        let option = word.split_once('=').map_or(*word, |(option, _)| option);
        *word != "--" && (option == unknown || is_short(word))
    });
    if !is_typed {
        return None;
    }
    match unknown {
        // Without another name it is itself the name of a lock.
        "-x" if has_name(all, rest) => Some(exclusive(unknown)),
        "-e" | "--exclusive" => Some(exclusive(unknown)),
        "-u" | "--unlock" => {
            Some(format!("{unknown} has no counterpart: a lock ends with its command"))
        }
        "-o" | "--close" | "-F" | "--no-fork" => {
            Some(format!("{unknown} is not needed here: leave it out"))
        }
        _ => None,
    }
}

fn exclusive(unknown: &str) -> String {
    format!(
        "{unknown} is not needed here: leave it out, but beside readers (`--shared`) a writer says `--kind rw`"
    )
}

/// Whether a lock is named, so that an unknown option is none.
fn has_name(all: &Command, rest: &[&str]) -> bool {
    all.find_subcommand("run").is_some_and(|run| !words::operands(run, rest).is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::command as all;
    use super::*;

    /// Each of these was once taken for the name of a lock that begins with a dash.
    #[test]
    fn the_options_of_flock() {
        let exclusive = "-x is not needed here: leave it out, but beside readers (`--shared`) a writer says `--kind rw`";
        for (typed, unknown, ours) in [
            ("run -x x -- true", "-x", Some(exclusive)),
            ("run --wait 5s -x x -- true", "-x", Some(exclusive)),
            ("run -x --wait 5s -- true", "-x", None),
            ("run -xn x -- true", "-x", Some(exclusive)),
            ("run -o x", "-o", Some("-o is not needed here: leave it out")),
            // A name, or something unknown.
            ("run -x -- true", "-x", None),
            ("run --wiat 5s x", "--wiat", None),
            ("status -n", "-n", None),
            ("run x -- true", "", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(meant(&all(), &words, unknown).as_deref(), ours, "{typed}");
        }
    }
}
