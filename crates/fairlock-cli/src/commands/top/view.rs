//! Draws the state. Pure: the same state at the same time gives the same screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Row as TableRow, Table, TableState, Wrap};

use super::app::{App, Force, Mode, Row};
use super::facts::{Facts, Holder};
use crate::base::duration;
use crate::locks::java;
use crate::locks::look;
use crate::locks::text::FORCED;

/// Least height at which the selected lock's queue is shown.
const DETAILS_FROM: u16 = 14;

/// Holders of the selected lock that are listed, if there are several: its queue needs room as well.
const HOLDERS_MAX: usize = 5;

/// Marks an absent value.
const NONE: &str = "-";

/// What is drawn in addition to the state.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// The store.
    pub(super) shown_url: String,
    pub(super) interval: Duration,
    pub(super) color: bool,
}

impl Look {
    /// A colour, if colours are enabled. No information depends on colour alone.
    fn color(&self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, app: &App, look: &Look, now: Duration) {
    let area = frame.area();
    let selected = app.selected();
    let shown = app.shown();
    let details = selected.and_then(|at| shown.get(at)).map(|row| details(row, look));
    let details_height = match &details {
        Some(lines) if area.height >= DETAILS_FROM => {
            let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(1);
            wanted.min(area.height / 2 - 2)
        }
        _ => 0,
    };
    let [head, state, rows, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(details_height),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(heading(app, look), head);
    frame.render_widget(state_line(app, look, now), state);
    draw_rows(frame, rows, app, look, &shown, selected);
    if let Some(lines) = details.filter(|_| details_height > 0) {
        draw_details(frame, below, lines);
    }
    frame.render_widget(footer(app), foot);
    if let Mode::Confirm(force) = &app.mode {
        draw_question(frame, area, force, look);
    }
}

fn heading(app: &App, look: &Look) -> Line<'static> {
    let (known, in_use) = app.counts();
    let mut text = format!("fairlock top  {}", look.shown_url);
    text.push_str(&format!("  {in_use} in use, {} free", known - in_use));
    text.push_str(&format!("  every {}", duration::human(look.interval)));
    Line::styled(text, Modifier::BOLD)
}

/// The trouble, else the outcome of the last command, else how the rows are selected.
fn state_line(app: &App, look: &Look, now: Duration) -> Line<'static> {
    let silent = now.saturating_sub(app.store.answered);
    let late = 3 * look.interval + Duration::from_secs(1);
    if app.store.trouble.is_some() || silent > late {
        let mut text = format!("no answer for {}", duration::human(silent));
        if let Some(trouble) = &app.store.trouble {
            text.push_str(": ");
            text.push_str(trouble);
        }
        return Line::styled(text, look.color(Color::Red).add_modifier(Modifier::BOLD));
    }
    if let Some(trouble) = &app.walk_trouble {
        let text = format!("the search for locks fails: {trouble}");
        return Line::styled(text, look.color(Color::Red).add_modifier(Modifier::BOLD));
    }
    if let Some(message) = &app.message {
        return Line::styled(message.clone(), look.color(Color::Yellow));
    }
    let mut text = format!("sort: {}", app.sort.word());
    if app.reversed {
        text.push_str(" (reversed)");
    }
    if !app.filter.is_empty() || matches!(app.mode, Mode::Filter(_)) {
        text.push_str(&format!("  filter: {}", app.filter));
    }
    if matches!(app.mode, Mode::Filter(_)) {
        text.push('_');
    }
    if app.hidden > 0 {
        text.push_str(&format!("  not shown: {} more in use (--max)", app.hidden));
    }
    Line::raw(text)
}

fn draw_rows(
    frame: &mut Frame<'_>,
    area: Rect,
    app: &App,
    look: &Look,
    shown: &[&Row],
    selected: Option<usize>,
) {
    if shown.is_empty() {
        let text = match (app.counts(), app.searched) {
            ((0, _), false) => "looking for locks ...",
            ((0, _), true) => "no lock is in use",
            _ => "no lock passes the filter",
        };
        frame.render_widget(Paragraph::new(text), area.inner(Margin::new(2, 1)));
        return;
    }
    let columns = match area.width {
        ALL_COLUMNS_FROM.. => COLUMNS.as_slice(),
        _ => &NARROW_COLUMNS,
    };
    let head = columns.iter().map(|column| column.title);
    let widths = columns.iter().map(|column| column.width);
    let row = |row: &&Row| TableRow::new(columns.iter().map(|column| (column.cell)(row, look)));
    let table = Table::new(shown.iter().map(row), widths)
        .header(TableRow::new(head).style(Modifier::UNDERLINED))
        .highlight_symbol("> ")
        .row_highlight_style(Modifier::BOLD);
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Least width for all columns.
const ALL_COLUMNS_FROM: u16 = 64;

struct Column {
    title: &'static str,
    width: Constraint,
    cell: fn(&Row, &Look) -> Text<'static>,
}

const NAME: Column = Column {
    title: "NAME",
    width: Constraint::Fill(2),
    cell: |row, _| Text::raw(row.facts.name.printable()),
};

const HOLDER: Column = Column { title: "HOLDER", width: Constraint::Fill(3), cell: holder_cell };

const FOR: Column = Column {
    title: "FOR",
    width: Constraint::Length(6),
    cell: |row, _| time_cell(row.facts.holder.as_ref().and_then(|holder| holder.held_for)),
};

const LEFT: Column = Column {
    title: "LEFT",
    width: Constraint::Length(6),
    // A `-` would look like a free lock.
    cell: |row, _| match (row.facts.left, &row.facts.holder) {
        (None, Some(_)) => Text::raw("never"),
        (left, _) => time_cell(left),
    },
};

const WAITING: Column = Column {
    title: "WAITING",
    width: Constraint::Length(7),
    cell: |row, _| Text::raw(row.facts.waiting.to_string()),
};

const CHANGES: Column = Column {
    title: "CHANGES/S",
    width: Constraint::Length(9),
    cell: |row, _| {
        let rate = row.changes.per_second();
        Text::raw(rate.map_or_else(|| NONE.to_owned(), |rate| format!("{rate:.1}")))
    },
};

const COLUMNS: [Column; 6] = [NAME, HOLDER, FOR, LEFT, WAITING, CHANGES];

const NARROW_COLUMNS: [Column; 4] = [NAME, HOLDER, LEFT, WAITING];

fn time_cell(time: Option<Duration>) -> Text<'static> {
    Text::raw(time.map_or_else(|| NONE.to_owned(), duration::human))
}

fn holder_cell(row: &Row, look: &Look) -> Text<'static> {
    match (&row.facts.trouble, &row.facts.holder) {
        (Some(trouble), _) => Text::styled(trouble.clone(), look.color(Color::Red)),
        (None, Some(_)) => Text::raw(row.facts.cell.clone()),
        (None, None) => Text::styled("free", look.color(Color::Green)),
    }
}

/// Everything known about the selected lock.
fn details(row: &Row, look: &Look) -> Vec<Line<'static>> {
    let facts = &row.facts;
    let mut first = vec![
        Span::styled(facts.name.printable(), Modifier::BOLD),
        Span::raw(format!("  kind {}", look::kind_word(facts.kind))),
    ];
    if let Some(token) = facts.token {
        first.push(Span::raw(format!("  token {token}")));
    }
    let mut lines = vec![Line::from(first)];
    if let Some(trouble) = &facts.trouble {
        lines.push(Line::styled(trouble.clone(), look.color(Color::Red)));
        return lines;
    }
    lines.push(Line::raw(holder_line(facts)));
    lines.extend(facts.holders.iter().take(HOLDERS_MAX).map(|it| one_of_several(facts, it)));
    let listed = facts.holders.len().min(HOLDERS_MAX);
    if listed > 0 && facts.holding > listed {
        lines.push(Line::raw(format!("      and {} more that hold it", facts.holding - listed)));
    }
    for waiter in &facts.queue {
        let mut text = format!("{:>4}. ", waiter.place);
        text.push_str(waiter.who.as_deref().unwrap_or(&waiter.id));
        text.extend(waiter.wants.iter().map(|wants| format!(", {wants}")));
        if let Some(time) = waiter.waits_for {
            text.push_str(&format!(", for {}", duration::human(time)));
        }
        lines.push(match waiter.alive {
            Some(true) => Line::raw(text),
            Some(false) => Line::styled(text + " (silent)", look.color(Color::Red)),
            None => {
                let unknown = java::not_known_whether_alive(&waiter.id);
                Line::raw(format!("{text} ({unknown})"))
            }
        });
    }
    let unlisted = facts.waiting.saturating_sub(facts.queue.len());
    if unlisted > 0 {
        lines.push(Line::raw(format!("      and {unlisted} more in the queue")));
    }
    lines
}

fn holder_line(facts: &Facts) -> String {
    let Some(holder) = &facts.holder else { return "free".to_owned() };
    if facts.is_done {
        return facts.cell.clone();
    }
    let several = !facts.holders.is_empty();
    let by = if several { facts.holding.to_string() } else { holder.id.clone() };
    let mut text = format!("{} by {by}", facts.held);
    for part in &facts.usage {
        text.push_str(&format!(", {part}"));
    }
    match several {
        true if facts.reads => text.push_str(&held_for(holder)),
        true => {}
        false => text.push_str(&times(holder, true)),
    }
    text
}

fn one_of_several(facts: &Facts, holder: &Holder) -> Line<'static> {
    let mut text = format!("      {}", holder.who.as_deref().unwrap_or(&holder.id));
    text.extend(holder.permits.iter().map(|permits| format!(", {permits}")));
    text.push_str(&times(holder, !facts.reads));
    Line::raw(text)
}

fn held_for(holder: &Holder) -> String {
    holder.held_for.map_or_else(String::new, |time| format!(", for {}", duration::human(time)))
}

fn times(holder: &Holder, since: bool) -> String {
    let mut text = String::new();
    if holder.count != 1 {
        text.push_str(&format!(", {} holds", holder.count));
    }
    if since {
        text.push_str(&held_for(holder));
    }
    text.push_str(&holder.lasts);
    text
}

/// Draws the details. If they do not fit, the last line says so.
fn draw_details(frame: &mut Frame<'_>, area: Rect, mut lines: Vec<Line<'static>>) {
    let block = Block::new().borders(ratatui::widgets::Borders::TOP);
    let inner = block.inner(area);
    let room = usize::from(inner.height);
    if lines.len() > room && room > 0 {
        lines.truncate(room);
        lines[room - 1] = Line::raw("      ...");
    }
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines), inner);
}

fn footer(app: &App) -> Line<'static> {
    let keys = match &app.mode {
        Mode::Normal => "q quit  up/down select  s sort  r reverse  / filter  u take the lock away",
        Mode::Filter(_) => "type a part of a name or holder  Enter keep  Esc as before",
        Mode::Confirm(_) => "y take the lock away  any other key: leave it alone",
    };
    Line::styled(keys, Modifier::DIM)
}

fn draw_question(frame: &mut Frame<'_>, area: Rect, force: &Force, look: &Look) {
    let next = match force.waiting {
        0 => "Nobody waits for it: it will be free.".to_owned(),
        1 => "The one that waits gets it at once.".to_owned(),
        more => format!("The first of the {more} that wait gets it at once."),
    };
    let (name, holder) = (force.name.printable(), &force.holder);
    let (title, whose, effect, yes) = if force.is_done {
        let effect = "It may be started again now, as if it had not run.".to_owned();
        (format!("Forget that {name} is done?"), "It is", effect, "forget it")
    } else {
        let whose = if force.holding > 1 { "From all who hold it:" } else { "Held by" };
        (format!("Take {name} away?"), whose, FORCED.join(" "), "take it away")
    };
    let text = vec![
        Line::styled(title, Modifier::BOLD),
        Line::raw(format!("{whose} {holder}")),
        Line::raw(""),
        Line::raw(effect),
        Line::raw(next),
        Line::raw(""),
        Line::raw(format!("Type y to {yes}; any other key leaves it alone.")),
    ];
    let width = area.width.min(64);
    let height = area.height.min(13);
    let area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered().border_style(look.color(Color::Red));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(block), area);
}

#[cfg(test)]
mod tests;
