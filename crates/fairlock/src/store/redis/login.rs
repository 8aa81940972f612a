//! The login of a connection: user, password and database, updated before each connection.

use super::aside::{Aside, Failed};
use super::classify::text;
use super::wire::{CallError, Value};
use crate::base::clock::lock;
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::Config;
use crate::settings::credentials::{Credentials, Found, Password, Secret, no_login};
use crate::settings::server_checks::{Check, Reaction, Warning};
use crate::store::StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The beginning of a connection.
#[derive(Clone)]
pub(crate) struct Logon {
    /// User and password.
    pub(super) credentials: Option<(String, Secret)>,
    pub(super) database: u32,
    pub(super) needless: Needless,
}

/// Whether the server asks for no password though one is given, and what to do then.
#[derive(Clone)]
pub(crate) struct Needless {
    reaction: Reaction,
    found: Arc<AtomicBool>,
}

impl Needless {
    /// Whether to ask with this login. A server says it only to `AUTH PASSWORD`, which is about the user `default`;
    /// with a user's name every password is right.
    pub(super) fn is_asked(&self, user: &str) -> bool {
        self.reaction != Reaction::Ignore && user == "default"
    }

    /// Notes the server's reply to `AUTH PASSWORD`.
    ///
    /// # Errors
    /// Such a server must not be used.
    pub(super) fn note(&self, reply: Result<Value, CallError>) -> Result<(), CallError> {
        let told = reply.err().filter(|error| text(error).contains(WITHOUT_PASSWORD));
        self.found.store(told.is_some(), Ordering::Relaxed);
        match told {
            Some(error) if self.reaction == Reaction::Refuse => Err(error),
            _ => Ok(()),
        }
    }
}

/// Part of the server's reply to `AUTH PASSWORD` if it asks for none.
pub(super) const WITHOUT_PASSWORD: &str = "without any password configured";

/// Where logins come from.
pub(crate) struct Login {
    username: Option<String>,
    password: Password,
    database: u32,
    /// Asks one file or callback at a time: if one hangs, it costs one thread, not one for each
    /// attempt to connect.
    looks: Arc<Aside>,
    /// How long asking may take.
    patience: Duration,
    /// The password that was sent last. It is never shown, whatever the other side answers.
    last: Mutex<Option<Secret>>,
    /// How to react to a file that others can read.
    on_exposed: Reaction,
    /// The problem with the last one, if it was used anyway.
    warning: Mutex<Option<Warning>>,
    needless: Needless,
}

impl Login {
    fn new(config: &Config, user: Option<&String>, password: &Password, database: u32) -> Self {
        Self {
            username: user.cloned(),
            password: password.clone(),
            database,
            looks: Aside::new("fairlock-login", 1),
            // The other half is for the connection itself.
            patience: config.connect_timeout / 2,
            last: Mutex::default(),
            on_exposed: config.on.to(Check::PasswordFile),
            warning: Mutex::default(),
            needless: Needless { reaction: config.on.to(Check::Password), found: Arc::default() },
        }
    }

    /// For the servers that keep the locks.
    pub(crate) fn of_servers(config: &Config) -> Self {
        Self::new(config, config.username.as_ref(), &config.password, config.database)
    }

    /// For the Sentinels.
    pub(crate) fn of_sentinels(config: &Config) -> Self {
        Self::new(config, config.sentinel_username.as_ref(), &config.sentinel_password, 0)
    }

    /// The current login.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`]; the next attempt may find a password.
    pub(crate) async fn now(&self) -> Result<Logon, StoreError> {
        let found = if self.password.may_change() {
            let late = |_| Err(no_login("who is asked for it has not answered in time".into()));
            tokio::time::timeout(self.patience, self.ask()).await.unwrap_or_else(late)
        } else {
            self.password.read(self.username.as_ref())
        };
        // The problem may be fixed before the next attempt.
        let passing = |error| StoreError { error, doubt: false, passing: true };
        let Found { login: found, exposed } = found.map_err(passing)?;
        self.look_at(exposed).map_err(passing)?;
        let credentials = found.map(|Credentials { username, password }| {
            *lock(&self.last) = Some(password.clone());
            (username.unwrap_or_else(|| "default".into()), password)
        });
        Ok(Logon { credentials, database: self.database, needless: self.needless.clone() })
    }

    fn look_at(&self, exposed: Option<String>) -> Result<(), Error> {
        let warning = match (exposed, self.on_exposed) {
            (Some(how), Reaction::Refuse) => {
                let name = Check::PasswordFile.name();
                let message = format!("{how}; `on-{name}=warn` in the URL uses it all the same");
                return Err(Error::new(ErrorKind::Denied, message));
            }
            (Some(how), Reaction::Warn) => Some(Warning::new(Check::PasswordFile, how)),
            _ => None,
        };
        *lock(&self.warning) = warning;
        Ok(())
    }

    /// The problems with the last login, if it was used anyway.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let needless = self.needless.found.load(Ordering::Relaxed).then(|| {
            let message = "a password is given, but the server asks for none: whoever reaches it can use all locks; \
                           set one on the server (`requirepass`, or `ACL SETUSER default`), or give none here";
            Warning::new(Check::Password, message)
        });
        lock(&self.warning).iter().cloned().chain(needless).collect()
    }

    /// Classifies a failure to log in. A refusal passes if the next login may be another one: the
    /// server's password may have been changed before the file's.
    pub(crate) fn judge(&self, failure: StoreError) -> StoreError {
        let is_login = failure.error.kind() == ErrorKind::Denied;
        let passing = failure.passing || is_login && self.password.may_change();
        let last = lock(&self.last).clone();
        let error = match last {
            Some(Secret(password)) => failure.error.without(&password),
            None => failure.error,
        };
        StoreError { error, passing, ..failure }
    }

    /// Asks on a thread of its own: files and callbacks may block, and heartbeats continue
    /// meanwhile.
    async fn ask(&self) -> Result<Found, Error> {
        let (username, password) = (self.username.clone(), self.password.clone());
        let found = self.looks.run(move || password.read(username.as_ref())).await;
        found.unwrap_or_else(|failed| {
            Err(no_login(match failed {
                Failed::NoThread(error) => format!("no thread to ask for it: {error}"),
                Failed::Panicked => "the callback panicked".into(),
            }))
        })
    }
}
