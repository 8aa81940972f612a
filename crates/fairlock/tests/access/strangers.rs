//! The program at the port is not what the URL says, or the user lacks rights: the error names the
//! problem (D40, D33).

use super::profiles::{Rule, allow, profile};
use crate::support::in_real_time;
use fairlock::{Check, Client, Config, Error, ErrorKind, Release};
use fairlock_testkit::server::{Generation, Server};
use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

async fn refused(url: &str) -> Error {
    let config = Config::from_url(url).unwrap().connect_timeout(Duration::from_secs(5));
    Client::with_config(config).await.unwrap_err()
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no `{word}`: {error}");
    }
}

/// D40: `redis://` at a Sentinel's port and `redis+sentinel://` at a server's gave "unknown
/// command; is it Redis 6.2?".
#[test]
fn d40_a_sentinel_and_a_server_in_each_others_place() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let monitor = format!("sentinel monitor locks 127.0.0.1 {} 1\n", server.port());
            let sentinel =
                Server::builder_of_sentinel(generation).config(&monitor).start().unwrap();
            for database in ["", "/3"] {
                let error = refused(&format!("redis://{}{database}", sentinel.addr())).await;
                assert!(error.to_string().contains("redis+sentinel://"), "{database}: {error}");
            }
            let error = refused(&format!("redis://{}", sentinel.addr())).await;
            says(&error, ErrorKind::Misuse, &["a Sentinel answers here"]);
            let error = refused(&format!("redis+sentinel://{}/locks", server.addr())).await;
            says(&error, ErrorKind::Misuse, &["it is no Sentinel", "`redis://`"]);
        }
    });
}

/// A program that sends this to everybody.
fn stranger(greeting: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // A client that has already left has read enough.
            let _ = stream.write_all(greeting);
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    port
}

/// D40: a web server at the port was reported as raw bytes.
#[test]
fn d40_who_answers_is_named() {
    in_real_time(|| async {
        let web = stranger(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        let shell = stranger(b"SSH-2.0-OpenSSH_9.6\r\n");
        for url in
            [format!("redis://127.0.0.1:{web}"), format!("redis+sentinel://127.0.0.1:{web}/locks")]
        {
            says(&refused(&url).await, ErrorKind::Protocol, &["a web server answers here"]);
        }
        let error = refused(&format!("redis://127.0.0.1:{shell}")).await;
        says(&error, ErrorKind::Protocol, &["no Redis or Valkey server", "SSH-2.0-OpenSSH_9.6"]);
        // D33: text that is not UTF-8.
        let odd = stranger(b"-ERR \xff\xfe\r\n");
        let error = refused(&format!("redis://127.0.0.1:{odd}")).await;
        says(&error, ErrorKind::Protocol, &["not UTF-8"]);
    });
}

/// D40: the error does not contain the password, but keeps our own words that are equal to it.
#[tokio::test]
async fn d40_a_password_that_is_a_word_of_ours() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = refused(&format!("redis+sentinel://{closed}/locks?sentinel-password=no")).await;
    says(&error, ErrorKind::Unavailable, &["no Sentinel names a master"]);
}

fn without(name: &str, files: &[&str]) -> Vec<Rule> {
    let mut rules: Vec<_> = files.iter().flat_map(|file| profile(file)).collect();
    let all = rules.len();
    rules.retain(|rule| rule.text != name);
    assert_eq!(rules.len(), all - 1, "{name}");
    rules
}

/// D40: missing rights that were not noticed at connect, or named only in part.
#[test]
fn d40_what_is_missing_is_named_at_connect() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            for (rule, named) in [("+ping", "+ping"), ("+pubsub|numsub", "+pubsub|numsub")] {
                allow(&mut server.client(), &without(rule, &["locks.acl"]));
                let error = refused(&format!("redis://ann:pw@{}", server.addr())).await;
                says(&error, ErrorKind::Denied, &[named]);
            }
            let node = Server::builder(generation).bus_port().arg("--cluster-enabled", "yes");
            let node = node.start().unwrap();
            let mut raw = node.client();
            let slots = (0..16_384).map(|slot: u32| slot.to_string());
            let command = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots);
            assert_eq!(raw.call(&command.collect::<Vec<_>>()).text(), "OK");
            let sharded: &[&str] =
                if generation == Generation::Redis62 { &[] } else { &["cluster-sharded.acl"] };
            let files = [&["locks.acl", "cluster.acl"], sharded].concat();
            allow(&mut raw, &without("+asking", &files));
            let error = refused(&format!("redis+cluster://ann:pw@{}", node.addr())).await;
            says(&error, ErrorKind::Denied, &["+asking"]);
        }
    });
}

/// D40: a lock's channel contains the lock's name, so its rights cannot be checked before there is
/// a lock. The release names the channel; it used to be Unknown without any reason.
#[test]
fn d40_the_channel_of_a_lock_is_named_by_its_release() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            allow(&mut raw, &without("&redisson_lock__channel:{billing:*", &["locks.acl"]));
            let client =
                Client::connect(&format!("redis://ann:pw@{}", server.addr())).await.unwrap();
            let guard = client.plain_lock("billing:job").lock().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Unknown);
            let found = client.warnings().into_iter().find(|found| found.check() == Check::Rights);
            let found = found.expect("a reason").to_string();
            assert!(found.contains("`redisson_lock__channel:{billing:job}`"), "{found}");
            assert_eq!(raw.call(&["EXISTS", "billing:job"]).int(), 0);
        }
    });
}
