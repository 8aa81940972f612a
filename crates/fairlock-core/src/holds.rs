//! The holds of a lock with shares, and when they end.

use crate::id::{OwnerId, RequestId};
use crate::op::Kind;
use crate::rules::Token;
use crate::share::Share;
use std::collections::{BTreeMap, BTreeSet};

/// The holds of a lock with shares, and the shares that its waiters want. The waiters' places and
/// records are kept like those of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shares {
    kind: Kind,
    holds: BTreeMap<OwnerId, SharedHold>,
    /// `holds` by the end of their leases.
    ends: BTreeSet<(u64, OwnerId)>,
    /// The permits in use: the sum over `holds`.
    used: u64,
    /// The limits that `holds` name, and how many name each.
    limits: BTreeMap<u32, usize>,
    /// The token of all present readers, as long as there is a reader.
    phase: Option<Token>,
    /// What each waiter wants.
    pub(crate) wants: BTreeMap<OwnerId, Share>,
}

/// A hold of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedHold {
    /// The request that got it.
    pub request: RequestId,
    /// Its token.
    pub token: Token,
    /// The share.
    pub share: Share,
    /// How many times its owner has entered it.
    pub count: u32,
    /// The number of its last change.
    pub change: u64,
    /// When its lease ends, in milliseconds since 1970.
    pub ends_ms: u64,
}

impl Shares {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            holds: BTreeMap::new(),
            ends: BTreeSet::new(),
            used: 0,
            limits: BTreeMap::new(),
            phase: None,
            wants: BTreeMap::new(),
        }
    }

    /// Restores a lock of this kind from a store's records: its holds, and the shares that its
    /// waiters want.
    pub fn restored(
        kind: Kind,
        holds: BTreeMap<OwnerId, SharedHold>,
        wants: BTreeMap<OwnerId, Share>,
    ) -> Self {
        let mut shares = Self { wants, ..Self::new(kind) };
        holds.into_iter().for_each(|(owner, hold)| shares.add(&owner, hold));
        shares
    }

    /// The lock's kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the holders and their shares.
    pub fn holds(&self) -> &BTreeMap<OwnerId, SharedHold> {
        &self.holds
    }

    /// What each waiter wants.
    pub fn wants(&self) -> &BTreeMap<OwnerId, Share> {
        &self.wants
    }

    /// The permits in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the smallest and the largest limit that the holders of permits name.
    pub(crate) fn limits(&self) -> Option<(u32, u32)> {
        let ends = self.limits.first_key_value().zip(self.limits.last_key_value());
        ends.map(|((least, _), (most, _))| (*least, *most))
    }

    /// When the first lease ends.
    pub(crate) fn first_end_ms(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Returns an owner whose lease is over, if any.
    pub(crate) fn first_over(&self, now_ms: u64) -> Option<OwnerId> {
        self.ends.first().filter(|(end, _)| *end < now_ms).map(|(_, owner)| owner.clone())
    }

    /// Returns whether `share` fits beside the present holds.
    pub(crate) fn fits(&self, share: Share) -> bool {
        match share {
            Share::Whole => self.holds.is_empty(),
            Share::Read => !self.is_whole(),
            Share::Permits { n, limit } => self.used + u64::from(n) <= u64::from(limit),
        }
    }

    /// Whether a holder has all of it, so that nothing fits beside it.
    pub(crate) fn is_whole(&self) -> bool {
        let first = self.holds.first_key_value().filter(|_| self.holds.len() == 1);
        first.is_some_and(|(_, hold)| hold.share == Share::Whole)
    }

    /// The token that a further reader gets, if somebody reads.
    pub(crate) fn phase(&self) -> Option<Token> {
        self.phase
    }

    /// The hold that `request` got for `owner` under `token`, unless its lease is over. Readers at the same time have
    /// one token, so an owner that reads again may have the token of its former hold. An operation without a request
    /// names no hold.
    pub(crate) fn hold_mut(
        &mut self,
        owner: &OwnerId,
        token: Token,
        request: Option<RequestId>,
        now_ms: u64,
    ) -> Option<&mut SharedHold> {
        let hold = self.holds.get_mut(owner)?;
        let is_named = hold.token == token && Some(hold.request) == request;
        (is_named && hold.ends_ms >= now_ms).then_some(hold)
    }

    pub(crate) fn add(&mut self, owner: &OwnerId, hold: SharedHold) {
        self.used += u64::from(hold.share.permits());
        if let Share::Permits { limit, .. } = hold.share {
            *self.limits.entry(limit).or_default() += 1;
        }
        if hold.share == Share::Read {
            self.phase = Some(hold.token);
        }
        self.ends.insert((hold.ends_ms, owner.clone()));
        let former = self.holds.insert(owner.clone(), hold);
        debug_assert!(former.is_none(), "{owner} has two holds");
    }

    pub(crate) fn remove(&mut self, owner: &OwnerId) -> Option<SharedHold> {
        let hold = self.holds.remove(owner)?;
        self.ends.remove(&(hold.ends_ms, owner.clone()));
        self.used -= u64::from(hold.share.permits());
        if let Share::Permits { limit, .. } = hold.share
            && let Some(named) = self.limits.get_mut(&limit)
        {
            *named -= 1;
            if *named == 0 {
                self.limits.remove(&limit);
            }
        }
        if self.holds.is_empty() {
            self.phase = None;
        }
        Some(hold)
    }

    /// Sets the end of a lease.
    pub(crate) fn renew(&mut self, owner: &OwnerId, ends_ms: u64) {
        let Some(hold) = self.holds.get_mut(owner) else { return };
        let former = std::mem::replace(&mut hold.ends_ms, ends_ms);
        if former != ends_ms {
            self.ends.remove(&(former, owner.clone()));
            self.ends.insert((ends_ms, owner.clone()));
        }
    }

    /// Turns a writer into a reader. Its token becomes the token of all readers beside it.
    pub(crate) fn downgrade(&mut self, owner: &OwnerId) {
        let Some(hold) = self.holds.get_mut(owner) else { return };
        hold.share = Share::Read;
        self.phase = Some(hold.token);
    }

    #[cfg(debug_assertions)]
    pub(crate) fn limits_counted(&self) -> &BTreeMap<u32, usize> {
        &self.limits
    }

    #[cfg(debug_assertions)]
    pub(crate) fn ends(&self) -> &BTreeSet<(u64, OwnerId)> {
        &self.ends
    }
}
