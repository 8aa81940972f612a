//! The simple lock: one string and one hold, as used by the many clients that lock with
//! `SET key value NX PX` and release by compare-and-delete. No queue, no count, no registry.

use crate::id::{OwnerId, RequestId};
use crate::op::{Acquire, Body, Channel, HeldBy, Inspection, Mode};
use crate::rules::Token;
use crate::state::{Cx, LockState};
use crate::value::SimpleValue;

impl LockState {
    pub(crate) fn simple_acquire(&mut self, a: &Acquire, cx: &Cx<'_>) -> Body {
        match self.keys.value.clone() {
            None => {
                let token = self.mint(false, cx);
                let (owner, request) = (a.owner.clone(), a.request);
                self.keys.value = Some(SimpleValue::Ours { owner, request, token });
                self.keys.value_expires = Some(cx.now_ms + a.lease_ms);
                Body::Granted { token, ttl_ms: a.lease_ms }
            }
            Some(SimpleValue::Ours { owner, request, token }) if owner == a.owner => {
                if request != a.request {
                    return Body::HeldBySelf { count: 1 };
                }
                // Another copy of the request that got it. If the TTL is missing, an operator
                // removed it.
                self.keys.value_expires.get_or_insert(cx.now_ms + a.lease_ms);
                Body::Granted { token, ttl_ms: self.value_ttl(cx.now_ms).unwrap_or(0) }
            }
            Some(other) => {
                // Other clients may lock without a TTL on purpose, so theirs stays as it is.
                if other.is_ours() && a.mode == Mode::Wait {
                    let mended = cx.now_ms + a.lease_ms.max(crate::rules::MENDED_HOLD_MS);
                    self.keys.value_expires.get_or_insert(mended);
                }
                Body::Taken { ttl_ms: self.value_ttl(cx.now_ms), foreign: !other.is_ours() }
            }
        }
    }

    /// `keep` above 0 changes nothing: the string has no count.
    pub(crate) fn simple_release(
        &mut self,
        owner: &OwnerId,
        token: Token,
        keep: u32,
        cx: &mut Cx<'_>,
    ) -> Body {
        if !self.simple_holds(owner, token) {
            return Body::NotHeld { holder: self.simple_holder() };
        }
        if keep > 0 {
            return Body::StillHeld { count: 1 };
        }
        self.simple_free(cx);
        self.raise_token(token, false, cx);
        Body::Released
    }

    pub(crate) fn simple_renew(
        &mut self,
        owner: &OwnerId,
        token: Token,
        ttl_ms: u64,
        cx: &Cx<'_>,
    ) -> Body {
        if !self.simple_holds(owner, token) {
            return Body::NotHeld { holder: self.simple_holder() };
        }
        self.keys.value_expires = Some(cx.now_ms + ttl_ms);
        self.keep_token(cx);
        Body::Renewed
    }

    pub(crate) fn simple_leave(
        &mut self,
        owner: &OwnerId,
        request: RequestId,
        bury: bool,
        cx: &mut Cx<'_>,
    ) -> Body {
        let got = matches!(&self.keys.value,
            Some(SimpleValue::Ours { owner: by, request: of, .. }) if by == owner && *of == request);
        if got {
            self.simple_free(cx);
        }
        if bury {
            self.keys.buried.insert(request, cx.now_ms + cx.rules.bury_ms);
        }
        if got { Body::Freed } else { Body::Nothing }
    }

    pub(crate) fn simple_force(&mut self, cx: &mut Cx<'_>) -> Body {
        let holder = self.simple_holder();
        if let Some(SimpleValue::Ours { owner, token, .. }) = &self.keys.value {
            cx.tell_forced(Some(owner), Some(*token));
        }
        self.simple_free(cx);
        Body::Forced { holder, others: 0 }
    }

    pub(crate) fn simple_inspect(&self, cx: &Cx<'_>) -> Inspection {
        Inspection {
            holder: self.simple_holder().map(|owner| HeldBy { owner, count: 1 }),
            ttl_ms: self.value_ttl(cx.now_ms),
            token: self.keys.token.and_then(Token::new),
            queue_len: 0,
            queue: Vec::new(),
            shares: None,
        }
    }

    /// Whether this hold wrote the string.
    fn simple_holds(&self, owner: &OwnerId, token: Token) -> bool {
        matches!(&self.keys.value,
            Some(SimpleValue::Ours { owner: by, token: of, .. }) if by == owner && *of == token)
    }

    fn simple_holder(&self) -> Option<OwnerId> {
        self.keys.value.as_ref().map(SimpleValue::holder)
    }

    fn simple_free(&mut self, cx: &mut Cx<'_>) {
        self.keys.value = None;
        self.keys.value_expires = None;
        cx.tell(Channel::Base);
    }

    fn value_ttl(&self, now_ms: u64) -> Option<u64> {
        self.keys.value_expires.map(|at| crate::rules::left_ms(at, now_ms))
    }
}
