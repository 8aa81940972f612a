//! Which of the words that were typed are names, as far as the definitions tell.

use clap::{Arg, Command};

/// The words before `--` that are neither options of the command nor their values. `words`: those after its name.
pub(crate) fn operands<'a>(command: &Command, words: &[&'a str]) -> Vec<&'a str> {
    let ours = words.split(|word| *word == "--").next().unwrap_or_default();
    let (mut operands, mut is_value) = (Vec::new(), false);
    for word in ours {
        let is_option = word.len() > 1 && word.starts_with('-');
        if !is_option && !is_value {
            operands.push(*word);
        }
        // A value that begins with a dash is none for clap.
        is_value = is_option && waits_for_value(command, word);
    }
    operands
}

/// Whether the value of this option is the next word.
fn waits_for_value(command: &Command, option: &str) -> bool {
    let takes = |arg: &Arg| arg.get_action().takes_values();
    if let Some(long) = option.strip_prefix("--") {
        let is_it = |arg: &Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        };
        return arg_of(command, is_it).is_some_and(takes);
    }
    // Of several letters behind one dash the first that takes a value takes the rest.
    let letters = option.trim_start_matches('-').char_indices();
    let of_letter = |letter| arg_of(command, |arg: &Arg| arg.get_short() == Some(letter));
    let mut valued = letters.filter(|(_, letter)| of_letter(*letter).is_some_and(takes));
    valued.next().is_some_and(|(at, letter)| at + letter.len_utf8() + 1 == option.len())
}

fn arg_of(command: &Command, is_it: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|arg| is_it(arg))
}

#[cfg(test)]
mod tests {
    use super::super::command as all;
    use super::*;

    #[test]
    fn names_among_options() {
        for (typed, names) in [
            ("run -x", &[][..]),
            ("run -xn nightly", &["nightly"]),
            ("run --wait 5s nightly", &["nightly"]),
            ("run --wait=5s nightly", &["nightly"]),
            ("run --timeout 5 nightly", &["nightly"]),
            ("run -nw 5 nightly", &["nightly"]),
            ("run -w5 nightly", &["nightly"]),
            ("run --wait -1 x -- true", &["x"]),
            ("run -x -- true", &[]),
            ("wait --wait 1s x y", &["x", "y"]),
        ] {
            let words: Vec<_> = typed.split(' ').collect();
            let all = all();
            let command = all.find_subcommand(words[0]).expect("it is one");
            assert_eq!(operands(command, &words[1..]), names, "{typed}");
        }
    }
}
