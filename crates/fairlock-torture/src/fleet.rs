//! The worker processes of a run, and what they have reported so far.

use crate::log::Input;
use crate::log::note::Note;
use crate::worker::Load;
use fairlock_testkit::history::now_ns;
use fairlock_testkit::processes::Owned;
use fairlock_testkit::wait;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long all clients may take to finish their last turn: longer than any fault and any lease.
const LAST_TURNS: Duration = Duration::from_secs(60);

/// A worker's output is read in chunks of this size, the capacity of a pipe; it gathers in between.
const AT_ONCE: usize = 64 << 10;
const GATHER: Duration = Duration::from_millis(2);

/// How long a worker may take to carry out an order.
const CARRIED_OUT: Duration = Duration::from_secs(10);

/// State that is read while the run goes on.
#[derive(Debug, Default)]
struct Live {
    acquisitions: u64,
    /// For each live client: its worker, and when it sent the latest of its granted requests.
    clients: HashMap<String, (usize, u64)>,
    /// For each worker: how many orders it has carried out.
    suffered: HashMap<usize, u64>,
}

#[derive(Debug)]
struct Worker {
    number: usize,
    child: Owned,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    setting: Setting,
    seed: u64,
    workers: Vec<Worker>,
    started: usize,
    live: Arc<Mutex<Live>>,
    checker: Sender<Input>,
}

/// The settings that every worker of a run gets.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) load: Load,
    pub(crate) url: String,
    pub(crate) resource: SocketAddr,
    pub(crate) lease: Duration,
}

impl Fleet {
    pub(crate) fn start(setting: Setting, seed: u64, checker: Sender<Input>) -> Self {
        let (workers, live) = (Vec::new(), Arc::default());
        let mut fleet = Self { setting, seed, workers, started: 0, live, checker };
        for _ in 0..fleet.setting.load.processes() {
            fleet.add();
        }
        fleet
    }

    fn add(&mut self) {
        self.seed += 1;
        self.started += 1;
        let number = self.started;
        let Setting { load, url, resource, lease } = &self.setting;
        let lease = lease.as_millis().to_string();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["worker", load.name(), url, &resource.to_string(), &lease])
            .arg(self.seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Owned::spawn(&mut command).unwrap();
        let mut lines = BufReader::with_capacity(AT_ONCE, child.stdout.take().unwrap());
        let (live, checker) = (Arc::clone(&self.live), self.checker.clone());
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                if let Some(note) = Note::parse(line.trim_end_matches('\n')) {
                    lock(&live).note(number, &note);
                    // The checker runs for as long as there are senders.
                    let _ = checker.send(Input::Note { worker: number, note });
                }
                line.clear();
                // Nothing is lost, and the writer need not wake a reader for each line.
                if lines.buffer().is_empty() {
                    std::thread::sleep(GATHER);
                }
            }
        });
        self.workers.push(Worker { number, child, reader: Some(reader) });
    }

    pub(crate) fn acquisitions(&self) -> u64 {
        lock(&self.live).acquisitions
    }

    /// Whether every client of every process was granted a request that it sent after `since`.
    pub(crate) fn all_had_a_turn(&self, since: u64) -> bool {
        let (live, load) = (lock(&self.live), self.setting.load);
        live.clients.len() == load.processes() * load.clients()
            && live.clients.values().all(|(_, asked)| *asked > since)
    }

    /// Kills a worker, with all that it holds and waits for, and starts another in its place.
    pub(crate) fn kill(&mut self, which: usize) {
        let mut worker = self.workers.remove(which % self.workers.len());
        // Taken before the kill: everything until then was done by a live process.
        let at = now_ns();
        worker.child.kill().unwrap();
        end(&mut worker);
        let number = worker.number;
        let _ = self.checker.send(Input::Killed { worker: number, at });
        lock(&self.live).clients.retain(|_, (worker, _)| *worker != number);
        self.add();
    }

    /// Sends a worker an order, and waits until it reports having carried it out.
    pub(crate) fn order(&mut self, which: usize, what: &str) -> bool {
        let which = which % self.workers.len();
        let worker = &mut self.workers[which];
        let suffered = |live: &Mutex<Live>, number| lock(live).suffered.get(number).copied();
        let before = suffered(&self.live, &worker.number);
        let Some(stdin) = &mut worker.child.stdin else { return false };
        if writeln!(stdin, "{what}").is_err() {
            return false;
        }
        wait::holds(CARRIED_OUT, || suffered(&self.live, &worker.number) != before)
    }

    /// Sends a worker process a signal, in the middle of whatever it is doing.
    pub(crate) fn signal(&self, which: usize, signal: rustix::process::Signal) {
        let child = &self.workers[which % self.workers.len()].child;
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    }

    /// Lets all workers finish their last turns. A worker that does not finish in time is killed
    /// and leaves no [`Note::Done`].
    pub(crate) fn stop(mut self) {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
        }
        let began = Instant::now();
        for mut worker in self.workers {
            while worker.child.try_wait().unwrap().is_none() && began.elapsed() < LAST_TURNS {
                std::thread::sleep(Duration::from_millis(10));
            }
            // Fails if the worker has exited, as it should have.
            let _ = worker.child.kill();
            end(&mut worker);
            let _ = self.checker.send(Input::Gone { worker: worker.number });
        }
    }
}

impl Live {
    fn note(&mut self, worker: usize, note: &Note) {
        match note {
            Note::Client { id } => {
                self.clients.insert(id.clone(), (worker, 0));
            }
            Note::Granted { asked, owner, .. } => {
                self.acquisitions += 1;
                let client = owner.split(':').next().unwrap_or(owner);
                if let Some((_, last)) = self.clients.get_mut(client) {
                    *last = (*last).max(*asked);
                }
            }
            Note::Suffered { .. } => *self.suffered.entry(worker).or_default() += 1,
            _ => {}
        }
    }
}

fn end(worker: &mut Worker) {
    worker.child.wait().unwrap();
    worker.reader.take().unwrap().join().unwrap();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
