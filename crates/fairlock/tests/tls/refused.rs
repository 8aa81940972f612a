//! What must not become a connection: each case with the error, which gives advice, and with what
//! was on the wire until then.

use super::{CANARY, Scene, tuned};
use crate::support::runtime;
use fairlock::{Client, Config, Error, ErrorKind};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tap::Tap;
use fairlock_testkit::tls::{Age, Use, self_signed};
use std::time::{Duration, Instant};

/// How a negative case ends.
struct Case {
    name: &'static str,
    kind: ErrorKind,
    says: &'static [&'static str],
}

/// Tries to connect in both ways, and checks everything that the error shows.
fn refused(config: &Config, case: &Case) -> Error {
    let Case { name, kind, says } = case;
    runtime().block_on(async {
        let error = Client::with_config(config.clone()).await.expect_err(name);
        println!("{name}: {error}");
        assert_eq!(error.kind(), *kind, "{name}: {error}");
        for part in *says {
            assert!(error.to_string().contains(part), "{name}: {error} does not say {part:?}");
        }
        assert!(!format!("{error} {error:?}").contains(CANARY), "{name}: {error:?}");
        // Only silence lasts until then.
        let silent = *kind == ErrorKind::Unavailable;
        let timeout = Duration::from_millis(if silent { 500 } else { 10_000 });
        let lazy = config.clone().lazy_connect(true).store_timeout(timeout);
        let client = Client::with_config(lazy).await.expect(name);
        let lazily = client.fair_lock("job").try_lock().await.expect_err(name);
        assert_eq!(lazily.kind(), *kind, "{name}, lazily: {lazily}");
        assert!(!format!("{lazily} {lazily:?}").contains(CANARY), "{name}: {lazily:?}");
        error
    })
}

/// Nothing of the protocol was sent, encrypted or not: the server decrypted no command, and no
/// password was on the wire. `tap` was in front of `server`.
fn nothing_said(case: &Case, tap: &Tap, server: Option<&Server>) {
    let name = case.name;
    assert!(!tap.heard().is_empty(), "{name}: nobody was there");
    for word in [CANARY, "HELLO", "AUTH", "CLIENT"] {
        assert!(!tap.has_heard(word), "{name}: {word} was on the wire");
    }
    assert_eq!(tap.heard()[0], 0x16, "{name}: a handshake came first");
    if let Some(server) = server {
        let mut raw = server.client();
        raw.call(&["AUTH", CANARY]);
        let commands = raw.call(&["INFO", "commandstats"]);
        // The test's own connections do not send it.
        assert!(!commands.text().contains("cmdstat_hello"), "{name}: {}", commands.text());
    }
}

const fn tls(name: &'static str, says: &'static [&'static str]) -> Case {
    Case { name, kind: ErrorKind::Tls, says }
}

const fn denied(name: &'static str, says: &'static [&'static str]) -> Case {
    Case { name, kind: ErrorKind::Denied, says }
}

/// Servers that do not prove their identity.
#[test]
fn servers_that_are_not_trusted() {
    let scene = Scene::new();
    let (ca, other) = (&scene.ca, &scene.other);
    let local = &["127.0.0.1", "localhost"];
    let table = [
        (tls("unknown CA", &["signed", "`ca="]), other.server(), "127.0.0.1"),
        (
            tls("expired", &["has expired 24 hours ago", "renew"]),
            ca.issue(local, Use::Server, Age::Expired),
            "127.0.0.1",
        ),
        (
            tls("not yet valid", &["valid only in 2", " hours by", "clock"]),
            ca.issue(local, Use::Server, Age::NotYet),
            "127.0.0.1",
        ),
        (
            tls("wrong host name", &["not for `localhost`", "db.example", "`server-name="]),
            ca.issue(&["db.example"], Use::Server, Age::Valid),
            "localhost",
        ),
        (
            tls("wrong address", &["not for `127.0.0.1`", "localhost", "`server-name="]),
            ca.issue(&["localhost"], Use::Server, Age::Valid),
            "127.0.0.1",
        ),
        (tls("self-signed", &["signed", "`ca="]), self_signed(local), "127.0.0.1"),
        (
            tls("a certificate of a client", &["not for servers", "serverAuth"]),
            ca.issue(local, Use::Client, Age::Valid),
            "127.0.0.1",
        ),
    ];
    for (case, issued, host) in table {
        let Some(server) = scene.builder(&issued).start() else { return };
        let tap = Tap::before(server.addr());
        let trusted = scene.files.put("trusted.pem", ca.pem());
        let config = tuned(Config::tcp(host, tap.addr().port())).tls_ca(trusted).password(CANARY);
        refused(&config, &case);
        nothing_said(&case, &tap, Some(&server));
    }
}

/// The reverse: a correct server, and a client that expects another one.
#[test]
fn what_a_client_expects() {
    type Change = fn(&Scene, Config) -> Config;
    let scene = Scene::new();
    let Some(server) = scene.server() else { return };
    let table: [(Case, Change); 3] = [
        (
            tls("wrong server name", &["not for `db.example`", "127.0.0.1, localhost"]),
            |_, config| config.tls_server_name("db.example"),
        ),
        (
            Case { name: "no name", kind: ErrorKind::Misuse, says: &["no name", "`server-name="] },
            |_, config| config.tls_server_name("no name"),
        ),
        (tls("the CA of others", &["file that `ca=` names"]), |scene, config| {
            config.tls_ca(scene.files.put("others.pem", scene.other.pem()))
        }),
    ];
    for (case, change) in table {
        let tap = Tap::before(server.addr());
        refused(&change(&scene, scene.config(tap.addr())), &case);
        if case.kind == ErrorKind::Tls {
            nothing_said(&case, &tap, Some(&server));
        }
    }
}

/// Servers that require client certificates. With TLS 1.3 they say so only after the handshake,
/// when the client has already verified the server; a login that the client may have sent could be
/// read by that server alone, and it did not process it.
#[test]
fn clients_that_are_not_trusted() {
    let scene = Scene::new();
    for (protocols, missing) in [
        ("TLSv1.3", denied("missing client certificate", &["wants a client certificate"])),
        ("TLSv1.2", tls("missing client certificate, 1.2", &["wants a client certificate"])),
    ] {
        let builder = scene.builder(&scene.ca.server()).arg("--tls-auth-clients", "yes");
        let Some(server) = builder.arg("--tls-protocols", protocols).start() else { return };
        let tap = Tap::before(server.addr());
        let config = scene.config(tap.addr());
        // The server's reason may be lost with the connection that it closes.
        refused_or_cut(&config, &missing, "client certificate");
        nothing_said(&missing, &tap, Some(&server));

        let of_others = scene.files.identity("wrong", &scene.other.client(), &scene.ca);
        let wrong = denied("client certificate of a wrong CA", &["No CA", "no CA that it trusts"]);
        let wrong = Case { says: &wrong.says[1..], ..wrong };
        let config_of_wrong = config.clone().tls_cert(of_others.cert).tls_key(of_others.key);
        refused_or_cut(&config_of_wrong, &wrong, "client certificate");
        let old = scene.ca.issue(&["client"], Use::Client, Age::Expired);
        let old = scene.files.identity("old", &old, &scene.ca);
        let expired = denied("expired client certificate", &["client certificate has expired"]);
        let config_of_old = config.clone().tls_cert(old.cert).tls_key(old.key);
        refused_or_cut(&config_of_old, &expired, "client certificate");
        nothing_said(&expired, &tap, Some(&server));
    }
}

/// Like `refused`, unless the server closed the connection so early that its reason was lost: then
/// the error asks about it.
fn refused_or_cut(config: &Config, case: &Case, asks: &str) {
    runtime().block_on(async {
        let error = Client::with_config(config.clone()).await.expect_err(case.name);
        println!("{}: {error}", case.name);
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
        if error.kind() == ErrorKind::Unavailable {
            assert!(error.to_string().contains(asks), "{error}");
            return;
        }
        assert_eq!(error.kind(), case.kind, "{error}");
        assert!(case.says.iter().all(|part| error.to_string().contains(part)), "{error}");
    });
}

/// Servers without TLS, or with a version that is too old, behind `rediss://`.
#[test]
fn servers_without_a_common_tls() {
    let scene = Scene::new();
    for generation in Generation::tested() {
        let Some(plain) = Server::start(generation) else { continue };
        let tap = Tap::before(plain.addr());
        // The server takes the handshake for a line without an end.
        let case = Case {
            name: "plain text behind rediss",
            kind: ErrorKind::Unavailable,
            says: &["took too long", "speak TLS", "`redis://`"],
        };
        let config = scene.config(tap.addr()).connect_timeout(Duration::from_millis(500));
        refused(&config, &case);
        nothing_said(&case, &tap, Some(&plain));
    }
    let tap = Tap::saying(b"-ERR unknown command\r\n");
    let case = tls("plain text behind rediss, in words", &["does not speak TLS", "`redis://`"]);
    refused(&scene.config(tap.addr()), &case);
    nothing_said(&case, &tap, None);

    for (case, settings) in [
        (
            tls("TLS 1.1 alone", &["no version of TLS", "1.2 or 1.3", "tls-protocols"]),
            [("--tls-protocols", "TLSv1.1"), ("--tls-ciphers", "DEFAULT:@SECLEVEL=0")],
        ),
        (
            tls("no cipher in common", &["no cipher in common", "tls-ciphers"]),
            [("--tls-protocols", "TLSv1.2"), ("--tls-ciphers", "AES128-SHA")],
        ),
    ] {
        let mut builder = scene.builder(&scene.ca.server());
        for (name, value) in settings {
            builder = builder.arg(name, value);
        }
        let Some(server) = builder.start() else { return };
        let tap = Tap::before(server.addr());
        refused(&scene.config(tap.addr()), &case);
        nothing_said(&case, &tap, Some(&server));
    }
}

/// A TLS server behind `redis://`: the one case in which a password is on the wire, because the URL
/// says so. The error names the other scheme.
#[test]
fn a_server_of_tls_behind_a_plain_url() {
    let scene = Scene::new();
    let Some(server) = scene.server() else { return };
    let config = |tap: &Tap| tuned(Config::tcp("127.0.0.1", tap.addr().port())).password(CANARY);
    // OpenSSL closes without an alert, others send one.
    let tap = Tap::before(server.addr());
    runtime().block_on(async {
        let error = Client::with_config(config(&tap)).await.unwrap_err();
        println!("{error}");
        assert!(error.to_string().contains("TLS"), "{error}");
    });
    assert!(tap.has_heard(CANARY), "or the other cases look at nothing");
    let alert = Tap::saying(&[0x15, 0x03, 0x01, 0, 2, 2, 0x46]);
    refused(&config(&alert), &tls("an alert behind redis", &["`rediss://`"]));
}

/// Peers that begin a handshake and do not finish it.
#[test]
fn handshakes_that_do_not_end() {
    let scene = Scene::new();
    let silent = Tap::silent();
    let config = scene.config(silent.addr()).connect_timeout(Duration::from_millis(400));
    let case = Case { name: "hangs", kind: ErrorKind::Unavailable, says: &["took too long"] };
    let began = Instant::now();
    refused(&config, &case);
    assert!(began.elapsed() < Duration::from_secs(10), "bounded: {:?}", began.elapsed());
    nothing_said(&case, &silent, None);

    // The first bytes of a ServerHello, then the end of the connection.
    let cut = Tap::saying(&[0x16, 0x03, 0x03, 0x00, 0x7a, 0x02, 0x00, 0x00]);
    let case = Case {
        name: "truncated",
        kind: ErrorKind::Unavailable,
        says: &["ended during the TLS handshake"],
    };
    refused(&scene.config(cut.addr()), &case);
    nothing_said(&case, &cut, None);

    // Alerts from servers that do not serve the requested name.
    for (alert, case) in [
        (0x70, tls("unrecognised name", &["knows no name `127.0.0.1`", "`server-name="])),
        (0x50, tls("internal error", &["InternalError"])),
    ] {
        let tap = Tap::saying(&[0x15, 0x03, 0x03, 0, 2, 2, alert]);
        refused(&scene.config(tap.addr()), &case);
        nothing_said(&case, &tap, None);
    }
}

/// Files that cannot be used: the error names the file, never its content, and the server receives
/// nothing at all.
#[test]
fn files_that_cannot_be_used() {
    let scene = Scene::new();
    let tap = Tap::silent();
    let put = |name: &str, text: &str| scene.files.put(name, text);
    let mine = scene.files.identity("mine", &scene.ca.client(), &scene.ca);
    let not_mine = scene.files.identity("other", &scene.ca.client(), &scene.ca);
    let secret = scene.ca.client().key;
    let garbage = put("garbage.pem", CANARY);
    let odd = put("odd.pem", &format!("-----BEGIN {CANARY}\n{CANARY}\n"));
    let no_der = "-----BEGIN CERTIFICATE-----\nQ0FOQVJZNWYxYw==\n-----END CERTIFICATE-----\n";
    let no_der = put("no-der.pem", no_der);
    let cut = put("cut.key", &secret[..secret.len() / 2]);
    let missing = scene.files.path().join("missing.pem");
    let folder = scene.files.path().to_owned();
    let base = scene.config(tap.addr());
    let with_key = |key| base.clone().tls_cert(&mine.cert).tls_key(key);
    let table = [
        (tls("CA missing", &["missing.pem", "No such file"]), base.clone().tls_ca(&missing)),
        (tls("CA is a folder", &["directory"]), base.clone().tls_ca(folder)),
        (tls("CA garbage", &["garbage.pem", "no certificate"]), base.clone().tls_ca(&garbage)),
        (tls("CA odd", &["odd.pem", "no certificate"]), base.clone().tls_ca(&odd)),
        (tls("CA no DER", &["no-der.pem", "damaged"]), base.clone().tls_ca(&no_der)),
        (tls("CA is a key", &["mine.key", "no certificate"]), base.clone().tls_ca(&mine.key)),
        (
            tls("certificate missing", &["missing.pem"]),
            base.clone().tls_cert(&missing).tls_key(&mine.key),
        ),
        (
            tls("certificate no DER", &["no-der.pem", "begins with"]),
            base.clone().tls_cert(&no_der).tls_key(&mine.key),
        ),
        (tls("key missing", &["missing.pem", "key file"]), with_key(&missing)),
        (tls("key garbage", &["garbage.pem", "no private key"]), with_key(&garbage)),
        (tls("key odd", &["odd.pem", "no private key"]), with_key(&odd)),
        (tls("key cut", &["cut.key", "no private key"]), with_key(&cut)),
        (tls("key of another", &["other.key", "mine.crt", "belong"]), with_key(&not_mine.key)),
    ];
    for (case, config) in table {
        let error = refused(&config, &case).to_string();
        let inside = secret.lines().nth(1).expect("a key of several lines");
        assert!(!error.contains(&inside[..16]) && !error.contains("Q0FOQVJZ"), "{error}");
    }
    assert_eq!(tap.heard(), b"", "files are read before anything is said");
}

/// Settings that cannot work are reported before anything else is done.
#[test]
fn settings_that_cannot_work() {
    let tcp = || Config::tcp("127.0.0.1", 1);
    let table = [
        ("go together", tcp().tls_cert("/c")),
        ("go together", tcp().tls_key("/k")),
        ("absolute", tcp().tls_ca("ca.pem")),
        ("absolute", tcp().tls_cert("/c").tls_key("k")),
        ("needs none", Config::unix("/s").tls(true)),
        ("needs none", Config::memory().tls_ca("/ca")),
    ];
    for (says, config) in table {
        let error = runtime().block_on(Client::with_config(config)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert!(error.to_string().contains(says), "{error} does not say {says:?}");
    }
    for (says, url) in [
        ("encrypted", "redis://h?ca=/ca.pem"),
        ("encrypted", "unix:/s?cert=/c"),
        ("encrypted", "redis+sentinel://h/m?server-name=x"),
        ("twice", "rediss://h?ca=/a&ca=/b"),
        ("empty", "rediss://h?ca="),
        ("takes only", "rediss://h?insecure=1"),
        ("percent", "rediss://h?ca=/%zz"),
    ] {
        let error = Config::from_url(url).unwrap_err();
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}

/// A check that cannot fail proves nothing: the same checks do see a client that is let in.
#[test]
fn the_looks_see_a_client_that_is_let_in() {
    let scene = Scene::new();
    let Some(server) = scene.server() else { return };
    let tap = Tap::before(server.addr());
    super::locks(scene.config(tap.addr()));
    let mut raw = server.client();
    assert_ne!(raw.call(&["AUTH", CANARY]), Value::Nil);
    assert!(raw.call(&["INFO", "commandstats"]).text().contains("cmdstat_hello"));
    assert!(!tap.has_heard(CANARY), "it is encrypted");
}
