//! Ports that no other test's server takes, even while the server of this one is dead.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

/// Below those that the system gives to outgoing connections, from 32768 on.
const FIRST: u16 = 20_000;
const END: u16 = 32_000;
/// How far above a Cluster node's port the one of its bus is.
const BUS: u16 = 10_000;
/// How long a port is not used again: a client of the server that had it may still try to connect, and would leave its
/// keys on another test's server.
const REST: Duration = Duration::from_secs(120);

/// A port, and the one of its bus, reserved among this user's tests until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    reserved: Vec<File>,
}

impl Port {
    /// Reserves a port that nobody listens on. With `bus`, the same holds for the port 10 000 above.
    ///
    /// # Panics
    ///
    /// If the temporary folder takes no files.
    pub(crate) fn reserve(bus: bool) -> Self {
        let end = if bus { END - BUS } else { END };
        loop {
            // A fresh RandomState is the standard library's only source of randomness.
            let offset = RandomState::new().hash_one(0) % u64::from(end - FIRST);
            let number = FIRST + u16::try_from(offset).expect("below the end");
            let all = if bus { vec![number, number + BUS] } else { vec![number] };
            if let Some(reserved) = all.into_iter().map(reserved).collect() {
                return Self { number, reserved };
            }
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        for file in &self.reserved {
            // Without it the port may be used again at once.
            let _ = file.set_modified(SystemTime::now());
        }
    }
}

/// The locked file of a port, unless another test has it or had it a moment ago.
fn reserved(port: u16) -> Option<File> {
    let user = rustix::process::geteuid().as_raw();
    let dir = std::env::temp_dir().join(format!("fairlock-test-ports-{user}"));
    fs::create_dir_all(&dir).expect("a folder of ports");
    let path = dir.join(port.to_string());
    let used = fs::metadata(&path).and_then(|file| file.modified());
    if used.is_ok_and(|used| used.elapsed().is_ok_and(|time| time < REST)) {
        return None;
    }
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.expect("a file for each port");
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    let is_free = is_ours && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (is_free && file.set_modified(SystemTime::now()).is_ok()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_nobody_elses_until_a_while_after_its_end() {
        let port = Port::reserve(true);
        let both = [port.number, port.number + BUS];
        assert!(both.map(reserved).iter().all(Option::is_none));
        drop(port);
        assert!(both.map(reserved).iter().all(Option::is_none));
    }
}
