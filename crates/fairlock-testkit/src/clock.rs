//! The wall clock of a private server, under the test's control.
//!
//! A small shared object (`shim/clock.c`, compiled on first use) is preloaded into the server. It
//! reads the time to show from a file that [`ClockHandle`] writes. The monotonic clock is
//! unaffected. A test can put other processes under such a clock too.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

/// The shim's source, which also describes the file.
const SOURCE: &str = include_str!("../shim/clock.c");
const FILE_BYTES: usize = 32;
const READS_AT: u64 = 16;

/// The clock of one process. A change takes effect from the next command that the server reads.
#[derive(Debug)]
pub struct ClockHandle {
    shim: PathBuf,
    path: PathBuf,
    file: File,
    /// The sequence number in the file, even between writes.
    sequence: Mutex<u32>,
}

/// What the shim shows; the numbers are those in its file.
#[derive(Clone, Copy)]
enum Mode {
    Real = 0,
    Offset = 1,
    Frozen = 2,
    Rate = 3,
}

impl ClockHandle {
    /// A true clock whose file is in `dir`; `None`, with a notice, without a C compiler.
    ///
    /// # Panics
    ///
    /// If `dir` has a clock already, or the shim cannot be compiled.
    pub fn new(dir: &Path) -> Option<Self> {
        let shim = shim()?;
        let path = dir.join("clock");
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.expect("a new file in our own folder");
        file.write_all_at(&[0; FILE_BYTES], 0).expect("32 bytes of disk");
        Some(Self { shim, path, file, sequence: Mutex::new(0) })
    }

    /// The environment variables that put a process under this clock.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.shim.clone().into()), ("FAIRLOCK_CLOCK", self.path.clone().into())]
    }

    /// Shows the true time.
    pub fn real(&self) {
        self.write(Mode::Real, 0);
    }

    /// Shows the true time plus this many microseconds (or minus, below zero).
    pub fn set_offset(&self, micros: i64) {
        self.write(Mode::Offset, micros);
    }

    /// Shows exactly this time, in microseconds since the epoch, until changed.
    pub fn freeze_at(&self, micros: i64) {
        self.write(Mode::Frozen, micros);
    }

    /// Shows a time that is true now and drifts from the true one by this many millionths.
    ///
    /// # Panics
    ///
    /// If the system's own clock is before 1970.
    pub fn set_rate(&self, ppm: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let since_us = i64::try_from(now.as_micros()).expect("before the year 292 000");
        self.write_since(Mode::Rate, ppm, since_us);
    }

    /// How often the server has read the time, as proof that the clock is in use.
    pub fn reads(&self) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, READS_AT).expect("the clock's own file");
        u64::from_ne_bytes(bytes)
    }

    fn write(&self, mode: Mode, value_us: i64) {
        self.write_since(mode, value_us, 0);
    }

    /// Writes to the file are visible at once in the server's mapping of it. The odd sequence
    /// number before and the even one after prevent the server from using half of a change.
    fn write_since(&self, mode: Mode, value: i64, since_us: i64) {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        let write = |at, bytes: &[u8]| {
            self.file.write_all_at(bytes, at).expect("the clock's own file");
        };
        write(0, &sequence.wrapping_add(1).to_ne_bytes());
        write(4, &(mode as u32).to_ne_bytes());
        write(8, &value.to_ne_bytes());
        write(24, &since_us.to_ne_bytes());
        *sequence = sequence.wrapping_add(2);
        write(0, &sequence.to_ne_bytes());
    }
}

/// The compiled shim, next to the test binary and named after its source, so that it is compiled
/// once per change and not once per server.
fn shim() -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let binary = env::current_exe().expect("the test's own path");
    let name = format!("fairlock-clock-{:016x}.so", hasher.finish());
    let shim = binary.with_file_name(name);
    if shim.is_file() {
        return Some(shim);
    }
    static COMPILING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);

    // Other test processes may do the same: each uses a name of its own until the file is complete.
    let mine = shim.with_extension(format!("{}.tmp", process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-x", "c", "-", "-o"]);
    // For dlsym, which older C libraries keep apart.
    cc.arg(&mine).arg("-ldl");
    let Ok(mut cc) = cc.stdin(Stdio::piped()).spawn() else {
        crate::skip("a C compiler, cc, for the clock shim");
        return None;
    };
    let mut stdin = cc.stdin.take().expect("a piped stdin");
    stdin.write_all(SOURCE.as_bytes()).expect("cc reads its input");
    drop(stdin);
    assert!(cc.wait().expect("cc is our child").success(), "cc cannot compile shim/clock.c");
    fs::rename(&mine, &shim).expect("a rename beside the test's binary");
    Some(shim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Raw;
    use crate::resp::Value;
    use crate::server::{Generation, Server};

    /// In 2033, so that no true time can be mistaken for it.
    const T_US: i64 = 2_000_000_000_123_456;

    fn time_in_script(raw: &mut Raw) -> i64 {
        let reply = raw.call(&["EVAL", "return redis.call('TIME')", "0"]);
        let [seconds, micros] = reply.array() else { panic!("{reply:?}") };
        let number = |value: &Value| value.text().parse::<i64>().unwrap();
        number(seconds) * 1_000_000 + number(micros)
    }

    fn each(test: impl Fn(&str, &ClockHandle, &mut Raw)) {
        for generation in Generation::tested() {
            let server = Server::builder(generation).clock_shim(true).start();
            let Some(server) = server else { continue };
            test(generation.name(), server.clock(), &mut server.client());
        }
    }

    #[test]
    fn a_frozen_clock_is_exact_in_the_very_next_script() {
        each(|name, clock, raw| {
            for step_us in 0..200 {
                let now_us = T_US + step_us * 1_000_003;
                clock.freeze_at(now_us);
                assert_eq!(time_in_script(raw), now_us, "{name}");
            }
            for step_us in 0..200 {
                let now_us = T_US - step_us;
                clock.freeze_at(now_us);
                assert_eq!(time_in_script(raw), now_us, "{name}, backwards");
            }
            assert!(clock.reads() > 0);
        });
    }

    #[test]
    fn expiry_follows_a_frozen_clock_to_the_millisecond() {
        let in_script = "return redis.call('EXISTS', KEYS[1])";
        each(|name, clock, raw| {
            for round in 0..50 {
                let at_ms = T_US / 1000 + round * 60_000;
                clock.freeze_at(at_ms * 1000 - 1_000_000);
                raw.call(&["SET", "k", "v"]);
                assert_eq!(raw.call(&["PEXPIREAT", "k", &at_ms.to_string()]).int(), 1, "{name}");
                assert_eq!(raw.call(&["PTTL", "k"]).int(), 1000, "{name}");
                clock.freeze_at((at_ms - 1) * 1000);
                assert_eq!(raw.call(&["EXISTS", "k"]).int(), 1, "{name}");
                assert_eq!(raw.call(&["EVAL", in_script, "1", "k"]).int(), 1, "{name}");
                clock.freeze_at((at_ms + 1) * 1000);
                let gone = if round % 2 == 0 {
                    raw.call(&["EXISTS", "k"])
                } else {
                    raw.call(&["EVAL", in_script, "1", "k"])
                };
                assert_eq!(gone.int(), 0, "{name}, round {round}");
            }
        });
    }

    #[test]
    fn a_rate_runs_away_from_the_true_time() {
        // A hundred percent, so that a moment is enough to see it.
        const PPM: i64 = 1_000_000;
        each(|name, clock, raw| {
            for ppm in [PPM, -PPM / 2] {
                clock.set_rate(ppm);
                // The machine may stall between two clock reads: each one is between two others.
                let mut look = || (now_us(), time_in_script(raw), now_us());
                let (before, shown, after) = look();
                std::thread::sleep(std::time::Duration::from_millis(200));
                let (later_before, later_shown, later_after) = look();
                let wanted = |true_us: i64| true_us + true_us * ppm / 1_000_000;
                let (least, most) = (wanted(later_before - after), wanted(later_after - before));
                let shown_us = later_shown - shown;
                let right = least - 10_000..most + 10_000;
                assert!(right.contains(&shown_us), "{name}: {shown_us} of {right:?}");
            }
        });
    }

    fn now_us() -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        i64::try_from(now.as_micros()).unwrap()
    }

    #[test]
    fn an_offset_shifts_and_the_true_time_comes_back() {
        const HOUR_US: i64 = 3_600_000_000;
        let near = |one: i64, two: i64| (one - two).abs() < HOUR_US / 10;
        each(|name, clock, raw| {
            let start = time_in_script(raw);
            for offset_us in [HOUR_US, -HOUR_US, 0] {
                clock.set_offset(offset_us);
                assert!(near(time_in_script(raw), start + offset_us), "{name}");
            }
            clock.freeze_at(T_US);
            clock.real();
            assert!(near(time_in_script(raw), start), "{name}");
        });
    }
}
