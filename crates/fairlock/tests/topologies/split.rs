//! Sentinels in a split: who sees which of them, and what clients report (D07).

use super::sentinel::until_state;
use super::{AGREED, connect, patient};
use crate::faults::fixture::{eventually, within};
use crate::support::in_real_time;
use fairlock::{Check, Client, Config, ErrorKind, GuardState, Reaction, Replicas};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{MASTER_NAME, SentinelSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// A way to a Sentinel that leads nowhere until it is opened.
struct Gate {
    addr: SocketAddr,
    open: Arc<AtomicBool>,
}

impl Gate {
    async fn before(sentinel: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let open = Arc::new(AtomicBool::new(false));
        let is_open = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if !is_open.load(Ordering::Relaxed) {
                    continue;
                }
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(sentinel).await.unwrap();
                    // The end of one direction ends both.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { addr, open }
    }
}

fn checks(client: &Client) -> Vec<Check> {
    client.warnings().iter().map(fairlock::Warning::check).collect()
}

fn places(addresses: [SocketAddr; 3]) -> [(String, u16); 3] {
    addresses.map(|addr| (addr.ip().to_string(), addr.port()))
}

/// The minority's side of a split: an old master that continues, and one Sentinel that missed the
/// failover.
struct Minority {
    master: Server,
    sentinel: Server,
}

impl Minority {
    fn start(generation: Generation) -> Option<Self> {
        let master = Server::start(generation)?;
        let watch = format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {} 2\n", master.port());
        let sentinel = Server::builder_of_sentinel(generation).config(&watch).start()?;
        Some(Self { master, sentinel })
    }
}

/// D07: a client on the wrong side of a split is told that it sees no majority. When the split is
/// over, it leaves the old master, although that still replies. It used to stay until its
/// connection was lost, whenever that was.
#[test]
fn d07_who_sees_the_majority_again_leaves_the_old_master() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let Some(old) = Minority::start(Generation::Redis70) else { return };
        // The failover's epoch distinguishes the new side from the old.
        set.fail_over();
        set.await_whole();
        let addresses = set.addresses();
        let (one, two) = (Gate::before(addresses[0]).await, Gate::before(addresses[1]).await);
        let sentinels = || places([one.addr, old.sentinel.addr(), two.addr]);

        // A client that requires a majority gets no connection.
        let strict = patient_at(sentinels()).on_check(Check::Sentinels, Reaction::Refuse);
        let refused = Client::with_config(strict.clone()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.to_string().contains("1 of 3 Sentinels"), "{refused}");

        let client = connect(patient_at(sentinels())).await;
        assert!(checks(&client).contains(&Check::Sentinels), "{:?}", client.warnings());
        let guard = client.fair_lock("job").lock().await.unwrap();
        assert_eq!(old.master.client().call(&["EXISTS", "job"]).int(), 1);

        // The split is over, and nobody closes a connection.
        one.open.store(true, Ordering::Relaxed);
        two.open.store(true, Ordering::Relaxed);
        until_state(&guard, GuardState::Lost).await;
        let again = within("the new master", AGREED, client.fair_lock("job").lock()).await.unwrap();
        let master = set.agreed_master().expect("nothing fails over");
        assert_eq!(set.raw(master).call(&["EXISTS", "job"]).int(), 1);
        eventually("it is told that all is well", AGREED, || {
            !checks(&client).contains(&Check::Sentinels)
        });
        let _ = again.release().await.unwrap();
        let strict = connect(strict).await;
        assert!(!checks(&strict).contains(&Check::Sentinels));
    });
}

/// The settings of `patient`, for these Sentinels.
fn patient_at(sentinels: [(String, u16); 3]) -> Config {
    Config::sentinel(sentinels, MASTER_NAME).connect_timeout(Duration::from_secs(8))
}

/// D07: the risk of a split is reported where it exists, and not elsewhere.
#[test]
fn d07_what_the_configuration_can_promise_is_said() {
    in_real_time(|| async {
        for generation in [Generation::Redis62, Generation::Valkey91] {
            let Some(set) = SentinelSet::start(generation) else { continue };
            let url = set.url();
            let warned = connect(patient(&url)).await;
            let warning =
                warned.warnings().into_iter().find(|found| found.check() == Check::Failover);
            let warning = warning.expect("a warning").to_string();
            assert!(warning.contains("min-replicas-to-write"), "{warning}");
            let refused = patient(&url).on_check(Check::Failover, Reaction::Refuse);
            let refused = Client::with_config(refused).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Misuse);
            let confirmed = connect(patient(&url).replicas(Replicas::AtLeast(1))).await;
            assert!(!checks(&confirmed).contains(&Check::Failover));
            for server in 0..set.data().len() {
                set.raw(server).call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
            }
            let careful = connect(patient(&url)).await;
            assert_eq!(checks(&careful), [], "{:?}", careful.warnings());
        }
    });
}
