//! Resolves steps to concrete values: the holder, the token, the place in the queue.

use super::run::{Run, client, owner, request};
use super::step::{Named, Place, Step, Who};
use fairlock_core::{Acquire, Announce, Op, OwnerId, SimpleValue, Token};

impl Run<'_> {
    fn who(&self, who: Who) -> OwnerId {
        let keys = self.core.snapshot();
        let written = keys.value.as_ref().map(SimpleValue::holder);
        let holder = keys.hold.keys().next().or(written.as_ref());
        match who {
            Who::Owner(number) => owner(number),
            Who::Holder => {
                holder.filter(|holder| holder.is_ours()).cloned().unwrap_or_else(|| owner(0))
            }
        }
    }

    fn token(&self, named: Named) -> Token {
        let last = self.core.snapshot().token.unwrap_or(0);
        let number = match named {
            Named::Last => last,
            Named::Earlier => *self.tokens.iter().rev().find(|t| **t < last).unwrap_or(&1),
            Named::Later => last + 5,
        };
        Token::new(number).unwrap_or_else(|| Token::new(1).expect("1 is a token"))
    }

    pub(super) fn resolve(&self, step: &Step) -> Op {
        match step {
            Step::Acquire { kind, owner: who, request: number, lease_ms, mode, .. } => {
                let Step::Acquire { place, late, sure, shared, .. } = step else { unreachable!() };
                let now_ms = self.fixture.now_us() / 1_000;
                let id = owner(*who);
                let order = match place {
                    Place::New => None,
                    Place::Old => self.orders.get(&id).copied(),
                    Place::Ago(us) => Some(self.fixture.now_us() - us),
                };
                Op::Acquire(Acquire {
                    kind: *kind,
                    owner: id,
                    request: request(*who, *number),
                    lease_ms: *lease_ms,
                    mode: *mode,
                    order,
                    // Just in time, or far ahead: a script that took this for the current time
                    // would be found out.
                    not_after_ms: if *late { now_ms - 1 } else { now_ms + 7_000 * number },
                    sure: *sure,
                    shared_owner: *shared,
                })
            }
            Step::Reenter { who, token, count, change } => Op::Reenter {
                owner: self.who(*who),
                token: self.token(*token),
                count: *count,
                change: *change,
            },
            Step::Release { kind, who, token, keep, change } => Op::Release {
                kind: *kind,
                owner: self.who(*who),
                token: self.token(*token),
                keep: *keep,
                change: *change,
            },
            Step::Announce { who, token, change, ttl_ms } => Op::Announce(Box::new(Announce {
                owner: self.who(*who),
                token: self.token(*token),
                change: *change,
                ttl_ms: *ttl_ms,
                value: format!("\0 {change}\r\n").into_bytes(),
            })),
            Step::Leader => Op::Leader,
            Step::Renew { kind, who, token, ttl_ms } => Op::Renew {
                kind: *kind,
                owner: self.who(*who),
                token: self.token(*token),
                ttl_ms: *ttl_ms,
            },
            Step::Leave { kind, who, request: number, bury, shared } => {
                let owner = self.who(*who);
                Op::Leave {
                    kind: *kind,
                    request: request(number_of(&owner), *number),
                    owner,
                    bury: *bury,
                    shared_owner: *shared,
                }
            }
            Step::Beat { client: number, waiters } => Op::Beat {
                client: client(*number),
                waiters: waiters.iter().map(|number| owner(*number)).collect(),
            },
            Step::Nudge => Op::Nudge,
            Step::Force { kind } => Op::Force { kind: *kind },
            Step::Place { member } => Op::Place { owner: OwnerId::parse(&self.member(*member)) },
            Step::Inspect { kind, limit } => Op::Inspect { kind: *kind, limit: *limit },
            other => unreachable!("{other:?} is no operation"),
        }
    }
}

fn number_of(id: &OwnerId) -> u64 {
    (0..super::step::OWNERS).find(|number| owner(*number) == *id).unwrap_or(0)
}
