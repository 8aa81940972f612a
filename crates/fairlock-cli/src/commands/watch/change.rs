//! What differs between two looks at a lock.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use fairlock::{Holder, LockStatus, OwnerId, Share};

/// A change of a lock. Of several at once, the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The first look.
    Present,
    /// It was free.
    Taken,
    /// It is free.
    Released,
    /// It is free: nobody has renewed the hold that the last looks saw, and its lease has ended.
    Expired,
    /// A run with `--once-per` has succeeded: the lock stays held for the rest of the time.
    Done,
    /// None of those who held it does; others do, or the same one once more.
    HandedOver,
    /// Of several holders, some went or came, or one holds another share.
    Holders,
    /// A renewal is overdue.
    Overdue,
    /// A renewal that was overdue has come.
    Renewed,
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
            Self::Expired => "expired",
            Self::Done => "done",
            Self::HandedOver => "handed_over",
            Self::Holders => "holders",
            Self::Overdue => "overdue",
            Self::Renewed => "renewed",
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
            _ => of_holders(before, now).or_else(|| of_renewals(before, now)).or(of_queue),
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

fn of_renewals(before: &LockStatus, now: &LockStatus) -> Option<Change> {
    let is_overdue = |status: &LockStatus| {
        status.holders.iter().any(|holder| status.renewal_overdue(holder).is_some())
    };
    match (is_overdue(before), is_overdue(now)) {
        (false, true) => Some(Change::Overdue),
        (true, false) => Some(Change::Renewed),
        _ => None,
    }
}

/// Whether the last of the holders at the look `before`, of whom none holds it `now`, let its lease run out; `None` if that
/// is not known. It did if its lease would be over, and it was not being renewed: two looks saw the same end, or its
/// renewal was overdue. A release in the last moments looks the same.
pub(super) fn ran_out(
    earlier: Option<&LockStatus>,
    before: &LockStatus,
    now: &LockStatus,
) -> Option<bool> {
    /// The store reads its clock and the TTL one after the other.
    const SAME: Duration = Duration::from_millis(50);
    let end_of = |status: &LockStatus, holder: &Holder| Some(status.at + holder.ttl?);
    let ends: Option<Vec<_>> =
        before.holders.iter().map(|it| Some((end_of(before, it)?, it))).collect();
    // A hold without a TTL does not run out.
    let Some((end, last)) = ends.and_then(|ends| ends.into_iter().max_by_key(|(end, _)| *end))
    else {
        return Some(false);
    };
    let granted = now.token.filter(|token| Some(*token) != before.token && now.holding > 0);
    let granted = granted.map(|token| UNIX_EPOCH + Duration::from_micros(token.get()));
    if now.at < end || granted.is_some_and(|granted| granted + SAME < end) {
        return Some(false);
    }
    let same = |it: &&Holder| (&it.owner, it.since) == (&last.owner, last.since);
    let earlier = earlier.and_then(|status| end_of(status, status.holders.iter().find(same)?));
    let is_kept = earlier.is_some_and(|earlier| {
        let (first, second) = (earlier.min(end), earlier.max(end));
        second.duration_since(first).is_ok_and(|apart| apart <= SAME)
    });
    (is_kept || before.renewal_overdue(last).is_some()).then_some(true)
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
        let _ = again.release().await?;
        let mut waiting = lock.enqueue().await?;
        let waited_for = lock.inspect().await?;
        let _ = first.release().await?;
        let second = waiting.wait().await?;
        let handed_over = lock.inspect().await?;
        let _ = second.release().await?;
        let once_more = of_one.lock().await?;
        let by_the_first = lock.inspect().await?;
        let _ = once_more.release().await?;
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

    /// Looks at a lock, given the milliseconds of each, and what is left then; `None` if it is free.
    async fn looks<const N: usize>(
        seen: [(u64, Option<u64>); N],
    ) -> Result<[LockStatus; N], Error> {
        let lock = Client::connect("memory:").await?.fair_lock("x");
        let free = lock.inspect().await?;
        let _guard = lock.lock().await?;
        let held = lock.inspect().await?;
        let start = held.at;
        Ok(seen.map(|(at, left)| {
            let mut status = if left.is_some() { held.clone() } else { free.clone() };
            (status.at, status.token) = (start + Duration::from_millis(at), held.token);
            status.ttl = left.map(Duration::from_millis);
            let ttl = status.ttl;
            status.holders.iter_mut().chain(&mut status.holder).for_each(|it| it.ttl = ttl);
            status
        }))
    }

    /// It used to say that a lease that ran out was released.
    #[tokio::test]
    async fn a_lease_that_ran_out_was_not_released() -> Result<(), Error> {
        for (earlier, before, now, expected) in [
            // Half a lease was left: somebody has released it.
            ((0, Some(16_000)), (1_000, Some(15_000)), (2_000, None), Some(false)),
            // Nobody renewed it.
            ((8_000, Some(1_900)), (9_000, Some(900)), (10_000, None), Some(true)),
            ((28_000, Some(4_000)), (29_000, Some(3_000)), (60_000, None), Some(true)),
            // Renewed before the last look, so perhaps after it, too.
            ((0, Some(900)), (1_000, Some(900)), (2_000, None), None),
        ] {
            let [earlier, before, now] = looks([earlier, before, now]).await?;
            assert_eq!(ran_out(Some(&earlier), &before, &now), expected, "{before:?} {now:?}");
            assert_eq!(Change::between(&before, &now), Some(Change::Released));
            if expected == Some(true) && before.renewal_overdue(&before.holders[0]).is_none() {
                assert_eq!(ran_out(None, &before, &now), None, "one look is not enough");
            }
        }
        // Without a TTL it never runs out.
        let [mut before, now] = looks([(0, Some(1)), (60_000, None)]).await?;
        before.holders[0].ttl = None;
        assert_eq!(ran_out(None, &before, &now), Some(false));
        Ok(())
    }

    #[tokio::test]
    async fn a_renewal_that_is_overdue_is_a_change() -> Result<(), Error> {
        let [fresh, late, later, renewed] = looks([
            (10_000, Some(20_000)),
            (14_000, Some(16_000)),
            (15_000, Some(15_000)),
            (16_000, Some(30_000)),
        ])
        .await?;
        for (before, now, change) in [
            (&fresh, &late, Some(Change::Overdue)),
            (&late, &later, None),
            (&later, &renewed, Some(Change::Renewed)),
            (&fresh, &renewed, None),
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
        let _ = reading.release().await?;
        let read_by_other = lock.inspect().await?;
        let _ = other.release().await?;
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
        let _ = gone.release().await?;
        let _new = pool.acquire().await?;
        assert_eq!(Change::between(&before, &pool.inspect().await?), Some(Change::Holders));
        Ok(())
    }
}
