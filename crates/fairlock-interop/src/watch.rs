//! What a server has executed, in its order, and the history of a lock's fair queue in it,
//! or of the line of a read-write lock ([`shares`]).
//!
//! No reply tells when Java entered or left the queue. The server's `MONITOR` does: it shows each
//! command of each script in the order of execution, with the server's time. From it the queue and
//! the hold are reconstructed, as events of [`fairlock_testkit::history`].

pub mod shares;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlock_testkit::history::now_ns;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::queue_key;
use fairlock_testkit::resp::Value;

/// How often both clocks are read to find the closest pair.
const READINGS: u32 = 20;
/// Time limit for a command to appear in `MONITOR`; it usually takes a millisecond.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);
/// How often the watching thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Monitors a server until it is dropped.
#[derive(Debug)]
pub struct Watch {
    server: SocketAddr,
    seen: Arc<Seen>,
    /// What to subtract from the server's time to get that of [`now_ns`]. Measured again with each
    /// [`Watch::take`], because a wall clock is adjusted gradually.
    epoch_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Seen {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

/// A command that a script ran.
#[derive(Clone, Debug)]
pub struct Command {
    /// When, on the clock of [`now_ns`].
    pub at_ns: u64,
    /// The script that ran it: all commands of one script have the same number.
    pub script: usize,
    /// The command in lower case, and its arguments.
    pub words: Vec<String>,
}

/// What happened to the queue and the hold of one lock.
#[derive(Clone, Debug)]
pub struct Step {
    /// When, on the clock of [`now_ns`].
    pub at_ns: u64,
    /// The owner.
    pub owner: String,
    /// The event.
    pub what: What,
}

/// See [`Step`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum What {
    /// It entered the queue at the tail.
    Enters,
    /// It entered elsewhere: one of ours that returned to its place.
    Returns,
    /// It left the queue without holding the lock.
    Leaves,
    /// It acquired the lock, for the first time.
    Holds,
    /// The lock is free again: it was released or taken away, or it expired.
    Frees {
        /// The lock was not deleted; its TTL ended.
        by_time: bool,
    },
}

/// The lock passed from one owner to the next.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// The previous owner.
    pub from: String,
    /// The new owner.
    pub to: String,
    /// When it became free, on the clock of [`now_ns`].
    pub freed_ns: u64,
    /// Whether it became free because it expired.
    pub by_time: bool,
    /// Whether the new owner was already waiting then.
    pub was_waiting: bool,
}

impl Watch {
    /// Starts monitoring.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn start(server: SocketAddr) -> Self {
        let mut raw = Raw::connect(server);
        assert!(matches!(raw.call(&["MONITOR"]), Value::Simple(_)));
        let seen = Arc::new(Seen::default());
        let shared = Arc::downgrade(&seen);
        std::thread::spawn(move || {
            loop {
                let line = raw.read_within(LOOK);
                let Some(seen) = shared.upgrade() else { return };
                match line {
                    Ok(Some(Value::Simple(line))) => seen.add(line),
                    Ok(Some(_) | None) => {}
                    // A signal, for example when a child exits.
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The server is gone, or closed the connection.
                    Err(error) => return seen.add(format!("ended: {error}")),
                }
            }
        });
        Self { server, seen, epoch_ns: AtomicU64::new(epoch_ns()) }
    }

    /// Returns the commands that scripts have run so far, and forgets them.
    ///
    /// # Panics
    ///
    /// If the server does not show them in time.
    pub fn take(&self) -> Vec<Command> {
        self.epoch_ns.store(epoch_ns(), Ordering::Relaxed);
        let marker = format!("marker-{}", now_ns());
        Raw::connect(self.server).call(&["ECHO", &marker]);
        let deadline = Instant::now() + SHOWN_WITHIN;
        let mut lines = self.seen.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // A polling Java client writes a hundred thousand lines in a moment, so each line is
        // checked once.
        let mut looked_at = 0;
        let end = loop {
            let found = lines[looked_at..].iter().position(|line| line.contains(&marker));
            if let Some(at) = found {
                break looked_at + at;
            }
            looked_at = lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            let last = lines.last().map_or("nothing", String::as_str);
            assert!(
                !left.is_zero(),
                "MONITOR did not show an ECHO within {SHOWN_WITHIN:?}; {} lines, the last: {last}",
                lines.len()
            );
            let waited = self.seen.more.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let taken: Vec<_> = lines.drain(..=end).collect();
        drop(lines);
        let mut script = 0;
        let mut commands = Vec::new();
        for line in &taken {
            match self.command(line, script) {
                Some(command) => commands.push(command),
                // The call of the next script, or any other command.
                None => script += 1,
            }
        }
        commands
    }

    fn command(&self, line: &str, script: usize) -> Option<Command> {
        let (head, words) = line.split_once(" lua] ")?;
        let (time, _) = head.split_once(' ')?;
        let (seconds, micros) = time.split_once('.')?;
        let micros = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        let mut words = quoted(words);
        words.first_mut()?.make_ascii_lowercase();
        let at_ns = (micros * 1000).saturating_sub(self.epoch_ns.load(Ordering::Relaxed));
        Some(Command { at_ns, script, words })
    }

    /// The server's epoch milliseconds on the clock of [`now_ns`].
    fn of_epoch_ms(&self, epoch_ms: u64) -> u64 {
        (epoch_ms * 1_000_000).saturating_sub(self.epoch_ns.load(Ordering::Relaxed))
    }

    /// What `commands` did to the queue and the hold of `lock`, which was free before them.
    pub fn story(&self, lock: &str, commands: &[Command]) -> Vec<Step> {
        let queue_key = queue_key(lock);
        let mut story = Story::default();
        for Command { at_ns, script, words } in commands {
            let at_ns = *at_ns;
            if story.script != *script {
                (story.script, story.just_left) = (*script, None);
            }
            story.expire(at_ns);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["rpush", key, owner] if key == queue_key => {
                    story.queue.push(owner.to_owned());
                    story.add(at_ns, owner, What::Enters);
                }
                ["lpush", key, owner] if key == queue_key => {
                    story.queue.insert(0, owner.to_owned());
                    story.add(at_ns, owner, What::Returns);
                }
                ["linsert", key, side, pivot, owner] if key == queue_key => {
                    let pivot = story.queue.iter().position(|other| other == pivot);
                    let Some(pivot) = pivot else { continue };
                    let after = usize::from(side.eq_ignore_ascii_case("after"));
                    story.queue.insert(pivot + after, owner.to_owned());
                    story.add(at_ns, owner, What::Returns);
                }
                ["lpop", key] if key == queue_key && !story.queue.is_empty() => {
                    let owner = story.queue.remove(0);
                    story.removed(at_ns, &owner);
                }
                ["lrem", key, _, owner] if key == queue_key => {
                    if let Some(at) = story.queue.iter().position(|other| other == owner) {
                        story.queue.remove(at);
                        story.removed(at_ns, owner);
                    }
                }
                ["hset", key, owner, _] | ["hincrby", key, owner, "1"] if key == lock => {
                    story.holds(at_ns, owner);
                }
                ["pexpire", key, ms] if key == lock => {
                    let ms = ms.parse::<u64>().expect("milliseconds");
                    story.ends_ns = at_ns + ms * 1_000_000;
                }
                ["pexpireat", key, ms] if key == lock => {
                    story.ends_ns = self.of_epoch_ms(ms.parse().expect("milliseconds"));
                }
                ["del", ..] if words[1..].contains(&lock) => story.deleted(at_ns),
                _ => {}
            }
        }
        story.steps
    }
}

/// The wall clock's time minus that of [`now_ns`]. A busy machine may put milliseconds between two
/// readings (seed 194497541), so the closest of several pairs counts.
fn epoch_ns() -> u64 {
    let read = |_| {
        let before_ns = now_ns();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let took_ns = now_ns() - before_ns;
        let wall_ns = u64::try_from(since_epoch.as_nanos()).expect("before 2554");
        (took_ns, wall_ns - before_ns - took_ns / 2)
    };
    (0..READINGS).map(read).min().map(|(_, epoch_ns)| epoch_ns).expect("there are some")
}

impl Seen {
    fn add(&self, mut line: String) {
        // What clients send is only searched for the marker; it can be a whole script.
        let is_wanted = [" lua] ", "\"marker-", "ended: "].iter().any(|word| line.contains(word));
        if !is_wanted {
            line.clear();
        }
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.more.notify_all();
    }
}

#[derive(Default)]
struct Story {
    queue: Vec<String>,
    holder: Option<String>,
    ends_ns: u64,
    /// The script of the command, and the step that records who left the queue in it.
    script: usize,
    just_left: Option<usize>,
    steps: Vec<Step>,
}

impl Story {
    fn add(&mut self, at_ns: u64, owner: &str, what: What) {
        self.steps.push(Step { at_ns, owner: owner.to_owned(), what });
    }

    /// Our scripts remove the new holder from the queue after granting it the lock.
    fn removed(&mut self, at_ns: u64, owner: &str) {
        if self.holder.as_deref() != Some(owner) {
            self.just_left = Some(self.steps.len());
            self.add(at_ns, owner, What::Leaves);
        }
    }

    /// An expired lock is not deleted by any command.
    fn expire(&mut self, at_ns: u64) {
        if at_ns >= self.ends_ns {
            self.freed(self.ends_ns, true);
        }
    }

    fn holds(&mut self, at_ns: u64, owner: &str) {
        if self.holder.as_deref() == Some(owner) {
            return;
        }
        self.freed(at_ns, true);
        // Java's scripts remove it before.
        if let Some(left) = self.just_left.take()
            && self.steps[left].owner == owner
        {
            self.steps.remove(left);
        }
        self.holder = Some(owner.to_owned());
        // The next command of the script sets the TTL.
        self.ends_ns = u64::MAX;
        self.add(at_ns, owner, What::Holds);
    }

    /// Our scripts delete the lock before each grant, even if it has expired.
    fn deleted(&mut self, at_ns: u64) {
        let by_time = at_ns + TTL_STEP_NS >= self.ends_ns;
        self.freed(if by_time { at_ns.min(self.ends_ns) } else { at_ns }, by_time);
    }

    fn freed(&mut self, at_ns: u64, by_time: bool) {
        if let Some(holder) = self.holder.take() {
            self.add(at_ns, &holder, What::Frees { by_time });
        }
    }
}

/// TTLs are whole milliseconds.
const TTL_STEP_NS: u64 = 1_000_000;

/// Every time the lock became free and was then acquired.
pub fn hand_overs(steps: &[Step]) -> Vec<HandOver> {
    let mut entered: HashMap<&str, u64> = HashMap::new();
    let mut freed: Option<(&Step, bool)> = None;
    let mut hand_overs = Vec::new();
    for step in steps {
        match step.what {
            What::Enters | What::Returns => {
                entered.insert(&step.owner, step.at_ns);
            }
            What::Leaves => {
                entered.remove(step.owner.as_str());
            }
            What::Frees { by_time } => freed = Some((step, by_time)),
            What::Holds => {
                let entered_ns = entered.remove(step.owner.as_str());
                if let Some((from, by_time)) = freed.take() {
                    hand_overs.push(HandOver {
                        from: from.owner.clone(),
                        to: step.owner.clone(),
                        freed_ns: from.at_ns,
                        by_time,
                        was_waiting: entered_ns.is_some_and(|at_ns| at_ns <= from.at_ns),
                    });
                }
            }
        }
    }
    hand_overs
}

/// Whether an owner is Java's, by the version of its UUID.
pub fn is_java(owner: &str) -> bool {
    owner.as_bytes().get(14) == Some(&b'4')
}

/// The words of `"a" "b\"c"`. Only quotes and backslashes are unescaped; names here contain nothing
/// else.
fn quoted(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, &mut word) {
            ('"', None) => word = Some(String::new()),
            ('"', Some(_)) => words.extend(word.take()),
            ('\\', Some(word)) => word.extend(chars.next()),
            (c, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_monitor_writes_them() {
        assert_eq!(quoted(r#""hset" "a b" "" "c\"d\\e""#), ["hset", "a b", "", r#"c"d\e"#]);
    }

    #[test]
    fn java_is_told_by_the_version_of_its_id() {
        assert!(is_java("68abb9b1-b536-4682-91df-ddd2a0666c9d:32"));
        assert!(!is_java("68abb9b1-b536-8682-91df-ddd2a0666c9d:32"));
    }
}
