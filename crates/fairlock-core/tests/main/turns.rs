//! First come, first served: an observer of the queue that knows who was told which place.

use crate::client::{Client, Shared};
use fairlock_core::{OwnerId, Snapshot};
use std::collections::BTreeMap;

/// When each attempt that was seen in the queue arrived, counted by this observer: the server's
/// order numbers must agree with it. Once an attempt was told its number, its place stays the same
/// when it is removed, or gets the lock too late, and returns. Each attempt has an owner of its
/// own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    places: BTreeMap<OwnerId, Place>,
    came: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    came: u64,
    told: bool,
    stands: bool,
}

impl Turns {
    /// After an operation; `minted`: the operation granted the lock to somebody.
    pub(crate) fn note(&mut self, k: &Snapshot, minted: bool) -> Result<(), String> {
        for owner in k.order.keys() {
            let new = Place { came: 0, told: false, stands: false };
            let place = self.places.entry(owner.clone()).or_insert(new);
            // One operation adds at most one.
            if !place.told && !place.stands {
                self.came += 1;
                place.came = self.came;
            }
        }
        for (owner, place) in &mut self.places {
            place.stands = k.order.contains_key(owner);
        }
        let Some(holder) = k.hold.keys().next().filter(|_| minted) else { return Ok(()) };
        let own = self.places.get(holder).map_or(u64::MAX, |place| place.came);
        // An attempt that was passed over and has not returned has no claim until it is back.
        let mut overtaken =
            self.places.iter().filter(|(owner, place)| place.came < own && k.queue.contains(owner));
        overtaken.next().map_or(Ok(()), |(owner, _)| Err(format!("{holder} overtook {owner}")))
    }

    /// A client has heard a reply, and may know its place now.
    pub(crate) fn heard(&mut self, client: &Client) {
        for attempt in client.attempts.iter().filter(|attempt| attempt.order.is_some()) {
            if let Some(place) = self.places.get_mut(&attempt.owner) {
                place.told = true;
            }
        }
    }

    /// The owners whose place still counts, in order.
    pub(crate) fn in_order<'a>(&'a self, k: &Snapshot, clients: &[Shared]) -> Vec<&'a OwnerId> {
        let counts = |owner: &OwnerId| {
            let mut attempts = clients.iter().flat_map(|c| &c.attempts);
            k.order.contains_key(owner) || attempts.any(|a| a.owner == *owner)
        };
        let mut all: Vec<_> = self.places.iter().filter(|(owner, _)| counts(owner)).collect();
        all.sort_by_key(|(_, place)| place.came);
        all.into_iter().map(|(owner, _)| owner).collect()
    }
}
