//! A line of the terminal that is rewritten in place.

use std::io;

use rustix::termios;

use super::message;

/// Width assumed if the terminal does not report one.
const DEFAULT_WIDTH: usize = 80;

/// Columns of the terminal that can be filled without wrapping.
pub(crate) fn width() -> usize {
    let size = termios::tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col));
    size.filter(|&width| width > 0).unwrap_or(DEFAULT_WIDTH) - 1
}

/// One line of the terminal, rewritten in place and cleared on drop.
pub(crate) struct Line;

impl Line {
    pub(crate) fn write(&self, text: &str) {
        // A line that wraps cannot be rewritten.
        let fitting: String = text.chars().take(width()).collect();
        message::write(format!("\r\x1b[K{fitting}").into_bytes());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        message::write(b"\r\x1b[K".to_vec());
    }
}
