//! D05: a name leads to several servers, or an address to a different one with each connection. All
//! connections of a client go to one server, all clients choose the same one, and where that is
//! impossible the order still holds.

use super::fixture::{Fixture, HB, LEASE, SLACK, client, config, eventually, inbox, ms, steady};
use super::worker::Worker;
use fairlock::{Check, Client, ErrorKind, Reaction};
use fairlock_testkit::history::Event;
use fairlock_testkit::processes::unshare;
use fairlock_testkit::tempdir::TempDir;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};

/// A replica asks its master once a second, and then copies it; this is not under test.
const SYNCED: std::time::Duration = ms(20_000);

/// Sends each connection to the server that `choose` names, as a load balancer does.
struct Balancer {
    addr: SocketAddr,
    /// How many connections it has accepted.
    asked: Arc<AtomicUsize>,
}

impl Balancer {
    /// `choose` gets the number of the connection, from 0.
    async fn start(choose: impl Fn(usize) -> SocketAddr + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let to = choose(count.fetch_add(1, Ordering::Relaxed));
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(to).await.unwrap();
                    // If one side ends, both end.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { addr, asked }
    }

    fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }
}

/// A server and a replica that has all its data; `None` if the server is not installed.
fn pair() -> Option<(Fixture, Fixture)> {
    let (master, replica) = (Fixture::redis70()?, Fixture::redis70()?);
    master.call(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    replica.call(&["REPLICAOF", "127.0.0.1", &master.server.port().to_string()]);
    eventually("the replica has it all", SYNCED, || {
        replica.call(&["ROLE"]).array().get(3).is_some_and(|state| state.text() == "connected")
    });
    Some((master, replica))
}

fn checks(client: &Client) -> Vec<Check> {
    client.warnings().iter().map(fairlock::Warning::check).collect()
}

/// The server never sees the inbox of a waiter: the waiter was taken for dead whenever its turn
/// came, was overtaken, and nobody was told. Now its requests say that its inbox is elsewhere, it
/// is served in its place, and a warning explains why.
#[test]
fn d05_a_waiter_whose_inbox_is_elsewhere_keeps_its_place() {
    steady(|| async {
        let Some((master, replica)) = pair() else { return };
        let (first, others) = (master.server.addr(), replica.server.addr());
        let balancer = Balancer::start(move |n| if n == 0 { first } else { others }).await;
        let blind = client(&balancer.url()).await;
        eventually("it gives up to look for the right one", ms(5_000), || {
            balancer.asked.load(Ordering::Relaxed) >= 7
        });
        eventually("it is told", SLACK, || checks(&blind) == [Check::Inbox]);
        assert_eq!(master.listeners(&inbox(&blind)), 0);

        let holder = master.client().await;
        let last = master.client().await;
        for round in 0..3 {
            let held = master.take(&holder, "job").await;
            let waits = master.enter(&blind, "job").await;
            let behind = master.enter(&last, "job").await;
            let _ = held.release().await;
            let turn = waits.granted(HB + SLACK).await;
            assert!(!behind.is_over(), "round {round}: overtaken");
            let _ = turn.release().await;
            let _ = behind.granted(HB + SLACK).await.release().await;
        }
        master.history.assert_sound();

        // A client that does not accept that is refused.
        let balancer = Balancer::start(move |n| if n == 0 { first } else { others }).await;
        let strict = config(&balancer.url()).on_check(Check::Inbox, Reaction::Refuse);
        let strict = Client::with_config(strict).await;
        assert_eq!(strict.unwrap_err().kind(), ErrorKind::Misuse);
    });
}

/// One of two connections led to the wrong server; the next one leads to the right one.
#[test]
fn d05_an_inbox_at_the_wrong_server_is_made_anew() {
    steady(|| async {
        let Some((master, replica)) = pair() else { return };
        let (right, wrong) = (master.server.addr(), replica.server.addr());
        let balancer = Balancer::start(move |n| if n == 1 || n == 2 { wrong } else { right }).await;
        let client = client(&balancer.url()).await;
        eventually("the inbox is found", ms(5_000), || master.listeners(&inbox(&client)) == 1);
        eventually("nothing is said any more", SLACK, || checks(&client).is_empty());
    });
}

/// Workers that resolve names with a hosts file of the test's own.
struct Names {
    dir: TempDir,
    port: u16,
}

impl Names {
    fn lead_to(&self, addresses: &[&str]) {
        let lines: String =
            addresses.iter().map(|address| format!("{address} locks.test\n")).collect();
        fs::write(self.dir.path().join("hosts"), lines).unwrap();
    }

    fn worker(&self) -> Worker {
        let mut starter = unshare(&["--mount"]).expect("as a moment ago");
        let script = "printf 'multi on\\n' >\"$1\" && mount --bind \"$0\" /etc/hosts && \
                      { [ ! -e /etc/host.conf ] || mount --bind \"$1\" /etc/host.conf; } && shift && exec \"$@\"";
        starter.args(["sh", "-c", script]);
        starter.arg(self.dir.path().join("hosts")).arg(self.dir.path().join("host.conf"));
        let url = format!("redis://locks.test:{}/", self.port);
        Worker::under(starter, &url, HB, 8 * LEASE, [])
    }
}

/// Two servers on one port: `here` at 127.0.0.1, `there` at 127.0.0.2.
fn side_by_side(here: &Fixture, there: &Fixture) -> Names {
    let port = here.server.port();
    // Its earlier connections stay open.
    there.call(&["CONFIG", "SET", "bind", "127.0.0.2"]);
    there.call(&["CONFIG", "SET", "port", &port.to_string()]);
    Names { dir: TempDir::new(), port }
}

/// How many connections of the library the server's client list shows: they carry its name.
fn visitors(fixture: &Fixture) -> usize {
    let list = fixture.call(&["CLIENT", "LIST"]);
    list.text().lines().filter(|line| line.contains("name=fairlock")).count()
}

fn may_mount() -> bool {
    unshare(&["--mount"]).is_some()
}

/// Two independent servers behind one name, as `localhost` can have them: each connection used to
/// choose the server that answered first, and a lock was held twice. All clients choose the same
/// one, in whatever order the resolver returns the addresses; connected clients stay when another
/// one comes.
#[test]
fn d05_all_clients_choose_the_same_of_two_servers() {
    steady(|| async {
        if !may_mount() {
            return;
        }
        let (Some(here), Some(there)) = (Fixture::redis70(), Fixture::redis70()) else { return };
        let names = side_by_side(&here, &there);
        // The resolver always sorts 127.0.0.1 first; it leaves these two in order.
        for (fixture, bind) in [(&there, "127.0.0.3"), (&here, "127.0.0.1 127.0.0.2")] {
            assert_eq!(fixture.call(&["CONFIG", "SET", "bind", bind]).text(), "OK");
        }
        let mut workers = Vec::new();
        for turn in 0..6 {
            let mut order = ["127.0.0.2", "127.0.0.3"];
            order.rotate_left(turn % 2);
            names.lead_to(&order);
            workers.push(names.worker());
            eventually("both connections are here", SLACK, || visitors(&here) == 2 * workers.len());
            assert_eq!(visitors(&there), 0, "turn {turn}");
        }
        // One client holds the lock, the others wait for it, and nobody else holds it.
        let held = workers[0].take(&here, "job");
        for worker in &mut workers[1..] {
            worker.order("lock 0 job");
            assert!(worker.hear("granted", ms(50)).is_none(), "held twice");
        }
        here.history.record("job", held.owner(), Event::Released);
    });
}

/// A master and its replica behind one name, as with a headless service, the replica first: clients
/// move on to the master with all connections, and to the other one when they swap roles.
#[test]
fn d05_of_a_master_and_its_replica_the_master_is_chosen() {
    steady(|| async {
        if !may_mount() {
            return;
        }
        let Some((master, replica)) = pair() else { return };
        let names = side_by_side(&replica, &master);
        replica.call(&["REPLICAOF", "127.0.0.2", &names.port.to_string()]);
        names.lead_to(&["127.0.0.1", "127.0.0.2"]);
        let mut workers: Vec<_> = (0..4).map(|_| names.worker()).collect();
        eventually("all connections are with the master", SLACK, || visitors(&master) == 8);
        assert_eq!(visitors(&replica), 0);
        let line = workers[0].take(&master, "job");

        // A switch by the operator: the other server is the master now.
        eventually("the replica has it all", SYNCED, || replica.holder("job").is_some());
        replica.call(&["REPLICAOF", "NO", "ONE"]);
        master.call(&["REPLICAOF", "127.0.0.1", &names.port.to_string()]);
        // The old master refuses a renewal, and the client follows to the new one. An idle client
        // has nothing to lose.
        eventually("the holder has followed", 3 * LEASE + SLACK, || visitors(&replica) >= 2);
        workers[0].order("release 0");
        assert_eq!(workers[0].expect("released", SLACK).words[2], "Released");
        master.history.record("job", line.owner(), Event::Released);
        for worker in &mut workers[1..] {
            worker.order("lock 1 other");
            worker.expect("granted 1", ms(3_000) + SLACK);
            worker.order("release 1");
            worker.expect("released 1", SLACK);
        }
        eventually("all have followed", ms(3_000) + SLACK, || visitors(&replica) == 8);
    });
}

/// Addresses that do not answer do not use up the time: the next one is tried within the connect
/// timeout. The server has the last one in the order of attempts. A mute server is given up after
/// the response timeout at the latest, so one of them alone would leave time enough in any case.
#[test]
fn d05_a_dead_address_is_passed_over() {
    steady(|| async {
        if !may_mount() {
            return;
        }
        let Some(fixture) = Fixture::redis70() else { return };
        let names = Names { dir: TempDir::new(), port: fixture.server.port() };
        // Its earlier connections stay open. Nobody listens at the first address any more.
        fixture.call(&["CONFIG", "SET", "bind", "127.0.0.4"]);
        // Accept connections and never answer.
        let _mute = ["127.0.0.2", "127.0.0.3"]
            .map(|addr| std::net::TcpListener::bind((addr, names.port)).unwrap());
        names.lead_to(&["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]);
        let mut worker = names.worker();
        let line = worker.take(&fixture, "job");
        fixture.history.record("job", line.owner(), Event::Released);
    });
}
