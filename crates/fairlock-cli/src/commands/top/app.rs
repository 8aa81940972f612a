//! The state of the view, and what keys do to it. Pure: looks, keys and times are passed in.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{Changes, Facts, Holder};
use crate::locks::look::Name;
use crate::locks::take_away::Named;

/// Longest filter, in characters.
const FILTER_MAX: usize = 64;

/// Rows that a page key moves the selection by.
const PAGE: usize = 10;

/// Everything that is known, and how it is shown.
#[derive(Debug, Default)]
pub(super) struct App {
    rows: BTreeMap<Name, Row>,
    /// Locks in use that are not looked at.
    pub(super) hidden: usize,
    /// Whether the search has seen all locks of the store once.
    pub(super) searched: bool,
    /// Why the search for locks makes no progress.
    pub(super) walk_trouble: Option<String>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    selected: Option<Name>,
    /// The row of the selected lock: when the lock disappears, the one that takes its row is selected.
    selected_at: usize,
    pub(super) store: Health,
    /// The outcome of the last command.
    pub(super) message: Option<String>,
}

/// A lock, and its changes over time.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) facts: Facts,
    pub(super) changes: Changes,
}

/// Whether the store answers.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// When it last answered.
    pub(super) answered: Duration,
    pub(super) trouble: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Normal,
    /// The filter is being typed; this was the one before.
    Filter(String),
    /// The question whether to take the lock away.
    Confirm(Force),
}

/// A lock to take from its holder, as it was seen at the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Force {
    pub(super) name: Name,
    pub(super) named: Named,
    pub(super) holder: String,
    pub(super) is_done: bool,
    pub(super) holding: usize,
    pub(super) waiting: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Most waiters first.
    #[default]
    Waiting,
    /// By name.
    Name,
    /// Held longest first.
    For,
    /// Shortest time left first.
    Left,
    /// Most changes of the holder first.
    Changes,
}

impl Sort {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Name => "name",
            Self::For => "for",
            Self::Left => "left",
            Self::Changes => "changes",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Name,
            Self::Name => Self::For,
            Self::For => Self::Left,
            Self::Left => Self::Changes,
            Self::Changes => Self::Waiting,
        }
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let held_for = |row: &Row| row.facts.holder.as_ref().and_then(|holder| holder.held_for);
        let rate = |row: &Row| row.changes.per_second().unwrap_or(0.0);
        match self {
            Self::Waiting => b.facts.waiting.cmp(&a.facts.waiting),
            Self::Name => Ordering::Equal,
            Self::For => held_for(b).cmp(&held_for(a)),
            // Without a deadline: last.
            Self::Left => a
                .facts
                .left
                .is_none()
                .cmp(&b.facts.left.is_none())
                .then(a.facts.left.cmp(&b.facts.left)),
            Self::Changes => rate(b).total_cmp(&rate(a)),
        }
        .then_with(|| a.facts.name.cmp(&b.facts.name))
    }
}

/// A key with a meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What a key requests of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Quit,
    Suspend,
    Force(Force),
}

/// The result of a round of looks.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) facts: Vec<Facts>,
    /// Whether these are all tracked locks, or one of them.
    pub(super) all: bool,
    pub(super) hidden: usize,
    pub(super) searched: bool,
    pub(super) walk_trouble: Option<String>,
}

impl App {
    pub(super) fn new(sort: Sort, filter: &str, now: Duration) -> Self {
        let store = Health { answered: now, trouble: None };
        let filter = filter.chars().take(FILTER_MAX).collect();
        Self { sort, filter, store, ..Self::default() }
    }

    /// Takes in the result of looks.
    pub(super) fn take(&mut self, now: Duration, looked: Looked) {
        self.store = Health { answered: now, trouble: None };
        self.hidden = looked.hidden;
        self.searched = looked.searched;
        self.walk_trouble = looked.walk_trouble;
        let mut rows = BTreeMap::new();
        for facts in looked.facts {
            let old = self.rows.remove(&facts.name);
            let (before, mut changes) = match old {
                Some(row) => (Some(row.facts), row.changes),
                None => (None, Changes::default()),
            };
            changes.note(now, before.as_ref(), &facts);
            rows.insert(facts.name.clone(), Row { facts, changes });
        }
        if looked.all {
            self.rows = rows;
        } else {
            self.rows.extend(rows);
        }
        self.keep_selection();
    }

    /// Notes that the store does not answer.
    pub(super) fn trouble(&mut self, text: String) {
        self.store.trouble = Some(text);
    }

    /// The rows that pass the filter, in order.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let filter = self.filter.to_lowercase();
        let mut shown: Vec<_> =
            self.rows.values().filter(|row| passes(&row.facts, &filter)).collect();
        shown.sort_by(|a, b| self.sort.compare(a, b));
        if self.reversed {
            shown.reverse();
        }
        shown
    }

    /// How many locks are tracked, whether or not they pass the filter, and how many of them are in use.
    pub(super) fn counts(&self) -> (usize, usize) {
        let in_use = self.rows.values().filter(|row| row.facts.is_in_use()).count();
        (self.rows.len(), in_use)
    }

    /// The row of the selected lock.
    pub(super) fn selected(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.shown().iter().position(|row| row.facts.name == *selected)
    }

    /// The lock whose queue is shown.
    pub(super) fn selected_name(&self) -> Option<&Name> {
        self.selected.as_ref()
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: Press) -> Option<Act> {
        match key {
            Press::Interrupt => return Some(Act::Quit),
            Press::Suspend => return Some(Act::Suspend),
            _ => {}
        }
        match std::mem::take(&mut self.mode) {
            Mode::Normal => self.press_normal(key),
            Mode::Filter(before) => {
                self.press_in_filter(key, before);
                None
            }
            Mode::Confirm(force) => {
                if key == Press::Char('y') {
                    return Some(Act::Force(force));
                }
                self.message = Some(format!("{}: left alone", force.name.printable()));
                None
            }
        }
    }

    fn press_normal(&mut self, key: Press) -> Option<Act> {
        self.message = None;
        match key {
            Press::Char('q') => return Some(Act::Quit),
            Press::Char('s') => self.sort = self.sort.next(),
            Press::Char('r') => self.reversed = !self.reversed,
            Press::Char('/') => self.mode = Mode::Filter(self.filter.clone()),
            Press::Char('u') => self.ask_for_force(),
            Press::Up | Press::Char('k') => self.move_by(|at, _| at.saturating_sub(1)),
            Press::Down | Press::Char('j') => self.move_by(|at, _| at + 1),
            Press::PageUp => self.move_by(|at, _| at.saturating_sub(PAGE)),
            Press::PageDown => self.move_by(|at, _| at + PAGE),
            Press::Home | Press::Char('g') => self.move_by(|_, _| 0),
            Press::End | Press::Char('G') => self.move_by(|_, last| last),
            Press::Escape if !self.filter.is_empty() => {
                self.filter.clear();
                self.keep_selection();
            }
            _ => {}
        }
        if matches!(key, Press::Char('s' | 'r')) {
            self.note_place();
        }
        None
    }

    fn press_in_filter(&mut self, key: Press, before: String) {
        match key {
            Press::Enter => {}
            Press::Escape => self.filter = before,
            Press::Backspace => {
                self.filter.pop();
                self.mode = Mode::Filter(before);
            }
            Press::Char(c) => {
                if self.filter.chars().count() < FILTER_MAX && !c.is_control() {
                    self.filter.push(c);
                }
                self.mode = Mode::Filter(before);
            }
            _ => self.mode = Mode::Filter(before),
        }
        self.keep_selection();
    }

    fn ask_for_force(&mut self) {
        let Some(row) = self.selected.as_ref().and_then(|name| self.rows.get(name)) else {
            return;
        };
        let Some(holder) = &row.facts.holder else {
            self.message = Some(format!("{}: nobody holds it", row.facts.name.printable()));
            return;
        };
        self.mode = Mode::Confirm(Force {
            name: row.facts.name.clone(),
            named: Named {
                kind: row.facts.kind,
                holder: holder.id.clone(),
                token: row.facts.token,
            },
            holder: row.facts.cell.clone(),
            is_done: row.facts.is_done,
            holding: row.facts.holding,
            waiting: row.facts.waiting,
        });
    }

    fn move_by(&mut self, step: impl Fn(usize, usize) -> usize) {
        let shown = self.shown();
        let Some(last) = shown.len().checked_sub(1) else { return };
        let to = self.selected().map_or(0, |at| step(at, last).min(last));
        self.selected = Some(shown[to].facts.name.clone());
        self.selected_at = to;
    }

    /// Keeps the selected lock selected; when it is not shown any more, selects the one that has taken its row.
    fn keep_selection(&mut self) {
        if self.selected().is_none() {
            let shown = self.shown();
            let at = self.selected_at.min(shown.len().saturating_sub(1));
            self.selected = shown.get(at).map(|row| row.facts.name.clone());
        }
        self.note_place();
    }

    fn note_place(&mut self) {
        self.selected_at = self.selected().unwrap_or(0);
    }
}

/// Whether a lock's name or holder contains the filter, which is in lower case.
fn passes(facts: &Facts, filter: &str) -> bool {
    let contains = |text: &str| text.to_lowercase().contains(filter);
    let is_he =
        |holder: &Holder| contains(&holder.id) || holder.who.as_deref().is_some_and(contains);
    let by_holder = facts.holder.iter().chain(&facts.holders).any(is_he);
    filter.is_empty() || contains(&facts.name.printable()) || by_holder
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::facts;
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn app() -> App {
        let mut app = App::new(Sort::Waiting, "", secs(0));
        let mut all =
            vec![facts("b", "ann@web-1", 7), facts("a", "bob@web-2", 8), facts("c", "", 9)];
        all[0].waiting = 2;
        all[1].left = Some(secs(5));
        all[1].holder.as_mut().unwrap().held_for = Some(secs(60));
        app.take(secs(1), Looked { facts: all, all: true, searched: true, ..Looked::default() });
        app
    }

    fn shown(app: &App) -> Vec<String> {
        app.shown().iter().map(|row| row.facts.name.printable()).collect()
    }

    fn selected(app: &App) -> String {
        app.selected_name().map(Name::printable).unwrap_or_default()
    }

    fn type_in(app: &mut App, text: &str) {
        for c in text.chars() {
            assert_eq!(app.press(Press::Char(c)), None);
        }
    }

    #[test]
    fn rows_are_sorted() {
        let mut app = app();
        let mut orders = Vec::new();
        for _ in 0..5 {
            orders.push((app.sort.word(), shown(&app).concat()));
            app.press(Press::Char('s'));
        }
        assert_eq!(
            orders,
            [
                ("waiting", "bac"),
                ("name", "abc"),
                ("for", "abc"),
                ("left", "abc"),
                ("changes", "abc")
            ]
            .map(|(word, order)| (word, order.to_owned()))
        );
        assert_eq!(app.sort, Sort::Waiting);
        app.press(Press::Char('r'));
        assert_eq!(shown(&app).concat(), "cab");
        // Another holder was seen: the lock moves up.
        app.sort = Sort::Changes;
        app.reversed = false;
        let other = vec![facts("c", "eve", 10)];
        app.take(secs(2), Looked { facts: other, all: false, searched: true, ..Looked::default() });
        assert_eq!(shown(&app).concat(), "cab");
    }

    #[test]
    fn the_filter_looks_at_names_and_holders() {
        let mut app = app();
        for (filter, expected) in
            [("B", "ba"), ("web-2", "a"), ("ann@web-1-id", "b"), ("c", "c"), ("nothing", "")]
        {
            type_in(&mut app, "/");
            type_in(&mut app, filter);
            assert_eq!(shown(&app).concat(), expected, "{filter}");
            assert!(matches!(app.mode, Mode::Filter(_)));
            app.press(Press::Enter);
            assert_eq!((app.filter.as_str(), &app.mode), (filter, &Mode::Normal));
            app.press(Press::Escape);
            assert_eq!(app.filter, "");
        }
        // Undone while it is typed.
        type_in(&mut app, "/b");
        app.press(Press::Enter);
        type_in(&mut app, "/x");
        app.press(Press::Backspace);
        app.press(Press::Backspace);
        type_in(&mut app, "q");
        assert_eq!(app.filter, "q");
        app.press(Press::Escape);
        assert_eq!(app.filter, "b");
        type_in(&mut app, "/");
        type_in(&mut app, &"x".repeat(500));
        assert_eq!(app.filter.len(), FILTER_MAX);
    }

    #[test]
    fn the_selection_follows_its_lock() {
        let mut app = app();
        assert_eq!(selected(&app), "b");
        app.press(Press::Down);
        assert_eq!(selected(&app), "a");
        // It moves in the order, and stays selected.
        app.press(Press::Char('r'));
        assert_eq!((selected(&app), app.selected()), ("a".into(), Some(1)));
        app.press(Press::End);
        app.press(Press::Down);
        assert_eq!(selected(&app), "b");
        app.press(Press::PageUp);
        assert_eq!(selected(&app), "c");
        app.press(Press::Char('k'));
        assert_eq!(selected(&app), "c");
        // It disappears: the lock that takes its row is selected.
        app.press(Press::Char('j'));
        let left = vec![facts("b", "x", 1), facts("c", "", 1)];
        app.take(secs(2), Looked { facts: left, all: true, searched: true, ..Looked::default() });
        assert_eq!(app.selected(), Some(1));
        app.take(secs(3), Looked { all: true, ..Looked::default() });
        assert_eq!((app.selected(), app.selected_name()), (None, None));
        for key in [Press::Up, Press::Down, Press::End, Press::Char('u')] {
            assert_eq!(app.press(key), None);
        }
    }

    #[test]
    fn a_lock_is_taken_away_only_after_a_yes() {
        let mut app = app();
        for key in
            [Press::Char('n'), Press::Enter, Press::Escape, Press::Char('Y'), Press::Char('q')]
        {
            type_in(&mut app, "u");
            let Mode::Confirm(force) = &app.mode else { panic!("{:?}", app.mode) };
            assert_eq!((force.name.printable(), force.named.token), ("b".into(), Some(7)));
            assert_eq!(app.press(key), None, "{key:?}");
            assert_eq!((&app.mode, app.message.as_deref()), (&Mode::Normal, Some("b: left alone")));
        }
        type_in(&mut app, "u");
        // The confirmation is for what the question showed, whatever was seen meanwhile.
        let other = vec![facts("b", "eve", 10)];
        app.take(secs(2), Looked { facts: other, all: false, searched: true, ..Looked::default() });
        let Some(Act::Force(force)) = app.press(Press::Char('y')) else { panic!("{:?}", app.mode) };
        assert_eq!(
            (force.holder.as_str(), force.named.token, force.waiting),
            ("ann@web-1", Some(7), 2)
        );
        assert_eq!(app.mode, Mode::Normal);

        app.press(Press::End);
        type_in(&mut app, "u");
        assert_eq!(
            (&app.mode, app.message.as_deref()),
            (&Mode::Normal, Some("c: nobody holds it"))
        );
    }

    #[test]
    fn it_can_be_left_from_everywhere() {
        for keys in ["", "/ab", "u"] {
            let mut app = app();
            type_in(&mut app, keys);
            assert_eq!(app.press(Press::Interrupt), Some(Act::Quit), "{keys}");
        }
        assert_eq!(app().press(Press::Char('q')), Some(Act::Quit));
        assert_eq!(app().press(Press::Suspend), Some(Act::Suspend));
    }
}
