//! Runs what docs/recipes.md shows as written, in a mount namespace (see `environments`): crontab
//! lines with cron's environment, units through `systemd-analyze verify` and their `ExecStart`
//! lines, the container's command as process 1.
//!
//! Only what does not exist there is replaced: the program's path and the server's address.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fairlock_testkit::server::{Generation, Server};

use crate::environments::machine;
use crate::fixture::{PROGRAM, Running, fairlock, finish, neutral, run_script};

const EXAMPLE_URL: &str = "redis://locks.example:6379";

/// Every command of the recipes, in `/usr/local/bin`: prints that it runs, and under which lock,
/// until the file `/mnt/busy` is gone; TERM ends it properly.
const COMMANDS: &str = r#"
mkdir -p "$disk/root"; mount --bind "$disk/root" /root
mount -t tmpfs -o mode=755 tmpfs /usr/local/bin
cat >/mnt/command <<'END'
#!/bin/sh
exec 2>/dev/null # where the shell says that TERM ended its sleep
trap 'echo "${0##*/} ends" >>/mnt/log; exit 0' TERM
echo "${0##*/} has $FAIRLOCK_NAME" >>/mnt/log
while test -e /mnt/busy; do sleep 0.02; done
END
chmod 755 /mnt/command; : >/mnt/log; chmod 666 /mnt/log
for name in sync backup reindex report scheduler import worker; do cp /mnt/command /usr/local/bin/$name; done
until_is() { n=0; until eval "$1"; do n=$((n + 1)); test $n -lt 2000 || { echo "never: $1"; exit 1; }; sleep 0.02; done; }
"#;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    fs::read_to_string(path).expect("it is there")
}

/// The contents of the document's blocks in one language.
fn blocks(language: &str) -> Vec<String> {
    let document = document();
    let begin = format!("```{language}\n");
    let blocks = document.split(begin.as_str()).skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<_> = blocks.map(str::to_owned).collect();
    assert!(!blocks.is_empty(), "no block of {language}");
    blocks
}

/// The line with the program under test.
fn ours(line: &str) -> String {
    assert!(line.contains("/usr/bin/fairlock "), "{line}");
    line.replace("/usr/bin/fairlock", "/mnt/fairlock")
}

/// Quoted for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Runs a script in the namespace and returns its output; `None` where there is none.
#[track_caller]
fn printed(test: &str, script: &str) -> Option<String> {
    let output = machine(test, &format!("{COMMANDS}\n{script}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert_eq!(stderr, "", "{stdout}");
    Some(stdout)
}

/// The commands of the crontab, their times checked.
fn crontab() -> Vec<String> {
    let mut commands = Vec::new();
    for line in blocks("cron").iter().flat_map(|block| block.lines()) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<_> = line.splitn(6, ' ').collect();
        let [times @ .., command] = words.as_slice() else { panic!("{line}") };
        assert_eq!(times.len(), 5, "{line}");
        for time in times {
            let known = |c: char| c.is_ascii_digit() || "*/,-".contains(c);
            assert!(!time.is_empty() && time.chars().all(known), "{line}: {time}");
        }
        assert!(!command.replace(r"\%", "").contains('%'), "{line}: a line ends there for cron");
        commands.push(ours(command));
    }
    commands
}

/// How cron runs a command: its shell, environment and folder.
fn as_cron(command: &str) -> String {
    format!(
        "(cd /home/ann; exec setpriv --reuid ann --regid ann --clear-groups env -i HOME=/home/ann \
         LOGNAME=ann SHELL=/bin/sh PATH=/usr/bin:/bin sh -c {})",
        quoted(command)
    )
}

#[test]
fn lines_of_a_crontab() {
    let commands = crontab();
    let [sync, backup, reindex, _] = commands.as_slice() else { panic!("{commands:?}") };
    let [sync, backup, reindex] = [sync, backup, reindex].map(|command| as_cron(command));
    let script = format!(
        r#"
# Each by itself says nothing.
{sync}; {backup}; {reindex}
cat /mnt/log; : >/mnt/log
# A second sync while the first is busy: skipped, silently.
touch /mnt/busy; {sync} & first=$!
until_is 'grep -q sync /mnt/log'
{sync}; echo "skipped: $?"
rm /mnt/busy; wait $first; echo "first: $?"
cat /mnt/log; : >/mnt/log
# Two jobs of one lock: one after the other.
touch /mnt/busy; {backup} & first=$!
until_is 'grep -q backup /mnt/log'
{reindex} & second=$!
until_is 'as ann env -i $f status nightly --json | grep -q "\"queue_len\":1"'
cat /mnt/log
rm /mnt/busy; wait $first; wait $second
cat /mnt/log
"#
    );
    let Some(printed) = printed("crontab", &script) else { return };
    let expected = "sync has sync\nbackup has nightly\nreindex has nightly\n\
                    skipped: 0\nfirst: 0\nsync has sync\n\
                    backup has nightly\nbackup has nightly\nreindex has nightly\n";
    assert_eq!(printed, expected);
}

/// Three hosts with one crontab, whose clocks are 0.3 s apart, and a job that ends before the next
/// one starts: under `--wait 0` each of them ran it. Now one host runs it and reports so; if it
/// fails, the next one tries.
#[test]
fn d24_one_of_three_hosts_runs_the_fleets_job() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let commands = crontab();
    let [.., report] = commands.as_slice() else { panic!("{commands:?}") };
    assert!(report.contains(EXAMPLE_URL) && report.contains("--once-per 50m "), "{report}");
    let report = as_cron(&report.replace(EXAMPLE_URL, &server.url()));
    let script = format!(
        r#"
host() {{ unshare --uts sh -c 'hostname "$1"; exec sh -c "$2"' x "$1" "$2" && code=0 || code=$?; echo "$1: $code"; }}
hour() {{ for n in 1 2 3; do host web-$n {report}; sleep 0.3; done; }}
cat >/usr/local/bin/report <<'END'
#!/bin/sh
test -e /mnt/broken && echo "$(hostname) fails" >>/mnt/log && rm /mnt/broken && exit 9
echo "$(hostname) has $FAIRLOCK_NAME" >>/mnt/log
END
chmod 755 /usr/local/bin/report; touch /mnt/broken; chmod 777 /mnt
hour; cat /mnt/log
$f status report --url {url} | sed 's/5[0-9]s$/5?s/'
# The time is over: here it is taken away.
$f unlock --force --yes report --url {url} | sed 's/5[0-9]s$/5?s/'; : >/mnt/log
hour; cat /mnt/log
"#,
        report = quoted(&report),
        url = server.url(),
    );
    let Some(printed) = printed("fleet", &script) else { return };
    let lines: Vec<_> = printed.lines().filter(|line| !line.starts_with("  ")).collect();
    let expected = [
        "web-1: 9",
        "web-2: 0",
        "web-3: 75",
        "web-1 fails",
        "web-2 has report",
        "report: done, next start in 49m5?s",
        "report: unlocked; it was done, next start in 49m5?s",
        "web-1: 0",
        "web-2: 75",
        "web-3: 75",
        "web-1 has report",
    ];
    assert_eq!(lines, expected, "{printed}");
}

/// A unit file: its path, and its lines.
struct Unit {
    name: String,
    text: String,
}

fn units() -> Vec<Unit> {
    let units = blocks("ini").into_iter().map(|text| {
        let path = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let name = path.and_then(|path| path.strip_prefix("/etc/systemd/system/"));
        Unit { name: name.expect("its path comes first").to_owned(), text }
    });
    units.collect()
}

impl Unit {
    fn settings(&self, name: &str) -> Vec<&str> {
        let lines = self.text.lines().filter_map(|line| line.split_once('='));
        lines.filter(|(field, _)| *field == name).map(|(_, value)| value).collect()
    }

    fn setting(&self, name: &str) -> &str {
        let [value] = self.settings(name)[..] else { panic!("{}: one {name}", self.name) };
        value
    }

    /// Its `ExecStart`, as a service manager starts it: environment and user, and no shell.
    fn start(&self, url: &str) -> String {
        let line = ours(self.setting("ExecStart"));
        // Nothing that a shell and systemd interpret differently.
        let plain = |c: char| c.is_ascii_alphanumeric() || "/.:=- ".contains(c);
        assert!(line.chars().all(plain), "{line}");
        let mut environment =
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LANG=C.UTF-8".to_owned();
        for variable in self.settings("Environment") {
            environment.push_str(&format!(" {}", variable.replace(EXAMPLE_URL, url)));
        }
        // A user id that is not in use.
        let is_dynamic = self.settings("DynamicUser") == ["yes"];
        let user = if is_dynamic { "setpriv --reuid 61184 --clear-groups" } else { "" };
        assert!(self.settings("User").is_empty(), "{}: users that this test knows", self.name);
        format!("(cd /; exec env -i {environment} {user} {line})")
    }
}

/// systemd's own check of the files, if it is installed.
#[test]
fn units_are_right() {
    let units = units();
    let known = Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status();
    if !known.is_ok_and(|status| status.success()) {
        return fairlock_testkit::skip("systemd-analyze");
    }
    let mut script = "mkdir /mnt/units\n".to_owned();
    for unit in &units {
        let text = unit.text.replace("/usr/bin/fairlock", "/mnt/fairlock");
        script += &format!("printf %s {} >/mnt/units/{}\n", quoted(&text), unit.name);
    }
    script += "systemd-analyze verify /mnt/units/* 2>&1; echo verified\n";
    // It must report a mistake, or this test proves nothing.
    script += "sed -i s/KillMode=mixed/KillMode=mixd/ /mnt/units/nightly.service\n";
    script += "systemd-analyze verify /mnt/units/nightly.service 2>&1 | grep -c 'kill mode'\n";
    let Some(printed) = printed("units", &script) else { return };
    assert_eq!(printed, "verified\n1\n");
}

#[test]
fn services_run() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let units = units();
    let unit = |name: &str| units.iter().find(|unit| unit.name == name).expect(name);
    let start = |name| unit(name).start(&server.url());
    for unit in units.iter().filter(|unit| unit.name.ends_with(".service")) {
        assert_eq!(
            unit.setting("KillMode"),
            "mixed",
            "{}: TERM is for the program alone",
            unit.name
        );
    }
    assert_eq!(unit("nightly.timer").settings("OnCalendar").len(), 1);
    let (nightly, scheduler) = (start("nightly.service"), start("scheduler.service"));
    // Candidates for the same lock, which another unit may take as a run.
    let elected = start("elected.service");
    for unit in ["scheduler.service", "elected.service"].map(unit) {
        assert_eq!(unit.setting("StartLimitIntervalSec"), "0", "{}: a refused login", unit.name);
    }
    let import = unit("import.service");
    let state = format!("/var/lib/{}", import.setting("StateDirectory"));
    assert!(import.setting("ExecStart").contains(&format!("sqlite:{state}/")));
    assert_eq!(import.setting("ProtectHome"), "yes");
    let import = import.start("");
    let script = format!(
        r#"
{nightly}; echo "nightly: $?"; cat /mnt/log; : >/mnt/log
# Stopped: TERM for the program alone, which passes it on and waits.
touch /mnt/busy; {scheduler} & first=$!
until_is 'grep -q "has scheduler" /mnt/log'
{elected} & second=$!
until_is '$f status scheduler --json --url {url} | grep -q "\"queue_len\":1"'
kill -TERM $first; wait $first; echo "scheduler: $?"
until_is 'test "$(grep -c "has scheduler" /mnt/log)" = 2'
kill -TERM $second; wait $second; echo "scheduler: $?"
cat /mnt/log; : >/mnt/log; rm /mnt/busy
# A home that is closed.
mkdir {state}; mkdir /mnt/closed; chmod 000 /mnt/closed
mount --bind /mnt/closed /home; mount --bind /mnt/closed /root
{import}; echo "import: $?"; cat /mnt/log
"#,
        url = server.url(),
    );
    let Some(printed) = printed("services", &script) else { return };
    let expected = "nightly: 0\nbackup has nightly\nscheduler: 0\nscheduler: 0\n\
                    scheduler has scheduler\nscheduler ends\nscheduler has scheduler\nscheduler ends\n\
                    import: 0\nimport has import\n";
    assert_eq!(printed, expected);
}

/// The filter of `jq` that finds locks that are held for long.
#[test]
fn long_holds_are_found() {
    if Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_err() {
        return fairlock_testkit::skip("the program jq");
    }
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    let once = ["run", "--url", &url, "--once-per", "1h", "done", "--", "true"];
    finish(fairlock(once)).expect(0, "");
    let block =
        blocks("sh").into_iter().find(|block| block.contains("| jq ")).expect("it is there");
    let block = block.replace("/usr/bin/fairlock", PROGRAM);
    let found = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        neutral(&mut shell);
        shell.env("FAIRLOCK_URL", &url);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let outcome = finish(shell);
        outcome.expect(0, "");
        outcome.stdout
    };
    assert_eq!(found(&block), "");
    let at_once = found(&block.replace("7200000", "-1"));
    assert!(at_once.starts_with("x: held for 0 min by "), "{at_once}");
    assert!(at_once.trim_end().ends_with(&format!("pid {}", holder.pid())), "{at_once}");
    assert_eq!(at_once.lines().count(), 1, "{at_once}");
}

/// The words of the JSON list after an instruction.
fn instruction(name: &str) -> Vec<String> {
    let [dockerfile] = blocks("dockerfile").try_into().expect("one of them");
    let line = dockerfile.lines().find_map(|line| line.strip_prefix(name)).expect(name).to_owned();
    let words = line.trim().trim_start_matches('[').trim_end_matches(']').split(',');
    words.map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

/// As process 1: signals are passed on, orphans are reaped, the exit code is the command's.
#[test]
fn containers_run() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let entry = instruction("ENTRYPOINT").join(" ");
    let words = ours(&format!("{entry} {}", instruction("CMD").join(" ")));
    let with = |variables: &str, words: &str| {
        format!(
            "(cd /; exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin HOME=/root {variables} \
             unshare --pid --fork --kill-child --mount-proc {words})"
        )
    };
    let fleet = with(&format!("FAIRLOCK_URL={}", server.url()), &words);
    let on_a_volume =
        with("", &words.replace("run worker", "run --url sqlite:/var/lib/locks/locks.db worker"));
    let at_once = on_a_volume.replace("worker --", "--wait 0 worker --");
    let script = format!(
        r#"
set +e # codes are printed
# A process that loses its parent, and ends.
cat >/usr/local/bin/worker <<'END'
#!/bin/sh
exec 2>/dev/null # where the shell says that TERM ended its sleep
trap 'echo "worker ends" >>/mnt/log; exit 7' TERM
sh -c 'sleep 0.05 & exit' # its parent ends at once
echo "worker has $FAIRLOCK_NAME under $(cat /proc/1/comm)" >>/mnt/log
# In any state: one that is about to end runs.
n=0; while test $n -lt 200 && grep -sq '(sleep)' /proc/[0-9]*/stat; do n=$((n + 1)); sh -c ':'; done
grep -sl '(sleep) Z' /proc/[0-9]*/stat >>/mnt/log
while test -e /mnt/busy; do sleep 0.02; done
exit 3
END
{fleet}; echo "code: $?"; cat /mnt/log; : >/mnt/log
# A stop: TERM for process 1.
touch /mnt/busy; {fleet} & container=$!
until_is 'grep -q "has worker" /mnt/log'
kill -TERM $(cat /proc/$container/task/$container/children); wait $container; echo "code: $?"
cat /mnt/log; : >/mnt/log
# Two containers and one file on the host.
mkdir /var/lib/locks
{on_a_volume} & container=$!
until_is 'grep -q "has worker" /mnt/log'
{at_once} 2>&1; echo "code: $?"
rm /mnt/busy; wait $container; echo "code: $?"
"#
    );
    let Some(printed) = printed("containers", &script) else { return };
    let expected = "code: 3\nworker has worker under fairlock\n\
                    code: 7\nworker has worker under fairlock\nworker ends\n";
    let rest = printed.strip_prefix(expected).unwrap_or_else(|| panic!("{printed}"));
    let [refused, code, first] = rest.lines().collect::<Vec<_>>()[..] else { panic!("{rest}") };
    assert!(refused.starts_with("fairlock: "), "{rest}");
    assert_eq!((code, first), ("code: 75", "code: 3"));
}
