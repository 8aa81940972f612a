//! The part of the Redis protocol that tests need: RESP2, and RESP3 folded into the same values.

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The null of RESP2 (bulk or array) and of RESP3.
    Nil,
    /// An integer, or a RESP3 boolean as 0 or 1.
    Int(i64),
    /// A string of bytes; also RESP3's verbatim string, with its three letters and colon.
    Bulk(Vec<u8>),
    /// A status line; also RESP3's doubles and big numbers, as they are written.
    Simple(String),
    /// An error, with its code as the first word.
    Error(String),
    /// A list; also RESP3's sets and pushes, and maps as key, value, key, value.
    Array(Vec<Self>),
}

impl Value {
    /// The integer.
    ///
    /// # Panics
    ///
    /// If it is something else.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The text of a bulk string or a status line.
    ///
    /// # Panics
    ///
    /// If it is something else, or not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Simple(text) => text,
            Self::Bulk(bytes) => std::str::from_utf8(bytes).expect("a reply in UTF-8"),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The elements of a list.
    ///
    /// # Panics
    ///
    /// If it is something else.
    #[track_caller]
    pub fn array(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// True for the null reply.
    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }
}

/// Bytes that are not RESP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Malformed;

/// One command in wire form.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The first whole value in `bytes` and its length there, or `None` while it is incomplete.
///
/// RESP3's attributes count as a part of the value they precede.
///
/// # Errors
///
/// [`Malformed`] if `bytes` cannot become a value, whatever follows.
pub fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut parser = Parser { bytes, at: 0 };
    match parser.value(MAX_DEPTH) {
        Ok(value) => Ok(Some((value, parser.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed) => Err(Malformed),
    }
}

/// Far deeper than any reply that we see; keeps hostile bytes from exhausting the stack.
const MAX_DEPTH: u8 = 32;

enum Stop {
    Incomplete,
    Malformed,
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: u8) -> Result<Value, Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::Malformed)?;
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or(Stop::Malformed)?;
        match kind {
            b'+' | b',' | b'(' => Ok(Value::Simple(text(rest))),
            b'-' => Ok(Value::Error(text(rest))),
            b':' => Ok(Value::Int(number(rest)?)),
            b'#' => Ok(Value::Int(i64::from(rest == b"t"))),
            b'_' => Ok(Value::Nil),
            b'$' | b'=' => Ok(self.blob(rest)?.map_or(Value::Nil, Value::Bulk)),
            b'!' => Ok(self.blob(rest)?.map_or(Value::Nil, |bytes| Value::Error(text(&bytes)))),
            b'*' | b'~' | b'>' => self.elements(number(rest)?, depth),
            b'%' => self.elements(pairs(rest)?, depth),
            b'|' => {
                self.elements(pairs(rest)?, depth)?;
                self.value(depth)
            }
            _ => Err(Stop::Malformed),
        }
    }

    fn elements(&mut self, count: i64, depth: u8) -> Result<Value, Stop> {
        if count < 0 {
            return Ok(Value::Nil);
        }
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(self.value(depth)?);
        }
        Ok(Value::Array(elements))
    }

    fn blob(&mut self, length: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let length = number(length)?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        let end = self.at.checked_add(length).ok_or(Stop::Malformed)?;
        let after = self.bytes.get(end..).and_then(|rest| rest.get(..2)).ok_or(Stop::Incomplete)?;
        if after != b"\r\n" {
            return Err(Stop::Malformed);
        }
        let blob = self.bytes[self.at..end].to_vec();
        self.at = end + 2;
        Ok(Some(blob))
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let length = rest.windows(2).position(|two| two == b"\r\n").ok_or(Stop::Incomplete)?;
        self.at += length + 2;
        Ok(&rest[..length])
    }
}

fn pairs(digits: &[u8]) -> Result<i64, Stop> {
    number(digits)?.checked_mul(2).ok_or(Stop::Malformed)
}

fn number(digits: &[u8]) -> Result<i64, Stop> {
    let digits = std::str::from_utf8(digits).map_err(|_| Stop::Malformed)?;
    digits.parse().map_err(|_| Stop::Malformed)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_parses_and_every_prefix_of_it_is_incomplete() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let table: &[(&str, Value)] = &[
            ("+OK\r\n", Value::Simple("OK".into())),
            ("-ERR no\r\n", Value::Error("ERR no".into())),
            (":-7\r\n", Value::Int(-7)),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("_\r\n", Value::Nil),
            ("#t\r\n", Value::Int(1)),
            (",1.5\r\n", Value::Simple("1.5".into())),
            ("$4\r\na\r\nb\r\n", bulk("a\r\nb")),
            ("=5\r\ntxt:a\r\n", bulk("txt:a")),
            ("!5\r\nERR x\r\n", Value::Error("ERR x".into())),
            ("*2\r\n:1\r\n*0\r\n", Value::Array(vec![Value::Int(1), Value::Array(vec![])])),
            ("%1\r\n+k\r\n:2\r\n", Value::Array(vec![Value::Simple("k".into()), Value::Int(2)])),
            (">2\r\n$1\r\na\r\n$1\r\nb\r\n", Value::Array(vec![bulk("a"), bulk("b")])),
            ("|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n", bulk("a")),
        ];
        for (bytes, value) in table {
            let bytes = bytes.as_bytes();
            assert_eq!(parse(bytes), Ok(Some((value.clone(), bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Ok(None), "{value:?} cut at {end}");
            }
        }
    }

    #[test]
    fn what_follows_a_value_is_left_alone_and_nonsense_is_told() {
        let bytes = encode(&["GET", "k"]);
        let length = bytes.len();
        let args = Value::Array(vec![Value::Bulk("GET".into()), Value::Bulk("k".into())]);
        assert_eq!(parse(&[bytes, b"*1".to_vec()].concat()), Ok(Some((args, length))));
        assert_eq!(parse(b"hello\r\n"), Err(Malformed));
        assert_eq!(parse(b"$1\r\nabc"), Err(Malformed));
        assert_eq!(parse("*1\r\n".repeat(100).as_bytes()), Err(Malformed));
    }
}
