//! The resources that this process uses, as counted by the kernel.

use std::fmt;
use std::fs;

/// Resources of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) rss_kib: u64,
    pub(crate) fds: usize,
    pub(crate) threads: usize,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let count = |folder| fs::read_dir(folder).expect("Linux's /proc").count();
        Self {
            rss_kib: rss_kib(),
            // Without the descriptor that lists them.
            fds: count("/proc/self/fd") - 1,
            threads: count("/proc/self/task"),
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss_kib, fds, threads } = self;
        write!(f, "RSS {rss_kib} KiB, {fds} descriptors, {threads} threads")
    }
}

fn rss_kib() -> u64 {
    const PAGE_KIB: u64 = 4;
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux's /proc");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the resident pages") * PAGE_KIB
}
