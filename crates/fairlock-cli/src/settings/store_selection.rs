//! Selects the store, and explains why: named on the command line, else in the environment, else in a
//! configuration file, else the store of this host.

use std::cmp::Reverse;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock::{Error, Replicas};
use serde_json::{Value, json};

use super::account::Account;
use super::configuration::Settings;
use super::default_path;
use super::options::{self, Scope};
use super::secrets::{PASSWORD_VAR, URL_VAR};
use super::trust;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::url::{self, ChildUrl};

/// Environment variable with a configuration file that replaces the usual ones.
const CONFIG_VAR: &str = "FAIRLOCK_CONFIG";

/// The user's configuration file, relative to the home in the user database.
const USERS_FILE: &str = ".config/fairlock/config.toml";

/// The system's configuration file.
const SYSTEMS_FILE: &str = "/etc/fairlock/config.toml";

/// Files, settings and variables, for the manual pages.
pub(crate) const FILES: &str = "\
Files:
  ~/.config/fairlock/config.toml       settings of the user
  /etc/fairlock/config.toml            settings of the host
  ~/.local/state/fairlock/locks.db     the store for this host, one for each user
  /var/lib/fairlock/UID/locks.db       the same, where root has made that folder
  ~ is the home in the user database, whatever HOME says.

Settings:
  url = \"redis://locks.example:6379\"
  password-file = \"/etc/fairlock/password\"
  scope = \"fleet\"
  label = \"web-1\"
  replicas = \"all\"
  java-fleet = true
  ttl = \"10s\"
  once-per = \"50m\"

Environment:
  FAIRLOCK_URL        the store, as --url; an empty one is an error
  FAIRLOCK_PASSWORD   its password
  FAIRLOCK_CONFIG     a configuration file instead of the two above, as --config
  NO_COLOR            no colours, whatever its value";

/// A selected store, not yet connected.
#[derive(Debug)]
pub(crate) struct StoreSelection {
    url: String,
    source: Source,
    /// The mode of the file that named the store, if others than its owner can read it.
    readable_by_others: Option<u32>,
    /// From the configuration that named the store.
    pub(crate) password_file: Option<PathBuf>,
    /// From the configuration.
    pub(crate) label: Option<String>,
    /// From the configuration; `None` for a store without replicas.
    pub(crate) replicas: Option<Replicas>,
    /// From the configuration; `None` for a store that Java cannot use.
    pub(crate) java_fleet: Option<bool>,
    /// From the configuration.
    pub(crate) ttl: Option<Duration>,
    /// From the configuration.
    pub(crate) once_per: Option<Duration>,
}

/// Where the store was named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Argument,
    Variable,
    File(PathBuf),
    /// Nowhere, these files included; and the file of the store.
    Default(Vec<PathBuf>, PathBuf),
}

impl StoreSelection {
    /// Selects the store. Reads files; creates none and uses no network.
    pub(crate) fn of(args: &options::Store) -> Result<Self, Failure> {
        let named = named(args.url.as_ref())?;
        let config = match &args.config {
            Some(path) => Some(path.clone()),
            None => {
                let instead = "name a file, /dev/null for none";
                variable(CONFIG_VAR, instead)?.map(PathBuf::from)
            }
        };
        let (files, looked_at, account) = match config {
            // The user database may be a remote server, so it is only queried if needed.
            Some(path) => (vec![Settings::load(&path)?], vec![path], None),
            None => {
                let account = Account::current();
                let (files, looked_at) = usual(account.as_ref().ok(), named.is_some())?;
                (files, looked_at, Some(account))
            }
        };
        let selection = decide(named, &files, || {
            let file = default_path::find(&account.unwrap_or_else(Account::current)?)?;
            let path = file.to_str().ok_or_else(|| {
                let path = message::printable(file.as_os_str());
                Failure::usage(format!("{path}: the home folder's name is not UTF-8; use --url"))
            })?;
            Ok((format!("sqlite:{}", encode(path)), Source::Default(looked_at, file)))
        })?;
        selection.demanded(args.scope, &files)?;
        Ok(selection)
    }

    /// The URL, including a password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Says who can read the password in the URL but should not, and what to do about it.
    pub(crate) fn password_warning(&self) -> Option<String> {
        if url::child_url(self.url.as_ref()) == ChildUrl::Unchanged {
            return None;
        }
        match (&self.source, self.readable_by_others) {
            (Source::Argument, _) => Some(format!(
                "every user of this host can see the password in --url; use --password-file or {PASSWORD_VAR}"
            )),
            (Source::File(path), Some(mode)) => Some(format!(
                "{}: others can read the password in `url` (mode {mode:03o}): chmod go-r, or keep it in a \
                 `password-file`",
                message::printable(path.as_os_str())
            )),
            _ => None,
        }
    }

    /// The failure for a URL that the library rejects: says which one, and where it was named. The library's own error
    /// repeats nothing of it.
    pub(crate) fn wrong(&self, error: &Error) -> Failure {
        let by = match &self.source {
            Source::Argument => "--url".to_owned(),
            Source::Variable => URL_VAR.to_owned(),
            Source::File(path) => format!("`url` in {}", message::printable(path.as_os_str())),
            Source::Default(..) => "the default store".to_owned(),
        };
        let code = Code::of(error.kind());
        let shown = message::printable(url::legible(&self.url).as_ref());
        // Most commands refuse `memory:`.
        let reason = error.to_string().replace("use `memory:`, ", "use ");
        Failure::new(code, format!("{by} is `{shown}`: {reason}"))
    }

    /// Whether this is the default store, and nobody has used a lock of it yet.
    pub(crate) fn is_unused_default(&self) -> bool {
        let Source::Default(_, file) = &self.source else { return false };
        fs::symlink_metadata(file).is_err_and(|error| trust::is_absent(&error))
    }

    /// Refuses a store whose locks exclude no other process.
    pub(crate) fn excludes_others(&self) -> Result<(), Failure> {
        match self.reach() {
            Reach::Process => Err(Failure::usage(format!(
                "{}: nobody else would be kept out; leave the URL out for the store of this host, or name a file or a \
                 server",
                self.explain()
            ))),
            _ => Ok(()),
        }
    }

    /// Whom its locks exclude.
    pub(crate) fn reach(&self) -> Reach {
        Reach::of(&self.url)
    }

    /// Whether the command line names it.
    pub(crate) fn is_from_argument(&self) -> bool {
        self.source == Source::Argument
    }

    /// The folder of the default store, which this program makes.
    pub(crate) fn default_folder(&self) -> Option<&Path> {
        match &self.source {
            Source::Default(_, file) => file.parent(),
            _ => None,
        }
    }

    /// For people: which store, whom its locks exclude, where it was named.
    pub(crate) fn explain(&self) -> String {
        let why = match &self.source {
            Source::Argument => "from --url".to_owned(),
            Source::Variable => format!("from {URL_VAR}"),
            Source::File(path) => format!("from {}", message::printable(path.as_os_str())),
            Source::Default(..) => "the default, one for each user".to_owned(),
        };
        format!("{}, {}; {why}", self.shown_url(), self.reach().describe())
    }

    /// For the default store: the places that could have named another one.
    pub(crate) fn why_default(&self) -> Option<String> {
        let Source::Default(files, _) = &self.source else { return None };
        let files = files.iter().map(|path| message::printable(path.as_os_str()));
        let files = files.collect::<Vec<_>>().join(" or ");
        Some(format!("no --url, no {URL_VAR}, and no url in {files}"))
    }

    /// As [`explain`](Self::explain), for programs.
    pub(crate) fn form(&self) -> Value {
        let file = match &self.source {
            Source::File(path) => Some(path.to_string_lossy()),
            _ => None,
        };
        json!({
            "url": self.shown_url(),
            "scope": match self.reach() {
                Reach::Process => "process",
                Reach::Host => "host",
                Reach::Fleet => "fleet",
            },
            "source": match self.source {
                Source::Argument => "argument",
                Source::Variable => "environment",
                Source::File(_) => "file",
                Source::Default(..) => "default",
            },
            "file": file,
        })
    }

    /// The URL without a password.
    pub(crate) fn shown_url(&self) -> String {
        match url::child_url(self.url.as_ref()) {
            ChildUrl::Unchanged => message::printable(self.url.as_ref()),
            ChildUrl::Stripped(clean) => message::printable(clean.as_ref()),
            ChildUrl::Removed => "(a URL with a password)".to_owned(),
        }
    }

    /// Refuses a store that excludes fewer than was demanded anywhere. A demand in a file guards against mistakes, and
    /// the likeliest mistake is a command line that does not repeat it.
    fn demanded(&self, argument: Option<Scope>, files: &[Settings]) -> Result<(), Failure> {
        let in_files = files.iter().filter_map(|file| {
            let path = message::printable(file.path.as_os_str());
            file.scope.map(|scope| (scope, format!("scope = \"{}\" in {path}", scope.name())))
        });
        let argument = argument.map(|scope| (scope, format!("--scope {}", scope.name())));
        let demands = argument.into_iter().chain(in_files);
        let broken = demands.filter(|(scope, _)| !self.satisfies(*scope));
        // Of several the greatest: a store that satisfies it satisfies all.
        match broken.min_by_key(|(scope, _)| Reverse(*scope)) {
            None => Ok(()),
            Some((scope, by)) => Err(Failure::usage(format!(
                "{by} asks for more than this store gives: {}; {}",
                self.explain(),
                match scope {
                    Scope::Host => {
                        "name a store that its users share, e.g. sqlite:/srv/locks/fairlock?shared=group in a folder \
                         of their group, or leave the demand out for the locks of one user"
                    }
                    Scope::Fleet => "name a server, e.g. redis://HOST",
                }
            ))),
        }
    }

    /// Every user has a default store of its own: two users who both demand `host` there would both get the lock. (Of
    /// another host store that is for one user, the others get an error.)
    fn satisfies(&self, scope: Scope) -> bool {
        self.reach().satisfies(scope) && !matches!(self.source, Source::Default(..))
    }
}

/// Selects from what was read; `default` is called last.
fn decide(
    named: Option<(String, Source)>,
    files: &[Settings],
    default: impl FnOnce() -> Result<(String, Source), Failure>,
) -> Result<StoreSelection, Failure> {
    let label = files.iter().find_map(|file| file.label.clone());
    let in_file = files.iter().enumerate().find_map(|(at, file)| Some((at, file.url.clone()?)));
    // A password is only sent to the server that it was written for: one named by the same file, or by a
    // more general one. It is never sent to a server that the command line or the environment names.
    let mut readable_by_others = None;
    let mut password_file = None;
    let (url, source) = match (named, in_file) {
        (Some(named), _) => named,
        (None, Some((at, url))) => {
            readable_by_others = files[at].readable_by_others;
            password_file = files[..=at].iter().find_map(|file| file.password_file.clone());
            (url, Source::File(files[at].path.clone()))
        }
        (None, None) => default()?,
    };
    let replicas = files.iter().find_map(|file| file.replicas);
    let of_servers = Reach::of(&url) == Reach::Fleet;
    let replicas = replicas.filter(|_| of_servers);
    let java_fleet = files.iter().find_map(|file| file.java_fleet).filter(|_| of_servers);
    let ttl = files.iter().find_map(|file| file.ttl);
    let once_per = files.iter().find_map(|file| file.once_per);
    Ok(StoreSelection {
        url,
        source,
        readable_by_others,
        password_file,
        label,
        replicas,
        java_fleet,
        ttl,
        once_per,
    })
}

/// The store that the command line or the environment names.
fn named(argument: Option<&OsString>) -> Result<Option<(String, Source)>, Failure> {
    let (url, source, name) = match argument {
        Some(url) => (url.clone(), Source::Argument, "--url"),
        None => match variable(URL_VAR, "name a store")? {
            Some(url) => (url, Source::Variable, URL_VAR),
            None => return Ok(None),
        },
    };
    let url = url.into_string().map_err(|_| Failure::usage(format!("{name} is not UTF-8")))?;
    Ok(Some((url, source)))
}

/// A variable that decides where the locks are. An empty one is more often a misspelt `NAME=$OTHER` than a wish for the
/// default, and a lock in another store than everybody else's excludes nobody.
fn variable(name: &str, instead: &str) -> Result<Option<OsString>, Failure> {
    match env::var_os(name) {
        Some(value) if value.is_empty() => Err(Failure::usage(format!(
            "{name} is empty, which does not say where the locks are; {instead}, or leave it out (`env -u {name}`)"
        ))),
        value => Ok(value),
    }
}

/// Encodes a path for a URL.
fn encode(path: &str) -> String {
    let special = |c: char| c.is_control() || matches!(c, '%' | '?' | '#' | ' ');
    path.chars().fold(String::with_capacity(path.len()), |mut url, c| {
        if special(c) {
            // Writing to a string cannot fail.
            let _ = c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|b| write!(url, "%{b:02X}"));
        } else {
            url.push(c);
        }
        url
    })
}

/// The user's and the system's file, as far as they exist, and every path that was tried.
fn usual(
    account: Option<&Account>,
    url_is_known: bool,
) -> Result<(Vec<Settings>, Vec<PathBuf>), Failure> {
    let home = account.and_then(|account| account.home.as_deref());
    let mut files = Vec::new();
    let mut looked_at = Vec::new();
    if let Some(home) = home {
        let path = home.join(USERS_FILE);
        match default_path::hidden(home) {
            None => files.extend(Settings::load_if_any(&path)?),
            Some(_) if url_is_known => {}
            // The user's other processes may see the file, and it may name the store.
            Some(reason) => {
                return Err(Failure::usage(format!(
                    "{}: the home {reason}; name the store with --url or FAIRLOCK_URL, or a \
                     configuration with --config or {CONFIG_VAR} (/dev/null: none)",
                    message::printable(home.as_os_str())
                )));
            }
        }
        looked_at.push(path);
    }
    let of_system = PathBuf::from(SYSTEMS_FILE);
    files.extend(Settings::load_if_any(&of_system)?);
    looked_at.push(of_system);
    Ok((files, looked_at))
}

/// Whom the locks of a store exclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Process,
    Host,
    Fleet,
}

impl Reach {
    /// Only the scheme counts: a server on 127.0.0.1 or a Unix socket may be the fleet's, or a proxy or a tunnel to it,
    /// and no client can tell. The library rejects unknown schemes.
    pub(super) fn of(url: &str) -> Self {
        let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
        if scheme.eq_ignore_ascii_case("memory") {
            Self::Process
        } else if scheme.eq_ignore_ascii_case("sqlite") {
            Self::Host
        } else {
            Self::Fleet
        }
    }

    fn satisfies(self, scope: Scope) -> bool {
        self >= match scope {
            Scope::Host => Self::Host,
            Scope::Fleet => Self::Fleet,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Process => "seen by one process only",
            Self::Host => "seen by this host only",
            Self::Fleet => "seen by all hosts that use it",
        }
    }
}

#[cfg(test)]
mod tests {
    use fairlock::Config;

    use super::*;

    const HOST: &str = "sqlite:/home/ann/.local/state/fairlock/locks.db";

    fn settings(path: &str, url: Option<&str>, password: Option<&str>) -> Settings {
        Settings {
            path: path.into(),
            url: url.map(str::to_owned),
            password_file: password.map(PathBuf::from),
            ..Settings::default()
        }
    }

    fn select(named: Option<(&str, Source)>, files: &[Settings]) -> StoreSelection {
        let named = named.map(|(url, source)| (url.to_owned(), source));
        decide(named, files, || {
            Ok((HOST.to_owned(), Source::Default(vec!["/c".into()], "/f".into())))
        })
        .unwrap()
    }

    #[test]
    fn command_line_then_environment_then_files_then_host() {
        let files =
            [settings("/user", Some("redis://u"), None), settings("/sys", Some("redis://s"), None)];
        for (named, files, explained) in [
            (
                Some(("redis://a", Source::Argument)),
                &files[..],
                "redis://a, seen by all hosts that use it; from --url",
            ),
            (
                Some(("redis://v", Source::Variable)),
                &files,
                "redis://v, seen by all hosts that use it; from FAIRLOCK_URL",
            ),
            (None, &files, "redis://u, seen by all hosts that use it; from /user"),
            (None, &files[1..], "redis://s, seen by all hosts that use it; from /sys"),
            (
                None,
                &[],
                "sqlite:/home/ann/.local/state/fairlock/locks.db, seen by this host only; the default, one for each user",
            ),
        ] {
            let selection = select(named, files);
            assert_eq!(selection.explain(), explained);
            assert_eq!(selection.why_default().is_some(), files.is_empty(), "{explained}");
        }
        let why = select(None, &[]).why_default();
        assert_eq!(why.as_deref(), Some("no --url, no FAIRLOCK_URL, and no url in /c"));
    }

    /// A password written for one server is not sent to another.
    #[test]
    fn passwords_stay_with_their_server() {
        let user = |url, password| settings("/user", url, password);
        let system = |url, password| settings("/sys", url, password);
        for (named, files, expected) in [
            (None, [user(Some("redis://u"), Some("/pu")), system(None, None)], Some("/pu")),
            (None, [user(None, Some("/pu")), system(Some("redis://s"), Some("/ps"))], Some("/pu")),
            (None, [user(None, None), system(Some("redis://s"), Some("/ps"))], Some("/ps")),
            (None, [user(Some("redis://u"), None), system(Some("redis://s"), Some("/ps"))], None),
            (None, [user(None, Some("/pu")), system(None, Some("/ps"))], None),
            (
                Some(("redis://a", Source::Variable)),
                [user(Some("redis://u"), Some("/pu")), system(None, Some("/ps"))],
                None,
            ),
        ] {
            let selection = select(named, &files);
            assert_eq!(selection.password_file, expected.map(PathBuf::from), "{files:?}");
        }
    }

    #[test]
    fn every_demand_counts() {
        let strict = Settings { scope: Some(Scope::Fleet), ..settings("/sys", None, None) };
        let none = settings("/user", None, None);
        let host = select(None, &[]);
        assert!(host.demanded(None, std::slice::from_ref(&none)).is_ok());
        let error = host.demanded(Some(Scope::Host), &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("--scope host asks ") && error.contains("one for each user; name a "),
            "{error}"
        );
        let named = select(Some((HOST, Source::Argument)), &[]);
        assert!(named.demanded(Some(Scope::Host), &[]).is_ok());
        let error = host.demanded(Some(Scope::Fleet), &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("--scope fleet asks ") && error.contains("this host only"),
            "{error}"
        );
        // A weaker demand on the command line does not undo it.
        let error = host.demanded(Some(Scope::Host), &[none, strict.clone()]).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("scope = \"fleet\" in /sys asks "), "{error}");
        let fleet = select(Some(("redis://a", Source::Argument)), &[]);
        assert!(fleet.demanded(Some(Scope::Fleet), &[strict]).is_ok());
    }

    #[test]
    fn no_password_is_shown() {
        for url in ["redis://u:CANARY@h", "redis://u:CAN/ARY@h", "unix:/s?pass=CANARY"] {
            let selection = select(Some((url, Source::Argument)), &[]);
            assert!(selection.password_warning().is_some());
            let shown = format!("{} {}", selection.explain(), selection.form());
            assert!(!shown.contains("CANARY") && !shown.contains("ARY@"), "{shown}");
            assert!(select(Some((url, Source::Variable)), &[]).password_warning().is_none());
        }
        assert!(select(Some(("redis://u@h", Source::Argument)), &[]).password_warning().is_none());
    }

    /// A file without a password may be readable by others.
    #[test]
    fn d33_a_password_that_others_can_read_in_a_file() {
        let file = |url: &str, mode| {
            let file = Settings { readable_by_others: mode, ..settings("/sys", Some(url), None) };
            select(None, &[file]).password_warning()
        };
        let told = file("redis://u:CANARY@h", Some(0o644)).unwrap();
        assert!(
            told.starts_with("/sys: others can read the password in `url` (mode 644)"),
            "{told}"
        );
        assert!(!told.contains("CANARY"), "{told}");
        assert_eq!(file("redis://u:CANARY@h", None), None);
        assert_eq!(file("redis://u@h", Some(0o644)), None);
    }

    #[test]
    fn a_home_with_an_odd_name() {
        assert_eq!(encode("/home/ann é/50%?#\n"), "/home/ann%20é/50%25%3F%23%0A");
        assert!(Config::from_url(&format!("sqlite:{}", encode("/a b/%41?#"))).is_ok());
    }

    #[test]
    fn reach_by_scheme() {
        for (url, host, fleet) in [
            ("memory:", false, false),
            ("MEMORY:", false, false),
            ("memory:tests", false, false),
            ("sqlite:/var/lib/locks", true, false),
            ("redis://127.0.0.1", true, true),
            ("valkey://h", true, true),
            ("unix:/run/redis.sock", true, true),
        ] {
            assert_eq!(Reach::of(url).satisfies(Scope::Host), host, "{url}");
            assert_eq!(Reach::of(url).satisfies(Scope::Fleet), fleet, "{url}");
        }
    }
}
