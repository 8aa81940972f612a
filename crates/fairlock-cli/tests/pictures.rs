//! The pictures of the program in the documents: drawn from a terminal, and still what the program shows.
//! `scripts/pictures` draws them anew.

use std::fs;
use std::path::Path;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::terminal::Terminal;

use crate::fixture::{PROGRAM, Running, eventually, hold_until, neutral, run_script, status};

/// Set by `scripts/pictures`.
const RECORD: &str = "FAIRLOCK_PICTURES_RECORD";

const COLUMNS: u16 = 100;

/// Compares the picture with the one in `docs`, or replaces that one.
fn agree(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os(RECORD).is_some() {
        fs::write(&path, drawn).expect("docs can be written");
    }
    let there = fs::read_to_string(&path).expect("the picture is there");
    assert_eq!(words(drawn), words(&there), "{name} shows another program: scripts/pictures");
}

/// The words of each row, up to the first that names a machine: from there on rows differ, and are cut where they are
/// too long. Without numbers and ids, which differ as well.
fn words(svg: &str) -> Vec<Vec<String>> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for element in svg.lines().filter(|line| line.starts_with("<text")) {
        let (_, behind) = element.split_once(" y=\"").expect("its row");
        let row = behind.split('"').next().expect("its row");
        let text = element.split(['<', '>']).nth(2).expect("its text");
        match rows.last_mut() {
            Some((last, words)) if *last == row => words.push_str(&format!(" {text}")),
            _ => rows.push((row, text.to_owned())),
        }
    }
    let word = |word: &str| match word.matches('-').count() {
        4 => "id".to_owned(),
        _ => word.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect(),
    };
    let words = |row: &str| {
        row.split_whitespace().take_while(|word| !word.contains('@')).map(word).collect()
    };
    rows.iter().map(|(_, row)| words(row)).collect()
}

/// Whether all times and rates are there, and have grown beyond milliseconds.
fn has_settled(text: &str) -> bool {
    !text.split_whitespace().any(|word| word.trim_end_matches(',').ends_with("ms") || word == "-")
}

/// A backup that holds `nightly`, two that wait, one that is about to, and a bill.
struct Scene {
    /// They end before their server does.
    jobs: Vec<Running>,
    dir: TempDir,
    server: Server,
}

impl Scene {
    fn start() -> Option<Self> {
        let server = Server::start(Generation::Redis70)?;
        let mut scene = Self { jobs: Vec::new(), dir: TempDir::new(), server };
        scene.job("invoices", "billing", 0);
        scene.job("nightly", "backup.sh", 0);
        scene.job("nightly", "report.sh", 1);
        scene.job("nightly", "verify.sh", 2);
        Some(scene)
    }

    /// Starts a job, and waits until it has this place in the queue.
    fn job(&mut self, name: &str, label: &str, place: usize) {
        let (url, end) = (self.server.url(), self.dir.path().join("end"));
        let mut job =
            Running::start(run_script(&url, &["--label", label], name, &hold_until(&end)));
        if place == 0 {
            assert_eq!(job.line(), "holding");
        }
        eventually("it is in its place", || status(&url, name)["queue_len"] == place);
        self.jobs.push(job);
    }

    fn terminal(&self, rows: u16, program: &str, args: &[&str]) -> Option<Terminal> {
        Terminal::start((rows, COLUMNS), program, args, |command| {
            neutral(command);
            command.env("FAIRLOCK_URL", self.server.url());
        })
    }
}

#[test]
fn top_is_as_pictured() {
    let Some(scene) = Scene::start() else { return };
    let Some(terminal) = scene.terminal(14, PROGRAM, &["top"]) else { return };
    let is_so = |text: &str| text.contains("2. ") && has_settled(text);
    agree("top.svg", &terminal.picture("fairlock top: who holds which lock, and who waits", is_so));
}

/// As typed at the prompt of a shell.
#[test]
fn a_wait_is_as_pictured() {
    let Some(scene) = Scene::start() else { return };
    let script = format!("PATH={}:$PATH PS1='$ ' exec sh -i", folder());
    let Some(mut terminal) = scene.terminal(2, "sh", &["-c", &script]) else { return };
    terminal.see("$");
    terminal.keys("fairlock run nightly -- ./cleanup.sh\n");
    let is_so = |text: &str| text.contains("waiting ") && has_settled(text);
    agree("waiting.svg", &terminal.picture("fairlock run waits and says for whom", is_so));
}

fn folder() -> String {
    Path::new(PROGRAM).parent().expect("a folder").display().to_string()
}
