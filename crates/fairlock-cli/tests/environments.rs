//! The default store is the same file in every environment of a user, or it is refused.
//!
//! A mount namespace has users and homes of its own, and what a service manager does to them. It
//! needs root; nothing outside of the namespace changes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use rustix::process::geteuid;

/// Users `ann` (with a home) and `svc` (without), the program in a folder that everybody can reach,
/// empty `/var/lib` and `/etc/fairlock`, and homes on the disk that the tests are built on.
const PRELUDE: &str = r#"
set -eu
disk=$1 program=$2
mount -t tmpfs -o mode=755 tmpfs /mnt
touch /mnt/fairlock; mount --bind "$program" /mnt/fairlock
cp -a /etc /mnt/etc; rm -rf /mnt/etc/fairlock; mount --bind /mnt/etc /etc
mkdir -p "$disk/home" "$disk/lib"; chmod 755 "$disk/home" "$disk/lib"
mount --bind "$disk/home" /home; mount --bind "$disk/lib" /var/lib
echo 'ann:x:54321:54321::/home/ann:/bin/sh' >>/etc/passwd
echo 'svc:x:54322:54321::/nonexistent:/usr/sbin/nologin' >>/etc/passwd
echo 'ann:*:19000:0:99999:7:::' >>/etc/shadow
echo 'ann:x:54321:' >>/etc/group
install -d -m 700 -o ann -g ann /home/ann
unset FAIRLOCK_URL FAIRLOCK_PASSWORD FAIRLOCK_CONFIG
as() { u=$1; shift; setpriv --reuid "$u" --regid ann --clear-groups "$@"; }
f=/mnt/fairlock
"#;

/// What `fairlock status` prints where ann's home can be used.
const HOME_STORE: &str = "store: sqlite:/home/ann/.local/state/fairlock/locks.db, seen by this host \
                          only; the default, one for each user";

/// A folder on the disk; `/tmp` may be in memory, where a home is not trusted.
struct Disk(String);

impl Disk {
    fn new(test: &str) -> Self {
        let path = format!("{}/{test}-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        fs::create_dir_all(&path).expect("the target folder is there");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a script in a mount namespace; `None`, with a notice, without root.
pub(crate) fn machine(test: &str, script: &str) -> Option<Output> {
    if !geteuid().is_root() {
        fairlock_testkit::skip("root, for a mount namespace");
        return None;
    }
    let disk = Disk::new(test);
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("{PRELUDE}\n{script}"))
        .args(["machine", &disk.0, env!("CARGO_BIN_EXE_fairlock")])
        .output()
        .expect("unshare is there");
    Some(output)
}

/// Runs it and compares the lines on stdout, and those on stderr if the script redirects them
/// there.
#[track_caller]
fn check(test: &str, script: &str, expected: &[&str]) {
    let Some(output) = machine(test, script) else { return };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = stdout.lines().filter(|line| !line.starts_with("  ")).collect();
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert_eq!(lines.len(), expected.len(), "{stdout}\n{stderr}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(expected), "{expected:?} is missing in {line:?}\n{stdout}\n{stderr}");
    }
    assert_eq!(stderr, "", "{stdout}");
}

#[test]
fn every_environment_of_a_user_has_the_same_store() {
    // The variables of a login, of cron, of sudo, of a session, and none.
    let script = r#"
as ann env -i $f status
as ann env HOME=/root XDG_STATE_HOME=/srv XDG_CONFIG_HOME=/srv XDG_RUNTIME_DIR=/run TMPDIR=/srv $f status
as ann env -u HOME $f status
as ann env -i HOME=/home/ann LOGNAME=ann SHELL=/bin/sh PATH=/usr/bin:/bin sh -c '$0 status' $f
as ann env -i SSH_CONNECTION='a 1 b 2' HOME=/home/ann USER=ann sh -lc '$0 status' $f
su ann -c '/mnt/fairlock status'
su - ann -c '/mnt/fairlock status'
su --preserve-environment ann -c '/mnt/fairlock status'
cd /; as ann env PWD=/srv $f status
umask 000; as ann $f status; umask 077; as ann $f status
# PrivateTmp=, PrivateDevices=, and processes of another namespace.
unshare --mount sh -c 'mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /var/tmp; shift; "$@"' x x \
    setpriv --reuid ann --regid ann --clear-groups $f status
unshare --pid --fork --mount-proc setpriv --reuid ann --regid ann --clear-groups $f status
unshare --uts --ipc --net setpriv --reuid ann --regid ann --clear-groups $f status
test ! -e /home/ann/.local && echo nothing was made
"#;
    let mut expected = vec![HOME_STORE; 14];
    expected.push("nothing was made");
    check("same", script, &expected);
}

/// Before the first run of a user the looks said that there is no store, as for a wrong URL; `latch` and `watch` said that
/// the lock is free.
#[test]
fn before_the_first_run_every_lock_is_free() {
    let script = r#"
try() { as ann env -i $f "$@" 2>&1 || echo "code $?"; }
try status x
try status --exit-code x
try status -q --exit-code x
try wait x
try leader x
try unlock --force x
try list
try unlock --force -q x
test ! -e /home/ann/.local && echo nothing was made
try status --url sqlite:/home/ann/.local/state/fairlock/locks.db x
as ann env -i FAIRLOCK_URL=sqlite:/home/ann/.local/state/fairlock/locks.db $f wait x 2>&1 || echo "code $?"
try run x -- $f status x
try status --exit-code y
"#;
    let unused = "fairlock: this user has used no lock on this host yet: there is no \
                  sqlite:/home/ann/.local/state/fairlock/locks.db";
    let none = "fairlock: there is no store at /home/ann/.local/state/fairlock/locks.db";
    check(
        "first",
        script,
        &[
            unused,
            "x: free",
            unused,
            "x: free",
            unused,
            unused,
            "x: nobody leads",
            "code 1",
            unused,
            "x: was not locked",
            "code 1",
            unused,
            "code 1",
            "nothing was made",
            none,
            "code 69",
            none,
            "code 69",
            "x: held by ",
            "y: free",
        ],
    );
}

/// A service that sees a different home than the user's other processes: refused, not redirected to
/// another store.
#[test]
fn a_hidden_home_is_refused() {
    let script = r#"
try() { unshare --mount sh -c "$1; shift; \"\$@\"" x "$@" 2>&1 || echo "code $?"; }
ann="setpriv --reuid ann --regid ann --clear-groups $f"
closed='mkdir -p /mnt/closed; chmod 000 /mnt/closed; mount --bind /mnt/closed /home'
memory='mount -t tmpfs -o ro,mode=755 tmpfs /home'
readonly='mount --bind -o ro /home /home; mount -o remount,bind,ro /home'
try "$closed" $ann status
try "$memory" $ann status
try "$memory" $ann run x -- true
try "$readonly" $ann status
# root sees through a closed folder, and would leave its locks in it.
echo 'root:x:0:0::/home/root:/bin/sh' >/mnt/passwd; cat /etc/passwd >>/mnt/passwd; cp /mnt/passwd /etc/passwd
mkdir /home/root
$f status
try "$closed" $f status
try 'mount -t tmpfs tmpfs /home/root' $f status
# Whoever names a store is not asked for a home.
try "$closed" $ann status --url memory:
# For those who know what they do: root's folder, and no configuration of the user's.
install -d -m 755 /var/lib/fairlock; install -d -m 700 -o ann /var/lib/fairlock/54321
as ann $f status
try "$closed" env FAIRLOCK_CONFIG=/dev/null $ann status
try "$closed" $ann status
"#;
    let made = "sqlite:/var/lib/fairlock/54321/locks.db, seen by this host only; the default";
    check(
        "hidden",
        script,
        &[
            "fairlock: /home/ann: the home is closed to this process (a service with ProtectHome=?)",
            "code 64",
            "fairlock: /home/ann: the home is in memory here (a service with ProtectHome=?)",
            "code 64",
            "FAIRLOCK_CONFIG (/dev/null: none)",
            "code 64",
            "/home/ann: Read-only file system (os error 30) (a service with ProtectHome= or",
            "code 64",
            "sqlite:/home/root/.local/state/fairlock/locks.db",
            "fairlock: /home/root: the home is in memory here",
            "code 64",
            "fairlock: /home/root: the home is in memory here",
            "code 64",
            "store: memory:",
            made,
            made,
            "fairlock: /home/ann: the home is closed to this process",
            "code 64",
        ],
    );
}

/// The message says what root can do, and the advice works as written.
#[test]
fn users_without_a_home() {
    let script = r#"
as svc $f status 2>&1 || echo "code $?"
# As root: what stands between the backticks.
advice=$(as svc $f status 2>&1 | sed 's/.*`\(.*\)`.*/\1/'); sh -c "$advice"
as svc $f status
as svc env -i HOME=/root $f status
# A number without a name, as containers have it.
as 65001 $f status 2>&1 || true
advice=$(as 65001 $f status 2>&1 | sed 's/.*`\(.*\)`.*/\1/'); sh -c "$advice"
as 65001 $f status
# A folder of somebody else, or open to others, is no reason to look elsewhere.
install -d -m 700 -o svc /var/lib/fairlock/54321
as ann $f status 2>&1 || true
chown ann /var/lib/fairlock/54321; chmod 770 /var/lib/fairlock/54321
as ann $f status 2>&1 || true
chmod 700 /var/lib/fairlock/54321
as ann $f status
# A home that is there and not the user's to write.
chown root /home/ann; chmod 755 /home/ann; rmdir /var/lib/fairlock/54321
as ann $f status 2>&1 || true
"#;
    check(
        "homeless",
        script,
        &[
            "no place for the locks of user svc (54322): /nonexistent: the home: No such file",
            "code 64",
            "store: sqlite:/var/lib/fairlock/54322/locks.db",
            "store: sqlite:/var/lib/fairlock/54322/locks.db",
            "no place for the locks of user 65001 (without a name): the user database: it names no",
            "store: sqlite:/var/lib/fairlock/65001/locks.db",
            "/var/lib/fairlock/54321: belongs to user 54322; as root: ",
            "/var/lib/fairlock/54321: others can write to it (mode 770): chmod go-w",
            "store: sqlite:/var/lib/fairlock/54321/locks.db",
            "no place for the locks of user ann (54321): /home/ann: cannot be written: Permission",
        ],
    );
}

/// The user's configuration takes precedence over the system's, wherever `HOME` points.
#[test]
fn configuration_files_of_user_and_system() {
    let script = r#"
mkdir /etc/fairlock; echo 'url = "redis://system:1"' >/etc/fairlock/config.toml
as ann env -i $f status
as ann mkdir -p /home/ann/.config/fairlock
echo 'url = "redis://user:2"' | as ann tee /home/ann/.config/fairlock/config.toml >/mnt/null
as ann env -i HOME=/srv XDG_CONFIG_HOME=/srv $f status
su - ann -c '/mnt/fairlock status'
as svc $f status
as ann env FAIRLOCK_CONFIG=/dev/null $f status
as ann env FAIRLOCK_URL=redis://v $f status
# The system's demand counts for a store that the user names.
echo 'scope = "fleet"' >/etc/fairlock/config.toml
as ann $f status
as ann $f status --url memory: 2>&1 || echo "code $?"
# Files that others could have written.
chmod 666 /etc/fairlock/config.toml; as ann $f status 2>&1 || echo "code $?"
chmod 644 /etc/fairlock/config.toml; chown svc /etc/fairlock/config.toml
as ann $f status 2>&1 || echo "code $?"
"#;
    check(
        "configured",
        script,
        &[
            "store: redis://system:1, seen by all hosts that use it; from /etc/fairlock/config.toml",
            "store: redis://user:2, seen by all hosts that use it; from /home/ann/.config/fairlock/",
            "store: redis://user:2",
            "store: redis://system:1",
            HOME_STORE,
            "store: redis://v",
            "store: redis://user:2",
            "scope = \"fleet\" in /etc/fairlock/config.toml asks for more than this store gives: memory:",
            "code 64",
            "/etc/fairlock/config.toml: others can write to it (mode 666)",
            "code 64",
            "/etc/fairlock/config.toml: belongs to user 54322, who is neither you nor root",
            "code 64",
        ],
    );
}

/// Not just the same name: a holder in one environment excludes all others.
#[test]
fn environments_of_a_user_exclude_each_other() {
    let script = r#"
mkfifo /mnt/held /mnt/go; chmod 666 /mnt/held /mnt/go
su - ann -c '/mnt/fairlock run x -- sh -c "echo holding >/mnt/held; cat /mnt/go"' &
read -r line </mnt/held; echo "$line"
once="$f run --wait 0 x -- echo must not run"
ann="setpriv --reuid ann --regid ann --clear-groups"
as ann env -i $once 2>&1 || echo "code $?"
as ann env HOME=/root $once 2>&1 || echo "code $?"
unshare --mount sh -c 'mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run; "$@"' x $ann $once 2>&1 || echo "code $?"
unshare --pid --fork --mount-proc setsid $ann $once 2>&1 || echo "code $?"
unshare --uts --ipc --net $ann $once 2>&1 || echo "code $?"
# Another user has other locks.
install -d -m 755 /var/lib/fairlock; install -d -m 700 -o svc /var/lib/fairlock/54322
as svc $f run --wait 0 x -- echo svc runs
# The end of the one is the turn of the other, in whatever namespace it waits.
unshare --pid --mount --fork --mount-proc setsid $ann $f run --wait 30s x -- echo the next one runs &
until as ann $f status --json x | grep -q '"queue_len":1'; do sleep 0.05; done
echo go >/mnt/go
wait
stat -c '%a %U' /home/ann/.local/state/fairlock /home/ann/.local/state/fairlock/locks.db
"#;
    let held = "fairlock: x: held by ann@";
    check(
        "exclude",
        script,
        &[
            "holding",
            held,
            "code 75",
            held,
            "code 75",
            held,
            "code 75",
            held,
            "code 75",
            held,
            "code 75",
            "svc runs",
            "go",
            "the next one runs",
            "700 ann",
            "600 ann",
        ],
    );
}

/// The README's first command, as written except for cargo, by a user who has set up nothing.
#[test]
fn the_readmes_first_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).expect("it is there");
    let (_, section) = readme.split_once("## Try it").expect("two commands");
    let (_, block) = section.split_once("```sh\n").expect("a command");
    let command = block.lines().next().expect("a line");
    let arguments = command.strip_prefix("cargo run --quiet -p fairlock-cli -- ").expect(command);
    assert!(arguments.starts_with("run nightly -- "), "{arguments}");
    let docs = root.join("docs");
    let script = format!(
        r#"
mkdir -p /home/ann/tree/target; cp -r {} /home/ann/tree/docs; chown -R ann /home/ann/tree
cd /home/ann/tree
as ann env -i PATH=/usr/bin:/bin $f {arguments}
ls target; tar -tzf target/docs.tar.gz | grep -c 'manual.md$'
as ann $f status nightly
"#,
        docs.display()
    );
    let free = "nightly: free";
    check("readme", &script, &["docs.tar.gz", "1", free]);
}

/// A command that has become another user's (`sudo`) cannot be ended by the user who started it.
/// The message used to say that it was ended.
#[test]
fn d28_a_command_of_another_user_is_not_said_to_be_ended() {
    let script = r#"
cp "$(command -v setpriv)" /mnt/becomes-root; chmod 4755 /mnt/becomes-root
as ann env -i PATH=/usr/bin:/bin $f run --lease 6s x -- \
    /mnt/becomes-root --reuid 0 --regid 0 --clear-groups sh -c 'id -u; sleep 8; echo went on; exit 3' 2>&1 || echo "code $?"
"#;
    let expected = [
        "0",
        "fairlock: x: the command runs as another user, so it cannot be ended: it goes on without the lock",
        "went on",
        "fairlock: x: the lock was about to be lost: its --lease of 6s is over; the command went on without it, \
         and ended by itself with code 3",
        "code 76",
    ];
    check("another-user", script, &expected);
}
