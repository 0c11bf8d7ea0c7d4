//! How long a batch is gathered while a worker waits for it.
//!
//! Each batch reads and writes the pages that its rows are on. If they are in the replica's memory, that costs little, and a waiting
//! worker is a loss. If they are on disk, two batches touch nearly the same pages twice, and to gather for a second longer saves
//! many. What a row change of the latest batch took tells the one from the other. No setting does, and no question to the replica.

use std::time::Duration;

/// The first batch of a session is small, since it is also a measurement. It is not smaller than a measurement needs.
const FIRST_GATHER_MIN: Duration = Duration::from_millis(10);

/// With more to read, a batch is gathered at least for this long although the next stage is hungry: a replica that is behind
/// gains more from folding than it loses by waiting.
const BEHIND_GATHER_MIN: Duration = Duration::from_millis(300);

/// A worker waits at most for this part of the time that it will take to apply what was gathered: if a larger batch saves
/// nothing, no more than that is lost. Gathering is some ten times as fast as applying from memory, and a hundred times as fast as
/// applying from disk. With a number between the two, all that there is becomes one batch in the one case only.
const WAIT_SHARE: u32 = 32;

/// Row changes that a batch must have to say what one costs: below, its commit may take more than they do.
const MEASURED_CHANGES_MIN: u64 = 1_000;

/// Beyond, each batch is gathered as long as it may be anyway. A batch that waited for a lock says no more than this.
const EACH_MAX: Duration = Duration::from_millis(1);

/// From this on, a row change takes longer than the server's memory explains: rows are read from disk.
const IN_MEMORY_MAX: Duration = Duration::from_micros(25);

/// What a row change costs, as far as a session knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// No batch was handed out yet.
    Unknown,
    /// The first batch is on its way.
    Awaited,
    /// In the latest batch, a row change took so long.
    Known(Duration),
}

impl Pace {
    /// What is known after a batch of so many row changes, which took so long.
    pub(crate) fn after(self, row_changes: u64, took: Duration) -> Pace {
        match self {
            Pace::Known(_) if row_changes < MEASURED_CHANGES_MIN => self,
            _ if row_changes < MEASURED_CHANGES_MIN => Pace::Known(Duration::ZERO),
            _ => {
                let nanoseconds = took.as_nanos() / u128::from(row_changes);
                Pace::Known(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)).min(EACH_MAX))
            }
        }
    }

    /// True if rows are in the replica's memory, for all that is known.
    pub(crate) fn is_of_memory(self) -> bool {
        matches!(self, Pace::Known(each) if each < IN_MEMORY_MAX)
    }

    /// How long to gather a batch, of so many row changes until now, before it is handed out although there is more to read;
    /// `max` at most.
    pub(crate) fn gather_min(self, row_changes: u64, max: Duration) -> Duration {
        let wanted = match self {
            Pace::Unknown if row_changes < MEASURED_CHANGES_MIN => BEHIND_GATHER_MIN,
            Pace::Unknown => FIRST_GATHER_MIN,
            // It will be known in a moment, and the worker has something to do until then.
            Pace::Awaited => max,
            Pace::Known(each) => {
                let share = each.as_nanos().saturating_mul(u128::from(row_changes)) / u128::from(WAIT_SHARE);
                let share = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
                share.max(BEHIND_GATHER_MIN)
            }
        };
        wanted.min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(10);

    #[test]
    fn cached_rows_are_not_waited_for() {
        // 300 ms gather some 200,000 row changes.
        assert_eq!(Pace::Known(Duration::from_micros(4)).gather_min(200_000, MAX), BEHIND_GATHER_MIN);
    }

    #[test]
    fn rows_on_disk_are_worth_a_part_of_their_time() {
        assert_eq!(Pace::Known(Duration::from_micros(80)).gather_min(800_000, MAX), Duration::from_secs(2));
    }

    #[test]
    fn gathering_never_exceeds_its_limit() {
        assert_eq!(Pace::Known(Duration::from_secs(1)).gather_min(u64::MAX, MAX), MAX);
        assert_eq!(Pace::Awaited.gather_min(0, MAX), MAX);
        assert_eq!(Pace::Unknown.gather_min(0, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn small_batches_say_nothing_of_their_rows() {
        let slow = Duration::from_millis(5);
        assert_eq!(Pace::Awaited.after(1, slow), Pace::Known(Duration::ZERO));
        let known = Pace::Awaited.after(10_000, Duration::from_millis(40));
        assert_eq!(known, Pace::Known(Duration::from_micros(4)));
        assert_eq!(known.after(1, slow), known);
        assert_eq!(known.after(10_000, Duration::from_secs(50)), Pace::Known(EACH_MAX));
    }

    #[test]
    fn first_batch_of_a_session_is_small() {
        assert_eq!(Pace::Unknown.gather_min(u64::MAX, MAX), FIRST_GATHER_MIN);
    }

    #[test]
    fn first_batch_of_a_session_is_a_measurement() {
        assert_eq!(Pace::Unknown.gather_min(MEASURED_CHANGES_MIN - 1, MAX), BEHIND_GATHER_MIN);
        assert_eq!(Pace::Unknown.gather_min(MEASURED_CHANGES_MIN, MAX), FIRST_GATHER_MIN);
    }
}
