//! Passwords: where they come from, and how they are kept from the command.
//!
//! Every user of the host can see a password in a URL on the command line for as long as `fairlock`
//! runs. Hence the other sources.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{self, Path, PathBuf};

use fairlock::Config;

use super::trust;
use crate::base::exit::Failure;
use crate::base::message;
use crate::base::url::{ChildUrl, child_url};

/// Environment variable with the URL of the store.
pub(super) const URL_VAR: &str = "FAIRLOCK_URL";
/// Environment variable with the password for the servers.
pub(super) const PASSWORD_VAR: &str = "FAIRLOCK_PASSWORD";

/// A password, or the file from which it is read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum PasswordSource {
    Given(String),
    File(PathBuf),
}

/// Without the password.
impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given"),
            Self::File(path) => write!(f, "File({path:?})"),
        }
    }
}

impl PasswordSource {
    pub(super) fn add_to(self, config: Config) -> Config {
        match self {
            Self::Given(password) => config.password(password),
            Self::File(path) => config.password_file(path),
        }
    }
}

/// Finds the password: in the file on the command line, else in the environment, else in the file in the configuration.
/// Without any of these, the password in the URL stays. (One in a URL on the command line comes before the environment:
/// the caller does not ask here.)
pub(crate) fn password(
    [argument, configured]: [Option<&Path>; 2],
) -> Result<Option<PasswordSource>, Failure> {
    match (argument, env::var_os(PASSWORD_VAR), configured) {
        (Some(path), ..) | (None, None, Some(path)) => of_file(path).map(Some),
        (None, Some(value), _) => match value.into_string() {
            // A newline at the end more likely comes from a file with one line than belongs to the password.
            Ok(text) => match end_of_line_cut(&text) {
                line if line.contains('\n') => {
                    Err(Failure::usage(format!("{PASSWORD_VAR} has more than one line")))
                }
                line => Ok(Some(PasswordSource::Given(line.to_owned()))),
            },
            Err(_) => Err(Failure::usage(format!("{PASSWORD_VAR} is not UTF-8"))),
        },
        (None, None, None) => Ok(None),
    }
}

/// The source of the password, for people.
pub(crate) fn source([argument, configured]: [Option<&Path>; 2]) -> String {
    let shown = |path: &Path| message::printable(path.as_os_str());
    match (argument, env::var_os(PASSWORD_VAR), configured) {
        (Some(path), ..) | (None, None, Some(path)) => shown(path),
        (None, Some(_), _) => PASSWORD_VAR.to_owned(),
        (None, None, None) => "the URL".to_owned(),
    }
}

/// The file is read now, to refuse an unusable one early, and again by the library before each connection, so that a
/// password can change in the file and on the server while the lock is held. A pipe can be read only once.
fn of_file(path: &Path) -> Result<PasswordSource, Failure> {
    let password = in_file(path)?;
    if !path.is_file() {
        return Ok(PasswordSource::Given(password));
    }
    let path = path::absolute(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(PasswordSource::File(path))
}

fn in_file(path: &Path) -> Result<String, Failure> {
    let text = trust::read(path).map_err(|refusal| refusal.about(path, "password"))?.text;
    let line = end_of_line_cut(&text);
    if line.is_empty() || line.contains('\n') {
        return Err(Failure::usage(format!("{}: not one line with a password", path.display())));
    }
    Ok(line.to_owned())
}

/// Removes the newline at the end. Further newlines are more likely a mistake than part of a password.
pub(super) fn end_of_line_cut(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Changes to the environment, name and new value, that keep secrets from a child. `variables` hold passwords as
/// well.
pub(crate) fn child_environment(variables: &[String]) -> Vec<(&str, Option<OsString>)> {
    let mut changes = vec![(PASSWORD_VAR, None)];
    changes.extend(variables.iter().map(|name| (name.as_str(), None)));
    if let Some(url) = env::var_os(URL_VAR) {
        match child_url(&url) {
            ChildUrl::Unchanged => {}
            ChildUrl::Stripped(clean) => changes.push((URL_VAR, Some(clean.into()))),
            ChildUrl::Removed => changes.push((URL_VAR, None)),
        }
    }
    changes
}
