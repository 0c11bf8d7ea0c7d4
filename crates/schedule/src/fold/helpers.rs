//! Folding by several threads.
//!
//! The fold of a table that has grown large moves to a *helper*, a thread that folds what is sent after it, and comes home when its segment ends. The
//! builder that reads events only collects the row changes of such a table into *runs*. A helper cannot end the segment: if a change contradicts its
//! fold, that is known when the fold comes home, and the batch is read again and folded by the builder itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use spate_binlog::RowsKind;

use super::{TableFold, Verdict};

/// The most helpers: reading events is a fifth of the work, and is not divided.
pub const HELPERS_MAX: usize = 4;

/// A fold of so many bytes moves to a helper: of a smaller one, the journey would cost more than it saves. So small batches are folded at once.
const MOVES_FROM_BYTES: usize = 256 << 10;

/// Bytes of images that are sent to a helper together.
const RUN_BYTES: usize = 128 << 10;

/// Runs that wait for a helper; with more, the builder waits for it.
const RUNS_WAITING_MAX: usize = 8;

/// Row changes of a table, one after the other.
#[derive(Debug, Default)]
struct Run {
    /// Of each event, the kind of its changes, and how many bytes its images take.
    events: Vec<(RowsKind, usize)>,
    images: Vec<u8>,
}

enum Work {
    /// A table's fold comes, with its place in the segment.
    Fold(usize, Box<TableFold>),
    /// What is to be folded into it.
    Run(usize, Run),
    /// All folds are to go home.
    GoHome(Sender<Home>),
}

/// Folds that come home.
struct Home {
    folds: Vec<(usize, Box<TableFold>)>,
    row_changes: u64,
    /// Something could not be folded, and what came behind it was not.
    contradicts: bool,
}

/// What a helper has, as its builder sees it.
#[derive(Debug, Default)]
struct Load {
    /// Bytes of runs on their way to it, and of its folds.
    bytes: AtomicUsize,
    row_changes: AtomicU64,
}

/// A helper, which has not begun.
pub struct Helper {
    work: Receiver<Work>,
    load: Arc<Load>,
}

/// The way to a helper.
#[derive(Debug)]
struct Way {
    work: SyncSender<Work>,
    load: Arc<Load>,
}

/// A table whose fold is away.
#[derive(Debug)]
struct Away {
    way: usize,
    /// What is collected for it.
    run: Run,
}

/// A builder's helpers.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    ways: Vec<Way>,
    /// By the table's place in the segment.
    away: HashMap<usize, Away>,
    /// Bytes in runs that were not sent.
    collected_bytes: usize,
    next: usize,
    /// No more folds move to them.
    rest: bool,
    /// A fold has come home that lacks something.
    pub(crate) contradicts: bool,
}

impl Helpers {
    /// So many helpers, which are to be run each in a thread of its own.
    pub(crate) fn new(count: usize) -> (Helpers, Vec<Helper>) {
        let both = (0..count.min(HELPERS_MAX)).map(|_| {
            let (work, work_out) = sync_channel(RUNS_WAITING_MAX);
            let load = Arc::new(Load::default());
            (Way { work, load: Arc::clone(&load) }, Helper { work: work_out, load })
        });
        let (ways, helpers) = both.unzip();
        (Helpers { ways, ..Helpers::default() }, helpers)
    }

    /// Takes changes for the table's fold, if it is away or goes away now, and returns how many bytes of memory went with it. `None`: the builder is
    /// to fold them.
    pub(crate) fn take(&mut self, place: usize, fold: &mut TableFold, kind: RowsKind, images: &[u8]) -> Option<usize> {
        let moved_bytes = if self.away.contains_key(&place) { 0 } else { self.send_away(place, fold)? };
        let away = self.away.get_mut(&place)?;
        away.run.events.push((kind, images.len()));
        away.run.images.extend_from_slice(images);
        self.collected_bytes += images.len();
        if away.run.images.len() >= RUN_BYTES {
            let run = std::mem::take(&mut away.run);
            self.collected_bytes -= run.images.len();
            self.contradicts |= !self.ways[away.way].send_run(place, run);
        }
        Some(moved_bytes)
    }

    fn send_away(&mut self, place: usize, fold: &mut TableFold) -> Option<usize> {
        if self.rest || self.ways.is_empty() {
            return None;
        }
        let bytes = Some(fold.memory_bytes()).filter(|&bytes| bytes >= MOVES_FROM_BYTES)?;
        let way = self.next % self.ways.len();
        self.next += 1;
        let hollow = fold.without_rows();
        let fold = std::mem::replace(fold, hollow);
        self.ways[way].load.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.contradicts |= self.ways[way].work.send(Work::Fold(place, Box::new(fold))).is_err();
        self.away.insert(place, Away { way, run: Run::default() });
        Some(bytes)
    }

    /// Until the batch is taken, no more folds move to them.
    pub(crate) fn rest(&mut self) {
        self.rest = true;
    }

    /// The batch is taken.
    pub(crate) fn begin_batch(&mut self) {
        self.rest = false;
    }

    /// True if the fold of this place is away.
    pub(crate) fn have(&self, place: usize) -> bool {
        self.away.contains_key(&place)
    }

    /// Bytes of memory that is away.
    pub(crate) fn memory_bytes(&self) -> usize {
        let away = self.ways.iter().map(|way| way.load.bytes.load(Ordering::Relaxed)).sum::<usize>();
        if self.away.is_empty() { 0 } else { away + self.collected_bytes }
    }

    /// Row changes that were folded elsewhere.
    pub(crate) fn row_changes(&self) -> u64 {
        match self.away.is_empty() {
            true => 0,
            false => self.ways.iter().map(|way| way.load.row_changes.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Waits for all folds, puts each into its place, and returns how many row changes were folded elsewhere. `None`: none was away.
    pub(crate) fn bring_home(&mut self, folds: &mut [TableFold]) -> Option<u64> {
        if self.away.is_empty() {
            return None;
        }
        for (place, away) in std::mem::take(&mut self.away) {
            if !away.run.events.is_empty() {
                self.contradicts |= !self.ways[away.way].send_run(place, away.run);
            }
        }
        self.collected_bytes = 0;
        let mut row_changes = 0;
        let answers: Vec<_> = self.ways.iter().map(Way::call_home).collect();
        for answer in answers {
            let Some(home) = answer.and_then(|answer| answer.recv().ok()) else {
                self.contradicts = true;
                continue;
            };
            self.contradicts |= home.contradicts;
            row_changes += home.row_changes;
            for (place, fold) in home.folds {
                if let Some(hollow) = folds.get_mut(place) {
                    *hollow = *fold;
                }
            }
        }
        Some(row_changes)
    }
}

impl Way {
    /// False if the helper is gone.
    fn send_run(&self, place: usize, run: Run) -> bool {
        self.load.bytes.fetch_add(run.images.len(), Ordering::Relaxed);
        self.work.send(Work::Run(place, run)).is_ok()
    }

    fn call_home(&self) -> Option<Receiver<Home>> {
        let (answer, answered) = channel();
        self.work.send(Work::GoHome(answer)).is_ok().then_some(answered)
    }
}

impl Helper {
    /// Folds until the builder is gone.
    pub fn run(self) {
        let (mut folds, mut row_changes, mut contradicts) = (HashMap::<usize, Box<TableFold>>::new(), 0, false);
        for work in self.work {
            match work {
                Work::Fold(place, fold) => drop(folds.insert(place, fold)),
                Work::Run(place, run) => {
                    let Some(fold) = folds.get_mut(&place).filter(|_| !contradicts) else {
                        contradicts = true;
                        continue;
                    };
                    let before = fold.memory_bytes();
                    match fold_run(fold, &run) {
                        Some(count) => row_changes += count,
                        None => contradicts = true,
                    }
                    self.load.row_changes.store(row_changes, Ordering::Relaxed);
                    self.load.bytes.fetch_add(fold.memory_bytes().saturating_sub(before), Ordering::Relaxed);
                    self.load.bytes.fetch_sub(run.images.len(), Ordering::Relaxed);
                }
                Work::GoHome(answer) => {
                    self.load.bytes.store(0, Ordering::Relaxed);
                    self.load.row_changes.store(0, Ordering::Relaxed);
                    let home = Home { folds: folds.drain().collect(), row_changes, contradicts };
                    (row_changes, contradicts) = (0, false);
                    // A builder that is gone misses nothing.
                    let _is_gone = answer.send(home);
                }
            }
        }
    }
}

/// How many changes were folded. `None`: one of them could not be, for whatever reason: the builder will find it.
fn fold_run(fold: &mut TableFold, run: &Run) -> Option<u64> {
    let (mut rest, mut count) = (&run.images[..], 0);
    for &(kind, length) in &run.events {
        let (mut images, behind) = rest.split_at_checked(length)?;
        rest = behind;
        while !images.is_empty() {
            let Ok(Verdict::Folded(length)) = fold.take(kind, images) else { return None };
            images = images.get(length..)?;
            count += 1;
        }
    }
    Some(count)
}
