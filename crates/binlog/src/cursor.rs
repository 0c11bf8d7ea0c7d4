//! A checked reader over a byte slice: the error of a read beyond the end names the structure that was being read.

use crate::{Error, Result};

#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Cursor { bytes, what }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.bytes.split_at_checked(length) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(Error::Truncated { what: self.what, needed: length, available: self.bytes.len() }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u24(&mut self) -> Result<u32> {
        let b = self.array::<3>()?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], 0]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u48(&mut self) -> Result<u64> {
        let b = self.array::<6>()?;
        Ok(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0]))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length-encoded integer of the client/server protocol (1, 3, 4 or 9 bytes).
    pub(crate) fn length_encoded(&mut self) -> Result<u64> {
        match self.u8()? {
            small @ 0..=250 => Ok(u64::from(small)),
            252 => self.u16().map(u64::from),
            253 => self.u24().map(u64::from),
            254 => self.u64(),
            other => Err(Error::malformed(self.what, format!("length-encoded integer starts with {other}"))),
        }
    }

    /// A length-encoded integer used as a byte or item count.
    pub(crate) fn length_encoded_count(&mut self) -> Result<usize> {
        let count = self.length_encoded()?;
        usize::try_from(count).map_err(|_| Error::malformed(self.what, format!("count {count} is out of range")))
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
