//! The state that the requests of one explicit owner for one lock share.

use crate::base::clock::lock;
use crate::state::hold::Hold;
use crate::state::standing::GuardState;
use fairlock_core::client::acquiring::Progress;
use fairlock_core::{LockName, OwnerId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The state that requests of explicit owners share: one seat for each owner and lock with a
/// request under way or a hold, and no others.
#[derive(Default)]
pub(crate) struct Owners {
    seats: Mutex<HashMap<(LockName, OwnerId), Weak<Seat>>>,
}

/// One owner on one lock. Its requests and its hold keep it alive; it ends with the last of them.
pub(crate) struct Seat {
    owners: Arc<Owners>,
    name: LockName,
    pub(crate) owner: OwnerId,
    /// The request that holds this may ask the store for the lock.
    pub(crate) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Notified when that request is answered.
    answered: Notify,
}

#[derive(Default)]
struct State {
    hold: Weak<Hold>,
    /// The progress of the request whose turn it is, for those that wait for its outcome.
    progress: Progress,
}

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
            state: Mutex::default(),
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
        let mut state = lock(&self.state);
        // An earlier answer counts for as long as the request has its turn.
        if state.progress == Progress::NotAsked {
            state.progress = Progress::Asked;
        }
    }

    /// Notes that the store has answered it: from now on it waits for the lock.
    pub(crate) fn is_answered(&self) {
        lock(&self.state).progress = Progress::Answered;
        self.answered.notify_waiters();
    }

    pub(crate) fn progress(&self) -> Progress {
        lock(&self.state).progress
    }

    /// Resolves when the request whose turn it is is answered, from now on, polled or not.
    pub(crate) fn answered(&self) -> Notified<'_> {
        self.answered.notified()
    }

    /// Notes that the request whose turn it is checks whether its owner has the lock by now; those
    /// behind it wait for the store's answer to that. Returns the progress of the request before it.
    pub(crate) fn looks_first(&self) -> Progress {
        std::mem::replace(&mut lock(&self.state).progress, Progress::Asked)
    }

    /// Notes that its owner does not have the lock, and that the request is about to ask for it.
    pub(crate) fn has_not_asked(&self) {
        lock(&self.state).progress = Progress::NotAsked;
    }

    /// Notes the hold that the owner has acquired.
    pub(crate) fn set_hold(&self, hold: &Arc<Hold>) {
        lock(&self.state).hold = Arc::downgrade(hold);
    }

    /// The hold that a request may enter, unless it is lost or left to the store.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        let hold = lock(&self.state).hold.upgrade()?;
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

    /// However many names and owners were used, requests and holds that are over leave no seat.
    #[tokio::test]
    async fn a_seat_goes_with_its_last_request_and_its_hold() {
        let client = Client::connect("memory:").await.expect("memory");
        let owners: Vec<_> = (0..50).map(|_| client.owner()).collect();
        let of = |name: &str, owner: &Owner| -> Lock { client.fair_lock(name).owned_by(owner) };
        for (number, owner) in owners.iter().enumerate() {
            let _ = of(&number.to_string(), owner)
                .lock()
                .await
                .expect("free")
                .release()
                .await
                .expect("ok");
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
