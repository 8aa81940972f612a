//! A peer that records every byte from its clients: what was on the wire, readable by anybody
//! there.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A running peer on a free port of 127.0.0.1. Its threads end with their connections; its port
/// stays open until the process ends.
#[derive(Debug)]
pub struct Tap {
    addr: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

/// What a peer does with a connection.
#[derive(Clone, Debug)]
enum Behind {
    /// Forwards it to a server.
    Server(SocketAddr),
    /// Answers the first bytes with these, and sends nothing more.
    Words(Vec<u8>),
    /// Sends nothing.
    Silence,
}

impl Tap {
    /// A peer in front of a server.
    ///
    /// # Panics
    ///
    /// If the system has no port left.
    pub fn before(server: SocketAddr) -> Self {
        Self::start(Behind::Server(server))
    }

    /// A peer that answers with these bytes, whatever it receives, and closes its side.
    ///
    /// # Panics
    ///
    /// If the system has no port left.
    pub fn saying(words: &[u8]) -> Self {
        Self::start(Behind::Words(words.to_vec()))
    }

    /// A peer that accepts connections and never sends anything.
    ///
    /// # Panics
    ///
    /// If the system has no port left.
    pub fn silent() -> Self {
        Self::start(Behind::Silence)
    }

    fn start(behind: Behind) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("the port the listener has");
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let keep = Arc::clone(&heard);
        let run = move || {
            for client in listener.incoming().flatten() {
                let (behind, keep) = (behind.clone(), Arc::clone(&keep));
                // Either end may close at any time.
                thread::spawn(move || drop(serve(client, &behind, &keep)));
            }
        };
        thread::Builder::new().name("tap".into()).spawn(run).expect("a thread");
        Self { addr, heard }
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Everything that its clients have sent so far.
    pub fn heard(&self) -> Vec<u8> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether they have sent these bytes.
    pub fn has_heard(&self, bytes: &str) -> bool {
        self.heard().windows(bytes.len()).any(|part| part == bytes.as_bytes())
    }
}

fn serve(mut client: TcpStream, behind: &Behind, heard: &Mutex<Vec<u8>>) -> io::Result<()> {
    match behind {
        Behind::Server(addr) => {
            let mut server = TcpStream::connect(addr)?;
            let (mut from, mut back) = (server.try_clone()?, client.try_clone()?);
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut back);
                let _ = back.shutdown(Shutdown::Write);
            });
            listen(&mut client, heard, |bytes| server.write_all(bytes))?;
            server.shutdown(Shutdown::Write)
        }
        Behind::Words(words) => {
            let mut answer = client.try_clone()?;
            let mut words = words.as_slice();
            listen(&mut client, heard, |_| {
                answer.write_all(std::mem::take(&mut words))?;
                // Not a close: that would discard what the client has not read yet.
                answer.shutdown(Shutdown::Write)
            })
        }
        Behind::Silence => listen(&mut client, heard, |_| Ok(())),
    }
}

/// Reads until the client closes, and records the bytes.
fn listen(
    client: &mut TcpStream,
    heard: &Mutex<Vec<u8>>,
    mut then: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut chunk = [0; 4096];
    loop {
        let length = client.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        heard.lock().unwrap_or_else(PoisonError::into_inner).extend(&chunk[..length]);
        then(&chunk[..length])?;
    }
}
