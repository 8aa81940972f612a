//! The terminal, taken and given back: on the way out, by a signal, after an error, on a panic.

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

/// Within this time a signal that stops the process has reached all its threads.
const STOP_TAKES: Duration = Duration::from_millis(20);

/// The terminal as a screen of ours, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        give_back_on_panic();
        take()?;
        // From here on dropping it gives the terminal back.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        if terminal.is_err() {
            give_back();
        }
        Ok(Self { terminal: terminal? })
    }

    /// Draws a frame. A terminal that can shows it whole, never in parts.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Stops the job, as the key does for programs that leave the terminal as it is; returns when it
    /// goes on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_current_process_group(Signal::TSTP)?;
        // Another thread may be the one that takes it: this one is stopped moments later.
        thread::sleep(STOP_TAKES);
        self.resume()
    }

    /// The job goes on: the shell has had the terminal meanwhile.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // Taking it twice would keep what it was the first time.
        disable_raw_mode()?;
        take()?;
        // One that knows nothing of the screen. (Clearing the old one would ask the terminal where its
        // cursor is, and the answer would go to whoever reads the keys.)
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

/// As it was. What fails here fails on a terminal that is gone.
fn give_back() {
    let mut stdout = io::stdout();
    let _ = execute!(stdout, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
    let _ = stdout.flush();
    let _ = disable_raw_mode();
}

/// Before the message, which would be wiped with the screen. Other threads' panics end nothing here.
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

#[cfg(test)]
mod tests;
