//! A server that is honest up to one of its replies, and hostile from there on (F87): nothing
//! panics, nothing hangs beyond the client's timeouts, and the client stores no more than its
//! bounds.
//!
//! Both tests run in a process of their own: the measured memory is the client's, and a panic on
//! any thread counts.

use crate::support::runtime;
use fairlock::{Client, Config, Error, ErrorKind};
use fairlock_testkit::resp;
use fairlock_testkit::server::{Generation, Server};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Which test runs in the child, and against which server.
const PART: &str = "FAIRLOCK_TEST_HOSTILE";
const UPSTREAM: &str = "FAIRLOCK_TEST_HOSTILE_SERVER";

/// The memory that a hostile server may cost beyond an honest one.
const MEMORY_MAX_KB: u64 = 64 << 10;

/// How long the client tries; its error comes soon after that.
const STORE_TIMEOUT: Duration = Duration::from_millis(400);

/// Hundreds of cases at once on a busy machine: far more than any of the client's timeouts, but not
/// for ever.
const HANGS: Duration = Duration::from_secs(60);

/// The number of cases that run at the same time.
const AT_ONCE: usize = 24;

/// What the client gets instead of a reply.
#[derive(Clone)]
struct Payload {
    name: &'static str,
    begin: Vec<u8>,
    /// Repeated for ever after `begin`.
    again: Vec<u8>,
}

fn payload(name: &'static str, begin: impl Into<Vec<u8>>, again: impl Into<Vec<u8>>) -> Payload {
    Payload { name, begin: begin.into(), again: again.into() }
}

/// Payloads that never end, so the client has to stop reading.
fn endless() -> Vec<Payload> {
    let many = |text: &str| text.repeat(4_096 / text.len());
    vec![
        payload("an endless text", "$536870912\r\n", many("x")),
        payload("an endless error text", "!9223372036854775807\r\n", many("x")),
        payload("an endless line", "+", many("x")),
        payload("an endless error", "-ERR ", many("x")),
        payload("endless elements", "*2147483647\r\n", many(":1\r\n")),
        payload("endless pairs", "%500000000\r\n", many("$1\r\nk\r\n$1\r\nv\r\n")),
        payload("endless depth", "", many("*1\r\n")),
        payload("endless wide depth", "", many("*4096\r\n")),
        payload("endless messages", "", many(">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\ny\r\n")),
        payload("endless replies", "", many("+OK\r\n")),
    ]
}

/// Payloads that end, or are followed by silence.
fn odd() -> Vec<Payload> {
    let texts = [
        "",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\r\n",
        "\0",
        "x",
        "*",
        "$9223372036854775807\r\n",
        "$-5\r\n",
        "$99999999999999999999\r\n",
        "*9223372036854775807\r\n",
        "*-7\r\n",
        "%9223372036854775807\r\n",
        "%-1\r\n",
        "|9223372036854775807\r\n",
        "|1\r\n+k\r\n+v\r\n+OK\r\n",
        ">0\r\n",
        ">1\r\n:1\r\n",
        "~-1\r\n",
        "!-1\r\n",
        "=-1\r\n",
        "=3\r\nabc\r\n",
        ":x\r\n",
        ":\r\n",
        "#x\r\n",
        ",nan\r\n",
        "(x\r\n",
        "$1\r\nabc",
        "_\r\n",
        ":1\r\n",
        ":-1\r\n",
        "+OK\r\n",
        "+QUEUED\r\n",
        "$0\r\n\r\n",
        "*0\r\n",
        "%0\r\n",
        "~0\r\n",
        "#t\r\n",
        "*1\r\n_\r\n",
        "*3\r\n:1\r\n:0\r\n$7\r\ngranted\r\n",
        "-\r\n",
        "-ERR x\r\n",
        "-MOVED 1 [::1]:99999\r\n",
        "-ASK 1 :0\r\n",
        "-NOSCRIPT x\r\n",
        "-LOADING x\r\n",
        "-BUSY x\r\n",
        "-NOAUTH x\r\n",
        "-READONLY x\r\n",
        ">3\r\n$10\r\ndisconnect\r\n$1\r\nx\r\n:1\r\n",
        ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n",
    ];
    let mut all: Vec<_> = texts.iter().map(|text| payload(text, *text, "")).collect();
    all.push(payload("depth", "*1\r\n".repeat(100_000), ""));
    all.push(payload("bytes of every value", (0..=255).collect::<Vec<u8>>(), ""));
    all
}

/// A proxy in front of a real server. The payload replaces the replies from number `from` up to
/// `until`.
struct Hostile {
    addr: SocketAddr,
    from: Arc<AtomicU64>,
    replies: Arc<AtomicU64>,
}

impl Hostile {
    fn start(upstream: SocketAddr, from: u64, until: u64, payload: Payload) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let replies = Arc::new(AtomicU64::new(0));
        let from = Arc::new(AtomicU64::new(from));
        let (begins, counted) = (Arc::clone(&from), Arc::clone(&replies));
        // The thread ends with its process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(upstream)) else {
                    continue;
                };
                let (mut asks, mut asked) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut asks, &mut asked);
                    let _ = asked.shutdown(Shutdown::Both);
                });
                let (payload, counted) = (payload.clone(), Arc::clone(&counted));
                let begins = Arc::clone(&begins);
                thread::spawn(move || {
                    let _ = answer(&server, &client, &payload, &begins, until, &counted);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        Self { addr, from, replies }
    }
}

fn answer(
    mut server: &TcpStream,
    mut client: &TcpStream,
    payload: &Payload,
    from: &AtomicU64,
    until: u64,
    counted: &AtomicU64,
) -> std::io::Result<()> {
    let (mut buffer, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        let read = server.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&chunk[..read]);
        while let Some((_, length)) = resp::parse(&buffer).expect("the server is real") {
            let reply: Vec<u8> = buffer.drain(..length).collect();
            let hostile = from.load(Ordering::Relaxed)..until;
            if !hostile.contains(&counted.fetch_add(1, Ordering::Relaxed)) {
                client.write_all(&reply)?;
                continue;
            }
            client.write_all(&payload.begin)?;
            while !payload.again.is_empty() {
                client.write_all(&payload.again)?;
            }
        }
    }
}

fn config(addr: SocketAddr) -> Config {
    let ms = Duration::from_millis;
    Config::from_url(&format!("redis://{addr}"))
        .unwrap()
        .connect_timeout(ms(400))
        .response_timeout(ms(200))
        .store_timeout(STORE_TIMEOUT)
        .ping_interval(ms(200))
        .ping_timeout(ms(200))
        .heartbeat(ms(500))
}

/// Connects, takes and releases a lock, and shuts down.
async fn use_it(addr: SocketAddr, name: &str) -> Result<(), Error> {
    let client = Client::with_config(config(addr)).await?;
    let used = async {
        if let Some(guard) = client.fair_lock(name).try_lock_for(STORE_TIMEOUT).await? {
            let _ = guard.release().await?;
        }
        client.fair_lock(name).inspect().await.map(drop)
    };
    let result = used.await;
    client.shutdown().await;
    result
}

/// Must end in bounded time; a failure must be an error with a readable message.
async fn bear(addr: SocketAddr, name: &str, what: &str) -> Result<(), Error> {
    let result = tokio::time::timeout(HANGS, use_it(addr, name)).await;
    let result = result.unwrap_or_else(|_| panic!("it hangs: {what}"));
    if let Err(error) = &result {
        assert!(error.to_string().len() < 2_000, "{what}: {error}");
        assert_ne!(error.kind(), ErrorKind::Misuse, "{what}: {error}");
    }
    result
}

/// The peak memory of this process, in kB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The child process; not a test by itself.
#[test]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    let upstream = std::env::var(UPSTREAM).unwrap().parse().unwrap();
    let honest = Hostile::start(upstream, 0, 0, payload("none", "", ""));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let until = Instant::now() + HANGS;
    // On a busy machine a call may exceed these short timeouts.
    while let Err(error) = runtime.block_on(bear(honest.addr, "job", "an honest server")) {
        assert!(Instant::now() < until, "{error}");
    }
    let replies = honest.replies.load(Ordering::Relaxed);
    assert!(replies >= 10, "{replies}");
    let before = peak();
    let (cases, began) = match part.as_str() {
        "endless" => runtime.block_on(every_endless(upstream)),
        _ => runtime.block_on(every_step(upstream, replies)),
    };
    let grown = peak() - before;
    println!(
        "measured: {part}: {cases} cases, {replies} replies of an honest server, {grown} kB more, {:.1?}",
        began.elapsed()
    );
    assert!(grown <= MEMORY_MAX_KB, "{grown} kB more than with an honest server");
}

/// All at once: from the very first reply, and from the first reply to a call.
async fn every_endless(upstream: SocketAddr) -> (usize, Instant) {
    let began = Instant::now();
    let mut cases = Vec::new();
    for payload in endless() {
        cases.push(tokio::spawn(async move {
            let server = Hostile::start(upstream, 0, u64::MAX, payload.clone());
            assert!(
                bear(server.addr, payload.name, payload.name).await.is_err(),
                "{}",
                payload.name
            );
            in_a_call(upstream, payload).await;
        }));
    }
    let count = 2 * cases.len();
    for case in cases {
        case.await.unwrap();
    }
    (count, began)
}

async fn in_a_call(upstream: SocketAddr, payload: Payload) {
    let name = payload.name;
    let server = Hostile::start(upstream, u64::MAX, u64::MAX, payload);
    // On a busy machine a connection may exceed these short timeouts.
    let until = Instant::now() + HANGS;
    let client = loop {
        match Client::with_config(config(server.addr)).await {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < until, "{name}: {error}"),
        }
    };
    server.from.store(0, Ordering::Relaxed);
    let call = async {
        let result = client.fair_lock(name).try_lock_for(STORE_TIMEOUT).await.map(drop);
        client.clone().shutdown().await;
        result
    };
    let result = tokio::time::timeout(HANGS, call).await;
    let result = result.unwrap_or_else(|_| panic!("a call hangs: {name}"));
    assert!(result.is_err(), "{name}");
}

/// Every payload instead of every third reply, alternately once or from that reply on.
async fn every_step(upstream: SocketAddr, replies: u64) -> (usize, Instant) {
    let began = Instant::now();
    let slots = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    let mut cases = Vec::new();
    for (number, payload) in odd().into_iter().enumerate() {
        for from in (0..replies).filter(|from| (from + number as u64).is_multiple_of(3)) {
            let once = (number as u64 + from / 3).is_multiple_of(2);
            let (slots, payload) = (Arc::clone(&slots), payload.clone());
            cases.push(tokio::spawn(async move {
                let _slot = slots.acquire().await.unwrap();
                let until = if once { from + 1 } else { u64::MAX };
                let server = Hostile::start(upstream, from, until, payload.clone());
                let (name, what) = (
                    format!("{number} {from}"),
                    format!("{:?} in place of reply {from}", payload.name),
                );
                let mut result = bear(server.addr, &name, &what).await;
                let until = Instant::now() + HANGS;
                // When the server is honest again, the client must succeed.
                while once && result.is_err() {
                    assert!(Instant::now() < until, "{what}: {result:?}");
                    result = bear(server.addr, &name, &what).await;
                }
            }));
        }
    }
    let count = cases.len();
    for case in cases {
        case.await.unwrap();
    }
    (count, began)
}

fn in_a_child(part: &str) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["hostile::child", "--exact", "--test-threads=1", "--nocapture"]);
    let output = command.env(PART, part).env(UPSTREAM, server.addr().to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("panicked"), "{said}\n{errors}");
    // The line begins with the name of the test.
    let measured = said.lines().find_map(|line| line.split_once("measured: ")).unwrap().1;
    println!("measured: {measured}");
    // The server still works.
    runtime().block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn f87_what_never_ends_is_not_kept() {
    in_a_child("endless");
}

#[test]
fn f87_any_reply_at_every_step_is_borne() {
    in_a_child("every step");
}
