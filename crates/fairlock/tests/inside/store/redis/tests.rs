use super::keys::Publishing;
use super::script::{self, By};
use super::*;
use crate::base::clock::Moment;
use fairlock_core::{Acquire, Kind, LockName, Mode, OwnerId, RequestId, Rules, Share};
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
    // No call is given up because the machine was busy.
    let config = Config::from_url(&proxy.url()).unwrap().response_timeout(Duration::from_secs(60));
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

/// The clock of the server went forward by an hour between the script's first line and its last: the line was over when
/// it was given a life. Whoever entered it was told the place 0, which is none, and its client ended in a panic. Found
/// by torture.
#[test]
fn who_enters_a_line_that_is_over_at_once_is_told_its_place() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let name = LockName::new(b"c").unwrap();
    let (rules, mut raw) = (Rules::default(), server.client());
    let mut asks = |number: u64, clock: &str| {
        let acquire = Acquire {
            kind: Kind::ReadWrite,
            owner: OwnerId::ours(ClientId::from_random(number.into()), 1).unwrap(),
            request: RequestId::from_random(number.into()),
            lease_ms: 30_000,
            mode: Mode::Wait,
            order: None,
            not_after_ms: 4_000_000_000_000,
            sure: true,
            shared_owner: false,
        };
        let op = Op::asks(acquire, Share::Whole);
        let mut words = script::call(By::Text, &rules, Publishing::Whole, &name, &op).words();
        let text = String::from_utf8(words[1].clone()).unwrap();
        assert!(text.contains("call('TIME')"));
        words[1] = text.replace("call('TIME')", clock).into_bytes();
        let reply = raw.call(&words);
        reply.text().split(' ').map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(asks(1, "call('TIME')")[2], "granted");
    let waits = asks(2, "{ '1000000000', '5' }");
    assert_eq!(waits[2..4], ["queued", "1000000000000005"], "{waits:?}");
}

/// A connection that was being made when the command connection moved led to the old server, and stayed there: its replicas
/// confirmed what the new server lacked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_made_anew_meanwhile_leads_to_the_new_server() {
    let Some(old) = Server::start(Generation::Redis70) else { return };
    let Some(new) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(old.addr());
    let patience = Duration::from_secs(60);
    let config = Config::from_url(&proxy.url()).unwrap();
    let config = config.connect_timeout(patience).response_timeout(patience);
    proxy.black_hole_to_client(true);
    let link = Link::new(Place::new(&config).unwrap(), &config, None, Arc::new(|_| {}));
    tokio::spawn(kept(Arc::clone(&link), Link::run));
    proxy.wait_until(|counts| counts.replies_black_holed > 0);
    proxy.move_to(new.addr());
    link.make_anew();
    proxy.black_hole_to_client(false);
    link.ready().await;
    let mut port = wire::cmd("CONFIG");
    port.arg("GET").arg("port");
    let reply = link.connection().expect("it is ready").call(&port).await.unwrap();
    let bytes = |text: String| Value::BulkString(text.into_bytes());
    let expected = [(bytes("port".into()), bytes(new.port().to_string()))];
    assert_eq!(reply, Value::Map(expected.into()));
}
