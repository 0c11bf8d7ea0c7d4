//! Which server to trust: the check of its certificate, in the strictness that was asked for.
//!
//! rustls decides: an ordinary certificate goes through its own verifier, and so does the handshake's signature. This module makes
//! three exceptions:
//! - the very certificate that was configured needs no authority;
//! - a certificate of X.509 version 1, which rustls does not read, is accepted directly below an authority;
//! - a host's name in the subject counts where the extension for names is missing and no authority limits names, because the
//!   limits do not apply to the subject.
//!
//! No exception is made for a certificate that [`Certificate`] cannot parse.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use x509_cert::name::Name;

use super::authorities::{Authorities, check_dates};
use super::certificate::{Certificate, common_name};

/// Which servers to trust.
#[derive(Debug)]
pub(super) enum Trust {
    /// Each that has the key to the certificate that it shows.
    Anyone,
    /// Those that an authority vouches for.
    Authorities {
        authorities: Authorities,
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
        let read = Certificate::parse(server);
        if let Some(read) = &read {
            self.shown.get_or_init(|| describe(read));
        }
        if let Trust::Authorities { authorities, with_name } = &self.trust {
            let name = with_name.then_some(name);
            check(authorities, server, read.as_ref(), intermediates, name, now)
                .map_err(|refusal| authorities.explain(refusal, read.as_ref(), intermediates, now))?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match first_version(server) {
            Some(server) => self.check_first_version_signature(message, &server, signature),
            None => verify_tls12_signature(message, server, signature, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match first_version(server) {
            Some(server) => {
                let key = server.key_info().ok_or(CertificateError::BadEncoding)?;
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            None => verify_tls13_signature(message, server, signature, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    /// The handshake's signature of TLS 1.2 with a certificate of version 1. rustls has no function for it: it does not read the
    /// certificate, and takes a bare key only in TLS 1.3.
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
        match algorithms.iter().any(|algorithm| server.has_signed(message, signature.signature(), *algorithm)) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }
}

/// The certificate if it is of version 1.
fn first_version(server: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::parse(server).filter(Certificate::is_first_version)
}

/// Whether the authorities vouch for the server, and for its name unless that is `None`. `read` is the server's certificate;
/// `None` if it could not be parsed.
fn check(
    authorities: &Authorities,
    server: &CertificateDer<'_>,
    read: Option<&Certificate>,
    intermediates: &[CertificateDer<'_>],
    name: Option<&ServerName<'_>>,
    now: UnixTime,
) -> Result<(), Error> {
    let Some(read) = read else { return authorities.check(server, intermediates, name, now) };
    let is_configured = authorities.contains(server);
    let is_direct = is_configured || read.is_first_version();
    // Nothing above a direct certificate limits names.
    let is_limited = !is_direct && authorities.may_limit_names(intermediates);
    let (in_extension, in_subject) = match read.has_alternative_names() || is_limited {
        true => (name, None),
        false => (None, name),
    };
    match is_configured {
        true => check_dates(read, now)?,
        false if is_direct => authorities.check_first_version(read, now)?,
        false => authorities.check(server, intermediates, in_extension, now)?,
    }
    if let Some(name) = in_extension.filter(|_| is_direct) {
        verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
    }
    in_subject.map_or(Ok(()), |name| check_subject(read, name))
}

/// Whether the subject of the server's certificate is the host.
fn check_subject(server: &Certificate, name: &ServerName<'_>) -> Result<(), Error> {
    let presented = common_name(server.subject());
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
        BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
        Issuer, KeyPair, NameConstraints, SanType, date_time_ymd,
    };
    use rustls::client::WebPkiServerVerifier;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// In 2033.
    fn now() -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(2_000_000_000))
    }

    fn verifier(certificates: Vec<CertificateDer<'static>>, with_name: bool) -> Verifier {
        let provider = Arc::new(default_provider());
        let authorities = Authorities::new(certificates, &provider, now());
        let algorithms = provider.signature_verification_algorithms;
        Verifier { trust: Trust::Authorities { authorities, with_name }, algorithms, shown: Arc::default() }
    }

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
        let (trusted, intermediates, server) = issue(chain, server);
        verify_with(vec![trusted], &server, &intermediates, with_name)
    }

    /// The first certificate of a chain, the others, and the one of a server below them.
    fn issue(
        chain: &[&CertificateParams],
        server: &CertificateParams,
    ) -> (CertificateDer<'static>, Vec<CertificateDer<'static>>, CertificateDer<'static>) {
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
        (trusted, intermediates, server)
    }

    fn verify_with(
        certificates: Vec<CertificateDer<'static>>,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        with_name: bool,
    ) -> Result<(), CertificateError> {
        let host = ServerName::try_from("db1.example.com").unwrap();
        match verifier(certificates, with_name).verify_server_cert(server, intermediates, &host, &[], now()) {
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
    fn an_ordinary_certificate_is_judged_as_by_rustls() {
        let with_names = |change: fn(&mut CertificateParams)| {
            let mut parameters = with_name(named("server"), "db1.example.com");
            change(&mut parameters);
            parameters
        };
        let mut limited = authority();
        limited.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("other.example".to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let mut below = authority();
        below.distinguished_name.push(DnType::CommonName, "below");
        let servers = [
            with_names(|_| {}),
            with_names(|server| {
                server.subject_alt_names = vec![SanType::DnsName("db2.example.com".try_into().unwrap())]
            }),
            with_names(|server| server.not_after = date_time_ymd(2020, 1, 1)),
            with_names(|server| server.not_before = date_time_ymd(2998, 1, 1)),
            with_names(|server| server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            with_names(|server| server.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
        ];
        let (host, stranger) =
            (ServerName::try_from("db1.example.com").unwrap(), issue(&[&authority()], &servers[0]).0);
        let mut accepted = 0;
        for chain in [[&authority()].as_slice(), &[&authority(), &below], &[&limited], &[&named("no authority")]] {
            for server in &servers {
                let (trusted, intermediates, server) = issue(chain, server);
                for known in [&trusted, &stranger] {
                    let mut roots = RootCertStore::empty();
                    roots.add(known.clone()).unwrap();
                    let rustls = WebPkiServerVerifier::builder_with_provider(roots.into(), default_provider().into());
                    let theirs = rustls.build().unwrap().verify_server_cert(&server, &intermediates, &host, &[], now());
                    let ours = verifier(vec![known.clone()], true);
                    let ours = ours.verify_server_cert(&server, &intermediates, &host, &[], now());
                    let is_authority = Certificate::parse(known).unwrap().is_authority();
                    match is_authority {
                        true => assert_eq!(format!("{ours:?}"), format!("{theirs:?}")),
                        false => assert!(ours.is_err()),
                    }
                    accepted += usize::from(ours.is_ok());
                }
            }
        }
        assert_eq!(accepted, 2, "the good server directly below the authority, and below the other");
    }

    #[test]
    fn an_extension_for_names_counts_however_it_is_encoded() {
        let odd = |oid: &[u64], content: &[u8]| {
            let mut parameters = named("db1.example.com");
            parameters.custom_extensions.push(CustomExtension::from_oid_content(oid, content.to_vec()));
            parameters
        };
        assert_eq!(verify(&[&authority()], &odd(&[2, 5, 157, 17], b"\x30\0"), true), Ok(()));
        for content in [b"\x30\0".as_slice(), b"\x30\x02\x82\0", b"\x05\0", b""] {
            assert!(verify(&[&authority()], &odd(&[2, 5, 29, 17], content), true).is_err(), "{content:?}");
        }
        // 29 in two bytes instead of 157.
        let mut der = issue(&[&authority()], &odd(&[2, 5, 157, 17], b"\x30\0")).2.to_vec();
        let verify = |der: &[u8]| {
            let der = CertificateDer::from(der.to_vec());
            verify_with(vec![der.clone()], &der, &[], true)
        };
        assert_eq!(verify(&der), Ok(()));
        let at = der.windows(4).position(|window| window == b"\x55\x81\x1d\x11").unwrap();
        der[at + 1] = 0x80;
        assert!(verify(&der).is_err());
    }

    #[test]
    fn a_certificate_that_cannot_be_parsed_gets_no_exception() {
        // The bytes end one too early, or are none.
        let server = issue(&[&authority()], &named("db1.example.com")).2;
        for der in [&server[..server.len() - 1], b"", b"\x30\0"] {
            let der = CertificateDer::from(der.to_vec());
            for with_name in [false, true] {
                assert!(verify_with(vec![der.clone()], &der, &[], with_name).is_err());
            }
        }
        // Something above that may limit names, for all one knows.
        let old = issue(&[&authority()], &named("db1.example.com"));
        assert_eq!(verify_with(vec![old.0.clone()], &old.2, &[], true), Ok(()));
        let damaged = CertificateDer::from(b"\x30\0".to_vec());
        assert!(verify_with(vec![old.0.clone()], &old.2, &[damaged], true).is_err());
    }

    const FIRST_VERSION: [&[u8]; 2] =
        [include_bytes!("first_version/ca.pem"), include_bytes!("first_version/server-cert.pem")];

    #[test]
    fn a_certificate_of_version_1_needs_a_signature_of_an_algorithm_that_is_known() {
        /// SHA-256 with RSA: the last byte of 1.2.840.113549.1.1.11.
        const ALGORITHM: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b";
        const MD5: u8 = 0x04;
        let [ca, server] = FIRST_VERSION.map(|pem| CertificateDer::from_pem_slice(pem).unwrap());
        let verify = |server: &[u8]| verify_with(vec![ca.clone()], &CertificateDer::from(server.to_vec()), &[], false);
        assert_eq!(verify(&server), Ok(()));
        let at: Vec<usize> = (0..server.len()).filter(|at| server[*at..].starts_with(ALGORITHM)).collect();
        assert_eq!(at.len(), 2, "in the signed part, and before the signature");
        for at in at {
            let mut unknown = server.to_vec();
            unknown[at + ALGORITHM.len() - 1] = MD5;
            assert_eq!(verify(&unknown), Err(CertificateError::BadSignature));
        }
        let changed = |at: usize| [&server[..at], &[server[at] ^ 1], &server[at + 1..]].concat();
        for at in 0..server.len() {
            assert!(verify(&changed(at)).is_err(), "{at}");
        }
    }

    /// Shakes hands in memory, over a version of TLS, with a server that has this key.
    fn shake_hands(
        certificate: &CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        trust: Trust,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Result<(), Error> {
        let provider = Arc::new(default_provider());
        let key = provider.key_provider.load_private_key(key).unwrap();
        let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.clone()], key));
        let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[version]).unwrap();
        let server = server.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
        let algorithms = provider.signature_verification_algorithms;
        let verifier = Verifier { trust, algorithms, shown: Arc::default() };
        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let client = client.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        let mut client = ClientConnection::new(client.into(), "localhost".try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(server.into()).unwrap();
        while client.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn a_server_with_a_certificate_of_version_1_has_to_have_its_key() {
        let [ca, server] = FIRST_VERSION.map(|pem| CertificateDer::from_pem_slice(pem).unwrap());
        let own = PrivateKeyDer::from_pem_slice(include_bytes!("first_version/server-key.pem")).unwrap();
        let other = || PrivateKeyDer::try_from(KeyPair::generate().unwrap().serialize_der()).unwrap();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for with_name in [false, true] {
                let trust = verifier(vec![ca.clone()], with_name).trust;
                assert_eq!(shake_hands(&server, own.clone_key(), trust, version), Ok(()));
            }
            assert_eq!(shake_hands(&server, own.clone_key(), Trust::Anyone, version), Ok(()));
            let trust = verifier(vec![ca.clone()], false).trust;
            for trust in [trust, Trust::Anyone] {
                let refused = shake_hands(&server, other(), trust, version);
                assert!(matches!(refused, Err(Error::InvalidCertificate(_))), "{refused:?}");
            }
        }
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
