//! Locks as a table, for people.

use std::mem;

use fairlock::LockEntry;

use crate::base::duration;
use crate::locks::look::{self, Seen, Target};
use crate::locks::text::{age, cell, is_token_of_holders};

/// Rows that are held back, to sort them and to fit the columns. Later rows are printed as they are
/// found, in columns of the same width.
const HELD_BACK_MAX: usize = 1_000;

/// Greatest width of the column of names. A longer name moves the rest of its own row only.
const NAME_WIDTH_MAX: usize = 40;

const COLUMNS: usize = 7;

const HEAD: [&str; COLUMNS] = ["NAME", "KIND", "FOR", "LEFT", "WAITING", "TOKEN", "HOLDER"];

/// Marks an absent value.
const NONE: &str = "-";

/// Marks a value that the store denies.
const DENIED: &str = "?";

type Row = [String; COLUMNS];

/// Rows that are not printed yet, and the widths of printed columns.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    widths: Option<[usize; COLUMNS]>,
    keeps_order: bool,
}

impl Table {
    /// Keeps the order of the rows instead of sorting them by name.
    pub(super) fn keep_order(&mut self) {
        self.keeps_order = true;
    }

    /// Adds a row; returns the text that can be printed.
    pub(super) fn add(&mut self, seen: Seen) -> String {
        self.add_row(row(&seen))
    }

    /// Adds a lock that the store denies to look at. `found`: what the search knows of it.
    pub(super) fn add_denied(&mut self, target: &Target, found: Option<&LockEntry>) -> String {
        let unknown = || DENIED.to_owned();
        let holder = match found {
            None => unknown(),
            Some(entry) if entry.held => "held, the store denies by whom".to_owned(),
            Some(_) => "free".to_owned(),
        };
        self.add_row([
            target.name.printable(),
            look::kind_word(target.kind).to_owned(),
            unknown(),
            unknown(),
            found.map_or_else(unknown, |entry| entry.waiting.to_string()),
            unknown(),
            holder,
        ])
    }

    fn add_row(&mut self, row: Row) -> String {
        self.rows.push(row);
        if self.widths.is_none() && self.rows.len() < HELD_BACK_MAX {
            return String::new();
        }
        self.rest()
    }

    /// The text of all rows that are not printed yet.
    pub(super) fn rest(&mut self) -> String {
        let mut rows = mem::take(&mut self.rows);
        if rows.is_empty() {
            return String::new();
        }
        if !self.keeps_order {
            rows.sort_unstable();
        }
        let mut text = String::new();
        let widths = self.widths.unwrap_or_else(|| {
            let head = HEAD.map(str::to_owned);
            let widths = widths(&head, &rows);
            push(&mut text, &head, &widths);
            widths
        });
        self.widths = Some(widths);
        for row in &rows {
            push(&mut text, row, &widths);
        }
        text
    }
}

fn row(seen: &Seen) -> Row {
    let status = &seen.status;
    let holder = cell(seen.kind, status);
    let since = status.holder.as_ref().and_then(|holder| holder.since);
    let none = || NONE.to_owned();
    let token = status.token.filter(|_| status.holder.is_none() || is_token_of_holders(status));
    [
        seen.name.printable(),
        look::kind_word(seen.kind).to_owned(),
        age(status, since).unwrap_or_else(none),
        match (status.ttl, &status.holder) {
            (Some(ttl), _) => duration::human(ttl),
            // A `-` would look like a free lock.
            (None, Some(_)) => "never".to_owned(),
            (None, None) => none(),
        },
        status.queue_len.to_string(),
        token.map_or_else(none, |token| token.to_string()),
        holder.unwrap_or_else(|| "free".to_owned()),
    ]
}

fn widths(head: &Row, rows: &[Row]) -> [usize; COLUMNS] {
    std::array::from_fn(|at| {
        let cells = rows.iter().chain([head]).map(|row| row[at].chars().count());
        let most = if at == 0 { NAME_WIDTH_MAX } else { usize::MAX };
        cells.filter(|width| *width <= most).max().unwrap_or(0)
    })
}

/// The last column may be long and is not padded.
fn push(text: &mut String, row: &Row, widths: &[usize; COLUMNS]) {
    let (last, others) = row.split_last().expect("an array with elements");
    for (cell, width) in others.iter().zip(widths) {
        text.push_str(cell);
        let gap = (width + 2).saturating_sub(cell.chars().count()).max(1);
        text.extend(std::iter::repeat_n(' ', gap));
    }
    text.push_str(last);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One name of 2 000 bytes used to push the columns of all locks out of sight.
    #[test]
    fn d29_a_long_name_moves_its_own_row_only() {
        let named = |name: &str| {
            let mut row: Row = [""; COLUMNS].map(str::to_owned);
            (row[0], row[1]) = (name.to_owned(), "fair".to_owned());
            row
        };
        let rows = [named("short"), named(&"n".repeat(2_000)), named(&"m".repeat(NAME_WIDTH_MAX))];
        let widths = widths(&HEAD.map(str::to_owned), &rows);
        assert_eq!(widths[0], NAME_WIDTH_MAX);
        let mut text = String::new();
        for row in &rows {
            push(&mut text, row, &widths);
        }
        let columns: Vec<_> = text.lines().map(|line| line.find("fair").unwrap()).collect();
        assert_eq!(columns, [NAME_WIDTH_MAX + 2, 2_001, NAME_WIDTH_MAX + 2]);
    }
}
