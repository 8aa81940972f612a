//! Many clients of one file in one process.

use super::Bed;
use crate::faults::bed::measured;
use crate::support::runtime;
use fairlock::{Client, Release};
use std::time::Instant;

/// So many that what each one does while it waits is more than what two processors can do.
const CLIENTS: usize = 1_000;

/// A thousand clients of one process that took turns at ten locks took half a minute for it, and lost some: each
/// tried to get the file every two milliseconds.
#[test]
fn d44_a_crowd_of_clients_in_one_process_takes_its_turns() {
    let bed = Bed::new();
    runtime().block_on(async {
        let mut crowd = Vec::new();
        let began = Instant::now();
        for _ in 0..CLIENTS {
            crowd.push(Client::connect(&bed.url()).await.unwrap());
        }
        measured("connect", began.elapsed());
        let began = Instant::now();
        let turns: Vec<_> = crowd
            .iter()
            .enumerate()
            .map(|(at, client)| {
                let lock = client.fair_lock(format!("lock {}", at % 10));
                tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
            })
            .collect();
        let mut odd = 0;
        for turn in turns {
            odd += usize::from(turn.await.unwrap() != Release::Released);
        }
        measured("all turns", began.elapsed());
        let began = Instant::now();
        let ended = crowd.into_iter().map(|client| tokio::spawn(client.shutdown()));
        for end in ended.collect::<Vec<_>>() {
            end.await.unwrap();
        }
        measured("shutdown", began.elapsed());
        assert_eq!(odd, 0, "releases that were not plainly released");
    });
}
