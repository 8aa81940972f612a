//! serde, with the feature of that name: a token is a number, a name or an id is text.
//!
//! A lock's name, and the id of a foreign owner, may be any bytes. Formats for people get a string
//! if the bytes are UTF-8, and otherwise a list of bytes; other formats get bytes. Input is checked
//! as everywhere else.

use crate::id::{ClientId, LockName, OwnerId, RequestId, client_text};
use crate::rules::Token;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Bytes that are text wherever that is possible.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) if to.is_human_readable() => to.serialize_str(text),
            _ => to.serialize_bytes(self.0),
        }
    }
}

/// Reads what [`Text`] has written.
fn bytes<'de, D: Deserializer<'de>>(from: D, expected: &'static str) -> Result<Vec<u8>, D::Error> {
    if from.is_human_readable() {
        from.deserialize_any(Bytes(expected))
    } else {
        from.deserialize_byte_buf(Bytes(expected))
    }
}

struct Bytes(&'static str);

impl<'de> Visitor<'de> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(from)?;
        Self::new(value).ok_or_else(|| {
            Error::custom(format_args!("{value} is no fencing token: not between 1 and 2^53 - 1"))
        })
    }
}

impl Serialize for LockName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Text(self.as_bytes()).serialize(to)
    }
}

impl<'de> Deserialize<'de> for LockName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(&bytes(from, "a lock's name")?).map_err(Error::custom)
    }
}

impl Serialize for OwnerId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Text(&self.to_bytes()).serialize(to)
    }
}

impl<'de> Deserialize<'de> for OwnerId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&bytes(from, "the id of an owner")?))
    }
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Text(&client_text(*self)).serialize(to)
    }
}

impl<'de> Deserialize<'de> for ClientId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = bytes(from, "the id of a client")?;
        Self::parse(&text).ok_or_else(|| Error::custom("a client's id is a UUID of version 8"))
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Text(&self.to_text()).serialize(to)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&bytes(from, "the id of a request")?).map_err(Error::custom)
    }
}
