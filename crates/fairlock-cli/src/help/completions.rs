//! `fairlock completions SHELL`: what clap generates, and what it cannot know: names of locks, which come from the store
//! (`commands/names.rs`), and that another command line starts behind `--`.

use clap_complete::Shell;

use super::command;
use crate::args::Completions;
use crate::base::exit::{Code, Failure};
use crate::base::output;

/// Where the generated function of zsh begins.
const ZSH_FUNCTION: &str = "\n_fairlock() {\n";

pub(crate) fn completions(args: &Completions) -> Result<Code, Failure> {
    let mut generated = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "fairlock", &mut generated);
    let text = String::from_utf8_lossy(&generated);
    output::print(&with_ours(args.shell, &text))
}

fn with_ours(shell: Shell, generated: &str) -> String {
    match shell {
        Shell::Bash => format!("{generated}{}", include_str!("completions/tail.bash")),
        Shell::Fish => format!("{generated}{}", include_str!("completions/tail.fish")),
        Shell::Zsh => {
            let head = include_str!("completions/head.zsh");
            let ours = format!("\n{head}_fairlock() {{\n    _fairlock_or_command && return\n");
            generated.replacen(ZSH_FUNCTION, &ours, 1)
        }
        _ => generated.to_owned(),
    }
}
