//! Many clients of one file in one process.

use super::Fixture;
use crate::faults::fixture::measured;
use crate::support::runtime;
use fairlock::{Client, Config, Release};
use std::time::{Duration, Instant};

/// So many that what each one does while it waits is more than what two processors can do.
const CLIENTS: usize = 1_000;

/// So few that they are in nobody's way.
const FEW: usize = 50;

/// A grant lasts for as long at least, so that a busy machine loses none.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// A thousand clients of one process that took turns at ten locks took half a minute for it, and lost some: each
/// tried to get the file every two milliseconds. The same number of turns by few of them is the measure, so that a
/// busy machine is one for both.
#[test]
fn d44_a_crowd_of_clients_in_one_process_takes_its_turns() {
    let fixture = Fixture::new();
    let few = turns(&fixture, FEW);
    let crowd = turns(&fixture, CLIENTS);
    measured("the turns of few", few);
    measured("the turns of a crowd", crowd);
    assert!(crowd < 20 * few + Duration::from_secs(2), "{crowd:?}, beside {few:?} by few");
}

/// How long as many turns as the crowd has clients take these.
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
