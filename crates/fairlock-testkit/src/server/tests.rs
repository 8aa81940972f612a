use std::process::Command;

use super::*;
use crate::{processes, wait};

fn servers() -> impl Iterator<Item = Server> {
    Generation::tested().into_iter().filter_map(Server::start)
}

#[test]
fn answers_on_its_own_port_and_socket() {
    for server in servers() {
        let mut raw = server.client();
        assert_eq!(raw.call(&["PING"]), Value::Simple("PONG".into()));
        let info = raw.call(&["INFO", "server"]);
        assert!(info.text().contains(&format!("process_id:{}\r\n", server.pid())));
        let mut unix = Raw::try_connect_unix(&server.unix_socket()).unwrap();
        assert_eq!(unix.call(&["ECHO", "a\r\nb"]), Value::Bulk(b"a\r\nb".to_vec()));
    }
}

#[test]
fn debug_commands_are_allowed() {
    for server in servers() {
        let reply = server.client().call(&["DEBUG", "SLEEP", "0"]);
        assert_eq!(reply, Value::Simple("OK".into()), "{}", server.generation().name());
    }
}

#[test]
fn a_restarted_server_is_empty_unless_it_persists() {
    for generation in Generation::tested() {
        for (persist, exists) in [(false, 0), (true, 1)] {
            let Some(server) = Server::builder(generation).persist(persist).start() else { return };
            let pid = server.pid();
            server.client().call(&["SET", "k", "v"]);
            server.kill9();
            assert!(Raw::try_connect(server.addr()).is_err());
            server.restart();
            assert_ne!(server.pid(), pid);
            assert_eq!(server.client().call(&["EXISTS", "k"]).int(), exists);
        }
    }
}

#[test]
fn a_stopped_server_is_silent_until_it_goes_on() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut raw = server.client();
    server.stop();
    raw.send(&["PING"]);
    assert_eq!(raw.read_within(Duration::from_millis(50)).unwrap(), None);
    server.cont();
    assert_eq!(raw.read().unwrap(), Value::Simple("PONG".into()));
}

#[test]
fn messages_arrive_at_subscribers() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut subscriber = server.client();
    subscriber.subscribe("news");
    assert_eq!(subscriber.message_within(Duration::from_millis(1)), None);
    assert_eq!(server.client().call(&["PUBLISH", "news", "0"]).int(), 1);
    let message = subscriber.message_within(Duration::from_secs(5));
    assert_eq!(message, Some(("news".to_owned(), b"0".to_vec())));
}

#[test]
fn a_server_outlives_the_thread_that_started_it_and_dies_with_its_owner() {
    let start = || Server::start(Generation::Redis70);
    let Some(server) = thread::spawn(start).join().unwrap() else { return };
    let dir = server.dir().to_owned();
    server.client().call(&["PING"]);
    let addr = server.addr();
    drop(server);
    assert!(Raw::try_connect(addr).is_err());
    assert!(!dir.exists());
}

#[test]
fn a_server_dies_when_its_process_is_killed() {
    /// Set in the process to be killed, which is this test once more.
    const VICTIM: &str = "FAIRLOCK_TESTKIT_VICTIM";
    if let Some(file) = std::env::var_os(VICTIM) {
        let server = Server::start(Generation::Redis70).unwrap();
        fs::write(&file, server.pid().to_string()).unwrap();
        loop {
            thread::park();
        }
    }
    if require(Generation::Redis70).is_none() {
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("pid");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::tests::a_server_dies_when_its_process_is_killed"])
        .env(VICTIM, &file)
        .stdout(Stdio::null())
        // Its server's folder is below ours, since the victim cannot remove it.
        .env("TMPDIR", dir.path())
        .spawn()
        .unwrap();
    wait::until("the victim's server starts", READY_WITHIN, || {
        fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty())
    });
    let pid = fs::read_to_string(&file).unwrap();
    // A zombie counts as gone: the machine's process 1 may never reap it, as in some containers.
    assert!(processes::is_alive(&pid));
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait::until("its server is gone", READY_WITHIN, || !processes::is_alive(&pid));
}
