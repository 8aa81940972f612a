//! Reads RESP: each byte once, without recursion, and no further into a value than the largest that
//! we ask for. So no server can make us keep more.

use super::error::CallError;
use super::value::{Push, ServerError, Value};
use std::io;

/// Bytes of one value. The largest that we ask for is a thousand waiters, or a thousand keys, with
/// names of 4 kB each: 4 MiB.
const BYTES_MAX: usize = 16 << 20;

/// Values in one value. The map of a Cluster with 16 384 ranges of four nodes each has 380 000.
const ELEMENTS_MAX: usize = 1 << 19;

/// Values around a value. A map of Cluster nodes has four.
const DEPTH_MAX: usize = 16;

/// Bytes of a line: an error, a number, a length.
const LINE_MAX: usize = 64 << 10;

/// Digits with which every number fits into an `i64`.
const DIGITS_MAX: usize = 18;

/// Room that is reserved before the elements, or the bytes, have arrived.
const RESERVED_MAX: usize = 64;

/// How far into a value the server is.
#[derive(Default)]
pub(crate) struct Parser {
    /// The beginning of a line, or of a text if `text` is set.
    part: Vec<u8>,
    text: Option<Text>,
    /// The values around the next one, from the outside.
    levels: Vec<Level>,
    /// Counted within the outermost value so far.
    bytes: usize,
    elements: usize,
}

#[derive(Clone, Copy)]
struct Text {
    kind: u8,
    /// Without the end of its line.
    length: usize,
}

struct Level {
    kind: u8,
    missing: usize,
    items: Vec<Value>,
}

/// A reply that is not read to its end.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    TooMuch(&'static str),
    NoResp(&'static str),
}

use Refused::{NoResp, TooMuch};

impl From<Refused> for CallError {
    fn from(refused: Refused) -> Self {
        match refused {
            TooMuch(what) => {
                let message = format!(
                    "the server's reply has {what}, which no reply to fairlock has; is it a Redis or \
                     Valkey server?"
                );
                io::Error::new(io::ErrorKind::InvalidData, message).into()
            }
            NoResp(what) => Self::Parse(what),
        }
    }
}

impl Parser {
    /// Advances by these bytes, and appends the values that are whole now.
    ///
    /// # Errors
    /// The value is too large, or is not a value. Nothing can be read after it.
    pub(crate) fn feed(&mut self, bytes: &[u8], whole: &mut Vec<Value>) -> Result<(), CallError> {
        Ok(self.advance(bytes, whole)?)
    }

    /// Whether this is between two values.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.part.is_empty() && self.text.is_none() && self.levels.is_empty()
    }

    fn advance(&mut self, mut bytes: &[u8], whole: &mut Vec<Value>) -> Result<(), Refused> {
        while !bytes.is_empty() {
            let taken = match self.text {
                None => self.line(bytes, whole)?,
                Some(text) => self.text(text, bytes, whole)?,
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Continues a line. Returns how many bytes belong to it.
    fn line(&mut self, bytes: &[u8], whole: &mut Vec<Value>) -> Result<usize, Refused> {
        if self.part.is_empty() && !bytes.first().is_some_and(|kind| KINDS.contains(kind)) {
            return Err(NoResp("a value that begins like none"));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(bytes.len());
        if self.part.len() + taken > LINE_MAX {
            return Err(TooMuch("an endless line"));
        }
        self.count(taken)?;
        let now = bytes.get(..taken).unwrap_or_default();
        // A line feed alone is a part of the line.
        if self.part.is_empty()
            && let [kind, line @ .., b'\r', b'\n'] = now
        {
            self.end_of_line(*kind, line, whole)?;
            return Ok(taken);
        }
        self.part.extend_from_slice(now);
        if end.is_some() && self.part.ends_with(b"\r\n") {
            let part = std::mem::take(&mut self.part);
            if let [kind, line @ .., b'\r', b'\n'] = &part[..] {
                self.end_of_line(*kind, line, whole)?;
            }
        }
        Ok(taken)
    }

    /// Continues a text. Returns how many bytes belong to it.
    fn text(
        &mut self,
        Text { kind, length }: Text,
        bytes: &[u8],
        whole: &mut Vec<Value>,
    ) -> Result<usize, Refused> {
        let taken = bytes.len().min(length + 2 - self.part.len());
        self.count(taken)?;
        self.part.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        let end = self.part.get(length..).unwrap_or_default();
        if !b"\r\n".starts_with(end) {
            return Err(NoResp("a text without an end"));
        }
        if end.len() < 2 {
            return Ok(taken);
        }
        let mut text = std::mem::take(&mut self.part);
        self.text = None;
        text.truncate(length);
        let value = match kind {
            b'$' => Value::BulkString(text),
            b'!' => Value::ServerError(ServerError::new(String::from_utf8_lossy(&text).into())),
            _ => {
                let text = String::from_utf8_lossy(&text);
                let (_, text) = text.split_once(':').ok_or(NoResp("a text without a format"))?;
                Value::VerbatimString(text.to_owned())
            }
        };
        self.end_of_value(value, whole)?;
        Ok(taken)
    }

    fn end_of_line(
        &mut self,
        kind: u8,
        line: &[u8],
        whole: &mut Vec<Value>,
    ) -> Result<(), Refused> {
        let value = match kind {
            b'$' | b'!' | b'=' => match length(line)? {
                Some(length) if length > BYTES_MAX => return Err(TooMuch("too many bytes")),
                Some(length) => {
                    self.part.reserve((length + 2).min(RESERVED_MAX));
                    self.text = Some(Text { kind, length });
                    return Ok(());
                }
                None if kind == b'$' => Value::Nil,
                None => return Err(TooMuch("a length below zero")),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match length(line)? {
                Some(length) => return self.begin(kind, length, whole),
                None if matches!(kind, b'*' | b'~') => Value::Nil,
                None if kind == b'>' => push(Vec::new())?,
                None => return Err(TooMuch("a length below zero")),
            },
            b':' => Value::Int(number(line)?),
            b'_' => {
                utf8(line)?;
                Value::Nil
            }
            b'+' => Value::SimpleString(utf8(line)?.to_owned()),
            b'-' => Value::ServerError(ServerError::new(utf8(line)?.to_owned())),
            b'(' => {
                utf8(line)?;
                Value::Other
            }
            b'#' if matches!(line, b"t" | b"f") => Value::Other,
            b',' if utf8(line)?.trim().parse::<f64>().is_ok() => Value::Other,
            _ => return Err(NoResp("a value with other characters")),
        };
        self.end_of_value(value, whole)
    }

    /// A value with others inside.
    fn begin(&mut self, kind: u8, length: usize, whole: &mut Vec<Value>) -> Result<(), Refused> {
        // Key and value. What an attribute belongs to counts as its last element.
        let pairs = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        let missing = length.saturating_mul(pairs).saturating_add(usize::from(kind == b'|'));
        self.elements = self.elements.saturating_add(missing);
        if self.elements > ELEMENTS_MAX {
            return Err(TooMuch("too many elements"));
        }
        if missing == 0 {
            return self.end_of_value(of_items(kind, Vec::new())?, whole);
        }
        if self.levels.len() == DEPTH_MAX {
            return Err(TooMuch("too many levels"));
        }
        let items = Vec::with_capacity(missing.min(RESERVED_MAX));
        self.levels.push(Level { kind, missing, items });
        Ok(())
    }

    fn end_of_value(&mut self, mut value: Value, whole: &mut Vec<Value>) -> Result<(), Refused> {
        while let Some(level) = self.levels.last_mut() {
            level.items.push(value);
            level.missing -= 1;
            if level.missing > 0 {
                return Ok(());
            }
            let Some(Level { kind, items, .. }) = self.levels.pop() else { return Ok(()) };
            value = of_items(kind, items)?;
        }
        (self.bytes, self.elements) = (0, 0);
        whole.push(value);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Refused> {
        self.bytes += bytes;
        if self.bytes > BYTES_MAX {
            return Err(TooMuch("too many bytes"));
        }
        Ok(())
    }
}

/// The first bytes of values.
const KINDS: &[u8] = b"*$:+-_%>=,#(!~|";

fn of_items(kind: u8, mut items: Vec<Value>) -> Result<Value, Refused> {
    match kind {
        b'*' => Ok(Value::Array(items)),
        b'>' => push(items),
        b'%' => {
            let mut pairs = Vec::with_capacity(items.len() / 2);
            let mut items = items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                pairs.push((key, value));
            }
            Ok(Value::Map(pairs))
        }
        // Nothing that we ask for has attributes that matter.
        b'|' => Ok(items.pop().unwrap_or(Value::Other)),
        _ => Ok(Value::Other),
    }
}

fn push(items: Vec<Value>) -> Result<Value, Refused> {
    Push::read(items).map(Value::Push).ok_or(NoResp("a message without a kind"))
}

fn utf8(line: &[u8]) -> Result<&str, Refused> {
    std::str::from_utf8(line).map_err(|_| NoResp("a line that is not UTF-8"))
}

fn number(line: &[u8]) -> Result<i64, Refused> {
    // Nearly all are short and without a sign.
    if (1..=DIGITS_MAX).contains(&line.len()) && line.iter().all(u8::is_ascii_digit) {
        return Ok(line.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    utf8(line)?.trim().parse().map_err(|_| NoResp("a number with other characters"))
}

/// `None` if it is below zero: the null of older protocols.
fn length(line: &[u8]) -> Result<Option<usize>, Refused> {
    Ok(usize::try_from(number(line)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, so that each boundary is met. Returns the values, and whether the last one is
    /// whole.
    fn parse(bytes: &[u8]) -> Result<(Vec<Value>, bool), Refused> {
        let (mut parser, mut values) = (Parser::default(), Vec::new());
        for byte in bytes {
            parser.advance(&[*byte], &mut values)?;
        }
        Ok((values, parser.is_at_rest()))
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn every_kind_of_value_ends_where_it_ends() {
        let (simple, int) = (|text: &str| Value::SimpleString(text.into()), Value::Int);
        let error = |line: &str| Value::ServerError(ServerError::new(line.into()));
        for (bytes, value) in [
            ("+OK\r\n", simple("OK")),
            (":999999999999999999\r\n", int(999_999_999_999_999_999)),
            (":9223372036854775807\r\n", int(i64::MAX)),
            (":-9223372036854775808\r\n", int(i64::MIN)),
            ("+\r\n", simple("")),
            ("+a\rb\nc\r\r\n", simple("a\rb\nc\r")),
            (":1\r\n", int(1)),
            (":-1\r\n", int(-1)),
            ("-ERR x\r\n", error("ERR x")),
            ("_\r\n", Value::Nil),
            (",1.5\r\n", Value::Other),
            ("#t\r\n", Value::Other),
            ("(123456789012345678901234567890\r\n", Value::Other),
            ("$3\r\n\r\n1\r\n", bulk("\r\n1")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("*0\r\n", Value::Array(vec![])),
            ("*2\r\n:1\r\n$1\r\n*\r\n", Value::Array(vec![int(1), bulk("*")])),
            ("*1\r\n*1\r\n*0\r\n", Value::Array(vec![Value::Array(vec![Value::Array(vec![])])])),
            (
                "%1\r\n+k\r\n*1\r\n:1\r\n",
                Value::Map(vec![(simple("k"), Value::Array(vec![int(1)]))]),
            ),
            ("|1\r\n+k\r\n+v\r\n:1\r\n", int(1)),
            ("*2\r\n|1\r\n+k\r\n+v\r\n:1\r\n:2\r\n", Value::Array(vec![int(1), int(2)])),
            ("~1\r\n:1\r\n", Value::Other),
            (
                ">2\r\n+message\r\n+x\r\n",
                Value::Push(Push {
                    kind: super::super::value::PushKind::Message,
                    data: vec![simple("x")],
                }),
            ),
            ("!3\r\nERR\r\n", error("ERR")),
            ("=7\r\ntxt:abc\r\n", Value::VerbatimString("abc".into())),
        ] {
            assert_eq!(parse(bytes.as_bytes()), Ok((vec![value.clone()], true)), "{bytes:?}");
            for end in 1..bytes.len() {
                assert_eq!(parse(&bytes.as_bytes()[..end]), Ok((vec![], false)), "{bytes:?} {end}");
            }
            let mut values = Vec::new();
            Parser::default().advance(bytes.repeat(2).as_bytes(), &mut values).unwrap();
            assert_eq!(values, [value.clone(), value], "{bytes:?} at once");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_when_it_is_announced() {
        let most = format!("*{ELEMENTS_MAX}\r\n");
        assert_eq!(parse(most.as_bytes()), Ok((vec![], false)));
        let deep = "*1\r\n".repeat(DEPTH_MAX);
        assert_eq!(parse(deep.as_bytes()), Ok((vec![], false)));
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
            (format!("+{}", "x".repeat(LINE_MAX)), "an endless line"),
            (format!("${}", "1".repeat(LINE_MAX)), "an endless line"),
        ] {
            assert_eq!(parse(value.as_bytes()), Err(TooMuch(what)), "{value:.40}");
        }
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400\r\n"[..],
            b"\r\n",
            b":1x\r\n",
            b":9999999999999999999\r\n",
            b"$x\r\n",
            b"$1\r\nabc",
            b"+\xff\r\n",
            b"=3\r\nabc\r\n",
            b">1\r\n:1\r\n",
            b"#yes\r\n",
            b",one\r\n",
            b"_\xff\r\n",
            b"(\xff\r\n",
        ] {
            assert!(matches!(parse(bytes), Err(NoResp(_))), "{}", bytes.escape_ascii());
        }
    }

    /// Many parts that are not too large make a value that is too large.
    #[test]
    fn bytes_of_all_parts_count_until_the_value_ends() {
        let part = format!("$1000000\r\n{}\r\n", "x".repeat(1_000_000));
        let (mut parser, mut values) = (Parser::default(), Vec::new());
        for _ in 0..100 {
            parser.advance(part.as_bytes(), &mut values).unwrap();
            values.clear();
        }
        parser.advance(b"*100\r\n", &mut values).unwrap();
        let fits = (0..100).take_while(|_| parser.advance(part.as_bytes(), &mut values).is_ok());
        assert_eq!(fits.count(), 16);
        assert_eq!(values, []);
    }
}
