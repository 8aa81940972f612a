//! What a run leaves behind for diagnosis when something was wrong.
//!
//! All inputs of the checker are written to a file as they arrive, so that they survive a panic. If
//! nothing was wrong, the folder is removed at the end. Otherwise it also gets the violations, and
//! the servers' logs and data.

use crate::log::Input;
use crate::log::effects::Command;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Inputs beyond this size are not written: about ten times the output of a shard.
const HEARD_MAX_BYTES: u64 = 2 << 30;

/// Larger files of servers are left out.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// The folder of a run.
#[derive(Clone, Debug)]
pub(crate) struct Notes(PathBuf);

/// In cargo's target folder, so that all notes can be deleted at once.
pub(crate) fn default_folder() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let target = program.parent().and_then(Path::parent).expect("cargo's folder");
    target.join("torture-notes")
}

impl Notes {
    /// Creates the folder anew, empty.
    pub(crate) fn begin(parent: &Path, seed: u64, topology: &str) -> io::Result<Self> {
        let folder = parent.join(format!("{seed}-{topology}"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Opens the file to which the checker's inputs are written.
    pub(crate) fn scribe(&self) -> io::Result<Scribe> {
        let file = BufWriter::with_capacity(1 << 16, File::create(self.0.join("heard"))?);
        Ok(Scribe { file, left: HEARD_MAX_BYTES })
    }

    /// Removes the notes: nothing was wrong.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)?;
        // Empty, unless another run has left notes.
        let _ = self.0.parent().map(fs::remove_dir);
        Ok(())
    }

    /// Adds the violations and the contents of the servers' folders; returns the folder.
    pub(crate) fn leave(self, violations: &[String], servers: &[PathBuf]) -> io::Result<PathBuf> {
        fs::write(self.0.join("violations"), violations.join("\n") + "\n")?;
        for (number, server) in servers.iter().enumerate() {
            copy(server, &self.0.join(format!("server-{number}")))?;
        }
        Ok(self.0)
    }
}

/// Copies all files below a folder, except sockets. Files that a server removes meanwhile are not
/// needed.
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

/// Writes one line for each input.
#[derive(Debug)]
pub(crate) struct Scribe {
    file: BufWriter<File>,
    left: u64,
}

impl Scribe {
    /// Notes are an aid and no reason for a run to fail: after a write error no more are written.
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
