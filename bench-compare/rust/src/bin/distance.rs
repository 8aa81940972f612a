//! `distance PORT`: a way to the server on PORT that takes longer. Prints where it listens; each line on stdin is a
//! round-trip time in microseconds that is added from then on, half of it in each direction. What is on its way
//! does not wait for what is behind it, as on a real one.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What one read takes at most.
const PIECE: usize = 64 * 1024;

/// Pieces under way in one direction: beyond that the sender waits, as it would for a full window.
const PIECES: usize = 4096;

fn main() {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("distance PORT");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let own = listener.local_addr().expect("the port it has").port();
    println!("{{\"hello\":{{\"port\":{own}}}}}");
    let half_us = Arc::new(AtomicU64::new(0));
    let set = Arc::clone(&half_us);
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            let rtt: u64 = line.trim().parse().expect("microseconds");
            set.store(rtt / 2, Ordering::Relaxed);
            println!("{{\"rtt_us\":{rtt}}}");
        }
        std::process::exit(0);
    });
    for client in listener.incoming() {
        let client = client.expect("a connection");
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
        for one in [&client, &server] {
            one.set_nodelay(true).expect("a socket");
        }
        let copy = |of: &TcpStream| of.try_clone().expect("a descriptor");
        for (from, to) in [(copy(&client), copy(&server)), (server, client)] {
            let half_us = Arc::clone(&half_us);
            thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || carry(from, to, &half_us))
                .expect("a thread");
        }
    }
}

/// One direction of one connection, until it ends.
fn carry(mut from: TcpStream, mut to: TcpStream, half_us: &AtomicU64) {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut piece = vec![0; PIECE];
    let mut ended = false;
    while !ended || !under_way.is_empty() {
        let now = Instant::now();
        while under_way.front().is_some_and(|(due, _)| *due <= now) {
            let (_, bytes) = under_way.pop_front().expect("it was there");
            if to.write_all(&bytes).is_err() {
                ended = true;
                under_way.clear();
            }
        }
        let left = under_way.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        if ended || under_way.len() >= PIECES {
            thread::sleep(left.unwrap_or_default());
            continue;
        }
        if !readable(&from, left) {
            continue;
        }
        match from.read(&mut piece) {
            Ok(0) => ended = true,
            Ok(read) => {
                let due = Instant::now() + Duration::from_micros(half_us.load(Ordering::Relaxed));
                under_way.push_back((due, piece[..read].to_vec()));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => ended = true,
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Waits for bytes, or their end; no longer than until the next piece is due.
fn readable(from: &TcpStream, left: Option<Duration>) -> bool {
    let wait = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let mut one = [PollFd::new(from, PollFlags::IN)];
    poll(&mut one, wait.as_ref()).is_ok_and(|ready| ready > 0)
}
