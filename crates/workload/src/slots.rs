//! How many sessions have a connection. A session counts until its connection is closed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Places for sessions.
#[derive(Debug)]
pub(crate) struct Slots {
    slots_max: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    pub(crate) fn new(slots_max: usize) -> Slots {
        Slots { slots_max, taken: Mutex::new(0), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, and returns how many are taken then. `None` if none is free after a short while.
    pub(crate) fn take(&self) -> Option<usize> {
        const WAIT: Duration = Duration::from_millis(50);
        let is_full = |taken: &mut usize| *taken >= self.slots_max;
        let (mut taken, _) =
            self.freed.wait_timeout_while(self.lock(), WAIT, is_full).unwrap_or_else(PoisonError::into_inner);
        if is_full(&mut taken) {
            return None;
        }
        *taken += 1;
        Some(*taken)
    }

    /// Gives a slot back.
    pub(crate) fn free(&self) {
        let mut taken = self.lock();
        *taken = taken.saturating_sub(1);
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_there_are() {
        let slots = Slots::new(2);
        assert_eq!((slots.take(), slots.take(), slots.take()), (Some(1), Some(2), None));
        slots.free();
        assert_eq!(slots.take(), Some(2));
    }
}
