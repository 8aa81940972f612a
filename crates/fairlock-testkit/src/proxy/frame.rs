//! Frames in transit, and what the proxy must know about each.

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::resp::{self, Value};

/// One whole value as received.
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    value: Value,
}

/// How the proxy classifies a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Request {
    /// HELLO, AUTH, SELECT: identifies the connection.
    Preface,
    /// EVAL, EVALSHA.
    Script,
    /// Subscribing and unsubscribing: answered by any number of pushes (or, in RESP2, by arrays
    /// that look like them) instead of one reply.
    Subscription,
    /// Anything else.
    Other,
}

/// How the proxy classifies a frame from the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Response {
    /// The reply to the oldest unanswered request; `executed` is false for NOSCRIPT.
    Reply { executed: bool },
    /// A published message.
    Message,
    /// Any other push, such as the confirmation of a subscription.
    OtherPush,
}

impl Frame {
    pub(super) fn request(&self) -> Request {
        let name = self.word(0).to_ascii_uppercase();
        match name.as_slice() {
            b"HELLO" | b"AUTH" | b"SELECT" => Request::Preface,
            b"EVAL" | b"EVALSHA" => Request::Script,
            b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE"
            | b"SUNSUBSCRIBE" => Request::Subscription,
            _ => Request::Other,
        }
    }

    /// `subscribed`: whether a subscription was ever requested on this connection, so that in RESP2
    /// an array may be a push.
    pub(super) fn response(&self, subscribed: bool) -> Response {
        let is_push = self.bytes.starts_with(b">");
        let may_be_push = is_push || subscribed && self.bytes.starts_with(b"*");
        match self.word(0) {
            b"message" | b"pmessage" | b"smessage" if may_be_push => Response::Message,
            b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe" | b"punsubscribe"
            | b"sunsubscribe"
                if may_be_push =>
            {
                Response::OtherPush
            }
            _ if is_push => Response::OtherPush,
            _ => Response::Reply { executed: !self.bytes.starts_with(b"-NOSCRIPT") },
        }
    }

    fn word(&self, index: usize) -> &[u8] {
        match &self.value {
            Value::Array(words) => match words.get(index) {
                Some(Value::Bulk(bytes)) => bytes,
                _ => b"",
            },
            _ => b"",
        }
    }
}

/// Cuts a stream of bytes into frames.
pub(super) struct FrameReader<R> {
    stream: R,
    unread: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// The next frame, or `None` at the end of the stream, or at bytes that are not RESP.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((value, length)) = resp::parse(&self.unread).ok()? {
                let bytes = self.unread.drain(..length).collect();
                return Some(Frame { bytes, value });
            }
            let length = self.stream.read_buf(&mut self.unread).await.ok()?;
            if length == 0 {
                return None;
            }
        }
    }
}
