//! Certificates, made when a test runs: CAs, and what they sign.
//!
//! Ages are relative to now, so that what has expired has expired whatever the day.

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

/// A certificate with its key, both in PEM form.
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

/// What a certificate is for.
#[derive(Clone, Copy, Debug)]
pub enum Use {
    /// To be shown by a server.
    Server,
    /// To be shown by a client.
    Client,
    /// Both: the nodes of a Cluster show theirs to each other.
    Both,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// A CA of that name.
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
    /// If a name is none.
    pub fn issue(&self, names: &[&str], usage: Use, age: Age) -> Issued {
        let params = leaf(names, usage, age);
        let key = key();
        let cert = params.signed_by(&key, &self.issuer).expect("parameters of our own");
        Issued { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A certificate of a server at 127.0.0.1 and `localhost`.
    pub fn server(&self) -> Issued {
        self.issue(&["127.0.0.1", "localhost"], Use::Server, Age::Valid)
    }

    /// A certificate of a client.
    pub fn client(&self) -> Issued {
        self.issue(&["client"], Use::Client, Age::Valid)
    }
}

/// A certificate that nobody but its owner has signed.
///
/// # Panics
///
/// If a name is none.
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

/// What a server, or a client, proves who it is with: three files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The CAs that it trusts.
    pub ca: PathBuf,
    /// Its certificate.
    pub cert: PathBuf,
    /// The key of that.
    pub key: PathBuf,
}

/// Files of a server with TLS, or of a client, in a folder that goes away with its owner.
#[derive(Debug, Default)]
pub struct Files {
    dir: TempDir,
}

impl Files {
    /// Writes a file, in place of an older one.
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
