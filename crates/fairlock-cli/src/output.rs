//! What this program says on stdout.

use std::io::{self, Write as _};

use crate::exit::{Code, Failure};

/// Writes the text. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<Code, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::INTERNAL, format!("stdout: {error}")))
        }
        _ => Ok(Code::OK),
    }
}
