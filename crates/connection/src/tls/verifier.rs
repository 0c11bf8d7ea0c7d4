//! Which server to trust: the check of its certificate, in the strictness that was asked for.
//!
//! Chains, names in the extension for them, and the handshake's signature are checked by rustls' own functions, so nothing here
//! is laxer than they are. Two things are added that rustls refuses and that servers of both vendors have: certificates of X.509
//! version 1 directly below an authority, and a host's name in the subject where the extension for names is missing. And three
//! that rustls leaves to its caller: an authority that has expired is none; a certificate without the mark of an authority is
//! trusted for itself alone; a name in the subject counts only where no authority limits names, because the limits do not
//! apply to the subject.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, RootCertStore, SignatureScheme};
use x509_cert::name::Name;

use super::certificate::{Certificate, common_name};

/// Which servers to trust.
#[derive(Debug)]
pub(super) enum Trust {
    /// Each that has the key to the certificate that it shows.
    Anyone,
    /// Those that one of these certificates belongs to, or has certified as an authority.
    Certificates {
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
        if let Trust::Certificates { certificates, with_name } = &self.trust {
            let is_known = certificates.iter().any(|certificate| certificate == server);
            match is_known {
                true => check_dates(&read, now)?,
                false => self.check_issuer(server, &read, intermediates, certificates, now)?,
            }
            if *with_name {
                let mut above = certificates.iter().chain(intermediates);
                // One of version 1 was issued by an authority that limits nothing.
                let is_below = !is_known && !read.is_first_version();
                let is_limited = is_below && above.any(|certificate| may_limit_names(certificate));
                check_name(server, &read, name, is_limited)?;
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
        let read = Certificate::parse(server).ok_or(CertificateError::BadEncoding)?;
        match read.is_first_version() {
            true => self.check_first_version_signature(message, &read, signature),
            false => verify_tls12_signature(message, server, signature, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let read = Certificate::parse(server).ok_or(CertificateError::BadEncoding)?;
        match read.is_first_version() {
            true => {
                let key = read.key_info().ok_or(CertificateError::BadEncoding)?;
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            false => verify_tls13_signature(message, server, signature, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Whether one of the authorities has issued the certificate.
    fn check_issuer(
        &self,
        server: &CertificateDer<'_>,
        read: &Certificate,
        intermediates: &[CertificateDer<'_>],
        certificates: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let known = certificates.iter().filter_map(|der| Some((der, Certificate::parse(der)?)));
        let (valid, invalid): (Vec<_>, Vec<_>) =
            known.filter(|(_, read)| read.is_authority()).partition(|(_, read)| check_dates(read, now).is_ok());
        let checked = match read.is_first_version() {
            true => {
                let authorities = valid.iter().map(|(_, read)| read).filter(|read| !read.may_limit_names());
                self.check_first_version(read, authorities, now)
            }
            false => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(valid.into_iter().map(|(der, _)| der.clone()));
                let (parsed, all) = (ParsedCertificate::try_from(server)?, self.algorithms.all);
                verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, all)
            }
        };
        let unknown_issuer = Error::from(CertificateError::UnknownIssuer);
        if checked.as_ref().is_err_and(|error| *error == unknown_issuer) {
            // An authority that is out of its time explains more.
            let shown: Vec<_> = intermediates.iter().filter_map(|der| Certificate::parse(der)).collect();
            let issuers: Vec<&Name> = shown.iter().chain([read]).map(Certificate::issuer).collect();
            if let Some((_, authority)) = invalid.iter().find(|(_, authority)| issuers.contains(&authority.subject())) {
                return check_dates(authority, now);
            }
        }
        checked
    }

    /// The handshake's signature of TLS 1.2 with a certificate of version 1, which webpki does not read.
    fn check_first_version_signature(
        &self,
        message: &[u8],
        server: &Certificate,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let (_, algorithms) = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signature.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let is_signed =
            algorithms.iter().any(|algorithm| server.has_signed(message, signature.signature(), *algorithm));
        match is_signed {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }

    /// A certificate of version 1 cannot say what its key is for, nor name hosts in the extension; so none may stand between it
    /// and an authority.
    fn check_first_version<'a>(
        &self,
        server: &Certificate,
        authorities: impl Iterator<Item = &'a Certificate>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let mut refusal = CertificateError::UnknownIssuer;
        for authority in authorities.filter(|authority| authority.subject() == server.issuer()) {
            if self.algorithms.all.iter().any(|algorithm| server.is_signed_by(authority, *algorithm)) {
                return check_dates(server, now);
            }
            refusal = CertificateError::BadSignature;
        }
        Err(refusal.into())
    }
}

/// Doubt falls to the safe side: a certificate that cannot be parsed may limit names.
fn may_limit_names(der: &[u8]) -> bool {
    Certificate::parse(der).is_none_or(|certificate| certificate.may_limit_names())
}

fn check_dates(certificate: &Certificate, now: UnixTime) -> Result<(), Error> {
    let (not_before, not_after) = (certificate.not_before(), certificate.not_after());
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

/// With `is_limited`, an authority above may limit the names, and the subject's does not count.
fn check_name(
    server: &CertificateDer<'_>,
    read: &Certificate,
    name: &ServerName<'_>,
    is_limited: bool,
) -> Result<(), Error> {
    if read.has_alternative_names() || is_limited {
        return verify_server_name(&ParsedCertificate::try_from(server)?, name);
    }
    let presented = common_name(read.subject());
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

fn describe(certificate: &Certificate) -> String {
    let name = |name: &Name| common_name(name).unwrap_or_else(|| "nobody".to_owned());
    let printable = |text: String| -> String { text.chars().filter(|c| !c.is_control()).take(100).collect() };
    match certificate.subject() == certificate.issuer() {
        true => format!("made by itself, for '{}'", printable(name(certificate.subject()))),
        false => {
            let (subject, issuer) = (printable(name(certificate.subject())), printable(name(certificate.issuer())));
            format!("for '{subject}', issued by '{issuer}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair,
        NameConstraints, SanType, date_time_ymd,
    };

    use super::*;

    fn named(name: &str) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.not_before = date_time_ymd(2000, 1, 1);
        parameters.not_after = date_time_ymd(2999, 1, 1);
        parameters
    }

    fn authority() -> CertificateParams {
        let mut parameters = named("authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
    }

    fn with_name(mut parameters: CertificateParams, name: &str) -> CertificateParams {
        parameters.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        parameters
    }

    /// What becomes of a certificate below a chain of certificates, the first of which is trusted.
    fn verify(
        chain: &[&CertificateParams],
        server: &CertificateParams,
        with_name: bool,
    ) -> Result<(), CertificateError> {
        let key = KeyPair::generate().unwrap();
        let trusted = chain[0].self_signed(&key).unwrap().der().clone();
        let mut issuer = Issuer::new(chain[0].clone(), key);
        let mut intermediates = Vec::new();
        for parameters in &chain[1..] {
            let key = KeyPair::generate().unwrap();
            intermediates.push(parameters.signed_by(&key, &issuer).unwrap().der().clone());
            issuer = Issuer::new((*parameters).clone(), key);
        }
        let server = server.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
        verify_with(vec![trusted], &server, &intermediates, with_name)
    }

    fn verify_with(
        certificates: Vec<CertificateDer<'static>>,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        with_name: bool,
    ) -> Result<(), CertificateError> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let trust = Trust::Certificates { certificates, with_name };
        let verifier = Verifier { trust, algorithms, shown: Arc::default() };
        /// In 2025.
        const NOW: Duration = Duration::from_secs(1_750_000_000);
        let host = ServerName::try_from("db1.example.com").unwrap();
        match verifier.verify_server_cert(server, intermediates, &host, &[], UnixTime::since_unix_epoch(NOW)) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(wrong)) => Err(wrong),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn an_authority_out_of_its_time_is_none() {
        let server = with_name(named("server"), "db1.example.com");
        assert_eq!(verify(&[&authority()], &server, true), Ok(()));
        let mut late = authority();
        late.not_after = date_time_ymd(2020, 1, 1);
        let refused = verify(&[&late], &server, false).unwrap_err();
        assert!(matches!(refused, CertificateError::ExpiredContext { .. }), "{refused:?}");
        let mut early = authority();
        early.not_before = date_time_ymd(2998, 1, 1);
        let refused = verify(&[&early], &server, false).unwrap_err();
        assert!(matches!(refused, CertificateError::NotValidYetContext { .. }), "{refused:?}");
    }

    #[test]
    fn a_name_in_the_subject_does_not_count_below_an_authority_that_limits_names() {
        let mut limited = authority();
        limited.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("other.example".to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let mut below = limited.clone();
        below.distinguished_name.push(DnType::CommonName, "below");
        let old = named("db1.example.com");
        assert_eq!(verify(&[&authority()], &old, true), Ok(()));
        for chain in [[&limited].as_slice(), &[&authority(), &below]] {
            assert!(verify(chain, &old, true).is_err());
            assert!(verify(chain, &with_name(named("server"), "db1.example.com"), true).is_err());
            assert_eq!(verify(chain, &with_name(named("server"), "db1.other.example"), false), Ok(()));
        }
    }

    #[test]
    fn a_certificate_that_is_no_authority_vouches_for_itself_alone() {
        let (pinned, key) = (with_name(named("pinned"), "db1.example.com"), KeyPair::generate().unwrap());
        let certificate = pinned.self_signed(&key).unwrap().der().clone();
        assert_eq!(verify_with(vec![certificate.clone()], &certificate, &[], true), Ok(()));
        // The key of the one that is trusted signs another.
        let other = with_name(named("other"), "db1.example.com");
        let other = other.signed_by(&KeyPair::generate().unwrap(), &Issuer::new(pinned, key)).unwrap().der().clone();
        assert_eq!(verify_with(vec![certificate], &other, &[], true), Err(CertificateError::UnknownIssuer));
    }

    #[test]
    fn a_certificate_for_clients_is_none_for_servers() {
        let mut client = with_name(named("client"), "db1.example.com");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let refused = verify(&[&authority()], &client, false).unwrap_err();
        assert!(matches!(refused, CertificateError::InvalidPurposeContext { .. }), "{refused:?}");
    }

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
