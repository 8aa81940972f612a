//! Options of `flock(1)`: people who have used it for years type them here as well.

/// The counterpart in `fairlock run` of an option of flock, as the end of `flock's ...`. `typed`: the whole command
/// line; `unknown`: the unknown part of it.
pub(crate) fn meant(typed: &[&str], unknown: &str) -> Option<String> {
    if typed.first() != Some(&"run") {
        return None;
    }
    let is_short = |word: &str| unknown.len() == 2 && word.starts_with(unknown);
    let at = typed.iter().position(|word| {
        let option = word.split_once('=').map_or(*word, |(option, _)| option);
        *word != "--" && (option == unknown || is_short(word))
    })?;
    // `-w 5`, `-w5`, `--timeout=5`.
    let value = match typed[at].split_once('=') {
        Some((_, value)) => Some(value),
        None if is_short(typed[at]) && typed[at].len() > 2 => Some(&typed[at][2..]),
        None => typed.get(at + 1).copied(),
    };
    let ours = match unknown {
        "-w" | "--timeout" => {
            format!("--wait {}", value.and_then(seconds).unwrap_or_else(|| "5s".to_owned()))
        }
        "-n" | "--nb" | "--nonblock" => "--wait 0".to_owned(),
        "-E" => {
            let code = value.filter(|code| code.parse::<u8>().is_ok()).unwrap_or("75");
            format!("--conflict-exit-code {code}")
        }
        // Without another name it is itself the name of a lock.
        "-x" if has_name(typed) => return Some(exclusive(unknown)),
        "-s" => "--shared".to_owned(),
        "-u" | "--unlock" => {
            return Some(format!("{unknown} has no counterpart: a lock ends with its command"));
        }
        "-e" | "--exclusive" => return Some(exclusive(unknown)),
        "-o" | "--close" | "-F" | "--no-fork" => {
            return Some(format!("{unknown} is not needed here: leave it out"));
        }
        _ => return None,
    };
    Some(format!("{unknown} is `{ours}` here"))
}

fn exclusive(unknown: &str) -> String {
    format!(
        "{unknown} is not needed here: leave it out, but beside readers (`--shared`) a writer says `--kind rw`"
    )
}

/// Whether a lock is named by a word that is neither an option nor, as far as can be told, the value of one.
fn has_name(typed: &[&str]) -> bool {
    let ours = typed.split(|word| *word == "--").next().unwrap_or_default();
    let takes_value = |word: &str| word.len() > 2 && word.starts_with('-') && !word.contains('=');
    ours.windows(2).any(|pair| !pair[1].starts_with('-') && !takes_value(pair[0]))
}

/// Converts flock's time, in possibly fractional seconds, to a duration of ours.
fn seconds(value: &str) -> Option<String> {
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 7 || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let millis: u64 = format!("{whole}{part:0<3}").parse().ok()?;
    Some(match millis % 1_000 {
        0 => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these was once taken for the name of a lock that begins with a dash.
    #[test]
    fn the_options_of_flock() {
        let exclusive = "-x is not needed here: leave it out, but beside readers (`--shared`) a writer says `--kind rw`";
        for (typed, unknown, ours) in [
            ("run -w 5 x", "-w", Some("-w is `--wait 5s` here")),
            ("run -w5 x", "-w", Some("-w is `--wait 5s` here")),
            ("run -w 0.5 x", "-w", Some("-w is `--wait 500ms` here")),
            ("run --timeout=1.25 x", "--timeout", Some("--timeout is `--wait 1250ms` here")),
            ("run -w soon x", "-w", Some("-w is `--wait 5s` here")),
            ("run -n x -- true", "-n", Some("-n is `--wait 0` here")),
            ("run --nonblock x", "--nonblock", Some("--nonblock is `--wait 0` here")),
            ("run -E 9 x", "-E", Some("-E is `--conflict-exit-code 9` here")),
            ("run -E9 x", "-E", Some("-E is `--conflict-exit-code 9` here")),
            ("run -E 900 x", "-E", Some("-E is `--conflict-exit-code 75` here")),
            ("run -s x", "-s", Some("-s is `--shared` here")),
            ("run -x x -- true", "-x", Some(exclusive)),
            ("run --wait 5s -x x -- true", "-x", Some(exclusive)),
            ("run -x --wait 5s -- true", "-x", None),
            ("run -o x", "-o", Some("-o is not needed here: leave it out")),
            // A name, or something unknown.
            ("run -x -- true", "-x", None),
            ("run --wiat 5s x", "--wiat", None),
            ("status -n", "-n", None),
            ("run x -- true", "", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(meant(&words, unknown).as_deref(), ours, "{typed}");
        }
    }

    #[test]
    fn seconds_as_durations() {
        for (value, ours) in [
            ("0", Some("0s")),
            ("10", Some("10s")),
            ("1.", Some("1s")),
            (".5", None),
            ("1.0001", None),
            ("-1", None),
            ("99999999", None),
        ] {
            assert_eq!(seconds(value).as_deref(), ours, "{value}");
        }
    }
}
