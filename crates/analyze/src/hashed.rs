//! Collections of what is a hash already.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by hashes.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// A set of hashes.
pub(crate) type HashedSet = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// Takes a hash for its own.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
