//! The connection to the store.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use fairlock::{Client, Config, Error, ErrorKind, Lock, Replicas};
use tokio::time;

use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::settings::options::{self, Kind};
use crate::settings::secrets;
use crate::settings::store_selection::{Logins, Reach, StoreSelection};

/// How long the end of the program may take to take back what is still in the queue. The library
/// repeats a leave until it is answered; a store that is gone will drop us by itself in seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an unreachable store is tried, as the library does for whoever is connected already.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection gets this long at least, however short the wait.
const LEAST: Duration = Duration::from_secs(2);

/// What an error of the library may take to arrive.
const LATER: Duration = Duration::from_millis(100);

/// People at a terminal are told when the first connection takes longer.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// A store that was asked for and is allowed, not yet connected.
#[derive(Debug)]
pub(crate) struct Store {
    selection: StoreSelection,
    config: Config,
    /// Where the password for the servers comes from.
    password_from: String,
    /// For how long a first connection is tried again.
    retry: Duration,
}

impl Store {
    /// Decides on the store; no network here, and nothing is made.
    pub(crate) fn resolve(args: &options::Store) -> Result<Self, Failure> {
        let selection = StoreSelection::of(args)?;
        // The name is for the server's operator, who finds it in CLIENT LIST.
        let config = Config::from_url(selection.url()).map_err(|error| selection.wrong(&error))?;
        let mut config = config.client_name("fairlock");
        // Locks of this host need no password; one for a server may stand in the environment.
        let Logins { password_file, sentinel_username, sentinel_password_file } = &selection.logins;
        let files = [args.password_file.as_deref(), password_file.as_deref()];
        let password_from = secrets::source(&secrets::OF_SERVERS, files);
        if selection.reach() == Reach::Fleet || args.password_file.is_some() {
            config = secrets::with_password(config, &secrets::OF_SERVERS, files)?;
        }
        // Variables that are set for other stores do no harm; who gives an option means this one.
        if selection.has_sentinels() {
            let names =
                [args.sentinel_username.as_deref(), sentinel_username.as_deref().map(OsStr::new)];
            config = secrets::with_sentinel_username(config, names)?;
            let files = [args.sentinel_password_file.as_deref(), sentinel_password_file.as_deref()];
            config = secrets::with_password(config, &secrets::OF_SENTINELS, files)?;
        } else if args.sentinel_username.is_some() || args.sentinel_password_file.is_some() {
            return Err(Failure::usage(format!(
                "--sentinel-username and --sentinel-password-file are for stores behind Sentinels \
                 (redis+sentinel://), not for {}",
                selection.shown_url()
            )));
        }
        Ok(Self { selection, config, password_from, retry: Duration::ZERO })
    }

    /// Which store it is, and why.
    pub(crate) fn selection(&self) -> &StoreSelection {
        &self.selection
    }

    /// For a command that is to be run by one process at a time: a store of this process alone is refused.
    pub(crate) fn of_several_processes(self) -> Result<Self, Failure> {
        self.selection.excludes_others()?;
        Ok(self)
    }

    /// Tells people at a terminal what may surprise them.
    pub(crate) fn warn(&self, quiet: bool) {
        if quiet || !io::stderr().is_terminal() {
            return;
        }
        if let Some(exposed) = self.selection.exposed() {
            message::report(&exposed);
        }
        if self.selection.reach() == Reach::Process {
            message::report("memory: locks nobody out but this process; it is for trying things");
        }
    }

    /// A store that does not answer yet is tried for as long as somebody waits anyway, within the library's bound
    /// for an unreachable store: a failover and a restart are a part of the wait. `None`: for ever.
    pub(crate) fn waited_for(mut self, wait: Option<Duration>) -> Self {
        self.retry = wait.map_or(STORE_TIMEOUT, |wait| wait.min(STORE_TIMEOUT));
        self.config = self.config.connect_retry(self.retry);
        self
    }

    /// For who only looks. A store that is not there is said to be missing, and not made.
    pub(crate) fn looked_at(mut self) -> Self {
        self.config = self.config.create(false);
        self.silent()
    }

    /// The client is not shown to others: it neither holds nor waits.
    pub(crate) fn silent(mut self) -> Self {
        self.config = self.config.announce(false);
        self
    }

    /// A store that does not answer is given up after this time, instead of the library's half minute.
    pub(crate) fn patience(mut self, time: Duration) -> Self {
        self.config = self.config.store_timeout(time);
        self
    }

    /// The lock is handed on only when the command is gone, too, whatever becomes of us.
    pub(crate) fn kept_by_children(mut self) -> Self {
        self.config = self.config.children_keep_alive(true);
        self
    }

    /// Locks count when so many replicas have them.
    pub(crate) fn replicas(mut self, replicas: Replicas) -> Self {
        self.config = self.config.replicas(replicas);
        self
    }

    /// Java clients use the same names: asked for by the option, else by the configuration, else by the URL.
    pub(crate) fn java_fleet(mut self, asked: bool) -> Result<Self, Failure> {
        if asked && self.selection.reach() != Reach::Fleet {
            let url = self.selection.shown_url();
            return Err(Failure::usage(format!(
                "--java-fleet is for servers that Java clients use as well, not for {url}"
            )));
        }
        if let Some(yes) = asked.then_some(true).or(self.selection.java_fleet) {
            self.config = self.config.java_fleet(yes);
        }
        Ok(self)
    }

    /// What the client is called where others look at its locks.
    pub(crate) fn label(mut self, label: &str) -> Self {
        self.config = self.config.label(label);
        self
    }

    /// Locks without a lease of their own are renewed every third of this one.
    pub(crate) fn watchdog_lease(mut self, lease: Duration) -> Self {
        self.config = self.config.watchdog_lease(lease);
        self
    }

    /// Connects, and tells people at a terminal what the server lacks. Scripts hear nothing: their success
    /// is silent.
    pub(crate) async fn connect(self, quiet: bool) -> Result<Client, Failure> {
        let noticed = async {
            time::sleep(NOTICE_AFTER).await;
            if self.retry > NOTICE_AFTER && !quiet && io::stderr().is_terminal() {
                let (shown, retry) = (self.selection.shown_url(), duration::human(self.retry));
                message::report(&format!("{shown} does not answer yet; trying for {retry}"));
            }
            std::future::pending::<std::convert::Infallible>().await
        };
        let late = async {
            match self.retry {
                Duration::ZERO => std::future::pending().await,
                // The library's own error tells more, and comes first where there is one.
                retry => time::sleep(retry.max(LEAST) + LATER).await,
            }
        };
        let client = tokio::select! {
            biased;
            client = Client::with_config(self.config) => {
                client.map_err(|error| refused(&error, &self.password_from))?
            }
            () = late => {
                let (shown, retry) = (self.selection.shown_url(), duration::human(self.retry));
                let text = format!("{shown} did not answer within {retry}; check the server and the network");
                return Err(Failure::new(Code::UNAVAILABLE, text));
            }
            never = noticed => match never {},
        };
        if !quiet && io::stderr().is_terminal() {
            for warning in client.warnings() {
                message::report(&format!("{}: {warning}", self.selection.shown_url()));
            }
        }
        Ok(client)
    }
}

/// A client that was not let in is told how to say who it is.
fn refused(error: &Error, password_from: &str) -> Failure {
    let text = error.to_string();
    let advice = match error.kind() {
        ErrorKind::Denied if text.contains("(NOAUTH)") => {
            let of = if text.contains("Sentinel") { "sentinel-password" } else { "password" };
            let variable = of.to_ascii_uppercase().replace('-', "_");
            format!(
                ", with --{of}-file FILE, FAIRLOCK_{variable}, or `{of}-file` in a configuration file"
            )
        }
        // Those of the Sentinels have one of their own.
        ErrorKind::Denied if text.contains("(WRONGPASS)") && !text.contains("Sentinel") => {
            format!("; the password is from {password_from}")
        }
        _ => String::new(),
    };
    Failure::new(Code::of(error.kind()), text + &advice)
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
