//! The address of a server and the account to use there: [`Endpoint`], from text, from the vendors' option files, from
//! the environment.
//!
//! The first value wins: each `with_…` only fills in missing values. The text form cannot contain a password, because
//! every process list shows the command line. `Debug` of a [`Secret`] does not show it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

mod option_file;
mod security;

pub use option_file::OptionFiles;
pub use security::{PublicKey, TlsMode, TlsOptions};

/// The default port of MySQL and MariaDB.
pub const DEFAULT_PORT: u16 = 3306;

/// The groups that Spate reads in an option file: those that the vendors' clients share, and Spate's own.
pub const OPTION_GROUPS: [&str; 4] = ["client", "client-server", "client-mariadb", "spate"];

/// An error in an endpoint or an option file. Never contains a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The text is not of the form `[user@]host[:port]` or `[user@]/path/to/socket`.
    #[error("not an endpoint: {why} (expected [user@]host[:port], [user@][ipv6]:port or [user@]/path/to/socket)")]
    Malformed {
        /// The error, without the text itself.
        why: String,
    },
    /// Neither the text nor an option file names a user.
    #[error("no user for {address}: write user@{address}, or put user= into an option file")]
    UserMissing {
        /// The address that lacks a user.
        address: String,
    },
    /// Neither the text nor an option file names a host or a socket.
    #[error(
        "no host and no socket: name them with --source or --replica, as user@host[:port], or put host= or socket= into an \
         option file"
    )]
    AddressMissing,
    /// An option file cannot be read.
    #[error("cannot read option file {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        why: String,
    },
    /// Every account of the machine may write to an option file that the user named.
    #[error(
        "cannot trust option file {}: everyone may write to it; remove that permission (chmod o-w)",
        path.display()
    )]
    WorldWritable {
        /// The file.
        path: PathBuf,
    },
    /// An option file has a line that cannot be parsed.
    #[error("option file {}, line {line}: {why}", path.display())]
    OptionFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error, without the value.
        why: String,
    },
    /// An environment variable for a password is not UTF-8.
    #[error("environment variable {name} is not UTF-8")]
    Environment {
        /// The variable.
        name: String,
    },
}

/// A password. `Debug` shows only that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }

    /// The password itself, for the authentication exchange and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Over the network.
    Tcp {
        /// A name or an address, IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Over a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The address of a server, and the account to use there. Parts may be missing until an option file fills them in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    user: Option<String>,
    password: Option<Secret>,
    host: Option<String>,
    port: Option<u16>,
    socket: Option<PathBuf>,
    tls: TlsOptions,
    public_key: Option<PublicKey>,
    allows_clear_password: bool,
}

impl Endpoint {
    /// An endpoint over TCP.
    pub fn tcp(user: impl Into<String>, host: impl Into<String>, port: u16) -> Endpoint {
        Endpoint { user: Some(user.into()), host: Some(host.into()), port: Some(port), ..Endpoint::default() }
    }

    /// An endpoint over a Unix socket.
    pub fn unix(user: impl Into<String>, socket: impl Into<PathBuf>) -> Endpoint {
        Endpoint { user: Some(user.into()), socket: Some(socket.into()), ..Endpoint::default() }
    }

    /// Another server, with everything else the same.
    pub fn moved_to(mut self, host: impl Into<String>, port: u16) -> Endpoint {
        (self.host, self.port, self.socket) = (Some(host.into()), Some(port), None);
        self
    }

    /// Sets the password, unless there is one.
    #[must_use]
    pub fn with_password(mut self, password: Secret) -> Endpoint {
        self.password.get_or_insert(password);
        self
    }

    /// Takes the password from an environment variable, if the variable is set and there is no password yet.
    ///
    /// # Errors
    /// [`EndpointError::Environment`] if the variable is not UTF-8.
    pub fn with_password_variable(self, name: &str) -> Result<Endpoint, EndpointError> {
        match std::env::var(name) {
            Ok(password) => Ok(self.with_password(Secret::new(password))),
            Err(std::env::VarError::NotPresent) => Ok(self),
            Err(std::env::VarError::NotUnicode(_)) => Err(EndpointError::Environment { name: name.to_owned() }),
        }
    }

    /// Fills in missing values from an option file (`user`, `password`, `host`, `port`, `socket`, and the options of
    /// TLS), as the vendors' clients read it: in the given groups, where later lines override earlier ones. The file's
    /// host and socket count only if the endpoint has neither.
    ///
    /// # Errors
    /// [`EndpointError::Unreadable`] and [`EndpointError::OptionFile`].
    pub fn with_option_file(self, path: &Path, groups: &[&str]) -> Result<Endpoint, EndpointError> {
        Ok(self.with_options(OptionFiles::only(path, groups)?))
    }

    /// Fills in missing values from option files that have been read.
    #[must_use]
    pub fn with_options(mut self, found: OptionFiles) -> Endpoint {
        self.user = self.user.or(found.user);
        self.password = self.password.or(found.password);
        if self.host.is_none() && self.socket.is_none() {
            self.host = found.host;
            self.socket = found.socket;
        }
        self.port = self.port.or(found.port);
        self.tls = self.tls.or(found.tls);
        self.public_key = self.public_key.or(found.public_key);
        self
    }

    /// Fills in missing TLS options.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsOptions) -> Endpoint {
        self.tls = self.tls.or(tls);
        self
    }

    /// Sets how to use the server's RSA key, unless that is set.
    #[must_use]
    pub fn with_public_key(mut self, public_key: Option<PublicKey>) -> Endpoint {
        self.public_key = self.public_key.or(public_key);
        self
    }

    /// Sets whether a server that has not proven its identity may get the password itself over TLS.
    #[must_use]
    pub fn with_clear_password_allowed(mut self, is_allowed: bool) -> Endpoint {
        self.allows_clear_password |= is_allowed;
        self
    }

    /// True if a server that has not proven its identity may get the password itself over TLS.
    pub fn allows_clear_password(&self) -> bool {
        self.allows_clear_password
    }

    /// How the connection is secured.
    pub fn tls(&self) -> &TlsOptions {
        &self.tls
    }

    /// How to use the server's RSA key; `None`: do not use it.
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.public_key.as_ref()
    }

    /// The address. A socket wins over a host, unless the host is another machine's or `127.0.0.1`.
    ///
    /// # Errors
    /// [`EndpointError::AddressMissing`].
    pub fn address(&self) -> Result<Address, EndpointError> {
        match (&self.socket, &self.host) {
            (Some(socket), None) => Ok(Address::Unix(socket.clone())),
            (Some(socket), Some(host)) if host == "localhost" => Ok(Address::Unix(socket.clone())),
            (_, Some(host)) => Ok(Address::Tcp { host: host.clone(), port: self.port.unwrap_or(DEFAULT_PORT) }),
            (None, None) => Err(EndpointError::AddressMissing),
        }
    }

    /// The account's name.
    ///
    /// # Errors
    /// [`EndpointError::UserMissing`], or [`EndpointError::AddressMissing`] if the address is missing too.
    pub fn user(&self) -> Result<&str, EndpointError> {
        match &self.user {
            Some(user) => Ok(user),
            None => Err(EndpointError::UserMissing { address: self.address()?.to_string() }),
        }
    }

    /// The password; `None` if there is none.
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.address() {
            Ok(address) => address.fmt(f),
            Err(_) => f.write_str("(no address)"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let (user, place) = split_user(text);
        if let Some(user) = user {
            if user.is_empty() {
                return Err(malformed("the user before the @ is empty"));
            }
            if user.contains(':') {
                return Err(malformed(
                    "a password does not belong here, every process list would show it; use an option file",
                ));
            }
        }
        let user = user.map(str::to_owned);
        if place.starts_with('/') {
            return Ok(Endpoint { user, socket: Some(PathBuf::from(place)), ..Endpoint::default() });
        }
        let (host, port) = split_port(place)?;
        if host.is_empty() {
            return Err(malformed("the host is empty"));
        }
        Ok(Endpoint { user, host: Some(host.to_owned()), port, ..Endpoint::default() })
    }
}

fn malformed(why: &str) -> EndpointError {
    EndpointError::Malformed { why: why.to_owned() }
}

/// A user may contain an @ and so may a socket's path; a host may not.
fn split_user(text: &str) -> (Option<&str>, &str) {
    if text.starts_with('/') {
        return (None, text);
    }
    let at = text.find("@/").or_else(|| text.rfind('@'));
    match at {
        Some(at) => (Some(&text[..at]), &text[at + 1..]),
        None => (None, text),
    }
}

fn split_port(place: &str) -> Result<(&str, Option<u16>), EndpointError> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| malformed("the [ is never closed"))?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(parse_port(port)?))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(malformed("only a port may follow the ]")),
        };
    }
    match place.split_once(':') {
        None => Ok((place, None)),
        Some((_, rest)) if rest.contains(':') => Err(malformed("an IPv6 address needs brackets, as in [::1]:3306")),
        Some((host, port)) => Ok((host, Some(parse_port(port)?))),
    }
}

fn parse_port(text: &str) -> Result<u16, EndpointError> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(malformed("the port is not a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        let endpoint: Endpoint = text.parse().unwrap();
        format!("{} {}", endpoint.user.as_deref().unwrap_or("-"), endpoint.address().unwrap())
    }

    #[test]
    fn endpoint_text_forms_are_parsed() {
        assert_eq!(parsed("repl@db1"), "repl db1:3306");
        assert_eq!(parsed("repl@db1:3307"), "repl db1:3307");
        assert_eq!(parsed("db1:3307"), "- db1:3307");
        assert_eq!(parsed("a@b@db1"), "a@b db1:3306");
        assert_eq!(parsed("repl@[::1]:3307"), "repl [::1]:3307");
        assert_eq!(parsed("[fe80::1]"), "- [fe80::1]:3306");
        assert_eq!(parsed("repl@/run/my@sql.sock"), "repl /run/my@sql.sock");
        assert_eq!(parsed("/run/a@/b.sock"), "- /run/a@/b.sock");
    }

    #[test]
    fn wrong_endpoint_text_is_refused_without_repeating_it() {
        for text in ["", "repl@", "@db1", "db1:", "db1:0", "db1:65536", "::1", "[::1", "[::1]x", "u:geheim@db1"] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn incomplete_endpoint_names_the_missing_part() {
        let endpoint: Endpoint = "db1".parse().unwrap();
        assert!(endpoint.user().unwrap_err().to_string().contains("user@db1:3306"));
        assert_eq!(Endpoint::default().address().unwrap_err(), EndpointError::AddressMissing);
    }

    #[test]
    fn password_is_never_displayed() {
        let endpoint = Endpoint::tcp("repl", "db1", 3306).with_password(Secret::new("geheim"));
        assert!(!format!("{endpoint:?} {endpoint:#?} {endpoint}").contains("geheim"));
        assert_eq!(endpoint.password().map(Secret::expose), Some("geheim"));
    }

    #[test]
    fn first_given_value_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.cnf");
        let text = "[client]\nuser=filed\npassword=p\nhost=elsewhere\nport=3311\nsocket=/run/x.sock\n";
        std::fs::write(&path, text).unwrap();
        let read = |text: &str| text.parse::<Endpoint>().unwrap().with_option_file(&path, &OPTION_GROUPS).unwrap();
        assert_eq!(read("me@db1").to_string(), "me@db1:3311");
        assert_eq!(read("db1:3312").to_string(), "filed@db1:3312");
        assert_eq!(read("/tmp/y.sock").to_string(), "filed@/tmp/y.sock");
        let from_file = Endpoint::default().with_option_file(&path, &OPTION_GROUPS).unwrap();
        assert_eq!(from_file.to_string(), "filed@elsewhere:3311");
        assert_eq!(from_file.with_password(Secret::new("later")).password().map(Secret::expose), Some("p"));
    }
}
