//! Elections on a private server: how soon a leader is followed that resigns, beside a hand-over of the fair lock in the same
//! run, or that is killed; and how soon observers hear of it.

use crate::stats::{percentile, ratio, us};
use fairlock::{Client, Config, Observer};
use fairlock_testkit::processes::Owned;
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::Server;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Goals (docs/testing.md, N28 to N31): time until the next one holds the lock, of a hand-over's; behind the end of a dead leader's lease; until observers
/// have heard, at p99; and without a message.
const GOAL_RESIGNED: f64 = 1.1;
const GOAL_KILLED: Duration = Duration::from_millis(60);
const GOAL_HEARD: Duration = Duration::from_millis(50);
const GOAL_UNHEARD: Duration = Duration::from_secs(5);

/// The lease of leaders that are killed.
const LEASE: Duration = Duration::from_secs(2);

const KILLS: usize = 5;
const OBSERVERS: usize = 10;

pub(crate) async fn report(server: &Server, span: Duration) {
    resigned(server, span).await;
    heard(server, span).await;
    killed(server).await;
    unheard(server).await;
}

async fn connect(url: &str) -> Client {
    Client::with_config(Config::from_url(url).unwrap().watchdog_lease(LEASE)).await.unwrap()
}

/// Two clients lead one after the other, and have a fair lock one after the other, in turns.
async fn resigned(server: &Server, span: Duration) {
    let clients = [connect(&server.url()).await, connect(&server.url()).await];
    let (mut handed, mut begun, mut announced) = (Vec::new(), Vec::new(), Vec::new());
    let until = Instant::now() + span;
    let mut turn = 0;
    while Instant::now() < until {
        let [first, next] = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        turn += 1;
        let guard = clients[first].fair_lock("plain").lock().await.unwrap();
        let mut place = clients[next].fair_lock("plain").enqueue().await.unwrap();
        let waits = tokio::spawn(async move { (place.wait().await.unwrap(), Instant::now()) });
        tokio::task::yield_now().await;
        let began = Instant::now();
        let _ = guard.release().await.unwrap();
        let (guard, at) = waits.await.unwrap();
        handed.push(at - began);
        let _ = guard.release().await.unwrap();

        let election = clients[next].election("led");
        let term = clients[first].election("led").campaign("one").await.unwrap();
        let mut place = clients[next].fair_lock("led").enqueue().await.unwrap();
        let waits = tokio::spawn(async move {
            let guard = place.wait().await.unwrap();
            let at = Instant::now();
            (election.lead(guard, "two").await.unwrap(), at, Instant::now())
        });
        tokio::task::yield_now().await;
        let began = Instant::now();
        let _ = term.resign().await.unwrap();
        let (term, at, said) = waits.await.unwrap();
        begun.push(at - began);
        announced.push(said - began);
        let _ = term.resign().await.unwrap();
    }
    let lock = percentile(&mut handed, 50);
    let term = percentile(&mut begun, 50);
    println!(
        "a leader resigns: the next term begins after {}, {:.2} of a hand-over of the fair lock ({}; goal {GOAL_RESIGNED}), \
         and is announced after {}; p50 of {turn} each, in turns",
        us(term),
        ratio(term, lock),
        us(lock),
        us(percentile(&mut announced, 50)),
    );
}

async fn shows(observer: &mut Observer, value: &str) -> Instant {
    while observer.leader().is_none_or(|leader| leader.value.as_deref() != Some(value.as_bytes())) {
        observer.changed().await.unwrap();
    }
    Instant::now()
}

/// From before the call that announces a value until each observer, of a client of its own, shows it.
async fn heard(server: &Server, span: Duration) {
    let leads = connect(&server.url()).await;
    let mut observers = Vec::new();
    for _ in 0..OBSERVERS {
        let client = connect(&server.url()).await;
        observers.push(client.election("seen").observe().await.unwrap());
    }
    let mut took = Vec::new();
    let until = Instant::now() + span;
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        let value = format!("term {round}");
        let mut tasks = Vec::new();
        for mut observer in observers.drain(..) {
            let value = value.clone();
            tasks.push(tokio::spawn(async move {
                let at = shows(&mut observer, &value).await;
                (observer, at)
            }));
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        let term = leads.election("seen").campaign(&value).await.unwrap();
        for task in tasks {
            let (observer, at) = task.await.unwrap();
            took.push(at - began);
            observers.push(observer);
        }
        let _ = term.resign().await.unwrap();
    }
    println!(
        "{OBSERVERS} observers show a new leader after p50 {}, p99 {} (goal {} ms), at most {}; {round} terms",
        us(percentile(&mut took, 50)),
        us(percentile(&mut took, 99)),
        GOAL_HEARD.as_millis(),
        us(percentile(&mut took, 100)),
    );
}

/// Processes that lead are killed: from the end of their lease until the next one holds the lock, and observers show it.
async fn killed(server: &Server) {
    let (waits, looks) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut observer = looks.election("killed").observe().await.unwrap();
    let (mut late, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..KILLS {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.args(["elections", "leads", &server.url()]).stdout(Stdio::piped());
        let mut leader = Owned::spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(leader.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut place = waits.fair_lock("killed").enqueue().await.unwrap();
        leader.kill().unwrap();
        leader.wait().unwrap();
        let began = Instant::now();
        let left = waits.fair_lock("killed").remaining_ttl().await.unwrap().unwrap();
        let guard = place.wait().await.unwrap();
        late.push(began.elapsed().saturating_sub(left));
        let began = Instant::now();
        let term = waits.election("killed").lead(guard, "next").await.unwrap();
        seen.push(shows(&mut observer, "next").await.saturating_duration_since(began));
        let _ = term.resign().await.unwrap();
    }
    println!(
        "{KILLS} leaders are killed: the next term begins p50 {}, at most {} after the end of the lease (goal {} ms), and is \
         shown at most {} later",
        us(percentile(&mut late, 50)),
        us(percentile(&mut late, 100)),
        GOAL_KILLED.as_millis(),
        us(percentile(&mut seen, 100)),
    );
}

/// The process that leads, until it is killed.
pub(crate) async fn leads(url: &str) {
    let client = connect(url).await;
    let _term = client.election("killed").campaign("dead").await.unwrap();
    println!("leads");
    std::future::pending::<()>().await;
}

/// Messages to the observer are lost.
async fn unheard(server: &Server) {
    let proxy = Proxy::start(server.addr());
    let (leads, looks) = (connect(&server.url()).await, connect(&proxy.url()).await);
    let mut observer = looks.election("unheard").observe().await.unwrap();
    proxy.swallow_pushes(true);
    let mut took = Vec::new();
    for round in 0..3 {
        let value = format!("term {round}");
        let began = Instant::now();
        let term = leads.election("unheard").campaign(&value).await.unwrap();
        took.push(shows(&mut observer, &value).await - began);
        let _ = term.resign().await.unwrap();
    }
    println!(
        "without messages an observer shows a new leader after at most {:.2} s (goal {} s); 3 terms",
        percentile(&mut took, 100).as_secs_f64(),
        GOAL_UNHEARD.as_secs(),
    );
}
