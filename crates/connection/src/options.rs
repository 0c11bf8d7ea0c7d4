//! How long a connection may wait, and what it may hold.

use std::time::Duration;

/// How to connect.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// What the server is to us, for messages: `source` or `replica`.
    pub role: String,
    /// For the connection and for each step of the login.
    pub connect_timeout: Duration,
    /// For all of it, from the connection on: a server that sends one byte after the other never ends a step by silence.
    pub login_timeout: Duration,
    /// How long to wait for the server's next bytes before [`super::Error::Timeout`]; `None` is for ever.
    pub read_timeout: Option<Duration>,
    /// How long to wait for the server to take our bytes before the connection counts as lost; `None` is for ever.
    pub write_timeout: Option<Duration>,
    /// Allow [`super::Connection::load_local`]. No file is ever opened for a server: only what the caller gives is sent.
    pub local_files: bool,
    /// How much memory the rows of one answer may take that is kept as a whole ([`super::Connection::query`]). A larger answer is
    /// an [`super::Error::Protocol`].
    pub answer_bytes_max: usize,
}

/// Default of [`ConnectOptions::answer_bytes_max`]. The largest answer that Spate asks for describes all tables: some hundred
/// bytes for each column.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Default of [`ConnectOptions::login_timeout`]: three silent steps. A server that is busy lets the client wait for the greeting, or for
/// the answer to the password, and not for each byte.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

impl ConnectOptions {
    /// Ten seconds to connect, thirty for the whole login, no other limit.
    pub fn new(role: impl Into<String>) -> ConnectOptions {
        ConnectOptions {
            role: role.into(),
            connect_timeout: Duration::from_secs(10),
            login_timeout: LOGIN_TIME_MAX,
            read_timeout: None,
            write_timeout: None,
            local_files: false,
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }
}
