//! What each setting of encrypted connections does, on real servers.

use super::{CANARY, Scene, locks, tuned};
use crate::support::{runtime, soon, until};
use fairlock::{Client, Config, ErrorKind, Replicas};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tap::Tap;
use fairlock_testkit::tls::{Age, Use};
use fairlock_testkit::topology::{Cluster, SentinelSet};
use std::path::Path;
use std::time::Duration;

/// A `rediss://` URL with paths as options.
fn url(server: &Server, options: &[(&str, &Path)]) -> String {
    let options: Vec<_> =
        options.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
    format!("rediss://:{CANARY}@{}/0?{}", server.addr(), options.join("&"))
}

/// Each option, by URL and by builder; without it the same server is refused.
#[test]
fn each_option_is_needed_and_enough() {
    let scene = Scene::new();
    // Our CA.
    let Some(server) = scene.server() else { return };
    let ca = scene.files.put("trusted.pem", scene.ca.pem());
    let bare = tuned(Config::tcp("127.0.0.1", server.port())).password(CANARY).tls(true);
    let kind_of = |config: Config| {
        let error = runtime().block_on(Client::with_config(config)).unwrap_err();
        println!("{error}");
        error.kind()
    };
    assert_eq!(kind_of(bare.clone()), ErrorKind::Tls, "the machine does not trust our CA");
    locks(bare.clone().tls_ca(&ca));
    locks(tuned(Config::from_url(&url(&server, &[("ca", &ca)])).unwrap()));

    // A name other than the host's; a file with several CAs.
    let issued = scene.ca.issue(&["db.example"], Use::Server, Age::Valid);
    let Some(server) = scene.builder(&issued).start() else { return };
    let both = format!("{}{}", scene.other.pem(), scene.ca.pem());
    let both = scene.files.put("both.pem", &both);
    let config = tuned(Config::tcp("localhost", server.port())).password(CANARY).tls_ca(&both);
    assert_eq!(kind_of(config.clone()), ErrorKind::Tls);
    locks(config.tls_server_name("db.example"));
    let options = [("ca", &*both), ("server-name", Path::new("db.example"))];
    locks(tuned(Config::from_url(&url(&server, &options)).unwrap()));

    // A client certificate.
    let builder = scene.builder(&scene.ca.server()).arg("--tls-auth-clients", "yes");
    let Some(server) = builder.start() else { return };
    let mine = scene.files.identity("mine", &scene.ca.client(), &scene.ca);
    let config = scene.config(server.addr());
    locks(config.tls_cert(&mine.cert).tls_key(&mine.key));
    let options = [("ca", &*ca), ("cert", &*mine.cert), ("key", &*mine.key)];
    locks(tuned(Config::from_url(&url(&server, &options)).unwrap()));
}

/// TLS 1.2 and 1.3, by name and by address.
#[test]
fn both_versions_work() {
    let scene = Scene::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let builder = scene.builder(&scene.ca.server()).arg("--tls-protocols", version);
        let Some(server) = builder.start() else { return };
        locks(scene.config(server.addr()));
        let trusted = scene.files.put("trusted.pem", scene.ca.pem());
        locks(tuned(Config::tcp("localhost", server.port())).password(CANARY).tls_ca(trusted));
    }
}

/// In this test program rustls has no default provider, as in a program with two compiled in: code
/// that asks for the default panics. A client names its own provider, and changes nothing for the
/// process.
#[test]
fn two_providers_do_not_matter() {
    let asks = || rustls::ClientConfig::builder();
    assert!(std::panic::catch_unwind(asks).is_err(), "there is a default, the test shows nothing");
    let scene = Scene::new();
    let Some(server) = scene.server() else { return };
    locks(scene.config(server.addr()));
    assert!(rustls::crypto::CryptoProvider::get_default().is_none(), "nothing global is set");
}

/// Certificates are replaced under a connected client: the server's, its CA's and the client's own.
/// The next connection uses the new ones. While a file is garbage, or a key does not match its
/// certificate yet, the client waits.
#[test]
fn files_are_read_again_when_it_reconnects() {
    let scene = Scene::new();
    let mine = scene.files.identity("mine", &scene.ca.client(), &scene.ca);
    let builder = scene.builder(&scene.ca.server()).arg("--tls-auth-clients", "yes");
    let Some(server) = builder.start() else { return };
    let config =
        scene.config(server.addr()).tls_ca(&mine.ca).tls_cert(&mine.cert).tls_key(&mine.key);
    runtime().block_on(async {
        let client = Client::with_config(config).await.unwrap();
        let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
        server.kill9();
        // Everything is new except for a key, which is still the old one.
        let old_key = std::fs::read_to_string(&mine.key).unwrap();
        scene.files.identity("server", &scene.other.server(), &scene.other);
        scene.files.identity("mine", &scene.other.client(), &scene.other);
        let new_key = std::fs::read_to_string(&mine.key).unwrap();
        for (name, text, says) in
            [("mine.key", &*old_key, "does not belong"), ("mine.key", "garbage", "no private key")]
        {
            scene.files.put(name, text);
            server.restart();
            until("the file is told", async || {
                client.ping().await.is_err_and(|error| error.to_string().contains(says))
            })
            .await;
        }
        let waits = client.fair_lock("job");
        let waits = tokio::spawn(async move { waits.lock().await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waits.is_finished(), "a client that was connected once waits for better files");
        scene.files.put("mine.key", &new_key);
        let guard = soon("the lock", waits).await.unwrap().unwrap();
        let _ = guard.release().await.unwrap();
    });
}

/// What an eavesdropper sees: nothing of the login, nothing of the lock.
#[test]
fn nothing_can_be_read_on_the_wire() {
    let scene = Scene::new();
    let Some(server) = scene.server() else { return };
    let tap = Tap::before(server.addr());
    runtime().block_on(async {
        let client = Client::with_config(scene.config(tap.addr())).await.unwrap();
        let _ = client.fair_lock("invoice").lock().await.unwrap().release().await.unwrap();
    });
    assert!(tap.heard().len() > 1_000, "both connections went this way");
    for word in [CANARY, "HELLO", "SUBSCRIBE", "invoice", "EVALSHA"] {
        assert!(!tap.has_heard(word), "{word}");
    }
}

/// The nodes of a Cluster accept only TLS. A client begins with one of them; the others, which it
/// learns by address, are verified in the same way.
#[test]
fn nodes_of_a_cluster() {
    let scene = Scene::new();
    let nodes = scene.ca.issue(&["127.0.0.1"], Use::Both, Age::Valid);
    let nodes = scene.files.identity("nodes", &nodes, &scene.ca);
    let Some(cluster) = Cluster::start_tls(Generation::Redis70, &nodes) else { return };
    let ca = scene.files.put("trusted.pem", scene.ca.pem());
    assert!(cluster.url().starts_with("rediss+cluster://"), "{}", cluster.url());
    let first = cluster.url().split(',').next().unwrap().to_owned();
    runtime().block_on(async {
        let config = tuned(Config::from_url(&format!("{first}?ca={}", ca.display())).unwrap());
        let client = Client::with_config(config).await.unwrap();
        strict(&format!("{first}?ca={}", ca.display()), &cluster.nodes()[3..]).await;
        // One in the slots of each master: 15495, 7365 and 3300.
        for name in ["a", "c", "b"] {
            let lock = client.fair_lock(name);
            let guard = lock.lock().await.unwrap();
            let mut turn = lock.enqueue().await.unwrap();
            let _ = guard.release().await.unwrap();
            let _ = soon("the hand-over", turn.wait()).await.unwrap().release().await.unwrap();
        }
        let others = scene.files.put("others.pem", scene.other.pem());
        let config = tuned(Config::from_url(&format!("{first}?ca={}", others.display())).unwrap());
        let error = Client::with_config(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    });
}

/// Sentinels and data servers accept only TLS: the master is found, used for locks, and followed
/// after a failover.
#[test]
fn sentinels_and_their_servers() {
    let scene = Scene::new();
    let Some(set) = SentinelSet::start_tls(Generation::Redis70, &scene.identity()) else { return };
    let ca = scene.files.put("trusted.pem", scene.ca.pem());
    let url = format!("{}?ca={}", set.url(), ca.display());
    assert!(url.starts_with("rediss+sentinel://"), "{url}");
    runtime().block_on(async {
        let config = Config::from_url(&url).unwrap().store_timeout(Duration::from_secs(60));
        let client = Client::with_config(config).await.unwrap();
        let guard = client.fair_lock("job").lock().await.unwrap();
        let token = guard.token();
        let _ = guard.release().await.unwrap();
        let replicas = set.data().iter().enumerate().filter(|(n, _)| *n != set.master());
        let replicas: Vec<_> = replicas.map(|(_, server)| server).collect();
        strict(&url, replicas).await;
        set.kill_master();
        let guard = client.fair_lock("job").lock().await.unwrap();
        assert!(guard.token() > token);
        let _ = guard.release().await.unwrap();
    });
    // The scheme counts for both: without TLS the Sentinels do not answer.
    let plain = url.replace("rediss+", "redis+").split('?').next().unwrap().to_owned();
    let config = tuned(Config::from_url(&plain).unwrap());
    let error = runtime().block_on(Client::with_config(config)).unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}

/// Replicas are waited for over TLS, too: while they run there is a lock, while they hang there is
/// none.
async fn strict(url: &str, replicas: impl IntoIterator<Item = &Server>) {
    let replicas: Vec<_> = replicas.into_iter().collect();
    let config = tuned(Config::from_url(url).unwrap()).replicas(Replicas::AtLeast(1));
    let client =
        Client::with_config(config.replicas_timeout(Duration::from_secs(1))).await.unwrap();
    let lock = client.fair_lock("strict");
    until("a lock that a replica has", async || match lock.lock().await {
        Ok(guard) => guard.release().await.is_ok(),
        // The replica may be busy with its first copy of the data.
        Err(error) if error.kind() == ErrorKind::NotReplicated => false,
        Err(error) => panic!("{error}"),
    })
    .await;
    replicas.iter().for_each(|replica| replica.stop());
    let error = lock.lock().await.unwrap_err();
    replicas.iter().for_each(|replica| replica.cont());
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
}
