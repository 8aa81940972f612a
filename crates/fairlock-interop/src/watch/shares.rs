//! The history of a read-write lock in what a server has executed.
//!
//! An owner is called by its field in the lock: `<owner>` if it reads, `<owner>:write` if it writes,
//! also while it waits. Java's waiters stand in no line, so nothing tells of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Command, Step, TTL_STEP_NS, Watch, What, is_java};

/// What the field of a writer ends with.
const WRITES: &str = ":write";

/// Whether it is the field of a writer.
pub fn writes(field: &str) -> bool {
    field.ends_with(WRITES)
}

/// The owner's id without what tells that it writes.
pub fn owner_of(field: &str) -> &str {
    field.strip_suffix(WRITES).unwrap_or(field)
}

impl Watch {
    /// What `commands` did to the line and the holds of a read-write lock, which was free before
    /// them; and complaints about scripts after which somebody wrote and another held it, too.
    pub fn story_of_shares(&self, lock: &str, commands: &[Command]) -> (Vec<Step>, Vec<String>) {
        let mut story = Story { keys: Keys::of(lock), ends_ns: u64::MAX, ..Story::default() };
        for Command { at_ns, script, words } in commands {
            if story.script != *script {
                story.judge();
                (story.script, story.just_left) = (*script, Vec::new());
            }
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            story.execute(self, *at_ns, &words);
        }
        story.judge();
        // The line has owners, the lock their fields.
        for step in &mut story.steps {
            if story.writers.contains(&step.owner) {
                step.owner.push_str(WRITES);
            }
        }
        (story.steps, story.wrong)
    }
}

/// The names of the lock's keys.
#[derive(Default)]
struct Keys {
    lock: String,
    order: String,
    state: String,
    leases: String,
    /// Of the keys that say how long a reader holds.
    timeouts: String,
}

impl Keys {
    fn of(lock: &str) -> Self {
        Self {
            lock: lock.to_owned(),
            order: format!("fairlock_rw_order:{{{lock}}}"),
            state: format!("fairlock_rw_state:{{{lock}}}"),
            leases: format!("fairlock_rw_leases:{{{lock}}}"),
            timeouts: format!("{{{lock}}}:"),
        }
    }

    /// The reader, and which of its holds, of a key that says how long it holds.
    fn reader<'a>(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        key.strip_prefix(&self.timeouts)?.split_once(":rwlock_timeout:")
    }
}

#[derive(Default)]
struct Story {
    keys: Keys,
    /// The fields of those who hold, with their counts.
    holds: BTreeMap<String, i64>,
    /// When the lock ends.
    ends_ns: u64,
    /// When the leases of our holders end.
    leases: HashMap<String, u64>,
    /// When the holds of a reader end.
    timeouts: HashMap<String, BTreeMap<String, u64>>,
    line: BTreeSet<String>,
    /// Owners that have stood in the line, and those of them that want to write.
    seen: HashSet<String>,
    writers: HashSet<String>,
    script: usize,
    /// The steps that record who left the line in this script.
    just_left: Vec<usize>,
    steps: Vec<Step>,
    wrong: Vec<String>,
}

impl Story {
    fn execute(&mut self, watch: &Watch, at_ns: u64, words: &[&str]) {
        if at_ns >= self.ends_ns {
            self.all_freed(self.ends_ns);
        }
        let [name, key, rest @ ..] = words else { return };
        let (is_lock, is_order) = (*key == self.keys.lock, *key == self.keys.order);
        let is_leases = *key == self.keys.leases;
        let epoch = |ms: &str| watch.of_epoch_ms(ms.parse().expect("milliseconds"));
        let after = |ms: &str| at_ns + ms.parse::<u64>().expect("milliseconds") * 1_000_000;
        match *name {
            "hset" if is_lock => {
                let fields = rest.chunks_exact(2).filter(|pair| pair[0] != "mode");
                fields.for_each(|pair| self.counted(at_ns, pair[0], pair[1].parse().unwrap_or(1)));
            }
            "hincrby" if is_lock => {
                let before = self.holds.get(rest[0]).copied().unwrap_or(0);
                let by: i64 = rest[1].parse().expect("a number");
                self.counted(at_ns, rest[0], before + by);
            }
            "hdel" if is_lock => rest.iter().for_each(|field| self.freed(at_ns, field)),
            "hset" if *key == self.keys.state => {
                let waiters = rest.chunks_exact(2).filter(|pair| pair[1].ends_with(" w"));
                self.writers.extend(waiters.map(|pair| pair[0].to_owned()));
            }
            "pexpire" if is_lock => self.ends_ns = after(rest[0]),
            "pexpireat" if is_lock => self.ends_ns = epoch(rest[0]),
            "pexpire" => self.reads_until(key, after(rest[0])),
            "set" => match rest {
                [_, how, ms] if how.eq_ignore_ascii_case("px") => {
                    self.reads_until(key, after(ms));
                }
                [_, how, ms] if how.eq_ignore_ascii_case("pxat") => {
                    self.reads_until(key, epoch(ms));
                }
                _ => self.reads_until(key, u64::MAX),
            },
            "zadd" if is_order || is_leases => {
                let rest = if rest[0].eq_ignore_ascii_case("nx") { &rest[1..] } else { rest };
                for pair in rest.chunks_exact(2).filter(|pair| pair[1].contains(':')) {
                    if is_order {
                        self.enters(at_ns, pair[1]);
                    } else {
                        self.leases.insert(pair[1].to_owned(), epoch(pair[0]));
                    }
                }
            }
            "zrem" if is_order => rest.iter().for_each(|owner| self.leaves(at_ns, owner)),
            "del" | "unlink" => {
                for key in &words[1..] {
                    if *key == self.keys.lock {
                        self.all_freed(at_ns);
                    } else if let Some((reader, hold)) = self.keys.reader(key)
                        && let Some(holds) = self.timeouts.get_mut(reader)
                    {
                        holds.remove(hold);
                    }
                }
            }
            _ => {}
        }
    }

    fn reads_until(&mut self, key: &str, until_ns: u64) {
        if let Some((reader, hold)) = self.keys.reader(key) {
            let holds = self.timeouts.entry(reader.to_owned()).or_default();
            holds.insert(hold.to_owned(), until_ns);
        }
    }

    fn add(&mut self, at_ns: u64, owner: &str, what: What) {
        self.steps.push(Step { at_ns, owner: owner.to_owned(), what });
    }

    fn enters(&mut self, at_ns: u64, owner: &str) {
        if self.line.insert(owner.to_owned()) {
            let is_new = self.seen.insert(owner.to_owned());
            self.add(at_ns, owner, if is_new { What::Enters } else { What::Returns });
        }
    }

    /// Who is granted the lock leaves the line in the same script, before or after it.
    fn leaves(&mut self, at_ns: u64, owner: &str) {
        let holds = [owner.to_owned(), format!("{owner}{WRITES}")]
            .iter()
            .any(|field| self.holds.contains_key(field));
        if self.line.remove(owner) && !holds {
            self.just_left.push(self.steps.len());
            self.add(at_ns, owner, What::Leaves);
        }
    }

    fn counted(&mut self, at_ns: u64, field: &str, count: i64) {
        if self.holds.insert(field.to_owned(), count).is_some() {
            return;
        }
        let owner = owner_of(field);
        let is_it = |at: &usize| self.steps[*at].owner == owner;
        if let Some(at) = self.just_left.iter().position(is_it) {
            let step = self.just_left.remove(at);
            self.steps.remove(step);
            self.just_left.iter_mut().filter(|other| **other > step).for_each(|other| *other -= 1);
        }
        self.add(at_ns, field, What::Holds);
    }

    fn freed(&mut self, at_ns: u64, field: &str) {
        let by_time = self.is_over(at_ns + TTL_STEP_NS, field);
        if self.holds.remove(field).is_some() {
            self.add(at_ns, field, What::Frees { by_time });
        }
    }

    fn all_freed(&mut self, at_ns: u64) {
        let fields: Vec<_> = self.holds.keys().cloned().collect();
        fields.iter().for_each(|field| self.freed(at_ns, field));
        self.ends_ns = u64::MAX;
    }

    /// Whether the hold's time is over. Java's readers may outlive it as fields, as long as the lock
    /// lives.
    fn is_over(&self, at_ns: u64, field: &str) -> bool {
        let ended = |end_ns: &u64| *end_ns <= at_ns;
        if ended(&self.ends_ns) {
            return true;
        }
        match (is_java(field), writes(field)) {
            (true, true) => false,
            (true, false) => self.timeouts.get(field).is_none_or(|holds| holds.values().all(ended)),
            (false, _) => self.leases.get(owner_of(field)).is_some_and(ended),
        }
    }

    fn judge(&mut self) {
        let Some(writer) = self.holds.keys().find(|field| writes(field)) else { return };
        // Java may read what it writes.
        let other = self.holds.keys().find(|field| owner_of(field) != owner_of(writer));
        let Some(other) = other else { return };
        let wrong = format!("the lock has {writer} and {other}");
        if self.wrong.last() != Some(&wrong) {
            self.wrong.push(wrong);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    const JAVA: &str = "68abb9b1-b536-4682-91df-ddd2a0666c9d:32";
    const OURS: &str = "68abb9b1-b536-8682-91df-ddd2a0666c9d:1";
    const OTHER: &str = "68abb9b1-b536-8682-91df-ddd2a0666c9d:2";

    /// What scripts told, by milliseconds: both clocks begin together. `~` is a space in a word.
    fn told(commands: &[(u64, usize, String)]) -> (Vec<(u64, String, What)>, Vec<String>) {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let (seen, epoch_ns) = (Arc::default(), AtomicU64::new(0));
        let watch = Watch { server, seen, epoch_ns };
        let command = |(ms, script, words): &(u64, usize, String)| Command {
            at_ns: ms * 1_000_000,
            script: *script,
            words: words.split(' ').map(|word| word.replace('~', " ")).collect(),
        };
        let commands: Vec<_> = commands.iter().map(command).collect();
        let (steps, wrong) = watch.story_of_shares("a", &commands);
        let step = |step: Step| (step.at_ns / 1_000_000, step.owner, step.what);
        (steps.into_iter().map(step).collect(), wrong)
    }

    #[test]
    fn a_line_and_its_holds_are_read() {
        let freed = What::Frees { by_time: false };
        let writer = format!("{OTHER}:write");
        let (steps, wrong) = told(&[
            (1, 0, "hset a mode read".into()),
            (1, 0, format!("hincrby a {JAVA} 1")),
            (1, 0, format!("set {{a}}:{JAVA}:rwlock_timeout:1 1")),
            (1, 0, format!("pexpire {{a}}:{JAVA}:rwlock_timeout:1 3000")),
            (1, 0, "pexpire a 3000".into()),
            (2, 1, format!("hset a {OURS} 1")),
            (2, 1, format!("zadd fairlock_rw_leases:{{a}} 3002 {OURS}")),
            (3, 2, format!("zadd fairlock_rw_order:{{a}} NX 17 {OTHER}")),
            (3, 2, format!("hset fairlock_rw_state:{{a}} {OTHER} r1~3000~0~w given 17")),
            (4, 3, format!("hincrby a {JAVA} -1")),
            (4, 3, format!("hdel a {JAVA}")),
            (5, 4, format!("hdel a {OURS}")),
            (5, 4, format!("zrem fairlock_rw_order:{{a}} {OTHER}")),
            (5, 4, format!("hset a mode write {writer} 1")),
            (5, 4, format!("zadd fairlock_rw_leases:{{a}} 105 {OTHER}")),
            (5, 4, "pexpireat a 105".into()),
            (300, 5, "del a".into()),
        ]);
        let by_time = What::Frees { by_time: true };
        let expected = [
            (1, JAVA, What::Holds),
            (2, OURS, What::Holds),
            (3, &writer, What::Enters),
            (4, JAVA, freed),
            (5, OURS, freed),
            (5, &writer, What::Holds),
            (105, &writer, by_time),
        ];
        let expected = expected.map(|(ms, owner, what)| (ms, owner.to_owned(), what));
        assert_eq!((steps, wrong), (expected.to_vec(), vec![]));
    }

    #[test]
    fn a_writer_beside_another_is_found_unless_it_is_java_itself() {
        let writes = |owner: &str| (1, 0, format!("hset a mode write {owner}:write 1"));
        let reads = |owner: &str| (2, 1, format!("hincrby a {owner} 1"));
        assert_eq!(told(&[writes(JAVA), reads(JAVA)]).1, Vec::<String>::new());
        assert_eq!(told(&[writes(JAVA), reads(OURS)]).1.len(), 1);
        assert_eq!(told(&[writes(OURS), reads(JAVA)]).1.len(), 1);
    }
}
