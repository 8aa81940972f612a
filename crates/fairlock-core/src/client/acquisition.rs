//! One acquisition: every request by which a store may know it, from the first copy to the end of the hold.

use crate::id::{OwnerId, RequestId};
use crate::op::{Acquire, Kind, Mode, Op};
use crate::share::Share;
use std::mem::take;
use std::num::NonZeroU64;

/// An owner's attempt to get one lock, and later its hold, as seen by its requests.
///
/// It usually has one request. It gets another one when the store has lost its place in the queue,
/// or when a grant was over before it could be used. A store that takes over without the last
/// writes may have the acquisition under an earlier request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    kind: Kind,
    owner: OwnerId,
    mode: Mode,
    lease_ms: u64,
    shared_owner: bool,
    present: RequestId,
    /// A copy of the present request is unanswered, of those that were sent since the last return to the place in
    /// the queue.
    in_doubt: bool,
    /// An earlier one is, and no later reply says anything about it.
    was_in_doubt: bool,
    /// The place in the queue.
    order: Option<NonZeroU64>,
    share: Packed,
    /// Earlier requests that may still be granted, the oldest first.
    former: Vec<RequestId>,
    /// Requests that must not be granted any more, but may still be carried out.
    doubtful: Vec<RequestId>,
}

/// The share that it wants, in the space that a place leaves free: an acquisition must not grow
/// because some locks have several holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Packed {
    /// The permits, or 0.
    n: u32,
    /// The limit, or 1 for a reader.
    limit: u32,
}

impl Packed {
    const WHOLE: Self = Self { n: 0, limit: 0 };

    fn new(share: Share) -> Self {
        match share {
            Share::Whole => Self::WHOLE,
            Share::Read => Self { n: 0, limit: 1 },
            Share::Permits { n, limit } => Self { n, limit },
        }
    }

    fn share(self) -> Share {
        match (self.n, self.limit) {
            (0, 0) => Share::Whole,
            (0, _) => Share::Read,
            (n, limit) => Share::Permits { n, limit },
        }
    }
}

const _: () = assert!(size_of::<Acquisition>() <= 128);

impl Acquisition {
    /// How many former requests an acquisition remembers: one for each time that it returned to its place, which takes
    /// a failover, an operator or a Java client with a fast clock.
    pub const FORMER_MAX: usize = 4;

    /// The acquisition that `request` begins.
    pub fn new(
        kind: Kind,
        owner: OwnerId,
        mode: Mode,
        lease_ms: u64,
        shared_owner: bool,
        request: RequestId,
    ) -> Self {
        Self {
            kind,
            owner,
            mode,
            lease_ms,
            shared_owner,
            present: request,
            in_doubt: false,
            was_in_doubt: false,
            order: None,
            share: Packed::WHOLE,
            former: Vec::new(),
            doubtful: Vec::new(),
        }
    }

    /// Returns it for the new hold. The former requests are moved, so the machine must have ended.
    pub(crate) fn take(&mut self) -> Self {
        let (former, doubtful) = (take(&mut self.former), take(&mut self.doubtful));
        Self { owner: self.owner.clone(), former, doubtful, ..*self }
    }

    /// The same for this share of the lock.
    #[must_use]
    pub fn sharing(self, share: Share) -> Self {
        Self { share: Packed::new(share), ..self }
    }

    /// The share that it wants.
    pub fn share(&self) -> Share {
        self.share.share()
    }

    /// The lock's kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Who wants the lock.
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// Whether other requests use the same owner.
    pub fn has_shared_owner(&self) -> bool {
        self.shared_owner
    }

    /// The present request.
    pub fn request(&self) -> RequestId {
        self.present
    }

    /// The place in the queue, if the store has ever given it one.
    pub fn order(&self) -> Option<u64> {
        self.order.map(NonZeroU64::get)
    }

    /// Whether a grant of this request is for this acquisition (K2).
    pub fn can_be_granted(&self, request: RequestId) -> bool {
        self.present == request || self.former.contains(&request)
    }

    /// Whether the store may have a hold of this acquisition under this request.
    pub fn may_have(&self, request: RequestId) -> bool {
        self.can_be_granted(request) || self.doubtful.contains(&request)
    }

    /// The requests whose grants are for this acquisition.
    pub fn grantable(&self) -> impl Iterator<Item = RequestId> {
        self.former.iter().copied().chain([self.present])
    }

    /// The operation that asks for the lock, or for the return to the place in the queue.
    pub fn acquire(&self, sure: bool, not_after_ms: u64) -> Acquire {
        Acquire {
            kind: self.kind,
            owner: self.owner.clone(),
            request: self.present,
            lease_ms: self.lease_ms,
            mode: self.mode,
            order: self.order(),
            not_after_ms,
            sure,
            shared_owner: self.shared_owner,
        }
    }

    /// Whether a copy of the present request is unanswered.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt || self.was_in_doubt
    }

    /// Sets whether a copy of the present request is unanswered, of those that were sent since the last return to the
    /// place in the queue.
    pub fn set_in_doubt(&mut self, in_doubt: bool) {
        self.in_doubt = in_doubt;
    }

    /// According to the store, the waiter stands in the queue.
    pub fn queued(&mut self, order: u64) {
        // No number is 0.
        self.order = NonZeroU64::new(order);
    }

    /// The store has lost the waiter: `fresh` will bring it back to its place, unless the present
    /// request may still do so. Returns a request that is too old to be remembered.
    pub fn return_to_place(&mut self, fresh: RequestId) -> Option<RequestId> {
        if self.in_doubt {
            self.was_in_doubt = true;
            return None;
        }
        // Whether or not it is in doubt: a former request is buried in the end.
        self.was_in_doubt = false;
        self.former.push(std::mem::replace(&mut self.present, fresh));
        (self.former.len() > Self::FORMER_MAX).then(|| self.former.remove(0))
    }

    /// The lock was granted to `request`. No other request of the acquisition may be granted now.
    pub fn granted(&mut self, request: RequestId) {
        debug_assert!(self.may_have(request), "K2: a grant to {request:?} in {self:?}");
        // If it is one of these, a copy of it may still be unanswered, so the end of the hold buries it like the others.
        self.doubtful.append(&mut self.former);
        // A store that took over granted a former request: the present one must not come back either.
        if self.is_in_doubt() || request != self.present {
            self.doubtful.push(self.present);
        }
        self.present = request;
        (self.in_doubt, self.was_in_doubt) = (false, false);
    }

    /// The grant was over before it could be used: `fresh` asks again, for the same place.
    pub fn again(&mut self, fresh: RequestId) {
        self.doubtful.append(&mut self.former);
        // The store may have renewed it all the same, and knows that hold by this request.
        self.doubtful.push(std::mem::replace(&mut self.present, fresh));
        (self.in_doubt, self.was_in_doubt) = (false, false);
    }

    /// The requests that the end of a hold must take back, beside the one that was granted.
    pub fn doubtful(&self) -> impl Iterator<Item = Op> {
        self.doubtful.iter().map(|request| self.leave_by(*request, true))
    }

    /// Whether a store may have it under another request than the present one.
    pub fn has_other_requests(&self) -> bool {
        !(self.former.is_empty() && self.doubtful.is_empty())
    }

    /// Whether the end of a hold must take any back: see [`doubtful`](Self::doubtful).
    pub fn is_doubtful(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Gives the acquisition up without a hold. Returns the operations that take its requests back
    /// (K1, K3).
    pub fn give_up(&mut self) -> Vec<Op> {
        self.doubtful.append(&mut self.former);
        // A grant of it was over, and it is given up in its turn.
        let present = self.present;
        self.in_doubt |= self.doubtful.contains(&present);
        self.doubtful.retain(|request| *request != present);
        let mut all: Vec<_> = self.doubtful().collect();
        // A try that was answered has left nothing behind.
        let in_doubt = self.is_in_doubt();
        if self.mode == Mode::Wait || in_doubt {
            all.push(self.leave(in_doubt));
        }
        all
    }

    /// Whether the store may have any of its requests. It has none if it has refused them all: then
    /// taking them back is a precaution, and need not be repeated.
    pub fn may_be_known(&self) -> bool {
        self.order.is_some() || self.is_in_doubt() || self.has_other_requests()
    }

    /// Takes the present request back; `bury` refuses its late copies as well.
    pub fn leave(&self, bury: bool) -> Op {
        self.leave_by(self.present, bury)
    }

    fn leave_by(&self, request: RequestId, bury: bool) -> Op {
        Op::Leave {
            kind: self.kind,
            owner: self.owner.clone(),
            request,
            bury,
            shared_owner: self.shared_owner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClientId;

    fn request(number: u128) -> RequestId {
        RequestId::from_random(number)
    }

    fn acquisition(mode: Mode) -> Acquisition {
        let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
        Acquisition::new(Kind::Fair, owner, mode, 30_000, false, request(1))
    }

    /// What is taken back, and whether it is buried.
    fn taken_back(ops: impl IntoIterator<Item = Op>) -> Vec<(RequestId, bool)> {
        let one = |op| match op {
            Op::Leave { request, bury, .. } => (request, bury),
            op => panic!("{op:?} takes nothing back"),
        };
        ops.into_iter().map(one).collect()
    }

    #[test]
    fn a_wait_that_is_given_up_takes_its_request_back() {
        assert_eq!(taken_back(acquisition(Mode::Wait).give_up()), [(request(1), false)]);
    }

    #[test]
    fn a_try_that_was_answered_has_left_nothing_behind() {
        assert_eq!(acquisition(Mode::Try).give_up(), []);
    }

    /// A task that asks again and again while the store refuses it would push out what is owed.
    #[test]
    fn a_store_that_has_refused_every_copy_knows_no_request() {
        assert!(!acquisition(Mode::Wait).may_be_known());
        let mut in_doubt = acquisition(Mode::Wait);
        in_doubt.set_in_doubt(true);
        let mut queued = acquisition(Mode::Wait);
        queued.queued(5);
        let mut again = acquisition(Mode::Wait);
        again.again(request(2));
        for mut it in [in_doubt, queued, again] {
            assert!(it.may_be_known());
            it.give_up();
            assert!(it.may_be_known(), "what was given up may have to be taken back");
        }
    }

    #[test]
    fn a_request_in_doubt_is_buried() {
        for mode in [Mode::Try, Mode::Wait] {
            let mut acquisition = acquisition(mode);
            acquisition.set_in_doubt(true);
            assert_eq!(taken_back(acquisition.give_up()), [(request(1), true)]);
        }
    }

    /// The server may know a waiter by any request with which it ever returned to its place.
    #[test]
    fn every_request_of_a_waiter_that_returned_is_taken_back() {
        let mut acquisition = acquisition(Mode::Wait);
        acquisition.queued(5);
        for number in 2..=4 {
            assert_eq!(acquisition.return_to_place(request(number)), None);
        }
        assert!((1..=4).all(|number| acquisition.can_be_granted(request(number))));
        assert_eq!(acquisition.acquire(true, 0).order, Some(5));
        let all: Vec<_> = [1, 2, 3].map(|number| (request(number), true)).into();
        assert_eq!(taken_back(acquisition.give_up()), [all, vec![(request(4), false)]].concat());
    }

    #[test]
    fn a_request_in_doubt_brings_its_waiter_back_by_itself() {
        let mut acquisition = acquisition(Mode::Wait);
        acquisition.set_in_doubt(true);
        acquisition.return_to_place(request(2));
        assert_eq!(acquisition.request(), request(1));
        assert!(!acquisition.can_be_granted(request(2)));
    }

    #[test]
    fn former_requests_are_few() {
        let mut acquisition = acquisition(Mode::Wait);
        let forgotten: Vec<_> =
            (2..=7).filter_map(|number| acquisition.return_to_place(request(number))).collect();
        assert_eq!(forgotten, [request(1), request(2)]);
        assert!(!acquisition.can_be_granted(request(2)));
        assert!(acquisition.can_be_granted(request(3)));
    }

    /// A master that took over without the last writes grants a former request: what was asked since must not be
    /// granted after the hold, to nobody.
    #[test]
    fn a_grant_of_a_former_request_leaves_the_present_one_to_be_buried() {
        let mut acquisition = acquisition(Mode::Wait);
        acquisition.return_to_place(request(2));
        acquisition.granted(request(1));
        assert_eq!(acquisition.request(), request(1));
        assert!(!acquisition.can_be_granted(request(2)));
        assert!(taken_back(acquisition.doubtful()).contains(&(request(2), true)));
    }

    /// The first copy was unanswered, the second one granted, and the grant was over.
    #[test]
    fn a_request_that_was_granted_in_doubt_is_taken_back_once() {
        let mut acquisition = acquisition(Mode::Wait);
        acquisition.set_in_doubt(true);
        acquisition.granted(request(1));
        assert_eq!(taken_back(acquisition.clone().give_up()), [(request(1), true)]);
        acquisition.set_in_doubt(true);
        assert_eq!(taken_back(acquisition.give_up()), [(request(1), true)]);
    }

    /// The first copy of the first request was unanswered, its grant was over, and its confirmation had renewed it. The
    /// hold forgot that copy, which could take the lock for nobody after the release.
    #[test]
    fn a_former_request_that_is_granted_after_all_is_buried_in_the_end() {
        let mut acquisition = acquisition(Mode::Wait);
        acquisition.set_in_doubt(true);
        acquisition.again(request(2));
        acquisition.granted(request(1));
        let all = [(request(1), true), (request(2), true)];
        assert_eq!(taken_back(acquisition.doubtful()), all);
    }

    #[test]
    fn a_grant_that_was_over_is_taken_back_in_the_end() {
        let mut acquisition = acquisition(Mode::Wait);
        acquisition.queued(5);
        acquisition.granted(request(1));
        acquisition.again(request(2));
        assert_eq!(acquisition.acquire(true, 0).order, Some(5));
        let all = [(request(1), true), (request(2), false)];
        assert_eq!(taken_back(acquisition.give_up()), all);
    }
}
