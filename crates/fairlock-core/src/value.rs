//! The content of a simple lock's string.

use crate::id::{OwnerId, RequestId, VALUE_SHOWN_BYTES};
use crate::rules::Token;
use std::sync::Arc;

/// Length of the longest value that we write: owner (52), request (32) and token (16 bytes), two
/// colons.
const OURS_BYTES_MAX: usize = 102;

/// The content of a simple lock's key. Every client that locks with `SET key value NX PX` chooses
/// its own value; ours is `<owner>:<request>:<token>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SimpleValue {
    /// A hold of ours.
    Ours {
        /// The owner id.
        owner: OwnerId,
        /// The attempt that got the lock.
        request: RequestId,
        /// The hold's token.
        token: Token,
    },
    /// Any other value, which is never parsed.
    Foreign(Arc<[u8]>),
}

impl SimpleValue {
    /// Reads a value as it is written in the key: ours if it has exactly our form.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::parse_ours(bytes).unwrap_or_else(|| Self::Foreign(bytes.into()))
    }

    fn parse_ours(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > OURS_BYTES_MAX {
            return None;
        }
        let mut parts = bytes.rsplitn(3, |byte| *byte == b':');
        let token = token_of(parts.next()?)?;
        let request = RequestId::parse(parts.next()?).ok()?;
        let owner = OwnerId::parse(parts.next()?);
        owner.is_ours().then_some(Self::Ours { owner, request, token })
    }

    /// The value as it is written in the key.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Ours { owner, request, token } => {
                format!("{owner}:{request}:{token}").into_bytes()
            }
            Self::Foreign(bytes) => bytes.to_vec(),
        }
    }

    /// The holder: the owner, or the first [`VALUE_SHOWN_BYTES`] of a foreign value.
    pub fn holder(&self) -> OwnerId {
        match self {
            Self::Ours { owner, .. } => owner.clone(),
            Self::Foreign(bytes) => OwnerId::parse(&bytes[..bytes.len().min(VALUE_SHOWN_BYTES)]),
        }
    }

    /// Whether a client of ours wrote it.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours { .. })
    }
}

/// A token in plain digits, without leading zeros.
fn token_of(digits: &[u8]) -> Option<Token> {
    if digits.len() > 16 || digits.first() == Some(&b'0') || !digits.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    Token::new(std::str::from_utf8(digits).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "01234567-89ab-8def-8123-456789abcdef:7";
    const REQUEST: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn ours_round_trips() {
        let text = format!("{OWNER}:{REQUEST}:1760000000000000");
        let value = SimpleValue::parse(text.as_bytes());
        assert!(value.is_ours());
        assert_eq!(value.to_bytes(), text.as_bytes());
        assert_eq!(value.holder().to_string(), OWNER);
    }

    #[test]
    fn anything_else_is_foreign_and_keeps_its_bytes() {
        for text in [
            String::new(),
            "b7e6f1a0c0ffee".into(),
            OWNER.into(),
            format!("{OWNER}:{REQUEST}"),
            format!("{OWNER}:{REQUEST}:"),
            format!("{OWNER}:{REQUEST}:0"),
            format!("{OWNER}:{REQUEST}:07"),
            format!("{OWNER}:{REQUEST}:+7"),
            format!("{OWNER}:{REQUEST}:9007199254740992"),
            format!("{OWNER}:{REQUEST}:7 "),
            format!("{OWNER}:{}:7", REQUEST.to_uppercase()),
            format!("{}:{REQUEST}:7", OWNER.to_uppercase()),
            format!("x{OWNER}:{REQUEST}:7"),
            "\0\r\n:".repeat(100),
        ] {
            let value = SimpleValue::parse(text.as_bytes());
            assert!(!value.is_ours(), "{text:?}");
            assert_eq!(value.to_bytes(), text.as_bytes());
            assert!(value.holder().to_bytes().len() <= VALUE_SHOWN_BYTES);
        }
    }
}
