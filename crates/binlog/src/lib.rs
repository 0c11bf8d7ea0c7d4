//! The binlog codec: bytes ⇄ events, rows, GTIDs and transactions.
//!
//! This crate does no I/O and starts no thread. Its functions take byte slices and return borrowed views or typed
//! values. No input makes them panic; malformed bytes are an [`Error`].
//!
//! The tour, in the order of the data path:
//! - [`header`]: the 19 bytes before every event, and the event types;
//! - [`checksum`]: the CRC32 after every event;
//! - [`format`](mod@format): the format description, which gives the layout of a file's events;
//! - [`gtid`]: global transaction ids and positions;
//! - [`boundary`]: where transactions begin and end in a stream of events;
//! - [`table_map`], [`column`](mod@column): the tables that rows events change;
//! - [`rows`], [`image`]: the rows, measured by a plan that is made once per table;
//! - [`compressed`]: MariaDB's compressed events;
//! - [`payload`]: MySQL's transactions in one event;
//! - [`query`], [`session`], [`load`]: statements, and the events that give them their context;
//! - [`value`]: columns' values as text, for messages and dumps; [`typed`]: the same as values of their types;
//! - [`json`]: MySQL's JSON documents as text;
//! - [`encode`]: rows events for replay.
//!
//! Formats are those of MariaDB 10.11 and MySQL 8.4 to 9.7 as documented in the MariaDB knowledge base ("Replication
//! protocol") and the MySQL internals manual ("Binary log event types").

pub mod boundary;
pub mod checksum;
pub mod column;
pub mod compressed;
mod cursor;
pub mod encode;
mod error;
pub mod format;
pub mod gtid;
pub mod header;
pub mod image;
pub mod json;
pub mod load;
mod numbers;
pub mod payload;
pub mod query;
pub mod rows;
pub mod session;
pub mod table_map;
pub mod typed;
pub mod value;

pub use boundary::{Boundary, BoundaryTracker};
pub use checksum::ChecksumAlgorithm;
pub use error::{Error, Result};
pub use format::FormatDescription;
pub use gtid::{Gtid, GtidEvent, GtidPosition, LogicalClock, MariaDbGtid, MySqlGtid, Xid};
pub use header::{EventHeader, EventType};
pub use image::{ImagePlan, Span};
pub use query::QueryEvent;
pub use rows::{RowsEvent, RowsKind, RowsVersion};
pub use table_map::TableMap;

/// The four bytes at the start of every binlog file.
pub const FILE_MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
