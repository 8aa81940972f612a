//! Settings of encrypted connections.

use super::{Address, Config};
use crate::base::error::Error;
use std::path::{Path, PathBuf};

/// How encrypted connections are made. By default with the machine's CAs, no client certificate,
/// and the host's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
}

impl Config {
    /// Encrypts all connections with TLS, and talks to no server whose certificate cannot be
    /// verified. Nothing is sent before that, and there is no fallback to plain text. Needs the
    /// feature `tls`. Default: true for URLs with `rediss` or `valkeys`, else false.
    ///
    /// ```
    /// let config = fairlock::Config::tcp("locks.example", 6380)
    ///     .tls(true)
    ///     .tls_ca("/etc/fairlock/ca.pem");
    /// ```
    #[must_use]
    pub fn tls(mut self, yes: bool) -> Self {
        self.tls = yes.then(|| self.tls.unwrap_or_default());
        self
    }

    /// The file with the CA that signed the servers' certificates, in PEM form; it may contain
    /// several. Only these are then trusted. Like the other TLS files, it is read whenever a
    /// connection is made, and its path must be absolute. Turns TLS on. Default: the URL's, else
    /// the CAs that the machine trusts.
    #[must_use]
    pub fn tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.set_tls(|tls| tls.ca = Some(file.into()));
        self
    }

    /// The file with the client's certificate in PEM form, followed by those of any CAs between it
    /// and the one that the servers trust. Requires [`tls_key`](Self::tls_key). Turns TLS on.
    /// Default: the URL's, else none.
    #[must_use]
    pub fn tls_cert(mut self, file: impl Into<PathBuf>) -> Self {
        self.set_tls(|tls| tls.cert = Some(file.into()));
        self
    }

    /// The file with the private key for [`tls_cert`](Self::tls_cert), in PEM form and without a
    /// passphrase. Turns TLS on. Default: the URL's, else none.
    #[must_use]
    pub fn tls_key(mut self, file: impl Into<PathBuf>) -> Self {
        self.set_tls(|tls| tls.key = Some(file.into()));
        self
    }

    /// The name, or IP address, that the servers' certificates must be valid for; a name is also
    /// sent to the servers (SNI). For servers that are reached by a name other than their own, for
    /// example through a tunnel, and for Sentinel sets in which all servers' certificates share one
    /// name. Turns TLS on. Default: the URL's, else each server's own host.
    #[must_use]
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.set_tls(|tls| tls.server_name = Some(name.into()));
        self
    }

    pub(crate) fn set_tls(&mut self, change: impl FnOnce(&mut TlsSettings)) {
        change(self.tls.get_or_insert_default());
    }

    /// Checks these settings against each other and against the store.
    pub(super) fn check_tls(&self) -> Result<(), Error> {
        let Some(tls) = &self.tls else { return Ok(()) };
        if !matches!(self.address, Address::Tcp { .. } | Address::Sentinel(_) | Address::Cluster(_))
        {
            return Err(Error::misuse(
                "TLS is for servers that are reached by TCP; this store needs none",
            ));
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err(Error::misuse(
                "a client certificate and its key go together: set both `cert` and `key` \
                 (`tls_cert` and `tls_key`), or neither",
            ));
        }
        let files = [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)];
        let relative = |path: &PathBuf| !Path::is_absolute(path);
        if let Some((name, _)) = files.iter().find(|(_, path)| path.as_ref().is_some_and(relative))
        {
            return Err(Error::misuse(format!(
                "the path of the file `{name}` must be absolute: it is read again later, whatever \
                 folder the program is in by then"
            )));
        }
        Ok(())
    }
}
