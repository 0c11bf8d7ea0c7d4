//! Which earlier transactions one has to wait for, if each is to be one transaction of the replica too: the known policies.
//!
//! | policy | waits for |
//! | --- | --- |
//! | shard | the last transactions of the same schemas, and of tables that foreign keys connect with its own |
//! | commit group (MariaDB) | all before those that committed together with it on the source |
//! | logical clock (MySQL) | all up to the one that the source names |
//! | write set | the last transactions that wrote one of its keys: see [`crate::write_set`] |
//!
//! A *job* is one transaction, or several that are committed together; it is known by the seqno of its last. Where a policy cannot tell, the job is
//! a *wall*: it waits for all before it, and all behind it wait for it.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use spate_binlog::gtid::LogicalClock;

use crate::segment::Segment;
use crate::write_set::{self, Key, Unknown};
use crate::{Batch, Result};

/// With fewer keys than this, none is forgotten: they take some twenty bytes each.
const KEYS_KEPT_MIN: usize = 1 << 16;

/// How parallelism is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelBy {
    /// By schemas.
    Shard,
    /// By MariaDB's commit ids.
    CommitGroup,
    /// By MySQL's logical clock.
    LogicalClock,
    /// By the keys that are written.
    WriteSet,
}

impl fmt::Display for ParallelBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParallelBy::Shard => "shard",
            ParallelBy::CommitGroup => "commit-group",
            ParallelBy::LogicalClock => "logical-clock",
            ParallelBy::WriteSet => "write-set",
        })
    }
}

/// What the source says of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// Its ordinal.
    pub seqno: u64,
    /// MariaDB: transactions with equal ids committed together.
    pub commit_id: Option<u64>,
    /// MySQL's logical clock.
    pub clock: Option<LogicalClock>,
}

/// What a job waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    /// All transactions up to this one.
    pub after: u64,
    /// And these jobs behind it; ascending.
    pub on: Vec<u64>,
}

/// Why a job is a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// Nobody knows what it writes.
    Unknown(Unknown),
    /// The source says nothing of the transaction that the policy could go by.
    NoHint,
}

/// The dependencies of jobs that come one after the other.
#[derive(Debug)]
pub struct Dependencies {
    by: ParallelBy,
    /// All jobs wait for all transactions up to this one.
    wall: u64,
    group: Group,
    clock: Clock,
    /// The last job of each schema, and of each group of tables that foreign keys connect.
    shards: HashMap<Shard, u64>,
    keys: Keys,
}

/// What the policy by shards goes by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Shard {
    Schema(String),
    ForeignGroup(usize),
}

/// The transactions that committed together on the source, of which the latest is one.
#[derive(Debug, Default)]
struct Group {
    id: Option<u64>,
    /// The last transaction before them.
    after: u64,
}

/// The source's numbers of transactions in its current file.
#[derive(Debug, Default)]
struct Clock {
    /// The last transaction of the file before.
    file_after: u64,
    /// Sequence numbers and seqnos, both ascending.
    numbers: VecDeque<(u64, u64)>,
}

/// The last job that wrote each key.
#[derive(Debug, Default)]
struct Keys {
    writers: HashMap<u64, u64>,
    /// Of each index with values that are not certain: the last job that wrote any value, and the last that wrote one that may be any.
    indexes: HashMap<u64, (u64, u64)>,
    /// With more writers than this, those that nobody has to wait for are forgotten.
    kept_max: usize,
    /// Used again.
    collected: Vec<Key>,
}

impl Dependencies {
    /// Of jobs behind this transaction.
    pub fn new(by: ParallelBy, after: u64) -> Dependencies {
        Dependencies {
            by,
            wall: after,
            group: Group::default(),
            clock: Clock { file_after: after, numbers: VecDeque::new() },
            shards: HashMap::new(),
            keys: Keys { kept_max: KEYS_KEPT_MIN, ..Keys::default() },
        }
    }

    /// Something else than a job was executed, up to this transaction, with nothing beside it.
    pub fn pass(&mut self, seqno: u64) {
        self.wall = seqno;
        self.group = Group { id: None, after: seqno };
        self.clock.file_after = self.clock.file_after.max(seqno);
    }

    /// Adds a job, and says what it waits for, and why if that is everything. Its transactions are `hints`, ascending and at least one; all up to
    /// `low` are applied.
    ///
    /// # Errors
    /// A decoding error.
    pub fn add(&mut self, hints: &[Hint], batch: &Batch, low: u64) -> Result<(Waits, Option<Wall>)> {
        let (Some(first), Some(last)) = (hints.first(), hints.last()) else { return Ok((Waits::default(), None)) };
        let (before, last) = (first.seqno - 1, last.seqno);
        let found = match self.by {
            ParallelBy::Shard => self.by_shard(batch, last),
            ParallelBy::CommitGroup => self.by_group(hints),
            ParallelBy::LogicalClock => self.by_clock(hints, low),
            ParallelBy::WriteSet => self.by_keys(batch, last, low)?,
        };
        let (mut waits, wall) = match found {
            Ok(waits) => (waits, None),
            Err(wall) => {
                self.wall = last;
                (Waits { after: before, on: vec![] }, Some(wall))
            }
        };
        if wall.is_none() {
            // A job does not wait for its own transactions.
            waits.after = waits.after.max(self.wall).min(before);
        }
        waits.on.retain(|&job| job > waits.after.max(low));
        waits.on.sort_unstable();
        waits.on.dedup();
        Ok((waits, wall))
    }

    fn by_shard(&mut self, batch: &Batch, last: u64) -> std::result::Result<Waits, Wall> {
        // Triggers of the replica may change any table.
        if batch.is_unfolded {
            return Err(Wall::Unknown(Unknown::Triggers));
        }
        let mut waits = Waits::default();
        for plan in batch.segments().flat_map(Segment::plans) {
            let definition = &plan.definition;
            let schema = Shard::Schema(definition.name.schema.clone());
            for shard in [Some(schema), definition.foreign_group.map(Shard::ForeignGroup)].into_iter().flatten() {
                let before = self.shards.insert(shard, last).unwrap_or_default();
                if before != last {
                    waits.on.push(before);
                }
            }
        }
        Ok(waits)
    }

    fn by_group(&mut self, hints: &[Hint]) -> std::result::Result<Waits, Wall> {
        let mut after = 0;
        for hint in hints {
            // It is of MySQL.
            if hint.clock.is_some() {
                return Err(Wall::NoHint);
            }
            if hint.commit_id.is_none() || self.group.id != hint.commit_id {
                self.group = Group { id: hint.commit_id, after: hint.seqno - 1 };
            }
            after = self.group.after;
        }
        Ok(Waits { after, on: vec![] })
    }

    fn by_clock(&mut self, hints: &[Hint], low: u64) -> std::result::Result<Waits, Wall> {
        let mut after = 0;
        for hint in hints {
            let clock = hint.clock.ok_or(Wall::NoHint)?;
            let numbers = &mut self.clock.numbers;
            // Each file begins to count at one.
            if numbers.back().is_some_and(|&(number, _)| number >= clock.sequence_number) {
                numbers.clear();
                self.clock.file_after = hint.seqno - 1;
            }
            while numbers.front().is_some_and(|&(_, seqno)| seqno <= low) {
                self.clock.file_after = numbers.pop_front().map_or(self.clock.file_after, |(_, seqno)| seqno);
            }
            let known = numbers.partition_point(|&(number, _)| number <= clock.last_committed);
            after = after.max(match known.checked_sub(1).and_then(|place| numbers.get(place)) {
                Some(&(_, seqno)) => seqno,
                None => self.clock.file_after,
            });
            numbers.push_back((clock.sequence_number, hint.seqno));
        }
        Ok(Waits { after, on: vec![] })
    }

    fn by_keys(&mut self, batch: &Batch, last: u64, low: u64) -> Result<std::result::Result<Waits, Wall>> {
        let keys = &mut self.keys;
        let mut collected = std::mem::take(&mut keys.collected);
        collected.clear();
        if let Err(unknown) = write_set::collect(batch, &mut collected)? {
            keys.collected = collected;
            return Ok(Err(Wall::Unknown(unknown)));
        }
        let mut waits = Waits::default();
        for key in &collected {
            keys.write(*key, last, &mut waits);
        }
        keys.collected = collected;
        keys.forget_up_to(low);
        Ok(Ok(waits))
    }
}

impl Keys {
    fn write(&mut self, key: Key, job: u64, waits: &mut Waits) {
        let (index, value) = match key {
            Key::Exact(value) => (None, Some(value)),
            Key::Text { index, value } => (Some(index), Some(value)),
            Key::Any { index } => (Some(index), None),
        };
        if let Some(value) = value {
            let before = self.writers.insert(value, job);
            waits.on.extend(before.filter(|&before| before != job));
        }
        let Some((last, last_any)) = index.map(|index| self.indexes.entry(index).or_default()) else { return };
        match value {
            Some(_) => waits.on.extend(Some(*last_any).filter(|&before| before != job)),
            // All that have written any value of the index.
            None if *last != job => waits.after = waits.after.max(*last),
            // It was written by this job too, and perhaps by others before.
            None if *last_any != job => waits.after = waits.after.max(job - 1),
            None => {}
        }
        *last = job;
        if value.is_none() {
            *last_any = job;
        }
    }

    fn forget_up_to(&mut self, low: u64) {
        if self.writers.len() > self.kept_max {
            self.writers.retain(|_, &mut job| job > low);
            self.kept_max = KEYS_KEPT_MIN.max(self.writers.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(seqno: u64) -> Hint {
        Hint { seqno, commit_id: None, clock: None }
    }

    fn clocked(seqno: u64, last_committed: u64, sequence_number: u64) -> Hint {
        Hint { clock: Some(LogicalClock { last_committed, sequence_number }), ..hint(seqno) }
    }

    fn after(dependencies: &mut Dependencies, hints: &[Hint], low: u64) -> u64 {
        let (waits, wall) = dependencies.add(hints, &Batch::default(), low).unwrap();
        assert_eq!((waits.on, wall), (vec![], None));
        waits.after
    }

    #[test]
    fn commit_groups_wait_for_the_group_before() {
        let mut dependencies = Dependencies::new(ParallelBy::CommitGroup, 10);
        let grouped = |seqno, id| Hint { commit_id: Some(id), ..hint(seqno) };
        assert_eq!(after(&mut dependencies, &[grouped(11, 1)], 10), 10);
        assert_eq!(after(&mut dependencies, &[grouped(12, 1)], 10), 10);
        assert_eq!(after(&mut dependencies, &[grouped(13, 2)], 10), 12);
        assert_eq!(after(&mut dependencies, &[hint(14)], 10), 13);
        // Without an id, each is alone.
        assert_eq!(after(&mut dependencies, &[hint(15)], 10), 14);
        dependencies.pass(16);
        assert_eq!(after(&mut dependencies, &[grouped(17, 2)], 10), 16);
        // Several at once: the last of them counts.
        assert_eq!(after(&mut dependencies, &[grouped(18, 2), grouped(19, 3)], 10), 17);
    }

    #[test]
    fn logical_clock_begins_anew_with_each_file() {
        let mut dependencies = Dependencies::new(ParallelBy::LogicalClock, 10);
        assert_eq!(after(&mut dependencies, &[clocked(11, 6, 7)], 10), 10);
        assert_eq!(after(&mut dependencies, &[clocked(12, 6, 8)], 10), 10);
        assert_eq!(after(&mut dependencies, &[clocked(13, 7, 9)], 10), 11);
        assert_eq!(after(&mut dependencies, &[clocked(14, 8, 10)], 10), 12);
        // The next file: all before it.
        assert_eq!(after(&mut dependencies, &[clocked(15, 0, 1)], 10), 14);
        assert_eq!(after(&mut dependencies, &[clocked(16, 0, 2)], 10), 14);
        assert_eq!(after(&mut dependencies, &[clocked(17, 2, 3)], 10), 16);
        // What is applied is forgotten.
        assert_eq!(after(&mut dependencies, &[clocked(18, 1, 4)], 16), 16);
    }

    #[test]
    fn clock_without_a_number_is_a_wall() {
        let mut dependencies = Dependencies::new(ParallelBy::LogicalClock, 10);
        let (waits, wall) = dependencies.add(&[hint(11)], &Batch::default(), 10).unwrap();
        assert_eq!((waits.after, wall), (10, Some(Wall::NoHint)));
        assert_eq!(after(&mut dependencies, &[clocked(12, 0, 1)], 10), 11);
    }

    #[test]
    fn keys_wait_for_their_last_writers() {
        let mut keys = Keys { kept_max: KEYS_KEPT_MIN, ..Keys::default() };
        let mut write = |job: u64, written: &[Key]| {
            let mut waits = Waits::default();
            written.iter().for_each(|&key| keys.write(key, job, &mut waits));
            waits.on.retain(|&before| before > 0);
            waits
        };
        let text = |value| Key::Text { index: 1, value };
        let any = Key::Any { index: 1 };
        assert_eq!(write(1, &[Key::Exact(5), Key::Exact(6)]), Waits::default());
        assert_eq!(write(2, &[Key::Exact(6), Key::Exact(6)]), Waits { after: 0, on: vec![1] });
        assert_eq!(write(3, &[Key::Exact(7)]), Waits::default());
        assert_eq!(write(4, &[text(8)]), Waits::default());
        assert_eq!(write(5, &[text(9)]), Waits::default());
        // Any value: after all that wrote the index; and those behind wait for it.
        assert_eq!(write(6, &[any]), Waits { after: 5, on: vec![] });
        assert_eq!(write(7, &[text(10)]), Waits { after: 0, on: vec![6] });
        assert_eq!(write(8, &[text(11), any]).after, 7);
        assert_eq!(write(9, &[any, any]).after, 8);
    }
}
