//! The JSON that commands print, against the schemas in docs/schemas. What any test reads is checked ([`of`]); here are
//! the states of a lock that all have to fit.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_testkit::schema::Schema;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use serde_json::Value;

use crate::fixture::{
    PROGRAM, Running, alone, eventually, fairlock, finish, hold_until, run_script,
};
use crate::generated::COMMANDS;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn schema(command: &str) -> Schema {
    Schema::read(&docs().join("schemas").join(format!("{command}.json")))
}

/// The schema of what a command of this program writes to stdout, if that is JSON.
pub(crate) fn of(command: &Command) -> Option<Schema> {
    let mut args = command.get_args().skip_while(|arg| *arg != PROGRAM).skip(1);
    let name = args.next()?.to_str()?;
    let args: Vec<_> = args.collect();
    // What is behind `--` is of the command that is run.
    let ours = args.split(|arg| *arg == "--").next()?;
    let has = |wanted: &[&str]| ours.iter().any(|arg| wanted.iter().any(|wanted| arg == wanted));
    let holds = name == "run" && ours.len() == args.len() && !has(&["-c", "-h", "--help"]);
    (holds || has(&["--json"])).then(|| schema(name))
}

/// Checks complete lines.
#[track_caller]
pub(crate) fn check(schema: Option<&Schema>, lines: &str) {
    let Some(schema) = schema else { return };
    for line in lines.lines() {
        let form: Value = serde_json::from_str(line).expect("JSON");
        if let Err(reason) = schema.check(&form) {
            panic!("{reason}: {line}");
        }
    }
}

#[test]
fn every_command_with_json_has_a_schema() {
    let has_json = |command: &&str| {
        let help = finish(fairlock([command, "--help"]));
        help.expect(0, "");
        // The hold of `run` needs no option.
        *command == "run" || help.stdout.contains("\n      --json ")
    };
    let commands: BTreeSet<_> = COMMANDS
        .iter()
        .filter(|command| has_json(command))
        .map(|name| format!("{name}.json"))
        .collect();
    let files = fs::read_dir(docs().join("schemas")).expect("the folder is there");
    let files = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
    assert_eq!(files.collect::<BTreeSet<_>>(), commands);
    let page = fs::read_to_string(docs().join("command-line.md")).expect("it is there");
    for file in commands {
        assert!(page.contains(&format!("(schemas/{file})")), "docs/command-line.md: {file}");
    }
}

/// Each file is complete, so what several have in common is in each of them, and the same.
#[test]
fn schemas_agree_with_each_other() {
    let [status, others @ ..] = ["status", "list", "watch"].map(schema);
    let own: Vec<_> = status.definitions().collect();
    let mut common = BTreeSet::new();
    for (name, definition) in others.iter().flat_map(Schema::definitions) {
        if name == "lock" {
            continue;
        }
        if let Some((_, same)) = own.iter().find(|(other, _)| *other == name) {
            assert_eq!(definition, *same, "{name}");
            common.insert(name);
        }
    }
    assert_eq!(common, BTreeSet::from(["client", "holder"]));
}

/// Holders and waiters, who end with the scene.
struct Scene {
    url: String,
    dir: TempDir,
    running: Vec<Running>,
}

impl Scene {
    fn runs(&mut self, options: &[&str], name: &str) {
        let script = hold_until(&self.dir.path().join("go"));
        self.running.push(Running::start(run_script(&self.url, options, name, &script)));
    }

    fn holds(&mut self, options: &[&str], name: &str) {
        self.runs(options, name);
        assert_eq!(self.running.last_mut().expect("just started").line(), "holding");
    }

    /// One that holds it, and one that waits.
    fn holds_and_waits(&mut self, options: &[&str], waits: &[&str], name: &str) {
        self.holds(options, name);
        self.runs(waits, name);
        eventually("one waits", || self.status(&[name])["queue_len"] == 1);
    }

    fn status(&self, args: &[&str]) -> Value {
        json(fairlock([&["status", "--json", "--url", &self.url], args].concat()))
    }
}

fn json(command: Command) -> Value {
    let outcome = finish(command);
    outcome.expect(0, "");
    serde_json::from_str(&outcome.stdout).expect("one object")
}

fn every_state_of_a_lock(url: String) -> Vec<Value> {
    let mut scene = Scene { url, dir: TempDir::new(), running: Vec::new() };
    finish(run_script(&scene.url, &["--once-per", "1h"], "done", "true")).expect(0, "");
    scene.holds_and_waits(&["--label", "backup"], &[], "fair");
    scene.holds_and_waits(&["--shared"], &["--kind", "rw"], "read");
    scene.holds_and_waits(&["--kind", "rw"], &["--shared"], "written");
    scene.holds_and_waits(
        &["--permits", "3", "--take", "2"],
        &["--permits", "2", "--take", "2"],
        "permits",
    );
    scene.holds(&["--kind", "plain"], "plain");
    scene.holds(&["--kind", "simple"], "simple");
    let names = ["free", "done", "fair", "read", "written", "permits"];
    let mut seen: Vec<_> = names.iter().map(|name| scene.status(&[name])).collect();
    seen.push(scene.status(&["--kind", "plain", "plain"]));
    seen.push(scene.status(&["--kind", "simple", "simple"]));
    let mut odd = fairlock(["status", "--json", "--url", &scene.url]);
    odd.arg(OsStr::from_bytes(b"odd\xff"));
    seen.push(json(odd));
    let list = [&["list", "--json", "--all", "--url", &scene.url][..], &names].concat();
    finish(fairlock(list)).expect(0, "");
    fs::write(scene.dir.path().join("go"), "").expect("the folder is there");
    for running in scene.running {
        running.wait().expect(0, "");
    }
    seen
}

/// The values of a field in all forms, and in the objects of a list in them.
fn values(forms: &[Value], list: Option<&str>, field: &str) -> BTreeSet<String> {
    let objects = forms.iter().flat_map(|form| match list {
        None => std::slice::from_ref(form),
        Some(list) => form[list].as_array().expect("a list").as_slice(),
    });
    objects.map(|object| object[field].to_string().replace('"', "")).collect()
}

#[test]
fn every_state_of_a_lock_fits() {
    let mut urls = vec![alone()];
    let server = Server::start(Generation::Redis70);
    urls.extend(server.iter().map(Server::url));
    for url in urls {
        let seen = every_state_of_a_lock(url);
        // The states were there.
        let all =
            |list, field| values(&seen, list, field).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(all(None, "kind"), "fair null plain rw semaphore simple");
        assert_eq!(all(None, "held"), "false true");
        assert_eq!(all(None, "done"), "false true");
        assert_eq!(all(None, "limits"), "[2,3] null");
        assert_eq!(all(None, "name_hex"), "6f6464ff null");
        assert_eq!(all(Some("holders"), "share"), "permits read whole");
        assert_eq!(all(Some("queue"), "share"), "permits read whole");
    }
}

/// A client that publishes nothing, in a queue of which it is not known who still lives.
#[test]
fn clients_of_other_programs_fit() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut raw = server.client();
    let java = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";
    raw.call(&["HSET", "java", java, "1"]);
    raw.call(&["RPUSH", "redisson_lock_queue:{java}", "another"]);
    raw.call(&["ZADD", "redisson_lock_timeout:{java}", "9000000000000", "another"]);
    for command in ["status", "list"] {
        let form = json(fairlock([command, "--json", "--url", &server.url(), "java"]));
        assert_eq!(
            (&form["holder"]["ours"], &form["holder"]["client"]),
            (&false.into(), &Value::Null)
        );
        assert_eq!((&form["queue_len"], &form["token"]), (&1.into(), &Value::Null));
    }
}

#[test]
fn every_source_of_a_store_fits() {
    let dir = TempDir::new();
    let file = dir.path().join("config.toml");
    fs::write(&file, "url = \"redis://locks.example\"\n").expect("the folder is there");
    let status = || fairlock(["status", "--json"]);
    let (mut argument, mut variable, mut configured) = (status(), status(), status());
    argument.args(["--url", "memory:"]);
    variable.env("FAIRLOCK_URL", "memory:");
    configured.env("FAIRLOCK_CONFIG", &file);
    for (command, source) in [
        (argument, "argument"),
        (variable, "environment"),
        (configured, "file"),
        (status(), "default"),
    ] {
        assert_eq!(json(command)["store"]["source"], source);
    }
}
