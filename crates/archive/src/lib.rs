//! The archive: the durable local copy of a source's binlog.
//!
//! Its files *are* binlog files, byte for byte as the source sent them, so that the servers' own tools read them. Each
//! has an index beside it that can always be rebuilt. A file received from its beginning is identical to the source's.
//!
//! The tour, in the order of the data path:
//! - [`ArchiveWriter`], owned by the thread that talks to the source: `open` (locks, recovers), then for each file of
//!   the source `begin_file(name, format description event)`, `append(event)` for each event, `flush()` whenever the
//!   source pauses (and after `sync_due_in()`), `discard_partial_transaction()` after a lost connection. `end()`
//!   returns the place where the source is to continue: [`LogEnd::gtid_position`], or file and position.
//!   [`ArchiveWriter::purge`] removes old files.
//! - [`Archive`], from [`ArchiveWriter::archive`], or from [`Archive::open`] for a directory that another process
//!   writes: a cheap handle for all readers. Its [`Tail`] publishes how far the archive reaches, as [`Received`] and
//!   [`Durable`], and wakes waiting threads.
//! - [`ArchiveReader`], from [`Archive::reader`] with a [`Seek`]: `next_event()` lends one [`ArchivedEvent`] after the
//!   other, verified, across files, of whole transactions only; `None` at the end, then `wait(timeout)`.
//!
//! ```no_run
//! # fn main() -> spate_archive::Result<()> {
//! use std::{path::Path, sync::Arc, time::Duration};
//! use spate_archive::{ArchiveWriter, ReadOptions, RealFileSystem, Seek, WriterOptions};
//!
//! let mut writer = ArchiveWriter::open(Arc::new(RealFileSystem), Path::new("archive"), WriterOptions::default())?;
//! let archive = writer.archive().clone();
//! # let (format_event, event) = (vec![], vec![]);
//! writer.begin_file("mariadb-bin.000001", &format_event)?;
//! writer.append(&event)?;
//! writer.flush()?;
//!
//! let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default())?;
//! loop {
//!     while let Some(event) = reader.next_event()? {
//!         let _ = (event.seqno, event.boundary, event.body);
//!     }
//!     reader.wait(Duration::from_secs(1));
//! }
//! # }
//! ```
//!
//! Inside: [`fs`](FileSystem) has the operations that the archive asks of a file system; `follower` counts transactions
//! in a stream of events, for writer and readers in the same way; `blocks` reads whole events in large blocks; `scan`
//! and `recovery` find the end after a crash; `incoming` decides which local file a source's events go to; `list` and
//! `index` are the two small files beside the binlog; `names` checks the names of files, and `exposure` finds files
//! that other accounts of the machine may open.

mod archive;
mod blocks;
mod covered;
mod directory;
mod error;
mod exposure;
mod follower;
mod fs;
mod index;
mod list;
mod names;
mod position;
mod purge;
mod reader;
mod recovery;
mod scan;
mod seek;
mod set_aside;
mod stopping;
mod tail;
#[cfg(feature = "test-source")]
pub mod test_source;
mod walked;
mod writer;

pub use archive::Archive;
pub use blocks::ReadOptions;
pub use error::{Error, Result};
pub use exposure::Exposure;
pub use fs::{DIRECTORY_MODE, FILE_MODE, FileHandle, FileSystem, RealFileSystem};
pub use index::TransactionRecord;
pub use list::{FileFacts, write_list};
pub use names::{BACKUP_ID_NAME, STATUS_SOCKET_NAME, check_source_name};
pub use position::{Applied, Durable, LogEnd, Received};
pub use purge::{Purged, Retention};
pub use reader::{ArchiveReader, ArchivedEvent};
pub use seek::Seek;
pub use set_aside::{purge_asides, set_aside};
pub use stopping::{is_blind_to, stopping_point};
pub use tail::{ArchiveFile, Tail, Waited};
pub use walked::DirectoryOptions;
pub use writer::{Appended, ArchiveWriter, SyncPolicy, WriterOptions};
