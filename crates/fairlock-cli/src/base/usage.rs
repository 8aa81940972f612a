//! Advice in errors about wrong usage.

/// The first column of an example ends here.
const GAP: &str = "  ";

/// What to type instead: the first of `examples`, which are those of `command`, or of the program.
pub(crate) fn advice(command: Option<&str>, examples: &str) -> String {
    let example = first_example(examples).unwrap_or("fairlock demo");
    let of = command.map_or(String::new(), |command| format!(" {command}"));
    format!("e.g. {example}; see fairlock{of} --help")
}

fn first_example(text: &str) -> Option<&str> {
    let line = text.lines().find_map(|line| line.strip_prefix(GAP))?;
    line.split(GAP).next().map(str::trim)
}
