//! Messages on stderr: one line, `fairlock: ...`, without secrets.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::url::is_password;

/// How many messages wait for a reader of stderr; later ones are dropped. A run may last for months, and so may a full
/// pipe.
const WAITING_MAX: usize = 64;

/// How long a program that ends waits for a reader of stderr.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// The messages that are not written yet, and who writes them.
static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { writer: Writer::Caller, messages: VecDeque::new() });
static CHANGED: Condvar = Condvar::new();

struct Waiting {
    writer: Writer,
    messages: VecDeque<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// Each message is written by the thread that reports it.
    Caller,
    /// The first message starts a thread that writes: most runs have none.
    NewThread,
    Thread,
}

/// Writes one line. A closed stderr is not an error.
pub(crate) fn report(text: &str) {
    // A single write, so that lines of several processes on one terminal do not mix.
    write(format!("fairlock: {}\n", one_line(&redact(text))).into_bytes());
}

/// Writes to stderr, which may block unless a thread [writes](write_in_background).
pub(super) fn write(bytes: Vec<u8>) {
    let mut waiting = waiting();
    if waiting.writer == Writer::NewThread {
        let started = thread::Builder::new().name("stderr".to_owned()).spawn(write_waiting);
        waiting.writer = if started.is_ok() { Writer::Thread } else { Writer::Caller };
    }
    if waiting.writer == Writer::Caller {
        let _ = io::stderr().write_all(&bytes);
    } else if waiting.messages.len() < WAITING_MAX {
        waiting.messages.push_back(bytes);
        CHANGED.notify_all();
    }
}

/// From now on a thread writes, so a stderr that nobody reads (a full pipe, Ctrl-S) blocks nobody who reports. Without
/// the thread, because the system allows no more, messages are written as before.
pub(crate) fn write_in_background() {
    waiting().writer = Writer::NewThread;
}

/// Waits until the thread has written everything, but not for a stderr that nobody reads.
pub(crate) fn flush() {
    flush_within(FLUSH_WITHIN);
}

/// The same, for no longer than this.
pub(crate) fn flush_within(longest: Duration) {
    let is_busy = |waiting: &mut Waiting| !waiting.messages.is_empty();
    drop(CHANGED.wait_timeout_while(waiting(), longest.min(FLUSH_WITHIN), is_busy));
}

fn write_waiting() {
    loop {
        let is_idle = |waiting: &mut Waiting| waiting.messages.is_empty();
        let next = CHANGED.wait_while(waiting(), is_idle).unwrap_or_else(PoisonError::into_inner);
        let bytes = next.messages.front().cloned().unwrap_or_default();
        drop(next);
        let _ = io::stderr().write_all(&bytes);
        // Only now it is written, for those who flush.
        waiting().messages.pop_front();
        CHANGED.notify_all();
    }
}

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name made printable: a single line without terminal control sequences.
pub(crate) fn printable(name: &OsStr) -> String {
    one_line(&String::from_utf8_lossy(name.as_bytes()))
}

/// Replaces the text between `://` and `@`, and passwords in options, in anything that looks like a
/// URL. Our own messages hold no secret, but clap's messages quote arguments, and a URL may be among them.
pub(crate) fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let (url, after) =
            after.split_at(after.find([' ', '\n', '\'', '"']).unwrap_or(after.len()));
        // The last `@`: a password may contain one that was not escaped.
        let url = match url.rfind('@') {
            Some(at) => {
                clean.push_str("***");
                &url[at..]
            }
            None => url,
        };
        let (base, options) = url.split_once('?').map_or((url, None), |(b, o)| (b, Some(o)));
        clean.push_str(base);
        for (at, option) in options.into_iter().flat_map(|o| o.split('&')).enumerate() {
            clean.push(if at == 0 { '?' } else { '&' });
            match option.split_once('=') {
                Some((key, _)) if is_password(option) => {
                    clean.extend([key, "=***"]);
                }
                _ => clean.push_str(option),
            }
        }
        rest = after;
    }
    clean.push_str(rest);
    clean
}

/// Joins lines, dropping their indentation, and escapes control characters.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end().lines().map(str::trim).collect::<Vec<_>>().join(" ").chars() {
        match c {
            c if c.is_control() || is_disguise(c) => {
                // Writing to a string cannot fail.
                let _ = write!(line, "{}", c.escape_default());
            }
            c => line.push(c),
        }
    }
    line
}

/// Whether a character is invisible: it changes the direction of the text around it, breaks a line without being a
/// control character, or has no width, so that two names look the same. (The library rejects these characters in
/// what clients publish about themselves; names of locks are any bytes and are made printable here.)
fn is_disguise(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_replaced() {
        for (text, clean) in [
            ("no url", "no url"),
            ("redis://host:6379/0", "redis://host:6379/0"),
            ("redis://:pw@host", "redis://***@host"),
            (
                "bad 'redis://u:p@s@h/1' and rediss://x:y@z",
                "bad 'redis://***@h/1' and rediss://***@z",
            ),
            ("redis://u:p/w@h", "redis://***@h"),
            (
                "'redis+sentinel://u:p@a,b/m?sentinel-password=pw&x=1' y",
                "'redis+sentinel://***@a,b/m?sentinel-password=***&x=1' y",
            ),
            ("redis://h?a&PASSWORD=b&c", "redis://h?a&PASSWORD=***&c"),
            ("redis://host mail me@home", "redis://host mail me@home"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable(OsStr::new("a\u{1b}[2Jb\nc")), "a\\u{1b}[2Jb c");
        assert_eq!(printable(OsStr::from_bytes(b"a\xff")), "a\u{fffd}");
        assert_eq!(printable(OsStr::new("a\u{202e}b")), "a\\u{202e}b");
    }

    /// Two names that look alike are still two locks.
    #[test]
    fn d33_what_has_no_width_is_shown() {
        for hidden in
            ['\u{200b}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{ad}', '\u{fe0f}', '\u{e0061}']
        {
            let shown = printable(OsStr::new(&format!("a{hidden}b")));
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(hidden)));
        }
    }
}
