//! The view of an election from outside.

use crate::api::session::Session;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::election;
use crate::store::Topic;
use fairlock_core::{Leadership, LockName, OwnerId, Token as FencingToken};
use std::convert::identity;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// How often an observer looks without a message. A message may be lost, and no message says that nobody leads.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The minimum time between two looks, however many messages arrive: anybody may be able to publish.
const PACE: Duration = Duration::from_millis(20);

/// How long after the end of a lease an observer looks: by then the store's clock has passed it
/// too.
const AFTER_THE_END: Duration = Duration::from_millis(10);

/// The leader of an election.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Leader {
    /// The owner id, as `fairlock status` shows it for the lock.
    pub owner: OwnerId,
    /// Its term: the fencing token.
    pub term: FencingToken,
    /// The value that it has announced. `None` if the leader is elected but not ready yet, or if
    /// the store has lost the value, which is announced again every 20 s.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub value: Option<Vec<u8>>,
    /// Since when it leads, by the server's clock: the time of its first announcement, `None`
    /// before that.
    pub since: Option<SystemTime>,
}

/// Serializes a value as text if it is UTF-8, as names are.
#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(value: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&value.as_deref().map(fairlock_core::Text), to)
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Mostly text, which a list of bytes would hide.
        let value = match &self.value {
            Some(value) => format!("\"{}\"", value.escape_ascii()),
            None => "None".to_owned(),
        };
        f.debug_struct("Leader")
            .field("owner", &self.owner)
            .field("term", &self.term)
            .field("value", &format_args!("{value}"))
            .field("since", &self.since)
            .finish()
    }
}

impl Leader {
    /// The leader, if a client of ours holds the lock. Other holders have no term.
    pub(crate) fn of(seen: Leadership) -> Option<Self> {
        let (owner, term) = seen.holder.filter(OwnerId::is_ours).zip(seen.token)?;
        let (value, since_ms) = seen.announced.map(|it| (it.value, it.since_ms)).unzip();
        let since = since_ms.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        Some(Self { owner, term, value, since })
    }
}

/// Watches who leads an election, beginning with the present leader: [`changed`](Self::changed)
/// returns each new state.
///
/// - The latest state is never missed. States in between may be: a term that ends before it is seen
///   is not shown.
/// - Terms only rise, and no state is shown twice: neither a late message nor a server that took
///   over without the last writes brings back a former leader. There is one exception: if the
///   observer was connected to a server that does not know the leader, nobody seems to lead. The
///   same term is then shown once more, as soon as the observer sees the leader renew it.
/// - The store sends a message about each announcement. The observer sees the change when the
///   message arrives, or up to 20 ms later if it closely follows another. No message says that
///   nobody leads, and messages can be lost; the observer finds such a change by looking, when the
///   leader's lease is over and every 5 s.
///
/// A holder that uses Redisson has no term, and is not shown.
pub struct Observer {
    session: Session,
    name: LockName,
    news: Arc<Notify>,
    /// The store was asked for messages.
    listens: bool,
    /// What was seen last, and whether it was returned.
    leader: Option<Leader>,
    is_told: bool,
    /// The term and its change that were seen last.
    at: (u64, u64),
    /// When that term ends unless it is renewed; set if the term was seen again after it had seemed to be over.
    ends: Option<Moment>,
    /// When to look next, unless a message comes first.
    next: Moment,
    /// When the observer last looked.
    looked: Moment,
}

impl Observer {
    pub(crate) async fn begin(session: Session, name: LockName) -> Result<Self, Error> {
        let context = Arc::clone(session.context());
        context.usable().map_err(|error| error.on(&name))?;
        let news = context.observers.join(&name);
        // From here on, dropping the observer ends everything that was begun.
        let mut observer = Self {
            session,
            name,
            news,
            listens: false,
            leader: None,
            is_told: false,
            at: (0, 0),
            ends: None,
            next: Moment::now(),
            looked: Moment::now(),
        };
        // Once a Cluster has answered, it is known how it publishes messages.
        observer.see().await?;
        observer.listens = true;
        let topic = observer.topic();
        let listens = observer.session.on_background(async move {
            context.store.listen(topic).await.map_err(|failure| failure.error)
        });
        let about = |error: Error| error.on(&observer.name);
        listens.await.and_then(identity).map_err(about)?;
        // Looks again, for messages from before the subscription.
        observer.see().await?;
        Ok(observer)
    }

    /// Waits for a state other than the last one, and returns it: the leader, or `None` if nobody leads. The first call
    /// returns the present state.
    ///
    /// # Errors
    /// The store's. The observer stays as it is: the next call looks at once.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped: the next call returns what this one would have.
    pub async fn changed(&mut self) -> Result<Option<Leader>, Error> {
        let context = Arc::clone(self.session.context());
        while self.is_told {
            tokio::select! {
                biased;
                () = self.news.notified() => {}
                // The look below then fails.
                () = context.closed() => {}
                () = self.session.sleep(self.next.left()) => {}
            }
            // The message is used up: until a look succeeds, the next call must not wait for
            // another.
            self.next = Moment::now();
            let pause = self.looked.plus(PACE).left();
            if !pause.is_zero() {
                self.session.sleep(pause).await;
            }
            self.see().await?;
        }
        self.is_told = true;
        Ok(self.leader.clone())
    }

    /// Returns the last state that was seen. No I/O.
    pub fn leader(&self) -> Option<&Leader> {
        self.leader.as_ref()
    }

    /// Looks once.
    pub(crate) async fn look(session: &Session, name: &LockName) -> Result<Leadership, Error> {
        let (context, name) = (Arc::clone(session.context()), name.clone());
        context.usable().map_err(|error| error.on(&name))?;
        let seen = session.on_background(async move { election::look(&context, &name).await });
        seen.await.and_then(identity)
    }

    async fn see(&mut self) -> Result<(), Error> {
        let sent = Moment::now();
        self.looked = sent;
        let seen = Self::look(&self.session, &self.name).await?;
        let ends = seen.ttl_ms.map(|ttl| Duration::from_millis(ttl) + AFTER_THE_END);
        self.next = Moment::now().plus(ends.map_or(LOOK_EVERY, |ends| ends.min(LOOK_EVERY)));
        self.takes(seen, sent);
        Ok(())
    }

    /// Takes over a state that is newer than the last one; the look that found it was sent at
    /// `sent`.
    fn takes(&mut self, seen: Leadership, sent: Moment) {
        let change = seen.announced.as_ref().map_or(0, |it| it.change);
        let ttl = seen.ttl_ms.map(Duration::from_millis);
        // The token of a hold was lost, and comes back with its next renewal.
        let is_unclear = seen.holder.as_ref().is_some_and(OwnerId::is_ours) && seen.token.is_none();
        match Leader::of(seen) {
            _ if is_unclear => {}
            Some(leader) => {
                let at = (leader.term.get(), change);
                let is_new = match &self.leader {
                    _ if at.0 != self.at.0 => at.0 > self.at.0,
                    // A value that was lost is announced again under its number.
                    Some(shown) if shown.value.is_none() && change > 0 => change >= self.at.1,
                    Some(_) => change > self.at.1,
                    None => self.is_renewed(sent, ttl) && (change == 0 || change >= self.at.1),
                };
                if is_new {
                    (self.at, self.leader, self.is_told) = (at.max(self.at), Some(leader), false);
                }
            }
            None if self.leader.is_some() => {
                (self.ends, self.leader, self.is_told) = (None, None, false);
            }
            None => {}
        }
    }

    /// Whether a term that seemed to be over was renewed after it was first seen again, so that its leader is alive.
    /// Otherwise only a server that missed the end of the term may know it.
    fn is_renewed(&mut self, sent: Moment, ttl: Option<Duration>) -> bool {
        let Some(ttl) = ttl else { return false };
        let ends = *self.ends.get_or_insert_with(|| Moment::now().plus(ttl));
        sent.plus(ttl) > ends.plus(AFTER_THE_END)
    }

    fn topic(&self) -> Topic {
        Topic::Leader(self.name.clone())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let context = Arc::clone(self.session.context());
        if context.origin.is_forked_child() {
            // The parent observes, and the copy of a mutex may be locked for ever.
            std::mem::forget((Arc::clone(&self.news), self.session.clone()));
            return;
        }
        context.observers.leave(&self.name, &self.news);
        if !self.listens {
            return;
        }
        let topic = self.topic();
        let runtime = context.runtime.clone();
        // A store can unsubscribe only inside a runtime.
        runtime.spawn(async move { context.store.unlisten(topic) });
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("name", &self.name)
            .field("leader", &self.leader)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use fairlock_core::{Announced, ClientId};

    /// The result of a look: this term, with this change of its announcement; with term 0, nobody
    /// leads.
    fn seen(term: u64, change: u64) -> Leadership {
        let token = FencingToken::new(term);
        let holder = token.and_then(|_| OwnerId::ours(ClientId::from_random(1), term).ok());
        let value = change.to_string().into_bytes();
        let announced = (change > 0).then_some(Announced { change, since_ms: 1, value });
        Leadership { holder, token, ttl_ms: None, announced }
    }

    /// B44: the message of term 7 arrives after the look that saw term 8, and the next look reaches a server that lacks
    /// the last writes.
    #[tokio::test]
    async fn b44_an_observer_never_goes_back() {
        let client = Client::connect("memory:").await.expect("memory");
        let mut observer = client.election("e").observe().await.expect("memory");
        assert_eq!(observer.changed().await.expect("memory"), None);
        let mut takes = |term, change| {
            observer.takes(seen(term, change), Moment::now());
            let is_new = !std::mem::replace(&mut observer.is_told, true);
            let shown = observer.leader.as_ref();
            is_new.then(|| shown.map(|it| (it.term.get(), it.value.clone().map(|it| it.len()))))
        };
        assert_eq!(takes(0, 0), None, "still nobody");
        assert_eq!(takes(7, 0), Some(Some((7, None))), "elected");
        assert_eq!(takes(7, 1), Some(Some((7, Some(1)))), "announced");
        assert_eq!(takes(7, 1), None, "nothing twice");
        assert_eq!(takes(7, 0), None, "a lost value is no news");
        assert_eq!(takes(8, 2), Some(Some((8, Some(1)))));
        for (term, change) in [(7, 0), (7, 9), (8, 1), (8, 0)] {
            assert_eq!(takes(term, change), None, "term {term}, change {change}");
        }
        assert_eq!(takes(0, 0), Some(None), "over");
        for (term, change) in [(0, 0), (8, 3), (7, 1)] {
            assert_eq!(takes(term, change), None, "term {term} after its end");
        }
        assert_eq!(takes(9, 0), Some(Some((9, None))));
    }

    /// Nobody seems to lead: the observer was connected to a server that does not know the leader. Back at the other
    /// server, it showed nobody for the rest of the term. A term that nobody renews is not shown again: it may have
    /// ended elsewhere.
    #[tokio::test]
    async fn a_term_that_is_renewed_is_shown_again() {
        let client = Client::connect("memory:").await.expect("memory");
        let mut observer = client.election("e").observe().await.expect("memory");
        let mut takes = |change, ttl_ms: Option<u64>| {
            let mut seen = seen(if ttl_ms.is_some() { 7 } else { 0 }, change);
            seen.ttl_ms = ttl_ms;
            observer.is_told = true;
            observer.takes(seen, Moment::now());
            let shown = observer.leader.as_ref().map(|it| it.value.is_some());
            (!observer.is_told).then_some(shown)
        };
        assert_eq!(takes(2, Some(30_000)), Some(Some(true)));
        assert_eq!(takes(0, None), Some(None), "it seems to be over");
        assert_eq!(takes(2, Some(29_000)), None, "perhaps it is");
        assert_eq!(takes(2, Some(28_000)), None, "nobody has renewed it");
        assert_eq!(takes(1, Some(60_000)), None, "a former value");
        assert_eq!(takes(2, Some(60_000)), Some(Some(true)), "it was renewed");
        assert_eq!(takes(2, Some(60_000)), None, "nothing twice");
        assert_eq!(takes(0, None), Some(None));
        assert_eq!(takes(2, Some(60_000)), None, "renewed before that");
        assert_eq!(takes(0, Some(90_000)), Some(Some(false)), "renewed, and its value is lost");
        assert_eq!(takes(1, Some(90_000)), None, "a former value");
        assert_eq!(takes(2, Some(90_000)), Some(Some(true)), "announced again");
        assert_eq!(takes(2, Some(90_000)), None);
    }

    /// The token of a hold may be lost, and comes back with its next renewal: until then nobody knows its term.
    #[tokio::test]
    async fn a_hold_without_a_token_is_not_shown_and_ends_nothing() {
        let client = Client::connect("memory:").await.expect("memory");
        let mut observer = client.election("e").observe().await.expect("memory");
        observer.takes(seen(7, 1), Moment::now());
        let mut unclear = seen(7, 1);
        unclear.token = None;
        observer.is_told = true;
        observer.takes(unclear, Moment::now());
        assert!(observer.is_told && observer.leader.is_some());
        let mut java = seen(7, 0);
        java.holder = Some(OwnerId::parse(b"5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51"));
        observer.takes(java, Moment::now());
        assert!(!observer.is_told && observer.leader.is_none(), "it has no term");
    }
}
