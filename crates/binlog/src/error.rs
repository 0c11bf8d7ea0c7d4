//! The errors of decoding a binlog.

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A definite error: the bytes will never decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the structure.
    #[error("{what} is truncated: {needed} bytes needed, {available} there")]
    Truncated {
        /// The structure that was being read.
        what: &'static str,
        /// Bytes that the structure needs.
        needed: usize,
        /// Bytes that are left.
        available: usize,
    },
    /// The CRC32 at the event's end does not match its bytes.
    #[error("checksum mismatch: the event says {stored:#010x}, its bytes give {computed:#010x}")]
    Checksum {
        /// The checksum stored in the event.
        stored: u32,
        /// The checksum of the event's bytes.
        computed: u32,
    },
    /// A field has a value that the format does not allow.
    #[error("{what} is malformed: {why}")]
    Malformed {
        /// The structure that was being read.
        what: &'static str,
        /// The defect.
        why: String,
    },
    /// A well-formed structure that this version of Spate cannot interpret.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// The structure.
        what: &'static str,
        /// Its unknown value.
        why: String,
    },
}

impl Error {
    pub(crate) fn malformed(what: &'static str, why: impl Into<String>) -> Error {
        Error::Malformed { what, why: why.into() }
    }

    pub(crate) fn unsupported(what: &'static str, why: impl Into<String>) -> Error {
        Error::Unsupported { what, why: why.into() }
    }
}
