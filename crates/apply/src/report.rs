//! Where an applier reports to.

use crate::lanes::Board;
use crate::pipeline::Turns;
use crate::progress::Progress;

/// Where an applier reports to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Report<'a> {
    /// It applies everything that it is given, and nobody applies anything meanwhile.
    Whole(&'a Progress<'a>),
    /// It and another apply batches in turn.
    InTurn(&'a Turns<'a>),
    /// It is one of several that apply shares, this one, from 0.
    Share(&'a Board<'a>, u32),
}

impl<'a> Report<'a> {
    /// Of an applier whose batches are whole. `None`: they are shares.
    pub(crate) fn progress(self) -> Option<&'a Progress<'a>> {
        match self {
            Report::Whole(progress) => Some(progress),
            Report::InTurn(turns) => Some(turns.progress),
            Report::Share(..) => None,
        }
    }
}
