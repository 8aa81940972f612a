//! The inspection of a lock with shares.

use crate::holds::SharedHold;
use crate::id::OwnerId;
use crate::liveness::is_over;
use crate::op::{HeldBy, Inspection, ShareHolder, SharesView, WaiterView};
use crate::rules::TOKEN_LIMIT;
use crate::share::Share;
use crate::state::{Cx, LockState};

/// How many holders an inspection lists if it asks for fewer waiters than this.
const HOLDERS_MIN: usize = 64;

/// The maximum number of holders that it lists. More would only burden the store and the reader.
const HOLDERS_MAX: usize = 1_000;

impl LockState {
    pub(super) fn inspect_shares(&mut self, limit: u32, cx: &Cx<'_>) -> Inspection {
        let beat_age_ms = |it: &Self, owner: &OwnerId| {
            let client = owner.client()?;
            match cx.rules.ages {
                true => it.beat_of(client).map(|beat| cx.now_ms.saturating_sub(beat)),
                // Beats do not tell who is alive here.
                false => (!cx.world.gone(client)).then_some(0),
            }
        };
        let listed: Vec<_> = self.by_order.iter().take(limit as usize).cloned().collect();
        let view = |(order, owner): &(u64, OwnerId)| WaiterView {
            owner: owner.clone(),
            beat_age_ms: beat_age_ms(self, owner),
            order: Some(*order).filter(|order| *order < TOKEN_LIMIT),
        };
        let queue = listed.iter().map(view).collect();
        let (token, queue_len) = (self.keys.token, self.by_order.len() as u64);
        let (now_ms, world, shares) = (cx.now_ms, cx.world, &*self.shared());
        let lasts = |(owner, hold): &(&OwnerId, &SharedHold)| {
            hold.ends_ms >= now_ms && !is_over(owner, Some(hold.token), Some(hold.request), world)
        };
        let held = || shares.holds().iter().filter(lasts);
        // Those that end first, first; as a server with sorted sets has them.
        let mut first: Vec<_> =
            held().map(|(owner, hold)| (hold.ends_ms, owner.to_bytes(), owner, hold)).collect();
        first.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        first.truncate(HOLDERS_MIN.max(limit as usize).min(HOLDERS_MAX));
        let holder = |&(_, _, owner, hold): &(u64, _, &OwnerId, &SharedHold)| ShareHolder {
            owner: owner.clone(),
            share: hold.share,
            count: hold.count,
            token: hold.token,
            ttl_ms: crate::rules::left_ms(hold.ends_ms, now_ms),
        };
        let want = |(_, owner): &(u64, OwnerId)| shares.wants.get(owner).copied();
        let all = first.iter().map(|(.., hold)| hold.share).chain(listed.iter().filter_map(want));
        let limits = all.filter_map(|share| match share {
            Share::Permits { limit, .. } => Some(limit),
            Share::Whole | Share::Read => None,
        });
        let limits = limits.fold(None, |known: Option<(u32, u32)>, limit| {
            let (least, most) = known.unwrap_or((limit, limit));
            Some((least.min(limit), most.max(limit)))
        });
        let seen = SharesView {
            holders: first.iter().map(holder).collect(),
            holding: held().count() as u64,
            used: held().map(|(_, hold)| u64::from(hold.share.permits())).sum(),
            limits,
            wants: listed.iter().map(|waiter| want(waiter).unwrap_or_default()).collect(),
            stranger_reads: false,
        };
        let first = seen.holders.first();
        Inspection {
            holder: first.map(|it| HeldBy { owner: it.owner.clone(), count: u64::from(it.count) }),
            // Of the one that is shown as the holder.
            ttl_ms: first.map(|it| it.ttl_ms),
            token: token.and_then(crate::rules::Token::new),
            queue_len,
            queue,
            shares: Some(Box::new(seen)),
        }
    }
}
