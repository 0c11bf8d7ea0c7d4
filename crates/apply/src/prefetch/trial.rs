//! Whether prefetching helps, found out by trying it.
//!
//! The same rows are slow to apply when they are read from disk, and fast when they are in memory; and on a machine whose disk or
//! processors are busy, prefetching may slow down what it is to help. So chunks of rows that were prefetched are compared with
//! chunks that were not, again and again.

use std::time::Duration;

use super::WRITTEN_AHEAD_MAX;

/// Rows that take less are in memory: not even a trial is worth its cost. A read of one page takes about three times as long on
/// a fast disk.
const SLOW_ROW: Duration = Duration::from_micros(15);

/// Chunks by which rows are found to be slow. The first are slow in any case: the server opens the tables.
const WATCHED_CHUNKS: u32 = 16;
/// Two chunks whose rows have each taken so much longer than rows in memory are slow too: on a slow disk, sixteen chunks are whole seconds. One may
/// have waited for something else.
const LOST_MAX: Duration = Duration::from_millis(25);
const LOST_CHUNKS: u32 = 2;
/// Chunks by which rows are taken to be in memory.
const CHUNKS_IN_MEMORY: u32 = 4;
/// Chunks of a trial. Those that were written without lookups are on their way when it begins, and count as not prefetched.
const TRIED_CHUNKS: u32 = 24;
/// Chunks without prefetching, to compare with: fewer, since they cost the most where it helps.
const COMPARED_CHUNKS: u32 = 8;
/// Chunks from one comparison to the next.
const CHUNKS_BETWEEN: u32 = 256;
/// Chunks after which a sum counts half: what was measured long ago says little.
const REMEMBERED_CHUNKS: u32 = 64;
/// Prefetching goes on if rows take at most this share of their time without it.
const GAIN: f64 = 0.97;
/// A comparison ends after so many chunks if rows took this many times as long in them: each further chunk would only cost.
const CLEAR_CHUNKS: u32 = 2;
const CLEAR_GAIN: f64 = 2.0;

/// How long rows took.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    chunks: u32,
    rows: u64,
    seconds: f64,
}

impl Sum {
    fn add(&mut self, rows: u64, took: Duration) {
        if self.chunks >= REMEMBERED_CHUNKS {
            *self = Sum { chunks: self.chunks / 2, rows: self.rows / 2, seconds: self.seconds / 2.0 };
        }
        self.chunks += 1;
        self.rows += rows;
        self.seconds += took.as_secs_f64();
    }

    fn seconds_each(self) -> f64 {
        self.seconds / self.rows.max(1) as f64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Rows are not known to be slow.
    Watching,
    /// Prefetching, to find out whether it helps, for so many chunks more.
    Trying(u32),
    /// Prefetching.
    On(u32),
    /// Not prefetching, to find out whether it still helps.
    Comparing(u32),
    /// Not prefetching, since it does not help.
    Off(u32),
}

/// Decides for each chunk whether its rows are prefetched.
#[derive(Debug)]
pub(crate) struct Trial {
    phase: Phase,
    with: Sum,
    without: Sum,
    /// Chunks that have lost [`LOST_MAX`] while rows were watched.
    lost_chunks: u32,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { phase: Phase::Watching, with: Sum::default(), without: Sum::default(), lost_chunks: 0 }
    }
}

impl Trial {
    /// True if the rows of the next chunk are to be prefetched.
    pub(crate) fn next_chunk(&mut self) -> bool {
        self.phase = match self.phase {
            Phase::Watching if self.is_slow() => Phase::Trying(TRIED_CHUNKS),
            Phase::Trying(0) if self.with.chunks < COMPARED_CHUNKS => Phase::Trying(0),
            Phase::Comparing(_) if self.helps_clearly() => Phase::On(CHUNKS_BETWEEN),
            Phase::Comparing(0) if self.without.chunks < COMPARED_CHUNKS / 2 => Phase::Comparing(0),
            Phase::Trying(0) | Phase::Comparing(0) if self.helps() => Phase::On(CHUNKS_BETWEEN),
            Phase::Trying(0) | Phase::Comparing(0) => Phase::Off(CHUNKS_BETWEEN),
            Phase::On(0) => {
                self.without = Sum::default();
                Phase::Comparing(COMPARED_CHUNKS)
            }
            Phase::Off(0) => {
                self.with = Sum::default();
                self.lost_chunks = 0;
                Phase::Watching
            }
            Phase::Watching => Phase::Watching,
            Phase::Trying(left) => Phase::Trying(left - 1),
            Phase::On(left) => Phase::On(left - 1),
            Phase::Comparing(left) => Phase::Comparing(left - 1),
            Phase::Off(left) => Phase::Off(left - 1),
        };
        self.is_on()
    }

    /// True if rows are prefetched now.
    fn is_on(&self) -> bool {
        matches!(self.phase, Phase::Trying(_) | Phase::On(_))
    }

    /// True if rows may be prefetched by the time that chunks which are written now come to the applier.
    pub(crate) fn may_be_on(&self) -> bool {
        match self.phase {
            Phase::Watching => self.is_undecided(),
            Phase::Trying(_) | Phase::On(_) | Phase::Comparing(_) => true,
            Phase::Off(left) => left < WRITTEN_AHEAD_MAX,
        }
    }

    /// True if nothing is known of the rows yet.
    pub(crate) fn is_undecided(&self) -> bool {
        self.phase == Phase::Watching && (self.without.chunks < CHUNKS_IN_MEMORY || self.is_beyond_memory())
    }

    /// A chunk of so many rows took so long.
    pub(crate) fn measure(&mut self, rows: u64, is_prefetched: bool, took: Duration) {
        if is_prefetched {
            self.with.add(rows, took)
        } else {
            self.without.add(rows, took)
        }
        let in_memory = SLOW_ROW.as_secs_f64() * rows as f64;
        let has_lost = took.as_secs_f64() > in_memory + LOST_MAX.as_secs_f64();
        self.lost_chunks += u32::from(self.phase == Phase::Watching && has_lost);
    }

    /// How many chunks were measured that had been prefetched.
    #[cfg(test)]
    pub(super) fn chunks_with(&self) -> u32 {
        self.with.chunks
    }

    fn is_slow(&self) -> bool {
        let has_watched = self.without.chunks >= WATCHED_CHUNKS || self.lost_chunks >= LOST_CHUNKS;
        has_watched && self.is_beyond_memory()
    }

    fn is_beyond_memory(&self) -> bool {
        self.without.seconds_each() > SLOW_ROW.as_secs_f64()
    }

    fn helps_clearly(&self) -> bool {
        self.without.chunks >= CLEAR_CHUNKS && self.without.seconds_each() > self.with.seconds_each() * CLEAR_GAIN
    }

    fn helps(&self) -> bool {
        self.with.seconds_each() < self.without.seconds_each() * GAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks between a decision and the answer.
    const ON_THEIR_WAY: usize = 2;
    const ROWS: u64 = 1000;

    /// The share of prefetched chunks among so many, whose rows take so many microseconds with prefetching and without.
    fn share(chunks: usize, with: u64, without: u64) -> f64 {
        let mut trial = Trial::default();
        let mut on_their_way = std::collections::VecDeque::new();
        let mut prefetched = 0;
        for _ in 0..chunks {
            let is_prefetched = trial.next_chunk();
            prefetched += usize::from(is_prefetched);
            on_their_way.push_back(is_prefetched);
            if on_their_way.len() > ON_THEIR_WAY {
                let is_prefetched = on_their_way.pop_front().unwrap();
                let each = if is_prefetched { with } else { without };
                trial.measure(ROWS, is_prefetched, Duration::from_micros(each * ROWS));
            }
        }
        prefetched as f64 / chunks as f64
    }

    #[test]
    fn rows_in_memory_are_never_prefetched() {
        assert_eq!(share(10_000, 1, 10), 0.0);
    }

    #[test]
    fn lookups_of_rows_in_memory_are_soon_written_no_more() {
        let mut trial = Trial::default();
        for _ in 0..CHUNKS_IN_MEMORY {
            assert!(trial.may_be_on() && trial.is_undecided());
            assert!(!trial.next_chunk());
            trial.measure(ROWS, false, Duration::from_micros(5 * ROWS));
        }
        assert!(!trial.may_be_on() && !trial.is_undecided());
    }

    #[test]
    fn rows_on_a_slow_disk_are_prefetched_after_two_chunks() {
        let mut trial = Trial::default();
        for _ in 0..LOST_CHUNKS {
            assert!(!trial.next_chunk());
            trial.measure(ROWS, false, Duration::from_micros(500 * ROWS));
        }
        assert!(trial.next_chunk());
    }

    #[test]
    fn a_single_wait_makes_no_rows_slow() {
        let mut trial = Trial::default();
        for chunk in 0..WATCHED_CHUNKS - 1 {
            assert!(!trial.next_chunk(), "{chunk}");
            let waited = if chunk == 0 { 1_000 } else { 0 };
            trial.measure(ROWS, false, Duration::from_millis(5 + waited));
        }
    }

    #[test]
    fn comparing_costs_little_where_prefetching_helps_much() {
        assert!(share(10_000, 60, 500) > 0.98);
    }

    #[test]
    fn slow_rows_are_prefetched_where_it_helps() {
        assert!(share(10_000, 30, 60) > 0.94);
        // Soon, too: a batch has a few hundred chunks.
        assert!(share(200, 30, 60) > 0.8);
    }

    #[test]
    fn slow_rows_are_left_alone_where_prefetching_does_not_help() {
        assert!(share(10_000, 60, 60) < 0.15);
        assert!(share(10_000, 90, 60) < 0.15);
    }
}
