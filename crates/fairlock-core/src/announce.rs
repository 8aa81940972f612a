//! The operations that announce an election's leader and look at the announcement.

use crate::leader::Leader;
use crate::op::{Announce, Announced, Body, Channel, Effect, Leadership, Payload};
use crate::rules::Token;
use crate::state::{Cx, LockState};

impl LockState {
    /// Returns the announcement, whether it counts or not.
    pub fn leader(&self) -> Option<&Leader> {
        self.leader.as_deref()
    }

    /// Replaces the present announcement by this one, for a store that keeps announcements
    /// elsewhere.
    pub fn set_leader(&mut self, leader: Option<Leader>) {
        self.leader = leader.map(Box::new);
    }

    pub(crate) fn announce(&mut self, a: &Announce, cx: &mut Cx<'_>) -> Body {
        self.forget_leader(cx.now_ms);
        if !self.holds(&a.owner, a.token) {
            return Body::NotHeld { holder: self.named_holder() };
        }
        let of_this = |known: &&Leader| known.owner == a.owner && known.token == a.token;
        let known = self.leader().filter(of_this).map(|known| (known.change, known.since_ms));
        if known.is_some_and(|(change, _)| a.change < change) {
            return Body::Stale;
        }
        self.set_leader(Some(Leader {
            owner: a.owner.clone(),
            token: a.token,
            change: a.change,
            since_ms: known.map_or(cx.now_ms, |(_, since_ms)| since_ms),
            value: a.value.clone(),
            expires: cx.now_ms + a.ttl_ms,
        }));
        // A copy, or one that only keeps the announcement, is no news.
        if known.is_none_or(|(change, _)| a.change > change) {
            let payload =
                Payload::Leader { owner: a.owner.clone(), token: a.token, at_ms: cx.now_ms };
            cx.effects.push(Effect { channel: Channel::Leader, payload });
        }
        Body::Announced
    }

    pub(crate) fn leadership(&mut self, cx: &Cx<'_>) -> Leadership {
        self.forget_leader(cx.now_ms);
        let announced = self.leader().filter(|it| self.holds(&it.owner, it.token));
        // A longer value was written by another program.
        let announced = announced.filter(|it| it.value.len() <= crate::rules::ANNOUNCED_BYTES_MAX);
        let last = self.keys.token.and_then(Token::new);
        Leadership {
            holder: self.named_holder(),
            // A token key that was set back does not end a hold.
            token: announced.map(|it| it.token).or(last).filter(|_| !self.is_free()),
            ttl_ms: self.hold_ttl(cx.now_ms),
            announced: announced.map(|it| Announced {
                change: it.change,
                since_ms: it.since_ms,
                value: it.value.clone(),
            }),
        }
    }

    fn forget_leader(&mut self, now_ms: u64) {
        if self.leader.as_ref().is_some_and(|known| now_ms > known.expires) {
            self.leader = None;
        }
    }
}
