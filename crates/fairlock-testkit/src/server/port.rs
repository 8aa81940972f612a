//! Ports that no other test's server takes, even while the server of this one is dead.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

use rustix::fs::{FlockOperation, flock};

/// Below those that the system gives to outgoing connections, from 32768 on.
const FIRST: u16 = 20_000;
const END: u16 = 32_000;
/// How far above a Cluster node's port the one of its bus is.
const BUS: u16 = 10_000;

/// A port, and the one of its bus, reserved among this user's tests until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _reserved: Vec<File>,
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
                return Self { number, _reserved: reserved };
            }
        }
    }
}

/// The locked file of a port, unless it is somebody's.
fn reserved(port: u16) -> Option<File> {
    let user = rustix::process::geteuid().as_raw();
    let dir = std::env::temp_dir().join(format!("fairlock-test-ports-{user}"));
    fs::create_dir_all(&dir).expect("a folder of ports");
    let path = dir.join(port.to_string());
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.expect("a file for each port");
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    (is_ours && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::patiently;

    #[test]
    fn a_port_is_nobody_elses_until_it_is_dropped() {
        let port = Port::reserve(true);
        for number in [port.number, port.number + BUS] {
            assert!(reserved(number).is_none());
        }
        let number = port.number;
        drop(port);
        // A child that another thread is starting has the file open until it is another program.
        patiently("the port is free", || reserved(number).is_some());
    }
}
