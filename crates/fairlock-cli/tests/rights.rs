//! Users of the server who lack a right: the missing right is named where it is needed, and what
//! may be seen is shown.

use std::fs;
use std::path::Path;

use fairlock_testkit::resp;
use fairlock_testkit::server::{Generation, Server};
use serde_json::Value;

use crate::fixture::{Running, fairlock, finish, run_script};

/// The URL of a user `ann` with all rules of docs/acl for one user, except those that begin with
/// `without`.
fn user(server: &Server, without: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/acl");
    let mut rules = String::new();
    for file in ["locks.acl", "operate.acl", "records.acl"] {
        rules += &fs::read_to_string(folder.join(file)).expect("it is there");
    }
    let rules = rules.lines().map(|line| line.split('#').next().unwrap_or_default());
    let rules = rules.flat_map(str::split_whitespace).filter(|rule| !rule.starts_with(without));
    let mut command = vec!["ACL", "SETUSER", "ann", "reset", "resetchannels", "on", ">pw"];
    command.extend(rules);
    let reply = server.client().call(&command);
    assert!(!matches!(reply, resp::Value::Error(_)), "{reply:?}");
    format!("redis://ann:pw@{}", server.addr())
}

/// The release was denied halfway, so the run ended with 76, without a word about what was missing.
#[test]
fn a_missing_right_to_publish_is_named_by_the_run() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = user(&server, "&redisson_lock__channel");
    let channel = "`redisson_lock__channel:{billing:x}`";
    let run = run_script(&url, &["--kind", "plain"], "billing:x", "exit 0");
    let outcome = finish(run);
    outcome.expect(76, channel);
    assert!(outcome.stderr.contains("`&redisson_lock__channel:{*`"), "{outcome:?}");
    outcome.expect(76, "; the command itself ended with code 0");
    // Without a command.
    let hold = fairlock(["run", "--url", &url, "--kind", "plain", "billing:x"]);
    let mut hold = Running::start(hold);
    hold.line();
    hold.signal(rustix::process::Signal::TERM);
    hold.wait().expect(76, channel);
}

/// A list without the right to read a lock's keys was empty, without a word.
#[test]
fn names_without_the_right_to_read_them_are_counted() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = user(&server, "no such rule");
    // All keys of its own names, and none of those of `other:`.
    let rules = ["ACL", "SETUSER", "ann", "resetkeys", "~*billing:*", "~fairlock_client:*"];
    assert_eq!(server.client().call(&rules).text(), "OK");
    let hold = |name: &str| {
        let mut holder = Running::start(fairlock(["run", "--url", &server.url(), name]));
        holder.line();
        holder
    };
    let list = |pattern: &str| finish(fairlock(["list", "--url", &url, pattern]));
    let _holders = [hold("other:x"), hold("billing:x")];
    let all = list("*");
    all.expect(0, "1 name is not shown: no right to read it");
    assert!(all.stdout.contains("billing:x") && !all.stdout.contains("other:x"), "{all:?}");
    list("billing:*").expect(0, "");
    let _another = hold("other:y");
    list("*").expect(0, "2 names are not shown: no right to read them");
}

/// `list` reported what may not be read, but had no row for the lock: the table looked as if nobody
/// held it.
#[test]
fn a_lock_that_may_not_be_looked_at_has_a_row() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = user(&server, "~fairlock_beats");
    let mut holder = Running::start(fairlock(["run", "--url", &server.url(), "billing:x"]));
    holder.line();
    let look = |args: &[&str]| {
        let mut list = fairlock(["list", "--url", &url]);
        list.args(args);
        let outcome = finish(list);
        outcome.expect(77, "the key `fairlock_beats:{billing:x}`");
        outcome.stdout
    };
    let fields = |text: &str| -> Value { serde_json::from_str(text).expect("one object") };
    // Found by the search, which knows that it is held.
    let table = look(&[]);
    let row = table.lines().nth(1).expect("a row").split_whitespace().collect::<Vec<_>>();
    let known = "billing:x - ? ? 0 ? held, the store denies by whom";
    assert_eq!(row.join(" "), known);
    let found = fields(&look(&["--json"]));
    assert_eq!((&found["name"], &found["held"]), (&"billing:x".into(), &true.into()));
    assert_eq!((&found["queue_len"], &found["holder"]), (&0.into(), &Value::Null));
    assert!(
        found["denied"].as_str().is_some_and(|text| text.contains("fairlock_beats")),
        "{found}"
    );
    // Named: nothing is known about it.
    let table = look(&["billing:x"]);
    let row = table.lines().nth(1).expect("a row").split_whitespace().collect::<Vec<_>>();
    assert_eq!(row.join(" "), "billing:x - ? ? ? ? ?");
    let named = fields(&look(&["--json", "billing:x"]));
    assert_eq!((&named["held"], &named["queue_len"]), (&Value::Null, &Value::Null));
}
