//! The memory of a fold: large blocks, filled from the front, freed all at once.

/// Bytes of the first block: ten thousand tables with a change each must not take more than a few tens of megabytes.
const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Bytes of the largest ordinary block. Large enough that blocks are few, small enough that the last wastes little.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// A place in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    block: u32,
    offset: u32,
}

/// A growing store of byte strings that are written once or overwritten in place, and never freed one by one.
#[derive(Debug, Default)]
pub struct Arena {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Arena {
    /// Allocates `length` zero bytes.
    pub fn allocate(&mut self, length: usize) -> Place {
        let fits = self.blocks.last().is_some_and(|block| block.capacity() - block.len() >= length);
        if !fits {
            let capacity = self.bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).max(length);
            self.blocks.push(Vec::with_capacity(capacity));
            self.bytes += capacity;
        }
        let index = self.blocks.len() - 1;
        let block = &mut self.blocks[index];
        let place = Place { block: index as u32, offset: block.len() as u32 };
        block.resize(block.len() + length, 0);
        place
    }

    /// The bytes from `place` on; the caller knows how many of them it allocated.
    #[inline]
    pub fn at(&self, place: Place, length: usize) -> &[u8] {
        &self.blocks[place.block as usize][place.offset as usize..place.offset as usize + length]
    }

    /// As above, mutable.
    #[inline]
    pub fn at_mut(&mut self, place: Place, length: usize) -> &mut [u8] {
        &mut self.blocks[place.block as usize][place.offset as usize..place.offset as usize + length]
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
