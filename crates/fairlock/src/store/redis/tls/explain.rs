//! Explains why TLS ended, and what to do about it.

use super::super::classify::{classify, text};
use super::super::wire::CallError;
use super::Ends;
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription as Alert, CertificateError as Bad};
use std::io;

/// How many names of a certificate a message repeats at most.
const NAMES_SHOWN: usize = 4;

/// Longest part of a foreign text that a message repeats, in characters.
const SHOWN_CHARS: usize = 64;

/// The TLS error inside an error of its stream.
pub(super) fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

impl Ends {
    /// Why the handshake failed.
    pub(super) fn of_handshake(&self, error: &io::Error) -> StoreError {
        match of_tls(error) {
            Some(error) => self.of_tls(error),
            // The server may be starting, or full.
            None => StoreError::unavailable(
                format!(
                    "the connection ended during the TLS handshake ({error}): the server is busy or \
                     ending, or it is no server of TLS (for one without it the scheme is `redis://`)"
                ),
                false,
            ),
        }
    }

    /// Why the first commands failed.
    pub(in crate::store::redis) fn of_login(&self, error: CallError) -> StoreError {
        if let Some(error) = self.heard.get() {
            return self.of_tls(error);
        }
        if !error.is_connection_dropped() {
            return StoreError { doubt: false, ..classify(&error) };
        }
        let said = text(&error);
        // What the server says about a certificate may be lost with the connection.
        let certificate = if self.certificate {
            "does it not accept the client certificate"
        } else {
            "does it want a client certificate (`cert=` and `key=`)"
        };
        let message = format!(
            "the server closed the connection right after the TLS handshake ({said}): {certificate}, \
             or has it no connection left (`maxclients`)?"
        );
        let failure = StoreError::unavailable(message, false);
        StoreError { error: failure.error.quoting(&said), ..failure }
    }

    fn of_tls(&self, error: &rustls::Error) -> StoreError {
        use rustls::Error::{
            AlertReceived, InvalidCertificate, InvalidMessage, NoCertificatesPresented,
            PeerIncompatible,
        };
        match error {
            InvalidCertificate(bad) => self.server_is_not_trusted(bad),
            NoCertificatesPresented => refused("the server showed no certificate".into()),
            AlertReceived(alert) => self.server_refuses(*alert),
            PeerIncompatible(_) => refused(format!(
                "the server has no version of TLS, cipher or signature in common with this client, \
                 which needs TLS 1.2 or 1.3 ({error}); see the server's `tls-protocols`, \
                 `tls-ciphers` and `tls-ciphersuites`"
            )),
            InvalidMessage(_) => refused(format!(
                "what answers does not speak TLS ({error}); use the port of the server that does \
                 (`tls-port`), or `redis://` for a server without it"
            )),
            _ => refused(format!("the TLS handshake failed: {error}")),
        }
    }

    fn server_is_not_trusted(&self, bad: &Bad) -> StoreError {
        let name = shown(&self.name);
        refused(match bad {
            Bad::UnknownIssuer => self.unknown_issuer(),
            Bad::Expired => "the server's certificate has expired; renew it".into(),
            Bad::ExpiredContext { time, not_after } => format!(
                "the server's certificate has expired {} ago by this machine's clock; renew it",
                span(*not_after, *time)
            ),
            Bad::NotValidYet => {
                "the server's certificate is not valid yet; check this machine's clock".into()
            }
            Bad::NotValidYetContext { time, not_before } => format!(
                "the server's certificate is valid only in {} by this machine's clock; check the \
                 clock, or wait",
                span(*time, *not_before)
            ),
            Bad::NotValidForName => format!(
                "the server's certificate is not for `{name}`; connect to a name that it has, or say \
                 which one it has (`server-name=` in the URL, `Config::tls_server_name`)"
            ),
            Bad::NotValidForNameContext { presented, .. } => format!(
                "the server's certificate is not for `{name}` but for {}; connect to a name that it \
                 has, or say which one it has (`server-name=` in the URL, `Config::tls_server_name`)",
                names(presented)
            ),
            Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
                "the server's certificate is not for servers (its extended key usage has no \
                 `serverAuth`); give the server one that is"
                    .into()
            }
            Bad::Revoked => "the server's certificate was revoked; renew it".into(),
            // The one case without a variant of its own: a CA's own certificate, shown as a
            // server's.
            Bad::Other(_) => format!(
                "the server's certificate cannot be verified ({}): it may be a CA's own; give the \
                 server one that a CA has signed for it, and name that CA (`ca=`)",
                shown(&bad.to_string())
            ),
            _ => {
                format!("the server's certificate cannot be verified: {}", shown(&bad.to_string()))
            }
        })
    }

    fn unknown_issuer(&self) -> String {
        if self.own_ca {
            "no CA in the file that `ca=` names has signed the server's certificate (nor has one that \
             the server sends along); name the file of the server's CA"
                .into()
        } else {
            "no CA that this machine trusts has signed the server's certificate; name the file of \
             the server's CA (`ca=` in the URL, `Config::tls_ca`)"
                .into()
        }
    }

    fn server_refuses(&self, alert: Alert) -> StoreError {
        let about_certificate = matches!(
            alert,
            Alert::CertificateRequired
                | Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
        );
        let bare = !self.certificate;
        match alert {
            _ if about_certificate && bare => denied(
                alert,
                "it wants a client certificate (`cert=` and `key=` in the URL, `Config::tls_cert` and \
                 `tls_key`)",
            ),
            Alert::UnknownCA => denied(
                alert,
                "no CA that it trusts (its `tls-ca-cert-file`) has signed the client certificate",
            ),
            Alert::CertificateExpired => {
                denied(alert, "the client certificate has expired or is not valid yet; renew it")
            }
            _ if about_certificate => denied(alert, "it does not accept the client certificate"),
            Alert::UnrecognisedName => refused(format!(
                "the server knows no name `{}`; say which one it has (`server-name=` in the URL, \
                 `Config::tls_server_name`)",
                shown(&self.name)
            )),
            Alert::ProtocolVersion | Alert::InsufficientSecurity => refused(format!(
                "the server has no version of TLS or cipher in common with this client, which needs \
                 TLS 1.2 or 1.3 (it says {alert:?}); see its `tls-protocols`, `tls-ciphers` and \
                 `tls-ciphersuites`"
            )),
            // Before TLS 1.3, this also means a missing certificate.
            Alert::HandshakeFailure if bare => refused(
                "the server refuses the TLS handshake (HandshakeFailure): it has no cipher in common \
                 with this client (see its `tls-ciphers`), or wants a client certificate (`cert=` and \
                 `key=`)"
                    .into(),
            ),
            _ => refused(format!("the server refuses the TLS handshake: {alert:?}")),
        }
    }
}

fn refused(message: String) -> StoreError {
    StoreError::refused(Error::new(ErrorKind::Tls, message))
}

fn denied(alert: Alert, why: &str) -> StoreError {
    let message = format!("the server refuses this client's TLS ({alert:?}): {why}");
    StoreError::refused(Error::new(ErrorKind::Denied, message))
}

/// A foreign text, bounded, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "no name at all (it has no subject alternative name)".into();
    }
    // They come as `DnsName("db.example")` and `IpAddress(10.0.0.1)`.
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        shown(inner.unwrap_or(name).trim_matches('"'))
    };
    let mut text: Vec<_> = presented.iter().take(NAMES_SHOWN).map(bare).collect();
    if presented.len() > NAMES_SHOWN {
        text.push("more".into());
    }
    text.join(", ")
}

/// The time between two moments, in the largest unit that fits.
fn span(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 minutes"),
            (7_199, "119 minutes"),
            (7_200, "2 hours"),
            (172_799, "47 hours"),
            (172_800, "2 days"),
            (864_000, "10 days"),
        ] {
            assert_eq!(span(at(1_000), at(1_000 + seconds)), text);
        }
        assert_eq!(span(at(1), at(0)), "0 s", "a clock that was set back");
    }

    #[test]
    fn a_certificates_names_are_bounded() {
        let many: Vec<_> = (0..9).map(|n| format!("{n}\n{}", "x".repeat(100))).collect();
        let text = names(&many);
        assert!(text.ends_with(", more") && text.len() < 300 && !text.contains('\n'), "{text}");
        assert!(names(&[]).contains("no name"));
        let two = ["DnsName(\"db.example\")", "IpAddress(10.0.0.1)"].map(str::to_owned);
        assert_eq!(names(&two), "db.example, 10.0.0.1");
    }
}
