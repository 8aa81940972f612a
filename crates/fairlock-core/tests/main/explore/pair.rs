//! Two locks and clients that use both: each client has one inbox, one clock and one life.

use super::{Budget, Move, SERVED_WITHIN, Scene, TICK, step};
use crate::canon::fingerprint;
use crate::client::Flaw;
use crate::search::{End, Situation};
use crate::sim::Sim;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A move at one of the two locks.
pub(crate) type At = (usize, Move);

#[derive(Clone)]
pub(crate) struct Pair<'a> {
    scene: &'a Scene,
    sims: [Sim; 2],
    budgets: [Budget; 2],
}

impl<'a> Pair<'a> {
    /// Plays `scene.before` at each of the two.
    pub(crate) fn new(scene: &'a Scene) -> Self {
        let (first, mut second) = (scene.begin(), scene.begin());
        if scene.flaw != Flaw::RequestsPerLock {
            second.clients.iter_mut().for_each(|client| client.number_from(500));
        }
        let budgets = [scene.budget.clone(), scene.budget.clone()];
        let mut pair = Self { scene, sims: [first, second], budgets };
        for at in 0..2 {
            for choice in scene.before() {
                pair.step((at, choice));
            }
        }
        pair
    }

    /// The server's time that a client hears at one lock also holds at the other.
    fn share_time(&mut self, from: usize) {
        let [first, second] = &mut self.sims;
        let (from, to) = if from == 0 { (first, second) } else { (second, first) };
        for (heard, client) in from.clients.iter().zip(&mut to.clients) {
            client.heard = heard.heard;
        }
    }
}

impl Situation for Pair<'_> {
    type Move = At;

    fn moves(&self, out: &mut Vec<At>) {
        out.clear();
        let mut here = Vec::new();
        for at in 0..2 {
            self.scene.moves(&self.sims[at], &self.budgets[at], &mut here);
            // Moves that concern a client as a whole, or all of them, happen at both.
            let once = |choice: &Move| {
                !matches!(
                    choice,
                    Move::Pass(_) | Move::Deafen(_) | Move::Disconnect(_) | Move::Connect(_)
                )
            };
            out.extend(here.iter().filter(|m| at == 0 || once(m)).map(|m| (at, *m)));
        }
    }

    fn step(&mut self, (at, choice): At) {
        let message = match choice {
            Move::Read(place) => Some(self.sims[at].messages[place].clone()),
            _ => None,
        };
        step(&mut self.sims[at], &mut self.budgets[at], choice);
        let other = &mut self.sims[1 - at];
        match choice {
            Move::Hear(_) => self.share_time(at),
            Move::Read(_) => {
                // One inbox: the client's waiter at the other lock sees the message, too.
                other.read_copy_of(&message.expect("cloned above"));
            }
            Move::Pass(ms) => other.now += ms,
            Move::Disconnect(i) => other.disconnect(i),
            Move::Connect(i) => other.connect(i),
            Move::Deafen(i) => other.subscribe(i, false),
            Move::Subscribe(i) => other.subscribe(i, true),
            _ => {}
        }
    }

    fn check(&self) -> Result<(), String> {
        self.sims.iter().try_for_each(Sim::check)
    }

    fn key(&self) -> u64 {
        let mut h = DefaultHasher::new();
        for (sim, budget) in self.sims.iter().zip(&self.budgets) {
            fingerprint(sim, budget, false).hash(&mut h);
        }
        h.finish()
    }

    fn served(self, end: End) -> Result<(), String> {
        let mut sims = self.sims;
        for sim in &mut sims {
            sim.end_faults(end.lose);
            sim.settle();
        }
        for _ in 0..SERVED_WITHIN {
            if sims.iter().all(Sim::is_served) {
                return sims.into_iter().try_for_each(Sim::nothing_remains);
            }
            for sim in &mut sims {
                sim.now += TICK;
                sim.calm_round(end.last_first);
                sim.check()?;
            }
        }
        Err(format!("not served: {:#?}", sims.map(|sim| sim.clients)))
    }
}
