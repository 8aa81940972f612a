//! Random sequences for a client's hold: replies to renewals that were sent at any time and gave
//! any TTL, late, repeated or about a hold that is lost, while guards come and go, and time creeps,
//! leaps and stands still. The hold checks K7 to K10 itself; this keeps its own account.

use crate::support::play_cases;
use fairlock_core::OwnerId;
use fairlock_core::client::{GuardEnd, Hold, Lease, Standing, valid_until_ns};
use proptest::prelude::*;

const CASES: u32 = 2_000;
const ACTS_MAX: usize = 60;
const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Watch(bool),
    Look,
    Ask,
    /// A reply to what was sent so long ago, with any TTL.
    Renewed(u64, u64),
    Unanswered,
    /// The end of a renewal under way.
    Over,
    Gone(bool),
    Suspect,
    Down,
    Up,
    Forced,
    Enter,
    Leave,
    Detach,
    /// Leaves it for this time.
    BeginLeaving(u64),
    Left(u64, u64),
}

fn acts() -> impl Strategy<Value = Act> {
    let time = || prop_oneof![0..50_u64, 0..3_000_u64, 0..60_000_u64];
    let ttl = || prop_oneof![4 => 0..30_000_u64, 1 => any::<u64>()];
    prop_oneof![
        4 => time().prop_map(Act::Pass),
        1 => any::<bool>().prop_map(Act::Watch),
        2 => Just(Act::Look),
        3 => Just(Act::Ask),
        3 => (time(), ttl()).prop_map(|(ago, ttl)| Act::Renewed(ago, ttl)),
        1 => Just(Act::Unanswered),
        2 => Just(Act::Over),
        1 => any::<bool>().prop_map(Act::Gone),
        1 => Just(Act::Suspect),
        1 => Just(Act::Down),
        1 => Just(Act::Up),
        1 => Just(Act::Forced),
        2 => Just(Act::Enter),
        1 => Just(Act::Leave),
        1 => Just(Act::Detach),
        1 => time().prop_map(Act::BeginLeaving),
        1 => (time(), ttl()).prop_map(|(ago, ttl)| Act::Left(ago, ttl)),
    ]
}

fn leases() -> impl Strategy<Value = Lease> {
    let end = prop_oneof![Just(None), (1..60_000_u64).prop_map(|end| Some(START + end * MS))];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (300..40_000_u64, end, flags).prop_map(
        |(ms, end_ns, (renewed, ends_by_max_hold, may_be_cut, java_fleet))| Lease {
            ms,
            renewed,
            end_ns,
            ends_by_max_hold,
            may_be_cut,
            java_fleet,
        },
    )
}

const START: u64 = 3_600_000 * MS;

/// What a hold can be at most.
struct Play {
    hold: Hold,
    now: u64,
    /// The latest end of anything that the store has said.
    bound: u64,
    /// When it was lost, if it was: what it was then.
    lost: Option<(Standing, u64)>,
    left_until: Option<u64>,
    /// When there was the last reason to ask the store anew, until it has answered.
    doubted: Option<u64>,
    attended: u32,
    detached: u32,
    asking: u32,
    number: u64,
}

impl Play {
    fn new(lease: Lease) -> Self {
        let bound = valid_until_ns(START, lease.ms);
        Self {
            hold: Hold::new(lease, bound),
            now: START,
            bound,
            lost: None,
            left_until: None,
            doubted: None,
            attended: 1,
            detached: 0,
            asking: 0,
            number: 0,
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), String> {
        let (now, ms) = (self.now, |ms: u64| ms.saturating_mul(MS));
        match *act {
            Act::Pass(by) => self.now += ms(by),
            Act::Watch(whole) => {
                self.hold.granted_whole(whole);
                let at = self.hold.watched(now);
                self.doubted = self.doubted.filter(|_| !whole);
                self.planned(at)?;
            }
            Act::Look => match self.hold.look(now) {
                None => check(self.hold.time(now) != Standing::Held, "lost and held")?,
                Some(look) => check(look.valid_until_ns > now, "a look at what is over")?,
            },
            Act::Ask => {
                if let Some(ttl_ms) = self.hold.begin_renewal(now) {
                    self.asking += 1;
                    check(self.left_until.is_none(), "renewed although it is being left")?;
                    check((1..=self.hold.lease().ms.max(1)).contains(&ttl_ms), "a strange TTL")?;
                }
            }
            Act::Renewed(ago, ttl_ms) => {
                let sent = now.saturating_sub(ms(ago));
                self.bound = self.bound.max(valid_until_ns(sent, ttl_ms));
                if let Some(at) = self.hold.renewed(now, sent, ttl_ms) {
                    self.planned(at)?;
                    if self.doubted.is_none_or(|doubted| doubted <= sent) {
                        check(self.hold.standing() == Standing::Held, "renewed, and not held")?;
                        self.doubted = None;
                    } else if self.left_until.is_none() {
                        let asks = self.hold.clone().look(at).is_none_or(|look| look.renew);
                        check(asks, "an answer from before a doubt ended it")?;
                    }
                }
            }
            Act::Unanswered => {
                let at = self.hold.unanswered(now);
                self.planned(at)?;
                check(self.hold.standing() != Standing::Held, "unanswered, and not in doubt")?;
            }
            Act::Over if self.asking > 0 => {
                self.asking -= 1;
                let told = self.hold.renewal_over();
                check(told == (self.asking == 0 && self.left_until.is_some()), "who is told")?;
            }
            Act::Gone(replaced) => {
                self.hold.gone(now, replaced.then(|| OwnerId::parse(b"somebody")));
                check(matches!(self.hold.standing(), Standing::Lost(_)), "gone, and not lost")?;
            }
            Act::Suspect => self.hold.suspect(),
            Act::Down | Act::Up | Act::Forced => {
                self.doubted = Some(now);
                match act {
                    Act::Down => self.hold.connection_lost(now),
                    Act::Up => self.hold.must_be_confirmed(now),
                    _ => self.hold.reported_taken(now),
                }
            }
            Act::Enter => {
                let open = self.attended + self.detached > 0 && self.left_until.is_none();
                let change = self.hold.enter(false);
                check(change.is_some() == open, "who may enter")?;
                if let Some(change) = change {
                    self.attended += 1;
                    self.changed(change.count, change.number)?;
                }
            }
            Act::Leave if self.attended > 0 => {
                self.attended -= 1;
                let GuardEnd { change, unattended, .. } = self.hold.leave(false);
                check(unattended == (self.attended == 0), "unattended")?;
                self.changed(change.count, change.number)?;
            }
            Act::Detach if self.attended > 0 => {
                self.attended -= 1;
                self.detached += 1;
                let until = self.hold.detach();
                check(until == self.hold.valid_until_ns(), "until when it is detached")?;
            }
            Act::BeginLeaving(time) => {
                let end = now + ms(time);
                if self.hold.begin_leaving(end) {
                    check(self.attended + self.detached == 1, "left under another guard")?;
                    self.left_until = Some(self.left_until.map_or(end, |known| known.min(end)));
                }
            }
            Act::Left(ago, ttl_ms) if self.left_until.is_some() => {
                let sent = now.saturating_sub(ms(ago));
                self.bound = self.bound.max(valid_until_ns(sent, ttl_ms));
                self.hold.left(now, sent, ttl_ms);
            }
            // There is no such guard or renewal.
            Act::Over | Act::Leave | Act::Detach | Act::Left(..) => {}
        }
        self.check()
    }

    fn planned(&self, at: u64) -> Result<(), String> {
        check(at <= self.hold.valid_until_ns(), "its end would be seen late")
    }

    fn changed(&mut self, count: u32, number: u64) -> Result<(), String> {
        check(count == self.attended + self.detached, "the number of guards")?;
        check(number > std::mem::replace(&mut self.number, number), "an old number")
    }

    fn check(&mut self) -> Result<(), String> {
        let until = self.hold.valid_until_ns();
        check(until <= self.bound, "valid for longer than the store has said")?;
        check(self.left_until.is_none_or(|end| until <= end), "valid beyond the end")?;
        let standing = self.hold.standing();
        if let Some((was, then)) = self.lost {
            check(standing == was && until <= then, "not lost for good")?;
        } else if matches!(standing, Standing::Lost(_)) {
            self.lost = Some((standing, until));
        }
        let over = until <= self.now;
        let seen = self.hold.clone().time(self.now);
        check(!over || matches!(seen, Standing::Lost(_)), "valid although its time is up")
    }
}

fn check(right: bool, what: &str) -> Result<(), String> {
    if right { Ok(()) } else { Err(what.to_owned()) }
}

fn play(lease: Lease, acts: &[Act]) -> Result<(), String> {
    let mut play = Play::new(lease);
    for (place, act) in acts.iter().enumerate() {
        play.act(act).map_err(|what| format!("act {place}: {what}: {:?}", play.hold))?;
    }
    Ok(())
}

#[test]
fn a_hold_is_never_valid_for_longer_than_the_store_has_said() {
    let strategy = (leases(), prop::collection::vec(acts(), 1..ACTS_MAX));
    play_cases(CASES, &strategy, |(lease, acts)| play(*lease, acts), |case| format!("{case:#?}"));
}
