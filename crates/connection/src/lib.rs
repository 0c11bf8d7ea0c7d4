//! Where a server is, and the connection to it: the client/server protocol of MySQL and MariaDB, blocking, over std sockets.
//!
//! Our own, because Spate needs three things of it that the ready-made clients do not have: several statements in flight on
//! one connection, the raw packets of a binlog dump without an allocation or a system call for each, and the bytes of
//! the semi-synchronous prefix. The cryptography of the logins comes from `mysql_common`.
//!
//! The tour, from the wire up:
//! - `stream`: the socket; `tls`: what secures it;
//! - `packet`: the socket's bytes cut into packets, and packets written; `link` gives their errors a name;
//! - `login`: the handshake and the authentication plugins; `password`: which server may be given the password itself;
//! - `result`: the packets of an answer, decoded by a state machine without I/O;
//! - [`endpoint`]: where a server is, who connects to it, and how that is secured; option files;
//! - [`Connection`]: all of it together; [`backoff`]: how long to wait before another;
//! - [`quote`]: names and values as SQL text; [`ServerVersion`]: who answers.
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

pub use connection::Connection;
pub use error::{CODE_LOCK_WAIT, Error, Peer, Result, ServerError};
pub use login::Protection;
pub use options::ConnectOptions;
pub use result::{Outcome, ResultSet, Row, StatementOutcome};
pub use stream::ShutdownHandle;
pub use tls::Proof;
pub use version::{ServerVersion, Vendor};
