//! One hold, as its client sees it: how long it is valid, its guards, and its renewals. Times are
//! nanoseconds of any monotonic clock of the caller's choice.

use super::lease::{CUT_TO_MS, Lease, ns, valid_until_ns};
use super::patience;
use crate::id::OwnerId;
use crate::rules::MAX_HOLD_COUNT;

/// Pause before a failed renewal is tried again.
const RETRY_MS: u64 = 500;

/// When a grant by message is first renewed: its TTL is short, but a critical section that is
/// shorter than this needs no renewal at all.
const CONFIRM_AFTER_MS: u64 = 100;

/// How long an answer that has arrived may be unread while this process is busy.
const UNREAD_MS: u64 = 50;

/// How often a hold that nothing else renews is kept up, as long as more of it is left than what a
/// reader of Redisson's leaves the lock.
const KEPT_UP_EVERY_MS: u64 = 10_000;

/// Whether a hold still protects. Held and Suspect ones are valid until their validity runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Held, according to the last renewal.
    Held,
    /// A renewal failed or is overdue, or the connection was lost.
    Suspect,
    /// No longer held. This is final.
    Lost(Loss),
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Its lease ran out.
    Expired,
    /// Its lease ran out while the store did not answer the renewals.
    Unreachable,
    /// Its longest hold is over.
    MaxHold,
    /// It was taken away by force, according to a message and the store.
    Forced,
    /// Somebody else has the lock.
    Replaced,
    /// The store does not have the hold, and nobody else has the lock.
    DataLost,
    /// Its program gave no sign of life in time.
    Untouched,
}

/// A change of the hold count that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The number of guards.
    pub count: u32,
    /// Later changes have larger numbers, so that the store can tell which one is the latest.
    pub number: u64,
}

/// The end of one guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct GuardEnd {
    /// The release of the guard.
    pub change: Change,
    /// The last guard that writes has ended and readers remain: a downgrade follows the release.
    pub reads_on: bool,
    /// Whether the hold is unattended now.
    pub unattended: bool,
}

/// The watchdog's view of a hold that is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// When its validity ends.
    pub valid_until_ns: u64,
    /// When to look at it again, whether or not a renewal succeeds.
    pub next_ns: u64,
    /// Whether it is to be renewed now.
    pub renew: bool,
    /// Its renewal is not answered for so long that the store must not be waited for: its connection
    /// is given up if it has been silent since.
    pub silence: Option<Silence>,
}

/// How long the store has not answered a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Silence {
    /// When the renewal was due.
    pub since_ns: u64,
    /// How long an answer, or a connection, may take.
    pub longest_ns: u64,
}

/// A client's record of one hold, from its grant to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    lease: Lease,
    valid_until_ns: u64,
    standing: Standing,
    /// Whether the store has the whole lease, and nothing has come up since that casts doubt on it.
    whole_lease: bool,
    /// According to a message, it was taken away by force.
    forced: bool,
    /// The number of guards, including those that were detached.
    count: u32,
    /// The number of guards that were detached.
    detached: u32,
    /// The number of guards that only read in a writer's hold.
    reading: u32,
    change: u64,
    /// The number of renewals of the watchdog under way.
    renewals: u32,
    /// Since when a renewal is due that is not answered.
    due_ns: Option<u64>,
    /// The time of the last doubt. A renewal sent earlier cannot clear it.
    doubted_ns: u64,
    /// It is being, or was, left to the store until this moment.
    left_until_ns: Option<u64>,
    /// A writer's hold is being, or was, made a reader's.
    reads: bool,
    /// Who held the lock when the store reported that this hold is gone.
    taken_by: Option<Box<OwnerId>>,
}

impl Hold {
    /// A hold with one guard, of which it is not known that the store has the whole lease.
    pub fn new(lease: Lease, valid_until_ns: u64) -> Self {
        Self {
            lease,
            valid_until_ns: lease.capped(valid_until_ns),
            standing: Standing::Held,
            whole_lease: false,
            forced: false,
            count: 1,
            detached: 0,
            reading: 0,
            change: 0,
            renewals: 0,
            due_ns: None,
            doubted_ns: 0,
            left_until_ns: None,
            reads: false,
            taken_by: None,
        }
    }

    /// The remaining time of an explicit lease is repeated in the store now and then.
    fn is_kept_up(&self, now_ns: u64) -> bool {
        let is_long = |end: u64| end.saturating_sub(now_ns) > ns(CUT_TO_MS);
        let is_uncut = self.lease.is_used_up(self.valid_until_ns);
        self.lease.may_be_cut && self.lease.end_ns.is_some_and(|end| is_long(end) || !is_uncut)
    }

    /// How long it is to last.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Until when it is valid unless it is lost.
    pub fn valid_until_ns(&self) -> u64 {
        self.valid_until_ns
    }

    /// Whether it protects, apart from the time.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The number of guards, including those that were detached.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the last guard is gone.
    pub fn has_ended(&self) -> bool {
        self.count == 0
    }

    /// Whether no guard is left: all were released or detached.
    pub fn is_unattended(&self) -> bool {
        self.count == self.detached
    }

    /// Whether it is being, or was, left to the store for a time of its own.
    pub fn is_being_left(&self) -> bool {
        self.left_until_ns.is_some()
    }

    /// Whether a renewal of the watchdog is under way.
    pub fn is_being_renewed(&self) -> bool {
        self.renewals > 0
    }

    /// Who held the lock when the store reported that this hold is gone, if anybody did.
    pub fn taken_by(&self) -> Option<&OwnerId> {
        self.taken_by.as_deref()
    }

    /// The time is `now_ns`. Returns whether the hold still protects.
    pub fn time(&mut self, now_ns: u64) -> Standing {
        self.input(0, |hold| {
            hold.pass(now_ns);
            hold.standing
        })
    }

    /// Records, before the hold is watched, whether the store has the whole lease. If so, earlier doubts are cleared.
    pub fn granted_whole(&mut self, whole: bool) {
        self.input(0, |hold| {
            hold.whole_lease = whole;
            if whole {
                hold.doubted_ns = 0;
            }
        });
    }

    /// Whether the store has the whole lease, as far as is known.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.whole_lease
    }

    /// The watchdog begins to watch it. Returns when to look at it.
    pub fn watched(&mut self, now_ns: u64) -> u64 {
        self.input(0, |hold| match hold.whole_lease {
            true => hold.next_look(now_ns),
            false => hold.soon(now_ns, CONFIRM_AFTER_MS),
        })
    }

    /// The watchdog looks at it. `None` means that it is lost, and needs no further look.
    pub fn look(&mut self, now_ns: u64) -> Option<Look> {
        self.input(0, |hold| {
            // Of an explicit lease, only the end remains.
            let renew = hold.lease.renewed || !hold.whole_lease || hold.is_kept_up(now_ns);
            hold.pass(now_ns).then(|| hold.look_for(now_ns, renew))
        })
    }

    /// A renewal that was due at an earlier look is not sent once more: it is waited for until it is
    /// overdue, which makes the hold suspect, and until the store has been silent for too long.
    fn look_for(&mut self, now_ns: u64, renew: bool) -> Look {
        let valid_until_ns = self.valid_until_ns;
        let look = Look { valid_until_ns, next_ns: valid_until_ns, renew, silence: None };
        if !renew || self.is_being_left() {
            return look;
        }
        let due_ns = *self.due_ns.get_or_insert(now_ns);
        let overdue_ns = patience::overdue_ns(due_ns, valid_until_ns);
        let longest_ns = patience::silence_ns(due_ns, valid_until_ns);
        let silent_ns = due_ns.saturating_add(longest_ns);
        if now_ns < overdue_ns {
            return Look { next_ns: overdue_ns.min(valid_until_ns), ..look };
        }
        let next_ns = match self.standing {
            _ if now_ns < silent_ns => silent_ns,
            // After a pause of this process, an answer may be there that was not read yet.
            Standing::Held => now_ns.saturating_add(ns(UNREAD_MS)),
            _ => {
                let silence = Some(Silence { since_ns: due_ns, longest_ns });
                return Look { renew: false, silence, ..look };
            }
        };
        self.doubt();
        Look { renew: false, next_ns: next_ns.min(valid_until_ns), ..look }
    }

    /// How long an answer, or a connection, may take at `now_ns`: see [`Silence`].
    pub fn patience_ns(&self, now_ns: u64) -> u64 {
        patience::silence_ns(now_ns, self.valid_until_ns)
    }

    /// A renewal of the watchdog is to be sent. Returns the TTL to ask for, in milliseconds. `None`
    /// if it must not be sent, because the hold is being left to the store for a time that the
    /// renewal would replace. [`renewal_over`](Self::renewal_over) ends what `Some` begins.
    pub fn begin_renewal(&mut self, now_ns: u64) -> Option<u64> {
        self.input(0, |hold| {
            if hold.is_being_left() {
                return None;
            }
            hold.renewals += 1;
            Some(hold.lease.wanted_ms(now_ns))
        })
    }

    /// A renewal of the watchdog is over, answered or not. Returns whether somebody may be waiting
    /// for that, to leave the hold to the store.
    pub fn renewal_over(&mut self) -> bool {
        self.input(0, |hold| {
            debug_assert!(hold.renewals > 0, "no renewal is under way: {hold:?}");
            hold.renewals = hold.renewals.saturating_sub(1);
            hold.renewals == 0 && hold.is_being_left()
        })
    }

    /// A renewal that was sent at `sent_ns` gave it `ttl_ms`. Returns when to look at it next, or
    /// `None` if it is lost. A process that was frozen past its old deadline, with the reply
    /// waiting to be read, has lost nothing if nobody checked meanwhile.
    pub fn renewed(&mut self, now_ns: u64, sent_ns: u64, ttl_ms: u64) -> Option<u64> {
        let until_ns = valid_until_ns(sent_ns, ttl_ms);
        self.input(until_ns, |hold| {
            if hold.is_lost() {
                return None;
            }
            hold.due_ns = None;
            hold.valid_until_ns = hold.valid_until_ns.max(hold.lease.relied_on(sent_ns, ttl_ms));
            if !hold.pass(now_ns) {
                return None;
            }
            if !hold.whole_lease && sent_ns < hold.doubted_ns {
                return Some(hold.soon(now_ns, CONFIRM_AFTER_MS));
            }
            hold.whole_lease = true;
            // A report that it was taken away by force was wrong.
            hold.forced = false;
            hold.standing = Standing::Held;
            Some(hold.next_look(sent_ns))
        })
    }

    /// A renewal was not answered, or too few replicas have it. Returns when to look at it again.
    pub fn unanswered(&mut self, now_ns: u64) -> u64 {
        self.input(0, |hold| {
            hold.doubt();
            hold.due_ns = None;
            let left_ms = hold.valid_until_ns.saturating_sub(now_ns) / 1_000_000;
            // Near the end try more often: at least four more times.
            hold.soon(now_ns, RETRY_MS.min(left_ms / 4).max(10))
        })
    }

    /// According to the store, the hold is gone. `holder` has the lock instead, if anybody does.
    pub fn gone(&mut self, now_ns: u64, holder: Option<OwnerId>) {
        self.input(0, |hold| {
            // The clock first: a hold that had run out before was not lost because of the store.
            if !hold.pass(now_ns) {
                return;
            }
            hold.standing = Standing::Lost(match holder {
                _ if hold.forced => Loss::Forced,
                Some(_) => Loss::Replaced,
                None => Loss::DataLost,
            });
            hold.taken_by = holder.map(Box::new);
        });
    }

    /// It is lost for `reason`, unless it was lost before.
    pub fn lose(&mut self, reason: Loss) {
        self.input(0, |hold| {
            if !hold.is_lost() {
                hold.standing = Standing::Lost(reason);
            }
        });
    }

    /// A hold that was renewed until now gets an explicit lease of this many milliseconds, which
    /// begins now. The store must be told.
    pub fn lease_begins(&mut self, now_ns: u64, ms: u64) {
        self.input(0, |hold| {
            let end_ns = Some(now_ns.saturating_add(ns(ms)));
            hold.lease = Lease { ms, renewed: false, end_ns, ..hold.lease };
            hold.valid_until_ns = hold.valid_until_ns.min(hold.lease.relied_on(now_ns, ms));
            hold.ask_anew(now_ns);
        });
    }

    /// There is a reason to doubt it.
    pub fn suspect(&mut self) {
        self.input(0, Self::doubt);
    }

    /// The connection was lost.
    pub fn connection_lost(&mut self, now_ns: u64) {
        self.input(0, |hold| {
            hold.doubt();
            hold.ask_anew(now_ns);
        });
    }

    /// It must be confirmed anew, even if it is never renewed.
    pub fn must_be_confirmed(&mut self, now_ns: u64) {
        self.input(0, |hold| hold.ask_anew(now_ns));
    }

    /// According to a message, it was taken away by force: the store must be asked, and only its
    /// answer counts. Messages do not move the moment since which a renewal is due.
    pub fn reported_taken(&mut self, now_ns: u64) {
        self.input(0, |hold| {
            hold.forced = true;
            hold.ask_again(now_ns);
        });
    }

    /// Adds a guard; `reading` if it only reads in a writer's hold. `None` if the count is at its
    /// limit, or the hold has ended or is being left.
    pub fn enter(&mut self, reading: bool) -> Option<Change> {
        self.input(0, |hold| {
            if hold.has_ended() || hold.is_being_left() || hold.count >= MAX_HOLD_COUNT {
                return None;
            }
            hold.count += 1;
            hold.reading += u32::from(reading);
            Some(hold.changed())
        })
    }

    /// Begins to turn a writer's hold into a reader's; for its client it is a reader's from here
    /// on. `None`, without effect, if other guards write, or the hold has ended or is being left.
    pub fn begin_reading(&mut self) -> Option<Change> {
        self.input(0, |hold| {
            if hold.count != hold.reading + 1 || hold.is_being_left() || hold.reads {
                return None;
            }
            hold.reads = true;
            Some(hold.changed())
        })
    }

    /// Whether a writer's hold was, or is being, made a reader's.
    pub fn reads(&self) -> bool {
        self.reads
    }

    /// Removes a guard, which entered with the same `reading`; at 0 the hold ends. If the last guard
    /// that writes goes and readers remain, the hold becomes a reader's.
    pub fn leave(&mut self, reading: bool) -> GuardEnd {
        self.input(0, |hold| {
            hold.count = hold.count.saturating_sub(1);
            hold.reading = hold.reading.saturating_sub(u32::from(reading));
            let change = hold.changed();
            let reads_on = hold.count > 0 && hold.reading == hold.count && !hold.reads;
            hold.reads |= reads_on;
            if reads_on {
                hold.changed();
            }
            GuardEnd { change, reads_on, unattended: hold.is_unattended() }
        })
    }

    /// Detaches a guard, which leaves its part of the hold to the store: that part is never given
    /// back, and nothing renews the hold any more. Returns until when the hold lasts at least.
    pub fn detach(&mut self) -> u64 {
        self.input(0, |hold| {
            hold.detached += 1;
            hold.lease.renewed = false;
            hold.lease.end_ns = Some(hold.valid_until_ns);
            hold.lease.ends_by_max_hold = false;
            hold.valid_until_ns
        })
    }

    /// Begins to leave it to the store until `end_ns`: from here on no renewal of the watchdog
    /// begins, nobody enters, and nothing is valid beyond that. Returns false, without effect, if
    /// there are other guards, which count on renewals.
    pub fn begin_leaving(&mut self, end_ns: u64) -> bool {
        self.input(0, |hold| {
            if hold.count != 1 {
                return false;
            }
            hold.left_until_ns = Some(hold.left_until_ns.map_or(end_ns, |end| end.min(end_ns)));
            let capped = Some(hold.lease.capped(end_ns));
            hold.lease.ends_by_max_hold &= capped == hold.lease.end_ns;
            hold.lease.end_ns = capped;
            // Shortened before anything is sent: the store may end it by then even if its reply is
            // lost.
            hold.valid_until_ns = hold.valid_until_ns.min(end_ns);
            true
        })
    }

    /// The last renewal, which was sent at `sent_ns`, gave it `ttl_ms`. That may be more or less
    /// than its lease.
    pub fn left(&mut self, now_ns: u64, sent_ns: u64, ttl_ms: u64) {
        let until_ns = valid_until_ns(sent_ns, ttl_ms);
        self.input(until_ns, |hold| {
            hold.whole_lease = true;
            if !hold.pass(now_ns) {
                return;
            }
            hold.valid_until_ns = hold.left_until_ns.map_or(until_ns, |end| end.min(until_ns));
            hold.lease.ms = ttl_ms;
            hold.lease.end_ns = Some(hold.valid_until_ns);
            hold.standing = Standing::Held;
        });
    }

    fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost(_))
    }

    /// Loses it if its time is up. Returns whether it still protects.
    fn pass(&mut self, now_ns: u64) -> bool {
        if !self.is_lost() && self.valid_until_ns <= now_ns {
            self.standing = Standing::Lost(self.why_over());
        }
        !self.is_lost()
    }

    /// Why its validity has run out.
    fn why_over(&self) -> Loss {
        let unheard = self.standing == Standing::Suspect || self.is_being_renewed();
        match self.lease.is_used_up(self.valid_until_ns) {
            true if self.lease.ends_by_max_hold => Loss::MaxHold,
            false if unheard => Loss::Unreachable,
            _ => Loss::Expired,
        }
    }

    /// The next look asks the store, whatever was asked before.
    fn ask_anew(&mut self, now_ns: u64) {
        self.ask_again(now_ns);
        self.due_ns = None;
    }

    /// The same, but a renewal that is due remains so since the same moment.
    fn ask_again(&mut self, now_ns: u64) {
        (self.whole_lease, self.doubted_ns) = (false, now_ns);
    }

    fn doubt(&mut self) {
        if self.standing == Standing::Held {
            self.standing = Standing::Suspect;
        }
    }

    /// When to look at it after it got its whole lease at `sent_ns`.
    fn next_look(&self, sent_ns: u64) -> u64 {
        match self.lease.renewed {
            // Every third of a lease of 30 s is often enough, too.
            true if self.lease.may_be_cut => {
                self.soon(sent_ns, (self.lease.ms / 3).min(KEPT_UP_EVERY_MS))
            }
            true => self.soon(sent_ns, self.lease.ms / 3),
            false if self.is_kept_up(sent_ns) => self.soon(sent_ns, KEPT_UP_EVERY_MS),
            false => self.valid_until_ns,
        }
    }

    fn soon(&self, from_ns: u64, pause_ms: u64) -> u64 {
        from_ns.saturating_add(ns(pause_ms)).min(self.valid_until_ns)
    }

    fn changed(&mut self) -> Change {
        self.change += 1;
        Change { count: self.count, number: self.change }
    }

    /// Carries out an input. It may make the hold valid until `until_ns`, not longer.
    fn input<R>(&mut self, until_ns: u64, input: impl FnOnce(&mut Self) -> R) -> R {
        if !cfg!(debug_assertions) {
            return input(self);
        }
        let before = self.clone();
        let result = input(self);
        self.check(&before, until_ns);
        result
    }

    /// Checks the invariants after an input.
    fn check(&self, before: &Self, until_ns: u64) {
        let (now, then) = (self.valid_until_ns, before.valid_until_ns);
        assert!(now <= then.max(until_ns), "K7: {before:?} became {self:?}");
        assert!(self.lease.capped(now) == now, "K7: {self:?}");
        if before.is_lost() {
            let same = self.standing == before.standing && self.taken_by == before.taken_by;
            assert!(same && now <= then, "K8: {before:?} became {self:?}");
        }
        if let Some(end) = before.left_until_ns {
            let stays = self.left_until_ns.is_some_and(|now| now <= end);
            let alone = self.count <= before.count && self.renewals <= before.renewals;
            assert!(stays && alone && now <= end, "K9: {before:?} became {self:?}");
        }
        let changes = u64::from(self.count != before.count) + u64::from(self.reads != before.reads);
        let counted = self.change - before.change == changes && self.reads >= before.reads;
        let ended = before.has_ended() && !self.has_ended();
        let few = self.detached <= self.count && self.reading <= self.count;
        assert!(counted && !ended && few, "K10: {before:?} became {self:?}");
    }
}

#[cfg(test)]
pub(super) mod tests;
