//! The coordinator hands parts out: to the worker, or, where transactions are applied beside each other, to the pool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use spate_binlog::Gtid;

use crate::Pace;
use crate::Part;
use crate::concurrent::Front;
use crate::halt::{Halt, Result};
use crate::hold::HoldState;
use crate::progress::Progress;

/// How long to wait for a worker before looking whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The worker's end of its lane: it asks for a part, and takes it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// One message asks for one part.
    pub(crate) hunger: Sender<()>,
    pub(crate) parts: Receiver<Part>,
}

/// What gathering needs of what comes after it.
pub trait Dispatch {
    /// Seqno of the last transaction before the first of this session.
    fn begin_after(&mut self, seqno: u64);

    /// Notes that this transaction is begun, if it may be: a comparison may ask the applier to hold before it.
    fn may_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool;

    /// Waits until this transaction may be begun; false if somebody asks the session to stop first.
    fn wait_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool;

    /// True if a worker has nothing to do, which is waited for.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    fn is_hungry_within(&mut self, timeout: Duration) -> Result<bool>;

    /// What a row change costs, by the latest batch.
    fn pace(&self) -> Pace;

    /// Gives the part to a worker, once one has nothing to do.
    ///
    /// # Errors
    /// [`Halt::StageEnded`], also if somebody asks the session to stop meanwhile.
    fn hand_out(&mut self, part: Part) -> Result<()>;

    /// True if this transaction and all before it are applied, or this one is a definition and in effect.
    fn is_in_effect(&mut self, seqno: u64) -> bool;

    /// Waits until this transaction and all before it are applied, or this one is a definition and in effect.
    ///
    /// # Errors
    /// [`Halt::StageEnded`] if somebody asks the session to stop first.
    fn wait_in_effect(&mut self, seqno: u64) -> Result<()>;

    /// Nothing more comes: waits until what would be unclear to the next session is applied.
    ///
    /// # Errors
    /// [`Halt::StageEnded`]; any error of the connection.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Hands parts out.
pub(crate) struct Coordinator<'a> {
    /// Takes jobs. `None`: all goes to the worker.
    front: Option<Front<'a>>,
    parts: Sender<Part>,
    hunger: Receiver<()>,
    /// The worker has asked for a part that it did not get yet.
    is_hungry: bool,
    progress: &'a Progress<'a>,
    hold: &'a HoldState,
    stop: &'a AtomicBool,
}

impl<'a> Coordinator<'a> {
    /// A coordinator, and the lane of its worker.
    pub(crate) fn new(
        progress: &'a Progress<'a>,
        hold: &'a HoldState,
        stop: &'a AtomicBool,
        front: Option<Front<'a>>,
    ) -> (Coordinator<'a>, Lane) {
        let (parts, parts_out) = bounded(1);
        let (hunger_in, hunger) = bounded(1);
        let coordinator = Coordinator { front, parts, hunger, is_hungry: false, progress, hold, stop };
        (coordinator, Lane { hunger: hunger_in, parts: parts_out })
    }
}

impl Dispatch for Coordinator<'_> {
    fn begin_after(&mut self, seqno: u64) {
        self.progress.begin_after(seqno);
        if let Some(front) = &mut self.front {
            front.begin_after(seqno);
        }
    }

    fn may_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool {
        self.hold.try_begin(gtid, seqno) && self.begin(gtid)
    }

    fn wait_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool {
        self.hold.wait_begin(gtid, seqno, self.stop) && self.begin(gtid)
    }

    fn is_hungry_within(&mut self, timeout: Duration) -> Result<bool> {
        if let Some(front) = &self.front {
            return front.has_room_within(timeout);
        }
        self.is_worker_hungry_within(timeout)
    }

    fn pace(&self) -> Pace {
        self.progress.pace()
    }

    fn hand_out(&mut self, part: Part) -> Result<()> {
        let part = match &mut self.front {
            Some(front) => match front.take(part, self.stop)? {
                Some(part) => part,
                None => return Ok(()),
            },
            None => part,
        };
        while !self.is_worker_hungry_within(STOP_CHECK)? {
            if self.stop.load(Ordering::Acquire) {
                return Err(Halt::StageEnded);
            }
        }
        self.is_hungry = false;
        self.progress.hand_out(part.reached.seqno);
        spate_archive::stopping_point("after-gathering");
        self.parts.send(part).map_err(|_| Halt::StageEnded)
    }

    fn is_in_effect(&mut self, seqno: u64) -> bool {
        self.progress.wait_in_effect(seqno, Duration::ZERO)
    }

    fn wait_in_effect(&mut self, seqno: u64) -> Result<()> {
        while !self.progress.wait_in_effect(seqno, STOP_CHECK) {
            if self.stop.load(Ordering::Acquire) {
                return Err(Halt::StageEnded);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        match &mut self.front {
            Some(front) => front.drain(),
            None => Ok(()),
        }
    }
}

impl Coordinator<'_> {
    /// This transaction comes next.
    fn begin(&mut self, gtid: Option<Gtid>) -> bool {
        if let Some(front) = &mut self.front {
            front.pass(gtid);
        }
        true
    }

    fn is_worker_hungry_within(&mut self, timeout: Duration) -> Result<bool> {
        if !self.is_hungry {
            self.is_hungry = match self.hunger.recv_timeout(timeout) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return Err(Halt::StageEnded),
            };
        }
        Ok(self.is_hungry)
    }
}
