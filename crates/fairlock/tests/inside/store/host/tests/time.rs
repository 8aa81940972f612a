use super::super::boot::Boot;
use super::fixture::*;
use super::worker::{self, Worker};
use crate::ErrorKind;
use crate::settings::client_info::ClientInfo;
use fairlock_core::{Body, Mode};
use fairlock_testkit::clock::ClockHandle;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_US: u64 = 24 * 3_600 * 1_000_000;

/// This machine after another boot: a different boot id, and a boot clock that started a minute
/// ago.
fn restarted(id: &str) -> Boot {
    let here = Boot::here().unwrap();
    let since_ns = i128::from(here.since_us()) * 1_000;
    Boot { id: id.into(), shift_ns: here.shift_ns + since_ns - 60_000_000_000 }
}

fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[test]
fn a_reboot_frees_everything_but_the_tokens() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    body(&mut file, "job", &acquire(2, Mode::Wait));
    let old = take(&mut file, "idle", 1);
    body(&mut file, "idle", &release(1, old));
    let config = crate::Config::memory();
    file.announce(client(1), &ClientInfo::here(&config, SystemTime::now())).unwrap();
    drop(file);

    let mut file = open_in(&fixture.path(), &restarted("next")).unwrap();
    let kept = state(&mut file, "job");
    assert_eq!(kept.token, Some(kept.token.unwrap().max(token.get())));
    assert_eq!(kept, super::super::file::after_reboot(&kept));
    assert!(kept.token_expires.is_some());
    for lock in file.names(None, 10).unwrap().names {
        let seen = body(&mut file, lock.as_bytes().escape_ascii().to_string().as_str(), &inspect());
        let Body::Inspected(seen) = seen else { panic!("{seen:?}") };
        assert_eq!((seen.holder, seen.queue_len), (None, 0), "{lock}");
    }
    assert!(file.announced(None, 10).unwrap().is_empty());
    assert!(take(&mut file, "job", 3).get() > kept.token.unwrap());
    assert!(take(&mut file, "idle", 3) > old);
    assert!(wall_us().abs_diff(file.now_us()) < DAY_US / 24);
}

/// The clock's battery is empty and the wall clock is behind: host time continues from where it
/// was, and tokens rise.
#[test]
fn a_reboot_with_the_wall_clock_behind_does_not_turn_back_time() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let ahead = file.now_us() + 10 * DAY_US;
    file.stopped_us = Some(ahead);
    let token = take(&mut file, "job", 1);
    assert!(token.get() >= ahead);
    body(&mut file, "job", &release(1, token));
    // Also for a lock whose row, and with it the token, is gone by then.
    let gone = take(&mut file, "gone", 1);
    file.db.execute("DELETE FROM lock WHERE name = ?1", [b"gone"]).unwrap();
    drop(file);
    let mut file = open_in(&fixture.path(), &restarted("next")).unwrap();
    assert!(file.now_us() > ahead);
    assert!(take(&mut file, "job", 1) > token);
    assert!(take(&mut file, "gone", 1) > gone);
}

/// One boot with the wall clock beyond the year 2255 moved host time there, and host time never
/// goes back: from then on every lock of the file was refused, with the advice to remove a key that
/// the store does not have. Now the wrong clock is reported at once, and the file stays as it was.
#[test]
fn a_wall_clock_of_another_century_is_refused_before_it_is_believed() {
    let fixture = Fixture::new();
    let Some(clock) = ClockHandle::new(fixture.dir.path()) else { return };
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    drop(file);
    // As if the machine had been booted since.
    drop(open_in(&fixture.path(), &restarted("former")).unwrap());
    clock.set_offset((300 * 365 * DAY_US).cast_signed());
    let new = fixture.dir.path().join("new");
    for path in [fixture.path(), new.clone()] {
        let mut worker = Worker::run(worker::command("open", &path).envs(clock.environment()));
        let said = worker.says().unwrap();
        assert!(said.contains("Unavailable") && said.contains("clock"), "{said}");
    }
    for path in [fixture.path(), new] {
        let mut file = open(&path).unwrap();
        assert!(wall_us().abs_diff(file.now_us()) < DAY_US, "{}", file.now_us());
        assert!(take(&mut file, "job", 2) > token);
        // A file spoilt by a former version: the message names the problem and the remedy.
        file.stopped_us = Some(fairlock_core::TOKEN_LIMIT);
        let error = apply(&mut file, "other", &acquire(3, Mode::Try)).unwrap_err().error;
        let said = error.to_string();
        assert!(said.contains("2255") && said.contains(path.to_str().unwrap()), "{said}");
        assert!(!said.contains("token key"), "{said}");
    }
}

/// Some containers show a boot id of their own. What looks like a reboot there must not free the
/// locks of the file's users.
#[test]
fn another_boot_beside_a_living_one_is_refused() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    let error = open_in(&fixture.path(), &restarted("a-container")).err().expect("opened").error;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("boot_id"), "{error}");
    assert_eq!(state(&mut file, "job").hold.len(), 1);
    drop(file);
    open_in(&fixture.path(), &restarted("a-container")).unwrap();
}

/// The same for a process that does not have the file open: a command that outlives its `fairlock
/// run`.
#[test]
fn another_boot_beside_a_living_command_is_refused() {
    let fixture = Fixture::new();
    take(&mut fixture.open(), "job", 1);
    let clients = fixture.dir.path().join("locks-clients");
    let alive = std::fs::File::create(clients.join("somebody.alive")).unwrap();
    std::fs::write(clients.join("another.alive"), "").unwrap();
    let next = restarted("a-container");
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&alive, lock).unwrap();
    assert!(open_in(&fixture.path(), &next).is_err());
    assert_eq!(state(&mut fixture.open(), "job").hold.len(), 1);
    drop(alive);
    assert!(state(&mut open_in(&fixture.path(), &next).unwrap(), "job").hold.is_empty());
}

/// Clients that start at the same moment after a reboot agree on one epoch.
#[test]
fn many_that_start_at_once_agree() {
    let fixture = Fixture::new();
    for round in 0..10 {
        let boot = restarted(&format!("boot-{round}"));
        let epochs: Vec<_> = std::thread::scope(|scope| {
            let open =
                || open_in(&fixture.path(), &boot).map(|file| file.now_us() - boot.since_us());
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        let (least, most) = (epochs.iter().min().unwrap(), epochs.iter().max().unwrap());
        // The two clocks are read one after the other, so the results differ a little.
        assert!(most - least < 500_000, "{epochs:?}");
    }
}

/// The same with processes, and a file that does not exist yet. (A process that opened the file
/// while another one created the tables took it for another program's.)
#[test]
fn many_processes_make_one_file() {
    for _ in 0..5 {
        let fixture = Fixture::new();
        let mut workers: Vec<_> = (0..8).map(|_| Worker::start("open", &fixture.path())).collect();
        for worker in &mut workers {
            assert_eq!(worker.says().as_deref(), Some("opened"));
        }
    }
}

/// The wall clock is moved by a day, forward and back, while processes use the file and before
/// others open it: no lease ends early, none lasts longer, and all see the same time.
#[test]
fn a_wall_clock_that_moves_by_a_day_moves_nothing() {
    let fixture = Fixture::new();
    let Some(clock) = ClockHandle::new(fixture.dir.path()) else { return };
    let start = || {
        let mut worker =
            Worker::run(worker::command("time", &fixture.path()).envs(clock.environment()));
        assert_eq!(worker.says().as_deref(), Some("ready"));
        worker
    };
    let times = |worker: &mut Worker| {
        worker.tell();
        let said = worker.says().unwrap();
        let (host, wall) = said.split_once(' ').unwrap();
        (host.parse::<u64>().unwrap(), wall.parse::<u64>().unwrap())
    };
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    let mut first = start();
    let close = |a: u64, b: u64| a.abs_diff(b) < 5_000_000;
    for offset in [DAY_US.cast_signed(), -DAY_US.cast_signed()] {
        clock.set_offset(offset);
        let mut second = start();
        for worker in [&mut first, &mut second] {
            let (host, wall) = times(worker);
            assert!(close(host, file.now_us()), "{host} beside {}", file.now_us());
            let moved = wall_us().checked_add_signed(offset).unwrap();
            assert!(close(wall, moved), "the wall clock did not move: {wall} beside {moved}");
        }
    }
    let Body::Inspected(seen) = body(&mut file, "job", &inspect()) else { panic!() };
    assert!(
        seen.ttl_ms.is_some_and(|ttl| ttl <= LEASE_MS && ttl > LEASE_MS / 2),
        "{:?}",
        seen.ttl_ms
    );
}

/// A time namespace shows a different time since boot; host time is the same.
#[test]
fn a_time_namespace_has_the_same_host_time() {
    let fixture = Fixture::new();
    let file = fixture.open();
    let mut probe = Command::new("unshare");
    probe.args(["--time", "--boottime", "1000000", "--fork", "true"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return fairlock_testkit::skip("the right to make a time namespace (unshare --time)");
    }
    let args = ["--time", "--boottime", "1000000", "--fork", "--kill-child"];
    let mut command = worker::command_under("unshare", &args, "time", &fixture.path());
    let mut worker = Worker::run(&mut command);
    assert_eq!(worker.says().as_deref(), Some("ready"));
    worker.tell();
    let said = worker.says().unwrap();
    let host: u64 = said.split_once(' ').unwrap().0.parse().unwrap();
    assert!(host.abs_diff(file.now_us()) < 5_000_000, "{host} beside {}", file.now_us());
}
