//! The codec against real binlog files, with and without a real server, and against hostile bytes.
//!
//! - `golden`: files that MariaDB 10.11 wrote, kept in `tests/data` with a readable dump of each;
//! - `oracle`: the same files through another decoder;
//! - `live`: the same scenarios on a server started for the test, whose tables must equal the rows of its binlog;
//! - `replay`: rows events encoded here and executed by a server;
//! - `hostile`: arbitrary and damaged bytes.
//!
//! `SPATE_UPDATE_GOLDEN=1` rewrites the dumps, and the `live` tests then rewrite the files.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod dump;
mod events;
mod golden;
mod hostile;
mod live;
mod mariadb;
mod mirror;
mod oracle;
mod replay;
mod scenario;
#[path = "../../fuzz/walk.rs"]
mod walk;
