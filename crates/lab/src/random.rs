//! The laboratory's own random numbers. They come from no library, so that a seed gives the same numbers on every machine
//! and with every version of every dependency.

/// A generator after Steele, Lea and Flood's SplitMix64: one addition and a mix for each number.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut random = Random { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        random.next();
        random
    }

    /// A generator whose numbers do not depend on how many this one gives afterwards.
    pub(crate) fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. (Small numbers are slightly likelier, which does not matter here.)
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of some words.
    pub(crate) fn word(&mut self, words: &[&'static str]) -> &'static str {
        words.get(self.below(words.len())).copied().unwrap_or_default()
    }

    /// One of some things; `None` if there are none.
    pub(crate) fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        things.get(self.below(things.len()))
    }

    /// One of some things, with probabilities by weight; `None` if all weights are 0.
    pub(crate) fn weighted<T: Copy>(&mut self, things: &[(usize, T)]) -> Option<T> {
        let mut rest = self.below(things.iter().map(|(weight, _)| weight).sum());
        for &(weight, thing) in things {
            if rest < weight {
                return Some(thing);
            }
            rest -= weight;
        }
        None
    }

    /// Brings things into any order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }

    /// Some of the things, at least one if there is one, in their order.
    pub(crate) fn some<T: Clone>(&mut self, things: &[T], percent: usize) -> Vec<T> {
        let mut chosen: Vec<T> = things.iter().filter(|_| self.chance(percent)).cloned().collect();
        if chosen.is_empty() {
            chosen.extend(self.pick(things).cloned());
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_always_gives_the_same_numbers() {
        let mut random = Random::new(7);
        let numbers: Vec<usize> = (0..6).map(|_| random.below(1000)).collect();
        assert_eq!(numbers, [299, 390, 201, 726, 683, 431]);
    }

    #[test]
    fn weight_of_zero_is_never_chosen() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.weighted(&[(0, 'a'), (3, 'b'), (0, 'c')]) == Some('b')));
        assert_eq!(random.weighted(&[(0, 'a')]), None);
    }

    #[test]
    fn random_number_stays_below_its_bound() {
        let mut random = Random::new(2);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.some(&[1, 2, 3], 0).len(), 1);
    }
}
