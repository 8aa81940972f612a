//! First come, first served: an observer of the queue that knows who was told what place.

use crate::client::Client;
use fairlock_core::{OwnerId, Snapshot};
use std::collections::BTreeMap;

/// The place of each attempt that was seen in the queue: an order number. Once the attempt was told, it
/// stays the same when it is taken out, or gets the lock too late, and comes back. Each attempt has an
/// owner of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    places: BTreeMap<OwnerId, Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    order: u64,
    told: bool,
}

impl Turns {
    /// After an operation; `minted`: somebody got the lock by it.
    pub(crate) fn note(&mut self, k: &Snapshot, minted: bool) -> Result<(), String> {
        for (owner, order) in &k.order {
            let new = Place { order: *order, told: false };
            let place = self.places.entry(owner.clone()).or_insert(new);
            if !place.told {
                place.order = *order;
            }
        }
        let Some(holder) = k.hold.keys().next().filter(|_| minted) else { return Ok(()) };
        let own = self.places.get(holder).map_or(u64::MAX, |place| place.order);
        // Who was passed over and is not back yet has to wait until it is.
        let mut overtaken = self
            .places
            .iter()
            .filter(|(owner, place)| place.order < own && k.queue.contains(owner));
        overtaken.next().map_or(Ok(()), |(owner, _)| Err(format!("{holder} overtook {owner}")))
    }

    /// A client has heard a reply, and may know its place now.
    pub(crate) fn heard(&mut self, client: &Client) {
        let knows = client.current.as_ref().filter(|attempt| attempt.order.is_some());
        if let Some(place) = knows.and_then(|attempt| self.places.get_mut(&attempt.owner)) {
            place.told = true;
        }
    }

    /// Those whose place still counts, in order.
    pub(crate) fn in_order<'a>(&'a self, k: &Snapshot, clients: &[Client]) -> Vec<&'a OwnerId> {
        let counts = |owner: &OwnerId| {
            let mut attempts = clients.iter().filter_map(|c| c.current.as_ref());
            k.order.contains_key(owner) || attempts.any(|a| a.owner == *owner)
        };
        let mut all: Vec<_> = self.places.iter().filter(|(owner, _)| counts(owner)).collect();
        all.sort_by_key(|(_, place)| place.order);
        all.into_iter().map(|(owner, _)| owner).collect()
    }
}
