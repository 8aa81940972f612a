//! What each player does in a round, derived from a seed.

use std::fmt;

use crate::java::Kind;
use crate::version::Version;

/// The number of calls in a round, over all players.
const OPERATIONS_MAX: usize = 40;
/// The total hold time of a round, so that it takes less than half a second.
const HOLDS_MS: u64 = 250;

/// What a round is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Game {
    /// A fair lock.
    Fair,
    /// A plain lock: there is no order to check.
    Plain,
    /// A read-write lock: order among ours only.
    ReadWrite,
    /// A latch, which is no lock: see [`super::latches`].
    Latch,
}

/// What is asked for of a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Share {
    Whole,
    Read,
    Write,
}

/// A round.
#[derive(Clone, Debug)]
pub struct Script {
    /// The kind of lock.
    pub game: Game,
    /// The participants.
    pub parts: Vec<Part>,
}

/// One Java owner, or a task of ours with a new owner for each turn.
#[derive(Clone, Debug)]
pub struct Part {
    /// The client it uses.
    pub who: Who,
    /// When it begins, in milliseconds.
    pub begins_ms: u64,
    /// Its turns, one after another.
    pub turns: Vec<Turn>,
}

/// See [`Part`].
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// A client of ours.
    Rust {
        /// Which.
        client: usize,
    },
    /// A thread of a Java client.
    Java {
        /// Which client.
        client: usize,
        /// Which thread.
        thread: usize,
        /// The kind of lock; of a read-write lock that of each turn.
        kind: Kind,
    },
}

/// One attempt, and what follows if it succeeds. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// What it asks for.
    pub share: Share,
    /// How it requests the lock.
    pub how: How,
    /// The lease, or `None` for the watchdog's.
    pub lease_ms: Option<u64>,
    /// How long it holds the lock.
    pub hold_ms: u64,
    /// Whether it re-enters.
    pub reenters: bool,
    /// Whether it holds the lock beyond its lease without releasing it.
    pub outstays: bool,
    /// Whether Java unlocks asynchronously; ours always do.
    pub unlocks_async: bool,
    /// The pause before the next turn.
    pub pause_ms: u64,
}

/// See [`Turn`]. The asynchronous forms are Java's; ours are all asynchronous.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the numbers are milliseconds")]
pub enum How {
    Wait,
    WaitAsync,
    Try,
    Timed {
        wait_ms: u64,
    },
    TimedAsync {
        wait_ms: u64,
    },
    /// Ours is dropped if it has not succeeded by then. Java has no counterpart.
    Cancelled {
        after_ms: u64,
    },
    /// The lock is taken away from its holder and left free.
    Force,
}

impl Game {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fair, Self::Plain, Self::ReadWrite, Self::Latch];

    /// The game of a seed. Of eight rounds in a row four are about fair and plain locks, three about
    /// read-write locks, and one about a latch.
    pub fn of(seed: u64) -> Self {
        match seed % 8 {
            0..4 => Self::of_locks(seed),
            4..7 => Self::ReadWrite,
            _ => Self::Latch,
        }
    }

    /// The same for rounds of fair and plain locks.
    pub fn of_locks(seed: u64) -> Self {
        if Dice(seed).below(5) > 0 { Self::Fair } else { Self::Plain }
    }

    /// Of four rounds with deaths in a row.
    pub fn of_deaths(seed: u64) -> Self {
        match seed % 4 {
            0 | 1 => Self::Fair,
            2 => Self::ReadWrite,
            _ => Self::Latch,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Plain => "plain",
            Self::ReadWrite => "read-write",
            Self::Latch => "latch",
        }
    }
}

impl Share {
    /// What the lock calls an owner with this share.
    pub fn field(self, owner: &str) -> String {
        if self == Self::Write { format!("{owner}:write") } else { owner.to_owned() }
    }
}

impl Script {
    /// The script of a seed. `game` is no latch.
    pub fn new(seed: u64, version: Version, game: Game) -> Self {
        let mut dice = Dice(seed);
        // It told fair locks from plain ones.
        dice.next();
        let is_fair = game == Game::Fair;
        let count = 2 + dice.below(9);
        let mut parts = Vec::new();
        let (mut operations_left, mut hold_left_ms) = (OPERATIONS_MAX, HOLDS_MS);
        for n in 0..count {
            // The first two are one of each side.
            let is_java = if n < 2 { n == 0 } else { dice.below(2) == 0 };
            let kind = match (is_fair, dice.below(4)) {
                (true, 0) if version.has_non_reentrant() => Kind::NonReentrantFair,
                (true, _) => Kind::Fair,
                (false, 0) if version.has_non_reentrant() => Kind::NonReentrant,
                (false, 1 | 2) if version.has_fenced() => Kind::Fenced,
                (false, _) => Kind::Plain,
            };
            let client = usize::try_from(dice.below(2)).expect("0 or 1");
            let thread = usize::try_from(n).expect("at most ten");
            let who =
                if is_java { Who::Java { client, thread, kind } } else { Who::Rust { client } };
            let begins_ms = dice.below(40);
            let mut turns = Vec::new();
            for _ in 0..=dice.below(3) {
                let mut turn = Turn::new(&mut dice, is_java, hold_left_ms);
                turn.reenters &= !is_java || kind.is_reentrant();
                if game == Game::ReadWrite {
                    turn.share = if dice.below(5) < 3 { Share::Read } else { Share::Write };
                }
                if turn.operations() > operations_left || turn.hold_ms > hold_left_ms {
                    break;
                }
                operations_left -= turn.operations();
                hold_left_ms -= turn.hold_ms;
                turns.push(turn);
                // The field of a Java reader whose time is over stays as long as the lock, and counts
                // if the same thread reads again.
                if turn.outstays && is_java && turn.share == Share::Read {
                    break;
                }
            }
            parts.push(Part { who, begins_ms, turns });
        }
        Self { game, parts }
    }

    /// The number of calls in it, if all turns succeed.
    pub fn operations(&self) -> usize {
        self.parts.iter().flat_map(|part| &part.turns).map(Turn::operations).sum()
    }
}

/// One line for each turn.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.game.name())?;
        for Part { who, begins_ms, turns } in &self.parts {
            write!(f, "\n    {who:?} from {begins_ms} ms on")?;
            turns.iter().try_for_each(|turn| write!(f, "\n      {turn:?}"))?;
        }
        Ok(())
    }
}

impl Turn {
    fn new(dice: &mut Dice, is_java: bool, hold_left_ms: u64) -> Self {
        let wait_ms = 1 + dice.below(80);
        let how = match (dice.below(40), is_java) {
            (0..16, _) => How::Wait,
            (16..20, true) => How::WaitAsync,
            (20..24, true) => How::TimedAsync { wait_ms },
            (16..24, false) => How::Cancelled { after_ms: wait_ms },
            (24..28, _) => How::Try,
            (28, _) => How::Force,
            _ => How::Timed { wait_ms },
        };
        // Before 3.17, a Java lock object applies the lease that it used last to calls without one.
        let outstays = dice.below(20) == 0 && hold_left_ms > 130;
        let lease_ms = (dice.below(4) == 0).then_some(5000);
        let reenters = !outstays && dice.below(4) == 0;
        let unlocks_async = dice.below(4) == 0;
        let pause_ms = dice.below(20);
        let (lease_ms, hold_ms) =
            if outstays { (Some(100), 130) } else { (lease_ms, dice.below(12)) };
        let share = Share::Whole;
        Self { share, how, lease_ms, hold_ms, reenters, outstays, unlocks_async, pause_ms }
    }

    /// The attempt and the release, and both again for a re-entry.
    fn operations(&self) -> usize {
        match self.how {
            How::Force => 1,
            _ if self.reenters => 4,
            _ => 2,
        }
    }
}

/// splitmix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `bound` - 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seed: u64) -> Script {
        let game = Game::of(seed);
        let game = if game == Game::Latch { Game::ReadWrite } else { game };
        Script::new(seed, Version::V4_7, game)
    }

    #[test]
    fn every_eight_rounds_in_a_row_have_all_kinds() {
        for first in 0..100 {
            let games: Vec<_> = (first..first + 8).map(Game::of).collect();
            let count = |game| games.iter().filter(|other| **other == game).count();
            assert_eq!(count(Game::Fair) + count(Game::Plain), 4);
            assert_eq!((count(Game::ReadWrite), count(Game::Latch)), (3, 1));
        }
    }

    #[test]
    fn scripts_keep_within_their_bounds_and_have_both_sides() {
        for seed in 0..2000 {
            let script = of(seed);
            assert!(script.operations() <= OPERATIONS_MAX);
            let turns = || script.parts.iter().flat_map(|part| &part.turns);
            assert!(turns().map(|turn| turn.hold_ms).sum::<u64>() <= HOLDS_MS);
            assert!(script.parts.iter().any(|part| matches!(part.who, Who::Java { .. })));
            assert!(script.parts.iter().any(|part| matches!(part.who, Who::Rust { .. })));
            assert_eq!(format!("{script:?}"), format!("{:?}", of(seed)));
        }
    }

    #[test]
    fn every_way_comes_up_within_a_thousand_scripts() {
        let scripts: Vec<_> = (0..1000).map(of).collect();
        let text = format!("{scripts:?}");
        for word in [
            "how: Wait,",
            "WaitAsync",
            "Try,",
            "Timed {",
            "TimedAsync",
            "Cancelled",
            "Force",
            "kind: Fair }",
            "Plain",
            "Fenced",
            "NonReentrant }",
            "NonReentrantFair",
            "share: Whole",
            "share: Read",
            "share: Write",
            "reenters: true",
            "outstays: true",
            "unlocks_async: true",
            "lease_ms: Some(5000)",
            "lease_ms: None",
        ] {
            assert!(text.contains(word), "{word}");
        }
        let sizes = scripts.iter().map(|script| script.parts.len());
        assert_eq!((sizes.clone().min(), sizes.max()), (Some(2), Some(10)));
    }
}
