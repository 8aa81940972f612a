//! Options of flock(1) that `fairlock run` takes.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::base::duration;

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "As in flock(1), which also has -s and -E")]
pub(super) struct Flock {
    /// Do not wait: the same as --wait 0.
    #[arg(short = 'n', long, alias = "nb", conflicts_with = "wait", hide_short_help = true)]
    pub(super) nonblock: bool,

    /// Longest wait in seconds: the same as --wait.
    #[arg(
        short = 'w', long, value_name = "SECONDS", value_parser = duration::parse_seconds,
        conflicts_with_all = ["wait", "nonblock"], hide_short_help = true
    )]
    pub(super) timeout: Option<Duration>,

    /// No effect: a lock is exclusive without it. A writer among readers (--shared) needs --kind rw.
    #[allow(dead_code, reason = "it is so without")]
    #[arg(short = 'x', long, short_alias = 'e', conflicts_with = "shared", hide_short_help = true)]
    pub(super) exclusive: bool,

    /// No effect: what the command leaves running does not keep the lock.
    #[allow(dead_code, reason = "it is so without")]
    #[arg(short = 'o', long, short_alias = 'F', alias = "no-fork", hide_short_help = true)]
    pub(super) close: bool,

    /// The command as a line for $SHELL, else for /bin/sh.
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        group = "what",
        hide_short_help = true
    )]
    pub(super) line: Option<OsString>,
}

impl Flock {
    /// The longest wait, if it was given here.
    pub(super) fn wait(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.timeout }
    }

    /// The command that runs the line, if one was given.
    pub(super) fn command(&self) -> Option<Vec<OsString>> {
        let line = self.line.clone()?;
        let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
        Some(vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line])
    }
}
