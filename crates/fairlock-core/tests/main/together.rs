//! Two requests for the same two locks, which their callers name in opposite orders, beside a holder
//! of one of them: every interleaving, and losses anywhere. Nobody may wait for ever.

use crate::search::{End, Situation, explore};
use crate::support::{Ears, ours, request};
use fairlock_core::client::{Take, Together, order_of};
use fairlock_core::{Acquire, Body, Kind, LockName, LockState, Mode, Op, OwnerId, Rules, Token};
use std::hash::{DefaultHasher, Hash, Hasher};

const NOW_US: u64 = 1_760_000_000_000_000;
/// Enough for every interleaving: the explorations end by themselves.
const DEPTH: usize = 60;
/// More than all of them need once nothing is lost any more.
const ROUNDS: usize = 12;

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flaw {
    None,
    /// They are taken in the order in which the caller names them.
    CallersOrder,
    /// Who has lost one asks for that one again, and keeps the others.
    KeepsTheRest,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    /// The request does what is next: asks, finds out what it has, or gives back.
    Step(usize),
    /// The one that held a lock before lets go.
    Outsider,
    /// Somebody takes this lock from its holder by force.
    Lose(usize),
}

/// A request for both.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Several {
    number: u64,
    /// Which lock each member is.
    order: Vec<usize>,
    course: Together,
    /// The tokens of what it holds, and what it asks with at present.
    held: Vec<(usize, Token)>,
    /// The lock that it has lost, while it asks for that again: only with the flaw.
    regains: Option<usize>,
    asks: u64,
    done: bool,
}

#[derive(Clone)]
struct Two {
    flaw: Flaw,
    locks: [LockState; 2],
    requests: [Several; 2],
    outsider: Option<Token>,
    losses: u8,
}

fn rules() -> Rules {
    Rules::default()
}

impl Several {
    fn owner(&self) -> OwnerId {
        ours(self.number, 1)
    }

    fn ask(&self, mode: Mode) -> Op {
        Op::Acquire(Acquire {
            kind: Kind::Fair,
            owner: self.owner(),
            request: request(1_000 * self.number + self.asks),
            lease_ms: 30_000,
            mode,
            order: None,
            not_after_ms: u64::MAX,
            sure: false,
            shared_owner: false,
        })
    }

    fn has(&self, locks: &[LockState; 2], (lock, token): (usize, Token)) -> bool {
        let keys = locks[lock].snapshot();
        keys.hold.contains_key(&self.owner()) && keys.token.is_some_and(|last| last >= token.get())
    }

    /// One step of it.
    fn step(&mut self, locks: &mut [LockState; 2], flaw: Flaw) {
        if let Some(lost) = self.held.iter().copied().find(|held| !self.has(locks, *held)) {
            return self.lose(locks, lost, flaw);
        }
        if let Some(lock) = self.regains {
            if let Some(token) = take(&mut locks[lock], &self.ask(Mode::Wait)) {
                self.held.push((lock, token));
                self.regains = None;
                self.asks += 1;
            }
            return;
        }
        match self.course.next() {
            Take::Group(group) => {
                let all: Vec<_> = self.order[group].to_vec();
                let op = self.ask(Mode::Try);
                let free = all
                    .iter()
                    .all(|lock| locks[*lock].would_grant(NOW_US, &op, &rules(), &Ears::default()));
                if free {
                    for lock in all {
                        let token = take(&mut locks[lock], &op).unwrap();
                        self.held.push((lock, token));
                    }
                }
                self.asks += 1;
                self.course.group(free);
            }
            Take::One(one) => {
                let lock = self.order[one];
                if let Some(token) = take(&mut locks[lock], &self.ask(Mode::Wait)) {
                    self.held.push((lock, token));
                    self.asks += 1;
                    self.course.one(true);
                }
            }
            Take::Held => {
                self.give_back(locks);
                self.done = true;
            }
            Take::Nothing => unreachable!("it waits"),
        }
    }

    fn lose(&mut self, locks: &mut [LockState; 2], lost: (usize, Token), flaw: Flaw) {
        if flaw == Flaw::KeepsTheRest {
            self.held.retain(|held| *held != lost);
            self.regains = Some(lost.0);
            return;
        }
        let (owner, request) = (self.owner(), request(1_000 * self.number + self.asks));
        let leave =
            Op::Leave { kind: Kind::Fair, owner, request, bury: false, shared_owner: false };
        for lock in locks.iter_mut() {
            apply(lock, &leave);
        }
        self.give_back(locks);
        self.asks += 1;
        self.course.again();
    }

    fn give_back(&mut self, locks: &mut [LockState; 2]) {
        for (lock, token) in std::mem::take(&mut self.held) {
            apply(&mut locks[lock], &release(self.owner(), token));
        }
    }
}

fn release(owner: OwnerId, token: Token) -> Op {
    Op::Release { kind: Kind::Fair, owner, token, keep: 0, change: 1 }
}

fn apply(lock: &mut LockState, op: &Op) -> Body {
    lock.apply(NOW_US, op, &rules(), &Ears::default()).unwrap().0.body
}

fn take(lock: &mut LockState, op: &Op) -> Option<Token> {
    match apply(lock, op) {
        Body::Granted { token, .. } => Some(token),
        _ => None,
    }
}

impl Two {
    fn new(flaw: Flaw, losses: u8) -> Self {
        let names = ["a", "b"].map(|name| LockName::new(name.as_bytes()).unwrap());
        let request = |number: u64, callers: [usize; 2]| {
            let called = callers.map(|lock| names[lock].clone());
            let order = match flaw {
                Flaw::CallersOrder => callers.to_vec(),
                _ => order_of(&called).unwrap().into_iter().map(|n| callers[n]).collect(),
            };
            let course = Together::new(&[0, 0], true);
            let (held, regains) = (Vec::new(), None);
            Several { number, order, course, held, regains, asks: 0, done: false }
        };
        let requests = [request(1, [0, 1]), request(2, [1, 0])];
        let mut locks = [LockState::default(), LockState::default()];
        let outsider = Several { number: 3, ..requests[0].clone() };
        let token = take(&mut locks[1], &outsider.ask(Mode::Try));
        Self { flaw, locks, requests, outsider: token, losses }
    }

    fn step_of(&mut self, which: usize) {
        self.requests[which].step(&mut self.locks, self.flaw);
    }
}

impl Situation for Two {
    type Move = Move;

    fn moves(&self, out: &mut Vec<Move>) {
        out.clear();
        out.extend((0..2).filter(|which| !self.requests[*which].done).map(Move::Step));
        out.extend(self.outsider.map(|_| Move::Outsider));
        if self.losses > 0 {
            out.extend((0..2).map(Move::Lose));
        }
    }

    fn step(&mut self, choice: Move) {
        match choice {
            Move::Step(which) => self.step_of(which),
            Move::Outsider => {
                if let Some(token) = self.outsider.take() {
                    apply(&mut self.locks[1], &release(ours(3, 1), token));
                }
            }
            Move::Lose(lock) => {
                self.losses -= 1;
                apply(&mut self.locks[lock], &Op::Force { kind: Kind::Fair });
            }
        }
    }

    /// Whoever has both is alone with both.
    fn check(&self) -> Result<(), String> {
        let has_both = |it: &&Several| {
            it.held.len() == 2 && it.held.iter().all(|held| it.has(&self.locks, *held))
        };
        match self.requests.iter().filter(has_both).count() {
            0 | 1 => Ok(()),
            _ => Err("both have both".to_owned()),
        }
    }

    fn key(&self) -> u64 {
        let mut h = DefaultHasher::new();
        (&self.locks, &self.requests, self.outsider.is_some(), self.losses).hash(&mut h);
        h.finish()
    }

    fn served(mut self, end: End) -> Result<(), String> {
        self.losses = 0;
        self.step(Move::Outsider);
        for _ in 0..ROUNDS {
            for which in if end.last_first { [1, 0] } else { [0, 1] } {
                if !self.requests[which].done {
                    self.step_of(which);
                }
            }
            if self.requests.iter().all(|it| it.done) {
                return match self.locks.iter().all(|lock| lock.snapshot().hold.is_empty()) {
                    true => Ok(()),
                    false => Err("something is still held".to_owned()),
                };
            }
        }
        Err("they wait for each other".to_owned())
    }
}

fn wrong(flaw: Flaw, losses: u8) -> Option<String> {
    let found = explore(&format!("{flaw:?}, {losses} losses"), Two::new(flaw, losses), DEPTH, 1);
    found.wrong.map(|(what, path)| format!("{what}: {path:?}"))
}

/// B34, and B36 and B37 as far as they apply.
#[test]
fn b34_one_order_has_no_circle_whatever_is_lost() {
    for losses in 0..=3 {
        assert_eq!(wrong(Flaw::None, losses), None);
    }
}

#[test]
fn the_order_of_the_callers_has_one() {
    assert!(wrong(Flaw::CallersOrder, 0).unwrap().starts_with("they wait for each other"));
}

#[test]
fn so_does_keeping_the_rest_after_a_loss() {
    assert_eq!(wrong(Flaw::KeepsTheRest, 0), None);
    assert!(wrong(Flaw::KeepsTheRest, 1).unwrap().starts_with("they wait for each other"));
}
