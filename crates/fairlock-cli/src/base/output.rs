//! Output on stdout.

use std::fmt::Display;
use std::io::{self, Write as _};

use super::exit::{Code, Failure};

/// Writes the text. A reader that closes the pipe early (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<Code, Failure> {
    write(text.as_bytes())
}

/// As [`print()`], for bytes.
pub(crate) fn write(bytes: &[u8]) -> Result<Code, Failure> {
    match all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::INTERNAL, format!("stdout: {error}")))
        }
        _ => Ok(Code::OK),
    }
}

/// Writes one line for a reader that waits for it; a closed pipe is an error.
pub(crate) fn line(text: &impl Display) -> io::Result<()> {
    all(format!("{text}\n").as_bytes())
}

fn all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}
