//! F12: a suspended machine, simulated. The time since boot advances while timers stand still and
//! nothing happens on the server. The clock is read directly, so no preloaded library can change
//! it; instead the tests add an offset. The offset is global, so each such test runs in a process
//! of its own.

use crate::{Client, Config, ErrorKind, GuardState};
use fairlock_testkit::server::{Generation, Server};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the machine has slept.
pub(super) static SLEPT_NS: AtomicU64 = AtomicU64::new(0);

/// Names the test that a process of this test binary runs.
const ALONE: &str = "FAIRLOCK_SUSPENDED_ALONE";

/// The watchdog looks at least once a second; the rest is for a busy machine. It is counted in naps, because a machine
/// that stalls for some seconds delays both sides.
const NAP: Duration = Duration::from_millis(10);
const NAPS_MAX: u32 = 150;

/// Awaits what must happen soon after the machine woke up.
async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let woke = Instant::now();
    let too_long = async {
        for _ in 0..NAPS_MAX {
            tokio::time::sleep(NAP).await;
        }
    };
    tokio::select! {
        biased;
        happened = happens => {
            println!("measured: f12 waking up to {what}: {:?}", woke.elapsed());
            happened
        }
        () = too_long => panic!("{what} took longer than {:?}", woke.elapsed()),
    }
}

fn sleep(slept: Duration) {
    SLEPT_NS.fetch_add(u64::try_from(slept.as_nanos()).unwrap(), Ordering::Relaxed);
}

fn alone<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Client) -> F) {
    if std::env::var(ALONE).as_deref() != Ok(name) {
        let (_, module) = module_path!().split_once("::").unwrap();
        let test = format!("{module}::{name}");
        // Not by the path of the executable: a build may replace the file while the tests run.
        let mut child = Command::new("/proc/self/exe");
        let output = child.args([&test, "--exact", "--nocapture"]).env(ALONE, name).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("1 passed"), "{name}");
        return;
    }
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Renewed every ten seconds: no timer looks at the hold any earlier.
        let config = Config::from_url(&server.url()).unwrap();
        test(Client::with_config(config).await.unwrap()).await;
    });
}

#[test]
fn f12_a_machine_that_slept_for_longer_than_a_lease() {
    alone("f12_a_machine_that_slept_for_longer_than_a_lease", |client| async move {
        let asked = client.fair_lock("asked").lock().await.unwrap();
        let told = client.fair_lock("told").lock().await.unwrap();
        let lease = Duration::from_secs(60);
        let explicit = client.fair_lock("explicit").lease(lease).lock().await.unwrap();
        let told = tokio::spawn(async move { told.lost().await });
        // By now it waits, and so does the watchdog.
        tokio::time::sleep(Duration::from_millis(50)).await;
        sleep(Duration::from_secs(31));
        // A caller that asks is told at once.
        assert_eq!(asked.state(), GuardState::Lost);
        assert_eq!(asked.ensure_valid().unwrap_err().kind(), ErrorKind::Lost);
        assert!(asked.remaining().is_zero());
        // The longer lease is not over, but shorter by the suspended time.
        assert_eq!(explicit.state(), GuardState::Held);
        assert!(explicit.remaining() < Duration::from_secs(29), "{:?}", explicit.remaining());
        soon("lost()", told).await.unwrap();
        sleep(Duration::from_secs(30));
        assert_eq!(explicit.state(), GuardState::Lost);
        soon("lost() of the longer lease", explicit.lost()).await;
    });
}

#[test]
fn f12_a_machine_that_slept_for_less() {
    alone("f12_a_machine_that_slept_for_less", |client| async move {
        let guard = client.fair_lock("job").lock().await.unwrap();
        sleep(Duration::from_secs(20));
        assert_eq!(guard.state(), GuardState::Held);
        // The renewal was due during the suspension.
        soon("the renewal", async {
            while guard.remaining() < Duration::from_secs(25) {
                assert_ne!(guard.state(), GuardState::Lost);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        assert_eq!(guard.state(), GuardState::Held);
    });
}
