//! Configuration files: a few settings of a user or of a host.
//!
//! ```toml
//! url = "redis://locks.example:6379"
//! password-file = "/etc/fairlock/password"
//! scope = "fleet"
//! label = "web-1"
//! replicas = "all"
//! java-fleet = true
//! ttl = "10s"
//! once-per = "50m"
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock::Replicas;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::options::Scope;
use super::trust::{self, Refusal, is_absent};
use crate::base::duration;
use crate::base::exit::Failure;
use crate::base::message;

/// The settings of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The file's path.
    pub(super) path: PathBuf,
    /// The file's mode, if others than its owner can read it.
    pub(super) readable_by_others: Option<u32>,
    pub(super) url: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) scope: Option<Scope>,
    pub(super) label: Option<String>,
    pub(super) replicas: Option<Replicas>,
    pub(super) java_fleet: Option<bool>,
    /// Length of a renewed lease.
    pub(super) ttl: Option<Duration>,
    /// The time within which a run starts at most once.
    pub(super) once_per: Option<Duration>,
}

impl Settings {
    /// Reads the file, which must exist.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let read = trust::read(path).map_err(|refusal| refusal.about(path, "configuration"))?;
        Self::of(path, &read)
    }

    /// Reads the file; `None` if it does not exist.
    pub(super) fn load_if_any(path: &Path) -> Result<Option<Self>, Failure> {
        match trust::read(path) {
            Ok(read) => Self::of(path, &read).map(Some),
            Err(Refusal::Io(error)) if is_absent(&error) => Ok(None),
            Err(refusal) => Err(refusal.about(path, "configuration")),
        }
    }

    fn of(path: &Path, read: &trust::Read) -> Result<Self, Failure> {
        let settings = Self::parse(path, &read.text)?;
        Ok(Self { readable_by_others: read.readable_by_others, ..settings })
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let wrong = |span: Option<Range<usize>>, what: &str| {
            let file = message::printable(path.as_os_str());
            match span {
                Some(span) => Failure::usage(format!("{file}:{}: {what}", line(text, span.start))),
                None => Failure::usage(format!("{file}: {what}")),
            }
        };
        // The parser's messages say what was expected and never quote a value.
        let table = DeTable::parse(text).map_err(|error| wrong(error.span(), error.message()))?;
        let mut settings = Self { path: path.to_owned(), ..Self::default() };
        for (key, value) in table.get_ref() {
            let name: &str = key.get_ref();
            settings.set(name, value).map_err(|(at_value, what)| {
                let span = if at_value { value.span() } else { key.span() };
                wrong(Some(span), &what)
            })?;
        }
        Ok(settings)
    }

    /// Applies one setting. An error says whether it concerns the value, and what is wrong.
    fn set(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<(), (bool, String)> {
        let text = || match value.get_ref().as_str() {
            Some("") => Err((true, format!("`{name}` is empty"))),
            Some(text) => Ok(text.to_owned()),
            None => Err((true, format!("`{name}` is a text in quotes"))),
        };
        let time = |parse: fn(&str) -> Result<Duration, String>| {
            parse(&text()?).map_err(|what| (true, format!("`{name}`: {what}")))
        };
        match name {
            "url" => self.url = Some(text()?),
            "password-file" => {
                let file = PathBuf::from(text()?);
                // It is not clear what a relative path would be relative to.
                if !file.is_absolute() {
                    return Err((true, "`password-file` is an absolute path".to_owned()));
                }
                self.password_file = Some(file);
            }
            "scope" => {
                self.scope = Some(match text()?.as_str() {
                    "host" => Scope::Host,
                    "fleet" => Scope::Fleet,
                    _ => return Err((true, "`scope` is \"host\" or \"fleet\"".to_owned())),
                });
            }
            "label" => self.label = Some(text()?),
            "replicas" => {
                let known =
                    "`replicas` is \"all\", \"any\", \"none\" or a number in quotes, at most 100";
                let count = text()?.parse().map_err(|_| (true, known.to_owned()))?;
                self.replicas = Some(count);
            }
            "java-fleet" => {
                let yes = value.get_ref().as_bool();
                let known = "`java-fleet` is true or false, without quotes";
                self.java_fleet = Some(yes.ok_or_else(|| (true, known.to_owned()))?);
            }
            "ttl" => self.ttl = Some(time(duration::parse_ttl)?),
            "once-per" => self.once_per = Some(time(duration::parse_positive)?),
            _ => {
                let name = message::printable(name.as_ref());
                let known = "there are url, password-file, scope, label, replicas, java-fleet, ttl and once-per";
                return Err((false, format!("unknown setting `{name}`; {known}")));
            }
        }
        Ok(())
    }
}

/// The number of the line that contains the byte.
fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(Path::new("/c.toml"), text).map_err(|failure| failure.to_string())
    }

    #[test]
    fn all_settings() {
        let text = "# ours\nurl = \"redis://h\"\npassword-file = '/p'\nscope = \"fleet\"\nlabel = \"a b\"\nreplicas = \"2\"\njava-fleet = true\nttl = \"10s\"\nonce-per = \"50m\"\n";
        let settings = parse(text).unwrap();
        assert_eq!(settings.url.as_deref(), Some("redis://h"));
        assert_eq!(settings.password_file.as_deref(), Some(Path::new("/p")));
        assert_eq!((settings.scope, settings.label.as_deref()), (Some(Scope::Fleet), Some("a b")));
        assert_eq!(settings.replicas, Some(Replicas::AtLeast(2)));
        assert_eq!(settings.java_fleet, Some(true));
        let times = (Some(Duration::from_secs(10)), Some(Duration::from_secs(50 * 60)));
        assert_eq!((settings.ttl, settings.once_per), times);
        assert_eq!(parse("").unwrap(), Settings { path: "/c.toml".into(), ..Settings::default() });
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, error) in [
            ("url = \"a\"\nurll = \"b\"\n", "/c.toml:2: unknown setting `urll`; there are url"),
            ("\n\nscope = \"galaxy\"", "/c.toml:3: `scope` is \"host\" or \"fleet\""),
            ("ttl = \"0\"", "/c.toml:1: `ttl`: must be longer than 0"),
            ("ttl = \"200ms\"", "/c.toml:1: `ttl`: must be 300ms or longer"),
            ("ttl = \"10\"", "/c.toml:1: `ttl`: the unit is missing"),
            ("once-per = \"1w\"", "/c.toml:1: `once-per`: the unit must be"),
            ("ttl = 10", "/c.toml:1: `ttl` is a text"),
            ("replicas = \"most\"", "/c.toml:1: `replicas` is \"all\""),
            ("java-fleet = \"yes\"", "/c.toml:1: `java-fleet` is true or false"),
            ("url = 5", "/c.toml:1: `url` is a text"),
            ("url = \"\"", "/c.toml:1: `url` is empty"),
            ("password-file = \"p\"", "/c.toml:1: `password-file` is an absolute path"),
            ("[store]\nurl = \"a\"", "/c.toml:1: unknown setting `store`"),
            ("store.url = \"a\"", "/c.toml:1: unknown setting `store`"),
            ("url = \"a\"\nurl = \"b\"", "/c.toml:2: duplicate key"),
            ("\nurl = redis://h", "/c.toml:2: "),
            ("\"a\\u001b\" = 1", "/c.toml:1: unknown setting `a\\u{1b}`"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.starts_with(error), "{text:?}: {message}");
        }
    }

    #[test]
    fn errors_show_no_password() {
        for text in [
            "url = redis://u:CANARY@h",
            "url = \"redis://u:CANARY@h",
            "url = \"redis://u:CANARY@h\" x",
            "url \"redis://u:CANARY@h\"",
            "label = \"a\" url = \"redis://u:CANARY@h\"",
        ] {
            let message = parse(text).unwrap_err();
            assert!(!message.contains("CANARY"), "{text}: {message}");
        }
    }
}
