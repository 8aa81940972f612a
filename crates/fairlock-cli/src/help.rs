//! Help, wrong usage, shell completions and manual pages, from the definitions that `args.rs` assembles.
//!
//! `-h` fits on one screen: of each option the first paragraph of its text, without the options that are rarely used.
//! `--help` fits on three: all options with their whole text, and the sections below them (`after_long_help`). A section
//! starts with a line that ends in a colon, followed by indented lines. So it becomes a section of a manual page.

mod coming_from;
pub(crate) mod completions;

use std::env;
use std::io::{self, IsTerminal as _};

use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory as _};
use roff::{Roff, roman};

use crate::args::{self, Cli};
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::base::style::Style;
use crate::base::usage;
use crate::settings::options;
use crate::settings::store_selection::{self, StoreSelection};

/// The common cases come before the options.
const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}{all-args}{after-help}";

/// Greatest width of help, in characters.
const WIDTH_MAX: usize = 100;

/// The command line as clap sees it.
pub(crate) fn command() -> clap::Command {
    Cli::command().help_template(TEMPLATE).max_term_width(WIDTH_MAX).mut_subcommands(|command| {
        let command = command.help_template(TEMPLATE).max_term_width(WIDTH_MAX);
        if command.get_after_long_help().is_none() {
            return command;
        }
        let name = command.get_name();
        let more = format!("See `fairlock {name} --help` for all options and exit codes.");
        command.after_help(more)
    })
}

/// The command whose help is requested, as `COMMAND --help` or `help COMMAND`; without one, the program.
fn requested(typed: &[&str]) -> clap::Command {
    let mut all = command();
    // Sets the full names of the subcommands.
    all.build();
    let name = typed.iter().find(|word| **word != "help");
    name.and_then(|name| all.find_subcommand(name)).unwrap_or(&all).clone()
}

/// The form of `--help`: in two columns, like `-h`. clap's own form takes twice as many lines.
fn in_full(command: clap::Command) -> clap::Command {
    let sections = command.get_after_long_help().cloned();
    let command = command.mut_args(|arg| {
        let (text, values) = (full_text(&arg), described_values(&arg));
        let has_values = !values.is_empty();
        arg.help(text + &values).hide_possible_values(has_values).hide_short_help(false)
    });
    match sections {
        Some(sections) => command.after_help(sections),
        None => command,
    }
}

/// All paragraphs of an option's text as one.
fn full_text(arg: &Arg) -> String {
    let text = arg.get_long_help().or_else(|| arg.get_help());
    let text = text.map(ToString::to_string).unwrap_or_default().replace("\n\n", " ");
    text.strip_suffix('.').map(str::to_owned).unwrap_or(text)
}

/// A line for each value of an option; empty if they have no descriptions.
fn described_values(arg: &Arg) -> String {
    let values = arg.get_possible_values();
    let width = values.iter().map(|value| value.get_name().len() + 1).max().unwrap_or_default();
    let line = |value: &PossibleValue| {
        let name = format!("{}:", value.get_name());
        Some(format!("\n- {name:width$} {}", value.get_help()?))
    };
    values.iter().filter_map(line).collect()
}

/// Handles clap's help and errors: help goes to stdout, an error becomes one line of ours.
pub(crate) fn refuse(error: &clap::Error) -> Result<Code, Failure> {
    let text = error.render().to_string();
    let typed: Vec<_> = env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
    let typed: Vec<_> = typed.iter().map(String::as_str).collect();
    match error.kind() {
        ErrorKind::DisplayVersion => output::print(&text),
        ErrorKind::DisplayHelp => {
            if let Some(word) = coming_from::hidden_help(&typed) {
                let meant = coming_from::counterpart(&command(), &typed, "-h");
                let meant = meant.map_or_else(String::new, |meant| format!("; {meant}"));
                let refusal = format!("{word}: `-h` stands alone{meant}; {}", advice(&typed));
                return Err(Failure::usage(refusal));
            }
            let style = Style::of(&io::stdout());
            // The store that is used without an option, on two lines if it is long.
            let mut store = match StoreSelection::of(&options::Store::default()) {
                Ok(selection) => selection.explain(),
                Err(failure) => format!("none: {failure}"),
            };
            if store.chars().count() + 2 > WIDTH_MAX {
                store = store.replacen("; ", ";\n  ", 1);
            }
            let how = typed.iter().find(|word| ["-h", "--help"].contains(word));
            let text = match how {
                Some(&"-h") => text,
                _ => in_full(requested(&typed)).render_help().to_string(),
            };
            let text = bold_headings(&text, style);
            output::print(&format!("{text}\n{}\n  {store}\n", style.bold("Store:")))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Err(Failure::usage(format!("say what to do, {}", advice(&[]))))
        }
        _ => {
            // The first paragraph is the reason; the rest is usage, which --help also shows, and tips.
            let mut paragraphs = text.split("\n\n");
            let reason = paragraphs.next().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason).trim_end();
            let of_others = match (error.kind(), error.get(ContextKind::InvalidArg)) {
                (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) => {
                    coming_from::counterpart(&command(), &typed, unknown)
                }
                _ => match error.get(ContextKind::InvalidSubcommand) {
                    Some(ContextValue::String(word)) => {
                        coming_from::command(word).map(|meant| format!("did you mean '{meant}'?"))
                    }
                    _ => None,
                },
            };
            let tips = paragraphs.next().unwrap_or_default();
            let tip = of_others.or_else(|| tip(error.kind(), tips, &typed));
            let tip = tip.map_or_else(String::new, |tip| format!("; {tip}"));
            Err(Failure::usage(format!("{reason}{tip}; {}", advice(&typed))))
        }
    }
}

/// What may have been meant by something unknown.
fn tip(error: ErrorKind, tips: &str, typed: &[&str]) -> Option<String> {
    // No command has the name of a path, such as that of a flock's file.
    if error == ErrorKind::InvalidSubcommand && typed.first()?.contains('/') {
        return None;
    }
    let mut tips = tips.lines().filter_map(|line| line.trim_start().strip_prefix("tip: "));
    // How to pass an unknown option as a value: what is behind `--` is the command of `run`.
    let tip = tips.find(|tip| !tip.starts_with("to pass"));
    if let Some(tip) = tip {
        let similar = tip.split_once("similar").and_then(|(_, similar)| similar.split_once(": "));
        let meant = similar.map(|(_, meant)| format!("did you mean {}?", meant.trim_end()));
        return Some(meant.unwrap_or_else(|| tip.trim_end().to_owned()));
    }
    let is_run = matches!(typed.first(), Some(&("run" | "elect")));
    let is_unknown = error == ErrorKind::UnknownArgument && !typed.contains(&"--");
    (is_run && is_unknown).then(|| "a command stands behind `--`".to_owned())
}

/// What to type instead: an example of the command that was meant, else of the program.
fn advice(typed: &[&str]) -> String {
    let all = command();
    let meant = typed.iter().find_map(|word| all.find_subcommand(word));
    let examples = meant.unwrap_or(&all).get_before_help().map(ToString::to_string);
    usage::advice(meant.map(clap::Command::get_name), &examples.unwrap_or_default())
}

fn bold_headings(text: &str, style: Style) -> String {
    let mut styled = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once(':') {
            Some((heading, rest)) if is_heading(line) => {
                styled.push_str(&style.bold(&format!("{heading}:")));
                styled.push_str(rest);
            }
            _ => styled.push_str(line),
        }
        styled.push('\n');
    }
    styled
}

/// A line like `Options:` or `Usage: fairlock ...`.
fn is_heading(line: &str) -> bool {
    let words = line.split(':').next().unwrap_or_default();
    line.starts_with(|c: char| c.is_ascii_uppercase())
        && (line.ends_with(':') || words == "Usage")
        && words.len() < line.len()
}

/// The documents, at the end of each page.
const SEE_ALSO: &str = "\
See also:
  /usr/share/doc/fairlock/docs/README.md   the documents, where a package has put them
  .../docs/at-3-am.md                      what to do when a job waits, hangs or did not run
  .../docs/recipes.md                      cron, systemd, containers, alerts
  https://github.com/fairlock/fairlock";

/// `fairlock man [COMMAND]`: one page.
pub(crate) fn man(args: &args::Man) -> Result<Code, Failure> {
    // `help` has no page: it only shows the others.
    let mut all = command().disable_help_subcommand(true);
    // Sets the full names of the subcommands.
    all.build();
    let page = match &args.command {
        None => all,
        Some(name) => {
            let found = all.get_subcommands().find(|command| command.get_name() == name);
            found.cloned().ok_or_else(|| {
                Failure::usage(format!("there is no command of this name; {}", advice(&["man"])))
            })?
        }
    };
    let text = render(page).map_err(|error| Failure::new(Code::INTERNAL, error))?;
    let code = output::write(&text)?;
    if io::stdout().is_terminal() {
        let name = args.command.as_deref().map_or_else(String::new, |name| format!(" {name}"));
        message::report(&format!(
            "this is the source of a manual page; to read it: fairlock man{name} | man -l -"
        ));
    }
    Ok(code)
}

fn render(command: clap::Command) -> io::Result<Vec<u8>> {
    let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
    let more = command.get_after_long_help().or_else(|| command.get_after_help());
    let more = more.map(ToString::to_string).unwrap_or_default();
    let has_commands = command.has_subcommands();
    // clap_mangen leaves out the text of what `-h` does not show.
    let command = command.mut_args(|arg| {
        let text = full_text(&arg);
        arg.long_help(text).hide_possible_values(false).hide_short_help(false)
    });
    let mut text = Vec::new();
    // The page's header has no date, which would differ from build to build.
    let version = concat!("fairlock ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command).date("").source(version).manual("User commands");
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    sections(&examples).to_writer(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    sections(&more).to_writer(&mut text)?;
    sections(store_selection::FILES).to_writer(&mut text)?;
    sections(SEE_ALSO).to_writer(&mut text)?;
    Ok(text)
}

/// Converts the sections of a text to those of a page, keeping each line as it is.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut open = false;
    for line in text.lines() {
        if is_heading(line) {
            if open {
                roff.control("fi", []);
            }
            roff.control("SH", [line.trim_end_matches(':').to_uppercase().as_str()]);
            roff.control("nf", []);
            open = true;
        } else if line.is_empty() {
            roff.control("sp", []);
        } else {
            roff.text([roman(line)]);
        }
    }
    if open {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        command().debug_assert();
    }

    /// The advice in errors is an example from help, for every command.
    #[test]
    fn every_command_has_an_example_of_itself() {
        for command in command().get_subcommands() {
            let name = command.get_name();
            let advice = advice(&[name]);
            let of_itself = format!("e.g. fairlock {name}");
            assert!(advice.starts_with(&of_itself), "{name}: {advice}");
            assert!(!advice.contains("  "), "{advice}");
        }
        assert!(
            advice(&["frobnicate"]).starts_with("e.g. fairlock run nightly -- ./backup.sh; see")
        );
    }

    /// clap wraps wider lines again, which breaks their columns.
    #[test]
    fn d29_no_line_of_help_is_broken_twice() {
        let widest = |text: Option<&clap::builder::StyledStr>| {
            let text = text.map(ToString::to_string).unwrap_or_default();
            text.lines().max_by_key(|line| line.chars().count()).unwrap_or_default().to_owned()
        };
        let all = command();
        for command in all.get_subcommands().chain([&all]) {
            let after = [command.get_after_help(), command.get_after_long_help()];
            for text in after.into_iter().chain([command.get_before_help()]) {
                let line = widest(text);
                assert!(line.chars().count() <= WIDTH_MAX, "{}: {line}", command.get_name());
            }
        }
    }

    /// A default that clap does not show is part of the text.
    #[test]
    fn hidden_defaults_are_in_the_text() {
        let mut seen = 0;
        for command in command().get_subcommands() {
            for arg in command.get_arguments().filter(|arg| arg.is_hide_default_value_set()) {
                for default in arg.get_default_values() {
                    let default = default.to_str().expect("UTF-8");
                    let text = full_text(arg);
                    assert!(
                        default.is_empty() || text.contains(&format!("Default: {default}")),
                        "{text}"
                    );
                    seen += 1;
                }
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn headings() {
        for (line, heading) in [
            ("Options:", true),
            ("Usage: fairlock run", true),
            ("With --json, one object on one line:", true),
            ("  64       wrong usage", false),
            ("      --url <URL>", false),
            ("Durations: 500ms, 10s", false),
            ("Locks for commands", false),
            ("", false),
        ] {
            assert_eq!(is_heading(line), heading, "{line}");
        }
    }
}
