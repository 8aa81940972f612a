use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::server::{Generation, Server};
use crate::wait;

/// Counts its own executions: on the server, how often a request took effect.
const COUNT: &[&str] = &["EVAL", "return redis.call('INCR', KEYS[1])", "1", "n"];
const SHORT: Duration = Duration::from_millis(50);

struct Fixture {
    server: Server,
    proxy: Proxy,
}

impl Fixture {
    fn new() -> Option<Self> {
        let server = Server::start(Generation::Redis70)?;
        let proxy = Proxy::start(server.addr());
        Some(Self { server, proxy })
    }

    fn client(&self) -> Raw {
        Raw::connect(self.proxy.addr())
    }

    /// A client that has been accepted, so that controls for existing connections apply to it.
    fn connected(&self) -> Raw {
        let mut raw = self.client();
        raw.call(&["PING"]);
        raw
    }

    /// How often the script was executed.
    fn executed(&self) -> i64 {
        match self.server.client().call(&["GET", "n"]) {
            Value::Nil => 0,
            count => count.text().parse().unwrap(),
        }
    }

    #[track_caller]
    fn wait_executed(&self, count: i64) {
        let is_so = wait::holds(WAIT_WITHIN, || self.executed() == count);
        assert!(is_so, "executed {} times", self.executed());
    }
}

fn is_closed(raw: &mut Raw) -> bool {
    match raw.try_call(&["PING"]) {
        Ok(_) => false,
        Err(error) => error.kind() != io::ErrorKind::TimedOut,
    }
}

fn is_silent(raw: &mut Raw) -> bool {
    raw.read_within(SHORT).unwrap().is_none()
}

#[test]
fn without_faults_everything_passes_in_both_protocols() {
    let Some(fixture) = Fixture::new() else { return };
    for hello in ["2", "3"] {
        let mut raw = fixture.client();
        raw.call(&["HELLO", hello]);
        raw.call(&["HSET", "h", "f", "v"]);
        assert_eq!(raw.call(&["HGETALL", "h"]).array().len(), 2);
        assert!(raw.call(&["GET", "no such key"]).is_nil());
        let large = "x".repeat(1_000_000);
        assert_eq!(raw.call(&["ECHO", &large]).text(), large);
        for _ in 0..100 {
            raw.send(&["PING"]);
        }
        for _ in 0..100 {
            assert_eq!(raw.read().unwrap().text(), "PONG");
        }
    }
    assert_eq!(fixture.proxy.counts().connections, 2);
}

#[test]
fn a_lost_reply_was_executed_and_the_connection_stays_silent() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.proxy.drop_replies(1);
    let mut raw = fixture.client();
    // Other commands, and a script that the server does not know, are not affected.
    raw.call(&["PING"]);
    let unknown = "0".repeat(40);
    assert!(matches!(raw.call(&["EVALSHA", &unknown, "0"]), Value::Error(_)));
    raw.send(COUNT);
    raw.send(&["PING"]);
    assert!(is_silent(&mut raw));
    assert_eq!(fixture.executed(), 1);
    assert_eq!(fixture.proxy.counts().replies_dropped, 1);
    assert_eq!(fixture.client().call(COUNT).int(), 2, "only one was to be lost");
}

#[test]
fn a_lost_reply_may_cut_the_connection() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.proxy.drop_replies(2);
    fixture.proxy.cut_after_reply_lost(true);
    for count in 1..=2 {
        let mut raw = fixture.client();
        assert!(raw.try_call(COUNT).is_err());
        assert_eq!(fixture.executed(), count);
        // While the client's own end is still open.
        fixture.proxy.wait_until(|counts| counts.connections_cut == count.unsigned_abs());
    }
    assert_eq!(fixture.client().call(COUNT).int(), 3);
    assert_eq!(fixture.proxy.counts().replies_dropped, 2);
}

#[test]
fn a_black_hole_to_the_server_delivers_when_it_ends() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.connected();
    fixture.proxy.black_hole_to_server(true);
    raw.send(COUNT);
    assert!(is_silent(&mut raw));
    assert_eq!((fixture.executed(), fixture.proxy.counts().requests_black_holed), (0, 1));
    fixture.proxy.black_hole_to_server(false);
    assert_eq!(raw.read().unwrap().int(), 1);
}

#[test]
fn a_black_hole_to_the_client_lets_requests_through() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.connected();
    fixture.proxy.black_hole_to_client(true);
    raw.send(COUNT);
    fixture.wait_executed(1);
    assert!(is_silent(&mut raw));
    fixture.proxy.wait_until(|counts| counts.replies_black_holed == 1);
    fixture.proxy.black_hole_to_client(false);
    assert_eq!(raw.read().unwrap().int(), 1);
}

#[test]
fn connections_are_cut_and_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut one, mut two) = (fixture.connected(), fixture.connected());
    fixture.proxy.cut_all();
    assert!(is_closed(&mut one) && is_closed(&mut two));
    fixture.proxy.refuse(true);
    assert!(is_closed(&mut fixture.client()));
    fixture.proxy.refuse(false);
    assert!(!is_closed(&mut fixture.client()), "later connections are not cut");
    let counts = fixture.proxy.counts();
    assert_eq!((counts.connections_cut, counts.connections_refused), (2, 1));
}

#[test]
fn a_server_that_dies_closes_the_client() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.connected();
    fixture.server.kill9();
    assert!(is_closed(&mut raw));
    assert!(is_closed(&mut fixture.client()));
    fixture.server.restart();
    assert!(!is_closed(&mut fixture.client()));
}

#[test]
fn replies_are_delayed() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.connected();
    fixture.proxy.delay_to_client(SHORT);
    let start = Instant::now();
    raw.call(&["PING"]);
    assert!(start.elapsed() >= SHORT);
    assert_eq!(fixture.proxy.counts().replies_delayed, 1);
}

#[test]
fn published_messages_are_swallowed_doubled_and_delayed_but_nothing_else_is() {
    let Some(fixture) = Fixture::new() else { return };
    // A channel of its own: the server may still have the first subscriber when the second comes.
    for (hello, news) in [("2", "news in RESP2"), ("3", "news in RESP3")] {
        let before = fixture.proxy.counts();
        fixture.proxy.swallow_pushes(true);
        let mut subscriber = fixture.client();
        subscriber.call(&["HELLO", hello]);
        subscriber.subscribe(news);
        let mut server = fixture.server.client();
        server.call(&["PUBLISH", news, "lost"]);
        fixture.proxy.wait_until(|counts| counts.pushes_swallowed == before.pushes_swallowed + 1);

        fixture.proxy.swallow_pushes(false);
        fixture.proxy.duplicate_pushes(2);
        server.call(&["PUBLISH", news, "thrice"]);
        let mut message = || subscriber.message_within(WAIT_WITHIN).unwrap().1;
        for _ in 0..3 {
            assert_eq!(message(), b"thrice");
        }
        assert_eq!(fixture.proxy.counts().pushes_duplicated, before.pushes_duplicated + 2);

        fixture.proxy.duplicate_pushes(0);
        fixture.proxy.delay_pushes(SHORT);
        let start = Instant::now();
        server.call(&["PUBLISH", news, "late"]);
        // A reply overtakes the message.
        subscriber.send(&["PING"]);
        let pong = subscriber.read().unwrap();
        assert!(matches!(pong, Value::Simple(_)) || pong.array()[0].text() == "pong");
        assert_eq!(subscriber.message_within(WAIT_WITHIN).unwrap().1, b"late");
        assert!(start.elapsed() >= SHORT);
        fixture.proxy.delay_pushes(Duration::ZERO);
    }
}

#[test]
fn replies_find_their_requests_beside_subscriptions() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.client();
    raw.call(&["HELLO", "3"]);
    raw.send(&["SUBSCRIBE", "a", "b"]);
    fixture.proxy.drop_replies(1);
    fixture.proxy.cut_after_reply_lost(true);
    raw.send(&["PING"]);
    raw.send(COUNT);
    for _ in 0..3 {
        raw.read().unwrap();
    }
    assert!(raw.read().is_err());
    assert_eq!((fixture.executed(), fixture.proxy.counts().replies_dropped), (1, 1));
}

#[test]
fn a_held_request_arrives_late_even_after_its_client_is_gone() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut closes, mut is_cut) = (fixture.connected(), fixture.connected());
    fixture.proxy.hold_requests(true);
    closes.send(COUNT);
    is_cut.send(COUNT);
    fixture.proxy.wait_until(|counts| counts.requests_held == 2);
    drop(closes);
    fixture.proxy.cut_clients();
    assert!(is_cut.read().is_err());
    // A connection made later is not held.
    assert_eq!(fixture.client().call(COUNT).int(), 1);
    fixture.proxy.hold_requests(false);
    fixture.wait_executed(3);
}

#[test]
fn held_replies_arrive_late() {
    let Some(fixture) = Fixture::new() else { return };
    let mut waits = fixture.connected();
    fixture.proxy.hold_replies(true);
    waits.send(COUNT);
    fixture.wait_executed(1);
    // A connection made later is not held.
    assert_eq!(fixture.client().call(COUNT).int(), 2);
    fixture.proxy.hold_replies(false);
    assert_eq!(waits.read().unwrap(), Value::Int(1));
}

#[test]
fn requests_are_replayed_as_they_were() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.client();
    raw.call(&["HELLO", "3"]);
    raw.call(&["SELECT", "3"]);
    assert_eq!(raw.call(COUNT).int(), 1);
    assert_eq!(fixture.proxy.replay(1), [Value::Int(2)]);
    assert_eq!(raw.call(COUNT).int(), 3);
    assert_eq!(fixture.proxy.replay(2), [Value::Int(4), Value::Int(5)]);
    assert_eq!(fixture.executed(), 0, "it was database 3, not 0");
    assert_eq!(fixture.proxy.counts().requests_replayed, 3);
}

#[test]
fn a_request_that_is_cut_is_never_executed() {
    let Some(fixture) = Fixture::new() else { return };
    for bytes in [0, 1, 20] {
        let mut raw = fixture.connected();
        fixture.proxy.cut_request_at(bytes);
        assert!(raw.try_call(COUNT).is_err());
    }
    assert_eq!((fixture.executed(), fixture.proxy.counts().requests_cut), (0, 3));
}

#[test]
fn a_silenced_connection_carries_nothing_and_never_ends() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut open, mut inbox) = (fixture.connected(), fixture.connected());
    inbox.call(&["HELLO", "3"]);
    inbox.subscribe("news");
    let mut server = fixture.server.client();
    fixture.proxy.silence_inboxes();
    server.call(&["PUBLISH", "news", "unheard"]);
    assert!(is_silent(&mut inbox));
    assert_eq!(open.call(COUNT).int(), 1, "only inboxes are silent");

    fixture.proxy.silence_open();
    open.send(COUNT);
    fixture.proxy.wait_until(|counts| counts.requests_black_holed == 1);
    assert_eq!(server.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).int(), 1);
    assert!(is_silent(&mut open), "neither the reply nor the end of the connection");
    assert_eq!(fixture.client().call(COUNT).int(), 2, "a new connection passes");
}

#[test]
fn what_is_not_read_fills_the_buffers() {
    let Some(fixture) = Fixture::new() else { return };
    let mut stream = TcpStream::connect(fixture.proxy.addr()).unwrap();
    stream.set_write_timeout(Some(SHORT)).unwrap();
    let ping = |stream: &mut TcpStream| {
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
    };
    ping(&mut stream);
    fixture.proxy.stop_reading(true);
    // For this one a read was already waiting.
    ping(&mut stream);
    let error = stream.write_all(&vec![b'x'; 64 << 20]).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
}

#[test]
fn single_bytes_arrive_as_the_frames_they_were() {
    let Some(fixture) = Fixture::new() else { return };
    let mut raw = fixture.connected();
    fixture.proxy.byte_by_byte(Some(Duration::from_millis(1)));
    let began = Instant::now();
    assert_eq!(raw.call(&["ECHO", &"x".repeat(100)]).text(), "x".repeat(100));
    assert!(began.elapsed() >= Duration::from_millis(200), "there and back");
    assert!(fixture.proxy.counts().single_bytes >= 200);
    fixture.proxy.byte_by_byte(None);
    let carried = fixture.proxy.counts().single_bytes;
    raw.call(&["PING"]);
    assert_eq!(fixture.proxy.counts().single_bytes, carried);
}
