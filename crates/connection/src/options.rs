//! The timeouts and the memory limit of a connection.

use std::time::Duration;

/// How to connect.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The server's role in messages: `source` or `replica`.
    pub role: String,
    /// Limit of the connection and of each step of the login.
    pub connect_timeout: Duration,
    /// Limit of the whole login, including the connection: a server that sends byte by byte exceeds no limit of a step.
    pub login_timeout: Duration,
    /// How long to wait for the server's next bytes before [`super::Error::Timeout`]; `None`: no limit.
    pub read_timeout: Option<Duration>,
    /// How long to wait until the server accepts our bytes before the connection counts as lost; `None`: no limit.
    pub write_timeout: Option<Duration>,
    /// Allow [`super::Connection::load_local`]. The connection opens no file for a server: it sends only the caller's
    /// bytes.
    pub local_files: bool,
    /// Memory limit of the rows of an answer that is kept as a whole ([`super::Connection::query`]). A larger answer is
    /// an [`super::Error::Protocol`].
    pub answer_bytes_max: usize,
}

/// Default of [`ConnectOptions::answer_bytes_max`]. The largest answer that Spate requests describes all tables: some
/// hundred bytes for each column.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Default of [`ConnectOptions::login_timeout`]: three silent steps. A busy server delays the greeting or the answer to
/// the password, but not each byte.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

impl ConnectOptions {
    /// The default limits: ten seconds to connect, thirty for the whole login, no others.
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
