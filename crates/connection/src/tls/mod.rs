//! TLS: from the options of an endpoint to a secured stream, and errors that say what to do.
//!
//! - `stream`: the bytes;
//! - `verifier`, `authorities`, `certificate`: which server to trust;
//! - here: what to ask for, the handshake, and what its failure means.
//!
//! Files are read for each connection, so that a certificate that was replaced counts from the next one on.

mod authorities;
mod certificate;
mod stream;
#[cfg(test)]
mod tests;
mod verifier;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::ResolvesClientCert;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, SignatureScheme};
use sha2::{Digest, Sha256};

use self::authorities::Authorities;
use self::certificate::{Certificate, day};
pub(super) use self::stream::TlsStream;
use self::verifier::{Trust, Verifier};
use super::stream::Socket;
use crate::endpoint::{Address, Endpoint, TlsMode, TlsOptions};

/// More certificates than any file of authorities has; a bound on what a directory named by mistake costs.
const AUTHORITIES_MAX: usize = 10_000;

/// An organisation has a few authorities of its own, old ones and those of other sites included. The bundles of public ones have
/// about 150, those of cloud providers more.
const PRIVATE_AUTHORITIES_MAX: usize = 16;

/// Where Debian keeps the public authorities, one in each file; the links in /etc/ssl/certs lead here.
const PUBLIC_AUTHORITIES: &str = "/usr/share/ca-certificates";

/// What is to be done about TLS on one connection.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) mode: TlsMode,
    /// Whose certificate has to be shown by what; see [`Proof`].
    proof: Proof,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    host: String,
    shown: Arc<OnceLock<String>>,
    pub(super) has_own_certificate: bool,
}

/// What shows that the server is the one that was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Nothing.
    None,
    /// An authority has issued its certificate, one of those that issue certificates to everyone. That proves nothing
    /// without the host's name.
    PublicAuthority,
    /// An authority has issued its certificate.
    Authority,
    /// An authority has issued its certificate, to this host.
    Identity,
    /// It knows the account's password, and has signed its certificate with it.
    Password,
}

impl Plan {
    /// What the endpoint's options ask for; `None` is no TLS. Over a Unix socket there is none unless it is insisted on, and
    /// the socket's path says who the server is, so no certificate is asked for its name.
    ///
    /// # Errors
    /// Text for people about a file that cannot be used.
    pub(super) fn of(endpoint: &Endpoint, address: &Address, role: &str) -> Result<Option<Plan>, String> {
        let options = endpoint.tls();
        let is_local = matches!(address, Address::Unix(_));
        let mode = options.mode();
        if mode == TlsMode::Disabled || is_local && mode == TlsMode::Preferred {
            return Ok(None);
        }
        let host = match address {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let proof = match (mode.is_verifying(), &options.authorities) {
            (false, _) => Proof::None,
            (true, None) => Proof::Password,
            (true, Some(_)) if mode == TlsMode::VerifyCa || is_local => Proof::Authority,
            (true, Some(_)) => Proof::Identity,
        };
        let name = match ServerName::try_from(host.clone()) {
            Ok(name) => name,
            Err(_) if proof == Proof::Identity => {
                return Err(format!(
                    "'{host}' is no name that a certificate could have; use --{role}-tls-mode verify-ca"
                ));
            }
            // Only looked at where names count.
            Err(_) => ServerName::try_from("localhost").map_err(|error| error.to_string())?,
        };
        let shown = Arc::new(OnceLock::new());
        let (config, is_public) = config(options, proof, role, shown.clone())?;
        let proof = if proof == Proof::Authority && is_public { Proof::PublicAuthority } else { proof };
        let has_own_certificate = options.certificate.is_some();
        Ok(Some(Plan { mode, proof, config: Arc::new(config), name, host, shown, has_own_certificate }))
    }

    /// What the certificate was held against.
    pub(super) fn proof(&self) -> Proof {
        self.proof
    }

    /// Shakes hands.
    ///
    /// # Errors
    /// [`Failure::Refused`] is for people, and definite; the rest is the network's.
    pub(super) fn secure(&self, socket: Socket, role: &str, tls: &TlsOptions) -> Result<TlsStream, Failure> {
        TlsStream::begin(socket, self.config.clone(), self.name.clone()).map_err(|error| match refusal(&error) {
            Some(error) => Failure::Refused(self.explain(error, role, tls)),
            None => Failure::Io(error),
        })
    }

    fn explain(&self, error: &rustls::Error, role: &str, tls: &TlsOptions) -> String {
        let shown = self.shown.get().map(|shown| format!(" ({shown})")).unwrap_or_default();
        let authorities = tls.authorities.as_deref().unwrap_or(Path::new("")).display();
        let rustls::Error::InvalidCertificate(wrong) = error else { return explain_alert(error, role) };
        match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "the server's certificate{shown} was not issued by an authority in {authorities}. Either that is the wrong file \
                 (--{role}-tls-ca), or the server has a new certificate, or somebody else answers. A server that makes its \
                 certificates itself keeps the authority's as ca.pem in its data directory"
            ),
            CertificateError::ExpiredContext { not_after, .. } => format!(
                "the server's certificate{shown}, or one above it, expired on {}: give the server a new one",
                day(*not_after)
            ),
            CertificateError::NotValidYetContext { not_before, time } => format!(
                "the server's certificate{shown}, or one above it, is valid from {} on, and this machine's clock says {}",
                day(*not_before),
                day(*time)
            ),
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "the server's certificate{shown} is not for '{}', but for {}. Call the server by a name in its certificate, or \
                 use --{role}-tls-mode verify-ca, which accepts every server of the authority",
                self.host,
                if presented.is_empty() { "no host at all".to_owned() } else { presented.join(", ") }
            ),
            CertificateError::InvalidPurposeContext { .. } => {
                format!("the server's certificate{shown} says that it is not for servers")
            }
            other => format!(
                "the server's certificate{shown} cannot be verified: {other}. To trust just this one, copy it from the server \
                 and name it with --{role}-tls-ca"
            ),
        }
    }
}

/// Why a handshake failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// TLS did, and this is what people should know.
    Refused(String),
    /// The socket did.
    Io(io::Error),
}

/// What TLS says, if it was TLS that failed.
pub(super) fn refusal(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What a failure means that is not about the server's certificate.
pub(super) fn explain_alert(error: &rustls::Error, role: &str) -> String {
    let rustls::Error::AlertReceived(alert) = error else {
        return match error {
            rustls::Error::InvalidMessage(_) => {
                "the server does not answer with TLS: is there something else at this port?".to_owned()
            }
            rustls::Error::PeerIncompatible(_) => {
                format!("the server knows no TLS that is new enough (1.2 or 1.3 is needed): {error}")
            }
            _ => format!("TLS failed: {error}"),
        };
    };
    let ours = format!("our certificate (--{role}-tls-cert)");
    match alert {
        AlertDescription::CertificateRequired => {
            format!("the server wants a certificate of us: name one with --{role}-tls-cert and --{role}-tls-key")
        }
        AlertDescription::UnknownCA => format!("the server does not know the authority that issued {ours}"),
        AlertDescription::CertificateExpired => format!("the server says that {ours} has expired"),
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::DecryptError => format!("the server does not accept {ours}: {alert:?}"),
        AlertDescription::ProtocolVersion => {
            "the server knows no TLS that is new enough: 1.2 or 1.3 is needed (its tls_version)".to_owned()
        }
        _ => format!("the server ended the handshake: {alert:?}"),
    }
}

/// SHA-256 of the certificate that the server has shown.
pub(super) fn fingerprint(stream: &TlsStream) -> [u8; 32] {
    Sha256::digest(stream.server_certificate()).into()
}

/// The TLS version that was agreed on, such as `TLSv1.3`.
pub(super) fn version(stream: &TlsStream) -> String {
    stream.version()
}

/// The second value is true if the authorities are public ones.
fn config(
    options: &TlsOptions,
    proof: Proof,
    role: &str,
    shown: Arc<OnceLock<String>>,
) -> Result<(ClientConfig, bool), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (trust, is_public) = match (&options.authorities, proof) {
        (Some(path), Proof::Authority | Proof::Identity) => {
            let certificates = authorities(path).map_err(|why| format!("--{role}-tls-ca {}: {why}", path.display()))?;
            let authorities = Authorities::new(certificates, &provider, UnixTime::now());
            let is_public = are_public(path, &authorities);
            (Trust::Authorities { authorities, with_name: proof == Proof::Identity }, is_public)
        }
        _ => (Trust::Anyone, false),
    };
    let verifier = Verifier { trust, algorithms: provider.signature_verification_algorithms, shown };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own_certificate(options, &provider, role)? {
        Some(own) => builder.with_client_cert_resolver(Arc::new(own)),
        None => builder.with_no_client_auth(),
    };
    // Each connection reads the files again.
    config.resumption = Resumption::disabled();
    Ok((config, is_public))
}

/// True if the file holds authorities that issue certificates to everyone.
fn are_public(path: &Path, authorities: &Authorities) -> bool {
    let is_of_system = path.canonicalize().is_ok_and(|path| path.starts_with(PUBLIC_AUTHORITIES));
    is_of_system || authorities.count() > PRIVATE_AUTHORITIES_MAX
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut certificates = Vec::new();
    for file in files_of(path).map_err(|error| error.to_string())? {
        let found = CertificateDer::pem_file_iter(&file).map_err(|error| pem_problem(&error))?;
        for certificate in found {
            certificates.push(certificate.map_err(|error| pem_problem(&error))?);
            if certificates.len() > AUTHORITIES_MAX {
                return Err(format!("there are more than {AUTHORITIES_MAX} certificates"));
            }
        }
    }
    if certificates.is_empty() {
        return Err("there is no certificate in it (PEM, -----BEGIN CERTIFICATE-----)".to_owned());
    }
    Ok(certificates)
}

/// The file itself, or those in a directory.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if file.is_file() {
            files.push(file);
        }
    }
    Ok(files)
}

fn pem_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it holds nothing of that kind in PEM form".to_owned(),
        other => format!("it is damaged: {other}"),
    }
}

/// The certificate that is shown to servers that ask for one.
#[derive(Debug)]
struct Own(Arc<CertifiedKey>);

impl ResolvesClientCert for Own {
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Our certificate and its key. rustls' own way to take them in would refuse those of X.509 version 1.
fn own_certificate(options: &TlsOptions, provider: &CryptoProvider, role: &str) -> Result<Option<Own>, String> {
    let (certificate, key) = match (&options.certificate, &options.key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(format!("--{role}-tls-cert needs the key to the certificate: --{role}-tls-key")),
        (None, Some(_)) => return Err(format!("--{role}-tls-key needs the certificate to the key: --{role}-tls-cert")),
    };
    let of_certificate = |why: String| format!("--{role}-tls-cert {}: {why}", certificate.display());
    let of_key = |why: String| format!("--{role}-tls-key {}: {why}", key.display());
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(|certificates| certificates.collect());
    let chain = chain.map_err(|error| of_certificate(pem_problem(&error)))?;
    let first = chain.first().ok_or_else(|| of_certificate("it holds no certificate (PEM)".to_owned()))?;
    let first = Certificate::parse(first).ok_or_else(|| of_certificate("its certificate is damaged".to_owned()))?;
    let found = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        of_key(match error {
            pem::Error::NoItemsFound => "it holds no key in PEM form that can be read without a passphrase".to_owned(),
            other => pem_problem(&other),
        })
    })?;
    let signer = provider.key_provider.load_private_key(found).map_err(|error| of_key(error.to_string()))?;
    let public = signer.public_key();
    if public.is_some_and(|public| !public.as_ref().ends_with(first.key())) {
        return Err(of_key(format!("it is not the key to the certificate in {}", certificate.display())));
    }
    Ok(Some(Own(Arc::new(CertifiedKey::new(chain, signer)))))
}
