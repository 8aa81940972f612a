//! Colours: only on a terminal, and not if `NO_COLOR` is set.

use std::env;
use std::io::IsTerminal;

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// The style for text written to this stream.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { on: stream.is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// Headings and names.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// For a good state, such as a free lock.
    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// For something in use, such as a held lock.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// For a bad state, such as a silent waiter.
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_colours() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let style = Style::of(&file);
        assert_eq!(style, Style { on: false });
        assert_eq!(style.red("dead"), "dead");
        assert_eq!(Style { on: true }.red("dead"), "\x1b[31mdead\x1b[0m");
    }
}
