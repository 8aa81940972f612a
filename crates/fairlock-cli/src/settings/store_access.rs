//! What a process needs to connect to a store: also another one, which has neither the options nor the environment.

use std::env;
use std::fmt;
use std::path::PathBuf;

use fairlock::{Config, Error};
use serde_json::{Value, json};

use super::secrets::{PasswordSource, end_of_line_cut};
use super::store_selection::Reach;
use crate::base::url;

/// The store's URL, and the logins that are not in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct StoreAccess {
    pub(crate) url: String,
    pub(crate) password: Option<PasswordSource>,
    /// From a variable that the URL names.
    pub(crate) sentinel_password: Option<String>,
}

impl StoreAccess {
    /// Whom the store's locks exclude.
    pub(crate) fn reach(&self) -> Reach {
        Reach::of(&self.url)
    }

    /// Adds the logins to the configuration that the URL gives.
    pub(crate) fn log_in(&self, mut config: Config) -> Config {
        if let Some(password) = &self.password {
            config = password.clone().add_to(config);
        }
        if let Some(password) = &self.sentinel_password {
            config = config.sentinel_password(password);
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
            Some(end_of_line_cut(&text).to_owned())
        };
        let password = || value("password-env").map(PasswordSource::Given);
        self.password = self.password.or_else(password);
        self.sentinel_password = value("sentinel-password-env");
        self
    }

    /// As JSON. It holds passwords, and must reach nobody but that process.
    pub(crate) fn to_json(&self) -> Value {
        let password = match &self.password {
            None => Value::Null,
            Some(PasswordSource::Given(text)) => json!({ "given": text }),
            // A path that is not UTF-8 is left out: the login fails, and the lease ends the hold.
            Some(PasswordSource::File(path)) => json!({ "file": path.to_str() }),
        };
        json!({
            "url": self.url,
            "password": password,
            "sentinel_password": self.sentinel_password,
        })
    }

    /// Reads [`to_json`](Self::to_json).
    pub(crate) fn of_json(json: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let password = &json["password"];
        let file = || text(&password["file"]).map(|path| PasswordSource::File(PathBuf::from(path)));
        Some(Self {
            url: text(&json["url"])?,
            password: text(&password["given"]).map(PasswordSource::Given).or_else(file),
            sentinel_password: text(&json["sentinel_password"]),
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
                password,
                sentinel_password: Some("a \"b\"\n\u{1}é".into()),
            };
            let line = access.to_json().to_string();
            assert!(!line.contains('\n'), "one line: {line}");
            assert_eq!(StoreAccess::of_json(&line.parse().unwrap()), Some(access));
        }
        assert_eq!(StoreAccess::of_json(&json!({})), None);
    }
}
