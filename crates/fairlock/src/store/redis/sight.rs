//! Whether the server that keeps the locks sees this client's inbox.
//!
//! A server takes a waiter for dead if its inbox has no subscriber. A proxy may route the two
//! connections of a client to different servers: a service with a master and its replicas behind
//! one address. So the client asks the command connection's server, and compares no identities: the
//! scripts ask the same question, it needs no other permission, and the answer is right whatever is
//! in between.

use super::inbox::Inbox;
use super::link::Link;
use super::wire::{self, Value};
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::Config;
use crate::settings::server_checks::{Check, Reaction, Warning};
use crate::store::{Event, Events};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::Notify;

/// How often the inbox is made anew to find the command connection's server: with two servers, the
/// right one is missed this often in a row once in 32 times.
const ANEW_MAX: u32 = 5;

/// Looks again whenever one of the two connections is made.
pub(super) struct Sight {
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    reaction: Reaction,
    events: Events,
    /// One of the connections is new.
    pub(super) changed: Arc<Notify>,
    /// How often the inbox was made anew since it was last seen.
    anew: AtomicU32,
    /// The last connection of the inbox that was not seen.
    unseen: AtomicU64,
}

impl Sight {
    pub(super) fn new(
        link: &Arc<Link>,
        inbox: &Arc<Inbox>,
        config: &Config,
        events: Events,
        changed: Arc<Notify>,
    ) -> Arc<Self> {
        Arc::new(Self {
            link: Arc::clone(link),
            inbox: Arc::clone(inbox),
            reaction: config.on.to(Check::Inbox),
            events,
            changed,
            anew: AtomicU32::new(0),
            unseen: AtomicU64::new(0),
        })
    }

    /// Looks forever, from the second connections on.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            // Nobody waits for the result.
            let _ = self.look().await;
        }
    }

    /// One look, and what follows from it.
    ///
    /// # Errors
    /// The inbox is not seen, and the settings refuse that.
    pub(super) async fn look(&self) -> Result<(), Error> {
        if self.reaction == Reaction::Ignore || !self.inbox.is_subscribed() {
            return Ok(());
        }
        let number = self.inbox.number();
        let Some(seen) = self.ask().await else { return Ok(()) };
        if self.inbox.number() != number {
            // Another connection was made meanwhile, and is checked next.
            return Ok(());
        }
        self.inbox.note_seen(seen);
        if seen {
            if self.anew.swap(0, Ordering::Relaxed) > 0 {
                (self.events)(Event::Found(Check::Inbox, None));
            }
            return Ok(());
        }
        // The same connection may be checked twice.
        let is_new = self.unseen.swap(number, Ordering::Relaxed) != number;
        if is_new && self.anew.fetch_add(1, Ordering::Relaxed) < ANEW_MAX {
            // The next connection may lead to the right server.
            self.inbox.make_anew();
        }
        let message = "the server of the locks does not see where this client listens: the name or the address leads \
                       each connection to another server (a service with replicas, a balancer). Waiters are served in \
                       order all the same, but by heartbeats, and the end of their process is noticed late: connect to \
                       the master alone";
        if self.reaction == Reaction::Refuse {
            let message = format!("{message}; `on-inbox=warn` in the URL uses it all the same");
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        (self.events)(Event::Found(Check::Inbox, Some(Warning::new(Check::Inbox, message))));
        Ok(())
    }

    /// `None` if the server does not say.
    async fn ask(&self) -> Option<bool> {
        let conn = self.link.connection()?;
        let mut ask = wire::cmd("PUBSUB");
        ask.arg("NUMSUB").arg(self.inbox.channel());
        let reply = conn.call(&ask).await.and_then(Value::extract_error);
        let count = match reply.ok()? {
            Value::Array(words) => words.into_iter().nth(1)?,
            Value::Map(pairs) => pairs.into_iter().next()?.1,
            _ => return None,
        };
        match count {
            Value::Int(count) => Some(count > 0),
            _ => None,
        }
    }
}
