//! Where passwords come from, and that they are read again before each connection (F39).

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{SOON, granted, in_real_time, queue_is, soon, until, wait_behind};
use fairlock::{
    Client, Config, ConnectionState, Credentials, ErrorKind, Guard, GuardState, Release,
};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

/// A variable that cargo sets for every test; its value is the password here.
const VARIABLE: &str = "CARGO_PKG_NAME";

/// Gives `ann` all rights, with this password and no other.
fn let_in(raw: &mut Raw, password: &str) {
    let password = format!(">{password}");
    let rules = ["ACL", "SETUSER", "ann", "reset", "on", &password, "~*", "&*", "+@all"];
    assert_eq!(raw.call(&rules).text(), "OK");
}

/// Closes the connections of `ann`, who has to log in again.
fn cut(raw: &mut Raw) {
    assert!(raw.call(&["CLIENT", "KILL", "USER", "ann"]).int() >= 1);
}

fn config(server: &Server) -> Config {
    Config::tcp("127.0.0.1", server.port()).username("ann")
}

async fn state_is(guard: &Guard, state: GuardState) {
    until(&format!("{state:?}"), async || guard.state() == state).await;
}

/// Every source, changed between two connections. In between, a new client with the old password is
/// refused.
#[test]
fn every_source_is_asked_before_each_connection() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let mut raw = server.client();
        let dir = TempDir::new();
        let file = dir.path().join("password");
        let said = Arc::new(Mutex::new(Ok("of callback".to_owned())));
        let say = Arc::clone(&said);
        let callback = move || {
            let said: Result<String, &str> = say.lock().unwrap().clone();
            said.map(|password| Credentials::new(password).username("ann"))
        };
        fs::write(&file, "of file\n").unwrap();
        let variable = std::env::var(VARIABLE).unwrap();

        for (source, password, config) in [
            ("file", "of file", config(&server).password_file(&file)),
            ("variable", &variable, config(&server).password_env(VARIABLE)),
            (
                "callback",
                "of callback",
                Config::tcp("127.0.0.1", server.port()).password_from(callback),
            ),
        ] {
            let_in(&mut raw, password);
            let client = Client::with_config(config.clone()).await.unwrap();
            let guard = client.fair_lock(source).lock().await.unwrap();

            let mut next = password;
            if source != "variable" {
                next = "second";
                let_in(&mut raw, "second");
                let error = Client::with_config(config.clone()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
                fs::write(&file, "second").unwrap();
                *said.lock().unwrap() = Ok("second".to_owned());
            }
            // Let nobody in until the loss of the connection was seen: on a busy machine it could be
            // over before the test looks.
            let_in(&mut raw, "of nobody");
            cut(&mut raw);
            state_is(&guard, GuardState::Suspect).await;
            let_in(&mut raw, next);
            state_is(&guard, GuardState::Held).await;
            assert_eq!(guard.release().await.unwrap(), Release::Released, "{source}");
            fs::write(&file, "of file").unwrap();
            *said.lock().unwrap() = Ok("of callback".to_owned());
        }
        *said.lock().unwrap() = Err("the vault is shut");
    });
}

/// Sources that give no password: the error names the source and what is wrong, and shows nothing
/// of the source's content.
#[test]
fn sources_without_a_password_are_named() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let dir = TempDir::new();
        let at = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let two_lines = at("two", b"CANARY\nCANARY");
        let long = at("long", &[b'C'; 65 * 1024]);
        let odd = at("odd", b"CANARY\xff");
        let from = |config: Config, says: &str| (config, says.to_owned());
        let says = |path: &std::path::Path, what: &str| format!("`{}` {what}", path.display());
        let absent = dir.path().join("absent");
        let panics = || -> Result<Credentials, String> { panic!("of the application") };
        let hangs = || -> Result<Credentials, String> {
            std::thread::park_timeout(SOON);
            Err("late".into())
        };
        let quick = Duration::from_millis(400);
        for (config, expected) in [
            from(config(&server).password_file(&absent), &says(&absent, "cannot be read")),
            from(config(&server).password_file(dir.path()), &says(dir.path(), "cannot be read")),
            from(
                config(&server).password_file(&two_lines),
                &says(&two_lines, "has more than one line"),
            ),
            from(config(&server).password_file(&long), &says(&long, "is longer than 65536 bytes")),
            from(config(&server).password_file(&odd), &says(&odd, "is not UTF-8")),
            from(
                config(&server).password_env("FAIRLOCK_NOT_THERE"),
                "`FAIRLOCK_NOT_THERE` is not set",
            ),
            from(config(&server).password_from(|| Err("shut")), "the callback says: shut"),
            from(config(&server).password_from(panics), "the callback panicked"),
            from(
                config(&server).password_from(hangs).connect_timeout(quick),
                "not answered in time",
            ),
        ] {
            let began = Instant::now();
            let error = soon("an error", Client::with_config(config)).await.unwrap_err();
            assert!(began.elapsed() < SOON / 2, "{error}");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let text = error.to_string();
            assert!(text.contains(&expected) && !text.contains("CANARY"), "{text}");
        }
    });
}

/// A callback that hangs for ever is called once, however often the client tries to connect.
#[test]
fn a_callback_that_hangs_costs_one_thread() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        let hangs = move || -> Result<Credentials, String> {
            count.fetch_add(1, Ordering::SeqCst);
            // Blocks until the test is over.
            let _ = held.lock().unwrap().recv();
            Err("over".into())
        };
        let config = config(&server).password_from(hangs).lazy_connect(true);
        let config = config.connect_timeout(Duration::from_millis(50));
        let client =
            Client::with_config(config.store_timeout(Duration::from_secs(1))).await.unwrap();
        let error = soon("an error", client.fair_lock("job").lock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(hold);
    });
}

/// F39: a password is changed on the server, then in the file. In between nobody can log in: the
/// holder is Suspect, not Lost; waiters keep their places, and all are served in order.
#[test]
fn f39_a_password_is_rotated() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let mut raw = server.client();
        let dir = TempDir::new();
        let file = dir.path().join("password");
        fs::write(&file, "first").unwrap();
        let_in(&mut raw, "first");
        let client = async || {
            let config = config(&server).password_file(&file);
            Client::with_config(config).await.unwrap()
        };
        let (holder, first, second) = (client().await, client().await, client().await);
        let guard = holder.fair_lock("job").lock().await.unwrap();
        let mut token = guard.token();
        let waiters = [
            wait_behind(&first.fair_lock("job"), 1).await,
            wait_behind(&second.fair_lock("job"), 2).await,
        ];

        let_in(&mut raw, "second");
        cut(&mut raw);
        state_is(&guard, GuardState::Suspect).await;
        // Until each connection has been refused with the old password at least once.
        until("the server has refused them", async || refusals(&mut server.client()) >= 6).await;
        assert_eq!(guard.state(), GuardState::Suspect);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));

        fs::write(&file, "second").unwrap();
        state_is(&guard, GuardState::Held).await;
        // A client that is not back yet would be overtaken, as after any loss of its connection.
        for client in [&first, &second] {
            let inbox = format!("fairlock_inbox:{}", client.id());
            until("it is back", async || {
                let connected = *client.connection().borrow() == ConnectionState::Connected;
                connected && raw.listeners(&inbox) == 1
            })
            .await;
        }
        queue_is(&holder.fair_lock("job"), 2).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        for waiter in waiters {
            let next = granted(waiter).await;
            assert!(next.token() > token);
            token = next.token();
            assert_eq!(next.release().await.unwrap(), Release::Released);
        }
    });
}

/// The number of refused logins in the server's list, which has at most 128 entries.
fn refusals(raw: &mut Raw) -> i64 {
    let log = raw.call(&["ACL", "LOG", "128"]);
    let counts = log.array().iter().map(|entry| entry.array()[1].int());
    counts.sum()
}

/// F39: the user is removed. Nothing restores a fixed password: the guard becomes Lost at its own
/// deadline and not later, and waiters and new requests are told why.
#[test]
fn f39_a_user_is_removed() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let mut raw = server.client();
        let_in(&mut raw, "pw");
        let lease = Duration::from_secs(2);
        let config = config(&server).password("pw").watchdog_lease(lease);
        let client = Client::with_config(config.clone()).await.unwrap();
        let guard = client.fair_lock("job").lock().await.unwrap();
        let waiting = Client::with_config(config).await.unwrap();
        let waiter = wait_behind(&waiting.fair_lock("job"), 1).await;

        assert_eq!(raw.call(&["ACL", "DELUSER", "ann"]).int(), 1);
        let removed = Instant::now();
        let error = soon("the waiter", waiter).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        state_is(&guard, GuardState::Lost).await;
        // The last renewal came before the removal, so the guard lasts at most a lease from then.
        assert!(removed.elapsed() < lease + SOON / 2, "{:?}", removed.elapsed());
        let error = soon("a request", client.fair_lock("other").lock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("127.0.0.1:{}", server.port())), "{text}");

        // What they left on the server expires by itself.
        until("the lock is free", async || raw.call(&["EXISTS", "job"]).int() == 0).await;
    });
}
