//! What the requests of one explicit owner for one lock share.

use crate::base::clock::lock;
use crate::state::hold::Hold;
use crate::state::standing::GuardState;
use fairlock_core::{LockName, OwnerId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;

/// What the requests of explicit owners share: one seat for each owner and lock with a request
/// under way or a hold, and no others.
#[derive(Default)]
pub(crate) struct Owners {
    seats: Mutex<HashMap<(LockName, OwnerId), Weak<Seat>>>,
}

/// One owner on one lock. Its requests and its hold keep it alive; it goes with the last of them.
pub(crate) struct Seat {
    owners: Arc<Owners>,
    name: LockName,
    pub(crate) owner: OwnerId,
    /// The request that holds this may ask the store for the lock.
    pub(crate) turn: tokio::sync::Mutex<()>,
    hold: Mutex<Weak<Hold>>,
    /// The progress of the request whose turn it is, for those that wait for its outcome.
    progress: AtomicU8,
    /// Notified when that request is answered.
    answered: Notify,
}

/// The progress of the request whose turn it is.
const NOT_ASKED: u8 = 0;
const ASKED: u8 = 1;
const ANSWERED: u8 = 2;

impl Owners {
    pub(crate) fn seat(self: &Arc<Self>, name: &LockName, owner: &OwnerId) -> Arc<Seat> {
        let mut seats = lock(&self.seats);
        let key = (name.clone(), owner.clone());
        if let Some(seat) = seats.get(&key).and_then(Weak::upgrade) {
            return seat;
        }
        let seat = Arc::new(Seat {
            owners: Arc::clone(self),
            name: name.clone(),
            owner: owner.clone(),
            turn: tokio::sync::Mutex::default(),
            hold: Mutex::default(),
            progress: AtomicU8::new(NOT_ASKED),
            answered: Notify::new(),
        });
        seats.insert(key, Arc::downgrade(&seat));
        seat
    }

    /// The hold of an explicit owner, unless it is lost or left to the store.
    pub(crate) fn hold(&self, name: &LockName, owner: &OwnerId) -> Option<Arc<Hold>> {
        let key = (name.clone(), owner.clone());
        let seat = lock(&self.seats).get(&key).and_then(Weak::upgrade)?;
        seat.hold()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = lock(&self.owners.seats);
        let key = (self.name.clone(), self.owner.clone());
        // A new seat may have taken its place already.
        if seats.get(&key).is_some_and(|seat| seat.strong_count() == 0) {
            seats.remove(&key);
        }
    }
}

impl Seat {
    /// Notes that the request whose turn it is asks the store.
    pub(crate) fn asks(&self) {
        let first = |progress| (progress == NOT_ASKED).then_some(ASKED);
        // An earlier answer counts for as long as the request has its turn.
        let _ = self.progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, first);
    }

    /// Notes that the store has answered it: from now on it waits for the lock.
    pub(crate) fn is_answered(&self) {
        self.progress.store(ANSWERED, Ordering::Relaxed);
        self.answered.notify_waiters();
    }

    pub(crate) fn was_answered(&self) -> bool {
        self.progress.load(Ordering::Relaxed) == ANSWERED
    }

    /// Resolves when the store has answered the request whose turn it is, or when nothing was asked
    /// yet for a reason other than silence.
    pub(crate) async fn says_something(&self, is_reached: impl Fn(&LockName) -> bool) {
        loop {
            let answered = self.answered.notified();
            match self.progress.load(Ordering::Relaxed) {
                ANSWERED => return,
                NOT_ASKED if is_reached(&self.name) => return,
                _ => answered.await,
            }
        }
    }

    /// Notes that the request whose turn it is checks whether its owner has the lock by now; those
    /// behind it wait for the store's answer to that. Returns whether the request before it was
    /// answered.
    pub(crate) fn looks_first(&self) -> bool {
        self.progress.swap(ASKED, Ordering::Relaxed) == ANSWERED
    }

    /// Notes that its owner does not have the lock, and that the request is about to ask for it.
    pub(crate) fn has_not_asked(&self) {
        self.progress.store(NOT_ASKED, Ordering::Relaxed);
    }

    /// Notes the hold that the owner has acquired.
    pub(crate) fn set_hold(&self, hold: &Arc<Hold>) {
        *lock(&self.hold) = Arc::downgrade(hold);
    }

    /// The hold that a request may enter, unless it is lost or left to the store.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        let hold = lock(&self.hold).upgrade()?;
        let open = !hold.is_unattended() && !hold.is_being_left();
        (open && hold.state() != GuardState::Lost).then_some(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Lock, Owner};
    use std::time::{Duration, Instant};

    fn seats(client: &Client) -> usize {
        lock(&client.context().owners.seats).len()
    }

    async fn seats_are(client: &Client, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while seats(client) != count {
            assert!(Instant::now() < deadline, "{} seats, not {count}", seats(client));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// However many names and owners were used, what is over leaves no seat.
    #[tokio::test]
    async fn a_seat_goes_with_its_last_request_and_its_hold() {
        let client = Client::connect("memory:").await.expect("memory");
        let owners: Vec<_> = (0..50).map(|_| client.owner()).collect();
        let of = |name: &str, owner: &Owner| -> Lock { client.fair_lock(name).owned_by(owner) };
        for (number, owner) in owners.iter().enumerate() {
            of(&number.to_string(), owner).lock().await.expect("free").release().await.expect("ok");
        }
        seats_are(&client, 0).await;

        let lock = of("job", &owners[0]);
        let first = lock.lock().await.expect("free");
        let second = lock.lock().await.expect("its own");
        let waiting = owners[1..].iter().map(|owner| {
            let lock = of("job", owner);
            tokio::spawn(async move { lock.lock().await })
        });
        let waiting: Vec<_> = waiting.collect();
        seats_are(&client, 50).await;
        assert!(of("job", &owners[1]).try_lock().await.expect("no error").is_none());
        for task in waiting {
            task.abort();
        }
        seats_are(&client, 1).await;
        drop(first);
        assert_eq!(seats(&client), 1);
        drop(second);
        seats_are(&client, 0).await;
    }

    #[test]
    fn a_dying_seat_leaves_its_successor_alone() {
        let owners = Arc::new(Owners::default());
        let name = LockName::new(b"x").expect("a name");
        let owner = OwnerId::parse(b"someone");
        let old = owners.seat(&name, &owner);
        assert!(Arc::ptr_eq(&old, &owners.seat(&name, &owner)));
        // As if the last reference were dropped during a lookup.
        lock(&owners.seats).clear();
        let new = owners.seat(&name, &owner);
        drop(old);
        assert!(Arc::ptr_eq(&new, &owners.seat(&name, &owner)));
        drop(new);
        assert!(lock(&owners.seats).is_empty());
    }
}
