//! How a connection is secured: the proof that the server must give, and our own certificate.
//!
//! Options come from the command line and from option files, in both vendors' spellings. [`TlsOptions::mode`] combines
//! them into one mode.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The requirements for TLS. Each mode includes the requirements of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsMode {
    /// No TLS.
    Disabled,
    /// TLS if the server offers it. An attacker who can redirect the connection can read it.
    Preferred,
    /// TLS with any server. An attacker who only listens cannot read it; one who redirects the connection can.
    Required,
    /// TLS with a server whose certificate a known authority has issued.
    VerifyCa,
    /// As `VerifyCa`, and the certificate must name the host of the endpoint.
    VerifyIdentity,
}

impl TlsMode {
    const ALL: [(TlsMode, &str); 5] = [
        (TlsMode::Disabled, "disabled"),
        (TlsMode::Preferred, "preferred"),
        (TlsMode::Required, "required"),
        (TlsMode::VerifyCa, "verify-ca"),
        (TlsMode::VerifyIdentity, "verify-identity"),
    ];

    /// True if the server must prove its identity.
    pub fn is_verifying(self) -> bool {
        self >= TlsMode::VerifyCa
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = TlsMode::ALL.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<TlsMode, String> {
        let name = text.replace('_', "-").to_ascii_lowercase();
        let known = TlsMode::ALL.iter().find(|(_, known)| *known == name);
        known
            .map(|(mode, _)| *mode)
            .ok_or_else(|| "expected disabled, preferred, required, verify-ca or verify-identity".to_owned())
    }
}

/// The options of TLS; `None` where an option is not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The mode.
    pub mode: Option<TlsMode>,
    /// Certificates of the authorities that may have issued the server's: a PEM file, or a directory of such files.
    pub authorities: Option<PathBuf>,
    /// Our own certificate, with its chain to an authority that the server knows: a PEM file.
    pub certificate: Option<PathBuf>,
    /// The key to our certificate: a PEM file.
    pub key: Option<PathBuf>,
    /// MariaDB's `ssl`: require TLS, or disable it.
    pub ssl: Option<bool>,
    /// MariaDB's `ssl-verify-server-cert`.
    pub verify: Option<bool>,
}

impl TlsOptions {
    /// The mode that the options mean together: `mode` if it is given; otherwise the mode that the other options imply,
    /// as in the vendors' clients; otherwise [`TlsMode::Preferred`].
    pub fn mode(&self) -> TlsMode {
        let has_certificate = self.certificate.is_some() || self.key.is_some();
        match (self.mode, self.ssl, self.verify) {
            (Some(mode), _, _) => mode,
            (None, Some(false), _) => TlsMode::Disabled,
            (None, _, Some(true)) => TlsMode::VerifyIdentity,
            (None, _, None) if self.authorities.is_some() => TlsMode::VerifyCa,
            (None, Some(true), _) => TlsMode::Required,
            _ if has_certificate || self.authorities.is_some() => TlsMode::Required,
            _ => TlsMode::Preferred,
        }
    }

    /// Fills in missing options from `other`. The options that determine the mode are taken together, from one of the
    /// two.
    pub(super) fn or(self, other: TlsOptions) -> TlsOptions {
        let says_mode = self.mode.is_some() || self.ssl.is_some() || self.verify.is_some();
        let modes = if says_mode { &self } else { &other };
        TlsOptions {
            mode: modes.mode,
            ssl: modes.ssl,
            verify: modes.verify,
            authorities: self.authorities.or(other.authorities),
            certificate: self.certificate.or(other.certificate),
            key: self.key.or(other.key),
        }
    }
}

/// The RSA key of the server that may encrypt the password, over a connection without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// Spate requests the key from the server. An attacker who can redirect the connection can send another key.
    Request,
    /// The key is in this PEM file, copied from the server.
    File(PathBuf),
}

impl FromStr for PublicKey {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<PublicKey, Self::Err> {
        Ok(match text {
            "request" => PublicKey::Request,
            path => PublicKey::File(PathBuf::from(path)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_modes_of_both_vendors_are_parsed() {
        for (mode, name) in TlsMode::ALL {
            assert_eq!((mode.to_string().as_str(), name.parse()), (name, Ok(mode)));
        }
        assert_eq!("VERIFY_CA".parse(), Ok(TlsMode::VerifyCa));
        assert!("on".parse::<TlsMode>().is_err());
    }

    #[test]
    fn tls_options_together_choose_the_mode() {
        let none = TlsOptions::default();
        let ca = TlsOptions { authorities: Some("ca.pem".into()), ..none.clone() };
        let own = TlsOptions { certificate: Some("c.pem".into()), ..none.clone() };
        for (options, meaning) in [
            (none.clone(), TlsMode::Preferred),
            (ca.clone(), TlsMode::VerifyCa),
            (own.clone(), TlsMode::Required),
            (TlsOptions { mode: Some(TlsMode::Disabled), ..ca.clone() }, TlsMode::Disabled),
            (TlsOptions { ssl: Some(false), ..ca.clone() }, TlsMode::Disabled),
            (TlsOptions { ssl: Some(true), ..none.clone() }, TlsMode::Required),
            (TlsOptions { ssl: Some(true), ..ca.clone() }, TlsMode::VerifyCa),
            (TlsOptions { verify: Some(true), ..none.clone() }, TlsMode::VerifyIdentity),
            (TlsOptions { verify: Some(false), ..ca.clone() }, TlsMode::Required),
            (TlsOptions { verify: Some(false), ..none.clone() }, TlsMode::Preferred),
        ] {
            assert_eq!(options.mode(), meaning, "{options:?}");
        }
    }

    #[test]
    fn first_tls_mode_ignores_later_options() {
        let first = TlsOptions { mode: Some(TlsMode::Required), ..TlsOptions::default() };
        let later =
            TlsOptions { verify: Some(true), ssl: Some(false), authorities: Some("a".into()), ..TlsOptions::default() };
        let both = first.or(later.clone());
        assert_eq!((both.mode(), both.authorities.is_some()), (TlsMode::Required, true));
        assert_eq!(TlsOptions::default().or(later).mode(), TlsMode::Disabled);
    }
}
