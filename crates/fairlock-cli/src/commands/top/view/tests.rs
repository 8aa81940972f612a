//! Screens, compared character by character.

use fairlock::Kind;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::super::app::{Looked, Press, Sort};
use super::super::facts::Waiter;
use super::super::facts::tests::facts;
use super::*;

const JAVA: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn look() -> Look {
    Look { shown_url: "redis://locks.example".to_owned(), interval: secs(1), color: true }
}

fn waiter(place: usize, who: &str, alive: Option<bool>) -> Waiter {
    Waiter {
        place,
        id: format!("id-{place}"),
        who: (!who.is_empty()).then(|| who.to_owned()),
        waits_for: alive.map(|_| secs(60 + place as u64)),
        wants: None,
        alive,
    }
}

/// Three locks: one with a queue, one of Java, one free. Looks at 1 s and at 2 s.
fn app() -> App {
    let mut app = App::new(Sort::Waiting, "", secs(0));
    for (second, token) in [(1, 11), (2, 12)] {
        let mut nightly = facts("nightly", "ann@web-1, pid 42, backup", token);
        nightly.kind = Some(Kind::Fair);
        nightly.waiting = 4;
        nightly.queue = vec![
            waiter(1, "bob@web-2, pid 7, sh", Some(true)),
            waiter(2, "eve@web-3, pid 8, sh", Some(false)),
            waiter(3, "", None),
        ];
        let mut java = facts("reports/日本", "", 7);
        java.token = None;
        java.left = Some(secs(29));
        java.holder = Some(Holder {
            id: JAVA.to_owned(),
            who: None,
            held_for: None,
            count: 2,
            permits: None,
            lasts: ", runs out in 29s unless renewed".to_owned(),
        });
        java.cell = JAVA.to_owned();
        let free = facts("old\u{1b}[2J", "", 9);
        let looked = vec![nightly, java, free];
        let looked = Looked { facts: looked, all: true, searched: true, ..Looked::default() };
        app.take(secs(second), looked);
    }
    app
}

fn screen_of(app: &App, look: &Look, (columns, rows): (u16, u16), now: u64) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, app, look, secs(now))).unwrap();
    terminal.backend().clone()
}

/// The rows of a screen, without blanks at their ends.
fn rows(backend: &TestBackend) -> Vec<String> {
    let buffer = backend.buffer();
    let row = |y| {
        let (mut row, mut x) = (String::new(), 0);
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            // A wide character takes two cells.
            x += u16::try_from(Span::raw(symbol).width()).unwrap().max(1);
        }
        row.trim_end().to_owned()
    };
    (0..buffer.area.height).map(row).collect()
}

#[track_caller]
fn is_screen(app: &App, size: (u16, u16), now: u64, expected: &str) {
    let shown = rows(&screen_of(app, &look(), size, now)).join("\n");
    assert!(shown == expected, "it is\n{shown}");
}

#[test]
fn a_queue_in_order() {
    is_screen(
        &app(),
        (100, 20),
        2,
        "\
fairlock top  redis://locks.example  2 in use, 1 free  every 1s
sort: waiting
  NAME                       HOLDER                                  FOR    LEFT   WAITING CHANGES/S
> nightly                    ann@web-1, pid 42, backup               2.5s   27s    4       1.0
  old\\u{1b}[2J               free                                    -      -      0       0.0
  reports/日本               5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51 -      29s    0       0.0






────────────────────────────────────────────────────────────────────────────────────────────────────
nightly  kind fair  token 12
held by ann@web-1, pid 42, backup-id, for 2.5s, runs out in 27s unless renewed
   1. bob@web-2, pid 7, sh, for 1m01s
   2. eve@web-3, pid 8, sh, for 1m02s (silent)
   3. id-3 (not known whether alive)
      and 1 more in the queue
q quit  up/down select  s sort  r reverse  / filter  u take the lock away",
    );
}

/// A semaphore with more holders than are listed, limits that differ, and a wide request.
#[test]
fn several_holders() {
    let mut app = App::new(Sort::Waiting, "", secs(0));
    let mut fetch = facts("fetch", "ann@web-1, pid 42, fetch", 12);
    fetch.kind = Some(Kind::Semaphore);
    let one = fetch.holder.clone().unwrap();
    fetch.holders = vec![Holder { permits: Some("1 permit".to_owned()), ..one }; 6];
    fetch.holding = 70;
    fetch.cell = "70 of 80-90 permits, ann@web-1, pid 42, fetch, and 69 others".to_owned();
    fetch.usage = ["70 of 90 permits in use", "limits from 80 to 90"].map(str::to_owned).into();
    fetch.waiting = 1;
    let wide = waiter(1, "bob@web-2, pid 7, sh", Some(true));
    fetch.queue = vec![Waiter { wants: Some("60 permits".to_owned()), ..wide }];
    app.take(secs(1), Looked { facts: vec![fetch], all: true, ..Looked::default() });
    is_screen(
        &app,
        (100, 24),
        1,
        "\
fairlock top  redis://locks.example  1 in use, 0 free  every 1s
sort: waiting
  NAME                       HOLDER                                  FOR    LEFT   WAITING CHANGES/S
> fetch                      70 of 80-90 permits, ann@web-1, pid 42, 2.5s   27s    1       -









────────────────────────────────────────────────────────────────────────────────────────────────────
fetch  kind semaphore  token 12
held by 70, 70 of 90 permits in use, limits from 80 to 90
      ann@web-1, pid 42, fetch, 1 permit, for 2.5s, runs out in 27s unless renewed
      ann@web-1, pid 42, fetch, 1 permit, for 2.5s, runs out in 27s unless renewed
      ann@web-1, pid 42, fetch, 1 permit, for 2.5s, runs out in 27s unless renewed
      ann@web-1, pid 42, fetch, 1 permit, for 2.5s, runs out in 27s unless renewed
      ann@web-1, pid 42, fetch, 1 permit, for 2.5s, runs out in 27s unless renewed
      and 65 more that hold it
   1. bob@web-2, pid 7, sh, 60 permits, for 1m01s
q quit  up/down select  s sort  r reverse  / filter  u take the lock away",
    );
    app.press(Press::Char('u'));
    let Mode::Confirm(force) = &app.mode else { panic!("{:?}", app.mode) };
    assert_eq!((force.holding, force.named.kind), (70, Some(Kind::Semaphore)));
}

/// A finished `--once-per` was shown as the hold of an unknown id, and the question said that it would be told: who took
/// it away let the job start a second time.
#[test]
fn a_finished_period_is_no_hold() {
    let mut done = facts("hourly", "1f0c-4d", 3);
    done.is_done = true;
    done.cell = "done, next start in 43m00s".to_owned();
    let mut app = App::new(Sort::Waiting, "", secs(0));
    let looked = Looked { facts: vec![done], all: true, searched: true, ..Looked::default() };
    app.take(secs(1), looked);
    assert_eq!(holder_line(&app.shown()[0].facts), "done, next start in 43m00s");
    app.press(Press::Char('u'));
    let Mode::Confirm(force) = &app.mode else { panic!("{:?}", app.mode) };
    let mut terminal = Terminal::new(TestBackend::new(64, 13)).unwrap();
    terminal.draw(|frame| draw_question(frame, frame.area(), force, &look())).unwrap();
    let screen = terminal.backend().to_string();
    assert!(screen.contains("Forget that hourly is done?"), "{screen}");
    assert!(screen.contains("It is done, next start in 43m00s"), "{screen}");
    assert!(screen.contains("It may be started again now"), "{screen}");
    assert!(!screen.contains("told"), "{screen}");
}

#[test]
fn a_question() {
    let mut app = app();
    app.press(Press::Char('u'));
    is_screen(
        &app,
        (80, 20),
        2,
        "\
fairlock top  redis://locks.example  2 in use, 1 free  every 1s
sort: waiting
  NAME               HOLDER                      FOR    LEFT   WAITING CHANGES/S
> nightl┌──────────────────────────────────────────────────────────────┐.0
  old\\u{│Take nightly away?                                            │.0
  report│Held by ann@web-1, pid 42, backup                             │.0
        │                                                              │
        │Its holder is told at once, and `fairlock run` ends its       │
        │command; one that the message does not reach learns of it at  │
        │its next renewal, and one that stands still works on until its│
        │lease would have ended. Until then two may be at work. Only   │
        │what checks tokens is safe.                                   │
────────│The first of the 4 that wait gets it at once.                 │────────
nightly │                                                              │
held by │Type y to take it away; any other key leaves it alone.        │enewed
   1. bo└──────────────────────────────────────────────────────────────┘
   2. eve@web-3, pid 8, sh, for 1m02s (silent)
   3. id-3 (not known whether alive)
      and 1 more in the queue
y take the lock away  any other key: leave it alone",
    );
}

#[test]
fn a_small_terminal() {
    is_screen(
        &app(),
        (50, 8),
        2,
        "\
fairlock top  redis://locks.example  2 in use, 1 f
sort: waiting
  NAME          HOLDER              LEFT   WAITING
> nightly       ann@web-1, pid 42,  27s    4
  old\\u{1b}[2J  free                -      0
  reports/日本  5f3c1a52-0f4e-4a1b- 29s    0

q quit  up/down select  s sort  r reverse  / filte",
    );
}

/// It works in every size.
#[test]
fn all_sizes() {
    let mut app = app();
    for keys in ["", "/r", "\nu"] {
        for key in keys.chars() {
            app.press(if key == '\n' { Press::Escape } else { Press::Char(key) });
        }
        for columns in [1, 2, 5, 20, 63, 64, 300] {
            for rows in [1, 2, 3, 4, 5, 8, 13, 14, 15, 39] {
                screen_of(&app, &look(), (columns, rows), 2);
            }
        }
    }
}

#[test]
fn the_line_of_state() {
    let line = |app: &App, now| rows(&screen_of(app, &look(), (80, 20), now))[1].clone();
    let mut app = app();
    assert_eq!(line(&app, 2), "sort: waiting");
    app.press(Press::Char('r'));
    app.press(Press::Char('/'));
    app.press(Press::Char('n'));
    assert_eq!(line(&app, 2), "sort: waiting (reversed)  filter: n_");
    app.press(Press::Enter);
    app.hidden = 12;
    assert_eq!(
        line(&app, 6),
        "sort: waiting (reversed)  filter: n  not shown: 12 more in use (--max)"
    );
    // Three looks are missing.
    assert_eq!(line(&app, 7), "no answer for 5s");
    app.trouble("the connection failed".to_owned());
    assert_eq!(line(&app, 3), "no answer for 1s: the connection failed");
    app.take(secs(8), Looked { all: true, searched: true, ..Looked::default() });
    app.message = Some("nightly: taken away".to_owned());
    assert_eq!(line(&app, 8), "nightly: taken away");
    app.walk_trouble = Some("denied".to_owned());
    assert_eq!(line(&app, 8), "the search for locks fails: denied");
}

#[test]
fn nothing_to_show() {
    let middle = |app: &App| rows(&screen_of(app, &look(), (80, 20), 0))[3].clone();
    let mut empty = App::new(Sort::Name, "", secs(0));
    assert_eq!(middle(&empty), "  looking for locks ...");
    empty.take(secs(0), Looked { all: true, searched: true, ..Looked::default() });
    assert_eq!(middle(&empty), "  no lock is in use");
    let mut app = app();
    for key in "/nothing".chars() {
        app.press(Press::Char(key));
    }
    assert_eq!(middle(&app), "  no lock passes the filter");
}

/// `NO_COLOR`: the text stays the same.
#[test]
fn colours_can_be_left_away() {
    let mut app = app();
    app.press(Press::Char('u'));
    let colors = |backend: &TestBackend| {
        backend
            .buffer()
            .content
            .iter()
            .any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
    };
    let with = screen_of(&app, &look(), (80, 20), 2);
    let without = screen_of(&app, &Look { color: false, ..look() }, (80, 20), 2);
    assert!(colors(&with) && !colors(&without));
    assert_eq!(rows(&with), rows(&without));
}
