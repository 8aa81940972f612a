//! Limits what a server can make us keep: a value is read no further than the largest that we ask
//! for.
//!
//! redis-rs reads a value to its end, however long, and keeps it meanwhile. So a listener below it
//! counts the bytes and elements of the value that is being read, and how deep it is nested. It
//! does not know what the value means.

use super::tapped::Listener;
use std::io;

/// Bytes of one value. The largest that we ask for is a thousand waiters, or a thousand keys, with
/// names of 4 kB each: 4 MiB.
pub(crate) const BYTES_MAX: u64 = 16 << 20;

/// Values in one value. The map of a Cluster with 16 384 ranges of four nodes each has 380 000.
pub(crate) const ELEMENTS_MAX: u64 = 1 << 19;

/// Values around a value. A map of Cluster nodes has four; redis-rs reserves room for 4 096
/// elements at each level.
pub(crate) const DEPTH_MAX: usize = 16;

/// Bytes of a line: an error, a number, a length.
pub(crate) const LINE_MAX: u64 = 64 << 10;

/// How far into a value the server is. The stream that it listens to ends where a value exceeds
/// these limits.
#[derive(Default)]
pub(crate) struct Heard {
    at: At,
    /// Of the outermost value.
    bytes: u64,
    elements: u64,
    /// How many values are missing at each level.
    missing: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
enum At {
    /// Before the byte that tells what follows.
    #[default]
    Kind,
    Line(Line),
    /// In a text, of which this many bytes are missing, including the end of its line.
    Text(u64),
    /// In something that is not a value; redis-rs will report it.
    Nonsense,
}

#[derive(Clone, Copy)]
struct Line {
    kind: u8,
    length: u64,
    /// The end of the line may have begun.
    cr: bool,
    /// Its first bytes: enough for every length.
    start: [u8; Self::NUMBER_MAX],
}

impl Line {
    const NUMBER_MAX: usize = 24;

    /// Takes one more byte, which does not end the line. Returns whether the line is still short
    /// enough.
    fn goes_on(&mut self, byte: u8) -> bool {
        if self.cr {
            // It did not end the line, so it is part of it.
            self.push(b'\r');
        }
        self.cr = byte == b'\r';
        if !self.cr {
            self.push(byte);
        }
        self.length <= LINE_MAX
    }

    fn push(&mut self, byte: u8) {
        let at = usize::try_from(self.length).ok();
        if let Some(place) = at.and_then(|at| self.start.get_mut(at)) {
            *place = byte;
        }
        self.length += 1;
    }

    fn number(&self) -> Option<i64> {
        let length = usize::try_from(self.length).ok()?;
        std::str::from_utf8(self.start.get(..length)?).ok()?.trim().parse().ok()
    }
}

impl Listener for Heard {
    fn heard(&mut self, read: io::Result<&[u8]>) -> io::Result<()> {
        self.hear(read?).map_err(|what| {
            let message = format!(
                "the server's reply has {what}, which no reply to fairlock has; is it a Redis or \
                 Valkey server?"
            );
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}

/// What a reply has too much of.
type TooMuch = &'static str;

impl Heard {
    /// Advances by these bytes.
    pub(crate) fn hear(&mut self, mut bytes: &[u8]) -> Result<(), TooMuch> {
        while let Some(&first) = bytes.first() {
            let taken = match &mut self.at {
                At::Kind => {
                    self.at = match first {
                        b'+' | b':' | b'-' | b'_' | b',' | b'#' | b'(' | b'$' | b'!' | b'='
                        | b'*' | b'~' | b'>' | b'%' | b'|' => At::Line(Line {
                            kind: first,
                            length: 0,
                            cr: false,
                            start: [0; Line::NUMBER_MAX],
                        }),
                        _ => At::Nonsense,
                    };
                    1
                }
                At::Line(line) => {
                    if line.cr && first == b'\n' {
                        let line = *line;
                        self.end_of_line(&line)?;
                    } else if !line.goes_on(first) {
                        return Err("an endless line");
                    }
                    1
                }
                At::Text(left) => {
                    let taken = (*left).min(bytes.len() as u64);
                    *left -= taken;
                    if *left == 0 {
                        self.end_of_value();
                    }
                    taken
                }
                At::Nonsense => bytes.len() as u64,
            };
            bytes = usize::try_from(taken).ok().and_then(|n| bytes.get(n..)).unwrap_or_default();
            // The end of a value has set it to 0.
            if !self.is_at_rest() {
                self.bytes += taken;
            }
            if self.bytes > BYTES_MAX {
                return Err("too many bytes");
            }
        }
        Ok(())
    }

    /// Whether this is between two values.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.missing.is_empty() && matches!(self.at, At::Kind)
    }

    fn end_of_line(&mut self, line: &Line) -> Result<(), TooMuch> {
        if !matches!(line.kind, b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|') {
            self.end_of_value();
            return Ok(());
        }
        let Some(number) = line.number() else {
            self.at = At::Nonsense;
            return Ok(());
        };
        let Ok(number) = u64::try_from(number) else {
            // The null of older protocols. For other kinds, redis-rs takes it for an endless
            // length.
            if matches!(line.kind, b'$' | b'*' | b'~' | b'>') {
                self.end_of_value();
                return Ok(());
            }
            return Err("a length below zero");
        };
        if matches!(line.kind, b'$' | b'!' | b'=') {
            if number > BYTES_MAX {
                return Err("too many bytes");
            }
            self.at = At::Text(number + 2);
            return Ok(());
        }
        // Key and value. What an attribute belongs to counts as its last element.
        let pairs = if matches!(line.kind, b'%' | b'|') { 2 } else { 1 };
        let number = number.saturating_mul(pairs).saturating_add(u64::from(line.kind == b'|'));
        self.elements = self.elements.saturating_add(number);
        if self.elements > ELEMENTS_MAX {
            return Err("too many elements");
        }
        if number == 0 {
            self.end_of_value();
            return Ok(());
        }
        if self.missing.len() == DEPTH_MAX {
            return Err("too many levels");
        }
        self.missing.push(number);
        self.at = At::Kind;
        Ok(())
    }

    fn end_of_value(&mut self) {
        self.at = At::Kind;
        while let Some(missing) = self.missing.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.missing.pop();
        }
        (self.bytes, self.elements) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, so that each boundary is met.
    fn hear(bytes: &[u8]) -> Result<bool, TooMuch> {
        let mut heard = Heard::default();
        for byte in bytes {
            heard.hear(&[*byte])?;
        }
        Ok(heard.is_at_rest())
    }

    #[test]
    fn every_kind_of_value_ends_where_it_ends() {
        for value in [
            "+OK\r\n",
            "+\r\n",
            "+a\rb\nc\r\r\n",
            ":1\r\n",
            ":-1\r\n",
            "-ERR x\r\n",
            "_\r\n",
            ",1.5\r\n",
            "#t\r\n",
            "(123456789012345678901234567890\r\n",
            "$3\r\n\r\n1\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n$1\r\n*\r\n",
            "*1\r\n*1\r\n*0\r\n",
            "%1\r\n+k\r\n*1\r\n:1\r\n",
            "|1\r\n+k\r\n+v\r\n:1\r\n",
            "~1\r\n:1\r\n",
            ">2\r\n+message\r\n+x\r\n",
            "!3\r\nERR\r\n",
            "=7\r\ntxt:abc\r\n",
            ">0\r\n",
        ] {
            assert_eq!(hear(value.as_bytes()), Ok(true), "{value:?}");
            for end in 1..value.len() {
                assert_eq!(hear(&value.as_bytes()[..end]), Ok(false), "{value:?} up to {end}");
            }
        }
    }

    #[test]
    fn what_is_too_large_is_refused_when_it_is_announced() {
        let most = format!("*{ELEMENTS_MAX}\r\n");
        assert_eq!(hear(most.as_bytes()), Ok(false));
        let deep = "*1\r\n".repeat(DEPTH_MAX);
        assert_eq!(hear(deep.as_bytes()), Ok(false));
        for (value, what) in [
            (format!("*{}\r\n", ELEMENTS_MAX + 1), "too many elements"),
            (format!("%{}\r\n", ELEMENTS_MAX / 2 + 1), "too many elements"),
            (format!("*2\r\n*{ELEMENTS_MAX}\r\n"), "too many elements"),
            (format!("*{}\r\n", i64::MAX), "too many elements"),
            (format!("|{}\r\n", i64::MAX), "too many elements"),
            (format!("{deep}*1\r\n"), "too many levels"),
            (format!("${}\r\n", BYTES_MAX + 1), "too many bytes"),
            (format!("${}\r\n", i64::MAX), "too many bytes"),
            ("!-1\r\n".to_owned(), "a length below zero"),
            ("%-1\r\n".to_owned(), "a length below zero"),
            (format!("+{}", "x".repeat(LINE_MAX as usize + 1)), "an endless line"),
            (format!("${}", "1".repeat(LINE_MAX as usize + 1)), "an endless line"),
        ] {
            assert_eq!(hear(value.as_bytes()), Err(what), "{value:.40}");
        }
    }

    /// Many parts that are not too large make a value that is too large.
    #[test]
    fn bytes_of_all_parts_count_until_the_value_ends() {
        let part = format!("$1000000\r\n{}\r\n", "x".repeat(1_000_000));
        let mut heard = Heard::default();
        for _ in 0..100 {
            heard.hear(part.as_bytes()).unwrap();
        }
        heard.hear(b"*100\r\n").unwrap();
        let fits = (0..100).take_while(|_| heard.hear(part.as_bytes()).is_ok()).count();
        assert_eq!(fits, 16);
        // redis-rs must refuse what is not a value, but must not keep it forever.
        let mut heard = Heard::default();
        let fits = (0..100).take_while(|_| heard.hear(part.as_bytes().get(1..).unwrap()).is_ok());
        assert_eq!(fits.count(), 16);
    }
}
