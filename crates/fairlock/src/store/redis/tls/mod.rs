//! TLS: a verified, encrypted stream to a server, before anything else is sent to it.
//!
//! Each configuration names its cryptography provider. Asking rustls for the process's default
//! would panic in a program that has two compiled in.

mod explain;
mod files;

use super::aside::Aside;
use super::tapped::{Listener, Tapped};
use crate::base::error::Error;
use crate::settings::config::TlsSettings;
use crate::store::StoreError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How encrypted connections are made.
pub(crate) struct Tls {
    files: TlsSettings,
    /// Reads the files.
    reads: Arc<Aside>,
}

impl Tls {
    pub(crate) fn new(files: TlsSettings) -> Self {
        Self { files, reads: Aside::new("fairlock-tls", 1) }
    }

    /// Encrypts a stream on which nothing was sent. Files are read each time, so that the next
    /// connection has a certificate that was replaced since the last one.
    pub(super) async fn over(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<(Stream, Ends), StoreError> {
        let wanted = self.files.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(wanted.to_owned()).map_err(|_| {
            let message = format!(
                "`{}` is no name that a certificate can have; set the one that the server's \
                 certificate has (`server-name=` in the URL, `Config::tls_server_name`)",
                wanted.escape_debug()
            );
            StoreError::refused(Error::misuse(message))
        })?;
        let files = self.files.clone();
        let read = self.reads.run(move || files::read(&files)).await;
        let config: ClientConfig = read.map_err(|failed| {
            StoreError::unavailable(format!("the files of TLS were not read: {failed}"), false)
        })??;
        let ends = Ends {
            heard: Arc::default(),
            name: wanted.to_owned(),
            own_ca: self.files.ca.is_some(),
            certificate: self.files.cert.is_some(),
        };
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => Ok((Tapped::new(stream, Reason(Arc::clone(&ends.heard))), ends)),
            Err(error) => Err(ends.of_handshake(&error)),
        }
    }
}

/// What is needed to explain why there is no connection.
pub(super) struct Ends {
    heard: Arc<OnceLock<rustls::Error>>,
    /// The name whose certificate was expected.
    name: String,
    own_ca: bool,
    /// Whether the client shows one of its own.
    certificate: bool,
}

/// An encrypted stream that remembers how TLS ended it.
pub(super) type Stream = Tapped<TlsStream<TcpStream>, Reason>;

/// How TLS ended a stream: with TLS 1.3 a server refuses the client's certificate only after the handshake.
pub(super) struct Reason(Arc<OnceLock<rustls::Error>>);

impl Listener for Reason {
    fn heard(&mut self, read: io::Result<&[u8]>) -> io::Result<()> {
        if let Some(error) = read.as_ref().err().and_then(explain::of_tls) {
            // The first error is the reason.
            let _ = self.0.set(error.clone());
        }
        read.map(drop)
    }
}
