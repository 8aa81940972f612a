//! Where a login comes from: given once, or looked up before each connection, so that a password
//! may change while the client lives.

use crate::base::error::{Error, ErrorKind};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file with a password, in bytes: tokens of identity services have a few thousand.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A password: never printed.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A login for [`Config::password_from`](crate::Config::password_from): a password, and optionally
/// its user. Its `Debug` form hides the password.
///
/// ```
/// let login = fairlock::Credentials::new("secret").username("ann");
/// assert!(!format!("{login:?}").contains("secret"));
/// ```
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: Secret,
}

impl Credentials {
    /// Creates a login with only a password. The user is that of
    /// [`Config::username`](crate::Config::username), else the server's default user.
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: Secret(password.into()) }
    }

    /// Sets the user to whom the password belongs.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.username = Some(name.into());
        self
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Ask = dyn Fn() -> Result<Credentials, Failure> + Send + Sync;

/// The result of looking up a login.
pub(crate) struct Found {
    pub(crate) login: Option<Credentials>,
    /// Who else can read the password.
    pub(crate) exposed: Option<String>,
}

/// A password, or where to find it.
#[derive(Clone, Default)]
pub(crate) enum Password {
    #[default]
    None,
    Given(Secret),
    /// A file with one line.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
    /// A callback of the application. It runs on a thread of its own, so a panic ends only that
    /// thread.
    Callback(Arc<AssertUnwindSafe<Box<Ask>>>),
}

impl Password {
    pub(crate) fn from<E: Into<Failure>>(
        ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> Self {
        Self::Callback(Arc::new(AssertUnwindSafe(Box::new(move || ask().map_err(Into::into)))))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns whether the next look-up may find a different password.
    pub(crate) fn may_change(&self) -> bool {
        !matches!(self, Self::None | Self::Given(_))
    }

    /// Checks what can be checked before it is needed; `what` names the setting.
    pub(crate) fn check(&self, what: &str) -> Result<(), Error> {
        match self {
            // A relative path would mean a different file in every folder.
            Self::File(path) if !path.is_absolute() => {
                Err(Error::misuse(format!("the path of {what}_file must be absolute")))
            }
            Self::Variable(name) if name.is_empty() || name.contains(['=', '\0']) => Err(
                Error::misuse(format!("{what}_env must be the name of an environment variable")),
            ),
            _ => Ok(()),
        }
    }

    /// Looks up the current login. May block on a file, or for as long as the application's
    /// callback does.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if the password cannot be read.
    pub(crate) fn read(&self, username: Option<&String>) -> Result<Found, Error> {
        let user = |password| Found {
            login: Some(Credentials { username: username.cloned(), password }),
            exposed: None,
        };
        match self {
            Self::None => Ok(Found { login: None, exposed: None }),
            Self::Given(password) => Ok(user(password.clone())),
            Self::File(path) => {
                let what = |problem: &dyn fmt::Display| {
                    no_login(format!("the password file `{}` {problem}", path.display()))
                };
                let (text, exposed) = read_file(path).map_err(|problem| what(&problem))?;
                let found = user(Secret(one_line(&text).map_err(|problem| what(&problem))?));
                let exposed =
                    exposed.map(|how| format!("the password file `{}` {how}", path.display()));
                Ok(Found { exposed, ..found })
            }
            Self::Variable(name) => {
                let what = |problem| no_login(format!("the variable `{name}` {problem}"));
                let text = std::env::var(name).map_err(|error| {
                    // The error's own text contains the value.
                    what(match error {
                        std::env::VarError::NotPresent => "is not set",
                        std::env::VarError::NotUnicode(_) => "is not UTF-8",
                    })
                })?;
                Ok(user(Secret(one_line(&text).map_err(what)?)))
            }
            Self::Callback(ask) => match (ask.0)() {
                Ok(mut login) => {
                    login.username = login.username.or_else(|| username.cloned());
                    Ok(Found { login: Some(login), exposed: None })
                }
                Err(failure) => Err(no_login(format!("the callback says: {failure}"))),
            },
        }
    }
}

/// Makes the error of a client that has no password to log in with.
pub(crate) fn no_login(why: String) -> Error {
    Error::new(ErrorKind::Denied, format!("no password to log in with: {why}"))
}

/// Reads the text, and finds out who else can read it.
fn read_file(path: &Path) -> Result<(String, Option<String>), String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    #[cfg(all(unix, feature = "redis"))]
    let exposed = crate::settings::file_permissions::of(&file);
    #[cfg(not(all(unix, feature = "redis")))]
    let exposed = None;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is longer than {FILE_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok((text, exposed))
}

/// Removes one newline at the end; further ones are more likely a mistake than a part of the
/// password.
fn one_line(text: &str) -> Result<String, &'static str> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err("is empty");
    }
    if line.contains('\n') {
        return Err("has more than one line");
    }
    Ok(line.to_owned())
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Given(secret) => secret.fmt(f),
            Self::File(path) => write!(f, "file {path:?}"),
            Self::Variable(name) => write!(f, "variable {name:?}"),
            Self::Callback(_) => f.write_str("callback"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        for (text, expected) in [
            ("secret", Ok("secret")),
            ("secret\n", Ok("secret")),
            ("secret\r\n", Ok("secret")),
            (" s p ", Ok(" s p ")),
            ("", Err("is empty")),
            ("\n", Err("is empty")),
            ("a\n\n", Err("has more than one line")),
            ("a\nb", Err("has more than one line")),
        ] {
            assert_eq!(one_line(text), expected.map(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn a_callbacks_user_goes_before_the_configured_one() {
        let configured = "conf".to_owned();
        let user = |login: fn() -> Credentials| {
            let password = Password::from(move || Ok::<_, String>(login()));
            password.read(Some(&configured)).unwrap().login.unwrap().username
        };
        assert_eq!(user(|| Credentials::new("p")).as_deref(), Some("conf"));
        assert_eq!(user(|| Credentials::new("p").username("own")).as_deref(), Some("own"));
    }
}
