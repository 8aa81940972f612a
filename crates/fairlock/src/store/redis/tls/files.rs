//! Certificates and keys in files. Messages name the file, never its contents.

use crate::base::error::{Error, ErrorKind};
use crate::settings::config::TlsSettings;
use crate::store::StoreError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Largest file that is read: the CAs of a whole machine have 200 to 300 KiB.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The settings of a connection, from the current contents of the files.
pub(super) fn read(files: &TlsSettings) -> Result<ClientConfig, StoreError> {
    let roots = match &files.ca {
        Some(path) => own_roots(path)?,
        None => roots_of_machine()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(format!("ring and rustls do not fit: {error}")))?
        .with_root_certificates(roots);
    let (Some(cert), Some(key)) = (&files.cert, &files.key) else {
        return Ok(config.with_no_client_auth());
    };
    let chain = certificates(cert, "certificate file")?;
    let secret = private_key(key)?;
    config.with_client_auth_cert(chain, secret).map_err(|error| {
        let (cert, key) = (cert.display(), key.display());
        failed(match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "the key in `{key}` does not belong to the certificate in `{cert}`; the first \
                 certificate in that file must be the client's own"
            ),
            rustls::Error::InvalidCertificate(_) => {
                format!("`{cert}` begins with a certificate that cannot be used")
            }
            _ => format!(
                "the key in `{key}` is of a kind that cannot be used; use RSA from 2048 \
                          bits on, ECDSA P-256 or P-384, or Ed25519"
            ),
        })
    })
}

fn own_roots(path: &Path) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for (number, certificate) in certificates(path, "CA file")?.into_iter().enumerate() {
        roots.add(certificate).map_err(|_| {
            failed(format!(
                "certificate {} in the CA file `{}` is damaged",
                number + 1,
                path.display()
            ))
        })?;
    }
    Ok(roots)
}

fn roots_of_machine() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(failed(
            "this machine trusts no CA, so that no server can be verified: install its package \
             of CAs (`ca-certificates`), or name the file of the server's CA (`ca=` in the URL, \
             `Config::tls_ca`)"
                .into(),
        ));
    }
    Ok(roots)
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let text = bytes(path, what)?;
    // A parser's message may repeat the text.
    let read: Option<Vec<_>> = CertificateDer::pem_slice_iter(&text).map(Result::ok).collect();
    read.filter(|certificates| !certificates.is_empty()).ok_or_else(|| {
        failed(format!(
            "the {what} `{}` holds no certificate in PEM form (`-----BEGIN CERTIFICATE-----`), or \
             a damaged one",
            path.display()
        ))
    })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, StoreError> {
    let text = bytes(path, "key file")?;
    // A parser's message may repeat the text.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        failed(format!(
            "the key file `{}` holds no private key in PEM form (`-----BEGIN PRIVATE KEY-----`), or \
             a damaged one; a key with a passphrase must be decrypted first",
            path.display()
        ))
    })
}

fn bytes(path: &Path, what: &str) -> Result<Vec<u8>, StoreError> {
    let at = path.display();
    let file = File::open(path).map_err(|error| failed(format!("{what} `{at}`: {error}")))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(format!("{what} `{at}`: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("the {what} `{at}` has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn failed(message: String) -> StoreError {
    StoreError::refused(Error::new(ErrorKind::Tls, message))
}
