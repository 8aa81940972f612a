//! Releases a hold from another process than the one that holds it.

use fairlock_core::{
    Kind, LockName, Op, OwnerId, RequestId, Token as FencingToken, kind_label, kind_of_label,
};
use std::fmt;
use std::str::FromStr;

/// All that a process needs to know of another one's hold to release it. Its text form is one word of ASCII.
///
/// The `fairlock` command passes it to the process that survives it. Only use it when nothing relies on the hold any
/// more: the guard that it was made from does not notice the release before its next renewal.
#[derive(Clone, PartialEq, Eq)]
pub struct ReleaseTicket {
    name: LockName,
    kind: Kind,
    owner: OwnerId,
    token: FencingToken,
    /// The request that was granted.
    request: RequestId,
}

impl ReleaseTicket {
    pub(crate) fn new(
        name: &LockName,
        kind: Kind,
        owner: &OwnerId,
        token: FencingToken,
        request: RequestId,
    ) -> Self {
        Self { name: name.clone(), kind, owner: owner.clone(), token, request }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The operation that releases the whole hold.
    pub(crate) fn op(&self) -> Op {
        // The number of a change is not compared when nothing is kept. A release adopts no request, so its time does not
        // count.
        let (kind, owner, token) = (self.kind, self.owner.clone(), self.token);
        let release = Op::Release { kind, owner, token, keep: 0, change: 1 };
        release.of_hold(kind, self.request, 0)
    }
}

impl fmt::Display for ReleaseTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let (name, owner) = (hex(self.name.as_bytes()), hex(&self.owner.to_bytes()));
        let (kind, token, request) = (kind_label(self.kind), self.token, self.request);
        write!(f, "{name}.{kind}.{owner}.{token}.{request}")
    }
}

/// A text that is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATicket;

impl fmt::Display for NotATicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a ticket")
    }
}

impl std::error::Error for NotATicket {}

impl FromStr for ReleaseTicket {
    type Err = NotATicket;

    fn from_str(text: &str) -> Result<Self, NotATicket> {
        let parts: Vec<_> = text.split('.').collect();
        let [name, kind, owner, token, request] = parts[..] else { return Err(NotATicket) };
        let kind = kind_of_label(kind.as_bytes()).ok_or(NotATicket)?;
        Ok(Self {
            name: LockName::new(&unhex(name)?).map_err(|_| NotATicket)?,
            kind,
            owner: OwnerId::parse(&unhex(owner)?),
            token: token.parse().ok().and_then(FencingToken::new).ok_or(NotATicket)?,
            request: RequestId::parse(request.as_bytes()).map_err(|_| NotATicket)?,
        })
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, NotATicket> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(NotATicket) };
    let byte = |pair: &[u8; 2]| {
        let pair = str::from_utf8(pair).map_err(|_| NotATicket)?;
        u8::from_str_radix(pair, 16).map_err(|_| NotATicket)
    };
    pairs.iter().map(byte).collect()
}

/// Only the name: whoever knows the rest can release the hold.
impl fmt::Debug for ReleaseTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseTicket").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Guard};

    async fn is_released(client: &Client, guard: &Guard) {
        let ticket = guard.release_ticket();
        let text = ticket.to_string();
        assert_eq!(text.parse(), Ok(ticket), "{text}");
        assert!(guard.state() == crate::GuardState::Held, "{text}");
        let ticket: ReleaseTicket = text.parse().expect("a ticket");
        client.release_by(&ticket).await.expect("memory answers");
        // It was released: the second release finds nothing.
        let gone = client.release_by(&ticket).await.expect_err("gone");
        assert_eq!(gone.kind(), crate::ErrorKind::Lost, "{text}");
    }

    #[tokio::test]
    async fn hold_of_any_kind_is_released_by_its_ticket() {
        let client = Client::connect("memory:").await.expect("memory");
        for lock in [client.fair_lock("f"), client.plain_lock(b"p\xff.\0"), client.simple_lock("s")]
        {
            is_released(&client, &lock.lock().await.expect("free")).await;
            drop(lock.try_lock().await.expect("memory answers").expect("free"));
        }
        let shared = client.rw_lock("rw");
        let (one, other) = (shared.read().await.expect("free"), shared.read().await.expect("free"));
        is_released(&client, &one).await;
        assert!(shared.try_write().await.expect("memory answers").is_none(), "the other reads");
        is_released(&client, &other).await;
        is_released(&client, &shared.try_write().await.expect("answers").expect("free")).await;
        let permits = client.semaphore("sem", 1);
        is_released(&client, &permits.acquire().await.expect("free")).await;
        assert!(permits.try_acquire().await.expect("memory answers").is_some());
        let term = client.election("e").campaign("here").await.expect("free");
        is_released(&client, &term).await;
    }

    #[test]
    fn other_texts_are_refused() {
        let id = "0".repeat(32);
        let good = format!("78.fair.61.7.{id}");
        assert!(good.parse::<ReleaseTicket>().is_ok(), "{good}");
        for bad in [
            String::new(),
            good.replace("fair", "unfair"),
            good.replace(".7.", ".0."),
            good.replace("78", "7"),
            good.replace("78", "é"),
            format!("{good}.1"),
            good[..good.len() - 1].to_owned(),
        ] {
            assert_eq!(bad.parse::<ReleaseTicket>(), Err(NotATicket), "{bad}");
        }
    }
}
