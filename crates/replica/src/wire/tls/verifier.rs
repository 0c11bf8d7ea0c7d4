//! Whom to believe: the check of a server's certificate, in the strictness that was asked for.
//!
//! Chains are webpki's business. Added here is what it refuses and the servers' world is full of: certificates of X.509
//! version 1 directly under an authority, a server's own certificate named as the authority, and a host's name in the
//! subject where the extension for names is missing (as both vendors' clients accept it).

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, RootCertStore, SignatureScheme};

use super::certificate::{Certificate, common_name};

/// Whom to believe.
#[derive(Debug)]
pub(super) enum Trust {
    /// Anyone who has the key to the certificate that they show.
    Anyone,
    /// Those whom these authorities have certified.
    Authorities {
        roots: RootCertStore,
        certificates: Vec<CertificateDer<'static>>,
        /// And only if the certificate names the host.
        with_name: bool,
    },
}

#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) trust: Trust,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// What the server's certificate says of itself, for messages.
    pub(super) shown: Arc<OnceLock<String>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let read = Certificate::parse(server).ok_or(CertificateError::BadEncoding)?;
        self.shown.get_or_init(|| describe(&read));
        if let Trust::Authorities { roots, certificates, with_name } = &self.trust {
            if certificates.iter().any(|certificate| certificate == server) {
                check_dates(&read, now)?;
            } else if read.is_first_version {
                self.check_first_version(&read, certificates, now)?;
            } else {
                let parsed = ParsedCertificate::try_from(server)?;
                let all = self.algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, all)?;
            }
            if *with_name {
                check_name(server, &read, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_handshake(message, server, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        /// RFC 8446, section 4.4.3: these are for certificates only.
        const NOT_FOR_HANDSHAKES: [SignatureScheme; 3] =
            [SignatureScheme::RSA_PKCS1_SHA256, SignatureScheme::RSA_PKCS1_SHA384, SignatureScheme::RSA_PKCS1_SHA512];
        if NOT_FOR_HANDSHAKES.contains(&signature.scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        self.check_handshake(message, server, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Whether the server has the key to its certificate. Not webpki's, which does not read certificates of version 1.
    fn check_handshake(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let read = Certificate::parse(server).ok_or(CertificateError::BadEncoding)?;
        let (_, algorithms) = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signature.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let is_signed = algorithms
            .iter()
            .filter(|algorithm| algorithm.public_key_alg_id().as_ref() == read.key_algorithm)
            .any(|algorithm| algorithm.verify_signature(read.key, message, signature.signature()).is_ok());
        match is_signed {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }

    /// A certificate of version 1 cannot say what its key is for, nor name hosts in the extension; so none may stand between it
    /// and an authority.
    fn check_first_version(
        &self,
        server: &Certificate<'_>,
        authorities: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let mut refusal = CertificateError::UnknownIssuer;
        for authority in authorities.iter().filter_map(|der| Certificate::parse(der)) {
            if authority.subject != server.issuer {
                continue;
            }
            let is_signed = self.algorithms.all.iter().any(|algorithm| {
                algorithm.signature_alg_id().as_ref() == server.signature_algorithm
                    && algorithm.public_key_alg_id().as_ref() == authority.key_algorithm
                    && algorithm.verify_signature(authority.key, server.signed, server.signature).is_ok()
            });
            if is_signed {
                return check_dates(server, now);
            }
            refusal = CertificateError::BadSignature;
        }
        Err(refusal.into())
    }
}

fn check_dates(certificate: &Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let moment = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    if now.as_secs() < certificate.not_before {
        let not_before = moment(certificate.not_before);
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now.as_secs() > certificate.not_after {
        let not_after = moment(certificate.not_after);
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

fn check_name(server: &CertificateDer<'_>, read: &Certificate<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    if read.has_alternative_names {
        return verify_server_name(&ParsedCertificate::try_from(server)?, name);
    }
    let presented = common_name(read.subject);
    let is_named = match (name, &presented) {
        (ServerName::DnsName(host), Some(pattern)) => names(pattern, host.as_ref()),
        _ => false,
    };
    match is_named {
        true => Ok(()),
        false => {
            let presented = presented.into_iter().collect();
            Err(CertificateError::NotValidForNameContext { expected: name.to_owned(), presented }.into())
        }
    }
}

/// True if a name in a certificate, perhaps with a `*` as its first label, is this host's.
fn names(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((label, rest))) => {
            domain.contains('.') && !label.is_empty() && domain.eq_ignore_ascii_case(rest)
        }
        (Some(_), None) => false,
        (None, _) => pattern.eq_ignore_ascii_case(host),
    }
}

fn describe(certificate: &Certificate<'_>) -> String {
    let name = |name: &[u8]| common_name(name).unwrap_or_else(|| "nobody".to_owned());
    let printable = |text: String| -> String { text.chars().filter(|c| !c.is_control()).take(100).collect() };
    match certificate.subject == certificate.issuer {
        true => format!("made by itself, for '{}'", printable(name(certificate.subject))),
        false => {
            let (subject, issuer) = (printable(name(certificate.subject)), printable(name(certificate.issuer)));
            format!("for '{subject}', issued by '{issuer}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn names_in_subjects() {
        for (pattern, host) in
            [("db1", "DB1"), ("db1.example.com", "db1.example.com."), ("*.example.com", "db1.Example.com")]
        {
            assert!(names(pattern, host), "{pattern} {host}");
        }
        for (pattern, host) in [
            ("db1", "db2"),
            ("*", "db1"),
            ("*.com", "example.com"),
            ("*.example.com", "example.com"),
            ("*.example.com", "a.b.example.com"),
            ("db*.example.com", "db1.example.com"),
            ("*.example.com", ".example.com"),
            ("", "db1"),
        ] {
            assert!(!names(pattern, host), "{pattern} {host}");
        }
    }
}
