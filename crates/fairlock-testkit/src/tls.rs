//! Certificates, made while a test runs: CAs, and what they sign.
//!
//! Validity is relative to now, so that an expired certificate has expired on any day.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::tempdir::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// A CA.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, both as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub enum Age {
    /// From yesterday to tomorrow.
    Valid,
    /// Until yesterday.
    Expired,
    /// From tomorrow on.
    NotYet,
}

/// The use of a certificate.
#[derive(Clone, Copy, Debug)]
pub enum Use {
    /// By a server.
    Server,
    /// By a client.
    Client,
    /// By both: the nodes of a Cluster present theirs to each other.
    Both,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// A CA with this name.
    ///
    /// # Panics
    ///
    /// If there is no randomness.
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[], Age::Valid);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = key();
        let pem = params.self_signed(&key).expect("parameters of our own").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Signs a certificate for `names`, which may be IP addresses.
    ///
    /// # Panics
    ///
    /// If a name is invalid.
    pub fn issue(&self, names: &[&str], usage: Use, age: Age) -> Issued {
        let params = leaf(names, usage, age);
        let key = key();
        let cert = params.signed_by(&key, &self.issuer).expect("parameters of our own");
        Issued { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A certificate for a server at 127.0.0.1 and `localhost`.
    pub fn server(&self) -> Issued {
        self.issue(&["127.0.0.1", "localhost"], Use::Server, Age::Valid)
    }

    /// A certificate for a client.
    pub fn client(&self) -> Issued {
        self.issue(&["client"], Use::Client, Age::Valid)
    }
}

/// A certificate signed only by its own key.
///
/// # Panics
///
/// If a name is invalid.
pub fn self_signed(names: &[&str]) -> Issued {
    let key = key();
    let cert = leaf(names, Use::Server, Age::Valid).self_signed(&key);
    Issued { cert: cert.expect("parameters of our own").pem(), key: key.serialize_pem() }
}

fn leaf(names: &[&str], usage: Use, age: Age) -> CertificateParams {
    let mut params = params(names[0], names, age);
    let (of_server, of_client) =
        (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    params.extended_key_usages = match usage {
        Use::Server => vec![of_server],
        Use::Client => vec![of_client],
        Use::Both => vec![of_server, of_client],
    };
    params
}

fn params(common_name: &str, names: &[&str], age: Age) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    let (from, to) = match age {
        Age::Valid => (now - DAY, now + DAY),
        Age::Expired => (now - 3 * DAY, now - DAY),
        Age::NotYet => (now + DAY, now + 3 * DAY),
    };
    (params.not_before, params.not_after) = (from.into(), to.into());
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("randomness")
}

/// The identity of a server or a client: three files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The CAs that it trusts.
    pub ca: PathBuf,
    /// Its certificate.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

/// Files of a TLS server or client, in a folder that is removed with its owner.
#[derive(Debug, Default)]
pub struct Files {
    dir: TempDir,
}

impl Files {
    /// Writes a file, replacing an older one.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("the folder is ours");
        path
    }

    /// Writes a certificate, its key, and the CA whose certificates its owner trusts.
    ///
    /// # Panics
    ///
    /// If they cannot be written.
    pub fn identity(&self, name: &str, issued: &Issued, trusts: &Ca) -> Identity {
        Identity {
            ca: self.put(&format!("{name}.ca"), trusts.pem()),
            cert: self.put(&format!("{name}.crt"), &issued.cert),
            key: self.put(&format!("{name}.key"), &issued.key),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
