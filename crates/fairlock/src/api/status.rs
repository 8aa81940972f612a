//! The result of an inspection of a lock.

use crate::api::session::Session;
use crate::base::error::Error;
use crate::engine::send::{self, Copies};
use crate::settings::client_info::ClientInfo;
use fairlock_core::{
    Answer, Body, ClientId, Inspection, Kind, LockName, Op, OwnerId, Rules, Share, ShareHolder,
    SharesView, Token as FencingToken,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Waiters listed in one inspection: a page. More would only load the server and the reader.
pub(crate) const LISTED_MAX: u32 = 1_000;

/// Clients looked up in one inspection: enough for a person to read, and one small pipeline.
const CLIENTS_MAX: usize = 100;

/// What a hand-over gives a hold at most, `Rules::dead_ms`; the holder asks for the rest of the lease.
const HANDED_OVER_MAX: Duration = Duration::from_secs(6);

/// The state of a lock at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockStatus {
    /// The moment of the inspection, by the server's clock: compare every `since` with it.
    pub at: SystemTime,
    /// Who holds the lock; the first of the holders, if there are several.
    pub holder: Option<Holder>,
    /// All holders: at most one, except for a read-write lock or a semaphore. Of many, lists the 64
    /// whose leases end first, or as many as the waiters that were requested if that is more, up to
    /// 1000.
    pub holders: Vec<Holder>,
    /// The number of holders.
    pub holding: usize,
    /// The permits of a semaphore that are in use.
    pub used: u64,
    /// The smallest and the largest limit among the listed holders and waiters of a semaphore. Each
    /// request names its limit, so the two differ while a new limit is being rolled out, or if a
    /// program names another limit by mistake.
    pub limits: Option<(u32, u32)>,
    /// How long the holder's lease lasts without a renewal; `None` if the lock is free, or if
    /// somebody removed its TTL.
    pub ttl: Option<Duration>,
    /// The last fencing token of the lock.
    pub token: Option<FencingToken>,
    /// The first waiters, in the order of the queue.
    pub queue: Vec<QueuedWaiter>,
    /// The length of the whole queue.
    pub queue_len: usize,
    /// What the clients of the holder and of the listed waiters publish about themselves: the first
    /// 100 different clients. A client is missing if it does not
    /// [announce](crate::Config::announce) itself, was not heard from for 90 s (or for
    /// its lease and 30 s, if that is longer), or is foreign.
    pub clients: BTreeMap<ClientId, ClientInfo>,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Holder {
    /// Its id.
    pub owner: OwnerId,
    /// How many times it holds the lock.
    pub count: u32,
    /// What it holds: the whole lock, or a share of it.
    pub share: Share,
    /// How long its lease lasts without a renewal, if it has an end.
    pub ttl: Option<Duration>,
    /// Whether it is a client of fairlock.
    pub ours: bool,
    /// Since when it holds the lock, by the server's clock: the time in its token. For a reader,
    /// since when readers have held the lock, because all of them have one token. `None` for
    /// foreign clients, and if the token is lost or ahead of the clock. After the clock was set
    /// back, tokens run ahead of it for that long, and this time is later than the true one, never
    /// earlier.
    pub since: Option<SystemTime>,
}

/// A waiter in the queue of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QueuedWaiter {
    /// Its place in the queue: 1 is next.
    pub place: usize,
    /// Its id.
    pub owner: OwnerId,
    /// Whether it is a client of fairlock.
    pub ours: bool,
    /// Whether its heartbeats arrive in time; `None` for foreign clients, which send none.
    pub alive: Option<bool>,
    /// Since when it waits, by the server's clock: the time in its order number. A waiter that was
    /// judged dead and returned keeps its number. `None` for foreign clients, and if the number is
    /// lost or ahead of the clock.
    pub since: Option<SystemTime>,
    /// What it wants: the whole lock, or a share of it.
    pub share: Share,
}

/// Inspects the lock `name`, lists at most `limit` waiters, and looks up who the clients are.
pub(crate) async fn inspect(
    session: &Session,
    name: LockName,
    kind: Kind,
    limit: u32,
) -> Result<LockStatus, Error> {
    let mut status = look(session, name, kind, limit).await?;
    let ids = status.client_ids();
    if !ids.is_empty() {
        let store = Arc::clone(&session.context().store);
        let known = session.on_background(async move { store.clients(&ids).await });
        status.clients = known.await?;
    }
    Ok(status)
}

/// Inspects the lock `name`, and lists at most `limit` waiters.
pub(crate) async fn look(
    session: &Session,
    name: LockName,
    kind: Kind,
    limit: u32,
) -> Result<LockStatus, Error> {
    let context = Arc::clone(session.context());
    context.usable().map_err(|error| error.on(&name))?;
    let rules = context.rules.clone();
    let lock = name.clone();
    let answer = session.on_background(async move {
        let op = Op::Inspect { kind, limit };
        let until = context.store_deadline();
        let mut copies = Copies::default();
        send::until_answered(&context, &name, &op, until, &mut copies).await
    });
    let Answer { now_ms, body, .. } = answer.await.map_err(|error| error.on(&lock))??.answer;
    match body {
        Body::Inspected(mut seen) => {
            // The store reports only a field of the key, which looks the same for a semaphore.
            if let Some(shares) = seen.shares.as_mut().filter(|_| kind != Kind::ReadWrite) {
                shares.stranger_reads = false;
            }
            Ok(LockStatus::new(*seen, now_ms, &rules))
        }
        _ => Err(Error::mismatch().on(&lock)),
    }
}

impl LockStatus {
    /// Returns what the client of `owner` publishes about itself.
    pub fn client(&self, owner: &OwnerId) -> Option<&ClientInfo> {
        self.clients.get(&owner.client()?)
    }

    /// Returns whether the lock stays held for the rest of a period because the work to be done
    /// [once](crate::Client::once_owner) in that period is done: the hold was [left to the
    /// store](crate::Guard::detach_for) for longer than the lease that applies while the work is
    /// under way. The hold ends after [`ttl`](Self::ttl). Once no more than that lease is left,
    /// returns `false`: the holder may just as well be at work, or have been killed.
    pub fn is_done(&self) -> bool {
        let lease_ms = self.holder.as_ref().and_then(|holder| holder.owner.once_lease_ms());
        lease_ms.zip(self.ttl).is_some_and(|(lease, ttl)| ttl > Duration::from_millis(lease))
    }

    /// Returns by how much the renewal of this hold is overdue, if it surely is: its client renews
    /// all its holds every third of the lease that it [announces](ClientInfo::lease), and has missed
    /// that by at least a tenth of the lease and a second. The client may be stopped or cut off, and
    /// the hold ends after its [`ttl`](Holder::ttl) unless it is renewed after all. A TTL that an
    /// operator has shortened looks the same until the next renewal. `None` for a reader that has no
    /// more left than a hand-over gives: it may have joined just now.
    pub fn renewal_overdue(&self, holder: &Holder) -> Option<Duration> {
        let lease = self.client(&holder.owner)?.lease?;
        let age = self.at.duration_since(holder.since?).ok()?;
        let ttl = holder.ttl?;
        // `since` is when the first reader came.
        let is_new = holder.share == Share::Read && ttl <= HANDED_OVER_MAX;
        overdue(lease, ttl, age).filter(|_| !is_new)
    }

    /// Our clients that hold the lock or are listed, in this order.
    fn client_ids(&self) -> Vec<ClientId> {
        let owners = self.queue.iter().map(|waiter| &waiter.owner);
        let owners = self.holders.iter().map(|holder| &holder.owner).chain(owners);
        let mut seen = BTreeSet::new();
        let new = owners.filter_map(OwnerId::client).filter(|client| seen.insert(*client));
        new.take(CLIENTS_MAX).collect()
    }

    fn new(seen: Inspection, now_ms: u64, rules: &Rules) -> Self {
        let token = seen.token;
        let reads = seen.shares.as_ref().is_some_and(|shares| shares.stranger_reads);
        let holder = seen.holder.map(|held| {
            let ours = held.owner.is_ours();
            let minted_us = token.filter(|_| ours).map(FencingToken::get);
            Holder {
                ours,
                count: u32::try_from(held.count).unwrap_or(u32::MAX),
                share: if reads { Share::Read } else { Share::Whole },
                ttl: seen.ttl_ms.map(Duration::from_millis),
                owner: held.owner,
                since: minted_us.and_then(|us| not_after(us, now_ms)),
            }
        });
        let shares = seen.shares.map_or_else(SharesView::default, |shares| *shares);
        let mut holders: Vec<_> =
            shares.holders.into_iter().map(|it| Holder::of_share(it, now_ms)).collect();
        let holder = holders.first().cloned().or(holder);
        if holders.is_empty() {
            holders.extend(holder.clone());
        }
        let wants = shares.wants.into_iter().chain(std::iter::repeat(Share::Whole));
        let queue = seen.queue.into_iter().zip(wants).zip(1..).map(|((waiter, share), place)| {
            let ours = waiter.owner.is_ours();
            let alive = waiter.beat_age_ms.is_some_and(|age| age <= rules.dead_ms);
            QueuedWaiter {
                place,
                owner: waiter.owner,
                ours,
                alive: ours.then_some(alive),
                since: waiter.order.and_then(|us| not_after(us, now_ms)),
                share,
            }
        });
        Self {
            at: UNIX_EPOCH + Duration::from_millis(now_ms),
            holding: usize::try_from(shares.holding).unwrap_or(usize::MAX).max(holders.len()),
            holder,
            holders,
            used: shares.used,
            limits: shares.limits,
            ttl: seen.ttl_ms.map(Duration::from_millis),
            token,
            queue: queue.collect(),
            queue_len: usize::try_from(seen.queue_len).unwrap_or(usize::MAX),
            clients: BTreeMap::new(),
        }
    }
}

impl Holder {
    fn of_share(it: ShareHolder, now_ms: u64) -> Self {
        Self {
            ours: it.owner.is_ours(),
            count: it.count,
            share: it.share,
            ttl: Some(Duration::from_millis(it.ttl_ms)),
            since: not_after(it.token.get(), now_ms),
            owner: it.owner,
        }
    }
}

/// By how much the renewal of a hold with `left` of its lease is overdue, `age` after its grant. A
/// grant may give less than the lease, so the first renewal is not due before a third of it.
fn overdue(lease: Duration, left: Duration, age: Duration) -> Option<Duration> {
    const SLACK: Duration = Duration::from_secs(1);
    let third = lease / 3;
    let overdue = (lease - third).checked_sub(left)?.min(age.checked_sub(third)?);
    (overdue >= SLACK.max(lease / 10)).then_some(overdue)
}

/// The server time in a token or an order number, to the millisecond. A number ahead of the clock
/// continues from an earlier number, and carries no time.
fn not_after(us: u64, now_ms: u64) -> Option<SystemTime> {
    let ms = us / 1_000;
    (ms <= now_ms).then(|| UNIX_EPOCH + Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::{HeldBy, WaiterView};

    const NOW_MS: u64 = 2_000_000_000_000;

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn status(owner: OwnerId, token: Option<u64>, order: Option<u64>) -> LockStatus {
        let seen = Inspection {
            holder: Some(HeldBy { owner: owner.clone(), count: 1 }),
            ttl_ms: Some(5),
            token: token.and_then(FencingToken::new),
            queue_len: 1,
            queue: vec![WaiterView { owner, beat_age_ms: Some(6_000), order }],
            shares: None,
        };
        LockStatus::new(seen, NOW_MS, &Rules::default())
    }

    /// However long the queue is, one inspection looks up 100 clients: the holder's, and each of
    /// the first in the queue once.
    #[test]
    fn the_first_hundred_clients_are_asked_about() {
        let owner = |client: u64, number| {
            OwnerId::ours(ClientId::from_random(u128::from(client) << 96), number).unwrap()
        };
        let mut seen = status(owner(0, 1), None, None);
        let java = OwnerId::parse(b"5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51");
        let waiter = seen.queue[0].clone();
        let of = |owner| QueuedWaiter { owner, ..waiter.clone() };
        seen.queue = vec![of(java)];
        seen.queue.extend((1..=500).flat_map(|client| [1, 2].map(|n| of(owner(client, n)))));
        let expected: Vec<_> = (0..100).filter_map(|client| owner(client, 1).client()).collect();
        assert_eq!(seen.client_ids(), expected);
    }

    /// A renewal is called overdue only if one was surely missed: not while it may be under way,
    /// and not before the first one was due, however little of the lease a grant gave.
    #[test]
    fn a_renewal_is_overdue_once_one_was_missed() {
        let secs = Duration::from_secs;
        for (lease, left, age, expected) in [
            // Renewed every 10 s: 20 s or more are left.
            (30, 30, 0, None),
            (30, 20, 10, None),
            (30, 18, 12, None),
            (30, 17, 13, Some(3)),
            (30, 7, 3_600, Some(13)),
            (30, 0, 3_600, Some(20)),
            // A hand-over gave 6 s, or another kind of hold 1 s.
            (30, 6, 9, None),
            (30, 1, 15, Some(5)),
            (3, 2, 100, None),
            (3, 1, 100, Some(1)),
            (1, 0, 100, None),
            (3_600, 2_100, 10_000, None),
            (3_600, 2_000, 10_000, Some(400)),
        ] {
            let overdue = overdue(secs(lease), secs(left), secs(age));
            assert_eq!(overdue, expected.map(secs), "{lease} {left} {age}");
        }
    }

    /// Without the client's word on its lease, or the time of the grant, nothing is sure.
    #[test]
    fn a_renewal_is_overdue_only_where_the_lease_is_known() {
        let ours = OwnerId::ours(ClientId::from_random(1), 1).unwrap();
        let told = |since_ms: Option<u64>, lease| {
            let token = since_ms.map(|ms| (NOW_MS - ms) * 1_000);
            let mut seen = status(ours.clone(), token, None);
            let config = crate::Config::memory();
            let info = ClientInfo { lease, ..ClientInfo::here(&config, seen.at) };
            seen.clients.insert(ours.client().unwrap(), info);
            seen.renewal_overdue(seen.holder.as_ref().unwrap())
        };
        let lease = Some(Duration::from_secs(30));
        assert_eq!(told(Some(60_000), lease), Some(Duration::from_millis(19_995)));
        assert_eq!((told(Some(60_000), None), told(None, lease)), (None, None));
        let unknown = status(ours, Some(NOW_MS * 1_000 - 60_000_000), None);
        assert_eq!(unknown.renewal_overdue(unknown.holder.as_ref().unwrap()), None);
    }

    /// All readers of a phase have the token of the first one: a reader that had just been let in was called overdue.
    #[test]
    fn a_reader_that_may_have_joined_just_now_is_not_overdue() {
        let ours = OwnerId::ours(ClientId::from_random(1), 1).unwrap();
        let mut seen = status(ours.clone(), Some((NOW_MS - 60_000) * 1_000), None);
        let lease = Some(Duration::from_secs(30));
        let info = ClientInfo { lease, ..ClientInfo::here(&crate::Config::memory(), seen.at) };
        seen.clients.insert(ours.client().unwrap(), info);
        let holder = seen.holder.clone().unwrap();
        for (share, ttl_ms, overdue_ms) in [
            (Share::Read, 6_000, None),
            (Share::Read, 6_001, Some(13_999)),
            (Share::Whole, 6_000, Some(14_000)),
            (Share::Permits { n: 1, limit: 2 }, 6_000, Some(14_000)),
        ] {
            let ttl = Some(Duration::from_millis(ttl_ms));
            let holder = Holder { share, ttl, ..holder.clone() };
            let overdue = overdue_ms.map(Duration::from_millis);
            assert_eq!(seen.renewal_overdue(&holder), overdue, "{holder:?}");
        }
    }

    /// A time is reported only if a number carries one: not for Java, whose fenced lock counts from
    /// 1, and not while numbers run ahead of a clock that was set back.
    #[test]
    fn times_are_told_only_where_they_are_known() {
        let ours = OwnerId::ours(ClientId::from_random(1), 1).unwrap();
        let now_us = NOW_MS * 1_000 + 999;
        let seen = status(ours.clone(), Some(now_us), Some(now_us - 3_000_000));
        assert_eq!(seen.at, at(NOW_MS));
        assert_eq!(seen.holder.unwrap().since, Some(at(NOW_MS)));
        assert_eq!(seen.queue[0].since, Some(at(NOW_MS - 3_000)));
        assert_eq!((seen.queue[0].place, seen.queue[0].alive), (1, Some(true)));

        let ahead = status(ours.clone(), Some(now_us + 1), Some(now_us + 1));
        assert_eq!((ahead.holder.unwrap().since, ahead.queue[0].since), (None, None));
        let lost = status(ours, None, None);
        assert_eq!((lost.holder.unwrap().since, lost.queue[0].since), (None, None));

        let java = OwnerId::parse(b"5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51");
        let foreign = status(java, Some(7), None);
        assert_eq!((foreign.holder.unwrap().since, foreign.queue[0].alive), (None, None));
    }
}
