//! A program of a former version (`scripts/former`), which knows no shares, and this one on a server, as during an
//! upgrade of a fleet.

use crate::support::{runtime, soon};
use fairlock::{Client, ErrorKind, GuardState, Release};
use fairlock_testkit::server::{Generation, Server};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn former() -> Option<String> {
    let program = std::env::var("FAIRLOCK_TEST_FORMER").ok().filter(|path| !path.is_empty());
    if program.is_none() {
        fairlock_testkit::skip("a former version's program (run scripts/former)");
    }
    program
}

struct Former {
    program: String,
    url: String,
}

impl Former {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("FAIRLOCK_URL").args(&args[..1]).args(["--url", &self.url]);
        command.args(&args[1..]);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

/// It takes what it finds for the hold of somebody else, of another kind or of more than one, and neither gets the lock nor
/// changes it. When it is free, it serves both.
#[test]
fn a_former_version_waits_for_shares_and_leaves_them_alone() {
    let (Some(program), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    let former = Former { program, url: server.url() };
    runtime().block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let other = Client::connect(&server.url()).await.unwrap();
        let reads =
            [client.rw_lock("rw").read().await.unwrap(), other.rw_lock("rw").read().await.unwrap()];
        let permits = client.semaphore("pool", 3).acquire_many(2).await.unwrap();
        let mut writer = other.rw_lock("rw").enqueue_write().await.unwrap();
        let keys = ["rw", "pool"].map(|name| {
            let fields = server.client().call(&["HGETALL", name]);
            fields.array().iter().map(|it| it.text().to_owned()).collect::<Vec<_>>()
        });
        for name in ["rw", "pool"] {
            for kind in ["fair", "plain", "simple"] {
                let done = former.run(&["run", "--kind", kind, "--wait", "0", name, "--", "true"]);
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                let wanted = if kind == "simple" { 64 } else { 75 };
                assert_eq!(done.status.code(), Some(wanted), "{name} {kind}: {said}");
            }
            let seen = former.run(&["status", name]);
            assert!(seen.status.success(), "{name}: {seen:?}");
            assert!(String::from_utf8_lossy(&seen.stdout).contains("held"), "{seen:?}");
        }
        assert!(former.run(&["list"]).status.success());
        // One that waits for a while, in the queue of a fair lock, and gives up.
        let done = former.run(&["run", "--wait", "1s", "rw", "--", "true"]);
        assert_eq!(done.status.code(), Some(75), "{done:?}");
        for (name, before) in ["rw", "pool"].into_iter().zip(keys) {
            let fields = server.client().call(&["HGETALL", name]);
            let fields: Vec<_> = fields.array().iter().map(|it| it.text().to_owned()).collect();
            assert_eq!(fields, before, "{name}");
        }
        for guard in &reads {
            assert_eq!(guard.state(), GuardState::Held);
        }
        for guard in reads {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        let writes = soon("the writer", writer.wait()).await.unwrap();
        assert_eq!(writes.release().await.unwrap(), Release::Released);
        assert_eq!(permits.release().await.unwrap(), Release::Released);
        for name in ["rw", "pool"] {
            let done = former.run(&["run", "--wait", "5s", name, "--", "true"]);
            assert!(done.status.success(), "{name}: {done:?}");
        }
        drop(client.rw_lock("rw").read().await.unwrap());
        drop(client.semaphore("pool", 3).acquire().await.unwrap());
    });
}

/// One of the former version waits in the queue of a fair lock while ours read. Ours that would have to wait are refused
/// from then on; it gets the lock when all have released.
#[test]
fn one_of_a_former_version_that_waits_is_served_when_nobody_reads() {
    let (Some(program), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    let former = Former { program, url: server.url() };
    runtime().block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let read = client.rw_lock("rw").read().await.unwrap();
        let mut waits = former.command(&["run", "--wait", "30s", "rw", "--", "true"]);
        let mut waits = waits.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut raw = server.client();
        crate::support::until("it waits", async || {
            raw.call(&["LLEN", "redisson_lock_queue:{rw}"]).int() == 1
        })
        .await;
        let error = client.rw_lock("rw").write().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let joins = client.rw_lock("rw").read().await.unwrap();
        assert!(waits.try_wait().unwrap().is_none(), "ours read");
        assert_eq!(read.release().await.unwrap(), Release::Released);
        assert_eq!(joins.release().await.unwrap(), Release::Released);
        crate::support::until("it had its turn", async || waits.try_wait().unwrap().is_some())
            .await;
        assert!(waits.wait().unwrap().success());
    });
}

/// The other way round: what the former version holds is refused as a lock of another kind, and stays.
#[test]
fn what_a_former_version_holds_is_refused() {
    let (Some(program), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    let former = Former { program, url: server.url() };
    runtime().block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        for kind in ["fair", "plain", "simple"] {
            let script = "echo holding; read ignored";
            let args = ["run", "--kind", kind, "--wait", "5s", "job", "--", "sh", "-c", script];
            let mut command = former.command(&args);
            let mut holder =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            let mut line = String::new();
            BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "holding\n", "{kind}");
            for error in [
                client.rw_lock("job").read().await.unwrap_err(),
                client.rw_lock("job").try_write().await.unwrap_err(),
                client.semaphore("job", 2).acquire().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::WrongType, "{kind}: {error}");
            }
            drop(holder.stdin.take());
            let code = holder.wait().unwrap().code();
            assert!(code.is_some_and(|code| code < 64), "{kind}: it kept its lock: {code:?}");
            let read = client.rw_lock("job").read().await.unwrap();
            assert_eq!(read.release().await.unwrap(), Release::Released);
            let permit = client.semaphore("job", 2).acquire().await.unwrap();
            assert_eq!(permit.release().await.unwrap(), Release::Released);
        }
    });
}
