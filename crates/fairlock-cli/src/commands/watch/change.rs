//! What differs between two looks at a lock.

use std::collections::BTreeMap;

use fairlock::{LockStatus, OwnerId, Share};

/// A change of a lock. Of several at once, the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The first look.
    Present,
    /// It was free.
    Taken,
    /// It is free.
    Released,
    /// A run with `--once-per` has succeeded: the lock stays held for the rest of the time.
    Done,
    /// None of those who held it does; others do, or the same one once more.
    HandedOver,
    /// Of several holders, some went or came, or one holds another share.
    Holders,
    /// More wait, or fewer.
    Queue,
}

impl Change {
    /// The word in the JSON form.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Taken => "taken",
            Self::Released => "released",
            Self::Done => "done",
            Self::HandedOver => "handed_over",
            Self::Holders => "holders",
            Self::Queue => "queue",
        }
    }

    pub(super) fn between(before: &LockStatus, now: &LockStatus) -> Option<Self> {
        let of_queue = (before.queue_len != now.queue_len).then_some(Self::Queue);
        match (before.holding, now.holding) {
            (0, 0) => of_queue,
            (0, _) => Some(Self::Taken),
            (_, 0) => Some(Self::Released),
            _ if now.is_done() && !before.is_done() => Some(Self::Done),
            _ => of_holders(before, now).or(of_queue),
        }
    }
}

fn of_holders(before: &LockStatus, now: &LockStatus) -> Option<Change> {
    let is_listed = |status: &LockStatus| status.holders.len() == status.holding;
    let is_new_grant = before.token != now.token && before.token.is_some() && now.token.is_some();
    if !is_listed(before) || !is_listed(now) {
        // Which part of them is listed may differ from look to look.
        let differs = is_new_grant || (before.holding, before.used) != (now.holding, now.used);
        return differs.then_some(Change::Holders);
    }
    let (held, holds) = (shares(before), shares(now));
    if held == holds && !is_new_grant {
        return None;
    }
    let is_whole = holds.values().all(|share| *share == Share::Whole) && held == holds;
    let stays = !is_whole && holds.keys().any(|owner| held.contains_key(owner));
    Some(if stays { Change::Holders } else { Change::HandedOver })
}

fn shares(status: &LockStatus) -> BTreeMap<&OwnerId, Share> {
    status.holders.iter().map(|holder| (&holder.owner, holder.share)).collect()
}

#[cfg(test)]
mod tests {
    use fairlock::{Client, Error};

    use super::*;

    #[tokio::test]
    async fn a_lock_is_taken_handed_over_and_released() -> Result<(), Error> {
        let client = Client::connect("memory:").await?;
        let owner = client.owner();
        let lock = client.fair_lock("x");
        let of_one = lock.clone().owned_by(&owner);
        let free = lock.inspect().await?;
        let first = of_one.lock().await?;
        let held = lock.inspect().await?;
        let again = of_one.lock().await?;
        let held_twice = lock.inspect().await?;
        again.release().await?;
        let mut waiting = lock.enqueue().await?;
        let waited_for = lock.inspect().await?;
        first.release().await?;
        let second = waiting.wait().await?;
        let handed_over = lock.inspect().await?;
        second.release().await?;
        let once_more = of_one.lock().await?;
        let by_the_first = lock.inspect().await?;
        once_more.release().await?;
        for (before, now, change) in [
            (&free, &free, None),
            (&free, &held, Some(Change::Taken)),
            (&held, &held, None),
            (&held, &held_twice, None),
            (&held, &waited_for, Some(Change::Queue)),
            (&waited_for, &handed_over, Some(Change::HandedOver)),
            // Between two looks it was free, or another's.
            (&held, &by_the_first, Some(Change::HandedOver)),
            (&by_the_first, &free, Some(Change::Released)),
            (&waited_for, &free, Some(Change::Released)),
        ] {
            assert_eq!(Change::between(before, now), change, "{before:?} {now:?}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn shares_come_and_go() -> Result<(), Error> {
        let client = Client::connect("memory:").await?;
        let lock = client.rw_lock("x");
        let writing = lock.write().await?;
        let written = lock.inspect().await?;
        let reading = writing.downgrade().await?;
        let read = lock.inspect().await?;
        let other = lock.read().await?;
        let read_by_two = lock.inspect().await?;
        reading.release().await?;
        let read_by_other = lock.inspect().await?;
        other.release().await?;
        let _written_again = lock.write().await?;
        let written_again = lock.inspect().await?;
        for (before, now, change) in [
            (&written, &read, Some(Change::Holders)),
            (&read, &read_by_two, Some(Change::Holders)),
            (&read_by_two, &read_by_two, None),
            (&read_by_two, &read_by_other, Some(Change::Holders)),
            (&read, &read_by_other, Some(Change::HandedOver)),
            (&read_by_two, &written_again, Some(Change::HandedOver)),
            (&written, &written_again, Some(Change::HandedOver)),
        ] {
            assert_eq!(Change::between(before, now), change, "{before:?} {now:?}");
        }
        // A permit that was given back and taken again is another grant beside one that stayed.
        let pool = client.semaphore("y", 3);
        let (_stays, gone) = (pool.acquire().await?, pool.acquire().await?);
        let before = pool.inspect().await?;
        assert_eq!(Change::between(&before, &before), None);
        gone.release().await?;
        let _new = pool.acquire().await?;
        assert_eq!(Change::between(&before, &pool.inspect().await?), Some(Change::Holders));
        Ok(())
    }
}
