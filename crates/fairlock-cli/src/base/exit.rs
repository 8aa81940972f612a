//! Exit codes: the part of this program that scripts depend on.
//!
//! The numbers follow `sysexits.h` where it has one that fits, and the shell for 126, 127 and
//! `128 + n`. A guarded command may use the same numbers for its own purposes; the codes for
//! "not acquired" and "lost" can therefore be changed on the command line.

use std::fmt;
use std::process::ExitCode;

use fairlock::ErrorKind;
use rustix::process::Signal;

use super::message;

/// The exit code of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    /// Success.
    pub(crate) const OK: Self = Self(0);
    /// `demo` found a claim that does not hold.
    pub(crate) const FAILED: Self = Self(1);
    /// The answer is no: `status --exit-code` found the lock held, `unlock` freed nothing.
    pub(crate) const NO: Self = Self(1);
    /// The command line, or a setting, is wrong (`EX_USAGE`).
    pub(crate) const USAGE: Self = Self(64);
    /// The store cannot be reached, or does not answer (`EX_UNAVAILABLE`).
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// Something happened that should not; another program's answer or file; a stdout that cannot be written
    /// (`EX_SOFTWARE`).
    pub(crate) const INTERNAL: Self = Self(70);
    /// The lock was not acquired within `--wait` (`EX_TEMPFAIL`).
    pub(crate) const CONFLICT: Self = Self(75);
    /// The lock was lost, or in doubt, while the command ran.
    pub(crate) const LOST: Self = Self(76);
    /// The store denies access (`EX_NOPERM`).
    pub(crate) const DENIED: Self = Self(77);
    /// The command did not end within `--max-run`: as timeout(1) has it.
    pub(crate) const TIMED_OUT: Self = Self(124);
    /// The command was found and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// The command was not found.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// A code that the user or the command chose.
    pub(crate) const fn new(code: u8) -> Self {
        Self(code)
    }

    /// The code that shells report for a process ended by a signal.
    pub(crate) fn signal(signal: i32) -> Self {
        // Linux numbers signals from 1 to 64, so this never saturates.
        Self(u8::try_from(signal).unwrap_or(u8::MAX).saturating_add(128))
    }

    /// The code for an error of the library. Decided here and nowhere else.
    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Misuse | ErrorKind::LeaseTooShort | ErrorKind::WrongType => Self::USAGE,
            ErrorKind::Denied | ErrorKind::Tls => Self::DENIED,
            ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::NotReplicated => {
                Self::UNAVAILABLE
            }
            ErrorKind::Lost => Self::LOST,
            // The library may add kinds; there is no code to guess for a new one.
            _ => Self::INTERNAL,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// The table for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  (any)    the command's own code; 128 + n if signal n ended the command, the wait or the hold
  64       wrong usage or a wrong setting; the name is in use as another kind of lock, or by another
           program; the store has no locks of this kind; the run would wait for itself; --lease
           expired before the command began
  69       the store cannot be reached, or there is none; too few replicas have the lock
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  75       not acquired within --wait, or done already within --once-per (--conflict-exit-code)
  76       the lock was lost or in doubt, or it is not known whether it was released
           (--lost-exit-code)
  77       access denied by the store, or no encrypted connection to a verified server
  124      the command was ended after --max-run
  126/127  the command cannot be executed / was not found

Durations:
  500ms, 10s, 5m, 1m30s, 1.5h, 1d, 0";

/// Why the program ends early: an exit code, and one line for people.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: Some(message.to_string()) }
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Wrong usage, the most common kind.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Code::USAGE, message)
    }

    /// An end without a message.
    pub(crate) fn silent(code: Code) -> Self {
        Self { code, message: None }
    }

    /// A signal ended the wait. There is no message, as for any program that a signal ends.
    pub(crate) fn signal(signal: Signal) -> Self {
        Self::silent(Code::signal(signal.as_raw()))
    }

    /// Writes the line, if there is one, and returns the code.
    pub(crate) fn report(self) -> Code {
        if let Some(text) = &self.message {
            message::report(text);
        }
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())
    }
}

impl From<fairlock::Error> for Failure {
    fn from(error: fairlock::Error) -> Self {
        Self::new(Code::of(error.kind()), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are a contract: changing one breaks scripts.
    #[test]
    fn numbers() {
        for (code, number) in [
            (Code::OK, 0),
            (Code::FAILED, 1),
            (Code::USAGE, 64),
            (Code::UNAVAILABLE, 69),
            (Code::INTERNAL, 70),
            (Code::CONFLICT, 75),
            (Code::LOST, 76),
            (Code::DENIED, 77),
            (Code::TIMED_OUT, 124),
            (Code::NOT_EXECUTABLE, 126),
            (Code::NOT_FOUND, 127),
            (Code::signal(2), 130),
            (Code::signal(9), 137),
            (Code::signal(15), 143),
            (Code::signal(64), 192),
            (Code::signal(1_000), 255),
        ] {
            assert_eq!(code, Code::new(number));
        }
    }

    #[test]
    fn errors_of_the_library() {
        for (kind, code) in [
            (ErrorKind::Misuse, Code::USAGE),
            (ErrorKind::LeaseTooShort, Code::USAGE),
            (ErrorKind::WrongType, Code::USAGE),
            (ErrorKind::Denied, Code::DENIED),
            (ErrorKind::Tls, Code::DENIED),
            (ErrorKind::Unavailable, Code::UNAVAILABLE),
            (ErrorKind::Unknown, Code::UNAVAILABLE),
            (ErrorKind::NotReplicated, Code::UNAVAILABLE),
            (ErrorKind::Lost, Code::LOST),
        ] {
            assert_eq!(Code::of(kind), code);
        }
    }
}
