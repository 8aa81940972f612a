//! The worker processes of a run, and what they have told so far.

use crate::note::Note;
use crate::worker;
use fairlock_testkit::history::now_ns;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Worker processes at a time.
pub(crate) const WORKERS: usize = 2;

/// How long everybody may take to end its last turn: more than any fault lasts, and than any lease.
const LAST_TURNS: Duration = Duration::from_secs(60);

/// What one process told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) notes: Vec<Note>,
    /// When it was killed.
    pub(crate) killed: Option<u64>,
}

/// What is looked at while the run goes on.
#[derive(Debug, Default)]
struct Live {
    acquisitions: u64,
    /// Of each client that lives: when it asked for the youngest of its requests that were granted.
    clients: HashMap<String, u64>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    story: Arc<Mutex<Story>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    url: String,
    resource: SocketAddr,
    seed: u64,
    workers: Vec<Worker>,
    /// The stories of those that were killed.
    past: Vec<Story>,
    live: Arc<Mutex<Live>>,
}

impl Fleet {
    pub(crate) fn start(url: String, resource: SocketAddr, seed: u64) -> Self {
        let (workers, past) = (Vec::new(), Vec::new());
        let mut fleet = Self { url, resource, seed, workers, past, live: Arc::default() };
        for _ in 0..WORKERS {
            fleet.add();
        }
        fleet
    }

    fn add(&mut self) {
        self.seed += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["worker", &self.url, &self.resource.to_string(), &self.seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (story, live) = (Arc::new(Mutex::new(Story::default())), Arc::clone(&self.live));
        let told = Arc::clone(&story);
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some(note) = Note::parse(&line) else { continue };
                lock(&live).note(&note);
                lock(&told).notes.push(note);
            }
        });
        self.workers.push(Worker { child, story, reader: Some(reader) });
    }

    pub(crate) fn acquisitions(&self) -> u64 {
        lock(&self.live).acquisitions
    }

    /// Whether every client of every process has been granted something that it asked for after `since`.
    pub(crate) fn all_had_a_turn(&self, since: u64) -> bool {
        let live = lock(&self.live);
        live.clients.len() == WORKERS * worker::CLIENTS
            && live.clients.values().all(|asked| *asked > since)
    }

    /// Kills a worker, with whatever it holds and waits for, and starts another in its place.
    pub(crate) fn kill(&mut self, which: usize) {
        let mut worker = self.workers.remove(which % self.workers.len());
        // Before the kill: what it did until then was done by a living process.
        let killed = now_ns();
        worker.child.kill().unwrap();
        let mut story = end(&mut worker);
        story.killed = Some(killed);
        let gone = story.notes.iter().filter_map(|note| match note {
            Note::Client { id } => Some(id),
            _ => None,
        });
        for id in gone {
            lock(&self.live).clients.remove(id);
        }
        self.past.push(story);
        self.add();
    }

    /// Stops a worker process for a while, in the middle of whatever it does.
    pub(crate) fn signal(&self, which: usize, signal: rustix::process::Signal) {
        let child = &self.workers[which % self.workers.len()].child;
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    }

    /// Lets everybody end its last turn. Who does not in time is killed, and has no [`Note::Done`].
    pub(crate) fn stop(mut self) -> Vec<Story> {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
        }
        let began = Instant::now();
        let mut stories = std::mem::take(&mut self.past);
        for mut worker in std::mem::take(&mut self.workers) {
            while worker.child.try_wait().unwrap().is_none() && began.elapsed() < LAST_TURNS {
                std::thread::sleep(Duration::from_millis(10));
            }
            // Fails if it has ended, as it should have.
            let _ = worker.child.kill();
            stories.push(end(&mut worker));
        }
        stories
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Live {
    fn note(&mut self, note: &Note) {
        match note {
            Note::Client { id } => {
                self.clients.insert(id.clone(), 0);
            }
            Note::Granted { asked, owner, .. } => {
                self.acquisitions += 1;
                let client = owner.split(':').next().unwrap_or(owner);
                if let Some(last) = self.clients.get_mut(client) {
                    *last = (*last).max(*asked);
                }
            }
            _ => {}
        }
    }
}

fn end(worker: &mut Worker) -> Story {
    worker.child.wait().unwrap();
    worker.reader.take().unwrap().join().unwrap();
    std::mem::take(&mut *lock(&worker.story))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
