//! Messages that the server sends unasked, and how the replies after them are assigned to commands.

use super::super::dial::Target;
use super::super::login::Login;
use super::super::route::{self, Route};
use super::*;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::slot;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy that holds back everything sent to the server until it is opened.
struct Gate {
    addr: SocketAddr,
    shut: watch::Sender<bool>,
    /// The number of reads that were held back.
    held: Arc<AtomicUsize>,
}

impl Gate {
    async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (shut, held) = (watch::Sender::new(false), Arc::new(AtomicUsize::new(0)));
        let (is_shut, counted) = (shut.subscribe(), Arc::clone(&held));
        tokio::spawn(async move {
            let (mut from_client, mut to_client) = listener.accept().await.unwrap().0.into_split();
            let (mut from_server, mut to_server) =
                TcpStream::connect(server).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let (sender, mut receiver) = mpsc::unbounded_channel::<Vec<u8>>();
            let mut gate = is_shut.clone();
            tokio::spawn(async move {
                while let Some(bytes) = receiver.recv().await {
                    let _ = gate.wait_for(|shut| !shut).await;
                    if to_server.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            });
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                if *is_shut.borrow() {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                let _ = sender.send(buffer[..read].to_vec());
            }
        });
        Self { addr, shut, held }
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looked = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looked).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// The server ends a subscription while another command is in flight. Taken for the command's reply,
/// as redis-rs did, that message would give each later command the reply of the one before: a
/// subscribed channel counted as not subscribed, and the look that follows a subscription was
/// missing.
#[tokio::test]
async fn replies_belong_to_their_commands_after_a_message_that_nobody_asked_for() {
    let builder = Server::builder(Generation::Redis70).bus_port();
    let builder = builder.arg("--cluster-enabled", "yes");
    let Some(server) = builder.start() else { return };
    let mut raw = server.client();
    // No need to wait until the node counts as ready: sharded messages arrive before that.
    raw.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let gate = Gate::before(server.addr()).await;
    let config = Config::cluster([("127.0.0.1", gate.addr.port())]).ping_timeout(PATIENCE);
    let endpoint = Endpoint {
        target: Target::Tcp("127.0.0.1".into(), gate.addr.port()),
        login: Arc::new(Login::of_servers(&config)),
        #[cfg(feature = "tls")]
        tls: None,
        route: Route::new(route::looks(), PATIENCE),
    };
    let addr = Addr::new("127.0.0.1", gate.addr.port());
    let ear = NodeSubscription::start(&config, endpoint, addr, Weak::new());
    let conn = ear.connect().await.unwrap();
    conn.call(&Cmd::subscription(PushKind::SSubscribe, b"a")).await.unwrap();
    assert!(lock(&ear.state).subscribed.contains(&b"a"[..]));

    gate.shut.send_replace(true);
    let asks = tokio::spawn({
        let conn = conn.clone();
        async move {
            conn.call(&Cmd::subscription(PushKind::SSubscribe, b"b")).await?;
            conn.call(wire::cmd("PING").arg("mine")).await
        }
    });
    until("a command is under way", || gate.held.load(Ordering::SeqCst) == 1).await;
    let reply = raw.call(&["CLUSTER", "DELSLOTS", &slot(b"a").to_string()]);
    assert_eq!(reply.text(), "OK");
    until("the message", || !lock(&ear.state).subscribed.contains(&b"a"[..])).await;
    assert!(!asks.is_finished(), "the message is no reply");
    gate.shut.send_replace(false);
    let reply = tokio::time::timeout(PATIENCE, asks).await.unwrap().unwrap().unwrap();
    assert_eq!(reply, Value::BulkString(b"mine".to_vec()));
    assert!(lock(&ear.state).subscribed.contains(&b"b"[..]));
}
