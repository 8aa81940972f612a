//! The keyboard: a thread that reads, because a terminal cannot be waited for in any other way
//! everywhere.

use std::io;
use std::thread;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::app::Press;

/// Keys that wait to be looked at: more come only from a paste, and wait in the terminal.
const QUEUED_MAX: usize = 64;

/// What comes from the terminal.
#[derive(Debug)]
pub(super) enum Input {
    Key(Press),
    Resized,
}

/// Starts to read. The thread ends with the program, or with the terminal.
pub(super) fn read() -> mpsc::Receiver<io::Result<Input>> {
    let (sender, receiver) = mpsc::channel(QUEUED_MAX);
    thread::spawn(move || {
        loop {
            let input = match event::read() {
                Ok(event) => match meaning(&event) {
                    Some(input) => Ok(input),
                    None => continue,
                },
                Err(error) => Err(error),
            };
            let is_over = input.is_err();
            if sender.blocking_send(input).is_err() || is_over {
                return;
            }
        }
    });
    receiver
}

fn meaning(event: &Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => press(key).map(Input::Key),
        Event::Resize(..) => Some(Input::Resized),
        _ => None,
    }
}

fn press(key: &KeyEvent) -> Option<Press> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Press::Interrupt),
            KeyCode::Char('z') => Some(Press::Suspend),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char(c) => Press::Char(c),
        KeyCode::Up => Press::Up,
        KeyCode::Down => Press::Down,
        KeyCode::PageUp => Press::PageUp,
        KeyCode::PageDown => Press::PageDown,
        KeyCode::Home => Press::Home,
        KeyCode::End => Press::End,
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        _ => return None,
    })
}
