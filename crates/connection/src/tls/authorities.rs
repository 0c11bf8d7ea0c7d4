//! [`Authorities`]: the certificates that were configured, and which server's certificate they vouch for.
//!
//! rustls checks chains. Three things it leaves to its caller: an authority that has expired, or is not valid yet, is none; a
//! certificate without the mark of an authority is trusted for itself alone; and one of X.509 version 1, which rustls does not
//! read, counts directly below an authority.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use super::certificate::Certificate;

/// Lives as long as one connection's plan, so whether an authority is valid is decided once.
#[derive(Debug)]
pub(super) struct Authorities {
    /// All certificates. Each vouches for itself.
    certificates: Vec<CertificateDer<'static>>,
    /// The authorities among them that are valid.
    valid: Vec<Certificate>,
    /// The authorities among them that have expired or are not valid yet. They vouch for nobody, but explain refusals.
    invalid: Vec<Certificate>,
    /// True if one of the certificates may limit the names below it.
    may_limit_names: bool,
    /// The valid authorities for rustls.
    roots: Arc<RootCertStore>,
    /// rustls' own verifier; `None` if there is no valid authority.
    verifier: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Authorities {
    pub(super) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
        now: UnixTime,
    ) -> Authorities {
        let (mut valid, mut invalid, mut roots) = (Vec::new(), Vec::new(), RootCertStore::empty());
        for der in &certificates {
            match Certificate::parse(der).filter(Certificate::is_authority) {
                Some(authority) if check_dates(&authority, now).is_ok() => {
                    roots.add_parsable_certificates([der.clone()]);
                    valid.push(authority);
                }
                Some(authority) => invalid.push(authority),
                None => {}
            }
        }
        let roots = Arc::new(roots);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build().ok();
        let may_limit_names = certificates.iter().any(may_limit_names);
        let algorithms = provider.signature_verification_algorithms;
        Authorities { certificates, valid, invalid, may_limit_names, roots, verifier, algorithms }
    }

    /// How many certificates have the mark of an authority.
    pub(super) fn count(&self) -> usize {
        self.valid.len() + self.invalid.len()
    }

    /// True if this very certificate was configured.
    pub(super) fn contains(&self, server: &CertificateDer<'_>) -> bool {
        self.certificates.iter().any(|certificate| certificate == server)
    }

    /// True if an authority above a server may limit names.
    pub(super) fn may_limit_names(&self, intermediates: &[CertificateDer<'_>]) -> bool {
        self.may_limit_names || intermediates.iter().any(may_limit_names)
    }

    /// rustls' decision: the chain, its dates and purposes, and the name in the extension for names unless that is `None`.
    pub(super) fn check(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if let (Some(verifier), Some(name)) = (&self.verifier, name) {
            return verifier.verify_server_cert(server, intermediates, name, &[], now).map(drop);
        }
        // The functions that rustls' verifier consists of, since it wants a name and an authority.
        let server = ParsedCertificate::try_from(server)?;
        verify_server_cert_signed_by_trust_anchor(&server, &self.roots, intermediates, now, self.algorithms.all)?;
        name.map_or(Ok(()), |name| verify_server_name(&server, name))
    }

    /// Whether one of the authorities has issued a certificate of version 1. It cannot say what its key is for, so none may
    /// stand between it and the authority, and the authority may not limit names, which the subject would evade.
    pub(super) fn check_first_version(&self, server: &Certificate, now: UnixTime) -> Result<(), Error> {
        let mut refusal = CertificateError::UnknownIssuer;
        let authorities = self.valid.iter().filter(|authority| !authority.may_limit_names());
        for authority in authorities.filter(|authority| authority.subject() == server.issuer()) {
            if self.algorithms.all.iter().any(|algorithm| server.is_signed_by(authority, *algorithm)) {
                return check_dates(server, now);
            }
            refusal = CertificateError::BadSignature;
        }
        Err(refusal.into())
    }

    /// Why there was a refusal: an authority that is out of its time explains more than an unknown one.
    pub(super) fn explain(
        &self,
        refusal: Error,
        server: Option<&Certificate>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Error {
        if refusal != Error::from(CertificateError::UnknownIssuer) {
            return refusal;
        }
        let intermediates: Vec<_> = intermediates.iter().filter_map(|der| Certificate::parse(der)).collect();
        let shown = || intermediates.iter().chain(server);
        let issuer = self.invalid.iter().find(|authority| shown().any(|below| below.issuer() == authority.subject()));
        issuer.and_then(|authority| check_dates(authority, now).err()).unwrap_or(refusal)
    }
}

/// Doubt falls to the safe side: a certificate that cannot be parsed may limit names.
fn may_limit_names(der: &CertificateDer<'_>) -> bool {
    Certificate::parse(der).is_none_or(|certificate| certificate.may_limit_names())
}

pub(super) fn check_dates(certificate: &Certificate, now: UnixTime) -> Result<(), Error> {
    let (not_before, not_after) = (certificate.not_before(), certificate.not_after());
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}
