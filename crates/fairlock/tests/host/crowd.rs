//! Many clients of one file in one process.

use super::Fixture;
use crate::faults::fixture::measured;
use crate::support::runtime;
use fairlock::{Client, Config, Release};
use std::time::{Duration, Instant};

/// So many that the work of their waiting exceeds what two processors can do.
const CLIENTS: usize = 1_000;

/// So few that they do not disturb each other.
const FEW: usize = 50;

/// A grant lasts at least this long, so that none is lost on a busy machine.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// A thousand clients of one process that took turns at ten locks needed half a minute, and lost
/// some: each tried to get the file every two milliseconds. The reference is the same number of
/// turns taken by few clients, so that a busy machine slows down both.
#[test]
fn d44_a_crowd_of_clients_in_one_process_takes_its_turns() {
    let fixture = Fixture::new();
    let few = turns(&fixture, FEW);
    let crowd = turns(&fixture, CLIENTS);
    measured("the turns of few", few);
    measured("the turns of a crowd", crowd);
    assert!(crowd < 20 * few + Duration::from_secs(2), "{crowd:?}, beside {few:?} by few");
}

/// How long these clients need for as many turns as the crowd has clients.
fn turns(fixture: &Fixture, clients: usize) -> Duration {
    runtime().block_on(async {
        let mut crowd = Vec::new();
        for _ in 0..clients {
            let config = Config::from_url(&fixture.url()).unwrap().heartbeat(HEARTBEAT);
            crowd.push(Client::with_config(config).await.unwrap());
        }
        let began = Instant::now();
        let turns: Vec<_> = crowd
            .iter()
            .enumerate()
            .map(|(at, client)| {
                let lock = client.fair_lock(format!("lock {}", at % 10));
                tokio::spawn(async move {
                    for _ in 0..CLIENTS / clients {
                        let released = lock.lock().await.unwrap().release().await.unwrap();
                        assert_eq!(released, Release::Released);
                    }
                })
            })
            .collect();
        for turn in turns {
            turn.await.unwrap();
        }
        let took = began.elapsed();
        let ended = crowd.into_iter().map(|client| tokio::spawn(client.shutdown()));
        for end in ended.collect::<Vec<_>>() {
            end.await.unwrap();
        }
        took
    })
}
