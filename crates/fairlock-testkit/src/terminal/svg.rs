//! A screen as an SVG picture, readable light and dark: text, its colour, bold, dim and underlined. Programs of
//! ours use no other style.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// Width and height of a character. Every text is stretched to it, whatever font the viewer has.
const WIDE: u16 = 8;
const HIGH: u16 = 18;

/// Between the edge and the text.
const ROOM: u16 = 16;

const STYLE: &str = "\
  svg { --ground: #f6f8fa; --text: #24292f; --faint: #6e7781; --line: #d0d7de; --red: #cf222e; --green: #1a7f5a; --yellow: #9a6700; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #161b22; --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --red: #ff7b72; --green: #2ea07a; --yellow: #d29922; }
  }
  .ground { fill: var(--ground); stroke: var(--line); }
  .line { stroke: var(--faint); }
  text { fill: var(--text); white-space: pre; }
  .bold { font-weight: 700; }
  .dim { fill: var(--faint); }
  .red { fill: var(--red); }
  .green { fill: var(--green); }
  .yellow { fill: var(--yellow); }
";

/// Draws all of the screen; `title` is what people hear who do not see it.
pub(super) fn draw(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (wide, high) = (columns.get() * WIDE + 2 * ROOM, rows.get() * HIGH + 2 * ROOM);
    let (title, mut svg) = (escaped(title), String::new());
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="13" role="img" aria-labelledby="title">
<title id="title">{title}</title>
<style>
{STYLE}</style>
<rect class="ground" x=".5" y=".5" width="{}" height="{}" rx="8"/>
"#,
        wide - 1,
        high - 1
    );
    for row in 0..rows.get() {
        let below = ROOM + row * HIGH;
        for Run { at, text, style } in runs(screen, row) {
            let (x, y) = (ROOM + at * WIDE, below + 13);
            let length = text.chars().count() * usize::from(WIDE);
            let class =
                if style.is_empty() { String::new() } else { format!(r#" class="{style}""#) };
            let text = escaped(&text);
            let _ = writeln!(
                svg,
                r#"<text{class} x="{x}" y="{y}" textLength="{length}">{text}</text>"#
            );
        }
        for (from, to) in underlined(screen, row) {
            let (from, to, y) = (ROOM + from * WIDE, ROOM + to * WIDE, below + 17);
            let _ = writeln!(svg, r#"<path class="line" d="M{from} {y}H{to}"/>"#);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Characters of one style, with single blanks at most between them.
struct Run {
    at: u16,
    text: String,
    style: String,
}

fn runs(screen: &Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, cell) in cells(screen, row).filter(|(_, cell)| !cell.contents().trim().is_empty()) {
        let style = style(cell);
        let last = runs.last_mut().map(|run| (usize::from(at - run.at), run));
        match last.map(|(length, run)| (length - run.text.chars().count(), run)) {
            Some((blanks @ ..=1, run)) if run.style == style => {
                run.text.push_str(&" ".repeat(blanks));
                run.text.push_str(cell.contents());
            }
            _ => runs.push(Run { at, text: cell.contents().to_owned(), style }),
        }
    }
    runs
}

/// Where underlined cells begin and end.
fn underlined(screen: &Screen, row: u16) -> Vec<(u16, u16)> {
    let mut lines: Vec<(u16, u16)> = Vec::new();
    for (at, _) in cells(screen, row).filter(|(_, cell)| cell.underline()) {
        match lines.last_mut() {
            Some((_, to)) if *to == at => *to += 1,
            _ => lines.push((at, at + 1)),
        }
    }
    lines
}

fn cells(screen: &Screen, row: u16) -> impl Iterator<Item = (u16, &Cell)> {
    let (_, columns) = screen.size();
    (0..columns.get()).filter_map(move |at| Some((at, screen.cell(row, at)?)))
}

/// The classes of a cell, in the picture's style.
fn style(cell: &Cell) -> String {
    let colour = match cell.fgcolor() {
        Color::Idx(1 | 9) => Some("red"),
        Color::Idx(2 | 10) => Some("green"),
        Color::Idx(3 | 11) => Some("yellow"),
        _ => None,
    };
    let bold = cell.bold().then_some("bold");
    let dim = cell.dim().then_some("dim");
    [bold, dim, colour].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    fn drawn(output: &str) -> String {
        let size = |of| NonZeroU16::new(of).unwrap();
        let mut parser = vt100::Parser::new(size(3), size(20), 0);
        parser.process(output.as_bytes());
        draw(parser.screen(), "a & b")
    }

    #[test]
    fn characters_are_where_the_terminal_has_them() {
        let svg = drawn("one two   <x>\r\n  \x1b[1;31mlost\x1b[0m held");
        for text in [
            r#"<text x="16" y="29" textLength="56">one two</text>"#,
            r#"<text x="96" y="29" textLength="24">&lt;x&gt;</text>"#,
            r#"<text class="bold red" x="32" y="47" textLength="32">lost</text>"#,
            r#"<text x="72" y="47" textLength="32">held</text>"#,
            "<title id=\"title\">a &amp; b</title>",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<text").count(), 4, "{svg}");
    }

    #[test]
    fn an_underlined_row_is_underlined_between_its_words() {
        let svg = drawn("\x1b[4mNAME  FOR\x1b[0m");
        assert!(svg.contains(r#"<path class="line" d="M16 33H88"/>"#), "{svg}");
    }
}
