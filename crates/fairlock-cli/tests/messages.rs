//! Every error and notice of the command line in one file, `messages.txt`, for people to review:
//! does each say what happened, to which lock, and what to do? A change shows up in the diff of
//! that file.
//!
//! `FAIRLOCK_UPDATE_MESSAGES=1` writes it; refused where `CI` is set. Text that differs from run to
//! run (ports, folders, ids, times) is replaced by a word in capitals.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::terminal::Terminal;
use rustix::process::Signal;

use crate::fixture::{Outcome, Running, alone, fairlock, finish, neutral, run_script};

const FILE: &str = "tests/messages.txt";

const HEAD: &str = "\
# Every error and notice of the command line, as tests/messages.rs provokes them; that file says how to update this
# one. Each line says what happened, to which lock, and what to do. Read the difference as somebody who is woken by it.
";

/// The servers and files of all scenes, and what was printed in them.
struct Transcript {
    text: String,
    /// Texts to replace, and their replacements.
    words: Vec<(String, String)>,
}

impl Transcript {
    fn part(&mut self, title: &str) {
        let _ = write!(self.text, "\n# {title}\n");
    }

    /// Records what a process printed and how it ended.
    fn scene(&mut self, what: &str, outcome: &Outcome) {
        let _ = write!(self.text, "\n{what}: {}\n", outcome.code());
        let said = self.neutral(&outcome.stderr);
        let lines = said.lines();
        assert!(
            lines.clone().all(|line| line.starts_with("fairlock: ")),
            "{what}: every line is ours: {outcome:?}"
        );
        for line in lines {
            self.text.extend(["  ", line, "\n"]);
        }
    }

    /// The same for a message about one lock, which it must name.
    fn about(&mut self, lock: &str, what: &str, outcome: &Outcome) {
        assert!(outcome.stderr.is_empty() || outcome.stderr.contains(lock), "{what}: {outcome:?}");
        self.scene(what, outcome);
    }

    /// `fairlock ARGS`, shown as typed.
    fn typed(&mut self, args: &[&str]) {
        let what = format!("fairlock {}", args.join(" "));
        let what = self.neutral(&what);
        self.scene(&what, &finish(fairlock(args)));
    }

    fn with_url(&mut self, url: &str) {
        let what = format!("FAIRLOCK_URL={url} fairlock status x");
        let what = self.neutral(&what);
        let mut command = fairlock(["status", "x"]);
        command.env("FAIRLOCK_URL", url);
        self.scene(&what, &finish(command));
    }

    fn neutral(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.words {
            text = text.replace(from.as_str(), to);
        }
        clients(&ids(&text))
    }
}

/// Replaces the varying parts of `ann@web-1, pid 42, nightly, for 1.2s` and similar texts.
fn clients(text: &str) -> String {
    let end_of =
        |text: &str, is_in: fn(char) -> bool| text.find(|c| !is_in(c)).unwrap_or(text.len());
    let mut text = text.to_owned();
    for (before, word, is_in) in [
        (", pid ", "PID", (|c| c.is_ascii_digit()) as fn(char) -> bool),
        (", for ", "TIME", |c| c.is_ascii_alphanumeric() || c == '.'),
        ("next start in ", "TIME", |c| c.is_ascii_alphanumeric()),
        ("acquired, token ", "TOKEN", |c| c.is_ascii_digit()),
    ] {
        let mut neutral = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(before) {
            let (head, value) = rest.split_at(at + before.len());
            if !value.starts_with(|c: char| c.is_ascii_digit()) {
                neutral.push_str(head);
                rest = value;
                continue;
            }
            let head = match head.strip_suffix(", pid ") {
                None => head.to_owned(),
                Some(head) => {
                    let at = head.rfind(' ').map_or(0, |at| at + 1);
                    format!("{}USER@HOST, pid ", &head[..at])
                }
            };
            neutral.extend([&head, word]);
            rest = &value[end_of(value, is_in)..];
        }
        text = neutral + rest;
    }
    text
}

/// Replaces the ids of owners: a UUID, a colon and a number.
fn ids(text: &str) -> String {
    let of_an_id = |c: char| c.is_ascii_hexdigit() || c == '-' || c == ':';
    let mut neutral = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(of_an_id) {
        let (before, from) = rest.split_at(at);
        let (run, after) = from.split_at(from.find(|c| !of_an_id(c)).unwrap_or(from.len()));
        let is_id = run.len() > 36 && run.matches('-').count() == 4 && run[36..].starts_with(':');
        neutral.extend([before, if is_id { "OWNER" } else { run }]);
        rest = after;
    }
    neutral + rest
}

/// Answers every request as a web server does.
fn web_server() -> String {
    let web = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = web.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for mut stream in web.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

fn write(path: &Path, text: &str, mode: u32) -> String {
    fs::write(path, text).expect("a folder of ours");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn every_message_of_the_command_line() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let closed = Server::builder(Generation::Redis70).arg("--requirepass", "secret");
    let Some(closed) = closed.start() else { return };
    let dir = TempDir::new();
    let web = web_server();
    let dead =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let home = fairlock(["status"]);
    let home = finish(home).stdout;
    let home = home.trim_start_matches("store: ").split(',').next().unwrap_or_default().to_owned();
    let words = [
        (server.addr().to_string(), "SERVER"),
        (closed.addr().to_string(), "CLOSED"),
        (web.clone(), "WEB"),
        (dead.clone(), "NOBODY"),
        (dir.path().display().to_string(), "/DIR"),
        (home, "HOME"),
    ];
    let words = words.map(|(from, to)| (from, to.to_owned())).to_vec();
    let mut transcript = Transcript { text: HEAD.to_owned(), words };
    usage(&mut transcript);
    stores(&mut transcript, &dir);
    files(&mut transcript, &dir);
    let urls = Urls { server: server.url(), closed: closed.url(), web, dead };
    servers(&mut transcript, &urls, &dir);
    locks(&mut transcript, &server);
    shares(&mut transcript);
    elections(&mut transcript);
    if !notices(&mut transcript, &dir, &urls.server) {
        return;
    }
    compare(&transcript.text);
}

fn usage(transcript: &mut Transcript) {
    transcript.part("What is typed");
    for args in [
        &[][..],
        &["frobnicate"],
        &["statsu"],
        &["lock", "x", "true"],
        &["--url", "redis://h", "run", "x"],
        &["--frobnicate"],
        &["run"],
        &["run", "x", "true"],
        &["run", "x", "sh", "-c", "sleep 3"],
        &["run", "x", "--"],
        &["run", "-z", "--", "true"],
        &["run", "--wiat", "5s", "x", "--", "true"],
        &["run", "--wait", "5", "x", "--", "true"],
        &["run", "--wait", "0.5ms", "x", "--", "true"],
        &["run", "--wait", "soon", "x", "--", "true"],
        &["run", "--wait", "5w", "x", "--", "true"],
        &["run", "--wait", "30s1m", "x", "--", "true"],
        &["run", "--wait", "9999d", "x", "--", "true"],
        &["run", "--lease", "0", "x", "--", "true"],
        &["run", "--ttl", "200ms", "x", "--", "true"],
        &["run", "--max-run", "0", "x", "--", "true"],
        &["run", "--max-run", "1h", "--lease", "1h", "x", "--", "true"],
        &["run", "--max-run", "1h", "x"],
        &["run", "-u", "x", "--", "true"],
        &["run", "-x", "--shared", "x", "--", "true"],
        &["run", "-w", "soon", "x", "--", "true"],
        &["run", "-n", "2", "x", "--", "true"],
        &["run", "--wait", "-1", "x", "--", "true"],
        &["run", "--try", "5s", "x", "--", "true"],
        &["run", "-timeout=5s", "x", "--", "true"],
        &["run", "-n=2", "x", "--", "true"],
        &["run", "--kind", "fiar", "x", "--", "true"],
        &["run", "--shared", "--permits", "2", "x", "--", "true"],
        &["run", "--shared", "--kind", "fair", "x", "--", "true"],
        &["run", "--kind", "semaphore", "x", "--", "true"],
        &["run", "--permits", "2", "--kind", "plain", "x", "--", "true"],
        &["run", "--permits", "2", "--take", "3", "x", "--", "true"],
        &["run", "--take", "2", "x", "--", "true"],
        &["run", "--take", "2", "--kind", "rw", "x", "--", "true"],
        &["run", "--permits", "0", "x", "--", "true"],
        &["run", "--permits", "-1", "x", "--", "true"],
        &["run", "--shared", "--once-per", "1h", "x", "--", "true"],
        &["run", "--scope", "galaxy", "x", "--", "true"],
        &["run", "--replicas", "101", "x", "--", "true"],
        &["run", "--conflict-exit-code", "300", "x", "--", "true"],
        &["run", "--grace", "1s", "x"],
        &["status", "-x"],
        &["status", "--quiet", "x"],
        &["status", "--exit-code"],
        &["list", "--held", "--waiting"],
        &["list", "--rate", "0"],
        &["list", "job[1-3]*"],
        &["top", "--interval", "1ms"],
        &["top"],
        &["unlock", "x"],
        &["wait"],
        &["wait", "x", "--wait-for", "soon"],
        &["wait", "x", ""],
        &["watch"],
        &["watch", "x", "--interval", "1ms"],
        &["latch", "x"],
        &["latch", "x", "--set", "0"],
        &["latch", "x", "--set", "1", "--down"],
        &["latch", "x", "--down", "--wait-for", "1s"],
        &["completions", "csh"],
        &["man", "frobnicate"],
    ] {
        transcript.typed(args);
    }
}

fn stores(transcript: &mut Transcript, dir: &TempDir) {
    transcript.part("Which store");
    for url in [
        "",
        "localhost:6379",
        "http://ann:secret@host/",
        "redis://one,two",
        "redis:host",
        "redis://host:port",
    ] {
        transcript.with_url(url);
    }
    for url in [
        "redis://host/x",
        "redis://host?wait=1",
        "redis+odd://host",
        "redis://ann:se#cret@host",
        "sqlite:",
    ] {
        transcript.with_url(url);
    }
    transcript.typed(&["run", "--url", "memory:", "x", "--", "true"]);
    transcript.typed(&["run", "--scope", "fleet", "x", "--", "true"]);
    transcript.typed(&["run", "--scope", "host", "x", "--", "true"]);
    transcript.typed(&["run", "--url", "sqlite:/etc/passwd", "x", "--", "true"]);
    transcript.typed(&["run", "--url", "sqlite:/etc", "x", "--", "true"]);
    let url = format!("sqlite:{}/no/such/locks.db", dir.path().display());
    transcript.typed(&["run", "--url", &url, "x", "--", "true"]);
    transcript.typed(&["run", "--url", "sqlite:/proc/locks.db", "x", "--", "true"]);
    let open = dir.path().join("open");
    fs::create_dir(&open).expect("a folder of ours");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let url = format!("sqlite:{}/locks.db", open.display());
    transcript.typed(&["run", "--url", &url, "x", "--", "true"]);
    let url = format!("sqlite:{}/fresh.db", dir.path().display());
    transcript.typed(&["run", "--url", &url, "", "--", "true"]);
    transcript.typed(&["run", "--url", &url, "redisson_lock_queue:{x}", "--", "true"]);
    transcript.typed(&["run", "--url", &url, "--replicas", "1", "x", "--", "true"]);
}

fn files(transcript: &mut Transcript, dir: &TempDir) {
    transcript.part("Configuration and password files");
    let path = |name: &str| dir.path().join(name);
    for (what, text, mode) in [
        ("unknown.toml", "urll = \"redis://h\"\n", 0o600),
        ("broken.toml", "url = redis://ann:secret@h\n", 0o600),
        ("wrong-url.toml", "url = \"localhost:6379\"\n", 0o600),
        ("scope.toml", "scope = \"galaxy\"\n", 0o600),
        ("relative.toml", "password-file = \"p\"\n", 0o600),
        ("writable.toml", "url = \"redis://h\"\n", 0o666),
        ("strict.toml", "scope = \"fleet\"\nurl = \"sqlite:/srv/locks.db\"\n", 0o600),
    ] {
        let file = write(&path(what), text, mode);
        transcript.typed(&["status", "--config", &file, "x"]);
    }
    let none = path("none").display().to_string();
    transcript.typed(&["status", "--config", &none, "x"]);
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    transcript.typed(&["run", "--url", &url, "--password-file", &none, "x", "--", "true"]);
    let empty = write(&path("empty"), "\n", 0o600);
    transcript.typed(&["run", "--url", &url, "--password-file", &empty, "x", "--", "true"]);
    let open = write(&path("open-password"), "secret\n", 0o666);
    transcript.typed(&["run", "--url", &url, "--password-file", &open, "x", "--", "true"]);
}

struct Urls {
    server: String,
    closed: String,
    web: String,
    dead: String,
}

fn servers(transcript: &mut Transcript, urls: &Urls, dir: &TempDir) {
    transcript.part("Servers");
    let Urls { server, closed, web, dead } = urls;
    let bare = server.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    transcript.typed(&["status", "--url", closed, "x"]);
    let password = write(&dir.path().join("password"), "wrong\n", 0o600);
    transcript.typed(&["status", "--url", closed, "--password-file", &password, "x"]);
    transcript.typed(&["status", "--url", &format!("redis://{bare}/99"), "x"]);
    transcript.typed(&["status", "--url", &format!("redis://{dead}"), "x"]);
    transcript.typed(&["status", "--url", &format!("redis://{web}"), "x"]);
    transcript.typed(&["status", "--url", &format!("rediss://{web}"), "x"]);
    transcript.typed(&["status", "--url", &format!("redis+sentinel://{bare}/main"), "x"]);
    transcript.typed(&["status", "--url", &format!("redis+cluster://{bare}"), "x"]);
    // It never answers a handshake.
    let silent = bare.split('/').next().unwrap_or_default().to_owned();
    let tls = format!("rediss://{silent}");
    transcript.typed(&["run", "--url", &tls, "--wait", "1s", "x", "--", "true"]);
    transcript.typed(&[
        "run",
        "--url",
        &format!("{server}?replicas=1&replicas-timeout-ms=50"),
        "x",
        "--",
        "true",
    ]);
}

fn shares(transcript: &mut Transcript) {
    transcript.part("Read-write locks and semaphores");
    let url = alone();
    let run = |url: &str, options: &[&str], command: &str| run_script(url, options, "job", command);
    let holds = |options: &[&str]| {
        let all = [options, &["--label", "nightly"]].concat();
        let mut holder = Running::start(run(&url, &all, "echo held; exec sleep 60"));
        assert_eq!(holder.line(), "held");
        holder
    };
    let unlock = || finish(fairlock(["unlock", "--url", &url, "--force", "job"]));
    let readers = [holds(&["--shared"]), holds(&["--shared"]), holds(&["--shared"])];
    let writer = run(&url, &["--kind", "rw", "--wait", "0"], "true");
    transcript.about("job", "three read: --kind rw --wait 0", &finish(writer));
    // Whether the owner was made already depends on whether the file was busy.
    let mut other = finish(run(&url, &["--wait", "0"], "true"));
    let reason = other.stderr.split(" (asked as ").next().unwrap_or_default();
    other.stderr = format!("{}\n", reason.trim_end());
    transcript.about("job", "three read: a fair lock", &other);
    let waits = |time: &str| finish(fairlock(["wait", "--url", &url, "--wait-for", time, "job"]));
    transcript.about("job", "three read: wait --wait-for 0", &waits("0"));
    transcript.about("job", "three read: wait --wait-for 300ms", &waits("300ms"));
    transcript.scene("unlock --force", &unlock());
    for reader in readers {
        transcript.about("job", "one of those who read", &reader.wait());
    }
    let writer = holds(&["--kind", "rw"]);
    let reader = run(&url, &["--shared", "--wait", "300ms"], "true");
    transcript.about("job", "one writes: --shared --wait 300ms", &finish(reader));
    unlock();
    writer.wait();
    let pool = [holds(&["--permits", "3", "--take", "2"]), holds(&["--permits", "3"])];
    let third = run(&url, &["--permits", "3", "--wait", "0"], "true");
    transcript.about("job", "3 of 3 permits: --permits 3 --wait 0", &finish(third));
    unlock();
    drop(pool);
    let inner = r#""$F" run --url "$U" --permits 3 job -- true"#;
    let mut nested = run(&url, &["--permits", "3"], inner);
    nested.env("F", env!("CARGO_BIN_EXE_fairlock")).env("U", &url);
    transcript.about("job", "a permit inside of a run with one", &finish(nested));
    finish(run_script(&url, &[], "encode", "true")).expect(0, "");
    let another = finish(run_script(&url, &["--permits", "3"], "encode", "true"));
    transcript.about("encode", "last used as a fair lock: --permits 3", &another);
}

fn elections(transcript: &mut Transcript) {
    transcript.part("Elections");
    let url = alone();
    let elect = |options: &[&str], command: &[&str]| {
        let mut elect = fairlock(["elect", "--url", &url]);
        elect.args(options).args(["job", "--"]).args(command);
        elect
    };
    let long = "v".repeat(1_025);
    transcript.about(
        "job",
        "a --value of 1025 bytes",
        &finish(elect(&["--value", &long], &["true"])),
    );
    let unlock = || finish(fairlock(["unlock", "--url", &url, "--force", "job"]));
    let leads = ["sh", "-c", "echo leads; exec sleep 60"];
    let mut once = Running::start(elect(&["--once"], &leads));
    assert_eq!(once.line(), "leads");
    unlock();
    transcript.about("job", "a term that was taken away: --once", &once.wait());
    let mut again = Running::start(elect(&["-v"], &leads));
    assert_eq!(again.line(), "leads");
    unlock();
    assert_eq!(again.line(), "leads");
    again.signal(Signal::TERM);
    transcript.about("job", "the same without, which campaigns again", &again.wait());
    let hold =
        ["run", "--url", &url, "--shared", "job", "--", "sh", "-c", "echo held; exec sleep 60"];
    let mut hold = Running::start(fairlock(hold));
    assert_eq!(hold.line(), "held");
    transcript.about(
        "job",
        "a read-write lock",
        &finish(fairlock(["leader", "--url", &url, "job"])),
    );
    hold.signal(Signal::KILL);
}

fn locks(transcript: &mut Transcript, server: &Server) {
    transcript.part("Locks");
    let url = server.url();
    let mut raw = server.client();
    let run = |options: &[&str], name: &str, command: &[&str]| -> Command {
        let mut run = fairlock(["run", "--url", &url]);
        run.args(options).arg(name).arg("--").args(command);
        run
    };
    raw.call(&["SET", "text", "no lock"]);
    transcript.about(
        "text",
        "a string of another program: run",
        &finish(run(&[], "text", &["true"])),
    );
    for command in [&["status"][..], &["list"]] {
        let mut look = fairlock(command);
        look.args(["--url", &url, "text"]);
        transcript.about(
            "text",
            &format!("a string of another program: {}", command[0]),
            &finish(look),
        );
    }
    let mut simple = run(&["--kind", "simple", "--wait", "0"], "text", &["true"]);
    transcript.about("text", "held as a simple lock: --wait 0", &finish(simple));

    transcript.scene("a command that is not there", &finish(run(&[], "a", &["/no/such/command"])));
    transcript.scene("a word that is no command", &finish(run(&[], "a", &["no-such-command"])));
    transcript.scene("a line for a shell", &finish(run(&[], "a", &["a && b"])));
    transcript.scene("a command that is no program", &finish(run(&[], "a", &["/etc/passwd"])));

    let mut holder = Running::start(run(
        &["--label", "nightly"],
        "job",
        &["sh", "-c", "echo held; exec sleep 60"],
    ));
    assert_eq!(holder.line(), "held");
    simple = run(&["--wait", "300ms"], "job", &["true"]);
    transcript.about("job", "somebody else holds it: --wait 300ms", &finish(simple));
    transcript.about("job", "the same: --wait 0", &finish(run(&["--wait", "0"], "job", &["true"])));
    let quiet = run(&["--wait", "0", "--conflict-exit-code", "0"], "job", &["true"]);
    transcript.scene("somebody else holds it: --wait 0 --conflict-exit-code 0", &finish(quiet));
    let mut unlock = fairlock(["unlock", "--url", &url, "job"]);
    transcript.about("job", "unlock without --force", &finish(unlock));
    unlock = fairlock(["unlock", "--url", &url, "--force", "job"]);
    transcript.scene("unlock --force", &finish(unlock));
    transcript.about("job", "the holder whose lock was taken away", &holder.wait());
    unlock = fairlock(["unlock", "--url", &url, "--force", "job"]);
    transcript.scene("unlock --force of a free lock", &finish(unlock));

    let f = env!("CARGO_BIN_EXE_fairlock");
    let inner = ["sh", "-c", r#""$0" run --url "$1" self -- true"#, f, &url];
    transcript.about(
        "self",
        "a run inside of a run of the same lock",
        &finish(run(&[], "self", &inner)),
    );
    let inner = ["sh", "-c", r#""$0" wait --url "$1" self"#, f, &url];
    transcript.about("self", "a wait inside of a run of it", &finish(run(&[], "self", &inner)));
    let long = run(&["--max-run", "300ms"], "long", &["sleep", "60"]);
    transcript.about("long", "--max-run 300ms", &finish(long));
    let gone =
        run(&["--ttl", "6s", "--grace", "0"], "gone", &["sh", "-c", "echo held; exec sleep 60"]);
    let mut gone = Running::start(gone);
    assert_eq!(gone.line(), "held");
    raw.call(&["DEL", "gone"]);
    transcript.about("gone", "the lock's key was deleted", &gone.wait());
    let taken =
        run(&["--ttl", "6s", "--grace", "0"], "taken", &["sh", "-c", "echo held; exec sleep 60"]);
    let mut taken = Running::start(taken);
    assert_eq!(taken.line(), "held");
    raw.call(&["DEL", "taken"]);
    raw.call(&["HSET", "taken", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
    transcript.about("taken", "somebody else took it", &taken.wait());
    raw.call(&["DEL", "taken"]);

    let once = |options: &[&str], command| {
        let mut all = vec!["--once-per", "1h"];
        all.extend(options);
        run(&all, "report", command)
    };
    transcript.about("report", "--once-per 1h -v", &finish(once(&["-v"], &["true"])));
    transcript.about("report", "the same once more", &finish(once(&[], &["true"])));
    transcript.about("report", "the same once more, -v", &finish(once(&["-v"], &["true"])));
    transcript.about(
        "report",
        "the same with --wait 5s",
        &finish(once(&["--wait", "5s"], &["true"])),
    );
    let mut done = fairlock(["status", "--url", &url, "report"]);
    let shown = finish(done).stdout;
    let first = shown.lines().next().unwrap_or_default();
    let _ = write!(transcript.text, "\nstatus of it:\n  {}\n", transcript.neutral(first));
    done = fairlock(["unlock", "--url", &url, "--force", "report"]);
    assert_eq!(finish(done).code(), 0);

    let over = run(&["--lease", "6s"], "over", &["sleep", "60"]);
    transcript.about("over", "a fixed lease that ends", &finish(over));
    let over = run(&["--lease", "6s", "--on-lost", "ignore"], "over", &["sleep", "8"]);
    transcript.about("over", "the same with --on-lost ignore", &finish(over));
    let mut hold = fairlock(["run", "--url", &url, "--lease", "6s", "over"]);
    transcript.about("over", "the same without a command", &finish(hold));
    hold = fairlock(["run", "--url", &url, "kept"]);
    let mut hold = Running::start(hold);
    hold.line();
    hold.signal(Signal::TERM);
    transcript.scene("a hold that a signal ends", &hold.wait());
}

/// Messages that people see at a terminal and scripts do not; false without a terminal.
fn notices(transcript: &mut Transcript, dir: &TempDir, url: &str) -> bool {
    transcript.part("Notices at a terminal");
    let in_url = url.replace("redis://", "redis://:secret@");
    let config = write(&dir.path().join("readable.toml"), &format!("url = \"{in_url}\"\n"), 0o644);
    let password = write(&dir.path().join("readable"), "secret\n", 0o644);
    for args in [
        &["status", "--url", &in_url][..],
        &["status", "--config", &config],
        &["status", "--url", "memory:", "x"],
        &["status", "--url", url, "--password-file", &password, "x"],
        &["list", "--url", url],
        &["status", "--url", url, "job*"],
        &["wait", "--url", url, "job*"],
    ] {
        let mut words =
            vec!["-c", r#""$0" "$@" >/dev/null; echo over"#, env!("CARGO_BIN_EXE_fairlock")];
        words.extend(args);
        let terminal = Terminal::start((24, 250), "sh", &words, neutral);
        let Some(terminal) = terminal else { return false };
        let screen = terminal.see("over");
        let what = transcript.neutral(&format!("fairlock {}", args.join(" ")));
        let said = transcript.neutral(&screen);
        let _ = write!(transcript.text, "\n{what}\n");
        for line in said.lines().filter(|line| line.starts_with("fairlock: ")) {
            transcript.text.extend(["  ", line.trim_end(), "\n"]);
        }
    }
    true
}

fn compare(new: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("FAIRLOCK_UPDATE_MESSAGES").is_some() {
        assert!(std::env::var_os("CI").is_none(), "in CI the messages are compared, not written");
        fs::write(&path, new).expect("it can be written");
        return;
    }
    let old = fs::read_to_string(&path).expect("it is there");
    let (gone, come) = (missing(&old, new), missing(new, &old));
    assert!(
        old == new,
        "the messages are others than in {FILE}; FAIRLOCK_UPDATE_MESSAGES=1 writes it.\nGone:\n{gone}\nNew:\n{come}"
    );
}

/// Lines of the first that are missing in the second.
fn missing(of: &str, from: &str) -> String {
    let lines: std::collections::BTreeSet<_> = from.lines().collect();
    of.lines().filter(|line| !lines.contains(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn ids_are_replaced() {
    let id = "0c6fb0a4-5b1e-4e8e-9d52-3f1f8a6f0b11:1";
    assert_eq!(ids(&format!("held by {id}, cafe: 12")), "held by OWNER, cafe: 12");
    let of_one = "x: held by ann@web-1, pid 42, nightly, for 1.2s, after bob@web-2, pid 7, sync";
    let neutral =
        "x: held by USER@HOST, pid PID, nightly, for TIME, after USER@HOST, pid PID, sync";
    assert_eq!(clients(of_one), neutral);
    assert_eq!(clients("done, next start in 59m59s"), "done, next start in TIME");
}
