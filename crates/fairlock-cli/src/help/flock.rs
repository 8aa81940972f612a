//! Options of `flock(1)` that `fairlock run` does not take: people who have used it for years type them here as well.

/// The counterpart in `fairlock run` of an option of flock, as the end of `flock's ...`. `typed`: the whole
/// command line; `unknown`: the unknown part of it.
pub(crate) fn meant(typed: &[&str], unknown: &str) -> Option<String> {
    typed.strip_prefix(&["run"])?;
    let is_short = |word: &str| unknown.len() == 2 && word.starts_with(unknown);
    let is_typed = typed.iter().any(|word| {
        let option = word.split_once('=').map_or(*word, |(option, _)| option);
        *word != "--" && (option == unknown || is_short(word))
    });
    if !is_typed {
        return None;
    }
    match unknown {
        "-u" | "--unlock" => {
            Some(format!("{unknown} has no counterpart: a lock ends with its command"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these was once taken for the name of a lock that begins with a dash.
    #[test]
    fn the_options_of_flock() {
        let unlock = "-u has no counterpart: a lock ends with its command";
        for (typed, unknown, ours) in [
            ("run -u x -- true", "-u", Some(unlock)),
            ("run --wait 5s -u x -- true", "-u", Some(unlock)),
            ("run -nu x -- true", "-u", None),
            // A name, or something unknown.
            ("run --wiat 5s x", "--wiat", None),
            ("status -n", "-n", None),
            ("run x -- true", "", None),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            assert_eq!(meant(&words, unknown).as_deref(), ours, "{typed}");
        }
    }
}
