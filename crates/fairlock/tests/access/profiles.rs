//! The files in `docs/acl`: they contain every rule that is needed, and no others.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::support::{in_real_time, soon, until};
use fairlock::{Client, Config, Error, ErrorKind, LockStatus, Opened, Release};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};

/// One rule of a profile.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    /// Without it everything works, but a warning or the server shows that it is missing.
    pub(super) optional: bool,
}

/// The rules of a file, in order.
pub(super) fn profile(name: &str) -> Vec<Rule> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/acl");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let mut rules = Vec::new();
    for line in text.lines() {
        let (words, why) = line.split_once('#').unwrap_or((line, ""));
        let words = words.trim();
        assert!(words.is_empty() || !why.trim().is_empty(), "{name}: {line} says no reason");
        let optional = why.trim().starts_with("optional");
        let rule = |text: &str| Rule { text: text.to_owned(), optional };
        if words.starts_with('(') {
            rules.push(rule(words));
        } else {
            rules.extend(words.split_whitespace().map(rule));
        }
    }
    assert!(!rules.is_empty(), "{name}");
    rules
}

/// The rules for a user of all names, as in docs/acl/README.md: key rules beside `~*` are an error.
#[cfg(feature = "tls")]
pub(crate) fn for_all_names() -> Vec<String> {
    let files =
        ["locks.acl", "shares.acl", "latches.acl", "elections.acl", "operate.acl", "records.acl"];
    let rules =
        files.iter().flat_map(|file| profile(file)).filter(|rule| !rule.text.starts_with('~'));
    rules.map(|rule| rule.text.replace("billing:", "")).chain(["~*".to_owned()]).collect()
}

/// Gives `ann` these rules and no others.
pub(super) fn allow<'a>(raw: &mut Raw, rules: impl IntoIterator<Item = &'a Rule>) {
    let mut command = vec!["ACL", "SETUSER", "ann", "reset", "resetchannels", "on", ">pw"];
    command.extend(rules.into_iter().map(|rule| rule.text.as_str()));
    let reply = raw.call(&command);
    assert!(!matches!(reply, Value::Error(_)), "{reply:?}: {command:?}");
}

fn ann(server: &Server) -> Config {
    Config::tcp("127.0.0.1", server.port()).username("ann").password("pw").announce(false)
}

async fn connect(server: &Server) -> Result<Client, Error> {
    Client::with_config(ann(server)).await
}

/// What the rules are for: every kind of lock is acquired, waited for, handed over, inspected and
/// given up.
pub(super) async fn scenario(config: &Config) -> Result<(), Error> {
    let one = Client::with_config(config.clone()).await?;
    let two = Client::with_config(config.clone()).await?;
    one.ping().await?;
    for kind in ["fair", "plain", "simple"] {
        let name = format!("billing:{kind}");
        let lock = |client: &Client| match kind {
            "fair" => client.fair_lock(&name),
            "plain" => client.plain_lock(&name),
            _ => client.simple_lock(&name),
        };
        let guard = lock(&one).lock().await?;
        assert!(lock(&two).try_lock().await?.is_none());
        let own = lock(&two);
        let waiter = tokio::spawn(async move { own.lock().await });
        if kind == "fair" {
            until("a waiter", async || lock(&one).inspect().await.unwrap().queue_len == 1).await;
        }
        assert_eq!(guard.release().await?, Release::Released);
        let next = soon("its turn", waiter).await.unwrap()?;
        next.ensure_valid()?;
        assert_eq!(lock(&one).try_lock_for(Duration::from_millis(20)).await?.map(drop), None);
        assert!(lock(&one).force_unlock().await?);
        drop(next);
    }
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

/// What the rules of shares.acl are for, besides: shares are acquired, waited for, handed over, changed, inspected and
/// given up.
pub(super) async fn scenario_of_shares(config: &Config) -> Result<(), Error> {
    let one = Client::with_config(config.clone()).await?;
    let two = Client::with_config(config.clone()).await?;
    let (lock, other) = (one.rw_lock("billing:rw"), two.rw_lock("billing:rw"));
    let reading = lock.read().await?;
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { other.write().await }
    });
    until("a waiter", async || waiter.is_finished() || waits(lock.inspect().await)).await;
    assert!(waiter.is_finished() || lock.try_read().await?.is_none());
    assert_eq!(reading.release().await?, Release::Released);
    let writing = soon("its turn", waiter).await.unwrap()?;
    let reader = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await }
    });
    until("a waiter", async || reader.is_finished() || waits(other.inspect().await)).await;
    let reads_on = writing.downgrade().await?;
    let reading = soon("its turn", reader).await.unwrap()?;
    assert_eq!((reads_on.token(), other.force_unlock().await?), (reading.token(), 2));
    drop((reading, reads_on));

    let (pool, other) = (one.semaphore("billing:sem", 2), two.semaphore("billing:sem", 2));
    let permits = pool.acquire_many(2).await?;
    assert!(other.try_acquire_for(Duration::from_millis(20)).await?.is_none());
    let waiter = tokio::spawn(async move { other.acquire().await });
    until("a waiter", async || waiter.is_finished() || waits(pool.inspect().await)).await;
    assert_eq!(permits.release().await?, Release::Released);
    let permit = soon("its turn", waiter).await.unwrap()?;
    assert_eq!(pool.usage().await?.used, 1);
    assert_eq!(pool.force_unlock().await?, 1);
    drop(permit);
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

/// What the rules of elections.acl are for, besides: an election is held and observed.
pub(super) async fn scenario_of_elections(config: &Config) -> Result<(), Error> {
    let one = Client::with_config(config.clone()).await?;
    let two = Client::with_config(config.clone()).await?;
    let held = hold_an_election(&one, &two).await;
    // A term that could not be announced is given back in the background.
    one.shutdown().await;
    two.shutdown().await;
    held
}

async fn hold_an_election(one: &Client, two: &Client) -> Result<(), Error> {
    let term = one.election("billing:elect").campaign("one").await?;
    let mut observer = two.election("billing:elect").observe().await?;
    let seen = soon("the leader", observer.changed()).await?;
    assert_eq!(seen.and_then(|it| it.value), Some(b"one".to_vec()));
    term.proclaim("two").await?;
    let seen = soon("a change", observer.changed()).await?;
    assert_eq!(seen.and_then(|it| it.value), Some(b"two".to_vec()));
    assert_eq!(term.resign().await?, Release::Released);
    Ok(())
}

fn waits(seen: Result<LockStatus, Error>) -> bool {
    seen.is_ok_and(|seen| seen.queue_len == 1)
}

/// No lock of the scenarios remains, and no key without a TTL.
pub(super) fn nothing_is_left(raw: &mut Raw, context: &str) {
    let keys = raw.call(&["KEYS", "*"]);
    for key in keys.array() {
        let ttl = raw.call(&["PTTL", key.text()]).int();
        assert!(ttl != -1, "{context}: {} has no TTL", key.text());
    }
    for kind in ["fair", "plain", "simple", "rw", "sem", "elect"] {
        let left = raw.call(&["EXISTS", &format!("billing:{kind}")]).int();
        assert_eq!(left, 0, "{context}: the {kind} lock is still there");
    }
}

/// What was denied since the log was reset: the names of commands, keys and channels.
pub(super) fn denied(raw: &mut Raw) -> Vec<String> {
    let log = raw.call(&["ACL", "LOG", "128"]);
    let object = |entry: &Value| {
        let mut fields = entry.array().chunks_exact(2);
        fields.find(|pair| pair[0].text() == "object").unwrap()[1].text().to_owned()
    };
    log.array().iter().map(object).collect()
}

/// No right is missing: the server's log of denials is empty, except for the records of clients
/// where their rules are not included.
#[test]
fn nothing_is_missing() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            let mut rules = profile("locks.acl");
            allow(&mut raw, &rules);
            scenario(&ann(&server)).await.unwrap();
            nothing_is_left(&mut raw, generation.name());
            let denied_keys = denied(&mut raw);
            let is_record = |key: &String| key.starts_with("fairlock_client:");
            assert!(denied_keys.iter().all(is_record), "{}: {denied_keys:?}", generation.name());
            let client = connect(&server).await.unwrap();
            assert_eq!(client.warnings(), [], "{}", generation.name());

            rules.extend([profile("operate.acl"), profile("records.acl")].concat());
            allow(&mut raw, &rules);
            raw.call(&["ACL", "LOG", "RESET"]);
            scenario(&ann(&server)).await.unwrap();
            operate(&server).await.unwrap();
            // A listing also looks for the twin `{x}` of each lock `x`: see operate.acl.
            let mut denied = denied(&mut raw);
            let of_shares =
                |key: &str| key.starts_with("fairlock_rw_") || key.starts_with("fairlock_sem_");
            denied.retain(|key| !key.starts_with("{billing:") && !of_shares(key));
            assert_eq!(denied, [""; 0], "{}", generation.name());
        }
    });
}

/// The rules of shares.acl are complete, and each of them is needed.
#[test]
fn shares_need_their_rules_and_no_others() {
    in_real_time(|| async {
        need_their_rules_and_no_others("shares.acl", async |config: &Config| {
            scenario_of_shares(config).await
        })
        .await;
    });
}

/// The same of elections.acl.
#[test]
fn elections_need_their_rules_and_no_others() {
    in_real_time(|| async {
        let scenario = async |config: &Config| scenario_of_elections(config).await;
        need_their_rules_and_no_others("elections.acl", scenario).await;
    });
}

async fn need_their_rules_and_no_others(
    file: &str,
    scenario: impl AsyncFn(&Config) -> Result<(), Error>,
) {
    for generation in Generation::tested() {
        let Some(server) = Server::start(generation) else { continue };
        let mut raw = server.client();
        let (base, rules) = (profile("locks.acl"), profile(file));
        allow(&mut raw, base.iter().chain(&rules));
        raw.call(&["ACL", "LOG", "RESET"]);
        scenario(&ann(&server)).await.unwrap();
        nothing_is_left(&mut raw, generation.name());
        let mut denials = denied(&mut raw);
        denials.retain(|key| !key.starts_with("fairlock_client:"));
        assert_eq!(denials, [""; 0], "{}", generation.name());
        for (at, rule) in rules.iter().enumerate() {
            let context = format!("{} without {}", generation.name(), rule.text);
            allow(&mut raw, rules[..at].iter().chain(&rules[at + 1..]).chain(&base));
            raw.call(&["ACL", "LOG", "RESET"]);
            let result = soon(&context, scenario(&ann(&server))).await;
            assert!(!denied(&mut raw).is_empty(), "{context}: nobody was denied anything");
            if rule.optional {
                result.unwrap_or_else(|error| panic!("{context}: {error}"));
            } else {
                let error = result.expect_err(&context);
                assert_eq!(error.kind(), ErrorKind::Denied, "{context}: {error}");
                assert!(names(&error, &rule.text), "{context}: {error}");
                println!("{context}: {error}");
            }
            nothing_is_left(&mut raw, &context);
            raw.call(&["FLUSHALL"]);
        }
    }
}

/// The rules of latches.acl are complete, and each of them is needed.
#[test]
fn latches_need_their_rules_and_no_others() {
    in_real_time(|| async {
        async fn scenario(config: &Config) -> Result<(), Error> {
            let one = Client::with_config(config.clone()).await?;
            let two = Client::with_config(config.clone()).await?;
            let (latch, other) = (one.latch("billing:import"), two.latch("billing:import"));
            latch.try_set(1).await?;
            let waiter = tokio::spawn(async move { other.wait().await });
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(latch.count_down().await?, 0);
            assert_eq!(soon("the end", waiter).await.unwrap()?, Opened::CountedDown);
            latch.try_set(1).await?;
            assert!(latch.delete().await?);
            Ok(())
        }
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            let (base, rules) = (profile("locks.acl"), profile("latches.acl"));
            allow(&mut raw, base.iter().chain(&rules));
            raw.call(&["ACL", "LOG", "RESET"]);
            scenario(&ann(&server)).await.unwrap();
            let mut denials = denied(&mut raw);
            denials.retain(|key| !key.starts_with("fairlock_client:"));
            assert_eq!(denials, [""; 0], "{}", generation.name());
            for (at, rule) in rules.iter().enumerate() {
                let context = format!("{} without {}", generation.name(), rule.text);
                allow(&mut raw, rules[..at].iter().chain(&rules[at + 1..]).chain(&base));
                let error = soon(&context, scenario(&ann(&server))).await.expect_err(&context);
                assert_eq!(error.kind(), ErrorKind::Denied, "{context}: {error}");
                assert!(names(&error, &rule.text), "{context}: {error}");
                raw.call(&["FLUSHALL"]);
            }
        }
    });
}

/// Who lets readers in needs the keys by which Java takes them for alive. A writer was let in without that right, and so was
/// force: the scripts that served the readers were stopped half way.
#[test]
fn who_may_not_let_readers_in_changes_nothing() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            let own = profile("shares.acl");
            let own = own.iter().filter(|rule| rule.text != "~{billing:*");
            allow(&mut raw, profile("locks.acl").iter().chain(own));
            let client = connect(&server).await.unwrap();
            let lock = client.rw_lock("billing:rw");
            for error in [lock.write().await.map(drop), lock.try_write().await.map(drop)] {
                let error = error.expect_err("no right to the readers' keys");
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            }
            assert_eq!(raw.call(&["EXISTS", "billing:rw"]).int(), 0);

            let all = Client::connect(&server.url()).await.unwrap();
            let writing = all.rw_lock("billing:rw").write().await.unwrap();
            let reader = tokio::spawn(async move {
                let readers = all.rw_lock("billing:rw");
                let reading = readers.read().await.unwrap();
                (all, reading)
            });
            let waiting = Client::connect(&server.url()).await.unwrap().rw_lock("billing:rw");
            until("a reader", async || waits(waiting.inspect().await)).await;
            let error = lock.force_unlock().await.expect_err("no right to the readers' keys");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(!reader.is_finished(), "it is still written");
            writing.ensure_valid().unwrap();
            assert_eq!(writing.release().await.unwrap(), Release::Released);
            drop(soon("its turn", reader).await.unwrap());
        }
    });
}

/// A client that announces itself, and an operator that lists all locks.
async fn operate(server: &Server) -> Result<(), Error> {
    let holder = Client::with_config(ann(server).announce(true).label("nightly")).await?;
    let guard = holder.fair_lock("billing:job").lock().await?;
    let operator = connect(server).await?;
    let status = operator.fair_lock("billing:job").inspect().await?;
    let info = status.clients.into_values().next();
    let label = info.and_then(|info| info.label);
    let seen = listed(&operator).await?;
    let _ = guard.release().await?;
    // Last, so that a denied call above returns its error first.
    match label.as_deref() {
        Some("nightly") if seen.contains(&"billing:job".to_owned()) => Ok(()),
        other => panic!("the holder is {other:?}, the locks are {seen:?}"),
    }
}

async fn listed(client: &Client) -> Result<Vec<String>, Error> {
    let mut locks = client.locks();
    let mut names = Vec::new();
    while let Some(page) = locks.next_page().await? {
        names.extend(page.iter().map(|lock| lock.name.to_string()));
    }
    Ok(names)
}

/// Each rule of the operators' file is needed: without it there is a typed error. Those for the
/// records are optional: without one of them a lock's holder is not identified, and no record
/// stays.
#[test]
fn each_rule_besides_is_needed() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            let base = profile("locks.acl");
            let records = profile("records.acl");
            for (at, rule) in profile("operate.acl").iter().enumerate() {
                let others = profile("operate.acl");
                let rest =
                    others[..at].iter().chain(&others[at + 1..]).chain(&records).chain(&base);
                allow(&mut raw, rest);
                let client = connect(&server).await.unwrap();
                let guard = client.fair_lock("billing:job").lock().await.unwrap();
                let error = listed(&client).await.expect_err(&rule.text);
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
                assert!(names(&error, &rule.text), "without {}: {error}", rule.text);
                let _ = guard.release().await.unwrap();
            }
            for (at, rule) in records.iter().enumerate() {
                allow(&mut raw, records[..at].iter().chain(&records[at + 1..]).chain(&base));
                let client = Client::with_config(ann(&server).announce(true)).await.unwrap();
                let guard = client.fair_lock("billing:job").lock().await.unwrap();
                let status = client.fair_lock("billing:job").inspect().await.unwrap();
                let context = format!("{} without {}", generation.name(), rule.text);
                assert!(status.clients.is_empty(), "{context}");
                let _ = guard.release().await.unwrap();
                client.shutdown().await;
                nothing_is_left(&mut raw, &context);
            }
        }
    });
}

/// With a selector the locks of others can be listed but not changed; servers before 7.0 refuse
/// selectors.
#[test]
fn the_locks_of_others_can_be_listed() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            let lent = Client::connect(&server.url()).await.unwrap();
            let others = lent.fair_lock("payroll:job").lock().await.unwrap();
            let all = profile("list-all.acl");
            if generation == Generation::Redis62 {
                let reply = raw.call(&["ACL", "SETUSER", "ann", &all[0].text]);
                assert!(matches!(reply, Value::Error(_)), "{reply:?}");
                continue;
            }
            let mut rules = [profile("locks.acl"), profile("operate.acl")].concat();
            allow(&mut raw, &rules);
            let own = connect(&server).await.unwrap();
            let guard = own.fair_lock("billing:job").lock().await.unwrap();
            assert_eq!(listed(&own).await.unwrap(), ["billing:job"]);
            rules.extend(all);
            allow(&mut raw, &rules);
            let own = connect(&server).await.unwrap();
            let mut seen = listed(&own).await.unwrap();
            seen.sort();
            assert_eq!(seen, ["billing:job", "payroll:job"]);
            let error = own.fair_lock("payroll:job").force_unlock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(names(&error, "~payroll:job"), "{error}");
            assert_eq!(others.release().await.unwrap(), Release::Released);
            drop(guard);
        }
    });
}

/// The commands that scripts run, the rules that allow them, and the rights that are tried at
/// connect are the same.
#[test]
fn the_rules_are_those_of_the_scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis/lua");
    let (mut run, mut tried) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        match path.file_name().unwrap().to_str().unwrap() {
            // It only reads, and a denied read merely leaves a client's record out.
            "client.lua" => {}
            "rights.lua" => {
                let quoted = text.split('\'').skip(1).step_by(2);
                tried.extend(quoted.filter(|word| is_command(word)).map(str::to_lowercase));
            }
            name if name.ends_with(".lua") => {
                let calls = text.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
                run.extend(calls.map(str::to_lowercase));
            }
            _ => {}
        }
    }
    for word in ["numsub", "xx", "before"] {
        assert!(tried.remove(word), "an argument");
    }
    for word in ["spublish", "sunsubscribe"] {
        assert!(tried.remove(word), "on Clusters: cluster-sharded.acl");
    }
    assert_eq!(run, tried, "rights.lua tries what the scripts run");
    let rules = profile("locks.acl");
    let rules = rules.iter().filter_map(|rule| rule.text.strip_prefix('+'));
    let mut allowed: BTreeSet<_> =
        rules.map(|name| name.split('|').next().unwrap().to_owned()).collect();
    let direct =
        ["subscribe", "unsubscribe", "ping", "client", "info", "eval", "evalsha", "publish"];
    for name in direct {
        assert!(allowed.remove(name), "{name}");
    }
    assert_eq!(run, allowed, "locks.acl allows what the scripts run");
}

fn is_command(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Without each rule in turn: something is denied, the error names it, and nothing is left behind.
/// A missing optional rule is not an error: a warning or the server shows it.
#[test]
fn each_rule_is_needed() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let mut raw = server.client();
            let rules = profile("locks.acl");
            for (at, rule) in rules.iter().enumerate() {
                let context = format!("{} without {}", generation.name(), rule.text);
                allow(&mut raw, rules[..at].iter().chain(&rules[at + 1..]));
                raw.call(&["SCRIPT", "FLUSH"]);
                raw.call(&["ACL", "LOG", "RESET"]);
                let result = scenario(&ann(&server)).await;
                let denials = raw.call(&["ACL", "LOG"]);
                assert!(!denials.array().is_empty(), "{context}: nobody was denied anything");
                nothing_is_left(&mut raw, &context);
                if rule.optional {
                    result.unwrap_or_else(|error| panic!("{context}: {error}"));
                    let client = connect(&server).await.unwrap();
                    let told: Vec<_> = client.warnings().iter().map(ToString::to_string).collect();
                    assert_eq!(
                        told.len(),
                        usize::from(rule.text == "+info"),
                        "{context}: {told:?}"
                    );
                    assert!(
                        told.iter().all(|told| told.contains(&rule.text)),
                        "{context}: {told:?}"
                    );
                    continue;
                }
                let error = result.expect_err(&context);
                assert_eq!(error.kind(), ErrorKind::Denied, "{context}: {error}");
                assert!(names(&error, &rule.text), "{context}: {error}");
                println!("{context}: {error}");
                raw.call(&["FLUSHALL"]);
            }
        }
    });
}

/// Whether the error names what the rule allows.
pub(super) fn names(error: &Error, rule: &str) -> bool {
    let text = error.to_string().to_lowercase();
    let name = rule[1..].trim_end_matches('*');
    match &rule[..1] {
        // The command, or its container where the server says no more.
        "+" => text.contains(name.split('|').next().unwrap()),
        _ => text.contains(name),
    }
}
