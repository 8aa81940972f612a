//! The store of one command: how this command uses it (whether it waits, or only looks), connecting to it, with advice if
//! that fails, and leaving it at the end of the program.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use fairlock::{Client, Config, ConnectionState, Error, ErrorKind, Replicas};
use tokio::time;

use crate::base::clock;
use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::url;
use crate::settings::default_path;
use crate::settings::options;
use crate::settings::secrets;
use crate::settings::store_access::StoreAccess;
use crate::settings::store_selection::{Reach, StoreSelection};

/// How long leaving the queue may take at the end of the program. The library repeats a leave until it is
/// answered; a store that cannot be reached drops this client by itself within seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The same for a store that is silent already: its chance to be back in this moment.
const SILENT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an unreachable store is tried. The library does the same for a client that is connected.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Shortest time limit for an answer of the store, however short the wait: a machine under load, or a server that is far
/// away, takes that long.
pub(crate) const ANSWER_MIN: Duration = Duration::from_secs(1);

/// How much later an error of the library may arrive.
const LATER: Duration = Duration::from_millis(100);

/// After this time a notice on the terminal, or of a verbose command, says that the first connection is still being
/// tried.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// The same for a log, where a short interruption is no news: as for the first line of a wait.
const NOTICE_IN_LOG_AFTER: Duration = Duration::from_secs(10);

/// A store that may be used, not yet connected.
#[derive(Debug)]
pub(crate) struct Store {
    selection: StoreSelection,
    access: StoreAccess,
    config: Config,
    /// The source of the password for the servers.
    password_from: String,
    /// How long a first connection is retried.
    retry: Duration,
    /// Warnings and notices are written without a terminal, too.
    verbose: bool,
    /// An empty store stands for the default one, which does not exist.
    is_unused: bool,
    /// A store that does not exist is made.
    creates: bool,
}

/// The store that was asked, for people who did not name it themselves. "Nobody holds it" may mean that the locks are in
/// another store: the jobs have `FAIRLOCK_URL`, and the shell that looks for them has not.
pub(crate) struct Asked(Option<String>);

impl Asked {
    /// The store, if somebody at a terminal may not have it in mind: it was not named on the command line.
    pub(crate) fn store(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Says where nothing was found.
    pub(crate) fn found_nothing(&self) {
        if let Some(store) = &self.0 {
            message::report(&format!("looked in {store}"));
        }
    }
}

impl Store {
    /// Selects the store. Uses no network and creates nothing.
    pub(crate) fn resolve(args: &options::Store) -> Result<Self, Failure> {
        let selection = StoreSelection::of(args)?;
        // The name is for the server's operator, who sees it in CLIENT LIST.
        let config = Config::from_url(selection.url()).map_err(|error| selection.wrong(&error))?;
        let mut access = StoreAccess { url: selection.url().to_owned(), ..StoreAccess::default() };
        // Locks of this host need no password, even if the environment has one for a server.
        let files = [args.password_file.as_deref(), selection.password_file.as_deref()];
        // What is typed comes before what the environment has for all stores.
        let is_in_url = args.password_file.is_none()
            && selection.is_from_argument()
            && url::names_password(selection.url());
        let password_from = match is_in_url {
            true => "--url".to_owned(),
            false => secrets::source(files),
        };
        if (selection.reach() == Reach::Fleet || args.password_file.is_some()) && !is_in_url {
            access.password = secrets::password(files)?;
        }
        Ok(Self {
            selection,
            config: access.log_in(config.client_name("fairlock")),
            access,
            password_from,
            retry: Duration::ZERO,
            verbose: false,
            is_unused: false,
            creates: true,
        })
    }

    /// Which store was selected, and why.
    pub(crate) fn selection(&self) -> &StoreSelection {
        &self.selection
    }

    /// What another process needs to use it.
    pub(crate) fn access(&self) -> StoreAccess {
        self.access.clone()
    }

    /// For a command that only one process may run at a time. Refuses a store that only this process sees.
    pub(crate) fn of_several_processes(self) -> Result<Self, Failure> {
        self.selection.excludes_others()?;
        Ok(self)
    }

    /// Writes warnings and notices also where there is no terminal: somebody has asked for them.
    pub(crate) fn verbose(mut self, verbose: bool) -> Self {
        self.verbose = verbose;
        self
    }

    /// Whether warnings are written. Not into logs, unless asked for: cron sends a mail for every line, and a warning
    /// about a server would come with every start of every job, until whoever gets them silences the errors as well.
    fn warns(&self, quiet: bool) -> bool {
        !quiet && (self.verbose || io::stderr().is_terminal())
    }

    /// Warns people at a terminal of what may surprise them.
    pub(crate) fn warn(&self, quiet: bool) {
        if !self.warns(quiet) {
            return;
        }
        if let Some(warning) = self.selection.password_warning() {
            message::report(&warning);
        }
        if self.selection.reach() == Reach::Process {
            message::report("memory: locks nobody out but this process; it is for trying things");
        }
    }

    /// Which store is asked, to be said beside an answer of "nothing".
    pub(crate) fn asked(&self, quiet: bool) -> Asked {
        let told = !quiet && io::stderr().is_terminal() && !self.selection.is_from_argument();
        Asked(told.then(|| self.selection.explain()))
    }

    /// Retries a store that does not answer yet for as long as the command waits (`None`: for ever), within the
    /// library's bound for an unreachable store. So a failover or a restart is part of the wait.
    pub(crate) fn waited_for(mut self, wait: Option<Duration>) -> Self {
        self.retry = wait.map_or(STORE_TIMEOUT, |wait| wait.min(STORE_TIMEOUT));
        self.config = self.config.connect_retry(self.retry);
        self
    }

    /// For commands that look, once or until a lock is free. A store that does not exist is reported as missing instead of
    /// being created, unless nobody named it: then no lock is in use.
    pub(crate) fn looked_at(mut self) -> Self {
        self.is_unused = self.selection.is_unused_default();
        if self.is_unused {
            self.config = Config::memory();
            return self.silent();
        }
        self.watched()
    }

    /// For commands that look again and again, until they are ended.
    pub(crate) fn watched(mut self) -> Self {
        self.config = self.config.create(false);
        self.creates = false;
        self.silent()
    }

    /// Does not publish the client to others: it neither holds nor waits.
    pub(crate) fn silent(mut self) -> Self {
        self.config = self.config.announce(false);
        self
    }

    /// Gives up on a store that does not answer after this time, instead of the library's half minute.
    #[cfg(feature = "top")]
    pub(crate) fn patience(mut self, time: Duration) -> Self {
        self.config = self.config.store_timeout(time);
        self
    }

    /// Hands the lock on only when the command is gone as well, whatever happens to this process.
    pub(crate) fn kept_by_children(mut self) -> Self {
        self.config = self.config.children_keep_alive(true);
        self
    }

    /// Requires that so many replicas have a lock.
    pub(crate) fn replicas(mut self, replicas: Replicas) -> Self {
        self.config = self.config.replicas(replicas);
        self
    }

    /// Whether Java clients use the same names: according to the option, else the configuration, else the URL.
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

    /// The name of the client where others look at its locks.
    pub(crate) fn label(mut self, label: &str) -> Self {
        self.config = self.config.label(label);
        self
    }

    /// Locks without a lease of their own get this one, renewed every third of it.
    pub(crate) fn watchdog_lease(mut self, lease: Duration) -> Self {
        self.config = self.config.watchdog_lease(lease);
        self
    }

    /// Connects, and warns people at a terminal of what the server lacks. For scripts, success is
    /// silent.
    pub(crate) async fn connect(self, quiet: bool) -> Result<Client, Failure> {
        if self.is_unused && !quiet {
            let url = self.selection.shown_url();
            message::report(&format!(
                "this user has used no lock on this host yet: there is no {url}"
            ));
        }
        if let Some(folder) =
            self.selection.default_folder().filter(|_| self.creates && !self.is_unused)
        {
            default_path::make(folder)?;
        }
        let warns = self.warns(quiet);
        let began = clock::now();
        let noticed = async {
            let after = if warns { NOTICE_AFTER } else { NOTICE_IN_LOG_AFTER };
            time::sleep(after).await;
            if self.retry > after && !quiet {
                let (shown, retry) = (self.selection.shown_url(), duration::human(self.retry));
                message::report(&format!("{shown} does not answer yet; trying for {retry}"));
            }
            std::future::pending::<std::convert::Infallible>().await
        };
        let late = async {
            match self.retry {
                Duration::ZERO => std::future::pending().await,
                // The library's own error says more, and comes first if there is one.
                retry => time::sleep(retry.max(ANSWER_MIN) + LATER).await,
            }
        };
        let client = tokio::select! {
            biased;
            client = Client::with_config(self.config) => {
                client.map_err(|error| refused(&error, &self.password_from, clock::now() - began))?
            }
            () = late => {
                let (shown, retry) = (self.selection.shown_url(), duration::human(self.retry));
                let tls = match url::is_encrypted(self.selection.url()) {
                    true => "; does it speak TLS on this port? A server without TLS may never answer (`redis://` is for those)",
                    false => "",
                };
                let text = format!("{shown} did not answer within {retry}; check the server and the network{tls}");
                return Err(Failure::new(Code::UNAVAILABLE, text));
            }
            never = noticed => match never {},
        };
        if warns {
            for warning in client.warnings() {
                message::report(&format!("{}: {warning}", self.selection.shown_url()));
            }
        }
        Ok(client)
    }
}

/// The failure of a connection; one that was denied says how to authenticate, and one that was tried again for how long.
fn refused(error: &Error, password_from: &str, tried: Duration) -> Failure {
    let text = error.to_string();
    let advice = match error.kind() {
        ErrorKind::Denied if text.contains("(NOAUTH)") && text.contains("Sentinel") => {
            ", with `sentinel-password-file=FILE` in the URL".to_owned()
        }
        ErrorKind::Denied if text.contains("(NOAUTH)") => {
            ", with --password-file FILE, FAIRLOCK_PASSWORD, or `password-file` in a configuration file".to_owned()
        }
        // The error of a Sentinel has its own advice.
        ErrorKind::Denied if text.contains("(WRONGPASS)") && !text.contains("Sentinel") => {
            format!("; the password is from {password_from}")
        }
        ErrorKind::Unavailable if tried >= NOTICE_AFTER => {
            format!("; tried for {}", duration::human(tried))
        }
        _ => String::new(),
    };
    Failure::new(Code::of(error.kind()), text + &advice)
}

/// Ends the connection. A leave or a release that is under way gets a bounded time to finish.
pub(crate) async fn shutdown(client: Client) {
    let is_silent = *client.connection().borrow() == ConnectionState::Reconnecting;
    let limit = if is_silent { SILENT_TIMEOUT } else { SHUTDOWN_TIMEOUT };
    let _ = time::timeout(limit, client.shutdown()).await;
}

/// As [`shutdown`], after `result`. If the store was silent until the wait ended, the library's own second at the end of
/// the main thread is enough.
pub(crate) async fn shutdown_after<T>(client: Client, result: &Result<T, Failure>) {
    let is_silent = result.as_ref().is_err_and(|failure| failure.code() == Code::UNAVAILABLE);
    if is_silent {
        let _ = time::timeout(Duration::ZERO, client.shutdown()).await;
    } else {
        shutdown(client).await;
    }
}
