//! The 19-byte header before every event, and the event types.

use crate::cursor::Cursor;
use crate::{Error, Result};

/// Bytes of the common header of every event (binlog version 4).
pub const HEADER_LENGTH: usize = 19;

/// Set by a source on events that are not in its binlog file (fake rotate, heartbeats in some versions).
pub const FLAG_ARTIFICIAL: u16 = 0x20;
/// Set by replicas on the relay log's own events, which did not come from the source.
pub const FLAG_RELAY_LOG: u16 = 0x40;
/// Set on an event that a reader may ignore if it does not know the type.
pub const FLAG_IGNORABLE: u16 = 0x80;
/// Set on a DDL or statement that uses a temporary table of its thread.
pub const FLAG_THREAD_SPECIFIC: u16 = 0x04;
/// The default database does not matter to this statement.
pub const FLAG_SUPPRESS_USE: u16 = 0x08;
/// Set in the format description of a binlog that was not closed cleanly.
pub const FLAG_IN_USE: u16 = 0x01;

/// The type byte of an event. Unknown values are kept, because an archive also stores events of unknown types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(pub u8);

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl EventType {
            $($(#[$doc])* pub const $name: EventType = EventType($value);)*

            /// The name in the servers' documentation; `None` for a type that is unknown here.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)* _ => None }
            }
        }
    };
}

event_types! {
    /// A statement, or BEGIN, COMMIT and friends.
    QUERY = 2, "Query";
    /// The server stopped.
    STOP = 3, "Stop";
    /// The binlog continues in another file.
    ROTATE = 4, "Rotate";
    /// Value of LAST_INSERT_ID or of an AUTO_INCREMENT for the statement that follows.
    INTVAR = 5, "Intvar";
    /// LOAD DATA: a further block of the file.
    APPEND_BLOCK = 9, "Append_block";
    /// LOAD DATA: drop the file.
    DELETE_FILE = 11, "Delete_file";
    /// Seeds of RAND() for the statement that follows.
    RAND = 13, "Rand";
    /// A user variable that the statement that follows reads.
    USER_VAR = 14, "User_var";
    /// Describes the layout of the events that follow.
    FORMAT_DESCRIPTION = 15, "Format_desc";
    /// Commit of a transactional engine's transaction.
    XID = 16, "Xid";
    /// LOAD DATA: first block of the file.
    BEGIN_LOAD_QUERY = 17, "Begin_load_query";
    /// LOAD DATA: the statement.
    EXECUTE_LOAD_QUERY = 18, "Execute_load_query";
    /// Names a table and its column types for the rows events that follow.
    TABLE_MAP = 19, "Table_map";
    /// Inserted rows (version 1).
    WRITE_ROWS_V1 = 23, "Write_rows_v1";
    /// Updated rows (version 1).
    UPDATE_ROWS_V1 = 24, "Update_rows_v1";
    /// Deleted rows (version 1).
    DELETE_ROWS_V1 = 25, "Delete_rows_v1";
    /// Something happened on the source that the binlog does not hold.
    INCIDENT = 26, "Incident";
    /// Heartbeat: the source is alive and has nothing new; never in a file.
    HEARTBEAT = 27, "Heartbeat";
    /// A reader may ignore it.
    IGNORABLE = 28, "Ignorable";
    /// MySQL: the statement that made the rows events.
    ROWS_QUERY = 29, "Rows_query";
    /// Inserted rows (version 2).
    WRITE_ROWS_V2 = 30, "Write_rows";
    /// Updated rows (version 2).
    UPDATE_ROWS_V2 = 31, "Update_rows";
    /// Deleted rows (version 2).
    DELETE_ROWS_V2 = 32, "Delete_rows";
    /// MySQL: the GTID of the transaction that follows.
    GTID_MYSQL = 33, "Gtid";
    /// MySQL: the transaction that follows has no GTID.
    ANONYMOUS_GTID = 34, "Anonymous_Gtid";
    /// MySQL: GTIDs of all earlier files.
    PREVIOUS_GTIDS = 35, "Previous_gtids";
    /// MySQL Group Replication: the rows that a transaction read and wrote.
    TRANSACTION_CONTEXT = 36, "Transaction_context";
    /// MySQL Group Replication: the group's members changed.
    VIEW_CHANGE = 37, "View_change";
    /// XA PREPARE.
    XA_PREPARE = 38, "XA_prepare";
    /// MySQL: updated rows, whose JSON columns may hold only the changes.
    PARTIAL_UPDATE_ROWS = 39, "Update_rows_partial";
    /// MySQL: all events of a transaction, perhaps compressed.
    TRANSACTION_PAYLOAD = 40, "Transaction_payload";
    /// MySQL heartbeat: the source is alive and has nothing new; never in a file.
    HEARTBEAT_V2 = 41, "Heartbeat";
    /// MySQL: the GTID, with a tag, of the transaction that follows.
    GTID_TAGGED_MYSQL = 42, "Gtid_tagged";
    /// MariaDB: the statement that made the rows events.
    ANNOTATE_ROWS = 160, "Annotate_rows";
    /// MariaDB: the binlog files that crash recovery still needs.
    BINLOG_CHECKPOINT = 161, "Binlog_checkpoint";
    /// MariaDB: the GTID of the transaction that follows.
    GTID_MARIADB = 162, "Gtid";
    /// MariaDB: the GTID position at the start of a file.
    GTID_LIST = 163, "Gtid_list";
    /// MariaDB: the rest of the file is encrypted.
    START_ENCRYPTION = 164, "Start_encryption";
    /// MariaDB: a zlib-compressed Query event.
    QUERY_COMPRESSED = 165, "Query_compressed";
    /// MariaDB: a zlib-compressed Write_rows_v1 event.
    WRITE_ROWS_COMPRESSED_V1 = 166, "Write_rows_compressed_v1";
    /// MariaDB: a zlib-compressed Update_rows_v1 event.
    UPDATE_ROWS_COMPRESSED_V1 = 167, "Update_rows_compressed_v1";
    /// MariaDB: a zlib-compressed Delete_rows_v1 event.
    DELETE_ROWS_COMPRESSED_V1 = 168, "Delete_rows_compressed_v1";
    /// MariaDB: a zlib-compressed Write_rows (version 2) event.
    WRITE_ROWS_COMPRESSED = 169, "Write_rows_compressed";
    /// MariaDB: a zlib-compressed Update_rows (version 2) event.
    UPDATE_ROWS_COMPRESSED = 170, "Update_rows_compressed";
    /// MariaDB: a zlib-compressed Delete_rows (version 2) event.
    DELETE_ROWS_COMPRESSED = 171, "Delete_rows_compressed";
}

impl EventType {
    /// True for the events that begin a transaction and give its GTID, or say that it has none.
    pub fn is_gtid(self) -> bool {
        matches!(
            self,
            EventType::GTID_MARIADB | EventType::GTID_MYSQL | EventType::GTID_TAGGED_MYSQL | EventType::ANONYMOUS_GTID
        )
    }
}

impl std::fmt::Display for EventType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "event type {}", self.0),
        }
    }
}

/// The common header of every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// The time when the statement began, in seconds since 1970; 0 in artificial events.
    pub timestamp_seconds: u32,
    /// The event's type.
    pub event_type: EventType,
    /// The server that first wrote the event.
    pub server_id: u32,
    /// Length of the whole event in bytes: header, body and checksum.
    pub event_length: u32,
    /// Offset of the next event in the *source's* file, modulo 2³²; 0 in artificial events.
    pub next_position: u32,
    /// `FLAG_…` bits.
    pub flags: u16,
}

impl EventHeader {
    /// Reads the header at the start of `bytes`, which may hold more.
    ///
    /// # Errors
    /// [`Error::Truncated`] with fewer than 19 bytes; [`Error::Malformed`] if the event claims to be shorter than its
    /// header.
    pub fn parse(bytes: &[u8]) -> Result<EventHeader> {
        let mut cursor = Cursor::new(bytes, "event header");
        let header = EventHeader {
            timestamp_seconds: cursor.u32()?,
            event_type: EventType(cursor.u8()?),
            server_id: cursor.u32()?,
            event_length: cursor.u32()?,
            next_position: cursor.u32()?,
            flags: cursor.u16()?,
        };
        if (header.event_length as usize) < HEADER_LENGTH {
            let why = format!("it claims a length of {} bytes, less than the header's own", header.event_length);
            return Err(Error::malformed("event header", why));
        }
        Ok(header)
    }

    /// Writes the header's 19 bytes.
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0..4].copy_from_slice(&self.timestamp_seconds.to_le_bytes());
        bytes[4] = self.event_type.0;
        bytes[5..9].copy_from_slice(&self.server_id.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.event_length.to_le_bytes());
        bytes[13..17].copy_from_slice(&self.next_position.to_le_bytes());
        bytes[17..19].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// True for events that a server made up for the stream and that are in no binlog file.
    pub fn is_artificial(&self) -> bool {
        self.flags & FLAG_ARTIFICIAL != 0 || matches!(self.event_type, EventType::HEARTBEAT | EventType::HEARTBEAT_V2)
    }
}
