//! Configuration files, and who may be able to write them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::geteuid;

use crate::fixture::{Running, alone, eventually, fairlock, finish};

fn write(dir: &TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("config.toml");
    fs::write(&path, text).expect("the folder is there");
    set_mode(&path, 0o600);
    path
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn with_config(args: &[&str], file: &Path) -> Command {
    let mut command = fairlock(args);
    command.env("FAIRLOCK_CONFIG", file);
    command
}

#[test]
fn a_file_names_the_store() {
    let dir = TempDir::new();
    let file = write(&dir, "url = \"memory:\"\nlabel = \"unused\"\n");
    let outcome = finish(with_config(&["status"], &file));
    outcome.expect(0, "");
    let from = format!("from {}\n", file.display());
    assert_eq!(outcome.stdout, format!("store: memory:, seen by one process only; {from}"));
    let json = finish(with_config(&["status", "--json"], &file)).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["store"]["source"], "file");
    assert_eq!(json["store"]["file"], file.to_str().unwrap());

    // The option replaces the variable; environment and command line come before the file.
    let by_option = ["status", "--config", file.to_str().unwrap()];
    assert!(finish(fairlock(by_option)).stdout.contains("memory:"));
    let mut by_variable = with_config(&["status"], &file);
    by_variable.env("FAIRLOCK_URL", "redis://v");
    assert!(finish(by_variable).stdout.contains("redis://v, "));
    let mut by_argument = with_config(&["status", "--url", "redis://a"], &file);
    by_argument.env("FAIRLOCK_URL", "redis://v");
    assert!(finish(by_argument).stdout.contains("redis://a, "));
}

/// `FAIRLOCK_URL=$STOER` silently used the host's default store, with locks that nobody else knew
/// of.
#[test]
fn an_empty_variable_names_no_store() {
    let dir = TempDir::new();
    let file = write(&dir, "url = \"memory:\"\n");
    for variable in ["FAIRLOCK_URL", "FAIRLOCK_CONFIG"] {
        for args in [&["status"][..], &["run", "x", "--", "true"]] {
            let mut empty = with_config(args, &file);
            empty.env(variable, "");
            let outcome = finish(empty);
            outcome.expect(64, &format!("{variable} is empty, "));
            assert!(outcome.stderr.contains(&format!("`env -u {variable}`")), "{outcome:?}");
        }
    }
    // The command line contains it.
    let config = ["status", "--config", file.to_str().unwrap()];
    let mut by_option = fairlock(config);
    by_option.env("FAIRLOCK_CONFIG", "");
    assert!(finish(by_option).stdout.contains("memory:"));
    let mut by_argument = with_config(&["status", "--url", "redis://a"], &file);
    by_argument.env("FAIRLOCK_URL", "");
    assert!(finish(by_argument).stdout.contains("redis://a, "));
}

/// As for a password file that is such a pipe.
#[test]
fn a_configuration_that_is_a_pipe_without_a_writer_ends() {
    let dir = TempDir::new();
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status();
    assert!(made.unwrap().success());
    finish(with_config(&["status"], &pipe)).expect(64, "a pipe into which nobody has written");
}

#[test]
fn errors_name_file_and_line() {
    let dir = TempDir::new();
    let file = write(&dir, "# ours\n\nscop = \"fleet\"\n");
    let expected =
        format!("{}:3: unknown setting `scop`; there are url, password-file", file.display());
    for args in [&["run", "x", "--", "true"][..], &["status"], &["status", "--url", "memory:", "x"]]
    {
        finish(with_config(args, &file)).expect(64, &expected);
    }
    let file = write(&dir, "url = redis://u:canary@h\n");
    let outcome = finish(with_config(&["status"], &file));
    outcome.expect(64, &format!("{}:1: ", file.display()));
    assert!(!outcome.stderr.contains("canary"), "{outcome:?}");
    finish(with_config(&["status"], &dir.path().join("none"))).expect(64, "none: ");
    finish(with_config(&["status"], dir.path())).expect(64, "directory");
}

/// Whoever can write the file chooses the locks.
#[test]
fn a_file_that_others_can_write_is_refused() {
    let dir = TempDir::new();
    let file = write(&dir, "url = \"memory:\"\n");
    for mode in [0o620, 0o602, 0o666] {
        set_mode(&file, mode);
        finish(with_config(&["status"], &file)).expect(64, "others can write to it");
    }
    // Reading it is another matter: the file contains no password, or should not.
    set_mode(&file, 0o644);
    finish(with_config(&["status"], &file)).expect(0, "");

    // Through a link, too: the file it points to is judged.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    finish(with_config(&["status"], &link)).expect(0, "");
    set_mode(&file, 0o664);
    finish(with_config(&["status"], &link)).expect(64, "others can write to it");
}

#[test]
fn a_file_of_somebody_else_is_refused() {
    if !geteuid().is_root() {
        return fairlock_testkit::skip("root, to give files away");
    }
    let dir = TempDir::new();
    let file = write(&dir, "url = \"memory:\"\n");
    chown(&file, Some(12345), None).unwrap();
    finish(with_config(&["status"], &file)).expect(64, "belongs to user 12345");
    let args = ["status", "--url", "memory:", "--password-file", file.to_str().unwrap(), "x"];
    finish(fairlock(args)).expect(64, "belongs to user 12345");
}

#[test]
fn a_password_file_that_others_can_write_is_refused() {
    let dir = TempDir::new();
    let file = write(&dir, "secret\n");
    set_mode(&file, 0o622);
    let args = ["status", "--url", "memory:", "--password-file", file.to_str().unwrap(), "x"];
    finish(fairlock(args)).expect(64, "others can write to it");
}

/// As mounted into containers, and as passed by shells.
#[test]
fn a_password_file_may_be_a_pipe_or_readable_by_all() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    server.client().call(&["CONFIG", "SET", "requirepass", "canary7f3a"]);
    let dir = TempDir::new();
    let file = write(&dir, "canary7f3a\n");
    set_mode(&file, 0o444);
    let args = ["status", "--url", &server.url(), "--password-file", file.to_str().unwrap(), "x"];
    finish(fairlock(args)).expect(0, "");
    let mut command = fairlock(["status"]);
    let mut piped = Command::new("bash");
    piped.args(["-c", r#""$0" status --url "$1" --password-file <(echo canary7f3a) x"#]);
    piped.arg(env!("CARGO_BIN_EXE_fairlock")).arg(server.url());
    crate::fixture::neutral(&mut piped);
    piped.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(piped).expect(0, "");
    // From a configuration, for the server that it names and no other.
    let config = dir.path().join("server.toml");
    let password = file.display();
    fs::write(&config, format!("url = \"{}\"\npassword-file = \"{password}\"\n", server.url()))
        .unwrap();
    set_mode(&config, 0o600);
    command.env("FAIRLOCK_CONFIG", &config).arg("x");
    finish(command).expect(0, "");
    let other = ["status", "--url", &server.url(), "x"];
    finish(with_config(&other, &config)).expect(77, "fairlock: ");
}

/// A named pipe without a writer blocked `fairlock run --wait 0` forever. One whose writer is slow
/// is read.
#[test]
fn d28_a_password_file_that_is_a_pipe_without_a_writer_ends() {
    let dir = TempDir::new();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let path = pipe.to_str().unwrap();
    let run = |url: &str| {
        fairlock([
            "run",
            "--wait",
            "0",
            "--url",
            url,
            "--password-file",
            path,
            "x",
            "--",
            "echo",
            "ran",
        ])
    };
    let store = alone();
    finish(run(&store)).expect(64, "a pipe into which nobody has written anything");
    // `<(echo -n sec; sleep 1; echo ret)`: the shell opens the pipe for both.
    let mut writer = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let running = Running::start(run(&store));
    writer.write_all(b"sec").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    writer.write_all(b"ret\n").unwrap();
    eventually("it has read the pipe", || {
        rustix::io::ioctl_fionread(&writer).is_ok_and(|unread| unread == 0)
    });
    drop(writer);
    let outcome = running.wait();
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "ran\n");
}

#[test]
fn a_scope_in_the_file_is_a_demand() {
    let dir = TempDir::new();
    let file = write(&dir, "scope = \"fleet\"\n");
    let demand =
        format!("scope = \"fleet\" in {} asks for more than this store gives: ", file.display());
    for args in [
        &["run", "x", "--", "true"][..],
        &["run", "--url", "memory:", "x", "--", "true"],
        &["run", "--url", "sqlite:/var/lib/x", "x", "--", "true"],
        &["status"],
        // A different demand on the command line does not cancel it.
        &["status", "--scope", "host"],
    ] {
        finish(with_config(args, &file)).expect(64, &demand);
    }
    finish(with_config(&["status", "--url", "redis://h"], &file)).expect(0, "");
    finish(fairlock(["status", "--scope", "fleet"]))
        .expect(64, "--scope fleet asks for more than this store gives: sqlite:");
    let named = ["status", "--scope", "host", "--url", "sqlite:/var/lib/x"];
    finish(fairlock(named)).expect(0, "");
}

/// Two users who both demanded `host` each had a store of their own, and both got the lock.
#[test]
fn the_default_store_is_not_the_hosts() {
    let dir = TempDir::new();
    let file = write(&dir, "scope = \"host\"\n");
    for args in [&["run", "x", "--", "true"][..], &["status"], &["list"]] {
        let demand = format!("scope = \"host\" in {} asks for more ", file.display());
        finish(with_config(args, &file)).expect(64, &demand);
        let typed = [&args[..1], &["--scope", "host"], &args[1..]].concat();
        let outcome = finish(fairlock(&typed));
        outcome.expect(64, "--scope host asks for more than this store gives: sqlite:");
        assert!(outcome.stderr.contains("one for each user; name a store "), "{outcome:?}");
    }
}

#[test]
fn a_label_in_the_file() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let file = write(&dir, &format!("url = \"{}\"\nlabel = \"web-1\"\n", server.url()));
    for (options, label) in [(&[][..], "web-1"), (&["--label", "mine"], "mine")] {
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["x", "--", env!("CARGO_BIN_EXE_fairlock"), "status", "--json", "x"]);
        let outcome = finish(with_config(&args, &file));
        outcome.expect(0, "");
        let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(json["holder"]["client"]["label"], label, "{json}");
    }
}

/// D34: the command line had no way to state that Java uses the names too, so a token series that
/// it had begun expired, and Java's fenced lock began at 1. The file, the URL or an option can
/// state it; the token then has no TTL.
#[test]
fn d34_a_java_fleet_in_the_file_in_the_url_and_as_an_option() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (mut raw, dir) = (server.client(), TempDir::new());
    let url = server.url();
    let fleet = format!("{url}?java-fleet=true");
    let file = write(&dir, &format!("url = \"{url}\"\njava-fleet = true\n"));
    let none = PathBuf::from("/dev/null");
    for (file, options, endless) in [
        (&none, &["--url", &url][..], false),
        (&none, &["--url", &fleet], true),
        (&none, &["--url", &url, "--java-fleet"], true),
        (&file, &[], true),
        (&file, &["--kind", "plain"], true),
        (&file, &["--kind", "simple"], true),
    ] {
        raw.call(&["FLUSHALL"]);
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["x", "--", "true"]);
        finish(with_config(&args, file)).expect(0, "");
        let left = raw.call(&["PTTL", "redisson_lock_token:{x}"]).int();
        assert_eq!(left == -1, endless, "{options:?}: {left} ms");
        assert!(left == -1 || left > 0, "{options:?}: no token, {left}");
    }
    // Nor does the token that the next waiter gets when the lock is released by force.
    finish(with_config(&["unlock", "--force", "x"], &file)).expect(1, "");
    let alone = alone();
    for args in [
        &["run", "--java-fleet", "--url", &alone, "x", "--", "true"][..],
        &["unlock", "--force", "--java-fleet", "--url", "memory:", "x"],
    ] {
        finish(with_config(args, &none)).expect(64, "--java-fleet is for servers");
    }
}

/// On a server without a replica, nobody gets a lock that requires one, wherever the requirement is
/// set; the command line takes precedence.
#[test]
fn replicas_in_the_file_in_the_url_and_as_an_option() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let url = server.url();
    let waiting = format!("{url}?replicas=1&replicas-timeout-ms=50");
    let file =
        write(&dir, &format!("url = \"{url}?replicas-timeout-ms=50\"\nreplicas = \"all\"\n"));
    let none = PathBuf::from("/dev/null");
    let alone = alone();
    for (file, options, ends) in [
        (&file, &[][..], 69),
        (&file, &["--replicas", "none"], 0),
        (&none, &["--url", &waiting], 69),
        (&none, &["--url", &waiting, "--replicas", "any"], 0),
        (&none, &["--url", &alone, "--replicas", "1"], 64),
        (&none, &["--url", &url, "--replicas", "101"], 64),
        // A host store has no replicas to wait for.
        (&file, &["--url", &alone], 0),
    ] {
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["x", "--", "true"]);
        let said = if ends == 0 { "" } else { "replicas" };
        finish(with_config(&args, file)).expect(ends, said);
    }
}
