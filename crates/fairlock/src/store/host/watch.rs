//! Whose death this client wants to learn of: for each lock that it waits for, the client before
//! it, or those that hold it.
//!
//! One task for each of them sleeps until the kernel reports that its FIFO has no writer any more.

use super::folder::Folder;
use super::liveness;
use crate::base::clock::lock;
use crate::store::{Event, Events, Topic};
use fairlock_core::ClientId;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Pause after reading something from a FIFO to which nobody should write, to avoid a busy loop.
const ODD_PAUSE: Duration = Duration::from_millis(50);

/// The watched clients.
pub(super) struct Watches {
    folder: Arc<Folder>,
    events: Events,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The clients that are watched for each topic.
    before: HashMap<Topic, Vec<ClientId>>,
    posts: HashMap<ClientId, Post>,
}

/// One watched client.
struct Post {
    topics: HashSet<Topic>,
    task: AbortHandle,
}

impl Watches {
    pub(super) fn new(folder: Arc<Folder>, events: Events, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { folder, events, runtime, state: Mutex::default() })
    }

    /// Whether `client` is watched for `topic`.
    pub(super) fn watches(&self, topic: &Topic, client: ClientId) -> bool {
        lock(&self.state).before.get(topic).is_some_and(|before| before.contains(&client))
    }

    /// Watches these clients, and nobody else, for `topic` from now on. For each that is dead or dies,
    /// `topic` is woken once.
    pub(super) fn set(self: &Arc<Self>, topic: &Topic, clients: &[ClientId]) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.before.get(topic).map_or(&[][..], Vec::as_slice) == clients {
            return;
        }
        let former = state.before.remove(topic).unwrap_or_default();
        for client in former.iter().filter(|client| !clients.contains(client)) {
            let Some(post) = state.posts.get_mut(client) else { continue };
            post.topics.remove(topic);
            if post.topics.is_empty() {
                post.task.abort();
                state.posts.remove(client);
            }
        }
        if clients.is_empty() {
            return;
        }
        state.before.insert(topic.clone(), clients.to_vec());
        for client in clients.iter().filter(|client| !former.contains(client)) {
            let post = state.posts.entry(*client).or_insert_with(|| {
                let watch = Arc::clone(self).run(*client);
                Post { topics: HashSet::new(), task: self.runtime.spawn(watch).abort_handle() }
            });
            post.topics.insert(topic.clone());
        }
    }

    async fn run(self: Arc<Self>, client: ClientId) {
        // Without an alarm (too many files are open, the FIFO was removed), the next heartbeat
        // tries again.
        let (sign, fd) = liveness::watch(&self.folder, client);
        if let Some(fd) = fd {
            last_writer_gone(fd).await;
        }
        let post = {
            let mut state = lock(&self.state);
            let post = state.posts.remove(&client);
            for topic in post.iter().flat_map(|post| &post.topics) {
                let Some(before) = state.before.get_mut(topic) else { continue };
                before.retain(|watched| *watched != client);
                if before.is_empty() {
                    state.before.remove(topic);
                }
            }
            post
        };
        if sign == liveness::Sign::Unknown {
            return;
        }
        for topic in post.into_iter().flat_map(|post| post.topics) {
            (self.events)(Event::Wake(topic));
        }
    }
}

/// Resolves when nobody has the FIFO open for writing any more, or when waiting for that fails.
async fn last_writer_gone(fd: OwnedFd) {
    let Ok(receiver) = Receiver::from_file(File::from(fd)) else { return };
    let mut buffer = [0; 4_096];
    loop {
        if receiver.readable().await.is_err() {
            return;
        }
        match receiver.try_read(&mut buffer) {
            Ok(1..) => tokio::time::sleep(ODD_PAUSE).await,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
