//! The errors of a connection, and whether a retry can help.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::endpoint::EndpointError;

/// Shorthand for results of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// The other end of a connection, for messages: `source (repl@127.0.0.1:3306)`. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    name: Arc<str>,
    role_bytes: usize,
}

impl Peer {
    /// Names the other end by its role and endpoint.
    pub fn new(role: &str, endpoint: impl fmt::Display) -> Peer {
        Peer { name: format!("{role} ({endpoint})").into(), role_bytes: role.len() }
    }

    /// The role alone, such as `source`; command-line options begin with it.
    pub(super) fn role(&self) -> &str {
        &self.name[..self.role_bytes]
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// An error that a server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// The vendor's error number, such as 1062.
    pub code: u16,
    /// The SQLSTATE; empty in errors before the login.
    pub sql_state: String,
    /// The server's text.
    pub message: String,
    /// Which statement of a multi-statement failed, from 0. The later ones were not executed.
    pub statement: usize,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.code)?;
        if !self.sql_state.is_empty() {
            write!(f, " ({})", self.sql_state)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A lock wait timeout.
pub const CODE_LOCK_WAIT: u16 = 1205;

/// Somebody has interrupted the query.
pub(super) const CODE_INTERRUPTED: u16 = 1317;

/// A deadlock.
pub const CODE_DEADLOCK: u16 = 1213;

/// Error numbers after which the same statement may succeed, on this connection or on a new one.
const TRANSIENT_CODES: [u16; 21] = [
    1020, // record has changed since last read (snapshot isolation)
    1040, // too many connections
    1053, // server shutdown in progress
    1152, // aborted connection
    1158,
    1159,
    1160,
    1161, // the server's own network errors
    1184, // new aborting connection
    1203, // the user has too many connections
    CODE_LOCK_WAIT,
    CODE_DEADLOCK,
    CODE_INTERRUPTED,
    1479, // transaction branch was rolled back: deadlock (XA)
    1613, // transaction branch was rolled back: timeout (XA)
    1614, // transaction branch was rolled back: deadlock detected (XA)
    1927, // connection was killed (MariaDB)
    2006,
    2013, // connection lost, as a server that is a client itself reports it
    3169, // session was killed (MySQL)
    4031, // disconnected for inactivity (MySQL)
];

impl ServerError {
    /// True if a later retry can help.
    pub fn is_transient(&self) -> bool {
        ServerError::is_transient_code(self.code)
    }

    /// True if the same statement may succeed after an error with this number.
    pub fn is_transient_code(code: u16) -> bool {
        TRANSIENT_CODES.contains(&code)
    }
}

/// Why a connection, a login or a statement failed. No variant contains a password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The endpoint is incomplete.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The connection failed.
    #[error("cannot connect to the {peer}: {error}")]
    Connect {
        /// The server.
        peer: Peer,
        /// The operating system's error.
        error: io::Error,
    },
    /// The server refused the login.
    #[error("cannot log in to the {peer}: {error}{advice}")]
    Login {
        /// The server.
        peer: Peer,
        /// The server's error.
        error: ServerError,
        /// Advice that may help; empty if there is none.
        advice: String,
    },
    /// The login needs a method that Spate does not know or does not allow.
    #[error("cannot log in to the {peer}: {why}")]
    LoginMethod {
        /// The server.
        peer: Peer,
        /// The method, and the options that help.
        why: String,
    },
    /// The connection cannot be secured as the options require.
    #[error("no secure connection to the {peer}: {why}")]
    Insecure {
        /// The server.
        peer: Peer,
        /// The cause, and the options that help.
        why: String,
    },
    /// A session is not what its user needs.
    #[error("cannot use a session of the {peer}: {why}")]
    Session {
        /// The server.
        peer: Peer,
        /// Why not, and what to do.
        why: String,
    },
    /// The server answered a statement or a command with an error.
    #[error("{peer}: {error}")]
    Server {
        /// The server.
        peer: Peer,
        /// The server's error.
        error: ServerError,
    },
    /// The connection broke.
    #[error("lost the connection to the {peer}: {error}")]
    Lost {
        /// The server.
        peer: Peer,
        /// The operating system's error.
        error: io::Error,
    },
    /// The server sent nothing within the read timeout. The caller may retry to read the packet or receive the result.
    #[error("no answer from the {peer} within the read timeout")]
    Timeout {
        /// The server.
        peer: Peer,
    },
    /// The server violated the protocol, or the caller used the connection in the wrong order.
    #[error("protocol error with the {peer}: {why}")]
    Protocol {
        /// The server.
        peer: Peer,
        /// The violation.
        why: String,
    },
}

impl Error {
    /// True if a later retry, perhaps on a new connection, can help.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Connect { error, .. } => {
                !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
            }
            Error::Login { error, .. } | Error::Server { error, .. } => error.is_transient(),
            Error::Lost { .. } | Error::Timeout { .. } => true,
            Error::Endpoint(_)
            | Error::LoginMethod { .. }
            | Error::Insecure { .. }
            | Error::Session { .. }
            | Error::Protocol { .. } => false,
        }
    }

    /// True if nothing came within the read timeout; the connection is still usable for reading.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Timeout { .. })
    }

    /// True if the connection is of no more use, whatever is tried on it.
    pub fn is_connection_lost(&self) -> bool {
        match self {
            Error::Server { error, .. } => matches!(error.code, 1053 | 1927 | 3169 | 4031),
            Error::Timeout { .. } => false,
            _ => true,
        }
    }

    /// The server's error, if it was the server that failed.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Error::Login { error, .. } | Error::Server { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The server's error number, if it was the server that failed.
    pub fn code(&self) -> Option<u16> {
        self.server_error().map(|error| error.code)
    }
}
