//! The coordinator hands parts out: to the worker, or, where transactions are applied beside each other, to the pool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use spate_binlog::Gtid;
use spate_replica::checkpoint::APPLIER;

use crate::Pace;
use crate::Part;
use crate::halt::{Halt, Result};
use crate::hold::HoldState;
use crate::progress::Progress;

/// How long to wait for a worker before looking whether to stop.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(100);

/// The worker's end of its lane: it asks for a part, and takes it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Whose it is: the row of `spate.checkpoint` that its commits move.
    pub(crate) applier: u32,
    /// One message asks for one part.
    pub(crate) hunger: Sender<u32>,
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

    /// True if what is handed out now would only wait for the end of what was handed out before, which is near: rows are in the replica's memory.
    fn would_wait(&mut self) -> bool {
        false
    }

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

    /// Waits until what was handed out is applied, unless one worker applies all of it in its order.
    ///
    /// # Errors
    /// As [`Dispatch::finish`].
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }

    /// Nothing comes for now.
    ///
    /// # Errors
    /// As [`Dispatch::finish`].
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// Nothing more comes: waits until what would be unclear to the next session is applied.
    ///
    /// # Errors
    /// [`Halt::StageEnded`]; any error of the connection.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What applies beside the worker. It and the worker never have something at the same time.
pub(crate) trait Beside {
    /// This transaction comes next.
    fn pass(&mut self, _gtid: Option<Gtid>) {}

    /// True if it could take a part.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    fn has_room_within(&mut self, timeout: Duration) -> Result<bool>;

    /// True if it can take this part, which is no piece of a transaction that the worker has. Else the worker applies it.
    ///
    /// # Errors
    /// [`Halt::StageEnded`]; any error of the connection.
    fn fits(&mut self, part: &Part) -> Result<bool>;

    /// The worker has applied everything before the part, which is taken next.
    ///
    /// # Errors
    /// Any error of the connection.
    fn begin(&mut self, part: &Part) -> Result<()>;

    /// Takes a part that fits.
    ///
    /// # Errors
    /// As [`Beside::fits`].
    fn take(&mut self, part: Part, stop: &AtomicBool) -> Result<()>;

    /// Waits until nothing is left with it, and has the checkpoint say where the replica is.
    ///
    /// # Errors
    /// As [`Beside::fits`].
    fn drain(&mut self) -> Result<()>;

    /// Nothing comes for now: has the checkpoint say where the replica is, if everything is applied.
    ///
    /// # Errors
    /// As [`Beside::fits`].
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// Nothing more comes, and it is drained.
    ///
    /// # Errors
    /// As [`Beside::begin`].
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Hands parts out.
pub(crate) struct Coordinator<'a> {
    /// `None`: all goes to the worker.
    beside: Option<Box<dyn Beside + Send + 'a>>,
    /// The last transaction that the worker was given. `None`: it has nothing, and what is beside it may have something.
    with_worker: Option<u64>,
    /// The worker has a piece of a transaction that goes on.
    is_in_pieces: bool,
    parts: Sender<Part>,
    hunger: Receiver<u32>,
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
        beside: Option<Box<dyn Beside + Send + 'a>>,
    ) -> (Coordinator<'a>, Lane) {
        let (parts, parts_out) = bounded(1);
        let (hunger_in, hunger) = bounded(1);
        let coordinator = Coordinator {
            beside,
            with_worker: None,
            is_in_pieces: false,
            parts,
            hunger,
            is_hungry: false,
            progress,
            hold,
            stop,
        };
        (coordinator, Lane { applier: APPLIER, hunger: hunger_in, parts: parts_out })
    }
}

impl Dispatch for Coordinator<'_> {
    fn begin_after(&mut self, seqno: u64) {
        self.progress.begin_after(seqno);
        // As if the worker had had it: what is beside it begins behind that.
        self.with_worker = Some(seqno);
    }

    fn may_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool {
        self.hold.try_begin(gtid, seqno) && self.begin(gtid)
    }

    fn wait_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool {
        self.hold.wait_begin(gtid, seqno, self.stop) && self.begin(gtid)
    }

    fn is_hungry_within(&mut self, timeout: Duration) -> Result<bool> {
        match self.beside_at_work() {
            Some(beside) => beside.has_room_within(timeout),
            None => self.is_worker_hungry_within(timeout),
        }
    }

    fn would_wait(&mut self) -> bool {
        let is_in_effect = |progress: &Progress<'_>| progress.wait_in_effect(progress.last_handed(), Duration::ZERO);
        self.beside_at_work().is_none() && self.progress.pace().is_of_memory() && !is_in_effect(self.progress)
    }

    fn pace(&self) -> Pace {
        self.progress.pace()
    }

    fn hand_out(&mut self, part: Part) -> Result<()> {
        if let Some(beside) = &mut self.beside {
            if !self.is_in_pieces && beside.fits(&part)? {
                if let Some(seqno) = self.with_worker.take() {
                    unless_stopped(self.stop, || Ok(self.progress.wait_applied(seqno, STOP_CHECK)))?;
                    beside.begin(&part)?;
                }
                return beside.take(part, self.stop);
            }
            if self.with_worker.is_none() {
                beside.drain()?;
            }
            self.is_in_pieces = part.end.is_none();
            self.with_worker = Some(part.reached.seqno);
        }
        unless_stopped(self.stop, || self.is_worker_hungry_within(STOP_CHECK))?;
        self.is_hungry = false;
        self.progress.hand_out(part.reached.seqno);
        spate_archive::stopping_point("after-gathering");
        self.parts.send(part).map_err(|_| Halt::StageEnded)
    }

    fn is_in_effect(&mut self, seqno: u64) -> bool {
        self.progress.wait_in_effect(seqno, Duration::ZERO)
    }

    fn wait_in_effect(&mut self, seqno: u64) -> Result<()> {
        unless_stopped(self.stop, || Ok(self.progress.wait_in_effect(seqno, STOP_CHECK)))
    }

    fn drain(&mut self) -> Result<()> {
        self.beside_at_work().map_or(Ok(()), |beside| beside.drain())
    }

    fn rest(&mut self) -> Result<()> {
        self.beside_at_work().map_or(Ok(()), |beside| beside.rest())
    }

    fn finish(&mut self) -> Result<()> {
        self.drain()?;
        self.beside.as_mut().map_or(Ok(()), |beside| beside.finish())
    }
}

impl<'a> Coordinator<'a> {
    /// What applies beside the worker, if the worker has nothing.
    fn beside_at_work(&mut self) -> Option<&mut Box<dyn Beside + Send + 'a>> {
        self.beside.as_mut().filter(|_| self.with_worker.is_none())
    }

    /// This transaction comes next.
    fn begin(&mut self, gtid: Option<Gtid>) -> bool {
        if let Some(beside) = &mut self.beside {
            beside.pass(gtid);
        }
        true
    }

    fn is_worker_hungry_within(&mut self, timeout: Duration) -> Result<bool> {
        if !self.is_hungry {
            self.is_hungry = receive_within(&self.hunger, timeout)?.is_some();
        }
        Ok(self.is_hungry)
    }
}

/// Looks again and again, and each time waits for a moment, until it is so.
///
/// # Errors
/// [`Halt::StageEnded`] if somebody asks the session to stop first; the errors of looking.
pub(crate) fn unless_stopped(stop: &AtomicBool, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    while !is_so()? {
        if stop.load(Ordering::Acquire) {
            return Err(Halt::StageEnded);
        }
    }
    Ok(())
}

/// The next message; `None` if there is none in time. (Even for no time at all, the channel would wait for a moment, and this is asked with every
/// transaction.)
pub(crate) fn receive_within<T>(channel: &Receiver<T>, timeout: Duration) -> Result<Option<T>> {
    match timeout.is_zero() {
        true => match channel.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Halt::StageEnded),
        },
        false => match channel.recv_timeout(timeout) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Halt::StageEnded),
        },
    }
}
