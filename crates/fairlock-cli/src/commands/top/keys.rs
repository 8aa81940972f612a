//! The keyboard: a thread that reads the bytes of a terminal and turns them into keys.
//!
//! crossterm's events are not used: if a key arrives together with a change of the window's size, version
//! 0.29 holds the key back until the next one is pressed; and it spins on a terminal that is gone.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::app::Press;

/// Capacity for keys. More only come from a paste, and wait in the terminal.
const QUEUED_MAX: usize = 64;

/// Bytes that begin like the code of a key are one if the rest arrives within this time. Otherwise the
/// first was the Escape key.
const CODE_TAKES: Duration = Duration::from_millis(50);

/// Longest code in bytes; no key of ours has more than six.
const CODE_MAX: usize = 32;

const ESCAPE: u8 = 0x1b;

/// Starts reading. The thread ends with the program or with the terminal.
///
/// # Errors
/// If there is no terminal to read from.
pub(super) fn read() -> io::Result<mpsc::Receiver<io::Result<Press>>> {
    let stdin = io::stdin();
    let terminal = match stdin.is_terminal() {
        true => File::from(stdin.as_fd().try_clone_to_owned()?),
        false => File::open("/dev/tty")?,
    };
    let (sender, receiver) = mpsc::channel(QUEUED_MAX);
    thread::spawn(move || {
        let mut keys = Keys::default();
        loop {
            let presses = match next(&terminal, &mut keys) {
                Ok(presses) => presses,
                Err(error) => return drop(sender.blocking_send(Err(error))),
            };
            for press in presses {
                if sender.blocking_send(Ok(press)).is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

/// Waits for the next bytes, or until none come.
fn next(mut terminal: &File, keys: &mut Keys) -> io::Result<Vec<Press>> {
    let limit = (!keys.begun.is_empty())
        .then(|| Timespec { tv_sec: 0, tv_nsec: CODE_TAKES.subsec_nanos().into() });
    let mut ready = [PollFd::new(&terminal, PollFlags::IN)];
    match poll(&mut ready, limit.as_ref()) {
        Ok(0) => return Ok(keys.rest()),
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let mut bytes = [0; 256];
    match terminal.read(&mut bytes) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is gone")),
        Ok(read) => Ok(keys.take(&bytes[..read])),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Turns bytes into keys.
#[derive(Debug, Default)]
struct Keys {
    /// Bytes that may begin a code or a character.
    begun: Vec<u8>,
}

/// What a sequence of bytes begins with.
enum Begin {
    /// A key, `None` if it has no meaning here, and its number of bytes.
    Whole(Option<Press>, usize),
    /// An incomplete key.
    Part,
}

impl Keys {
    fn take(&mut self, bytes: &[u8]) -> Vec<Press> {
        self.begun.extend_from_slice(bytes);
        let mut presses = Vec::new();
        let mut rest = self.begun.as_slice();
        while let Begin::Whole(press, length) = begin(rest) {
            presses.extend(press);
            rest = &rest[length..];
        }
        let rest = if rest.len() > CODE_MAX { &[] } else { rest };
        self.begun = rest.to_vec();
        presses
    }

    /// No more bytes have come.
    fn rest(&mut self) -> Vec<Press> {
        let begun = std::mem::take(&mut self.begun);
        match begun.first() {
            Some(&ESCAPE) => vec![Press::Escape],
            _ => Vec::new(),
        }
    }
}

fn begin(bytes: &[u8]) -> Begin {
    let Some(&first) = bytes.first() else { return Begin::Part };
    match first {
        ESCAPE => begin_code(bytes),
        b'\r' | b'\n' => Begin::Whole(Some(Press::Enter), 1),
        0x7f | 0x08 => Begin::Whole(Some(Press::Backspace), 1),
        0x03 => Begin::Whole(Some(Press::Interrupt), 1),
        0x1a => Begin::Whole(Some(Press::Suspend), 1),
        0..=0x1f => Begin::Whole(None, 1),
        0x20..=0x7e => Begin::Whole(Some(Press::Char(char::from(first))), 1),
        _ => begin_char(bytes),
    }
}

/// `ESC [ parameters letter`, or `ESC O letter`.
fn begin_code(bytes: &[u8]) -> Begin {
    let (parameters, last) = match bytes.get(1) {
        None => return Begin::Part,
        Some(b'[') => {
            let end = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
            let Some(end) = end else { return Begin::Part };
            (&bytes[2..2 + end], 2 + end)
        }
        Some(b'O') if bytes.len() > 2 => (&bytes[2..2], 2),
        Some(b'O') => return Begin::Part,
        // Two keys that arrived together.
        Some(_) => return Begin::Whole(Some(Press::Escape), 1),
    };
    let press = match (parameters, bytes[last]) {
        (b"", b'A') => Some(Press::Up),
        (b"", b'B') => Some(Press::Down),
        (b"", b'H') | (b"1" | b"7", b'~') => Some(Press::Home),
        (b"", b'F') | (b"4" | b"8", b'~') => Some(Press::End),
        (b"5", b'~') => Some(Press::PageUp),
        (b"6", b'~') => Some(Press::PageDown),
        _ => None,
    };
    Begin::Whole(press, last + 1)
}

/// A character of more than one byte.
fn begin_char(bytes: &[u8]) -> Begin {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Begin::Whole(None, 1),
    };
    let Some(bytes) = bytes.get(..length) else { return Begin::Part };
    match std::str::from_utf8(bytes) {
        Ok(text) => Begin::Whole(text.chars().next().map(Press::Char), length),
        Err(_) => Begin::Whole(None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys() {
        let c = Press::Char;
        let table: [(&[u8], &[Press]); 16] = [
            (b"q", &[c('q')]),
            (b"\x1b[A", &[Press::Up]),
            (b"\x1bOB", &[Press::Down]),
            (b"\x1b[5~\x1b[6~", &[Press::PageUp, Press::PageDown]),
            (b"\x1b[H\x1b[1~\x1bOH", &[Press::Home; 3]),
            (b"\x1b[F\x1b[4~\x1bOF", &[Press::End; 3]),
            (b"\r\n", &[Press::Enter; 2]),
            (b"\x7f\x08", &[Press::Backspace; 2]),
            (b"\x03\x1a", &[Press::Interrupt, Press::Suspend]),
            // Keys without a meaning: Ctrl-Up, F5, Delete, Tab.
            (b"\x1b[1;5A\x1b[15~\x1b[3~\tx", &[c('x')]),
            ("aé日🔒".as_bytes(), &[c('a'), c('é'), c('日'), c('🔒')]),
            (b"\xff\xe6x\xc3(", &[c('x'), c('(')]),
            // Alt-q, or two keys on a slow line.
            (b"\x1bq", &[Press::Escape, c('q')]),
            (b"\x1b\x1b[A", &[Press::Escape, Press::Up]),
            (b"\x1b", &[Press::Escape]),
            (b"", &[]),
        ];
        for (bytes, expected) in table {
            // At once, and byte by byte.
            for step in [bytes.len().max(1), 1] {
                let mut keys = Keys::default();
                let mut presses: Vec<_> =
                    bytes.chunks(step).flat_map(|bytes| keys.take(bytes)).collect();
                presses.extend(keys.rest());
                assert_eq!(presses, expected, "{} by {step}", bytes.escape_ascii());
                assert!(keys.begun.is_empty());
            }
        }
    }

    #[test]
    fn what_never_ends_is_dropped() {
        let mut keys = Keys::default();
        for _ in 0..1_000 {
            assert!(keys.take(b"\x1b[").len() <= 1);
            assert!(keys.begun.len() <= CODE_MAX);
        }
        let mut keys = Keys::default();
        assert_eq!(keys.take(&[b"\x1b[".as_slice(), &[b'0'; 100]].concat()), []);
        assert_eq!(keys.take(b"q"), [Press::Char('q')]);
    }
}
