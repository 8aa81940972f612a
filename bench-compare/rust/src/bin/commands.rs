//! `commands flock|PROGRAM URL`: shell commands under a lock of this host, by `flock(1)` or by the command
//! `fairlock`; PROGRAM is where that one is. A turn is a process that is started under the lock, says so, and
//! ends when it is told to.

use bench_compare::{Rival, Share, locked_version, obey};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Says that it runs, and waits for its stdin to end.
const SECTION: [&str; 3] = ["sh", "-c", "echo; read _; exit 0"];

/// What `flock -w` and `fairlock run --wait` exit with when it is not their turn in time.
const REFUSED: [i32; 2] = [1, 75];

#[derive(Clone)]
struct Commands {
    /// None: flock(1).
    program: Option<String>,
    /// The URL of a host store, `sqlite:PATH`.
    url: String,
}

impl Rival for Commands {
    type Lock = (Self, String);
    type Guard = Child;

    fn lock(&self, name: &str, _: Share) -> Self::Lock {
        (self.clone(), name.replace(':', "_"))
    }

    async fn acquire(
        (commands, name): &mut Self::Lock,
        wait: Option<Duration>,
    ) -> Result<Option<Child>, String> {
        let seconds = wait.map(|wait| format!("{:.3}", wait.as_secs_f64()));
        let mut command = if let Some(program) = &commands.program {
            let mut command = Command::new(program);
            command.args(["run", "--url", &commands.url]);
            if let Some(wait) = wait {
                command.args(["--wait", &format!("{}ms", wait.as_millis())]);
            }
            command.args([name.as_str(), "--"]);
            command
        } else {
            let mut command = Command::new("flock");
            if let Some(seconds) = &seconds {
                command.args(["-w", seconds]);
            }
            command.arg(format!("{}-{name}", commands.url.trim_start_matches("sqlite:")));
            command
        };
        command.args(SECTION).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut said = String::new();
        let out = child.stdout.as_mut().ok_or("no stdout")?;
        BufReader::new(out).read_line(&mut said).await.map_err(|error| error.to_string())?;
        if !said.is_empty() {
            return Ok(Some(child));
        }
        let status = child.wait().await.map_err(|error| error.to_string())?;
        match status.code() {
            Some(code) if wait.is_some() && REFUSED.contains(&code) => Ok(None),
            _ => Err(format!("it ended before it began: {status}")),
        }
    }

    async fn release(_: &mut Self::Lock, mut child: Child) -> Result<(), String> {
        drop(child.stdin.take());
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
    }
}

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [which, url] = &args[..] else { panic!("commands flock|PROGRAM URL") };
    let program = (which != "flock").then(|| which.clone());
    let words = if program.is_some() { "--version" } else { "-V" };
    let told = Command::new(which).arg(words).output().await.expect("the program is there");
    let told = String::from_utf8_lossy(&told.stdout);
    let version = told.split_whitespace().last().unwrap_or("unknown");
    let hello = format!(
        "\"version\":\"{version}\",\"runs_on\":\"started by tokio {}\",\"renews\":true",
        locked_version("tokio"),
    );
    obey(Commands { program, url: url.clone() }, url, &hello).await;
}
