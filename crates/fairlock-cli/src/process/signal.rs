//! The signals this process receives, as one stream.

use std::fs;
use std::future;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Signals that end a program by default, and that people and supervisors send.
const ENDING: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Signals that matter only to a running command.
const JOB_CONTROL: [Signal; 3] = [Signal::WINCH, Signal::CONT, Signal::TSTP];

/// A stream of signals. What is not listened for keeps its default action.
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

    /// Also listens for what is only passed on to a running command. Until then TSTP stops this
    /// process as it would any other.
    pub(crate) fn add_job_control(&mut self) -> io::Result<()> {
        self.listen(&JOB_CONTROL)
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

    /// A file that has grown to the limit of this process (`ulimit -f`) is a failed write, and not the end of a holder in
    /// the middle of its work, which could not even say so. What is listened for once stays without its default
    /// action in this process, and has it again in the command.
    pub(crate) fn survive_size_limits() -> io::Result<()> {
        if ignored_mask() & bit(Signal::XFSZ.as_raw()) == 0 {
            drop(unix::signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
        }
        Ok(())
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &signal in signals {
            // Ignored on entry stays ignored, here and in the command: `nohup fairlock run ...`
            // survives the hang-up, and a script's background job the script's interrupt.
            if self.ignored & bit(signal.as_raw()) == 0 {
                let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
                self.streams.push((signal, stream));
            }
        }
        Ok(())
    }
}

/// The signals that were ignored when this process started. The call that would tell is not to be
/// had without unsafe code; where there is no `/proc` nothing counts as ignored.
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
