//! Changes to the keys other than our operations: by Java clients and by operators.

use super::fixture::NAME;
use super::run::{Run, client, owner, request};
use super::step::{End, Fault, JavaAct, Member, Written};
use fairlock_core::OwnerId;

impl Run<'_> {
    pub(super) fn java_owner(&self, waiter: u64) -> OwnerId {
        let java = &self.fixture.java[waiter as usize % 2];
        OwnerId::parse(java.owner(1 + waiter as i64 / 2).as_bytes())
    }

    pub(super) fn java(&mut self, waiter: u64, act: JavaAct) {
        if self.core.snapshot().value.is_some() {
            // Java's scripts fail here, as ours do.
            return;
        }
        let java = &mut self.fixture.java[waiter as usize % 2];
        let (lock, thread) = (NAME, 1 + waiter as i64 / 2);
        match act {
            JavaAct::Acquire { wait_ms, lease_ms } => {
                java.acquire(lock, thread, wait_ms, lease_ms);
            }
            JavaAct::Try => {
                java.try_acquire(lock, thread, 30_000);
            }
            JavaAct::Unlock => {
                java.unlock(lock, thread);
            }
            JavaAct::Leave { wait_ms } => java.leave(lock, thread, wait_ms),
            JavaAct::Force => {
                java.force_unlock(lock);
            }
            JavaAct::Renew => {
                java.renew(lock, thread);
            }
        }
        self.count("java");
    }

    pub(super) fn member(&self, member: Member) -> Vec<u8> {
        match member {
            Member::Ours(number) => owner(number).to_bytes(),
            Member::Java(waiter) => self.java_owner(waiter).to_bytes(),
            Member::Odd => b"an odd\n one:".to_vec(),
        }
    }

    pub(super) fn meddle(&mut self, fault: Fault) {
        let [lock, queue, scores, token, order, state, beats] = self.fixture.keys.all();
        let key = |at: usize| self.fixture.keys.all()[at].clone();
        let now_us = self.fixture.now_us();
        let now_ms = now_us / 1_000;
        let text = |number: i64| number.to_string().into_bytes();
        let push = |end: End| match end {
            End::Head => b"LPUSH".to_vec(),
            End::Tail => b"RPUSH".to_vec(),
        };
        let word = |word: &str| word.as_bytes().to_vec();
        let last = self.core.snapshot().token.unwrap_or(now_us);
        let holder = self.core.snapshot().hold.keys().next().map(OwnerId::to_bytes);
        let commands: Vec<Vec<Vec<u8>>> = match fault {
            Fault::Delete(at) => vec![vec![word("DEL"), key(at)]],
            Fault::Persist(at) => vec![vec![word("PERSIST"), key(at)]],
            Fault::ShortenTo(at, ms) => {
                vec![vec![word("PEXPIRE"), key(at), text(ms as i64)]]
            }
            Fault::ListTwice(member, end) => {
                let id = self.member(member);
                let score = text(now_ms as i64 + 5_000);
                vec![
                    vec![push(end), queue.clone(), id.clone()],
                    vec![word("RPUSH"), queue, id.clone()],
                    vec![word("ZADD"), scores, score, id],
                ]
            }
            Fault::ListOnly(member, end) => {
                let id = self.member(member);
                vec![vec![word("ZREM"), scores, id.clone()], vec![push(end), queue, id]]
            }
            Fault::ScoreOnly(member) => {
                let id = self.member(member);
                vec![
                    vec![word("LREM"), queue, text(0), id.clone()],
                    vec![word("ZADD"), scores, text(now_ms as i64 + 60_000), id],
                ]
            }
            Fault::ScoreAt(member, ms) => {
                let at = text(now_ms as i64 + ms);
                vec![vec![word("ZADD"), scores, word("XX"), at, self.member(member)]]
            }
            Fault::OrderOnly(number) => {
                vec![vec![word("ZADD"), order, text(now_us as i64 - 7), owner(number).to_bytes()]]
            }
            Fault::OrderGone(number) => vec![vec![word("ZREM"), order, owner(number).to_bytes()]],
            Fault::RecordGone(number) => vec![vec![word("HDEL"), state, owner(number).to_bytes()]],
            Fault::BeatAt(number, ms) => {
                let id = client(number).to_string().into_bytes();
                vec![vec![word("ZADD"), beats, text(now_ms as i64 + ms), id]]
            }
            Fault::HolderQueued => match holder {
                None => vec![],
                Some(id) => vec![
                    vec![word("ZADD"), scores, text(now_ms as i64 + 60_000), id.clone()],
                    vec![word("RPUSH"), queue, id],
                ],
            },
            Fault::Crowd(size) => (0..size)
                .rev()
                .flat_map(|number| {
                    let gone = client(9);
                    let id = OwnerId::ours(gone, 1 + number).expect("a legal number").to_bytes();
                    let record = format!("{} 30000 0", request(9, number)).into_bytes();
                    let at = now_us as i64 - 1_000_000_000 + number as i64;
                    [
                        vec![word("LPUSH"), queue.clone(), id.clone()],
                        vec![
                            word("ZADD"),
                            scores.clone(),
                            text(now_ms as i64 + 60_000),
                            id.clone(),
                        ],
                        vec![word("ZADD"), order.clone(), text(at), id.clone()],
                        vec![word("HSET"), state.clone(), id, record],
                    ]
                })
                .collect(),
            Fault::Count(count) => match holder {
                None => vec![],
                Some(id) => vec![vec![word("HSET"), lock, id, text(count)]],
            },
            Fault::Hash(fields, ttl) => {
                let mut set = vec![word("HSET"), lock.clone()];
                set.extend(fields.iter().flat_map(|(field, value)| [word(field), word(value)]));
                let mut commands = vec![vec![word("DEL"), lock.clone()], set];
                if let Some(ms) = ttl {
                    commands.push(vec![word("PEXPIREAT"), lock, text((now_ms + ms) as i64)]);
                }
                commands
            }
            Fault::TokenBack(by) => {
                let back = last.saturating_sub(by).max(1);
                vec![vec![word("SET"), token, text(back as i64)]]
            }
            Fault::TokenAhead(by) => vec![vec![word("SET"), token, text((last + by) as i64)]],
            Fault::Value(written, ttl) => {
                let value = match written {
                    Written::Text(text) => word(text),
                    Written::Long(bytes) => vec![b'x'; bytes],
                    Written::Ours(number, token) => {
                        format!("{}:{}:{token}", owner(number), request(number, 0)).into_bytes()
                    }
                };
                let mut set = vec![word("SET"), lock, value];
                if let Some(ms) = ttl {
                    set.extend([word("PXAT"), text((now_ms + ms) as i64)]);
                }
                vec![set]
            }
            Fault::TokenIs(value) => vec![vec![word("SET"), token, word(value)]],
        };
        for command in commands {
            self.fixture.raw.call(&command);
        }
        self.count("fault");
    }
}
