//! Where a server is, and the connection to it: the client/server protocol of MySQL and MariaDB, blocking, over std
//! sockets.
//!
//! Spate has its own client because the existing clients lack three things: several statements in flight on one
//! connection, the raw packets of a binlog dump without an allocation or a system call for each, and the bytes of the
//! semi-synchronous prefix. The cryptography of the logins comes from `mysql_common`.
//!
//! The tour, from the wire up:
//! - `stream`: the socket; `tls`: secures it;
//! - `packet`: cuts the socket's bytes into packets, and writes packets; `link` adds the peer's name to errors;
//! - `login`: the handshake and the authentication plugins; `password`: which server may get the password itself;
//! - `result`: a state machine without I/O that decodes the packets of an answer;
//! - [`endpoint`]: a server's address, the account there, and how to secure the connection; option files;
//! - [`Connection`]: combines all of these; [`backoff`]: how long to wait before the next attempt;
//! - [`quote`]: names and values as SQL text; [`ServerVersion`]: the server's vendor and version.
//!
//! Formats are those of the MariaDB knowledge base ("Client/server protocol") and the MySQL internals manual.

pub mod backoff;
mod connection;
pub mod endpoint;
mod error;
mod link;
mod login;
mod options;
mod packet;
mod password;
pub mod quote;
mod result;
mod stream;
#[cfg(any(test, feature = "test-server"))]
pub mod test_server;
#[cfg(test)]
mod tests;
mod tls;
mod version;

pub use connection::{Connection, Seen};
pub use error::{CODE_DEADLOCK, CODE_LOCK_WAIT, Error, Peer, Result, ServerError};
pub use login::Protection;
pub use options::ConnectOptions;
pub use result::{Outcome, ResultSet, Row, StatementOutcome};
pub use stream::ShutdownHandle;
pub use tls::Proof;
pub use version::{ServerVersion, Vendor};
