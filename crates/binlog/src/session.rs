//! Small events: the context that a statement takes from before it, and where the stream goes on.

use crate::cursor::Cursor;
use crate::{Error, Result};

/// The value of an integer variable for the statement that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntvarEvent {
    /// What `LAST_INSERT_ID()` returns.
    LastInsertId(u64),
    /// The first AUTO_INCREMENT value that the statement generates.
    InsertId(u64),
}

impl IntvarEvent {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Unsupported`].
    pub fn parse(body: &[u8]) -> Result<IntvarEvent> {
        let mut cursor = Cursor::new(body, "Intvar event");
        let kind = cursor.u8()?;
        let value = cursor.u64()?;
        match kind {
            1 => Ok(IntvarEvent::LastInsertId(value)),
            2 => Ok(IntvarEvent::InsertId(value)),
            other => Err(Error::unsupported("Intvar event", format!("variable {other}"))),
        }
    }
}

/// The seeds of `RAND()` for the statement that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandEvent {
    /// `rand_seed1`.
    pub seed1: u64,
    /// `rand_seed2`.
    pub seed2: u64,
}

impl RandEvent {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse(body: &[u8]) -> Result<RandEvent> {
        let mut cursor = Cursor::new(body, "Rand event");
        Ok(RandEvent { seed1: cursor.u64()?, seed2: cursor.u64()? })
    }
}

/// A user variable that the statement that follows reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UserVarEvent<'a> {
    /// Without the `@`.
    pub name: &'a [u8],
    /// Its value.
    pub value: UserVarValue<'a>,
}

/// The value of a user variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserVarValue<'a> {
    /// NULL.
    Null,
    /// A string, with the id of its collation.
    String {
        /// Bytes in the collation's character set.
        bytes: &'a [u8],
        /// Id of the collation.
        collation: u32,
    },
    /// A floating-point number.
    Real(f64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A decimal: precision, scale and the packed digits.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
        /// As in a row image.
        bytes: &'a [u8],
    },
}

impl<'a> UserVarEvent<'a> {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Unsupported`].
    pub fn parse(body: &'a [u8]) -> Result<UserVarEvent<'a>> {
        const UNSIGNED: u8 = 1;
        let mut cursor = Cursor::new(body, "User_var event");
        let name_length = cursor.u32()? as usize;
        let name = cursor.take(name_length)?;
        if cursor.u8()? != 0 {
            return Ok(UserVarEvent { name, value: UserVarValue::Null });
        }
        let kind = cursor.u8()?;
        let collation = cursor.u32()?;
        let length = cursor.u32()? as usize;
        let mut bytes = Cursor::new(cursor.take(length)?, "value of a User_var event");
        let flags = if cursor.is_empty() { 0 } else { cursor.u8()? };
        let value = match kind {
            0 => UserVarValue::String { bytes: bytes.rest(), collation },
            1 => UserVarValue::Real(f64::from_bits(bytes.u64()?)),
            2 if flags & UNSIGNED != 0 => UserVarValue::Unsigned(bytes.u64()?),
            2 => UserVarValue::Signed(bytes.u64()? as i64),
            4 => UserVarValue::Decimal { precision: bytes.u8()?, scale: bytes.u8()?, bytes: bytes.rest() },
            other => return Err(Error::unsupported("User_var event", format!("type {other}"))),
        };
        Ok(UserVarEvent { name, value })
    }
}

/// Where the stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotateEvent<'a> {
    /// Offset of the next event in the next file.
    pub position: u64,
    /// Name of the next file.
    pub file: &'a str,
}

impl<'a> RotateEvent<'a> {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`], or [`Error::Malformed`] if the name is not UTF-8 or could not be a plain file's.
    pub fn parse(body: &'a [u8]) -> Result<RotateEvent<'a>> {
        let mut cursor = Cursor::new(body, "Rotate event");
        let position = cursor.u64()?;
        let file = std::str::from_utf8(cursor.rest())
            .map_err(|_| Error::malformed("Rotate event", "the file name is not UTF-8"))?;
        if file.is_empty() || file.contains(['/', '\0']) || file.starts_with('.') {
            return Err(Error::malformed("Rotate event", format!("'{file}' is not the name of a binlog file")));
        }
        Ok(RotateEvent { position, file })
    }
}
