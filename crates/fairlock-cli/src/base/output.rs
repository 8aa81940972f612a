//! Output on stdout.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::exit::{Code, Failure};

/// Writes the text. A reader that closes the pipe early (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<Code, Failure> {
    write(text.as_bytes())
}

/// As [`print()`], for bytes.
pub(crate) fn write(bytes: &[u8]) -> Result<Code, Failure> {
    tell(bytes).map(|_| Code::OK)
}

/// As [`write()`], for a program that writes again and again: `Break` if nobody reads any more.
pub(crate) fn tell(text: impl AsRef<[u8]>) -> Result<ControlFlow<()>, Failure> {
    match all(text.as_ref()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::new(Code::INTERNAL, format!("stdout: {error}"))),
    }
}

/// Writes one line for a reader that waits for it; a closed pipe is an error.
pub(crate) fn line(text: &impl Display) -> io::Result<()> {
    all(format!("{text}\n").as_bytes())
}

/// Waits until nobody reads stdout any more (`| head -n 1`), for a program that writes seldom.
pub(crate) async fn reader_is_gone() {
    let look_every = Duration::from_secs(1);
    loop {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        let gone = poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(PollFlags::ERR);
        if gone {
            return;
        }
        tokio::time::sleep(look_every).await;
    }
}

fn all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}
