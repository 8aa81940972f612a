//! A network for one test (a namespace with only a loopback), in which ports can be cut off.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use crate::processes::Owned;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The network of the calling thread and of everything it starts: servers, and the threads of
/// clients.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Moves the calling thread into a new network for good: call it on a thread that ends with the
    /// test, before it starts anything. `None`, with a notice, where this is not allowed.
    ///
    /// # Panics
    ///
    /// For lack of the right where `CI` is set; if a network was made and cannot be entered.
    pub fn enter() -> Option<Self> {
        let Some(owner) = start_owner() else {
            crate::skip("the right to make a network (unshare --net), and ip rules");
            return None;
        };
        // Starts the spawner first, in the network that all tests share.
        let _ = crate::server::spawn::spawner();
        let file = File::open(format!("/proc/{}/ns/net", owner.id())).expect("the namespace");
        let entered = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
        entered.expect("into the namespace");
        Some(Self(()))
    }

    /// Loses everything sent to or from this TCP port from now on: existing connections fall
    /// silent, and new ones find no route.
    ///
    /// # Panics
    ///
    /// If the kernel rejects the rule.
    pub fn cut(&self, port: u16) {
        rules("add", port);
    }

    /// Undoes [`Self::cut`].
    ///
    /// # Panics
    ///
    /// If the port was not cut off.
    pub fn mend(&self, port: u16) {
        rules("del", port);
    }
}

/// A process that keeps a new network alive until it is entered. Our rules there precede those for
/// local addresses.
fn start_owner() -> Option<Owned> {
    const SETUP: &str = "ip link set lo up && ip rule add pref 100 lookup local \
         && ip rule del pref 0 && echo ready && exec sleep 60";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", SETUP]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut owner = Owned::spawn(&mut command).ok()?;
    let mut said = String::new();
    let stdout = owner.stdout.take().expect("piped");
    // `sleep` keeps the pipe open: read a line, not to the end.
    let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said);
    (read.is_ok() && said == "ready\n").then_some(owner)
}

/// TCP. By its name `ip` would look for it in /etc/protocols, which a small system does not have.
const TCP: &str = "6";

fn rules(verb: &str, port: u16) {
    for end in ["sport", "dport"] {
        let mut ip = Command::new("ip");
        ip.args(["rule", verb, "pref", "10", "ipproto", TCP, end, &port.to_string()]);
        let done = ip.arg("unreachable").status();
        assert!(done.is_ok_and(|status| status.success()), "ip rule {verb} {end} {port}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_port_that_is_cut_off_is_silent_and_comes_back() {
        let ended = std::thread::spawn(|| {
            let Some(network) = Network::enter() else { return };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let near = TcpStream::connect(addr).unwrap();
            let (far, _) = listener.accept().unwrap();
            network.cut(addr.port());
            for (mut from, mut to) in [(&near, &far), (&far, &near)] {
                from.write_all(b"x").unwrap();
                to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                let error = to.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            TcpStream::connect(addr).unwrap_err();
            network.mend(addr.port());
            for mut end in [&near, &far] {
                end.set_read_timeout(None).unwrap();
                end.read_exact(&mut [0]).unwrap();
            }
            TcpStream::connect(addr).unwrap();
        });
        ended.join().unwrap();
    }
}
