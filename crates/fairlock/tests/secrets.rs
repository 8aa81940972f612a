//! F88: no output shows a password: errors, `Debug` forms, panics, and what the server shows to
//! others. Each search prints where it looked, and is also made once with a marker that must be
//! found, which proves that it looks in the right places.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::support::{SOON, runtime, soon, wait_behind};
use fairlock::{Client, Config, Credentials, Error, GuardState};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

/// Used in place of a password.
const CANARY: &str = "CANARY5f1c";

/// Used in place of names, which may be shown.
const MARKER: &str = "MARKER77ab";

/// A text and its origin.
type Found = (String, String);

#[track_caller]
fn nowhere(secret: &str, texts: &[Found]) {
    let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
    for (place, text) in texts {
        println!("searched: {place}: {} bytes", text.len());
        assert!(!text.contains(secret), "{place} shows the password: {text}");
    }
    println!("searched: {} texts, {bytes} bytes in all", texts.len());
    assert!(bytes > 0);
}

/// Everything that an error shows, including the panic of an `unwrap`.
fn shown(place: &str, error: &Error) -> Vec<Found> {
    let mut texts = vec![
        (format!("{place}: Display"), error.to_string()),
        (format!("{place}: Debug"), format!("{error:?} {error:#?}")),
    ];
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        texts.push((format!("{place}: cause"), format!("{cause} {cause:?}")));
        source = cause.source();
    }
    let fails = || -> Result<(), Error> { Err(error.clone()) };
    let unwrapped = catch_unwind(AssertUnwindSafe(|| fails().unwrap()));
    let panic = unwrapped.unwrap_err();
    let panic = panic.downcast_ref::<String>().expect("a message").clone();
    texts.push((format!("{place}: panic"), panic));
    texts
}

fn debug(place: &str, value: &dyn std::fmt::Debug) -> Found {
    (format!("Debug of {place}"), format!("{value:?} {value:#?}"))
}

/// URLs that are refused, with the secret in every place where a user may put it.
const REFUSED: [&str; 34] = [
    "CANARY5f1c",
    "CANARY5f1c@h",
    "u:CANARY5f1c@h",
    ":CANARY5f1c@h:6379",
    "http://u:CANARY5f1c@h",
    "CANARY5f1c://h",
    "rediss://u:CANARY5f1c@h?x=y",
    "sqlite:CANARY5f1c",
    "redis+sentinel://u:CANARY5f1c@h",
    "redis:u:CANARY5f1c@h",
    "redis:/u:CANARY5f1c@h",
    "redis://u:CANARY5f1c@",
    "redis://u:CANARY5f1c@:6379",
    "redis://u:CANARY5f1c",
    "redis://u:CANARY5f1c@h:x",
    "redis://u:CANARY5f1c@h:0",
    "redis://u:CANARY5f1c@h:99999",
    "redis://u:CANARY5f1c@h/x",
    "redis://u:CANARY5f1c@h?x=y",
    "redis://u:CANARY5f1c@h#x",
    "redis://u:CANARY5f1c@[::1",
    "redis://u:CANARY5f1c@[x]",
    "redis://u:CANARY5f1c@[::1]x",
    "redis://u:CANARY5f1c/rest@h",
    "redis://u:CANARY5f1c?rest@h",
    "redis://u:CANARY5f1c#rest@h",
    "redis://u:CANARY5f1c%@h",
    "redis://CANARY5f1c%zz:p@h",
    "unix:CANARY5f1c",
    "unix:/r.sock?password=CANARY5f1c",
    "redis://u:CANARY5f1c@h?password-env=X",
    "redis://h?password-file=/x&CANARY5f1c",
    "redis://h?password-env=X&password-file=CANARY5f1c",
    "redis+sentinel://h/m?sentinel-password=CANARY5f1c&sentinel-password-env=X",
];

#[test]
fn f88_urls_that_are_refused() {
    for url in REFUSED {
        let error = Config::from_url(url).err().unwrap_or_else(|| panic!("{url} is taken"));
        nowhere(CANARY, &shown(url, &error));
    }
    // Proof that the search would find it: a setting that errors do repeat.
    let config = Config::memory().database(4_000_771_177);
    let error = runtime().block_on(Client::with_config(config)).unwrap_err();
    assert!(shown("control", &error).iter().all(|(_, text)| text.contains("4000771177")));
}

/// A password in place of the user name, a frequent mistake with `redis://`: the URL is legal, the
/// settings are refused, and neither shows it.
#[test]
fn f88_a_password_in_place_of_the_user_name() {
    let config = Config::from_url(&format!("redis://{CANARY}@127.0.0.1:1")).unwrap();
    nowhere(CANARY, &[debug("Config", &config)]);
    let error = runtime().block_on(Client::with_config(config)).unwrap_err();
    nowhere(CANARY, &shown("a user name alone", &error));
    let config = Config::tcp("h", 1).username(MARKER).password(CANARY);
    let text = debug("Config", &config);
    assert!(text.1.contains(MARKER), "a user name with a password is shown: {text:?}");
    nowhere(CANARY, &[text]);
}

/// A password from a source: for a server that accepts it, and for one that does not.
#[test]
fn f88_no_source_shows_its_password() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let file = dir.path().join(MARKER);
    std::fs::write(&file, CANARY).unwrap();
    let mut raw = server.client();
    let at = || Config::tcp("127.0.0.1", server.port()).sentinel_password(CANARY);
    let login = || Credentials::new(CANARY).username(MARKER);
    let of_file = debug("Config", &at().password_file(&file).username(MARKER));
    assert!(of_file.1.contains(MARKER), "the file's name is shown: {of_file:?}");
    let mut texts = vec![of_file, debug("Credentials", &login())];
    for config in [
        at().password_file(&file).username(MARKER),
        at().password_from(move || Ok::<_, String>(login())),
    ] {
        runtime().block_on(async {
            raw.call(&["ACL", "SETUSER", MARKER, "reset", "on", ">other", "~*", "&*", "+@all"]);
            let error = Client::with_config(config.clone()).await.unwrap_err();
            texts.extend(shown("refused", &error));
            raw.call(&["ACL", "SETUSER", MARKER, &format!(">{CANARY}")]);
            let client = Client::with_config(config.clone()).await.unwrap();
            texts.extend([debug("Config", &config), debug("Client", &client)]);
        });
    }
    nowhere(CANARY, &texts);
}

/// Servers that do not let the client in, and programs that are not servers.
#[test]
fn f88_connecting_in_vain() {
    let Some(server) = Server::builder(Generation::Redis70).arg("--requirepass", "right").start()
    else {
        return;
    };
    let bound = || TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = bound().local_addr().unwrap();
    let mute = bound();
    let (web, web_addr) = {
        let web = bound();
        let addr = web.local_addr().unwrap();
        (web, addr)
    };
    // It repeats its input in an error: the worst possible server.
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in web.incoming().map_while(Result::ok) {
            let (mut stream, mut request) = (stream, [0; 2_048]);
            let length = stream.read(&mut request).unwrap_or(0);
            let heard = String::from_utf8_lossy(&request[..length]).replace("\r\n", " ");
            let _ = stream.write_all(format!("-ERR unknown command: {heard}\r\n").as_bytes());
        }
    });
    let login = |place: String| format!("redis://ann:{CANARY}@{place}");
    let table = [
        ("wrong password", login(server.addr().to_string())),
        ("wrong password alone", format!("redis://:{CANARY}@{}", server.addr())),
        ("nobody listens", login(refused.to_string())),
        ("no answer", login(mute.local_addr().unwrap().to_string())),
        ("a server that repeats what it hears", login(web_addr.to_string())),
        ("no such host", login("no-such-host.invalid".into())),
    ];
    runtime().block_on(async {
        for (place, url) in table {
            let config =
                Config::from_url(&url).unwrap().connect_timeout(Duration::from_millis(500));
            let config = config.store_timeout(Duration::from_millis(500));
            let error = soon(place, Client::with_config(config.clone())).await.unwrap_err();
            println!("{place}: {error}");
            nowhere(CANARY, &shown(place, &error));
            let client = Client::with_config(config.lazy_connect(true)).await.unwrap();
            for error in [
                soon(place, client.fair_lock("job").lock()).await.unwrap_err(),
                soon(place, client.plain_lock("job").try_lock()).await.unwrap_err(),
                soon(place, client.simple_lock("job").inspect()).await.unwrap_err(),
                soon(place, client.ping()).await.unwrap_err(),
            ] {
                nowhere(CANARY, &shown(&format!("{place}, lazily"), &error));
            }
            nowhere(CANARY, &[debug("Client", &client), debug("Lock", &client.fair_lock("job"))]);
        }
    });
}

/// Everything that a client with this password and this name shows.
async fn everything_shown(server: &Server, password: &str, name: &str) -> Vec<Found> {
    let mut raw = server.client();
    raw.call(&["AUTH", password]);
    for setting in ["slowlog-log-slower-than", "slowlog-max-len"] {
        raw.call(&["CONFIG", "SET", setting, if setting.ends_with("len") { "10000" } else { "0" }]);
    }
    let url = format!("redis://:{password}@{}", server.addr());
    let config = Config::from_url(&url).unwrap().client_name(name);
    let config = config.watchdog_lease(SOON).heartbeat(Duration::from_millis(100));
    let client = Client::with_config(config.clone()).await.unwrap();
    let lock = client.fair_lock(name);
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&lock, 1).await;
    let status = lock.inspect().await.unwrap();
    let mut texts = vec![
        debug("Config", &config),
        debug("Client", &client),
        debug("Lock", &lock),
        debug("LockName", guard.name()),
        debug("Guard", &guard),
        debug("OwnerId", guard.owner()),
        debug("ClientId", &client.id()),
        debug("FencingToken", &guard.token()),
        debug("GuardState", &guard.state()),
        debug("Kind", &lock.kind()),
        debug("LockStatus", &status),
        debug("Holder", &status.holder),
        debug("QueuedWaiter", &status.queue),
        debug("ConnectionState", &client.connection()),
        debug("Owner", &client.owner()),
        debug("Lock of an owner", &lock.clone().owned_by(&client.owner())),
    ];
    let turn = client.fair_lock(format!("{name} too")).enqueue().await.unwrap();
    texts.push(debug("Turn", &turn));
    drop(turn);
    let kept = client.fair_lock(format!("{name} kept")).lock().await.unwrap();
    texts.push(debug("Detached", &kept.detach().await.unwrap()));
    server_side(&mut raw, &mut texts);

    // Errors of a client that was let in.
    let plain = client.plain_lock("elsewhere").lock().await.unwrap();
    raw.call(&["SET", "elsewhere", "no lock"]);
    let error = soon("an error", client.fair_lock("elsewhere").lock()).await.unwrap_err();
    texts.extend(shown("wrong type", &error));
    texts.push(debug("Release", &soon("an end", plain.release()).await.unwrap()));
    assert!(lock.force_unlock().await.unwrap());
    let error = soon("an error", guard.reenter()).await.unwrap_err();
    texts.extend(shown("lost", &error));
    assert_eq!(guard.state(), GuardState::Lost);
    drop(soon("its turn", waiter).await.unwrap().unwrap());
    let error = lock.clone().lease(Duration::ZERO).lock().await.unwrap_err();
    texts.extend(shown("misuse", &error));
    raw.call(&["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
    let error = soon("an error", lock.lock()).await.unwrap_err();
    texts.extend(shown("denied", &error));
    raw.call(&["ACL", "SETUSER", "default", "+eval", "+evalsha"]);
    server_side(&mut raw, &mut texts);
    client.clone().shutdown().await;
    let error = lock.lock().await.unwrap_err();
    texts.extend(shown("closed", &error));
    texts
}

/// What anyone who may inspect the server sees.
fn server_side(raw: &mut Raw, texts: &mut Vec<Found>) {
    for command in [
        &["CLIENT", "LIST"][..],
        &["SLOWLOG", "GET", "10000"],
        &["PUBSUB", "CHANNELS", "*"],
        &["ACL", "LOG"],
        &["INFO", "everything"],
        &["KEYS", "*"],
    ] {
        let reply = raw.call(command);
        texts.push((command.join(" "), flat(&reply)));
    }
    let Value::Array(keys) = raw.call(&["KEYS", "*"]) else { panic!("no list") };
    for key in keys.iter().map(Value::text) {
        let dump = raw.call(&["DUMP", key]);
        texts.push((format!("key {key}"), flat(&dump)));
    }
}

/// All text of a reply, in order.
fn flat(value: &Value) -> String {
    match value {
        Value::Nil => String::new(),
        Value::Int(number) => number.to_string(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Simple(text) | Value::Error(text) => text.clone(),
        Value::Array(values) => values.iter().map(flat).collect::<Vec<_>>().join(" "),
    }
}

#[test]
fn f88_a_client_at_work_shows_its_password_nowhere() {
    for generation in Generation::tested() {
        let Some(server) = Server::start(generation) else { continue };
        runtime().block_on(async {
            server.client().call(&["CONFIG", "SET", "requirepass", CANARY]);
            let texts = everything_shown(&server, CANARY, "job").await;
            nowhere(CANARY, &texts);
        });
    }
}

/// Proof that the search can fail: the marker is used as a name, and is found.
#[test]
fn f88_the_search_finds_what_is_shown() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(async {
        server.client().call(&["CONFIG", "SET", "requirepass", "x"]);
        let texts = everything_shown(&server, "x", MARKER).await;
        for place in [
            "Debug of Lock",
            "Debug of LockName",
            "Debug of Guard",
            "Debug of Turn",
            "Debug of Detached",
            "CLIENT LIST",
            "SLOWLOG GET 10000",
            "KEYS *",
            "lost: Display",
            "lost: Debug",
            "lost: panic",
            "denied: Display",
            "misuse: panic",
            "closed: Display",
        ] {
            let found = texts.iter().any(|(at, text)| at == place && text.contains(MARKER));
            assert!(found, "{place} is not searched");
        }
    });
    // The same for what the server shows about logins.
    let mut raw = server.client();
    raw.call(&["AUTH", "x"]);
    raw.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    raw.call(&["ECHO", CANARY]);
    let mut texts = Vec::new();
    server_side(&mut raw, &mut texts);
    assert!(texts.iter().any(|(at, text)| at.starts_with("SLOWLOG") && text.contains(CANARY)));
}
