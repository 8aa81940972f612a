//! This very program, for children that run as somebody else.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::io::{FdFlags, fcntl_setfd};

/// A path to this program that is valid in children, whatever user they are: through a descriptor that they inherit.
/// Its own path may lead through a folder that is closed to others, such as root's home with a clone in it.
///
/// # Panics
/// If the program cannot be opened.
pub fn for_others() -> PathBuf {
    static PROGRAM: OnceLock<File> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let path = std::env::current_exe().expect("a path to this program");
        let program = File::open(path).expect("this program");
        fcntl_setfd(&program, FdFlags::empty()).expect("an open descriptor");
        program
    });
    PathBuf::from(format!("/proc/self/fd/{}", program.as_raw_fd()))
}
