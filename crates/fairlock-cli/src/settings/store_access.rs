//! What a process needs to connect to a store: also another one, which has neither the options nor the environment.

use std::env;
use std::fmt;
use std::path::PathBuf;

use fairlock::{Config, Error};
use serde_json::{Value, json};

use super::secrets::{OF_SENTINELS, OF_SERVERS, PasswordSource, end_of_line_cut};
use super::store_selection::Reach;
use crate::base::url;

/// The store's URL, and the logins that are not in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct StoreAccess {
    pub(crate) url: String,
    pub(crate) password: Option<PasswordSource>,
    pub(crate) sentinel_username: Option<String>,
    pub(crate) sentinel_password: Option<PasswordSource>,
}

impl StoreAccess {
    /// Whom the store's locks exclude.
    pub(crate) fn reach(&self) -> Reach {
        Reach::of(&self.url)
    }

    /// Adds the logins to the configuration that the URL gives.
    pub(crate) fn log_in(&self, mut config: Config) -> Config {
        if let Some(password) = &self.password {
            config = password.clone().add_to(config, &OF_SERVERS);
        }
        if let Some(name) = &self.sentinel_username {
            config = config.sentinel_username(name);
        }
        if let Some(password) = &self.sentinel_password {
            config = password.clone().add_to(config, &OF_SENTINELS);
        }
        config
    }

    /// The configuration of a client.
    ///
    /// # Errors
    /// The URL's.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        Ok(self.log_in(Config::from_url(&self.url)?))
    }

    /// For a process with another environment: variables that the URL names are replaced by their values.
    pub(crate) fn without_variables(mut self) -> Self {
        let value = |parameter| {
            let text = env::var(url::variable(&self.url, parameter)?).ok()?;
            Some(PasswordSource::Given(end_of_line_cut(&text).to_owned()))
        };
        let (password, sentinel) = (value("password-env"), value("sentinel-password-env"));
        self.password = self.password.or(password);
        self.sentinel_password = self.sentinel_password.or(sentinel);
        self
    }

    /// As JSON. It holds passwords, and must reach nobody but that process.
    pub(crate) fn to_json(&self) -> Value {
        let password = |source: &Option<PasswordSource>| match source {
            None => Value::Null,
            Some(PasswordSource::Given(text)) => json!({ "given": text }),
            // A path that is not UTF-8 is left out: the login fails, and the lease ends the hold.
            Some(PasswordSource::File(path)) => json!({ "file": path.to_str() }),
        };
        json!({
            "url": self.url,
            "password": password(&self.password),
            "sentinel_username": self.sentinel_username,
            "sentinel_password": password(&self.sentinel_password),
        })
    }

    /// Reads [`to_json`](Self::to_json).
    pub(crate) fn of_json(json: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let password = |value: &Value| {
            let file =
                || text(&value["file"]).map(|path| PasswordSource::File(PathBuf::from(path)));
            text(&value["given"]).map(PasswordSource::Given).or_else(file)
        };
        Some(Self {
            url: text(&json["url"])?,
            password: password(&json["password"]),
            sentinel_username: text(&json["sentinel_username"]),
            sentinel_password: password(&json["sentinel_password"]),
        })
    }
}

/// Without the passwords.
impl fmt::Debug for StoreAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAccess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_passes_through_json_unchanged() {
        for password in [
            None,
            Some(PasswordSource::Given("a \"b\"\n\u{1}é".into())),
            Some(PasswordSource::File("/run/secrets/é".into())),
        ] {
            let access = StoreAccess {
                url: "rediss://u@host/2?tls-ca=/ca.pem".into(),
                password: password.clone(),
                sentinel_username: Some("ann".into()),
                sentinel_password: password,
            };
            let line = access.to_json().to_string();
            assert!(!line.contains('\n'), "one line: {line}");
            assert_eq!(StoreAccess::of_json(&line.parse().unwrap()), Some(access));
        }
        assert_eq!(StoreAccess::of_json(&json!({})), None);
    }
}
