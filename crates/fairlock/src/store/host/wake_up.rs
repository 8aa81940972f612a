//! Messages between clients, written to the receiver's FIFO `bell`.
//!
//! A message has 64 bytes, so it is written completely or not at all (`PIPE_BUF`), and a FIFO has
//! room for a thousand. A lost message only costs time: the receiver finds its turn at its
//! heartbeat.

use super::folder::{self, BELL, Folder};
use crate::base::clock::Moment;
use crate::store::Event;
use fairlock_core::{ClientId, Grant, MAX_LEASE_MS, OwnerId, RequestId, Token};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use tokio::net::unix::pipe::Receiver;

const BYTES: usize = 64;

/// How many bytes are read at once: a multiple of [`BYTES`].
const READ_BYTES: usize = 64 * BYTES;

/// `fair`, and the number of the format.
const MARK: [u8; 5] = *b"fair\x01";

/// The messages between clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// You hold the lock.
    Granted { grant: Grant, at_ms: u64 },
    /// A lock without a queue is free; the hash of its name.
    Free(u64),
    /// The queue before you has changed; the hash of the lock's name.
    Moved(u64),
    /// Your hold was taken away by force. Programs before 0.2 drop this message and notice at the
    /// next renewal.
    Forced { owner: OwnerId, token: Token },
}

impl Message {
    pub(super) fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..MARK.len()].copy_from_slice(&MARK);
        let mut number =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        let kind = match self {
            Self::Granted { grant, at_ms } => {
                let request = grant.request.to_bits();
                number(8, (request >> 64) as u64);
                number(16, request as u64);
                number(24, grant.token.get());
                number(32, grant.ttl_ms);
                number(40, *at_ms);
                1
            }
            Self::Free(hash) => {
                number(8, *hash);
                2
            }
            Self::Moved(hash) => {
                number(8, *hash);
                3
            }
            Self::Forced { owner, token } => {
                let text = owner.to_string();
                let (client, of) = text.rsplit_once(':').unwrap_or_default();
                let client = ClientId::parse(client.as_bytes()).map_or(0, ClientId::to_bits);
                number(8, (client >> 64) as u64);
                number(16, client as u64);
                number(24, of.parse().unwrap_or(0));
                number(32, token.get());
                4
            }
        };
        bytes[MARK.len()] = kind;
        bytes
    }

    /// Strict: accepts only what [`to_bytes`](Self::to_bytes) writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        let message = match *bytes.get(MARK.len())? {
            1 => {
                let request = u128::from(number(8)?) << 64 | u128::from(number(16)?);
                let (ttl_ms, at_ms) = (number(32)?, number(40)?);
                if ttl_ms > MAX_LEASE_MS || at_ms > fairlock_core::TOKEN_LIMIT {
                    return None;
                }
                let request = RequestId::from_random(request);
                let grant = Grant { request, token: Token::new(number(24)?)?, ttl_ms };
                Self::Granted { grant, at_ms }
            }
            2 => Self::Free(number(8)?),
            3 => Self::Moved(number(8)?),
            4 => {
                let client = u128::from(number(8)?) << 64 | u128::from(number(16)?);
                let owner = OwnerId::ours(ClientId::from_random(client), number(24)?).ok()?;
                Self::Forced { owner, token: Token::new(number(32)?)? }
            }
            _ => return None,
        };
        // Checks the mark, and the zeros of what the message does not use.
        (message.to_bytes() == bytes).then_some(message)
    }
}

/// Whether anybody reads the bell of this client.
pub(super) fn is_heard(folder: &Folder, client: ClientId) -> bool {
    // Opening it for writing fails if nobody reads. Any other failure, such as a lack of
    // descriptors, proves nothing.
    !matches!(
        folder.open_fifo(&folder::name(client, BELL), OFlags::WRONLY),
        Err(Errno::NXIO | Errno::NOENT)
    )
}

/// Writes to another client's bell. Returns whether the message is under way; that does not
/// guarantee that it arrives.
pub(super) fn ring(folder: &Folder, to: ClientId, message: &Message) -> bool {
    // For both directions: without a reader, a write would raise SIGPIPE, which not every program
    // ignores.
    let Ok(fd) = folder.open_fifo(&folder::name(to, BELL), OFlags::RDWR) else { return false };
    loop {
        match rustix::io::write(&fd, &message.to_bytes()) {
            Ok(written) => return written == BYTES,
            Err(Errno::INTR) => {}
            // The FIFO is full: its client is stopped, or very slow.
            Err(_) => return false,
        }
    }
}

/// The bell of this client.
pub(super) struct WakeUp {
    receiver: Receiver,
}

impl WakeUp {
    /// Creates the bell. Must be called inside the runtime that will read it.
    pub(super) fn hang(folder: &Folder, client: ClientId) -> io::Result<Self> {
        // Open for both directions, so that it has no end of file when the last of the others
        // closes it.
        let fd = folder.make(client, BELL, |_| Ok(()))?;
        Ok(Self { receiver: Receiver::from_file(File::from(fd))? })
    }

    /// Receives messages until reading fails. Anything else is reported as [`Event::Invalid`].
    pub(super) async fn hear(self, hear: impl Fn(Result<Message, Event>, Moment)) -> io::Error {
        let mut buffer = [0; READ_BYTES];
        loop {
            if let Err(error) = self.receiver.readable().await {
                return error;
            }
            let read = match self.receiver.try_read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return error,
            };
            let arrived = Moment::now();
            for bytes in buffer[..read].chunks(BYTES) {
                let message = Message::parse(bytes);
                let odd = message.is_none();
                hear(message.ok_or(Event::Invalid), arrived);
                if odd {
                    // It may have another length, so what follows cannot be separated. Everything
                    // pending is dropped; the heartbeats find what was lost.
                    while self.receiver.try_read(&mut buffer).is_ok_and(|read| read > 0) {}
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Message {
        let request = RequestId::from_random(0x0123_4567_89ab_cdef_u128 << 64 | 7);
        let token = Token::new(1_760_000_000_000_000).unwrap();
        Message::Granted {
            grant: Grant { request, token, ttl_ms: 2_000 },
            at_ms: 1_760_000_000_000,
        }
    }

    #[test]
    fn messages_round_trip() {
        let owner = OwnerId::ours(ClientId::from_random(7), 12).unwrap();
        let forced = Message::Forced { owner, token: Token::new(5).unwrap() };
        for message in [grant(), Message::Free(u64::MAX), Message::Moved(1), forced] {
            assert_eq!(Message::parse(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn anything_else_is_none() {
        let good = grant().to_bytes();
        assert_eq!(Message::parse(&good[..63]), None);
        assert_eq!(Message::parse(&[0; BYTES]), None);
        assert_eq!(Message::parse(b"0"), None);
        for at in (0..8).chain(48..BYTES) {
            let mut bad = good;
            bad[at] ^= 0x40;
            assert_eq!(Message::parse(&bad), None, "byte {at}");
        }
        // A token above 2^53, a TTL of centuries, an impossible time.
        for at in [24, 32, 40] {
            let mut bad = good;
            bad[at] = 0x7f;
            assert_eq!(Message::parse(&bad), None, "byte {at}");
        }
    }
}
