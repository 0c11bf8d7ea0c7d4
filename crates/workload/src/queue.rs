//! A queue from one reader to several connections. It has two halves: takers share one, and the taker that finds it empty takes all of the other,
//! which the reader has filled meanwhile. So the reader seldom meets a taker, is woken once for a whole half, and nobody is woken who does not sleep:
//! a wake costs as much as a small statement, and takes a connection from the processor that it shares with the server's thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// A taker may wait for the other half while it has this one locked.
    taken: Mutex<VecDeque<T>>,
    filled: Mutex<Filled<T>>,
    has_items: Condvar,
    has_room: Condvar,
    half_max: usize,
}

#[derive(Debug)]
struct Filled<T> {
    items: VecDeque<T>,
    reader_waits: bool,
    taker_waits: bool,
    is_closed: bool,
}

fn lock<T>(half: &Mutex<T>) -> MutexGuard<'_, T> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Queue<T> {
    pub(crate) fn new(items_max: usize) -> Queue<T> {
        let filled = Filled { items: VecDeque::new(), reader_waits: false, taker_waits: false, is_closed: false };
        Queue {
            taken: Mutex::default(),
            filled: Mutex::new(filled),
            has_items: Condvar::new(),
            has_room: Condvar::new(),
            half_max: items_max.div_ceil(2),
        }
    }

    /// Puts an item in, and waits while the queue is full. `false` if it is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let mut filled = lock(&self.filled);
        while filled.items.len() >= self.half_max && !filled.is_closed {
            filled.reader_waits = true;
            filled = self.has_room.wait(filled).unwrap_or_else(PoisonError::into_inner);
        }
        if filled.is_closed {
            return false;
        }
        filled.items.push_back(item);
        if std::mem::take(&mut filled.taker_waits) {
            self.has_items.notify_one();
        }
        true
    }

    /// Takes the oldest item; `None` when the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut taken = lock(&self.taken);
        if taken.is_empty() {
            let mut filled = lock(&self.filled);
            while filled.items.is_empty() && !filled.is_closed {
                filled.taker_waits = true;
                filled = self.has_items.wait(filled).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut *taken, &mut filled.items);
            if std::mem::take(&mut filled.reader_waits) {
                self.has_room.notify_one();
            }
        }
        taken.pop_front()
    }

    /// Nothing more comes, or nobody takes anything more.
    pub(crate) fn close(&self) {
        lock(&self.filled).is_closed = true;
        self.has_items.notify_all();
        self.has_room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_come_once() {
        for items_max in [1, 2, 10] {
            let queue = Queue::new(items_max);
            let taken: Vec<Vec<u32>> = std::thread::scope(|scope| {
                let takers: Vec<_> =
                    (0..3).map(|_| scope.spawn(|| std::iter::from_fn(|| queue.pop()).collect::<Vec<u32>>())).collect();
                for number in 0..10_000 {
                    assert!(queue.push(number));
                }
                queue.close();
                takers.into_iter().map(|taker| taker.join().unwrap()).collect()
            });
            assert!(taken.iter().all(|taken| taken.is_sorted()), "each taker finds the oldest");
            let mut sorted = taken.concat();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10_000).collect::<Vec<u32>>());
            assert!(!queue.push(1), "it is closed");
        }
    }
}
