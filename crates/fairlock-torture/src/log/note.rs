//! The output of a worker: one line for each thing that it saw, written before it goes on, so that
//! nothing is lost when it is killed.

use fairlock::Share;
use std::fmt;

/// How a place in a queue, or a hold, ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// It is about to be released.
    Released,
    /// The guard reported Lost; the time is the last at which it was seen valid.
    Lost,
    /// The place is about to be given up.
    GaveUp,
}

/// A line. Times are nanoseconds of the system's monotonic clock, which all processes share.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Note {
    /// A client is connected.
    Client {
        id: String,
    },
    /// `owner` is in the queue; the request was sent at `asked`.
    Placed {
        at: u64,
        asked: u64,
        lock: String,
        owner: String,
        share: Share,
    },
    /// The user has received the guard.
    Granted {
        at: u64,
        asked: u64,
        lock: String,
        owner: String,
        token: u64,
        /// Until when it is valid unless renewed.
        valid_until: u64,
        share: Share,
    },
    Ended {
        at: u64,
        lock: String,
        owner: String,
        end: End,
    },
    /// The outcome of a release, if it was not `Released`.
    Said {
        at: u64,
        lock: String,
        owner: String,
        outcome: String,
    },
    /// A write to the resource with this token. `valid`: the guard was valid before and after it.
    Wrote {
        at: u64,
        lock: String,
        owner: String,
        token: u64,
        accepted: bool,
        valid: bool,
    },
    /// A call ended with an error of this kind.
    Failed {
        at: u64,
        lock: String,
        kind: String,
    },
    /// A place was given up, and the store confirmed it.
    Left {
        at: u64,
        lock: String,
        owner: String,
    },
    /// An order of the nemesis was carried out: the process spun, or blocked its tasks.
    Suffered {
        at: u64,
    },
    /// A lock was not granted in time.
    Missed {
        at: u64,
    },
    /// The process did not run.
    Stalled {
        from: u64,
        to: u64,
    },
    /// All turns have ended.
    Done,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "released",
            Self::Lost => "lost",
            Self::GaveUp => "gave-up",
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { id } => write!(f, "client {id}"),
            Self::Placed { at, asked, lock, owner, share } => {
                write!(f, "placed {at} {asked} {lock} {owner} {}", share_text(*share))
            }
            Self::Granted { at, asked, lock, owner, token, valid_until, share } => {
                let share = share_text(*share);
                write!(f, "granted {at} {asked} {lock} {owner} {token} {valid_until} {share}")
            }
            Self::Ended { at, lock, owner, end } => write!(f, "ended {at} {lock} {owner} {end}"),
            Self::Said { at, lock, owner, outcome } => {
                write!(f, "said {at} {lock} {owner} {outcome}")
            }
            Self::Wrote { at, lock, owner, token, accepted, valid } => {
                write!(f, "wrote {at} {lock} {owner} {token} {accepted} {valid}")
            }
            Self::Failed { at, lock, kind } => write!(f, "failed {at} {lock} {kind}"),
            Self::Left { at, lock, owner } => write!(f, "left {at} {lock} {owner}"),
            Self::Suffered { at } => write!(f, "suffered {at}"),
            Self::Missed { at } => write!(f, "missed {at}"),
            Self::Stalled { from, to } => write!(f, "stalled {from} {to}"),
            Self::Done => write!(f, "done"),
        }
    }
}

impl Note {
    /// When it happened. Notes about the process itself have no place in the order.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Placed { at, .. }
            | Self::Granted { at, .. }
            | Self::Ended { at, .. }
            | Self::Said { at, .. }
            | Self::Wrote { at, .. }
            | Self::Failed { at, .. }
            | Self::Left { at, .. }
            | Self::Suffered { at }
            | Self::Missed { at } => *at,
            Self::Stalled { from, .. } => *from,
            Self::Client { .. } => 0,
            Self::Done => u64::MAX,
        }
    }

    /// `None` for an incomplete line: the last one of a worker that was killed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().ok();
        let text = |word: &str| word.to_owned();
        Some(match words[..] {
            ["client", id] => Self::Client { id: text(id) },
            ["placed", at, asked, lock, owner, share] => Self::Placed {
                at: number(at)?,
                asked: number(asked)?,
                lock: text(lock),
                owner: text(owner),
                share: parse_share(share)?,
            },
            ["granted", at, asked, lock, owner, token, valid_until, share] => Self::Granted {
                at: number(at)?,
                asked: number(asked)?,
                lock: text(lock),
                owner: text(owner),
                token: number(token)?,
                valid_until: number(valid_until)?,
                share: parse_share(share)?,
            },
            ["ended", at, lock, owner, end] => {
                let all = [End::Released, End::Lost, End::GaveUp];
                let end = all.into_iter().find(|known| known.to_string() == end)?;
                Self::Ended { at: number(at)?, lock: text(lock), owner: text(owner), end }
            }
            ["said", at, lock, owner, outcome] => Self::Said {
                at: number(at)?,
                lock: text(lock),
                owner: text(owner),
                outcome: text(outcome),
            },
            ["wrote", at, lock, owner, token, accepted, valid] => Self::Wrote {
                at: number(at)?,
                lock: text(lock),
                owner: text(owner),
                token: number(token)?,
                accepted: accepted.parse().ok()?,
                valid: valid.parse().ok()?,
            },
            ["failed", at, lock, kind] => {
                Self::Failed { at: number(at)?, lock: text(lock), kind: text(kind) }
            }
            ["left", at, lock, owner] => {
                Self::Left { at: number(at)?, lock: text(lock), owner: text(owner) }
            }
            ["suffered", at] => Self::Suffered { at: number(at)? },
            ["missed", at] => Self::Missed { at: number(at)? },
            ["stalled", from, to] => Self::Stalled { from: number(from)?, to: number(to)? },
            ["done"] => Self::Done,
            _ => return None,
        })
    }
}

fn share_text(share: Share) -> String {
    match share {
        Share::Read => "read".to_owned(),
        Share::Permits { n, limit } => format!("{n}/{limit}"),
        _ => "all".to_owned(),
    }
}

fn parse_share(text: &str) -> Option<Share> {
    match text {
        "read" => Some(Share::Read),
        "all" => Some(Share::Whole),
        permits => {
            let (n, limit) = permits.split_once('/')?;
            Some(Share::Permits { n: n.parse().ok()?, limit: limit.parse().ok()? })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let (lock, owner) = ("fair-0".to_owned(), "x:1".to_owned());
        let notes = [
            Note::Client { id: "x".into() },
            Note::Placed {
                at: 2,
                asked: 1,
                lock: lock.clone(),
                owner: owner.clone(),
                share: Share::Read,
            },
            Note::Granted {
                at: 2,
                asked: 1,
                lock: lock.clone(),
                owner: owner.clone(),
                token: 9,
                valid_until: 7,
                share: Share::Permits { n: 2, limit: 3 },
            },
            Note::Ended { at: 3, lock: lock.clone(), owner: owner.clone(), end: End::Lost },
            Note::Ended { at: 3, lock: lock.clone(), owner: owner.clone(), end: End::GaveUp },
            Note::Said { at: 3, lock: lock.clone(), owner: owner.clone(), outcome: "Lost".into() },
            Note::Wrote {
                at: 4,
                lock: lock.clone(),
                owner,
                token: 9,
                accepted: true,
                valid: false,
            },
            Note::Failed { at: 5, lock, kind: "Unknown".into() },
            Note::Left { at: 6, lock: "fair-0".into(), owner: "x:1".into() },
            Note::Suffered { at: 6 },
            Note::Missed { at: 6 },
            Note::Stalled { from: 1, to: 2 },
            Note::Done,
        ];
        for note in notes {
            assert_eq!(Note::parse(&note.to_string()), Some(note));
        }
        for cut in [
            "grant",
            "granted 1 2 fair-0 x:1",
            "granted 1 2 fair-0 x:1 9 7 re",
            "ended 1 fair-0 x:1 re",
            "",
        ] {
            assert_eq!(Note::parse(cut), None, "{cut}");
        }
    }
}
