//! A program of a former version (`scripts/former`) on a file with shared locks, as during an upgrade.

use super::Fixture;
use crate::support::runtime;
use fairlock::GuardState;
use std::process::{Command, Output};

fn former() -> Option<String> {
    let program = std::env::var("FAIRLOCK_TEST_FORMER").ok().filter(|path| !path.is_empty());
    if program.is_none() {
        fairlock_testkit::skip("a former version's program (run scripts/former)");
    }
    program
}

/// It refuses them, says that they are locks of another kind, and changes nothing; it lists the other
/// locks, and goes on using them.
#[test]
fn a_former_version_refuses_shared_locks_and_leaves_them_alone() {
    let Some(program) = former() else { return };
    let fixture = Fixture::new();
    let url = fixture.url();
    let run = |args: &[&str]| -> Output {
        let mut command = Command::new(&program);
        command.env_remove("FAIRLOCK_URL").args(&args[..1]).args(["--url", &url]);
        command.args(&args[1..]).output().unwrap()
    };
    // The former version makes the file.
    assert!(run(&["run", "fair", "--", "true"]).status.success());
    runtime().block_on(async {
        let (client, other) = (fixture.client().await, fixture.client().await);
        let reads = client.rw_lock("rw").read().await.unwrap();
        let permit = client.semaphore("pool", 2).acquire().await.unwrap();
        let fair = client.fair_lock("held").lock().await.unwrap();
        let writer = other.rw_lock("rw");
        let writer = tokio::spawn(async move { writer.write().await });
        let lock = client.rw_lock("rw");
        crate::support::until("it waits", async || lock.inspect().await.unwrap().queue_len == 1)
            .await;
        for name in ["rw", "pool"] {
            for args in [
                &["run", "--wait", "0", name, "--", "true"][..],
                &["run", "--kind", "simple", "--wait", "0", name, "--", "true"],
                &["unlock", "--force", name],
                &["status", name],
            ] {
                let done = run(args);
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                assert_eq!(done.status.code(), Some(64), "{args:?}: {said}");
                assert!(said.contains("kind"), "{args:?}: {said}");
            }
        }
        let listed = run(&["list"]);
        let said = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.status.success() && said.contains("held"), "{listed:?}");
        assert!(!said.contains("rw") && !said.contains("pool"), "{said}");
        assert_eq!(run(&["run", "--wait", "0", "held", "--", "true"]).status.code(), Some(75));
        assert!(run(&["run", "fair", "--", "true"]).status.success());

        assert_eq!(reads.state(), GuardState::Held);
        assert_eq!(lock.inspect().await.unwrap().holding, 1);
        assert_eq!(client.semaphore("pool", 2).usage().await.unwrap().used, 1);
        reads.release().await.unwrap();
        drop(crate::support::soon("the writer", writer).await.unwrap().unwrap());
        permit.release().await.unwrap();
        fair.release().await.unwrap();
        // Free again, they serve every version and every kind.
        assert!(run(&["run", "--wait", "5s", "rw", "--", "true"]).status.success());
        drop(client.rw_lock("rw").read().await.unwrap());
    });
}
