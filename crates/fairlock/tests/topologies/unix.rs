//! A server behind a Unix socket.

use crate::support::{runtime, soon};
use fairlock::{Client, Config, ErrorKind, Release};
use fairlock_testkit::server::{Generation, Server};

const PASSWORD: &str = "CANARY5f1c";

/// Each form of the URL and the builder lead to the same locks as TCP, in the named database;
/// clients of both share one queue.
#[test]
fn it_is_the_same_store_as_over_tcp() {
    for generation in Generation::few() {
        let Some(server) = Server::start(generation) else { continue };
        let path = server.unix_socket();
        let at = path.display();
        let table = [
            (Config::from_url(&format!("unix:{at}")).unwrap(), ""),
            (Config::from_url(&format!("unix://{at}?db=2")).unwrap(), "2"),
            (Config::unix(&path).database(3), "3"),
        ];
        for (config, database) in table {
            runtime().block_on(async {
                let url = format!("{}{database}", server.url());
                let tcp = Client::connect(&url).await.unwrap();
                let unix = Client::with_config(config).await.unwrap();
                let guard = unix.fair_lock("job").lock().await.unwrap();
                let mut next = tcp.fair_lock("job").enqueue().await.unwrap();
                let mut last = unix.fair_lock("job").enqueue().await.unwrap();
                let token = guard.token();
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                let guard = soon("the turn by TCP", next.wait()).await.unwrap();
                assert!(guard.token() > token);
                let _ = guard.release().await.unwrap();
                let _ = soon("the last turn", last.wait()).await.unwrap().release().await.unwrap();
            });
        }
    }
}

/// Logins work as over TCP, and errors name the socket but no password.
#[test]
fn logins_and_errors() {
    let builder = Server::builder(Generation::Redis70).arg("--requirepass", PASSWORD);
    let Some(server) = builder.start() else { return };
    let config = || Config::unix(server.unix_socket());
    runtime().block_on(async {
        let client = Client::with_config(config().password(PASSWORD)).await.unwrap();
        let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
        let no_server = server.dir().join("nobody");
        for (config, kind) in [
            (config().password("wrong-CANARY5f1c"), ErrorKind::Denied),
            (config(), ErrorKind::Denied),
            (Config::unix(&no_server).password(PASSWORD), ErrorKind::Unavailable),
        ] {
            let error = Client::with_config(config).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(server.dir().to_str().unwrap()), "{error}");
            assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
        }
    });
}
