//! Accidental damage and damage by an attacker: changed bits, bytes and lengths, truncation, copies between events.

/// A small random generator (xorshift64*), so that a seed reproduces a run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() >> 11) as usize % end }
    }
}

/// Limit values of lengths and counts.
const EDGES: [u8; 10] = [0, 1, 2, 0x7f, 0x80, 250, 252, 253, 254, 255];

/// Damages `bytes` from one to eight times.
pub(crate) fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len());
        match random.below(7) {
            _ if bytes.is_empty() => bytes.push(random.next() as u8),
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = EDGES[random.below(EDGES.len())],
            3 => bytes.insert(at, random.next() as u8),
            4 => drop(bytes.remove(at)),
            5 => {
                let length = random.below(bytes.len() - at).min(64);
                let from = random.below(bytes.len() - length);
                bytes.copy_within(from..from + length, at);
            }
            _ => bytes.truncate(bytes.len() - random.below(bytes.len().min(32))),
        }
    }
}
