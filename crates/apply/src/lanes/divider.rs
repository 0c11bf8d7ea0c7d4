//! Divides batches among appliers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use spate_archive::stopping_point;
use spate_connection::Connection;
use spate_replica::choice::DialectChoice;
use spate_replica::status::Status;
use spate_replica::{Error, sharding};
use spate_schedule::Item;
use spate_schedule::shards::{ShardMap, Together};

use super::board::Room;
use super::{Board, Sharding};
use crate::coordinator::{Beside, STOP_CHECK, receive_within};
use crate::halt::{Halt, Result};
use crate::progress::Progress;
use crate::{Part, PartEnd};

/// What a divider is given.
pub(crate) struct Given<'a> {
    pub(crate) board: &'a Board<'a>,
    pub(crate) progress: &'a Progress<'a>,
    pub(crate) status: &'a Status,
    pub(crate) sharding: &'a Sharding,
    pub(crate) choice: DialectChoice,
    /// Keeps the map; the keeper's, too.
    pub(crate) connection: &'a Mutex<Connection>,
    /// The appliers' lanes.
    pub(crate) lanes: Vec<Sender<Part>>,
    /// Says which applier asks for a share, from 1.
    pub(crate) hunger: Receiver<u32>,
}

/// Divides batches among appliers, and leaves to the worker what cannot be divided.
pub(crate) struct Divider<'a> {
    given: Given<'a>,
    map: ShardMap,
    /// How many shares each applier has asked for, and not got. Less than none: they are on their way.
    asked: Vec<i64>,
    /// The replica knows the map.
    is_kept: bool,
    /// And how these tables are divided.
    dealt: HashMap<u64, u64>,
    told_of_dialect: bool,
}

impl<'a> Divider<'a> {
    /// `assigned`: the appliers that shards were given by earlier sessions.
    pub(crate) fn new(given: Given<'a>, assigned: BTreeMap<String, u32>) -> Divider<'a> {
        let Sharding { appliers, by, rules, .. } = given.sharding;
        Divider {
            asked: vec![0; *appliers as usize],
            map: ShardMap { assigned, ..ShardMap::new(*appliers, *by, rules.now()) },
            given,
            is_kept: false,
            dealt: HashMap::new(),
            told_of_dialect: false,
        }
    }

    fn execute(&self, sql: &str) -> Result<()> {
        let mut connection = self.given.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.execute(sql.as_bytes()).map_err(Error::from)?;
        Ok(())
    }

    /// Why the part is for the worker; `None` if it can be divided. Its shards are given appliers.
    fn keeps_together(&mut self, part: &Part) -> Result<Option<Together>> {
        if !part.is_plain() || !self.is_replayed(part)? {
            return Ok(Some(Together::Statement));
        }
        if self.map.assign(&part.batch) {
            self.keep_map()?;
        }
        Ok(self.map.keeps_together(&part.batch))
    }

    /// True if rows are written as the source's images: what has to be written as SQL is not divided.
    fn is_replayed(&mut self, part: &Part) -> Result<bool> {
        let is_replayed = part.is_replayed(&self.given.choice)?;
        if !is_replayed && !std::mem::replace(&mut self.told_of_dialect, true) {
            self.given.status.note("applier", "rows are written as SQL: one applier applies all");
        }
        Ok(is_replayed)
    }

    /// Has the replica know of new shards' appliers before anything of these is applied.
    fn keep_map(&mut self) -> Result<()> {
        self.given.board.divide_by(&self.map);
        if self.is_kept {
            self.execute(&sharding::keep_sql(&self.map))?;
        }
        Ok(())
    }

    /// Has the replica know how rows are divided before the appliers may come further than it as a whole.
    fn begin_dividing(&mut self, part: &Part) -> Result<()> {
        if !std::mem::replace(&mut self.is_kept, true) {
            self.dealt.clear();
            self.execute(&sharding::begin_sql(&self.map))?;
            self.given.board.divide_by(&self.map);
            stopping_point("after-map-kept");
        }
        let new: BTreeMap<u64, u64> = self.map.dealt(&part.batch).into_iter().collect();
        let new: Vec<(u64, u64)> = new.into_iter().filter(|(table, way)| self.dealt.get(table) != Some(way)).collect();
        if !new.is_empty() {
            self.execute(&sharding::deal_sql(&new))?;
            self.dealt.extend(new);
        }
        Ok(())
    }

    /// Waits until the part can be given to appliers.
    fn wait_for_room(&mut self, part: &Part, stop: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        let mut waited = Duration::ZERO;
        loop {
            self.hear();
            match self.given.board.room(part.reached.source_seconds) {
                Room::Free { is_beyond } => {
                    self.given.board.count_wait(waited, is_beyond);
                    return Ok(());
                }
                Room::Spread => waited = begun.elapsed(),
                Room::Full => {}
            }
            if !self.given.board.wait(STOP_CHECK) || stop.load(Ordering::Acquire) {
                return Err(Halt::StageEnded);
            }
        }
    }

    fn hand_out(&mut self, mut part: Part) -> Result<()> {
        self.given.progress.hand_out(part.reached.seqno);
        stopping_point("after-gathering");
        let row_changes = part.batch.statistics.row_changes;
        let bytes = part.batch.items.iter().map(Item::memory_bytes).sum();
        let shares = self.map.divide(std::mem::take(&mut part.batch));
        self.given.board.give(&part, shares.iter().map(|&(applier, _)| applier).collect(), bytes, row_changes);
        for (applier, batch) in shares {
            let end = part.end.as_ref().map(|end| PartEnd { skipped: vec![], ignored: 0, ..end.clone() });
            let share = part.share(batch, end);
            let lane = applier as usize;
            self.asked[lane] -= 1;
            if self.given.lanes[lane].send(share).is_err() {
                return Err(Halt::StageEnded);
            }
        }
        Ok(())
    }

    /// Hears who has asked for a share.
    fn hear(&mut self) {
        while let Ok(applier) = self.given.hunger.try_recv() {
            self.note_asked(applier);
        }
    }

    /// `applier`: its row of `spate.checkpoint`, from 1.
    fn note_asked(&mut self, applier: u32) {
        if let Some(asked) = (applier as usize).checked_sub(1).and_then(|lane| self.asked.get_mut(lane)) {
            *asked += 1;
        }
    }
}

impl Beside for Divider<'_> {
    fn has_room_within(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            self.hear();
            if self.given.board.has_failed() {
                return Err(Halt::StageEnded);
            }
            if self.asked.iter().any(|&asked| asked > 0) {
                return Ok(true);
            }
            match receive_within(&self.given.hunger, deadline.saturating_duration_since(Instant::now()))? {
                Some(applier) => self.note_asked(applier),
                None => return Ok(false),
            }
        }
    }

    fn fits(&mut self, part: &Part) -> Result<bool> {
        if self.given.sharding.rules.differ_from(&self.map.rules) {
            self.drain()?;
            self.map.rules = self.given.sharding.rules.now();
            self.is_kept = false;
            self.given.status.note("applier", "the new rules are in force");
        }
        let together = self.keeps_together(part)?;
        if let Some(why) = together {
            self.given.board.count_together(why);
        }
        Ok(together.is_none())
    }

    fn begin(&mut self, part: &Part) -> Result<()> {
        self.given.board.begin_after(&part.from);
        Ok(())
    }

    fn take(&mut self, part: Part, stop: &AtomicBool) -> Result<()> {
        self.begin_dividing(&part)?;
        self.wait_for_room(&part, stop)?;
        self.hand_out(part)
    }

    fn drain(&mut self) -> Result<()> {
        // What is begun ends also when the session is to stop: else the next one would have to find out how far each applier has come.
        while !self.given.board.is_level() {
            if !self.given.board.wait(STOP_CHECK) {
                return Err(Halt::StageEnded);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.is_kept {
            self.execute(&sharding::end_sql())?;
        }
        Ok(())
    }
}

impl Drop for Divider<'_> {
    /// The keeper ends with it.
    fn drop(&mut self) {
        self.given.board.close();
    }
}
