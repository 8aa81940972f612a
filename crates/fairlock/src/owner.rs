//! Explicit owners: several requests and guards that count as one, as those of a Java thread do.

use crate::acquire::{self, Caller, Delivery, Stop, Wanted};
use crate::clock::lock;
use crate::error::{Error, ErrorKind};
use crate::guard;
use crate::hold::{GuardState, Hold};
use crate::observe;
use crate::shared::Shared;
use fairlock_core::{LockName, OwnerId};
use std::collections::HashMap;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{MutexGuard, Notify};

/// An identity that several requests share. While it holds a lock, further requests for that lock
/// enter it once more instead of waiting for themselves, as in one thread of Java.
///
/// Without one, each `lock()` is an owner of its own, and a second `lock()` in the same task
/// waits until the first guard is gone: a task has no identity in Rust, and moves between
/// threads. Make an owner with [`Client::owner`](crate::Client::owner), and use it with
/// [`Lock::owned_by`](crate::Lock::owned_by).
///
/// - All guards of one hold have the same token. The lock is free when all are gone.
/// - A hold keeps the lease with which it began. The lease of a re-entry is not used (in Java it
///   replaces the first one).
/// - One request of an owner for a lock is on its way at a time. Others wait for its outcome,
///   each for as long as it may wait anyway, and then re-enter, or ask themselves. `try_lock` does not
///   wait: it says `None` meanwhile.
/// - A hold that is lost is not entered again. The next request asks for a new one, with a new
///   token.
///
/// It prints as it stands in the lock's key: `<uuid of the client>:<number>`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let owner = client.owner();
/// let lock = client.fair_lock("invoice:42").owned_by(&owner);
///
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // somewhere below, where `outer` is not at hand
/// assert_eq!(inner.token(), outer.token());
/// assert!(client.fair_lock("invoice:42").try_lock().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    id: OwnerId,
}

impl Owner {
    pub(crate) fn new(id: OwnerId) -> Self {
        Self { id }
    }

    /// The id, as it stands in the key of a lock that it holds.
    pub fn id(&self) -> &OwnerId {
        &self.id
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

/// What the requests of explicit owners have to know of each other. It has one seat for each
/// owner and lock with a request under way or a hold, so it is as small as what is going on.
#[derive(Default)]
pub(crate) struct Owners {
    seats: Mutex<HashMap<(LockName, OwnerId), Weak<Seat>>>,
}

/// One owner on one lock. Requests and the hold keep it alive; with the last of them it goes.
pub(crate) struct Seat {
    owners: Arc<Owners>,
    name: LockName,
    owner: OwnerId,
    /// Whoever has it may ask the store for the lock.
    turn: tokio::sync::Mutex<()>,
    hold: Mutex<Weak<Hold>>,
    /// How far the request has come whose turn it is, for those that wait for its outcome.
    progress: AtomicU8,
    /// That it was answered.
    answered: Notify,
}

/// How far the request has come whose turn it is.
const NOT_ASKED: u8 = 0;
const ASKED: u8 = 1;
const ANSWERED: u8 = 2;

impl Owners {
    pub(crate) fn seat(self: &Arc<Self>, name: &LockName, owner: &Owner) -> Arc<Seat> {
        let mut seats = lock(&self.seats);
        let key = (name.clone(), owner.id.clone());
        if let Some(seat) = seats.get(&key).and_then(Weak::upgrade) {
            return seat;
        }
        let seat = Arc::new(Seat {
            owners: Arc::clone(self),
            name: name.clone(),
            owner: owner.id.clone(),
            turn: tokio::sync::Mutex::default(),
            hold: Mutex::default(),
            progress: AtomicU8::new(NOT_ASKED),
            answered: Notify::new(),
        });
        seats.insert(key, Arc::downgrade(&seat));
        seat
    }

    /// The hold of an owner that several requests share: not one that is lost, or left to the store.
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
    /// The request whose turn it is asks the store.
    pub(crate) fn asks(&self) {
        let first = |progress| (progress == NOT_ASKED).then_some(ASKED);
        // It may have been answered before: that counts for as long as it has its turn.
        let _ = self.progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, first);
    }

    /// The store has answered it: what it waits for now is the lock.
    pub(crate) fn is_answered(&self) {
        self.progress.store(ANSWERED, Ordering::Relaxed);
        self.answered.notify_waiters();
    }

    pub(crate) fn was_answered(&self) -> bool {
        self.progress.load(Ordering::Relaxed) == ANSWERED
    }

    /// Resolves when the store has answered the request whose turn it is, or nothing was asked yet for
    /// another reason than silence.
    async fn says_something(&self, shared: &Shared) {
        loop {
            let answered = self.answered.notified();
            match self.progress.load(Ordering::Relaxed) {
                ANSWERED => return,
                NOT_ASKED if shared.reaches(&self.name) => return,
                _ => answered.await,
            }
        }
    }

    /// The hold that a request may enter: not one that is lost, or left to the store.
    fn hold(&self) -> Option<Arc<Hold>> {
        let hold = lock(&self.hold).upgrade()?;
        let open = !hold.is_unattended() && !hold.is_being_left();
        (open && hold.state() != GuardState::Lost).then_some(hold)
    }
}

/// How a request goes on.
enum Way<'a> {
    Entered(Delivery),
    /// It asks the store. The request before it was answered, or none was.
    Asks {
        turn: MutexGuard<'a, ()>,
        after_an_answer: bool,
    },
    /// Another request is on its way, and this one does not wait.
    Busy,
}

/// As [`acquire::run`] for an owner of its own: enters the owner's hold, or gets one when no other
/// request of the owner is about to.
pub(crate) async fn drive(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    seat: &Arc<Seat>,
    caller: &mut Caller,
) -> Result<Option<Delivery>, Error> {
    let way = {
        let entering = AtomicBool::new(false);
        let mut way = pin!(find_way(shared, wanted, seat, &entering));
        tokio::select! {
            biased;
            way = &mut way => way?,
            why = acquire::stop(shared, caller, wanted.until) => match why {
                Stop::Late => late(shared, wanted, seat, way, &entering).await?,
                _ => Way::Busy,
            },
        }
    };
    let _turn = match way {
        Way::Entered(entered) => {
            observe::asked_as(wanted, &seat.owner);
            return Ok(Some(entered));
        }
        Way::Asks { turn, .. } => turn,
        Way::Busy => return Ok(None),
    };
    let hold = acquire::ask(shared, wanted, seat.owner.clone(), caller).await?;
    if let Some(hold) = &hold {
        *lock(&seat.hold) = Arc::downgrade(hold);
    }
    Ok(hold.map(|hold| Delivery::new(hold, shared)))
}

/// Time is up. A store that has not said anything has not said that the lock is taken: it gets some more time,
/// and after that its silence is an error.
async fn late<'a>(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    seat: &Seat,
    way: Pin<&mut impl Future<Output = Result<Way<'a>, Error>>>,
    entering: &AtomicBool,
) -> Result<Way<'a>, Error> {
    let entering = entering.load(Ordering::Relaxed);
    let says_something = async {
        if entering {
            // Nothing but the answer to this re-entry says anything about it.
            std::future::pending::<()>().await;
        }
        seat.says_something(shared).await;
    };
    let way = tokio::select! {
        biased;
        way = way => Some(way?),
        () = says_something => return Ok(Way::Busy),
        () = tokio::time::sleep(acquire::SILENCE_GRACE) => None,
    };
    match way {
        Some(entered @ Way::Entered(_)) => Ok(entered),
        // The re-entry was refused, or the other request is over; there is no time left for one of ours.
        Some(Way::Asks { after_an_answer, .. }) if entering || after_an_answer => Ok(Way::Busy),
        _ => Err(acquire::silence(ErrorKind::Unknown, &wanted.name).by(&seat.owner)),
    }
}

async fn find_way<'a>(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    seat: &'a Arc<Seat>,
    entering: &AtomicBool,
) -> Result<Way<'a>, Error> {
    // Re-entries need no turn: they name counts, in whatever order they arrive.
    entering.store(true, Ordering::Relaxed);
    if let Some(entered) = reenter(shared, wanted, seat).await? {
        return Ok(Way::Entered(entered));
    }
    entering.store(false, Ordering::Relaxed);
    let turn = if wanted.try_once {
        let Ok(turn) = seat.turn.try_lock() else { return Ok(Way::Busy) };
        turn
    } else {
        seat.turn.lock().await
    };
    // Those behind wait for what the store says to this one.
    let former = seat.progress.swap(ASKED, Ordering::Relaxed);
    // Whoever had the turn before may have got the lock.
    entering.store(true, Ordering::Relaxed);
    Ok(match reenter(shared, wanted, seat).await? {
        Some(entered) => Way::Entered(entered),
        None => {
            seat.progress.store(NOT_ASKED, Ordering::Relaxed);
            Way::Asks { turn, after_an_answer: former == ANSWERED }
        }
    })
}

/// Enters the owner's hold. `None`: it has none.
async fn reenter(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    seat: &Seat,
) -> Result<Option<Delivery>, Error> {
    let Some(hold) = seat.hold() else { return Ok(None) };
    if hold.kind != wanted.kind {
        let message = format!(
            "this owner holds it as a lock of kind {:?} and asks for one of kind {:?}; all users of \
             a name must use the same kind",
            hold.kind, wanted.kind
        );
        return Err(Error::misuse(message).on(&hold.name).by(&hold.owner));
    }
    let Some(change) = hold.enter() else {
        return if hold.has_ended() || hold.is_being_left() {
            Ok(None)
        } else {
            Err(guard::too_deep(&hold))
        };
    };
    // From here on dropping `entered` takes the entry back.
    let entered = Delivery::new(Arc::clone(&hold), shared);
    match guard::enter(shared, &hold, change).await {
        Ok(()) => Ok(Some(entered)),
        // Found out just now: as if it had been known before.
        Err(error) if error.kind() == ErrorKind::Lost => Ok(None),
        Err(error) => Err(error.by(&hold.owner)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Lock};
    use std::time::{Duration, Instant};

    fn seats(client: &Client) -> usize {
        lock(&client.shared().owners.seats).len()
    }

    async fn seats_are(client: &Client, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while seats(client) != count {
            assert!(Instant::now() < deadline, "{} seats, not {count}", seats(client));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// However many names and owners were used: what is over leaves no seat.
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
        let owner = Owner::new(OwnerId::parse(b"someone"));
        let old = owners.seat(&name, &owner);
        assert!(Arc::ptr_eq(&old, &owners.seat(&name, &owner)));
        // As if the last reference went while somebody looked it up.
        lock(&owners.seats).clear();
        let new = owners.seat(&name, &owner);
        drop(old);
        assert!(Arc::ptr_eq(&new, &owners.seat(&name, &owner)));
        drop(new);
        assert!(lock(&owners.seats).is_empty());
    }
}
