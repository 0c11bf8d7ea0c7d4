//! A queue from one reader to several connections. The reader is woken when half of it is free, rather than for each place, and
//! nobody is woken who does not sleep: a wake costs as much as a small statement.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    has_items: Condvar,
    has_room: Condvar,
    items_max: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// Those that wait for items.
    takers: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(items_max: usize) -> Queue<T> {
        let state = State { items: VecDeque::new(), takers: 0, is_closed: false };
        Queue { state: Mutex::new(state), has_items: Condvar::new(), has_room: Condvar::new(), items_max }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item in, and waits while the queue is full. `false` if it is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let mut state = self.lock();
        if state.items.len() >= self.items_max {
            let is_full = |state: &mut State<T>| state.items.len() > self.items_max / 2 && !state.is_closed;
            state = self.has_room.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return false;
        }
        state.items.push_back(item);
        if state.takers > 0 {
            self.has_items.notify_one();
        }
        true
    }

    /// Takes the oldest item; `None` when the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                if state.items.len() == self.items_max / 2 {
                    self.has_room.notify_one();
                }
                return Some(item);
            }
            if state.is_closed {
                return None;
            }
            state.takers += 1;
            state = self.has_items.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.takers -= 1;
        }
    }

    /// Nothing more comes, or nobody takes anything more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_items.notify_all();
        self.has_room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_come_once() {
        let queue = Queue::new(10);
        let taken: Vec<u32> = std::thread::scope(|scope| {
            let takers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| std::iter::from_fn(|| queue.pop()).collect::<Vec<u32>>())).collect();
            for number in 0..10_000 {
                assert!(queue.push(number));
            }
            queue.close();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        let mut sorted = taken;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10_000).collect::<Vec<u32>>());
        assert!(!queue.push(1), "it is closed");
    }
}
