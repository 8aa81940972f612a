use super::*;
use crate::base::clock::Moment;
use fairlock_core::LockName;
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;

/// How late replies are.
const LATE: Duration = Duration::from_millis(300);

/// A12, R5: the time that a reply grants counts from the sending of the very copy that it answers.
/// Counted from the reply's arrival, a guard would be valid for up to a round trip after the TTL on
/// the server.
#[tokio::test]
async fn a12_a_reply_counts_from_when_its_copy_was_sent() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(server.addr());
    let config = Config::from_url(&proxy.url()).unwrap();
    let store = RedisStore::start(&config, ClientId::from_random(7), Arc::new(|_| {})).unwrap();
    store.contact(Moment::now()).await.unwrap();
    store.ready(None).await;
    let name = LockName::new(b"job").unwrap();
    proxy.delay_to_client(LATE);
    // The first call finds the script unknown and is sent twice; the second only once.
    for copies in [2, 1] {
        let began = Moment::now();
        let reply = store.call(&name, &Op::Nudge).await.unwrap();
        let arrived = Moment::now();
        assert!(arrived.since(began) >= LATE * copies, "the proxy delays");
        assert!(reply.sent >= began.plus(LATE * (copies - 1)), "the last copy's own sending");
        assert!(arrived.since(reply.sent) >= LATE, "not its arrival");
    }
}

/// A record that an operator deletes, or that is about to expire, is restored by the next refresh
/// with the same content. After the removal no refresh brings it back.
#[tokio::test]
async fn a_record_is_kept_and_then_removed() {
    const PERIOD: Duration = Duration::from_millis(10);
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let id = ClientId::from_random(7);
    let key = keys::client(id);
    let config = Config::from_url(&server.url()).unwrap().label("nightly");
    let store = RedisStore::start(&config, id, Arc::new(|_| {})).unwrap();
    store.contact(Moment::now()).await.unwrap();
    let known = store.clients(&[id]).await[&id].clone();
    assert_eq!((known.pid, known.label.as_deref()), (std::process::id(), Some("nightly")));

    let record = store.record.clone().unwrap();
    tokio::spawn(link::keep_record(Arc::clone(store.link()), record, PERIOD));
    let mut raw = server.client();
    let ttl_ms = |raw: &mut Raw| raw.call(&[b"PTTL".as_slice(), &key]).int();
    raw.call(&[b"PEXPIRE".as_slice(), &key, b"5000"]);
    while ttl_ms(&mut raw) < 80_000 {
        tokio::time::sleep(PERIOD).await;
    }
    assert_eq!(store.clients(&[id]).await[&id], known);
    raw.call(&[b"DEL".as_slice(), &key]);
    while ttl_ms(&mut raw) < 80_000 {
        tokio::time::sleep(PERIOD).await;
    }
    let again = store.clients(&[id]).await[&id].clone();
    let moved =
        again.since.duration_since(known.since).unwrap_or_else(|earlier| earlier.duration());
    assert!(moved < Duration::from_secs(2), "the client is as old as it was: {moved:?}");

    store.farewell().await;
    // The test is about time: wait for the refreshes that would have come.
    tokio::time::sleep(5 * PERIOD).await;
    assert_eq!(ttl_ms(&mut raw), -2, "it is gone");
    assert_eq!(store.clients(&[id]).await.len(), 0);
}
