use super::*;
use fairlock_core::LockName;
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;

/// How late replies are.
const LATE: Duration = Duration::from_millis(300);

/// A12, R5: what a reply grants counts from the sending of the very copy that it answers. Counted
/// from the reply's arrival, a guard would be valid for a round trip after the server's TTL.
#[tokio::test]
async fn a12_a_reply_counts_from_when_its_copy_was_sent() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(server.addr());
    let config = Config::from_url(&proxy.url()).unwrap();
    let store = RedisStore::start(&config, ClientId::from_random(7), Arc::new(|_| {})).unwrap();
    store.first_contact().await.unwrap();
    store.ready().await;
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
