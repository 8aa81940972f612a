//! Takes the terminal and gives it back: at the end, on a signal, after an error, on a panic.

use std::io::{self, Stdout, Write as _};
use std::panic;
use std::thread;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use rustix::process::{Signal, kill_current_process_group};

/// Within this time a signal that stops the process reaches all its threads.
const STOP_TAKES: Duration = Duration::from_millis(20);

/// The terminal as a screen, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        give_back_on_panic();
        take()?;
        // From here on, dropping it gives the terminal back.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        if terminal.is_err() {
            give_back();
        }
        Ok(Self { terminal: terminal? })
    }

    /// Draws a frame. If the terminal can, it shows the frame at once, never in parts.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Stops the job, as the key does for programs that do not change the terminal; returns when it is
    /// continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_current_process_group(Signal::TSTP)?;
        // Another thread may receive the signal; then this one is stopped a moment later.
        thread::sleep(STOP_TAKES);
        self.resume()
    }

    /// Takes the terminal again after the job is continued: the shell had it meanwhile.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // Taking it twice would keep the modes of the first time.
        disable_raw_mode()?;
        take()?;
        // A new one, which assumes nothing about the screen. (Clearing the old one would query the terminal's
        // cursor, and the thread that reads the keys would get the answer.)
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    let entered = execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All));
    if entered.is_err() {
        give_back();
    }
    entered
}

/// Restores the terminal. This only fails if the terminal is gone.
fn give_back() {
    let mut stdout = io::stdout();
    let _ = execute!(stdout, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
    let _ = stdout.flush();
    let _ = disable_raw_mode();
}

/// Restores the terminal before the panic's message, which would otherwise be cleared with the screen. Panics of other
/// threads do not end the program.
fn give_back_on_panic() {
    let main = thread::current().id();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == main {
            give_back();
        }
        before(info);
    }));
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/commands/top/screen/tests.rs"]
mod tests;
