//! How long each thread of a process has run, and has waited for a processor, as counted by the
//! kernel.
//!
//! Linux only: without `/proc`, no process can be read.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The kernel's counts for a thread since it began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// How long it has run.
    pub ran: Duration,
    /// How long it was ready to run and did not: others had the processors. A wait counts when it
    /// ends.
    pub waited: Duration,
}

impl Counts {
    /// Parses `schedstat`: nanoseconds on a processor, nanoseconds in its queue, and the number of
    /// turns.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let mut next = || words.next()?.parse().ok().map(Duration::from_nanos);
        Some(Self { ran: next()?, waited: next()? })
    }
}

/// The threads of a process by their ids. Empty where the kernel was built without the counts.
///
/// # Errors
///
/// If there is no such process, or the kernel's text cannot be parsed.
pub fn threads(process: u32) -> io::Result<HashMap<u32, Counts>> {
    let told = |error: io::Error| {
        io::Error::new(error.kind(), format!("no threads of process {process}: {error}"))
    };
    let mut found = HashMap::new();
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    for entry in folder.read_dir().map_err(told)? {
        let entry = entry.map_err(told)?;
        // It has ended since the folder was read.
        let Ok(text) = std::fs::read_to_string(entry.path().join("schedstat")) else { continue };
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (Some(id), Some(counts)) = (id, Counts::parse(&text)) else {
            let error = format!("{} says {text:?}", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        };
        found.insert(id, counts);
    }
    Ok(found)
}

/// What each thread of `now` has added since `before`; everything, if it began meanwhile.
///
/// A thread that ends takes its counts with it, so compare threads, not sums.
pub fn since(
    before: &HashMap<u32, Counts>,
    now: &HashMap<u32, Counts>,
) -> impl Iterator<Item = Counts> {
    now.iter().map(|(thread, now)| {
        let before = before.get(thread).copied().unwrap_or_default();
        // Less than before: another thread with the same id.
        Counts {
            ran: now.ran.saturating_sub(before.ran),
            waited: now.waited.saturating_sub(before.waited),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let counts = Counts { ran: Duration::from_nanos(12), waited: Duration::from_nanos(345) };
        assert_eq!(Counts::parse("12 345 6\n"), Some(counts));
        assert_eq!(Counts::parse("12\n"), None);
        assert_eq!(Counts::parse("12 -1 6\n"), None);
    }

    #[test]
    fn each_thread_is_compared_with_itself() {
        let of = |ran, waited| Counts { ran: ms(ran), waited: ms(waited) };
        let before = HashMap::from([(1, of(10, 1)), (2, of(500, 500)), (3, of(9, 9))]);
        let now = HashMap::from([(1, of(30, 6)), (3, of(2, 3)), (4, of(7, 8))]);
        let mut added: Vec<_> = since(&before, &now).collect();
        added.sort_by_key(|counts| counts.ran);
        assert_eq!(added, [of(0, 0), of(7, 8), of(20, 5)], "another 3; 4, which is new; and 1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_there_while_it_lives_and_is_counted_while_it_runs() {
        use std::sync::atomic::{AtomicBool, Ordering};

        static STOP: AtomicBool = AtomicBool::new(false);

        #[track_caller]
        fn until(look: impl Fn(&HashMap<u32, Counts>) -> bool) {
            let now = || threads(std::process::id()).expect("this process");
            let is_so = crate::wait::holds(Duration::from_secs(60), || look(&now()));
            assert!(is_so, "still not: {:?}", now());
        }

        let (sender, id) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // The link reads `PROCESS/task/THREAD`.
            let own = std::fs::read_link("/proc/thread-self").expect("a thread has a folder");
            let id = own.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
            sender.send(id.expect("a number")).expect("it is listened to");
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let id = id.recv_timeout(Duration::from_secs(60)).expect("it begins");
        until(|now| now.get(&id).is_some_and(|counts| counts.ran >= ms(5)));
        STOP.store(true, Ordering::Relaxed);
        thread.join().expect("it does not panic");
        until(|now| !now.is_empty() && !now.contains_key(&id));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().expect("a program that ends");
        child.wait().expect("it ends");
        let error = threads(child.id()).expect_err("it is gone");
        let told = format!("no threads of process {}", child.id());
        assert!(error.to_string().starts_with(&told), "{error}");
    }
}
