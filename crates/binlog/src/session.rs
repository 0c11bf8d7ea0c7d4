//! Small events: the context of the statement that follows, and the next file of the stream.

use crate::cursor::Cursor;
use crate::{Error, Result};

/// The value of an integer variable for the statement that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntvarEvent {
    /// The value that `LAST_INSERT_ID()` returns.
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
    /// The variable's name, without the `@`.
    pub name: &'a [u8],
    /// Its value.
    pub value: UserVarValue<'a>,
    /// MariaDB: the name of the data type, such as `point`; `None` if the value alone decides it.
    pub type_name: Option<&'a [u8]>,
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
        let mut cursor = Cursor::new(body, "User_var event");
        let name_length = cursor.u32()? as usize;
        let name = cursor.take(name_length)?;
        if cursor.u8()? != 0 {
            return Ok(UserVarEvent { name, value: UserVarValue::Null, type_name: None });
        }
        let kind = cursor.u8()?;
        let collation = cursor.u32()?;
        let length = cursor.u32()? as usize;
        let mut bytes = Cursor::new(cursor.take(length)?, "value of a User_var event");
        let (is_unsigned, type_name) = read_user_var_chunks(cursor)?;
        let value = match kind {
            0 => UserVarValue::String { bytes: bytes.rest(), collation },
            1 => UserVarValue::Real(f64::from_bits(bytes.u64()?)),
            2 if is_unsigned => UserVarValue::Unsigned(bytes.u64()?),
            2 => UserVarValue::Signed(bytes.u64()? as i64),
            4 => UserVarValue::Decimal { precision: bytes.u8()?, scale: bytes.u8()?, bytes: bytes.rest() },
            other => return Err(Error::unsupported("User_var event", format!("type {other}"))),
        };
        Ok(UserVarEvent { name, value, type_name })
    }
}

/// Reads the fields after a variable's value, each after a byte for its kind: the sign, and in MariaDB the name of the
/// data type.
fn read_user_var_chunks<'a>(mut cursor: Cursor<'a>) -> Result<(bool, Option<&'a [u8]>)> {
    let (mut is_unsigned, mut type_name) = (false, None);
    while !cursor.is_empty() {
        match cursor.u8()? {
            0 => is_unsigned = false,
            1 => is_unsigned = true,
            2 => {
                let length = cursor.length_encoded_count()?;
                type_name = Some(cursor.take(length)?);
            }
            other => return Err(Error::unsupported("User_var event", format!("piece {other} after the value"))),
        }
    }
    Ok((is_unsigned, type_name))
}

/// The place where the stream continues.
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
    /// [`Error::Truncated`], or [`Error::Malformed`] if the name is not UTF-8 or cannot be the name of a plain file.
    pub fn parse(body: &'a [u8]) -> Result<RotateEvent<'a>> {
        let mut cursor = Cursor::new(body, "Rotate event");
        let position = cursor.u64()?;
        let file = std::str::from_utf8(cursor.rest())
            .map_err(|_| Error::malformed("Rotate event", "the file name is not UTF-8"))?;
        if file.is_empty() || file.contains(['/', '\0']) || file.starts_with('.') {
            return Err(Error::malformed("Rotate event", format!("{file:?} is not the name of a binlog file")));
        }
        Ok(RotateEvent { position, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_variable_with_type_name_parses() {
        // SET @p = POINT(1,2), as MariaDB 10.11 logs it, with the value cut to one byte.
        let body = b"\x01\0\0\0p\0\0\x3f\0\0\0\x01\0\0\0V\x02\x05point";
        let event = UserVarEvent::parse(body).unwrap();
        assert_eq!(event.value, UserVarValue::String { bytes: b"V", collation: 63 });
        assert_eq!(event.type_name, Some(b"point".as_slice()));
        assert!(UserVarEvent::parse(&body[..body.len() - 1]).is_err());
    }

    #[test]
    fn rotate_event_with_a_path_is_refused() {
        assert_eq!(RotateEvent::parse(b"\x04\0\0\0\0\0\0\0b.1").unwrap().file, "b.1");
        for name in ["", "../b.1", "/etc/passwd", "..", "a/b"] {
            let body = [&[4, 0, 0, 0, 0, 0, 0, 0], name.as_bytes()].concat();
            assert!(RotateEvent::parse(&body).is_err(), "{name}");
        }
    }
}
