//! A line when a held lock is in doubt for longer than a moment, and one when it no longer is: whoever looks at the
//! terminal, or asked for `--verbose`, knows beforehand why the command is about to be ended.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use fairlock::GuardState;

use super::args::Run;
use super::loss;
use crate::base::clock;
use crate::base::duration;
use crate::base::message;
use crate::locks::held::Held;

/// A shorter doubt is not worth a line: a connection that is made anew takes less.
const MOMENT: Duration = Duration::from_secs(2);

/// What was said about one held lock.
#[derive(Debug)]
pub(super) struct Doubt {
    /// `None` if nothing is to be said.
    name: Option<String>,
    /// Since when it is in doubt, on the boot clock.
    since: Option<Duration>,
    told: bool,
}

impl Doubt {
    pub(super) fn new(args: &Run) -> Self {
        let tells = args.verbose || (!args.quiet && io::stderr().is_terminal());
        let name = tells.then(|| message::printable(&args.name));
        Self { name, since: None, told: false }
    }

    /// Notes the state, and writes a line if there is something new. `end` is what happens after `left` unless the
    /// store answers; `None` if nothing does.
    pub(super) fn look(&mut self, guard: &Held, state: GuardState, end: Option<(&str, Duration)>) {
        let silence = || loss::silence(guard);
        let (Some(news), Some(name)) = (self.news(clock::now(), state, silence, end), &self.name)
        else {
            return;
        };
        message::report(&format!("{name}: {news}"));
    }

    fn news(
        &mut self,
        now: Duration,
        state: GuardState,
        silence: impl FnOnce() -> String,
        end: Option<(&str, Duration)>,
    ) -> Option<String> {
        if state != GuardState::Suspect {
            self.since = None;
            let over = std::mem::take(&mut self.told) && state == GuardState::Held;
            return over.then(|| "the store answers again".to_owned());
        }
        let since = *self.since.get_or_insert(now);
        if self.told || now < since + MOMENT {
            return None;
        }
        self.told = true;
        Some(match end {
            Some((what, left)) => {
                let left = duration::human(left);
                format!("{}; unless it does, {what} in {left}", silence())
            }
            None => silence(),
        })
    }
}

#[cfg(test)]
mod tests {
    use GuardState::{Held, Lost, Suspect};

    use super::*;

    #[test]
    fn each_doubt_is_told_once_and_so_is_its_end() {
        let mut doubt = Doubt { name: None, since: None, told: false };
        let mut news = |now, state| {
            let end = Some(("the command is ended", Duration::from_secs(21)));
            let silence = || "the store does not answer".to_owned();
            doubt.news(Duration::from_millis(now), state, silence, end)
        };
        let silent = "the store does not answer; unless it does, the command is ended in 21s";
        for (now, state, said) in [
            (0, Held, None),
            (100, Suspect, None),
            (2_000, Suspect, None),
            // Over before it was told: nothing happened.
            (2_050, Held, None),
            (3_000, Suspect, None),
            (5_000, Suspect, Some(silent)),
            (9_000, Suspect, None),
            (9_500, Held, Some("the store answers again")),
            (9_600, Held, None),
            (10_000, Suspect, None),
            (12_000, Suspect, Some(silent)),
            // Its loss has a message of its own.
            (13_000, Lost, None),
        ] {
            assert_eq!(news(now, state).as_deref(), said, "at {now}");
        }
    }
}
