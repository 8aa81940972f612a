//! Which events are emitted, and what none of them may contain.

use super::subscriber::{Line, begin, lines};
use super::{alone, recorder, runtime, until};
use fairlock::{Client, Config, ErrorKind, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;
use tracing::Level;

/// F88: no event may ever contain it.
const CANARY: &str = "canary7f3a";

/// The name of the locks: only events at debug and below may contain it.
const NAME: &str = "secret-project-x";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn came(level: Level, message: &str) -> bool {
    lines().iter().any(|line| {
        line.target == "fairlock" && line.level == level && line.text.starts_with(message)
    })
}

/// Everything that the library reports, over a connection with a password.
async fn everything(server: &Server, log_names: bool) -> Vec<String> {
    let proxy = Proxy::start(server.addr());
    let url = format!("redis://:{CANARY}@{}/", proxy.addr());
    let config = Config::from_url(&url)
        .unwrap()
        .log_names(log_names)
        .heartbeat(ms(200))
        // Longer than the machine ever pauses: only the test may cause a loss.
        .watchdog_lease(ms(4_000))
        .ping_interval(ms(50));
    let mut said = vec![format!("{config:?}")];
    let client = Client::with_config(config.clone()).await.unwrap();
    said.push(format!("{client:?}"));
    let lock = client.fair_lock(NAME);

    // Wait, hand over, release.
    let guard = lock.lock().await.unwrap();
    let own = lock.clone();
    let waiter = tokio::spawn(async move { own.lock().await.unwrap() });
    until("it waits", || came(Level::DEBUG, "stands in the queue")).await;
    let mut raw = server.client();
    raw.call(&["AUTH", CANARY]);
    raw.call(&["DEL", &format!("redisson_lock_queue:{{{NAME}}}")]);
    raw.call(&["DEL", &format!("redisson_lock_timeout:{{{NAME}}}")]);
    until("it returned", || came(Level::INFO, "a waiter was dropped from its queue")).await;
    let _ = guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    until("a renewal", || came(Level::TRACE, "renewed")).await;

    // Refusals.
    let wrong = format!("{NAME}-wrong");
    raw.call(&["SET", &wrong, "type"]);
    said.push(format!("{:?}", client.fair_lock(&wrong).lock().await.unwrap_err()));
    raw.call(&["PUBLISH", &format!("fairlock_inbox:{}", client.id()), NAME]);
    until("the odd message", || came(Level::DEBUG, "a message was dropped")).await;
    let bad = config.clone().password(format!("{CANARY}-wrong"));
    let denied = Client::with_config(bad).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied);
    said.push(format!("{denied} {denied:?}"));

    // The connection is lost and restored; the lock is lost in between.
    proxy.refuse(true);
    proxy.cut_all();
    guard.lost().await;
    said.push(format!("{:?}", guard.ensure_valid().unwrap_err()));
    // A guard expires a little before the hold on the server does.
    until("the end of the lease", || raw.call(&["EXISTS", NAME]).int() == 0).await;
    proxy.refuse(false);
    until("connected again", || came(Level::INFO, "connected again")).await;
    assert_eq!(guard.release().await.unwrap(), Release::Lost);

    // A holder panics.
    let own = lock.clone();
    let panicked = tokio::spawn(async move {
        let guard = own.lock().await.unwrap();
        guard.ensure_valid().unwrap();
        panic!("as planned, with {guard:?}");
    });
    let panicked = panicked.await.unwrap_err().into_panic();
    said.push(panicked.downcast_ref::<String>().unwrap().clone());
    client.shutdown().await;
    said
}

/// What must have been reported at each level.
const TOLD: [(Level, &str); 17] = [
    (Level::INFO, "acquire kind=\"fair\""),
    (Level::INFO, "acquire outcome=\"granted\""),
    (Level::INFO, "hold kind=\"fair\""),
    (Level::DEBUG, "asked for a lock kind=\"fair\" outcome=\"granted\""),
    (Level::DEBUG, "asked for a lock kind=\"fair\" outcome=\"wrong_type\""),
    (Level::DEBUG, "granted"),
    (Level::DEBUG, "stands in the queue"),
    (Level::DEBUG, "released outcome=\"released\""),
    (Level::DEBUG, "a message was dropped"),
    (Level::TRACE, "renewed"),
    (Level::INFO, "a waiter was dropped from its queue"),
    (Level::WARN, "the connection is lost"),
    (Level::WARN, "no connection error=127.0.0.1:"),
    (Level::INFO, "connected again"),
    (Level::WARN, "a lock is in doubt"),
    (Level::WARN, "a lock is lost cause=\"expired\" reason=\"unreachable\""),
    (Level::WARN, "a release did not end well outcome=\"lost\""),
];

fn loud(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| line.level <= Level::INFO)
}

#[test]
fn f88_no_secret_and_no_name_where_it_does_not_belong() {
    let _alone = alone();
    let server = Server::builder(Generation::Redis70).arg("--requirepass", CANARY).start();
    let Some(server) = server else { return };
    runtime().block_on(async {
        begin();
        let said = everything(&server, false).await;
        let lines = lines();
        for (level, message) in TOLD {
            assert!(came(level, message), "no {level} event {message:?} in {lines:#?}");
        }
        assert!(came(Level::WARN, "a renewal was not confirmed"));
        for text in said.iter().chain(lines.iter().map(|line| &line.text)) {
            assert!(!text.contains(CANARY), "{text}");
        }
        for line in loud(&lines) {
            assert!(!line.text.contains(NAME), "{line:?}");
        }
        // The rule would also hold for an empty log: names do appear where they may, and the owner
        // appears at every level.
        let names = |line: &&Line| line.text.contains(&format!("lock={NAME}"));
        assert!(lines.iter().filter(names).count() >= 8, "{lines:#?}");
        let lost = loud(&lines).find(|line| line.text.starts_with("a lock is lost")).unwrap();
        for field in [" owner=", " token="] {
            assert_eq!(lost.text.matches(field).count(), 1, "{lost:?}");
        }
        // An outage has many of them.
        let missed = |line: &&Line| line.text.starts_with("a renewal was not confirmed");
        assert_eq!(loud(&lines).filter(missed).count(), 1, "{lines:#?}");
        let missed = lines.iter().filter(|line| line.text.starts_with("renewal not confirmed"));
        assert!(missed.count() > 1, "{lines:#?}");
        for start in ["the connection is lost", "connected again"] {
            let line = loud(&lines).find(|line| line.text.starts_with(start)).unwrap();
            assert!(line.text.contains(" server=127.0.0.1:"), "{line:?}");
        }
        assert!(lines.iter().any(|line| line.is_span && line.text.contains(" owner=")));

        for series in recorder::seen() {
            let text = format!("{series:?}");
            assert!(!text.contains(NAME) && !text.contains(CANARY), "{text}");
        }
    });
}

#[test]
fn names_are_shown_where_that_is_wanted() {
    let _alone = alone();
    let server = Server::builder(Generation::Redis70).arg("--requirepass", CANARY).start();
    let Some(server) = server else { return };
    runtime().block_on(async {
        begin();
        let said = everything(&server, true).await;
        let lines = lines();
        for start in ["acquire kind", "hold kind", "a lock is in doubt", "a lock is lost"] {
            let line = loud(&lines).find(|line| line.text.starts_with(start)).unwrap();
            assert!(line.text.contains(&format!("lock={NAME}")), "{line:?}");
        }
        for text in said.iter().chain(lines.iter().map(|line| &line.text)) {
            assert!(!text.contains(CANARY), "{text}");
        }
    });
}
