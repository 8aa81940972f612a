//! The handle of a lock.

use crate::acquire::{self, Wanted};
use crate::client::Client;
use crate::clock::Moment;
use crate::config::MIN_LEASE;
use crate::error::{Error, ErrorKind};
use crate::guard::Guard;
use crate::reaper::Ticket;
use crate::shared::new_request;
use crate::status::LockStatus;
use fairlock_core::{Body, Grant, Kind, LockName, MAX_LEASE_MS, Mode, Op};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lock by name. Cheap to make and to clone; nothing happens on the store until it is used.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let lock = client.fair_lock("invoice:42");
/// let guard = lock.lock().await?;
/// println!("token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    client: Client,
    name: Result<LockName, Error>,
    kind: Kind,
    lease: Option<Duration>,
}

impl Lock {
    pub(crate) fn new(client: Client, name: &[u8], kind: Kind) -> Self {
        Self { client, name: LockName::new(name).map_err(Error::from), kind, lease: None }
    }

    /// The same lock with an explicit lease: a guard ends after it and is never renewed. Without
    /// one, guards are renewed until they are released.
    ///
    /// A lease below 100 ms or above ten years is an error of the next call.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Fair or plain.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Waits for its turn and takes the lock.
    ///
    /// # Errors
    /// Bad names and leases, and the store's errors: see [`ErrorKind`]. A store that stays
    /// unreachable for the store timeout ends the wait with [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the place in the queue up, or releases the lock if it came in
    /// that moment. Nothing is left behind.
    pub async fn lock(&self) -> Result<Guard, Error> {
        match self.acquire(None, false).await? {
            Some(guard) => Ok(guard),
            // The wait had no end, so only the client's end can have ended it.
            None => Err(Error::closed()),
        }
    }

    /// Takes the lock if it is free and nobody waits for it.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(None, true).await
    }

    /// Waits for its turn for at most `wait`; zero is [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        if wait.is_zero() {
            return self.try_lock().await;
        }
        self.acquire(Some(Moment::now().plus(wait)), false).await
    }

    async fn acquire(&self, until: Option<Moment>, try_once: bool) -> Result<Option<Guard>, Error> {
        let wanted = Wanted {
            name: self.name.clone()?,
            kind: self.kind,
            lease: self.lease,
            until,
            try_once,
        };
        self.check_lease()?;
        let shared = self.client.shared();
        if shared.is_closed() {
            return Err(Error::closed());
        }
        if let Some(result) = self.acquire_now(&wanted)? {
            return Ok(Some(result));
        }
        let (caller, result) = oneshot::channel();
        let ticket = Ticket::new(shared);
        shared.runtime.spawn(acquire::run(ticket, Arc::clone(shared), wanted, caller));
        let delivery = result.await.map_err(|_| Error::closed())??;
        let hold = delivery.and_then(acquire::Delivery::accept);
        Ok(hold.map(|hold| Guard::new(hold, self.client.clone())))
    }

    /// A store inside this process gives a free lock without any task or wait.
    fn acquire_now(&self, wanted: &Wanted) -> Result<Option<Guard>, Error> {
        let shared = self.client.shared();
        if !shared.is_embedded {
            return Ok(None);
        }
        let owner = shared.new_owner()?;
        let request = new_request()?;
        let mut op = wanted.op(shared, &owner, request);
        op.mode = Mode::Try;
        let Some(reply) = shared.store.call_now(&wanted.name, &Op::Acquire(op)) else {
            return Ok(None);
        };
        let reply = reply.map_err(|failure| failure.error.on(&wanted.name))?;
        let Body::Granted { token, ttl_ms } = reply.answer.body else { return Ok(None) };
        let grant = Grant { request, token, ttl_ms };
        let hold = Arc::new(wanted.hold(shared, owner, &grant, reply.sent, Vec::new()));
        shared.watchdog.watch(&hold, true);
        Ok(Some(Guard::new(hold, self.client.clone())))
    }

    fn check_lease(&self) -> Result<(), Error> {
        let Some(lease) = self.lease else { return Ok(()) };
        if lease < MIN_LEASE || lease > Duration::from_millis(MAX_LEASE_MS) {
            let error = Error::misuse(format!(
                "a lease of {lease:?} cannot be used; it must be between {MIN_LEASE:?} and ten \
                 years"
            ));
            return Err(match &self.name {
                Ok(name) => error.on(name),
                Err(_) => error,
            });
        }
        Ok(())
    }

    /// Who holds the lock and who waits; the first 1 000 waiters are listed.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect(&self) -> Result<LockStatus, Error> {
        /// A page: more would make the server and the reader busy for nothing.
        const LISTED_MAX: u32 = 1_000;
        let rules = self.client.shared().rules.clone();
        match self.operate(Op::Inspect { limit: LISTED_MAX }).await? {
            Body::Inspected(seen) => Ok(LockStatus::new(seen, &rules)),
            _ => Err(mismatch()),
        }
    }

    /// Takes the lock away from whoever holds it, and hands it to the next waiter. Says whether
    /// anybody held it. The holder finds out at its next renewal; meanwhile only fencing tokens
    /// protect. For operators.
    ///
    /// # Errors
    /// As [`lock`](Self::lock). A call without an answer is not repeated but
    /// [`ErrorKind::Unknown`]: a second one could hit the next holder.
    ///
    /// # Cancel safety
    /// A dropped future may have taken the lock away.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        match self.operate(Op::Force).await? {
            Body::Forced { holder } => Ok(holder.is_some()),
            _ => Err(mismatch()),
        }
    }

    /// Whether anybody holds the lock.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.inspect().await?.holder.is_some())
    }

    async fn operate(&self, op: Op) -> Result<Body, Error> {
        let name = self.name.clone()?;
        let shared = Arc::clone(self.client.shared());
        if shared.is_closed() {
            return Err(Error::closed());
        }
        let reply = self.client.on_background(async move {
            let until = shared.store_deadline();
            let mut copies = crate::caller::Copies::default();
            crate::caller::until_answered(&shared, &name, &op, until, &mut copies).await
        });
        Ok(reply.await??.answer.body)
    }
}

fn mismatch() -> Error {
    Error::new(ErrorKind::Protocol, "the server's reply belongs to another operation")
}
