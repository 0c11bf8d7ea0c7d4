//! Whether a server may get the password itself, not only a proof that we know it.
//!
//! Several plugins request it: `caching_sha2_password` if the server has no hash of it in its cache, `sha256_password`
//! and `mysql_clear_password` always. Any server can request it and claim any identity. So the decision depends on the
//! connection alone: the server has proven its identity, or the user has allowed the exchange with an option.
//!
//! A loopback address is no proof. Any account of the machine can listen there while the server is down, and the
//! address may be the local end of a tunnel or a forwarded port.

use super::tls::Proof;

/// How the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// A Unix socket: its path identifies the server.
    Socket,
    /// TLS, with the proof that the server has given before the login.
    Tls(Proof),
    /// TCP without TLS.
    Plain,
}

/// How the plugin sends the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// In the clear over TLS; without TLS, encrypted with the server's RSA key.
    ClearOrEncrypted,
    /// In the clear over any connection.
    Clear,
}

/// The exchanges that the user has allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Consent {
    /// `--source-allow-clear-password`.
    pub(super) clear: bool,
    /// `--source-public-key request`: trust the RSA key that the server sends.
    pub(super) any_key: bool,
    /// `--source-public-key FILE`: the file contains the server's RSA key.
    pub(super) known_key: bool,
}

/// Checks whether the server may get the password.
///
/// # Errors
/// A text that says why not, with the options that help.
pub(super) fn check(form: Form, channel: Channel, consent: Consent, role: &str) -> Result<(), String> {
    let prove = format!(
        "name the authority of its certificate with --{role}-tls-ca (MySQL keeps it as ca.pem in its data directory)"
    );
    match channel {
        Channel::Socket | Channel::Tls(Proof::Authority | Proof::Identity) => Ok(()),
        Channel::Tls(Proof::Password) => Err(format!(
            "and has not proved who it is, as --{role}-tls-mode asks: {prove}, or use --{role}-tls-mode required with \
             --{role}-allow-clear-password to give the password to any server that answers"
        )),
        Channel::Tls(Proof::None) => match consent.clear || consent.any_key && form == Form::ClearOrEncrypted {
            true => Ok(()),
            false => Err(format!(
                "and has not proved who it is: {prove}, use a Unix socket, or give the password to any server that answers with \
                 --{role}-allow-clear-password"
            )),
        },
        Channel::Tls(Proof::PublicAuthority) => {
            match consent.clear || consent.any_key && form == Form::ClearOrEncrypted {
                true => Ok(()),
                false => Err(format!(
                    "and has not proved who it is, since public authorities issue certificates to everyone: use --{role}-tls-mode \
                 verify-identity, name only the authority of its certificate with --{role}-tls-ca, or give the password to any \
                 server that answers with --{role}-allow-clear-password"
                )),
            }
        }
        Channel::Plain if form == Form::Clear => Err(format!(
            "and the connection is not encrypted; use a Unix socket, or --{role}-tls-mode verify-ca with --{role}-tls-ca"
        )),
        Channel::Plain if consent.any_key || consent.known_key => Ok(()),
        Channel::Plain => Err(format!(
            "(it has no hash of it in its cache), and the connection is not encrypted: use TLS (--{role}-tls-mode), a Unix \
             socket, or the server's RSA key (--{role}-public-key FILE, or --{role}-public-key request to take the key that comes)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Consent = Consent { clear: false, any_key: false, known_key: false };
    const CLEAR: Consent = Consent { clear: true, ..NOTHING };
    const ANY_KEY: Consent = Consent { any_key: true, ..NOTHING };
    const KNOWN_KEY: Consent = Consent { known_key: true, ..NOTHING };

    fn may(form: Form, channel: Channel, consent: Consent) -> bool {
        check(form, channel, consent, "source").is_ok()
    }

    #[test]
    fn verified_server_gets_the_cleartext_password() {
        for channel in [Channel::Socket, Channel::Tls(Proof::Authority), Channel::Tls(Proof::Identity)] {
            for form in [Form::Clear, Form::ClearOrEncrypted] {
                assert!(may(form, channel, NOTHING), "{form:?} {channel:?}");
            }
        }
    }

    #[test]
    fn unverified_server_gets_the_password_only_if_allowed() {
        use Form::{Clear, ClearOrEncrypted};
        for channel in [Channel::Tls(Proof::None), Channel::Tls(Proof::PublicAuthority)] {
            for (form, consent, expected) in [
                (Clear, NOTHING, false),
                (Clear, CLEAR, true),
                (Clear, ANY_KEY, false),
                (Clear, KNOWN_KEY, false),
                (ClearOrEncrypted, NOTHING, false),
                (ClearOrEncrypted, CLEAR, true),
                (ClearOrEncrypted, ANY_KEY, true),
                // Over TLS the plugin sends the password in the clear, so the key would not protect it.
                (ClearOrEncrypted, KNOWN_KEY, false),
            ] {
                assert_eq!(may(form, channel, consent), expected, "{form:?} {channel:?} {consent:?}");
            }
        }
        for (form, consent, expected) in [
            (Clear, CLEAR, false),
            (Clear, ANY_KEY, false),
            (ClearOrEncrypted, CLEAR, false),
            (ClearOrEncrypted, ANY_KEY, true),
            (ClearOrEncrypted, KNOWN_KEY, true),
        ] {
            assert_eq!(may(form, Channel::Plain, consent), expected, "{form:?} {consent:?}");
        }
        // A server that must prove its identity by the password gets no password before it has, whatever the user
        // allows.
        for consent in [NOTHING, CLEAR, ANY_KEY, KNOWN_KEY] {
            assert!(!may(ClearOrEncrypted, Channel::Tls(Proof::Password), consent), "{consent:?}");
        }
    }

    #[test]
    fn password_refusal_names_the_options_that_help() {
        for channel in [Channel::Tls(Proof::None), Channel::Tls(Proof::PublicAuthority), Channel::Tls(Proof::Password)]
        {
            let why = check(Form::ClearOrEncrypted, channel, NOTHING, "replica").unwrap_err();
            assert!(why.contains("--replica-tls-ca") && why.contains("--replica-allow-clear-password"), "{why}");
        }
    }
}
