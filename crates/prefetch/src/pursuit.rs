//! How far the applier is, and how far was read ahead of it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spate_replica::native::Place;

/// Marks that are kept: one a batch. With more, reading ahead waits, however near the applier is.
const MARKS_MAX: usize = 4096;

/// How long to wait before looking whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The end of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) place: Place,
    /// Ordinal of its last transaction in the relay logs.
    pub(crate) seqno: u64,
    /// When that was committed on the source, in seconds since 1970.
    pub(crate) seconds: u64,
    /// Row changes from the session's beginning to there.
    pub(crate) row_changes: u64,
}

/// How far ahead of the applier to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Seconds of the source's time.
    pub(crate) seconds: u64,
    /// Row changes. The pages of more would leave the server's memory before they are needed.
    pub(crate) row_changes: u64,
}

/// What the reading, the readers and the watcher share.
#[derive(Debug, Default)]
pub(crate) struct Pursuit {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Where the applier is.
    place: Place,
    /// The last mark that the applier has passed. `None`: it has passed none.
    passed: Option<Mark>,
    /// Those that it has not.
    ahead: VecDeque<Mark>,
    /// The end of the last batch of which rows were looked up.
    looked_up: Place,
    is_over: bool,
}

impl Inner {
    fn has_passed_transaction(&self, seqno: u64) -> bool {
        !self.ahead.iter().any(|mark| mark.seqno <= seqno)
    }
}

impl Pursuit {
    /// The applier is at this place.
    pub(crate) fn arrive(&self, place: &Place) {
        let mut inner = self.lock();
        inner.place.clone_from(place);
        while inner.ahead.front().is_some_and(|mark| place.has_reached(&mark.place)) {
            inner.passed = inner.ahead.pop_front();
        }
        self.changed.notify_all();
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// True if the applier is past this place.
    pub(crate) fn has_passed(&self, place: &Place) -> bool {
        self.lock().place.has_reached(place)
    }

    /// Rows of the batch that ends there are looked up.
    pub(crate) fn look_up(&self, place: &Place) {
        self.lock().looked_up.clone_from(place);
    }

    /// True if the applier is past everything that was looked up.
    pub(crate) fn has_drained(&self) -> bool {
        let inner = self.lock();
        inner.place.has_reached(&inner.looked_up)
    }

    /// Row changes between the applier and this mark, as far as known.
    pub(crate) fn distance(&self, mark: &Mark) -> u64 {
        let inner = self.lock();
        mark.row_changes.saturating_sub(inner.passed.as_ref().map_or(0, |passed| passed.row_changes))
    }

    /// Waits until the mark is not too far ahead of the applier, and keeps it. False if the applier has passed it, or the session is
    /// over.
    pub(crate) fn wait_until_near(&self, mark: &Mark, reach: Reach) -> bool {
        let mut inner = self.lock();
        loop {
            if inner.is_over || inner.place.has_reached(&mark.place) {
                if !inner.is_over {
                    inner.passed = Some(mark.clone());
                }
                return false;
            }
            // Before it has passed the first mark, the applier is not far from it.
            let nearest = inner.passed.as_ref().or(inner.ahead.front());
            let is_soon = nearest.is_none_or(|nearest| mark.seconds <= nearest.seconds.saturating_add(reach.seconds));
            let passed = inner.passed.as_ref().map_or(0, |passed| passed.row_changes);
            let stays_in_memory = mark.row_changes.saturating_sub(passed) <= reach.row_changes;
            // The applier goes on when it is past what there is, so the next is never too far.
            if inner.ahead.is_empty() || is_soon && stays_in_memory && inner.ahead.len() < MARKS_MAX {
                inner.ahead.push_back(mark.clone());
                return true;
            }
            inner = self.changed.wait_timeout(inner, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// True if the applier has passed a transaction, of which a mark was kept.
    pub(crate) fn has_passed_transaction(&self, seqno: u64) -> bool {
        self.lock().has_passed_transaction(seqno)
    }

    /// Waits until the applier has passed a transaction, of which a mark was kept. False if the session is over first.
    pub(crate) fn wait_passed(&self, seqno: u64) -> bool {
        let mut inner = self.lock();
        loop {
            if inner.is_over {
                return false;
            }
            if inner.has_passed_transaction(seqno) {
                return true;
            }
            inner = self.changed.wait_timeout(inner, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: Reach = Reach { seconds: 3, row_changes: 100 };

    fn mark(position: u64, seconds: u64) -> Mark {
        let place = Place { file: "b.000001".into(), position };
        Mark { place, seqno: position / 10, seconds, row_changes: position }
    }

    #[test]
    fn marks_are_passed_in_order() {
        let pursuit = Pursuit::default();
        assert!(pursuit.wait_until_near(&mark(10, 100), REACH) && pursuit.wait_until_near(&mark(20, 103), REACH));
        assert_eq!(pursuit.distance(&mark(20, 103)), 20);
        pursuit.arrive(&mark(15, 0).place);
        assert!(pursuit.has_passed(&mark(10, 0).place) && !pursuit.has_passed(&mark(20, 0).place));
        pursuit.look_up(&mark(20, 0).place);
        assert!(pursuit.wait_passed(1) && !pursuit.has_drained());
        assert_eq!(pursuit.distance(&mark(20, 103)), 10);
        pursuit.arrive(&mark(20, 0).place);
        assert!(pursuit.wait_passed(2) && pursuit.has_drained());
        assert!(!pursuit.wait_until_near(&mark(20, 103), REACH));
    }

    #[test]
    fn reading_stays_near_until_the_session_is_over() {
        let pursuit = Pursuit::default();
        assert!(pursuit.wait_until_near(&mark(10, 100), REACH));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pursuit.wait_until_near(&mark(20, 104), REACH));
            pursuit.end();
            assert!(!waiting.join().unwrap());
        });
        assert!(!pursuit.wait_passed(1));
    }

    #[test]
    fn reading_stays_within_the_servers_memory() {
        let pursuit = Pursuit::default();
        assert!(pursuit.wait_until_near(&mark(90, 100), REACH) && pursuit.wait_until_near(&mark(100, 100), REACH));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pursuit.wait_until_near(&mark(120, 100), REACH));
            pursuit.arrive(&mark(90, 0).place);
            assert!(waiting.join().unwrap());
        });
        // A transaction that is larger than all that is the next one.
        pursuit.arrive(&mark(120, 0).place);
        assert!(pursuit.wait_until_near(&mark(900, 900), REACH));
    }
}
