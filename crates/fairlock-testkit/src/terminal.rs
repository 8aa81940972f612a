//! A pseudo-terminal for one test, with a program on it, and an emulator that knows what a person
//! would see.

mod svg;

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::processes::Owned;
use crate::wait;

type Emulator = vt100::Parser<Frames>;

/// Whether the program is in the middle of a frame: what is on the screen then is not meant to be
/// seen.
#[derive(Default)]
struct Frames {
    drawing: bool,
}

/// The mode "synchronized update".
const FRAME: &[u16] = &[2026];

impl vt100::Callbacks for Frames {
    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        mark: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        command: char,
    ) {
        if mark == Some(b'?') && parameters == [FRAME] {
            self.drawing = command == 'h';
        }
    }
}

/// A terminal and the program that runs on it, which is killed on drop.
pub struct Terminal {
    /// Killed before its terminal goes away.
    child: Owned,
    master: File,
    /// Kept open, so that the terminal outlives its program, as a person's does.
    slave: File,
    screen: Arc<Mutex<Emulator>>,
}

impl Terminal {
    /// Runs the program with these arguments on a new terminal of `rows` and `columns`; `change`
    /// may modify the command before it starts. `None`, with a notice, without util-linux's
    /// `setsid`, which makes the terminal the program's own.
    ///
    /// # Panics
    ///
    /// If the system has no terminal left, or the program does not start.
    pub fn start(
        (rows, columns): (u16, u16),
        program: &str,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Option<Self> {
        let found = Command::new("setsid").arg("--version").stdout(Stdio::null()).status();
        if found.is_err() {
            crate::skip("the program setsid of util-linux");
            return None;
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("the system has pseudo-terminals");
        grantpt(&master).expect("the terminal can be used");
        unlockpt(&master).expect("the terminal can be used");
        let name = ptsname(&master, Vec::new()).expect("the terminal has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).expect("the terminal opens");
        let (master, slave) = (File::from(master), File::from(slave));
        set_size(&master, rows, columns);

        let mut command = Command::new("setsid");
        // Background jobs of a shell may ignore signals, and what is ignored stays ignored.
        command.args(["--ctty", "env", "--default-signal", program]).args(args);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end());
        change(&mut command);
        let child = Owned::spawn(&mut command).expect("the program starts");
        let parser = Emulator::new_with_callbacks(size(rows), size(columns), 0, Frames::default());
        let screen = Arc::new(Mutex::new(parser));
        let mut output = master.try_clone().expect("a descriptor");
        let seen = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Fails when the last descriptor of the other side is closed.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                lock(&seen).process(&bytes[..read]);
            }
        });
        Some(Self { child, master, slave, screen })
    }

    /// The rows of the screen, without trailing blanks.
    pub fn text(&self) -> String {
        text(lock(&self.screen).screen())
    }

    /// The same, unless the program is in the middle of a frame.
    fn frame(&self) -> Option<String> {
        let parser = lock(&self.screen);
        (!parser.callbacks().drawing).then(|| text(parser.screen()))
    }

    /// Waits until the screen is as wanted, and returns its text. If a program marks its frames
    /// ("synchronized update"), the screen is read between them.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        wait::in_naps(|| self.frame().filter(|text| is_so(text)))
            .unwrap_or_else(|| panic!("still not so: {what}; the screen is\n{}", self.text()))
    }

    /// Waits until the screen is as wanted, and draws it as an SVG picture.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    #[track_caller]
    pub fn picture(&self, title: &str, is_so: impl Fn(&str) -> bool) -> String {
        let drawn = || {
            let parser = lock(&self.screen);
            let screen = parser.screen();
            let is_meant = !parser.callbacks().drawing && is_so(&text(screen));
            is_meant.then(|| svg::draw(screen, title))
        };
        wait::in_naps(drawn)
            .unwrap_or_else(|| panic!("no picture: {title}; the screen is\n{}", self.text()))
    }

    /// Waits until this text is on the screen.
    ///
    /// # Panics
    ///
    /// If it does not appear.
    #[track_caller]
    pub fn see(&self, wanted: &str) -> String {
        self.until(&format!("{wanted:?} is shown"), |text| text.contains(wanted))
    }

    /// Presses keys.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
    #[track_caller]
    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Changes the size, as when a window is dragged; the program gets WINCH.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
    pub fn resize(&self, rows: u16, columns: u16) {
        lock(&self.screen).screen_mut().set_size(size(rows), size(columns));
        set_size(&self.master, rows, columns);
    }

    /// Whether lines are edited and echoed, as a shell needs it, and the screen is the shell's,
    /// with a cursor.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
    pub fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.slave).expect("the terminal is there").local_modes;
        let is_cooked = modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        let parser = lock(&self.screen);
        is_cooked && !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
    }

    /// Waits until the terminal is [as before](Self::is_as_before): the program's last output may
    /// still be on its way to the screen when it has ended.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    #[track_caller]
    pub fn comes_back(&self) {
        self.until("the terminal is as before", |_| self.is_as_before());
    }

    /// Whether any character on the screen has a colour.
    pub fn has_colors(&self) -> bool {
        let parser = lock(&self.screen);
        let (rows, columns) = parser.screen().size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |at| (row, at)));
        cells.into_iter().any(|(row, at)| {
            let cell = parser.screen().cell(row, at);
            cell.is_some_and(|cell| {
                (cell.fgcolor(), cell.bgcolor()) != (vt100::Color::Default, vt100::Color::Default)
            })
        })
    }

    /// The program's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    ///
    /// If it has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process number"), signal).expect("the program runs");
    }

    /// Waits until the program ends.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait::in_naps(|| self.child.try_wait().expect("it can be waited for"))
            .unwrap_or_else(|| panic!("the program does not end; the screen is\n{}", self.text()))
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("child", &self.child).finish_non_exhaustive()
    }
}

fn lock(parser: &Mutex<Emulator>) -> MutexGuard<'_, Emulator> {
    parser.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(screen: &vt100::Screen) -> String {
    let (_, columns) = screen.size();
    let rows = screen.rows(0, columns.get()).map(|row| row.trim_end().to_owned());
    rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn size(of: u16) -> NonZeroU16 {
    NonZeroU16::new(of).expect("a size is not zero")
}

fn set_size(master: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("the terminal has a size");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_terminal_and_a_person_sees_it() {
        let script = r"trap 'stty size' WINCH; stty size; stty -echo -icanon; printf '\033[?1049h\033[?25l';
            printf '\033[31mred\033[0m'; head -c 1 >/dev/null; while :; do sleep 0.02; done";
        let Some(mut terminal) = Terminal::start((10, 40), "sh", &["-c", script], |_| {}) else {
            return;
        };
        terminal.see("red");
        assert!(terminal.has_colors() && !terminal.is_as_before());
        terminal.keys("x");
        terminal.resize(12, 50);
        terminal.see("12 50");
        terminal.signal(Signal::KILL);
        assert!(!terminal.wait().success());
        // Nobody has restored it.
        assert!(!terminal.is_as_before());
    }

    #[test]
    fn a_line_comes_back_as_it_is_typed() {
        let Some(mut terminal) =
            Terminal::start((5, 20), "sh", &["-c", r#"read a; echo "got $a""#], |_| {})
        else {
            return;
        };
        terminal.keys("some\n");
        assert_eq!(terminal.see("got"), "some\ngot some");
        assert!(terminal.wait().success());
        terminal.comes_back();
        assert!(!terminal.has_colors());
    }
}
