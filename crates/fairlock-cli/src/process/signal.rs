//! The signals that this process receives, as one stream.

use std::fs;
use std::future;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::terminal;

/// Signals that people and supervisors send, and that end a program by default.
const ENDING: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Signals that only matter to a running command.
const JOB_CONTROL: [Signal; 3] = [Signal::WINCH, Signal::CONT, Signal::TSTP];

/// A stream of signals. Other signals keep their default action.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    ignored: u64,
}

impl Signals {
    /// Listens for the signals that would otherwise end this process.
    pub(crate) fn install() -> io::Result<Self> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored_mask() };
        signals.listen(&ENDING)?;
        Ok(signals)
    }

    /// Also listens for the signals that are only passed on to a running command. Until then TSTP stops
    /// this process like any other.
    pub(crate) fn add_job_control(&mut self) -> io::Result<()> {
        // A run may begin several commands, one after the other.
        let has_it = self.streams.iter().any(|(signal, _)| JOB_CONTROL.contains(signal));
        if has_it { Ok(()) } else { self.listen(&JOB_CONTROL) }
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn recv(&mut self) -> Signal {
        future::poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that is to end this process while no command runs. Those of job control, which are listened for once one
    /// has run, do what they do by default.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            match self.recv().await {
                Signal::TSTP => terminal::stop(),
                signal if JOB_CONTROL.contains(&signal) => {}
                signal => return signal,
            }
        }
    }

    /// Turns a file that reaches the size limit of this process (`ulimit -f`) into a failed write. By default it would
    /// end a holder in the middle of its work, without a message. Once listened for, the signal has no default action
    /// in this process; in the command it has it again.
    pub(crate) fn survive_size_limits() -> io::Result<()> {
        if ignored_mask() & bit(Signal::XFSZ.as_raw()) == 0 {
            drop(unix::signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
        }
        Ok(())
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &signal in signals {
            // A signal that was ignored at the start stays ignored, here and in the command: `nohup
            // fairlock run ...` survives a hang-up, and a background job of a script its interrupt.
            if self.ignored & bit(signal.as_raw()) == 0 {
                let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
                self.streams.push((signal, stream));
            }
        }
        Ok(())
    }
}

/// The signals that were ignored when this process started. The system call for that needs unsafe code;
/// without `/proc` no signal counts as ignored.
fn ignored_mask() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|text| parse_mask(&text)).unwrap_or(0)
}

fn parse_mask(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_proc() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        let mask = parse_mask(status).expect("there is a mask");
        for (signal, ignored) in [(Signal::HUP, true), (Signal::PIPE, true), (Signal::INT, false)] {
            assert_eq!(mask & bit(signal.as_raw()) != 0, ignored, "{signal:?}");
        }
        assert_eq!(parse_mask("Name:\tx\n"), None);
        assert_eq!(bit(0), 0);
        assert_eq!(bit(65), 0);
    }
}
