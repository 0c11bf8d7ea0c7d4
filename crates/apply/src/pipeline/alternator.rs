//! Gives batches to two workers in turn.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use spate_archive::stopping_point;
use spate_replica::choice::DialectChoice;
use spate_replica::status::Status;
use spate_schedule::ahead::Touched;

use super::{PipelineWhen, Turns};
use crate::Part;
use crate::coordinator::{Beside, STOP_CHECK, receive_within, unless_stopped};
use crate::halt::{Halt, Result};

/// After so many batches of rows, one more is taken to be followed by others. (The first behind a definition is committed together with that, and the
/// first of a session is small.)
const BATCHES_BEFORE: u32 = 1;

/// Row changes of a batch that is worth to be executed in turn, if nothing is yet: below, its commit is most of what it takes.
const CHANGES_MIN: u64 = 10_000;

/// What an alternator is given.
pub(crate) struct Given<'a> {
    pub(crate) turns: &'a Turns<'a>,
    pub(crate) status: &'a Status,
    pub(crate) when: PipelineWhen,
    pub(crate) choice: DialectChoice,
    pub(crate) ways: [Way; 2],
}

/// The way to a worker.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) parts: Sender<Part>,
    /// One message asks for one part.
    pub(crate) hunger: Receiver<u32>,
}

/// Gives batches of rows to two workers in turn, and leaves everything else to the other.
pub(crate) struct Alternator<'a> {
    given: Given<'a>,
    /// Whose turn comes next, and how many parts that one has asked for and not got; less than none if some are on their way.
    next: usize,
    asked: [i64; 2],
    /// What the batch touches that was given away last.
    touched: Touched,
    /// Batches of rows that came one after the other.
    batches: u32,
    is_begun: bool,
}

impl<'a> Alternator<'a> {
    pub(crate) fn new(given: Given<'a>) -> Alternator<'a> {
        Alternator { given, next: 0, asked: [0; 2], touched: Touched::default(), batches: 0, is_begun: false }
    }

    /// True if it is a whole batch of rows that are written as the source's images.
    fn is_suitable(&self, part: &Part) -> Result<bool> {
        Ok(part.is_plain() && !part.batch.is_unfolded && part.is_replayed(&self.given.choice)?)
    }

    /// True if everything is applied that was given away.
    fn is_idle(&self) -> bool {
        let progress = self.given.turns.progress;
        progress.last_applied() >= progress.last_handed()
    }

    fn send(&mut self, part: Part) -> Result<()> {
        self.asked[self.next] -= 1;
        self.given.ways[self.next].parts.send(part).map_err(|_| Halt::StageEnded)
    }
}

impl Beside for Alternator<'_> {
    fn has_room_within(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        while self.asked[self.next] <= 0 {
            if self.given.turns.has_failed() {
                return Err(Halt::StageEnded);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match receive_within(&self.given.ways[self.next].hunger, left)? {
                Some(_) => self.asked[self.next] += 1,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn fits(&mut self, part: &Part) -> Result<bool> {
        if !self.is_suitable(part)? {
            self.batches = 0;
            return Ok(false);
        }
        if self.given.when == PipelineWhen::Always {
            return Ok(true);
        }
        // Where rows are read from disk, prefetching helps, and one worker does it.
        if !self.given.turns.progress.pace().is_of_memory() {
            return Ok(false);
        }
        self.batches = self.batches.saturating_add(1);
        let is_large = part.batch.statistics.row_changes >= CHANGES_MIN;
        Ok(match self.is_begun {
            // The one worker has them at once, and commits them without waiting for anybody.
            true => is_large || !self.is_idle(),
            false => is_large && self.batches > BATCHES_BEFORE,
        })
    }

    fn begin(&mut self, _part: &Part) -> Result<()> {
        self.is_begun = true;
        self.touched = Touched::default();
        Ok(())
    }

    fn take(&mut self, mut part: Part, stop: &AtomicBool) -> Result<()> {
        unless_stopped(stop, || self.has_room_within(STOP_CHECK))?;
        let progress = self.given.turns.progress;
        let touched = Touched::by(&part.batch);
        progress.hand_out(part.reached.seqno);
        stopping_point("after-gathering");
        if !progress.wait_applied(part.from.seqno, Duration::ZERO) {
            if let Some(ahead) = self.touched.split(&mut part.batch) {
                self.given.status.executed_ahead(ahead.segments().map(|segment| segment.net_rows()).sum());
                self.send(part.share(ahead, None))?;
            }
            part.turn = Some(part.from.seqno);
        }
        self.touched = touched;
        self.send(part)?;
        self.next = 1 - self.next;
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        let progress = self.given.turns.progress;
        // What is begun ends also when the session is to stop.
        while !progress.wait_applied(progress.last_handed(), STOP_CHECK) {
            if self.given.turns.has_failed() {
                return Err(Halt::StageEnded);
            }
        }
        self.is_begun = false;
        Ok(())
    }
}
