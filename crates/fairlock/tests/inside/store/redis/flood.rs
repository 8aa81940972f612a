//! D48: messages of every kind flood the inboxes of a holder and of a waiter.

use super::reply::InboxMessage;
use crate::{Client, GuardState};
use fairlock_core::{Grant, OwnerId, RequestId, Token};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

/// Messages of each kind, to each of the two inboxes.
const FLOOD: usize = 10_000;

/// What a sender can know.
struct Known {
    owner: OwnerId,
    token: Token,
    waits: RequestId,
}

/// The kind that follows this one. A new kind does not compile until it is here.
fn after(kind: Option<&InboxMessage>, known: &Known) -> Option<InboxMessage> {
    let grant = || Grant { request: RequestId::from_random(7), token: known.token, ttl_ms: 6_000 };
    Some(match kind {
        None => InboxMessage::Grant(grant(), 1_000),
        Some(InboxMessage::Grant(..)) => InboxMessage::Cohort(vec![grant(), grant()], 1_000),
        Some(InboxMessage::Cohort(..)) => InboxMessage::Guests(known.waits),
        Some(InboxMessage::Guests(_)) => InboxMessage::Forced(known.owner.clone(), known.token),
        Some(InboxMessage::Forced(..)) => return None,
    })
}

fn text(message: &InboxMessage) -> String {
    let of = |grant: &Grant| format!("{} {}", grant.request, grant.token);
    match message {
        InboxMessage::Grant(grant, at_ms) => format!("g1 {} {at_ms} {}", of(grant), grant.ttl_ms),
        InboxMessage::Cohort(grants, at_ms) => {
            let all = grants.iter().map(|grant| format!(" {} {}", of(grant), grant.ttl_ms));
            format!("g2 {at_ms}{}", all.collect::<String>())
        }
        InboxMessage::Guests(request) => format!("w1 {request}"),
        InboxMessage::Forced(owner, token) => format!("f1 {owner} {token}"),
    }
}

#[test]
fn d48_a_flood_of_any_kind_of_message_is_paced() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (holder, other) = (
            Client::connect(&server.url()).await.unwrap(),
            Client::connect(&server.url()).await.unwrap(),
        );
        let guard = holder.fair_lock("job").lock().await.unwrap();
        let lock = other.fair_lock("job");
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        let mut raw = server.client();
        let record = loop {
            let waiting = raw.call(&["LRANGE", "redisson_lock_queue:{job}", "0", "0"]);
            if let Some(id) = waiting.array().first() {
                break raw.call(&["HGET", "fairlock_state:{job}", id.text()]).text().to_owned();
            }
        };
        let waits = RequestId::parse(record.split(' ').next().unwrap().as_bytes()).unwrap();
        let known = Known { owner: guard.owner().clone(), token: guard.token(), waits };
        let inboxes = [&holder, &other].map(|client| format!("fairlock_inbox:{}", client.id()));
        let mut next = after(None, &known);
        while let Some(message) = next {
            let payload = text(&message);
            assert_eq!(
                InboxMessage::parse(payload.as_bytes()).as_ref(),
                Some(&message),
                "{payload}"
            );
            let (began, calls) = (Instant::now(), server.script_calls());
            for _ in 0..FLOOD / 100 {
                (0..100).for_each(|at| raw.send(&["PUBLISH", &inboxes[at % 2], &payload]));
                (0..100).for_each(|at| assert_eq!(raw.read().unwrap().int(), 1, "message {at}"));
            }
            // What is still on its way: this test is about time.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let calls = server.script_calls() - calls;
            // Twenty a second of each client, the first few at once, and heartbeats.
            let most = began.elapsed().as_secs_f64() * 2.0 * 20.0 + 16.0;
            println!("measured: d48 {payload:.2}: {calls} scripts for {FLOOD} messages");
            assert!((calls as f64) <= most, "{payload}: {calls} scripts, at most {most}");
            assert_eq!(guard.state(), GuardState::Held);
            next = after(Some(&message), &known);
        }
        waiter.abort();
    });
}
