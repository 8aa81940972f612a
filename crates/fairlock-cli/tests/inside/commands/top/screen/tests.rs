//! The terminal after the program fails. Each test here runs a second time, as the program on a
//! terminal.

use std::env;

use fairlock_testkit::terminal::Terminal;

use super::*;

/// Set for a test that plays the program.
const AS_PROGRAM: &str = "FAIRLOCK_TEST_ON_TERMINAL";

/// Runs the test of this name on a terminal, waits for what it draws, then lets it continue with a
/// key.
fn run(name: &str) -> Option<Terminal> {
    let program = env::current_exe().unwrap();
    let name = format!("commands::top::screen::tests::{name}");
    let args = ["--exact", &name, "--nocapture", "--test-threads", "1", "--ignored"];
    let program = program.to_str().unwrap();
    Terminal::start((24, 100), program, &args, |command| {
        command.env(AS_PROGRAM, "1");
    })
}

fn drawn() -> Screen {
    assert!(env::var_os(AS_PROGRAM).is_some(), "it is run by another test");
    let mut screen = Screen::enter().unwrap();
    screen.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
    let mut key = [0];
    io::Read::read_exact(&mut io::stdin(), &mut key).unwrap();
    screen
}

#[test]
#[ignore = "run by the_terminal_comes_back_after_a_panic"]
fn panics() {
    let _screen = drawn();
    panic!("this is the message");
}

/// The message is on the screen that remains.
#[test]
fn the_terminal_comes_back_after_a_panic() {
    let Some(mut terminal) = run("panics") else { return };
    terminal.see("drawn");
    assert!(!terminal.is_as_before());
    terminal.keys("x");
    assert!(!terminal.wait().success());
    terminal.comes_back();
    let text = terminal.see("this is the message");
    assert!(!text.contains("drawn"), "{text}");
}

#[test]
#[ignore = "run by the_terminal_comes_back_after_an_error"]
fn fails() -> Result<(), String> {
    let screen = drawn();
    drop(screen);
    Err("this is the error".to_owned())
}

#[test]
fn the_terminal_comes_back_after_an_error() {
    let Some(mut terminal) = run("fails") else { return };
    terminal.see("drawn");
    terminal.keys("x");
    assert!(!terminal.wait().success());
    terminal.see("this is the error");
    terminal.comes_back();
}
