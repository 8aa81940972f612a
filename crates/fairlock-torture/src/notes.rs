//! What a run leaves behind when something was wrong with it, so that it can be explained afterwards.
//!
//! All that the checker hears is written to a file as it comes, and is there also if the run panics. If nothing
//! was wrong the folder is removed at the end. Otherwise the violations stand beside it, and what the servers
//! had written: their logs, and their data.

use crate::log::Input;
use crate::log::effects::Command;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What is heard beyond this is not written: some ten times what a shard comes to.
const HEARD_MAX_BYTES: u64 = 2 << 30;

/// Of the files of servers, larger ones are left out.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// The folder of a run.
#[derive(Clone, Debug)]
pub(crate) struct Notes(PathBuf);

/// Beside what cargo makes: whoever wants no notes any more removes all of it at once.
pub(crate) fn default_folder() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let target = program.parent().and_then(Path::parent).expect("cargo's folder");
    target.join("torture-notes")
}

impl Notes {
    /// Begins anew with an empty folder.
    pub(crate) fn begin(parent: &Path, seed: u64, topology: &str) -> io::Result<Self> {
        let folder = parent.join(format!("{seed}-{topology}"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Whoever writes down what the checker hears.
    pub(crate) fn scribe(&self) -> io::Result<Scribe> {
        let file = BufWriter::with_capacity(1 << 16, File::create(self.0.join("heard"))?);
        Ok(Scribe { file, left: HEARD_MAX_BYTES })
    }

    /// Removes them: nothing was wrong.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)?;
        // Empty, if no other run has left something.
        let _ = self.0.parent().map(fs::remove_dir);
        Ok(())
    }

    /// Adds the violations and what is in the folders of servers; returns the folder.
    pub(crate) fn leave(self, violations: &[String], servers: &[PathBuf]) -> io::Result<PathBuf> {
        fs::write(self.0.join("violations"), violations.join("\n") + "\n")?;
        for (number, server) in servers.iter().enumerate() {
            copy(server, &self.0.join(format!("server-{number}")))?;
        }
        Ok(self.0)
    }
}

/// All files below a folder. Those that a server removes meanwhile are not needed, nor are sockets.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (Ok(meta), name) = (entry.metadata(), entry.file_name()) else { continue };
        if meta.is_dir() {
            copy(&entry.path(), &to.join(name))?;
        } else if meta.is_file() && meta.len() <= FILE_MAX_BYTES {
            let _ = fs::copy(entry.path(), to.join(name));
        }
    }
    Ok(())
}

/// Writes a line for each input.
#[derive(Debug)]
pub(crate) struct Scribe {
    file: BufWriter<File>,
    left: u64,
}

impl Scribe {
    /// Notes are help, and no reason for a run to fail: without a disk there are none from here on.
    pub(crate) fn write(&mut self, input: &Input) {
        if self.left == 0 {
            return;
        }
        let mut counted = Counted { to: &mut self.file, written: 0 };
        let written = line(input, &mut counted).map(|()| counted.written);
        self.left = written.map_or(0, |written| self.left.saturating_sub(written));
    }
}

struct Counted<'a> {
    to: &'a mut BufWriter<File>,
    written: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        self.written += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// An input as a line.
fn line(input: &Input, out: &mut impl Write) -> io::Result<()> {
    match input {
        Input::Note { worker, note } => writeln!(out, "note {worker} {note}"),
        Input::Killed { worker, at } => writeln!(out, "killed {worker} {at}"),
        Input::Gone { worker } => writeln!(out, "gone {worker}"),
        Input::Fault { id, kind, from } => writeln!(out, "fault {id} {from} {}", kind.name()),
        Input::Over { id, until } => writeln!(out, "over {id} {until}"),
        Input::Recovered { kind, healed, at } => {
            writeln!(out, "recovered {healed} {at} {}", kind.name())
        }
        Input::Asked { from, until, scripts } => writeln!(out, "asked {from} {until} {scripts}"),
        Input::Stalled { from, until } => writeln!(out, "stalled {from} {until}"),
        Input::Starved { from, until } => writeln!(out, "starved {from} {until}"),
        Input::Effects { read_us, commands } => {
            write!(out, "effects {read_us}")?;
            for (at, command) in commands.iter().enumerate() {
                out.write_all(if at == 0 { b"" } else { b" ;" })?;
                words(command, out)?;
            }
            out.write_all(b"\n")
        }
        Input::Emptied => writeln!(out, "emptied"),
    }
}

fn words(command: &Command, out: &mut impl Write) -> io::Result<()> {
    for word in command {
        out.write_all(b" ")?;
        if word.iter().all(|byte| byte.is_ascii_graphic() && !b";\\".contains(byte))
            && !word.is_empty()
        {
            out.write_all(word)?;
        } else {
            write!(out, "\"{}\"", word.escape_ascii())?;
        }
    }
    Ok(())
}
