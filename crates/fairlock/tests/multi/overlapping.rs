//! Many that want some of eight locks each, in any order, while tasks are ended, locks are taken away and clients
//! are cut off. Judged: nobody has a valid lock beside another, tokens rise, and everybody gets on.

use crate::support::run_paused;
use fairlock::test_util::Sandbox;
use fairlock::{Client, FencingToken, GuardState, MultiGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const CLIENTS: usize = 4;
const TASKS: usize = 16;

/// Who had each lock last, and what was found wrong.
#[derive(Default)]
struct Judge {
    last: BTreeMap<String, (FencingToken, Weak<MultiGuard>)>,
    rounds: [u32; TASKS],
}

impl Judge {
    fn entered(&mut self, guard: &Arc<MultiGuard>) {
        for of in guard.guards() {
            let name = of.name().to_string();
            if let Some((token, before)) = self.last.get(&name) {
                assert!(*token < of.token(), "{name}: tokens rise");
                let state = before.upgrade().map(|before| {
                    let of = before.guards().find(|of| of.name().to_string() == name);
                    of.map(fairlock::Guard::state)
                });
                let is_valid = state.flatten().is_some_and(|state| state != GuardState::Lost);
                assert!(!is_valid || of.state() == GuardState::Lost, "{name}: two have it");
            }
            self.last.insert(name, (of.token(), Arc::downgrade(guard)));
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    /// Two to four names, in any order.
    fn names(&mut self) -> Vec<&'static str> {
        let (mut left, count) = (NAMES.to_vec(), 2 + self.below(3));
        (0..count).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

fn worker(client: Client, number: usize, seed: u64, judge: Arc<Mutex<Judge>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut random = Random(seed);
        loop {
            let lock = client.multi_lock(random.names()).unwrap();
            let guard = match random.below(4) {
                0 => lock.try_lock().await,
                1 => lock.try_lock_for(Duration::from_secs(2)).await,
                _ => lock.lock().await.map(Some),
            };
            // One that is cut off has errors, for as long as that lasts.
            if let Ok(Some(guard)) = guard {
                let guard = Arc::new(guard);
                judge.lock().unwrap().entered(&guard);
                tokio::time::sleep(Duration::from_millis(50 + random.below(250) as u64)).await;
                judge.lock().unwrap().rounds[number] += 1;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

async fn play(seed: u64) {
    let sandbox = Sandbox::new();
    let clients: Vec<_> = (0..CLIENTS).map(|_| sandbox.client()).collect();
    let judge = Arc::new(Mutex::new(Judge::default()));
    let start = |number: usize, seed: u64| {
        worker(clients[number % CLIENTS].clone(), number, seed, Arc::clone(&judge))
    };
    let mut random = Random(seed);
    let mut tasks: Vec<_> = (0..TASKS).map(|n| start(n, seed + n as u64)).collect();
    for event in 0..120_u64 {
        tokio::time::sleep(Duration::from_millis(50 + random.below(1_000) as u64)).await;
        match random.below(10) {
            0..6 => {
                let number = random.below(TASKS);
                tasks[number].abort();
                tasks[number] = start(number, seed + 1_000 * (event + 1));
            }
            6..9 => _ = sandbox.lose(NAMES[random.below(NAMES.len())]),
            _ => {
                let client = &clients[random.below(CLIENTS)];
                sandbox.cut_off(client);
                tokio::time::sleep(Duration::from_millis(random.below(2) as u64 * 40_000)).await;
                sandbox.restore(client);
            }
        }
    }
    // Nothing fails any more: each of them gets on.
    let before = judge.lock().unwrap().rounds;
    let everyone_got_on = async {
        while judge
            .lock()
            .unwrap()
            .rounds
            .iter()
            .zip(&before)
            .any(|(after, before)| after == before)
        {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(120), everyone_got_on).await;
    assert!(in_time.is_ok(), "seed {seed}: {before:?} {:?}", judge.lock().unwrap().rounds);
    for task in tasks {
        assert!(!task.is_finished(), "seed {seed}: it has panicked");
        task.abort();
    }
    let all = clients[0].multi_lock(NAMES).unwrap();
    let all = tokio::time::timeout(Duration::from_secs(60), all.lock()).await;
    let _ = all.expect("all of them").unwrap().release().await.unwrap();
}

#[test]
fn eight_names_with_deaths_and_losses() {
    for seed in 1..=2 {
        run_paused(play(seed * 1_000_003));
    }
}
