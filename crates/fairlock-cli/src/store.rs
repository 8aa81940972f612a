//! Which store the locks are in, and the connection to it.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use fairlock::{Client, Config, Lock};
use tokio::time;

use crate::args::{self, Kind, Scope};
use crate::exit::Failure;
use crate::secrets::{self, URL_VAR};

/// How long the end of the program may take to take back what is still in the queue. The library
/// repeats a leave until it is answered; a store that is gone will drop us by itself in seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A store that was asked for and is allowed, not yet connected.
#[derive(Debug)]
pub(crate) struct Store {
    config: Config,
    /// Whether it excludes nobody outside this process.
    private: bool,
}

impl Store {
    /// Decides on the store; no network here.
    pub(crate) fn resolve(args: &args::Store) -> Result<Self, Failure> {
        let url = url(args.url.as_ref())?;
        let reach = Reach::of(&url);
        if let Some(scope) = args.scope
            && !reach.satisfies(scope)
        {
            return Err(Failure::usage(format!(
                "--scope {}: locks of this store are {}",
                match scope {
                    Scope::Host => "host",
                    Scope::Fleet => "fleet",
                },
                reach.describe(),
            )));
        }
        // The name is for the server's operator, who finds it in CLIENT LIST.
        let mut config = Config::from_url(&url)?.client_name("fairlock");
        if let Some(password) = secrets::password(args.password_file.as_deref())? {
            config = config.password(password);
        }
        Ok(Self { config, private: reach == Reach::Process })
    }

    /// Whether the locks of this store mean nothing outside this process.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    /// The client is not shown to others: it neither holds nor waits.
    pub(crate) fn silent(mut self) -> Self {
        self.config = self.config.announce(false);
        self
    }

    /// What the client is called where others look at its locks.
    pub(crate) fn label(mut self, label: &str) -> Self {
        self.config = self.config.label(label);
        self
    }

    pub(crate) async fn connect(self) -> Result<Client, Failure> {
        Ok(Client::with_config(self.config).await?)
    }
}

/// The handle for the kind of lock asked for.
pub(crate) fn lock(client: &Client, kind: Kind, name: &[u8]) -> Lock {
    match kind {
        Kind::Fair => client.fair_lock(name),
        Kind::Plain => client.plain_lock(name),
        Kind::Simple => client.simple_lock(name),
    }
}

/// Ends the connection; what is under way (a leave, a release) gets a bounded time to finish.
pub(crate) async fn shutdown(client: Client) {
    let _ = time::timeout(SHUTDOWN_TIMEOUT, client.shutdown()).await;
}

fn url(argument: Option<&OsString>) -> Result<String, Failure> {
    let (source, url) = match (argument, env::var_os(URL_VAR)) {
        (Some(url), _) => ("--url", url.clone()),
        // An empty variable is how shells spell "not set".
        (None, Some(url)) if !url.is_empty() => (URL_VAR, url),
        (None, _) => {
            return Err(Failure::usage(format!(
                "no lock server given; use --url or {URL_VAR}, e.g. --url redis://127.0.0.1:6379"
            )));
        }
    };
    url.into_string().map_err(|_| Failure::usage(format!("{source} is not UTF-8")))
}

/// Whom the locks of a store exclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Process,
    Host,
    Fleet,
}

impl Reach {
    /// By the scheme alone: a server on 127.0.0.1 may be a tunnel to the fleet's. A scheme that is
    /// unknown here is left to the library to refuse.
    fn of(url: &str) -> Self {
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
            Self::Fleet => "seen by the whole fleet",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_by_scheme() {
        for (url, host, fleet) in [
            ("memory:", false, false),
            ("MEMORY:", false, false),
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
